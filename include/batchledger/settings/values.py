"""Values that several sections of a pipeline file have, and how a fault in one is put into words. Pure."""

import re
from functools import partial
from typing import Annotated

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from batchledger.model.offsets import LARGEST_OFFSET
from batchledger.model.quoting import quote
from batchledger.model.records.identifiers import LONGEST_NAME_BYTES, MOST_KEY_COLUMNS

_DURATION = re.compile(r"(\d{1,18})\s*(s|m|h|d)", re.ASCII)
_SECONDS_BY_UNIT = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_LONGEST_SECONDS = 36_500 * 86_400


def written_as(pattern: str, words: str) -> AfterValidator:
    """Require that a text has a certain form; a text of another form is refused in words."""
    compiled = re.compile(pattern, re.ASCII)

    def check(value: str) -> str:
        if compiled.fullmatch(value) is None:
            raise ValueError(f"write {words}")
        return value

    return AfterValidator(check)


def _parse_duration(value: object) -> object:
    seconds: float | None = None
    if value == 0 and not isinstance(value, bool):
        seconds = 0.0
    elif isinstance(value, str) and (match := _DURATION.fullmatch(value)) is not None:
        seconds = float(match[1]) * _SECONDS_BY_UNIT[match[2]]
    if seconds is None:
        raise ValueError("a duration is a number and a unit: 30s, 5m, 2h or 7d")
    if seconds > _LONGEST_SECONDS:
        raise ValueError("a duration is 36500d at most")
    return seconds


def lasting(least: float, words: str, most: float = _LONGEST_SECONDS) -> AfterValidator:
    """Require that a duration is within bounds, in seconds; another one is refused in words."""

    def check(value: float) -> float:
        if not least <= value <= most:
            raise ValueError(words)
        return value

    return AfterValidator(check)


def refuse_repeated(noun: str, names: list[str]) -> list[str]:
    """Return the names. Raises ValueError with the first that is there twice."""
    seen = set()
    for name in names:
        if name in seen:
            raise ValueError(f"{noun} {quote(str(name))} is named twice")
        seen.add(name)
    return names


Duration = Annotated[float, BeforeValidator(_parse_duration)]
Topic = Annotated[str, written_as(r"[A-Za-z0-9._-]{1,249}", "the name of a topic: letters, digits, . _ - only")]
ColumnName = Annotated[
    str,
    written_as(
        rf"[A-Za-z][A-Za-z0-9_]{{0,{LONGEST_NAME_BYTES - 1}}}",
        f"the name of a column: a letter, then letters, digits and _, {LONGEST_NAME_BYTES} at most",
    ),
]
KeyColumns = Annotated[
    list[ColumnName],
    Field(min_length=1, max_length=MOST_KEY_COLUMNS),
    AfterValidator(partial(refuse_repeated, "column")),
]
ConnectionId = Annotated[
    str, written_as(r"[A-Za-z0-9_.-]{1,200}", "the id of a connection of Airflow's: letters, digits, . _ - only")
]
Count = Annotated[int, Field(ge=1, le=LARGEST_OFFSET)]


class Section(BaseModel):
    """Keys that are not named are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)
