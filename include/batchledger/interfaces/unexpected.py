"""The edge of a process: an unforeseen error becomes one sentence, and its trace a file of its own.

The sentence gives the kind and the place of the error, never its text, which may hold a record or a secret. The file
has the text, and only its owner can read it. Standard library only.
"""

import os
import sys
import tempfile
import traceback
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

_PACKAGE = Path(__file__).resolve().parents[1]


def explain_unexpected(error: BaseException, what: str, local: Path) -> str:
    """Write the trace to a new file below ``local``, or to a temporary one; return the sentence to show.

    ``what`` is what ended, such as ``batchledger run orders``.
    """
    log = [local / "log"] if local.is_dir() else []
    file = _write_trace(error, what, [*log, Path(tempfile.gettempdir())])
    kept = f"The trace is in {file}; add it to a report" if file else "Its trace could not be written to any file"
    return f"{what} ended by an error that was not foreseen: {_name(error)}{_place(error)}. {kept}."


def _name(error: BaseException) -> str:
    """Return the kind of the error. An error of the system keeps its text and file name, which are no secret."""
    kind = type(error).__name__
    if isinstance(error, OSError) and error.strerror:
        return f"{kind}: {error.strerror}" + (f": {error.filename}" if error.filename else "")
    return kind


def _place(error: BaseException) -> str:
    """Return the line of this project's own code that was reached last."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [each for each in frames if Path(each.filename).is_relative_to(_PACKAGE)]
    return f", in {Path(own[-1].filename).relative_to(_PACKAGE.parent)}, line {own[-1].lineno}" if own else ""


def _write_trace(error: BaseException, what: str, folders: Sequence[Path]) -> Path | None:
    """Return the file, which only its owner can read; None if no folder takes one."""
    now = datetime.now(UTC)
    text = "".join([f"{now.isoformat()} {what}, Python {sys.version}\n", *traceback.format_exception(error)])
    for folder in folders:
        try:
            folder.mkdir(exist_ok=True)
            descriptor, name = tempfile.mkstemp(f"-{now:%Y%m%dT%H%M%S}.log", "batchledger-error-", folder)
            with open(descriptor, "w", encoding="utf-8", errors="backslashreplace") as stream:
                stream.write(text)
        except OSError:
            continue
        return Path(os.path.abspath(name))  # noqa: PTH100 -- a link is shown as it was named
    return None
