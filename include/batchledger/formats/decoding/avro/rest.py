"""What is left of a value of Avro beside declared columns, as JSON (``source.unknown_fields: keep``).

Fields keep their places as ``formats/decoding/rest.py`` keeps them, and have the texts that a ``jsonb`` column has.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

from batchledger.formats.decoding.avro.schema import AvroArray, AvroMap, AvroRecord, AvroSchema, AvroType, AvroUnion
from batchledger.formats.decoding.avro.texts import quote_text, read_keys, write_json
from batchledger.formats.decoding.avro.wire import WireReader
from batchledger.formats.decoding.fitting import Leaf, name_errors, require_no_zero
from batchledger.formats.decoding.nested import Declared, declare_fields
from batchledger.model.records.columns import REST, Column

Leave = Callable[[Any], str | None]
"""Returns what is left of a value that was read, None if nothing is. Raises NoValueError."""


def make_rest_reader(schema: AvroSchema, columns: Sequence[Column]) -> Callable[[bytes], str | None] | None:
    """Return what reads the fields of a whole value that no column declares; None if the schema has no such field.

    It returns None if nothing is left of a value, and raises UnfitError.
    """
    leave = _make_leave(schema, schema.root, declare_fields(columns))
    if leave is None:
        return None
    wire, write = WireReader(schema), name_errors(Leaf(0, REST.name, REST.type), partial(_write, leave))
    return lambda value: write(wire.read_record(value))


def _write(leave: Leave, fields: list[Any]) -> str | None:
    text = leave(fields)
    return None if text is None else require_no_zero(text)


def _make_leave(schema: AvroSchema, type_: AvroType, declared: Declared) -> Leave | None:
    """Return what leaves the undeclared part of values of a type; None if it never leaves any."""
    match schema.resolve(type_):
        case AvroUnion(branches):
            return _make_union(tuple(_make_leave(schema, each, declared) for each in branches))
        case AvroRecord() as record if declared.fields is not None:
            return _make_record(schema, record, declared)
        case AvroArray(items) if declared.each is not None:
            return _make_array(_make_leave(schema, items, declared.each))
        case AvroMap(values) if declared.each is not None:
            return _make_map(_make_leave(schema, values, declared.each))
        case _:
            return None


def _make_union(leaves: tuple[Leave | None, ...]) -> Leave | None:
    if not any(leaves):
        return None

    def leave_one(value: tuple[int, Any]) -> str | None:
        branch, within = value
        leave = leaves[branch]
        return leave and leave(within)

    return leave_one


def _make_record(schema: AvroSchema, record: AvroRecord, declared: Declared) -> Leave | None:
    known = declared.fields or {}
    steps: list[tuple[int, str, Leave]] = []
    for number, field in enumerate(record.fields):
        within = known.get(field.name)
        leave: Leave | None = None
        if field.name not in known:
            leave = partial(write_json, schema, field.type)
        elif within is not None:
            leave = _make_leave(schema, field.type, within)
        if leave is not None:
            steps.append((number, quote_text(field.name), leave))

    def leave_fields(value: list[Any]) -> str | None:
        return _join((name, leave(value[number])) for number, name, leave in steps)

    return leave_fields if steps else None


def _make_array(leave: Leave | None) -> Leave | None:
    if leave is None:
        return None

    def leave_items(value: list[Any]) -> str | None:
        parts = [leave(each) for each in value]
        return f"[{','.join(each or 'null' for each in parts)}]" if any(parts) else None

    return leave_items


def _make_map(leave: Leave | None) -> Leave | None:
    if leave is None:
        return None

    def leave_values(value: list[tuple[bytes, Any]]) -> str | None:
        keys = read_keys(value)
        return _join((quote_text(key), leave(each)) for key, (_, each) in zip(keys, value, strict=True))

    return leave_values


def _join(fields: Iterable[tuple[str, str | None]]) -> str | None:
    written = ",".join(f"{name}:{each}" for name, each in fields if each is not None)
    return f"{{{written}}}" if written else None
