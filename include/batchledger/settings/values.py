"""Values that several sections of a pipeline file have, and how a fault in one is put into words. Pure."""

import re
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, Literal, NamedTuple, get_args

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer
from pydantic.annotated_handlers import GetJsonSchemaHandler

from batchledger.model.offsets import LARGEST_OFFSET
from batchledger.model.quoting import quote
from batchledger.model.records.identifiers import LONGEST_NAME_BYTES, MOST_KEY_COLUMNS

_DURATION = re.compile(r"(\d{1,18})\s*(s|m|h|d)", re.ASCII)
_SECONDS_BY_UNIT = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_LONGEST_SECONDS = 36_500 * 86_400


@dataclass(frozen=True)
class _SchemaKeyword(AfterValidator):
    """What a schema of the file can say of a rule, too: a keyword of JSON Schema."""

    keyword: str
    value: object

    def __get_pydantic_json_schema__(self, schema: Any, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        return {**handler(schema), self.keyword: self.value}


def written_as(pattern: str, words: str) -> AfterValidator:
    """Require that a text has a certain form; a text of another form is refused in words."""
    compiled = re.compile(pattern, re.ASCII)

    def check(value: str) -> str:
        if compiled.fullmatch(value) is None:
            raise ValueError(f"write {words}")
        return value

    return _SchemaKeyword(check, "pattern", f"^({pattern})$")


def parse_duration(value: object) -> float:
    """Return the seconds of a duration as a file has it: ``30s``, ``5m``. Raises ValueError."""
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


def unrepeated(noun: str) -> AfterValidator:
    """Require that no name is in a list twice; the noun says what the names are."""
    return _SchemaKeyword(partial(refuse_repeated, noun), "uniqueItems", value=True)


def refuse_repeated(noun: str, names: list[str]) -> list[str]:
    """Return the names. Raises ValueError with the first that is there twice."""
    seen = set()
    for name in names:
        if name in seen:
            raise ValueError(f"{noun} {quote(str(name))} is named twice")
        seen.add(name)
    return names


def write_duration(seconds: float) -> str:
    """Return a duration as a file has it, in the largest unit that leaves a whole number."""
    unit, each = next(pair for pair in reversed(_SECONDS_BY_UNIT.items()) if seconds % pair[1] == 0)
    return f"{seconds / each:.0f}{unit}"


_WrittenDuration = Annotated[str, Field(pattern=f"^{_DURATION.pattern}$")] | Literal[0]
Duration = Annotated[
    float,
    BeforeValidator(parse_duration, json_schema_input_type=_WrittenDuration),
    PlainSerializer(write_duration, when_used="json"),
]
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
    unrepeated("column"),
]
REFERENCE = r"[A-Za-z_][\w.]*:[A-Za-z_]\w*"
"""How a file names something in Python: ``module:function``, ``module:Class``."""
ConnectionId = Annotated[
    str, written_as(r"[A-Za-z0-9_.-]{1,200}", "the id of a connection of Airflow's: letters, digits, . _ - only")
]
Count = Annotated[int, Field(ge=1, le=LARGEST_OFFSET)]


class NamedConnection(NamedTuple):
    """A connection that a key of a pipeline file names, and the types that fit there, as Airflow writes them."""

    key: str
    connection_id: str
    types: tuple[str, ...]


class Section(BaseModel):
    """Keys that are not named are refused. The text below a key is its meaning, in the reference and in editors.

    Made in Python, it is refused without a quotation of what it was given, which may hold a password.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, hide_input_in_errors=True)


def find_section(annotation: Any) -> type[Section] | None:
    """Return the section that a key holds, None if it holds another value. One that may be missing is a union."""
    kinds = [each for each in (annotation, *get_args(annotation)) if isinstance(each, type)]
    return next((each for each in kinds if issubclass(each, Section)), None)
