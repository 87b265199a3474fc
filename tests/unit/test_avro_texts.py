"""Random schemas and values: both ways of reading Avro agree with each other and with what was written."""

import base64
import io
import json
import math
from collections.abc import Iterable, Iterator, Mapping
from decimal import Decimal
from typing import Any

import fastavro
import msgspec
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batchledger.formats.decoding import decoded
from batchledger.formats.decoding.avro.decoder import AvroDecoder
from batchledger.formats.decoding.avro.wire import EMPTY
from batchledger.model.records.columns import REST, Column, parse_columns
from batchledger.model.records.types import Json, parse_type

Typed = tuple[Any, str, st.SearchStrategy[Any]]
"""A type of Avro, a column that holds all of its values, and such values as fastavro writes them."""

TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=20)
LONG = st.integers(-(2**63), 2**63 - 1)
SCALARS: list[Typed] = [
    ("boolean", "boolean", st.booleans()),
    ("int", "int", st.integers(-(2**31), 2**31 - 1)),
    ("long", "bigint", LONG),
    ("long", "string", LONG),
    ("long", "decimal(38,4)", LONG),
    ("double", "double", st.floats(allow_nan=False)),
    ("float", "float", st.floats(allow_nan=False, width=32)),
    ("string", "string", TEXT),
    ("bytes", "binary", st.binary(max_size=30)),
    ({"type": "array", "items": ["null", "int", "string"]}, "string", st.lists(st.none() | TEXT, max_size=3)),
    (["null", "int", "long"], "bigint", st.none() | st.integers(-(2**40), 2**40)),
]


def names() -> st.SearchStrategy[str]:
    return st.from_regex(r"[a-z][a-z0-9]{0,3}", fullmatch=True)


@st.composite
def nested(draw: st.DrawFn, inner: st.SearchStrategy[Typed]) -> Typed:
    """A type with others within, all of which a native column holds."""
    kind = draw(st.sampled_from(["array", "map", "record", "union"]))
    schema, declared, values = draw(inner)
    if kind == "array":
        return {"type": "array", "items": schema}, f"array<{declared}>", st.lists(values, max_size=4)
    if kind == "map":
        keys = st.dictionaries(TEXT, values, max_size=3)
        return {"type": "map", "values": schema}, f"map<string, {declared}>", keys
    if kind == "union":
        return (schema if isinstance(schema, list) else ["null", schema]), declared, (st.none() | values)
    fields = draw(st.lists(st.tuples(names(), inner), min_size=1, max_size=3, unique_by=lambda each: each[0]))
    record = {
        "type": "record",
        "name": f"r{draw(st.uuids()).hex}",
        "fields": [{"name": name, "type": typed[0]} for name, typed in fields],
    }
    # Some fields of the writer are not declared.
    kept = draw(st.lists(st.sampled_from(fields), min_size=1, unique_by=lambda each: each[0]))
    declared = f"struct<{', '.join(f'{name} {typed[1]}' for name, typed in kept)}>"
    return record, declared, st.fixed_dictionaries({name: typed[2] for name, typed in fields})


# Each run draws other documents: what these do not meet, the next run may meet.
FEW = settings(max_examples=60, deadline=None)
TYPES = st.recursive(st.sampled_from(SCALARS), nested, max_leaves=4)


@st.composite
def documents(draw: st.DrawFn) -> tuple[dict[str, Any], tuple[Column, ...], list[dict[str, Any]], list[bytes]]:
    """A writer's schema, columns of some of its fields, records, and each of them as fastavro writes it."""
    fields = draw(st.lists(st.tuples(names(), TYPES), min_size=1, max_size=5, unique_by=lambda each: each[0]))
    schema = {"type": "record", "name": "Top", "fields": [{"name": name, "type": typed[0]} for name, typed in fields]}
    kept = draw(st.lists(st.sampled_from(fields), unique_by=lambda each: each[0], min_size=1, max_size=5))
    records = draw(st.lists(st.fixed_dictionaries({name: typed[2] for name, typed in fields}), max_size=6))
    columns = tuple(Column(name, parse_type(typed[1])) for name, typed in kept)
    return schema, columns, records, list(write(schema, records))


