"""Reads a file that people write, or refuses it: each mistake on a line of its own, with its place."""

from collections.abc import Iterable
from pathlib import Path
from typing import NoReturn

from batchledger.config.documents import Document, DocumentError, read_yaml
from batchledger.model.errors import FileFault, FileRefusedError


def read_keys(path: Path, what: str, advice: str) -> Document:
    """Return a file of YAML that has keys; ``what`` says what it should be. Raises FileRefusedError."""
    try:
        document = read_yaml(path)
    except OSError as error:
        refuse(path, [FileFault(1, 1, f"cannot be read: {error.strerror}")], advice)
    except DocumentError as error:
        fault = FileFault(error.line, error.column, f"not readable as YAML: {error}")
        refuse(path, [fault], 'A text with a sign of YAML in front needs quotes: schedule: "*/5 * * * *"')
    if not isinstance(document.content, dict):
        refuse(path, [FileFault(*document.locate([]), f"not {what}")], advice)
    return document


def refuse(path: Path, faults: Iterable[FileFault], advice: str) -> NoReturn:
    """Raise FileRefusedError with all mistakes of a file."""
    file, found = write_path(path), tuple(faults)
    raise FileRefusedError(
        "\n".join(f"{file}:{each.line}:{each.column}: {each.text}" for each in found),
        advice=f"Correct the file. {advice}",
        subject=file,
        faults=found,
    ) from None


def require_file_name(path: Path, document: Document, key: str, name: str, advice: str) -> None:
    """Raise FileRefusedError unless the file is called as its ``key`` says."""
    if path.name != f"{name}.yaml":
        differs = f"{key}: {name!r} differs from the file name; call the file {name}.yaml"
        refuse(path, [FileFault(*document.locate([key]), f"{differs}, or correct the name in it")], advice)


def write_path(path: Path) -> str:
    """Return the path as text: a name that is not UTF-8 could be neither printed nor sent."""
    return str(path).encode("utf-8", "backslashreplace").decode()
