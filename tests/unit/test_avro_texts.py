"""Random schemas and values: both ways of reading Avro agree with each other and with what was written."""

import io
import json
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

import fastavro
import msgspec
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batchledger.adapters.decoding.avro.decoder import AvroDecoder
from batchledger.adapters.decoding.avro.wire import EMPTY
from batchledger.adapters.decoding.meaning import UnfitError
from batchledger.model.records.columns import Column

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
    declared = f"struct<{', '.join(f'{name} {typed[1]}' for name, typed in fields)}>"
    return record, declared, st.fixed_dictionaries({name: typed[2] for name, typed in fields})


TYPES = st.recursive(st.sampled_from(SCALARS), nested, max_leaves=4)


@st.composite
def documents(draw: st.DrawFn) -> tuple[dict[str, Any], tuple[Column, ...], list[dict[str, Any]]]:
    """A writer's schema, columns of some of its fields, and records."""
    fields = draw(st.lists(st.tuples(names(), TYPES), min_size=1, max_size=5, unique_by=lambda each: each[0]))
    schema = {"type": "record", "name": "Top", "fields": [{"name": name, "type": typed[0]} for name, typed in fields]}
    kept = draw(st.lists(st.sampled_from(fields), unique_by=lambda each: each[0], min_size=1, max_size=5))
    records = st.lists(st.fixed_dictionaries({name: typed[2] for name, typed in fields}), max_size=6)
    return schema, tuple(Column(name, typed[1]) for name, typed in kept), draw(records)


def write(schema: Mapping[str, Any], record: Mapping[str, Any]) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(dict(schema)), record)
    return out.getvalue()


def read_singly(decoder: AvroDecoder, value: bytes) -> dict[str, Any] | str:
    """What the reference says of a value."""
    try:
        row = decoder._reference.read(value)
    except UnfitError as error:
        return str(error)
    (found,) = decoder._gather([row]).to_pylist()
    return dict(found)


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


@settings(max_examples=300, deadline=None)
@given(documents())
def test_both_ways_of_reading_give_what_was_written(document: Any) -> None:
    schema, columns, records = document
    decoder = AvroDecoder(json.dumps(schema), (), columns)
    values = [write(schema, record) for record in records]
    rows, is_decoded, errors = decoder.decode(pa.array(values, pa.binary()))
    rows.validate(full=True)
    assert is_decoded.all()
    assert errors == {}
    found = rows.to_pylist()
    assert found == [read_singly(decoder, value) for value in values]
    for record, row in zip(records, found, strict=True):
        assert row == {field.name: as_written(record[field.name], field.type) for field in rows.schema}


@settings(max_examples=300, deadline=None)
@given(documents(), st.data())
def test_what_is_cut_off_lengthened_or_changed_is_judged_as_by_the_reference(
    document: Any, data: st.DataObject
) -> None:
    schema, columns, records = document
    decoder = AvroDecoder(json.dumps(schema), (), columns)
    values = []
    for record in records:
        value = bytearray(write(schema, record))
        change = data.draw(st.sampled_from(["none", "cut", "longer", "other"]))
        if change == "cut":
            del value[data.draw(st.integers(0, len(value))) :]
        elif change == "longer":
            value += data.draw(st.binary(min_size=1, max_size=3))
        elif value and change == "other":
            value[data.draw(st.integers(0, len(value) - 1))] = data.draw(st.integers(0, 255))
        values.append(bytes(value))
    rows, is_decoded, errors = decoder.decode(pa.array(values, pa.binary()))
    rows.validate(full=True)
    left = iter(rows.to_pylist())
    found = [repr(next(left)) if is_good else errors[place] for place, is_good in enumerate(is_decoded)]
    expected = [read_singly(decoder, value) for value in values]
    assert found == [each if isinstance(each, str) else repr(each) for each in expected]


@settings(max_examples=300, deadline=None)
@given(documents(), st.binary(max_size=40))
def test_no_bytes_do_more_than_be_refused(document: Any, value: bytes) -> None:
    schema, columns, _ = document
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
    decoder = AvroDecoder(schema, (), (Column("id", "bigint"),))
    rows, is_decoded, errors = decoder.decode(pa.array([b"\x02"] * count + [b""] + [b"\x04"] * count, pa.binary()))
    assert rows["id"].to_pylist() == [1] * count + [2] * count
    assert errors == {count: EMPTY}
    assert is_decoded.sum() == 2 * count
