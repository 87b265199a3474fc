"""How the command line prints: what a command shows is a value, and one function prints it. Tables have one style."""

import dataclasses
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from batchledger.model.balance import BALANCE_LINES
from batchledger.model.offsets import OffsetRange

MOST_COLUMNS = 80

Part = str | Text | Table | None

standard_error = Console(stderr=True, highlight=False)
"""One for all, so that log lines and progress bars do not overwrite each other; rich would break up long numbers."""

_NUMBERS = (
    "offsets", "offsets =", "rows", "count", "unread", "seconds", "quarantined", "bytes", "+ unexplained", "before",
    "after",
)  # fmt: skip
_WRAPPING = (
    "where", "finding", "what was found", "run", "outcome", "what to know", "sum", "columns that differ", "error",
    "what", "by", "why, and what changed", "key", "value",
)  # fmt: skip


@dataclasses.dataclass(frozen=True, slots=True)
class Shown:
    """What a command shows: to scripts one document, to people its parts in order; a part that is None is left out.

    In a document dataclasses become objects, and times ISO text.
    """

    document: Any
    parts: Sequence[Part] = ()


def show(shown: Shown | Iterable[Shown], as_json: bool) -> None:
    """Print to standard output; of several values people see each as it comes, and scripts get one list at the end.

    A text without wrapping is one line, however narrow the terminal.
    """
    if as_json:
        document = shown.document if isinstance(shown, Shown) else [each.document for each in shown]
        json.dump(document, sys.stdout, indent=2, default=_to_json)
        sys.stdout.write("\n")
        return
    for each in [shown] if isinstance(shown, Shown) else shown:
        for part in each.parts:
            if part is not None:
                Console().print(part, highlight=False, soft_wrap=isinstance(part, Text) and bool(part.no_wrap))


def new_table(title: str, *columns: str) -> Table:
    """Return an empty table in this project's style; what its columns are called decides how they are aligned."""
    table = Table(
        title=title,
        title_justify="left",
        title_style="bold",
        header_style="dim",
        box=box.SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
        pad_edge=False,
    )
    # Otherwise the title of a narrow table would be broken to its width.
    table.min_width = min(len(title), MOST_COLUMNS)
    for column in columns:
        is_number = column in _NUMBERS or column.replace(" ", "_") in BALANCE_LINES
        wraps = column in _WRAPPING
        table.add_column(column, justify="right" if is_number else "left", overflow="fold", no_wrap=not wraps)
    return table


def number(value: int | None) -> str:
    """Return a number with thousands apart; None is empty."""
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
