"""The mistakes of a pipeline file in words, each with the place where it is written. Pure."""

import re
from collections.abc import Iterator, Sequence
from typing import Any

from pydantic import BaseModel, ValidationError

from batchledger.config.documents import Document
from batchledger.model.errors import FileFault
from batchledger.model.quoting import quote, shorten
from batchledger.settings.column_rules import nearest
from batchledger.settings.values import Section, find_section
from batchledger.sinks.kinds import find_kind

MOST_FAULTS = 20
_LEADING_KEY = re.compile(r"([a-z_]+(?:\.[a-z_]+)*): ")
_WORD = re.compile(r"[\w.-]{1,64}")
_WRITE_BY_TYPE = {
    "bool_type": "write true or false",
    "dict_type": "write keys with their values below it",
    "float_type": "write a number",
    "int_type": "write a whole number",
    "list_type": "write a list",
    "model_attributes_type": "write its keys below it",
    "model_type": "write its keys below it",
    "string_type": "write a text, in quotes if it looks like a number or a date",
    "too_short": "write at least one",
}

Place = Sequence[str | int]


def list_faults(
    error: ValidationError, document: Document, model: type[BaseModel], entry_by_check: Sequence[int]
) -> Iterator[FileFault]:
    """Yield the first mistakes by their lines, and how many there are more. ``model`` is what the file should be.

    ``entry_by_check`` has for each check the number of its entry in the file: a suite is one entry of many checks.
    """
    found = error.errors(include_url=False)
    faults = []
    for fault in found[:MOST_FAULTS]:
        place = _find_place(fault["loc"], entry_by_check)
        faults.append(FileFault(*_locate(fault, place, document), shorten(_explain(fault, place, model))))
    yield from sorted(faults, key=lambda each: (each.line, each.column))
    if len(found) > MOST_FAULTS:
        yield FileFault(1, 1, f"and {len(found) - MOST_FAULTS:,} faults more")


def _find_place(loc: Place, entry_by_check: Sequence[int]) -> list[str | int]:
    """Return keys and numbers as the file has them."""
    place = list(loc)
    match place:
        # Pydantic puts the type of the sink into the place. The file has no such key.
        case ["sink", str(kind), *rest] if find_kind(kind):
            return ["sink", *rest]
        case ["checks", int(number), *rest] if number < len(entry_by_check):
            return ["checks", entry_by_check[number], *rest]
    return place


def _locate(fault: Any, place: Place, document: Document) -> tuple[int, int]:
    match fault["type"]:
        case "extra_forbidden":
            return document.locate_key(place)
        case "union_tag_invalid":
            return document.locate([*place, "type"])
        case "value_error" if isinstance(fault["input"], dict):
            # A rule about several keys names the one that has to change first.
            key = _LEADING_KEY.match(str(fault["ctx"]["error"]))
            return document.locate([*place, *(key[1].split(".") if key else ())])
        case _:
            return document.locate(place)


def _explain(fault: Any, place: Place, model: type[BaseModel]) -> str:
    key = shorten(".".join(map(str, place))) or "file"
    match fault["type"]:
        case "extra_forbidden":
            name, allowed = str(place[-1]), _keys_of(model, fault["loc"][:-1])
            return f"{key}: unknown key {quote(name)}; {nearest(name, allowed)}"
        case "missing":
            return f"{key}: this key is required"
        case "literal_error" | "enum":
            return f"{key}: {quote(fault['input'])} is not allowed; allowed: {fault['ctx']['expected']}"
        case "union_tag_invalid":
            return f"{key}.type: {quote(fault['ctx']['tag'])} is not allowed; allowed: {fault['ctx']['expected_tags']}"
        case "value_error":
            # A rule about several sections names its keys itself. A section is named by its key.
            given = "" if isinstance(fault["input"], dict) else f"{quote(fault['input'])}: "
            return f"{key}: {given}{fault['ctx']['error']}" if place else str(fault["ctx"]["error"])
        case type_:
            return f"{key}: {quote(fault['input'])}: {_say_what_to_write(type_, place, fault)}"


def _say_what_to_write(type_: str, place: Place, fault: Any) -> str:
    given = fault["input"]
    if type_ == "list_type" and isinstance(given, str) and _WORD.fullmatch(given):
        return f"write a list: {place[-1]}: [{given}]"
    return _WRITE_BY_TYPE.get(type_, str(fault["msg"]))


def _keys_of(model: type[BaseModel], loc: Place) -> list[str]:
    for part in map(str, loc):
        if part not in model.model_fields:
            model = find_kind(part) or Section
            continue
        model = find_section(model.model_fields[part].annotation) or Section
    return [field.alias or name for name, field in model.model_fields.items()]
