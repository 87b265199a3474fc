"""The text of a ``.proto`` file becomes descriptors; protoc reads it, in a process of its own.

protoc comes with ``grpcio-tools``. It is not called within this process: there it writes its errors past Python to the
standard error, and its package changes how this process imports modules. That process has bounds of its own, so that a
schema takes neither the time nor the memory of others. Knows nothing of columns and records.
"""

import errno
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path, PurePosixPath

from batchledger.model.errors import ConfigurationError, StagingError, advise_extra
from batchledger.model.quoting import quote, shorten

BUILT_IN = "google/protobuf/"
"""The folder of the files that come with protoc."""

# A registry takes these for known: schemas that import them name no reference.
_GOOGLE_TYPES = "google/type/"
_SECONDS = 180
CPU_SECONDS = 20
MEMORY_BYTES = 2 * 2**30
"""What protoc may take for one schema. One of 4 MiB takes a second and 300 MiB."""

# Set by the process itself: what runs between fork and exec may not wait for locks of other threads. At a soft limit
# of CPU it gets a signal that the machine does not send for anything else.
_BOUNDED_PROTOC = """
import resource, runpy, sys
from batchledger.bounds.process_limits import limit_process
for limit in (resource.RLIMIT_CPU, resource.RLIMIT_AS):
    limit_process(limit, int(sys.argv.pop(1)))
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
runpy.run_module("grpc_tools.protoc", run_name="__main__", alter_sys=True)
"""
_OF_THE_MACHINE = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
"""Signals that say nothing of the schema: a person, or a machine without memory, has ended protoc."""

_OF_THE_NAME = (errno.ENAMETOOLONG, errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.ELOOP, errno.EINVAL)
"""Errors of the file system that a name has, whatever the machine: too long, or a file and a folder at once."""

_OUT_OF_MEMORY = ("MemoryError", "cannot allocate memory")
"""What Python and the C library say at the bound."""

_MISSING = re.compile(r"^(?P<name>.+): File not found\.$", re.MULTILINE)
_WRONG = re.compile(r"^(?P<file>.+?\.proto):(?:(?P<line>\d+):(?P<column>\d+):)? (?!warning)(?P<why>.+)$", re.MULTILINE)


class ProtobufSchemaError(ValueError):
    """Why values of a writer's schema can never become the declared columns."""


@lru_cache(maxsize=256)
def compile_files(text: str, references: tuple[tuple[str, str], ...]) -> bytes:
    """Return the files as a FileDescriptorSet: each after its imports, and ``text`` the last.

    ``references`` are import paths and texts. Those that begin with ``google/protobuf/`` come with protoc. Takes about
    0.1 seconds, once in a process. Raises ProtobufSchemaError, with the import that is missing or the place of a fault;
    StagingError or ConfigurationError if the fault is the machine's.
    """
    try:
        return _compile(text, references)
    except OSError as error:
        raise StagingError(
            "protoc could not be run over a writer's schema. Nothing was written.",
            why=f"{type(error).__name__}: {error.strerror}.",
            advice="The next attempt compiles it again. See whether the workers have room for temporary files.",
        ) from error


def _compile(text: str, references: tuple[tuple[str, str], ...]) -> bytes:
    with tempfile.TemporaryDirectory(prefix="batchledger-protobuf-") as folder:
        root, found = Path(folder, "files"), Path(folder, "found")
        main = _name_main(references)
        _add_google_types(root, (text, *(each for _, each in references)))
        for name, each in (*references, (main, text)):
            if not name.startswith(BUILT_IN):
                _write(root, name, each)
        command = [sys.executable, "-P", "-c", _BOUNDED_PROTOC, str(CPU_SECONDS), str(MEMORY_BYTES), f"-I{root}"]
        command += ["--include_imports", f"--descriptor_set_out={found}", main]
        # The child imports from wherever this process does, such as the files that Spark has sent to a worker.
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(each for each in sys.path if each)}
        try:
            done = subprocess.run(command, capture_output=True, timeout=_SECONDS, check=False, env=environment)
        except subprocess.TimeoutExpired:
            raise StagingError(
                f"protoc has not read a writer's schema after {_SECONDS} seconds. Nothing was written.",
                advice="The next attempt compiles it again. See whether the workers have the CPU and memory they need.",
            ) from None
        if done.returncode or not found.exists():
            raise _explain_failure(done, str(root), main)
        return found.read_bytes()


def _name_main(references: tuple[tuple[str, str], ...]) -> str:
    """Return a name that no import has."""
    name, taken = "writer.proto", {each for each, _ in references}
    while name in taken:
        name = f"a_{name}"
    return name


def _add_google_types(root: Path, texts: Iterable[str]) -> None:
    """Put the files of ``google/type`` among the imports, if a file may use one."""
    spec = find_spec("google.type") if any(_GOOGLE_TYPES in each for each in texts) else None
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        for path in Path(folder).glob("*.proto"):
            _write(root, f"{_GOOGLE_TYPES}{path.name}", path.read_text(encoding="utf-8"))


def _write(root: Path, name: str, text: str) -> None:
    """Write a file. Raises ProtobufSchemaError if no machine could, OSError if this one cannot."""
    path = PurePosixPath(name)
    refusal = ProtobufSchemaError(f"the writer's schema refers to {quote(name)}, which is no path of an import")
    if path.is_absolute() or ".." in path.parts or not path.name or "\0" in name:
        raise refusal
    target = root / path
    try:
        content = text.encode()
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)
    except UnicodeEncodeError:
        raise ProtobufSchemaError(f"the file {quote(name)} of the writer's schema is no text of Unicode") from None
    except OSError as error:
        if error.errno in _OF_THE_NAME:
            raise refusal from None
        raise


def _explain_failure(done: "subprocess.CompletedProcess[bytes]", root: str, main: str) -> Exception:
    """Return what is wrong with the schema, or with the machine if protoc has said nothing of the schema."""
    output = done.stderr.decode(errors="replace")
    why = _explain(output, root, main)
    if why is not None:
        return ProtobufSchemaError(why)
    is_out_of_memory = any(words in output for words in _OUT_OF_MEMORY)
    if (done.returncode < 0 and -done.returncode not in _OF_THE_MACHINE) or is_out_of_memory:
        limits = f"{CPU_SECONDS} s of CPU and {MEMORY_BYTES / 2**30:.0f} GiB"
        return ProtobufSchemaError(
            f"protoc cannot read the writer's schema: it takes more than {limits}, or crashes protoc"
        )
    if "No module named" in output:
        return ConfigurationError(
            "The Python of Spark's workers has no protoc. Nothing was written.",
            why="Schemas of Protobuf are compiled there.",
            advice=advise_extra("protobuf"),
        )
    return StagingError(
        f"protoc ended with code {done.returncode} and no reason. Nothing was written.",
        advice="The next attempt compiles the schema again. See whether the workers have the memory that they need.",
    )


def _explain(output: str, root: str, main: str) -> str | None:
    """Return what protoc has found in the schema, in the words of the first error; None if it has named none."""
    output = output.replace(f"{root}{os.sep}", "")
    missing = _MISSING.search(output)
    if missing is not None:
        return f"the writer's schema imports {quote(missing['name'])}, which is not among its references"
    wrong = _WRONG.search(output)
    if wrong is None:
        return None
    which = "the writer's schema" if wrong["file"] == main else f"the import {quote(wrong['file'])}"
    place = f"line {wrong['line']}, column {wrong['column']}: " if wrong["line"] else ""
    return f"{which} is not one of Protobuf: {place}{shorten(wrong['why'])}"
