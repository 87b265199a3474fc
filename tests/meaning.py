"""The tables of ``docs/reference/meaning.md`` as values: what the page says, apart from any decoder."""

import ast
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TypeVar

PAGE = Path(__file__).resolve().parents[1] / "docs" / "reference" / "meaning.md"

Row = TypeVar("Row")
_ROW = re.compile(r"\| (?P<cells>.+) \|")
_QUARANTINED = "quarantined: "


@dataclass(frozen=True)
class Meaning:
    """One row of the page: a column of ``type``, what the producer wrote, and the value or the error."""

    section: str
    type: str
    written: str
    value: str | None
    error: str | None

    def __str__(self) -> str:
        return f"{self.type}: {self.written}"


@cache
def read_page() -> tuple[Meaning, ...]:
    """Every row of every table, in the order of the page."""
    return tuple(_read_rows(PAGE.read_text().splitlines()))


def of_section(section: str) -> list[Meaning]:
    """The rows below a heading of the second level."""
    return [each for each in read_page() if each.section == section]


def columns_of_page() -> list[Meaning]:
    """What the page says of the values of columns, by their types."""
    return of_section("The values of a column")


def _read_rows(lines: Sequence[str]) -> Iterator[Meaning]:
    section = types = ""
    for line in lines:
        if line.startswith("## "):
            section, types = line[3:], ""
        elif line.startswith("### "):
            types = re.findall(r"`([^`]+)`", line)
        elif (row := _ROW.fullmatch(line)) and row["cells"].startswith("`"):
            *written, result = row["cells"].split(" | ")
            if len(written) == 2:
                types = [_code(written[0])]
            yield Meaning(section, _type_of(types), _code(written[-1]), *_read_result(result))


def _type_of(types: Sequence[str]) -> str:
    """Whole numbers share a table, which is written for ``int``."""
    return "int" if "int" in types else types[0] if types else "bigint"


def _read_result(cell: str) -> tuple[str | None, str | None]:
    if cell.startswith(_QUARANTINED):
        return None, cell.removeprefix(_QUARANTINED)
    return (None if cell == "*null*" else _code(cell)), None


def _code(cell: str) -> str:
    if cell == "``":
        return ""
    assert cell[0] == cell[-1] == "`", cell
    return cell[1:-1]


def literal(written: str) -> bytes:
    """The bytes that a cell has as Python writes them."""
    value: bytes = ast.literal_eval(written)
    return value


def at_each_row(rows: Sequence[Row]) -> Callable[[Callable[[Row], None]], Callable[[], None]]:
    """Make one test of a test of a row: it fails with each of the rows that it does not hold for."""

    def join(test: Callable[[Row], None]) -> Callable[[], None]:
        def test_all() -> None:
            faults = []
            for row in rows:
                try:
                    test(row)
                except AssertionError as error:
                    faults.append(f"{row}: {error}")
            assert not faults, "\n".join(faults)

        test_all.__name__, test_all.__doc__, test_all.__module__ = test.__name__, test.__doc__, test.__module__
        return test_all

    return join
