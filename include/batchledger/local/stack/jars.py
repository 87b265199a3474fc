"""Fetch the pinned jars: a list for each service in ``ivy/``, resolved by the Ivy that pyspark ships.

The lists are explicit and not transitive. ``ivy/jars.sha256`` has the SHA-256 of each file: Ivy itself compares a file
only with what the same server says about it. A file is compared with its digest each time that it is asked for. If all
files of a list are there, Java is not started. ``python -m batchledger.local.stack.jars`` fetches what the services
need. Other lists are fetched when they are first needed: ``registry`` by a start of the schema registry, the rest by
the bench.
"""

import hashlib
import importlib.util
import platform
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from xml.etree import ElementTree

from batchledger.interfaces.cli.printing import print_error
from batchledger.interfaces.unexpected import explain_unexpected
from batchledger.local.stack.home import Home, locked
from batchledger.local.stack.machine import find_java
from batchledger.model.errors import BatchledgerError, SetupError

_LISTS = Path(__file__).parent / "ivy"
_SETTINGS = Path(__file__).parent / "ivy_settings.xml"
_DEADLINE_SECONDS = 900
_TRIES = 3
"""A server or a proxy may break a large download off."""
_PLATFORMS = {
    ("Linux", "x86_64"): "linux-amd64",
    ("Linux", "aarch64"): "linux-arm64v8",
    ("Darwin", "x86_64"): "darwin-amd64",
    ("Darwin", "arm64"): "darwin-arm64v8",
}


def fetch_jars(home: Home, name: str, configuration: str = "default") -> list[Path]:
    """Return the jars of the list ``ivy/<name>.xml``, downloaded unless they are all there, each with its digest.

    The folder appears complete or not at all, so an interrupted download is repeated. Raises SetupError if one cannot
    be fetched, or is another file than ``ivy/jars.sha256`` names.
    """
    folder = home.cache / "jars" / name
    wanted = [folder / file_name for file_name in list_jars(name, configuration)]
    folder.parent.mkdir(parents=True, exist_ok=True)
    # Stacks share the downloads: the second of two that start at once waits for the first.
    with locked(home.cache / f"{name}.lock"):
        if not all(jar.exists() for jar in wanted):
            _download(home, name, configuration, folder)
    _refuse_other_files(home, wanted)
    return wanted


def list_jars(name: str, configuration: str = "default") -> list[str]:
    """The file names that the list stands for in one of its configurations."""
    dependencies = ElementTree.parse(_LISTS / f"{name}.xml").iter("dependency")  # noqa: S314 - it is our own file
    return [
        f"{one.attrib['name']}-{one.attrib['rev']}.{_find_ending(one)}"
        for one in dependencies
        if one.attrib["conf"].split("->")[0] == configuration
    ]


def _find_ending(dependency: ElementTree.Element) -> str:
    """The ending of the file's name: the one of the artifact that a dependency names, if it names one."""
    artifact = dependency.find("artifact")
    return "jar" if artifact is None else artifact.attrib["ext"]


def list_digests() -> dict[str, str]:
    """The SHA-256 of each file, in hexadecimal, by ``<list>/<file name>``."""
    lines = (_LISTS / "jars.sha256").read_text().splitlines()
    return {file: digest for digest, file in (line.split("  ") for line in lines)}


def _refuse_other_files(home: Home, jars: list[Path]) -> None:
    digests = list_digests()
    for jar in jars:
        with jar.open("rb") as content:
            found = hashlib.file_digest(content, "sha256").hexdigest()
        expected = digests.get(f"{jar.parent.name}/{jar.name}", "missing")
        if found != expected:
            raise SetupError(
                f"{jar} is not the file that this version of Batchledger names. It is not used.",
                why=f"Its SHA-256 is {found}; in ivy/jars.sha256 it is {expected}.",
                advice=f"Remove the downloads, then run the command again: rm -r {home.cache}\n"
                "If the new file is refused too, the repository or a proxy before it serves another file. Ask its "
                "administrator why, and do not use the file.",
            )


def postgres_platform() -> str:
    """The configuration of ``ivy/postgres.xml`` for this machine."""
    system, machine = platform.system(), platform.machine()
    try:
        return _PLATFORMS[system, machine]
    except KeyError:
        known = ", ".join(" ".join(pair) for pair in _PLATFORMS)
        raise SetupError(
            f"No PostgreSQL is packed for {system} {machine}.", why=f"There are programs for {known}."
        ) from None


def pyspark_folder() -> Path:
    """Where pip put pyspark, found without importing it."""
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise SetupError(
            "pyspark is not installed here.",
            advice="Use the Python of the environment that has Batchledger. In a clone, make setup builds it.",
        )
    return Path(spec.origin).parent


def _download(home: Home, name: str, configuration: str, folder: Path) -> None:
    ivy = next((pyspark_folder() / "jars").glob("ivy-*.jar"))
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{name}-") as draft:
        command = [
            *(str(find_java()), f"-Divy.default.ivy.user.dir={home.cache / 'ivy'}", "-jar", str(ivy), "-warn"),
            *("-settings", str(_SETTINGS), "-ivy", str(_LISTS / f"{name}.xml"), "-confs", configuration),
            *("-types", "jar", "bundle", "tar.gz"),
            *("-retrieve", f"{draft}/new/[artifact]-[revision].[ext]"),
        ]
        log = home.cache / "log" / f"{name}.log"
        log.parent.mkdir(exist_ok=True)
        for _ in range(_TRIES):
            try:
                done = subprocess.run(command, capture_output=True, check=False, text=True, timeout=_DEADLINE_SECONDS)
            except subprocess.TimeoutExpired:
                raise SetupError(
                    f"Fetching the jars of {name} took over {_DEADLINE_SECONDS} s.", advice="Run the command again."
                ) from None
            log.write_text(done.stdout + done.stderr)
            if done.returncode == 0:
                break
        else:
            raise SetupError(
                f"The jars of {name} could not be fetched.",
                why=f"Ivy's own words are in {log}.",
                advice="Check the network, the proxy and the free disk space. Then run the command again.",
            )
        shutil.rmtree(folder, ignore_errors=True)
        Path(draft, "new").replace(folder)


def main() -> int:
    """Fetch what the services of this machine need; the exit code says whether it is complete."""
    home = Home.of_project()
    try:
        for name, configuration in (("kafka", "default"), ("spark", "default"), ("postgres", postgres_platform())):
            jars = fetch_jars(home, name, configuration)
            sys.stdout.write(f"{name}: {len(jars)} jars\n")
    except BatchledgerError as error:
        print_error(error)
        return error.exit_code
    except Exception as error:  # noqa: BLE001 (the edge of the process)
        sys.stderr.write(f"error: {explain_unexpected(error, 'fetching the jars', home.local)}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