def write(schema: Mapping[str, Any], records: Iterable[Mapping[str, Any]]) -> Iterator[bytes]:
    parsed = fastavro.parse_schema(dict(schema))
    for record in records:
        out = io.BytesIO()
        fastavro.schemaless_writer(out, parsed, record)
        yield out.getvalue()


def read_singly(decoder: AvroDecoder, value: bytes) -> dict[str, Any] | str:
    """What the reference says of a value."""
    nothing, _ = decoder._decode_side_by_side(pa.array([], pa.binary()))
    data = decoded.read_singly(nothing, np.zeros(1, bool), pa.array([value], pa.binary()), decoder._reference.read)
    return data.errors[0] if data.errors else dict(data.rows.to_pylist()[0])


def as_written(value: Any, declared: pa.DataType) -> Any:  # noqa: PLR0911 -- one a kind
    """What a column shows of a written value: texts of what is no text, pairs of a map, decimals."""
    if value is None:
        return None
    if pa.types.is_string(declared) and not isinstance(value, str):
        return msgspec.json.encode(value).decode()
    if pa.types.is_decimal(declared):
        return Decimal(value)
    if pa.types.is_list(declared):
        return [as_written(each, declared.value_type) for each in value]
    if pa.types.is_map(declared):
        return [(key, as_written(each, declared.item_type)) for key, each in value.items()]
    if pa.types.is_struct(declared):
        return {field.name: as_written(value[field.name], field.type) for field in declared}
    return value


def as_json(value: Any) -> Any:
    """What JSON has in place of a written value."""
    match value:
        case bytes():
            return base64.b64encode(value).decode()
        case float() if math.isinf(value):
            return "Infinity" if value > 0 else "-Infinity"
        case list():
            return [as_json(each) for each in value]
        case dict():
            return {name: as_json(each) for name, each in value.items()}
    return value


def left_of(value: Any, declared: pa.DataType) -> Any:
    """The statement: what a declared type does not hold of a written value; None without it."""
    if value is None:
        return None
    if pa.types.is_list(declared):
        parts = [left_of(each, declared.value_type) for each in value]
        return parts if any(parts) else None
    if pa.types.is_map(declared):
        found = {key: left_of(each, declared.item_type) for key, each in value.items()}
        return {key: each for key, each in found.items() if each is not None} or None
    if pa.types.is_struct(declared):
        types = {field.name: field.type for field in declared}
        found = {name: left_of(each, types[name]) if name in types else as_json(each) for name, each in value.items()}
        return {name: each for name, each in found.items() if name not in types or each is not None} or None
    return None


@FEW
@given(documents())
def test_what_no_column_declares_is_kept_at_its_place(document: Any) -> None:
    schema, columns, records, written = document
    decoder = AvroDecoder(json.dumps(schema), (), (*columns, REST))
    values = pa.array(written, pa.binary())
    rows, is_decoded, errors = decoder.decode(values)
    rows.validate(full=True)
    assert (is_decoded.all(), errors) == (True, {})
    plain, _, _ = AvroDecoder(json.dumps(schema), (), columns).decode(values)
    assert rows.drop_columns(["_rest"]).equals(plain)
    declared = pa.struct(list(plain.schema))
    found = [None if text is None else json.loads(text) for text in rows["_rest"].to_pylist()]
    assert found == [left_of(record, declared) for record in records]


@FEW
@given(documents())
def test_kept_fields_have_the_texts_of_columns_of_jsonb(document: Any) -> None:
    schema, _, _, written = document
    names = [field["name"] for field in schema["fields"]]
    values = pa.array(written, pa.binary())
    texts, _, _ = AvroDecoder(json.dumps(schema), (), tuple(Column(name, Json.JSONB) for name in names)).decode(values)
    kept, _, _ = AvroDecoder(json.dumps(schema), (), (*parse_columns("absent date"), REST)).decode(values)
    expected = [",".join(f'"{name}":{row[name] or "null"}' for name in names) for row in texts.to_pylist()]
    assert kept["_rest"].to_pylist() == [f"{{{each}}}" for each in expected]


