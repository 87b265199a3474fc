"""How the command line prints: tables in one style, and JSON documents."""

import dataclasses
import json
import sys
from datetime import datetime
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from batchledger.model.balance import BALANCE_LINES
from batchledger.model.offsets import OffsetRange

MOST_COLUMNS = 80

standard_error = Console(stderr=True)
"""One for all, so that log lines and progress bars do not overwrite each other."""

_NUMBERS = (
    "offsets",
    "offsets =",
    "rows",
    "count",
    "unread",
    "seconds",
    "quarantined",
    "bytes",
    "+ unexplained",
    "before",
    "after",
)
_WRAPPING = (
    "where", "finding", "what was found", "run", "outcome", "what to know", "sum", "columns that differ", "error",
    "what", "by", "why, and what changed", "key", "value",
)  # fmt: skip


def print_json(document: Any) -> None:
    """Print one JSON document on standard output; dataclasses become objects, times ISO text."""
    json.dump(document, sys.stdout, indent=2, default=_to_json)
    sys.stdout.write("\n")


def print_out(content: Any) -> None:
    """Print a text or a table on standard output."""
    Console().print(content, highlight=False)


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


def range_as_json(each: OffsetRange) -> dict[str, Any]:
    """An offset range, for scripts."""
    return {
        "topic": each.partition.topic,
        "partition": each.partition.partition,
        "start": each.start,
        "until": each.until,
    }


def _to_json(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    if isinstance(value, datetime):
        return value.isoformat()
    raise TypeError(f"{type(value).__name__} is not JSON")
