"""How the command line prints: a command returns a value, and one function prints it. All tables have one style."""

import dataclasses
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from textwrap import wrap
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from batchledger.model.errors import BatchledgerError
from batchledger.model.offsets import OffsetRange

MOST_COLUMNS = 80
_LABEL_WIDTH = len("error: ")

Part = str | Text | Table | None

standard_error = Console(stderr=True, highlight=False)
"""One console for all, so that log lines and progress bars do not overwrite each other."""

_NUMBERS = (
    "offsets", "offsets =", "rows", "count", "unread", "seconds", "quarantined", "bytes", "+ unexplained", "before",
    "after", "ms",
)  # fmt: skip
_WRAPPING = (
    "where", "finding", "what was found", "run", "outcome", "what to know", "sum", "columns that differ", "error",
    "what", "by", "why, and what changed", "why", "key", "value", "registry", "id", "column",
    "named by", "found in", "answer",
)  # fmt: skip


@dataclasses.dataclass(frozen=True, slots=True)
class Shown:
    """What a command shows: scripts get the document, people get the parts in order. A part that is None is left out.

    In the document, dataclasses become objects, and times ISO text. ``exit_code`` is what the command ends with.
    """

    document: Any
    parts: Sequence[Part] = ()
    exit_code: int = 0


def show(shown: Shown | Iterable[Shown], as_json: bool) -> int:
    """Print to standard output, and return the exit code: of several values, the lowest that is not 0.

    People see each value as it comes; scripts get one list of all at the end. A text without wrapping stays one line,
    however narrow the terminal is.
    """
    several = [shown] if isinstance(shown, Shown) else shown
    if as_json:
        found = list(several)
        documents = [each.document for each in found]
        json.dump(documents[0] if isinstance(shown, Shown) else documents, sys.stdout, indent=2, default=_to_json)
        sys.stdout.write("\n")
    else:
        found = list(map(_print, several))
    return min({each.exit_code for each in found} - {0}, default=0)


def _print(shown: Shown) -> Shown:
    for part in shown.parts:
        if part is not None:
            Console().print(part, highlight=False, soft_wrap=isinstance(part, Text) and bool(part.no_wrap))
    return shown


def print_error(error: BatchledgerError) -> None:
    """Print to standard error what happened, why, and what to do.

    In a terminal long lines go on below their beginning; what to do is not broken, so that its commands can be copied.
    """
    for line in label_parts(error, standard_error.width if standard_error.is_terminal else None):
        standard_error.print(line, highlight=False, soft_wrap=True)


def label_parts(error: BatchledgerError, width: int | None = None) -> list[Text]:
    """Return what happened, why, and what to do, each on lines of its own behind its label.

    ``width``: how many columns the first two may have.
    """
    style = "bold red" if error.exit_code else "bold"
    lines = []
    for label, text in (
        ("error" if error.exit_code else "note", error.message),
        ("why", error.why),
        ("do", error.advice),
    ):
        told = text.splitlines()
        if width is not None and label != "do":
            told = [part for line in told for part in _wrap(line, width - _LABEL_WIDTH)]
        for place, line in enumerate(told):
            head = f"{label}:" if place == 0 else ""
            lines.append(Text.assemble((head.ljust(_LABEL_WIDTH), style), line, no_wrap=True))
    return lines


def _wrap(line: str, width: int) -> list[str]:
    return wrap(line, max(width, _LABEL_WIDTH), break_long_words=False, break_on_hyphens=False)


def new_table(title: str, *columns: str) -> Table:
    """Return an empty table in this project's style; the name of a column decides how it is aligned."""
    table = Table(
        title=title,
        title_justify="left",
        title_style="bold",
        header_style="dim",
        box=box.SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
        pad_edge=False,
    )
    # Otherwise rich breaks the title to the width of a narrow table.
    table.min_width = min(len(title), MOST_COLUMNS)
    # Imported here because an error is printed without it.
    from batchledger.model.balance import BALANCE_LINES

    for column in columns:
        is_number = column in _NUMBERS or column.replace(" ", "_") in BALANCE_LINES
        wraps = column in _WRAPPING
        table.add_column(column, justify="right" if is_number else "left", overflow="fold", no_wrap=not wraps)
    return table


def number(value: int | None) -> str:
    """Return a number with its thousands separated; None becomes an empty text."""
    return "" if value is None else f"{value:,}"


def pick(value: object, *names: str) -> dict[str, Any]:
    """Return some fields of a value, for a document."""
    return {name: getattr(value, name) for name in names}


def range_as_json(each: OffsetRange) -> dict[str, Any]:
    """An offset range, for a document."""
    return {**dataclasses.asdict(each.partition), **pick(each, "start", "until")}


def _to_json(value: Any) -> Any:
    if isinstance(value, OffsetRange):
        return range_as_json(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} is not JSON")