@FEW
@given(documents())
def test_both_ways_of_reading_give_what_was_written(document: Any) -> None:
    schema, columns, records, written = document
    decoder = AvroDecoder(json.dumps(schema), (), columns)
    rows, is_decoded, errors = decoder.decode(pa.array(written, pa.binary()))
    rows.validate(full=True)
    assert is_decoded.all()
    assert errors == {}
    found = rows.to_pylist()
    assert found == [read_singly(decoder, value) for value in written]
    for record, row in zip(records, found, strict=True):
        assert row == {field.name: as_written(record[field.name], field.type) for field in rows.schema}


def spoil(written: list[bytes], data: st.DataObject) -> list[bytes]:
    """The values, some of them cut off, lengthened or changed."""
    values = []
    for each in written:
        value = bytearray(each)
        change = data.draw(st.sampled_from(["none", "cut", "longer", "other"]))
        if change == "cut":
            del value[data.draw(st.integers(0, len(value))) :]
        elif change == "longer":
            value += data.draw(st.binary(min_size=1, max_size=3))
        elif value and change == "other":
            value[data.draw(st.integers(0, len(value) - 1))] = data.draw(st.integers(0, 255))
        values.append(bytes(value))
    return values


@FEW
@given(documents(), st.data())
def test_what_is_cut_off_lengthened_or_changed_is_judged_as_by_the_reference(
    document: Any, data: st.DataObject
) -> None:
    schema, columns, _, written = document
    decoder = AvroDecoder(json.dumps(schema), (), columns)
    values = spoil(written, data)
    rows, is_decoded, errors = decoder.decode(pa.array(values, pa.binary()))
    rows.validate(full=True)
    left = iter(rows.to_pylist())
    found = [repr(next(left)) if is_good else errors[place] for place, is_good in enumerate(is_decoded)]
    expected = [read_singly(decoder, value) for value in values]
    assert found == [each if isinstance(each, str) else repr(each) for each in expected]


@FEW
@given(documents(), st.data())
def test_what_is_cut_off_lengthened_or_changed_is_kept_the_same_alone(document: Any, data: st.DataObject) -> None:
    schema, columns, _, written = document
    keeping = AvroDecoder(json.dumps(schema), (), (*columns, REST))
    values = spoil(written, data)
    rows, is_decoded, errors = keeping.decode(pa.array(values, pa.binary()))
    rows.validate(full=True)
    left = iter(rows.to_pylist())
    for place, value in enumerate(values):
        alone, _, error = keeping.decode(pa.array([value], pa.binary()))
        assert dict(error) == ({0: errors[place]} if place in errors else {})
        assert repr(alone.to_pylist()) == repr([next(left)] if is_decoded[place] else [])
    _, _, plain = AvroDecoder(json.dumps(schema), (), columns).decode(pa.array(values, pa.binary()))
    assert plain == {place: why for place, why in errors.items() if not why.startswith("_rest (jsonb) cannot hold ")}


@FEW
@given(documents(), st.binary(max_size=40))
def test_no_bytes_do_more_than_be_refused(document: Any, value: bytes) -> None:
    schema, columns, _, _ = document
    decoder = AvroDecoder(json.dumps(schema), (), columns)
    rows, is_decoded, errors = decoder.decode(pa.array([value, value], pa.binary()))
    rows.validate(full=True)
    single = read_singly(decoder, value)
    if isinstance(single, str):
        assert errors == {0: single, 1: single}
    else:
        assert repr(rows.to_pylist()) == repr([single, single])
        assert is_decoded.all()


@pytest.mark.parametrize("count", [0, 1, 300])
def test_empty_values_are_refused_and_their_neighbours_are_not(count: int) -> None:
    schema = json.dumps({"type": "record", "name": "R", "fields": [{"name": "id", "type": "long"}]})
    decoder = AvroDecoder(schema, (), parse_columns("id bigint"))
    rows, is_decoded, errors = decoder.decode(pa.array([b"\x02"] * count + [b""] + [b"\x04"] * count, pa.binary()))
    assert rows["id"].to_pylist() == [1] * count + [2] * count
    assert errors == {count: EMPTY}
    assert is_decoded.sum() == 2 * count
