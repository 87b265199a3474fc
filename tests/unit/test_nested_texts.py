"""Values within values: blocks of any types and documents against the reading of one record, and against JSON."""

import json
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchledger.formats.arrow_types import arrow_schema
from batchledger.formats.decoding import blocks
from batchledger.formats.decoding.blocks import BlockDecoder
from batchledger.formats.decoding.decoder import RecordDecoder
from batchledger.formats.decoding.meaning import UnfitError
from batchledger.formats.decoding.objects import ObjectReader
from batchledger.formats.encoding.blocks import write_tokens
from batchledger.model.records.columns import Column, parse_columns
from batchledger.model.records.rules import UnknownFieldPolicy
from batchledger.model.records.types import parse_type
from tests.unit.test_meaning import records_of

SCALARS: Mapping[str, st.SearchStrategy[Any]] = {
    "int": st.integers(-(2**31), 2**31 - 1),
    "bigint": st.integers(-(2**63), 2**63 - 1),
    "string": st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=4),
    "boolean": st.booleans(),
    "double": st.integers(-8_000_000, 8_000_000).map(lambda eighths: eighths / 8),
    "decimal(6,2)": st.integers(-999_999, 999_999).map(lambda cents: Decimal(cents) / 100),
    "date": st.dates().map(str),
}
NAMES = ("a", "b", "c")


def _struct(inner: Sequence[tuple[str, st.SearchStrategy[Any]]]) -> tuple[str, st.SearchStrategy[Any]]:
    fields = [f"{name} {type_}" for name, (type_, _) in zip(NAMES, inner, strict=False)]
    values = {name: st.none() | each for name, (_, each) in zip(NAMES, inner, strict=False)}
    return f"struct<{', '.join(fields)}>", st.fixed_dictionaries({}, optional=values)


# A type together with the values that it takes.
TYPED = st.recursive(
    st.sampled_from([*SCALARS.items()]),
    lambda inner: (
        inner.map(lambda one: (f"array<{one[0]}>", st.lists(st.none() | one[1], max_size=3)))
        | inner.map(
            lambda one: (
                f"map<string, {one[0]}>",
                st.dictionaries(st.sampled_from(NAMES), st.none() | one[1], max_size=3),
            )
        )
        | st.lists(inner, min_size=1, max_size=3).map(_struct)
    ),
    max_leaves=5,
)


def write(value: Any) -> str:
    """JSON of a document; a decimal with its own digits."""
    match value:
        case dict():
            return "{" + ",".join(f"{json.dumps(name)}:{write(each)}" for name, each in value.items()) + "}"
        case list():
            return "[" + ",".join(map(write, value)) + "]"
        case Decimal():
            return f"{value:f}"
        case _:
            return json.dumps(value)


def complete(type_: pa.DataType, value: Any) -> Any:
    """A value as its column has it: a struct with all its fields."""
    if value is None:
        return None
    if pa.types.is_struct(type_):
        return {field.name: complete(field.type, value.get(field.name)) for field in type_}
    if pa.types.is_map(type_):
        return {name: complete(type_.item_type, each) for name, each in value.items()}
    if pa.types.is_list(type_):
        return [complete(type_.value_type, each) for each in value]
    if pa.types.is_decimal(type_):
        return float(value)
    return value


@given(st.data())
def test_documents_become_the_values_that_were_written(data: st.DataObject) -> None:
    typed = data.draw(st.lists(TYPED, min_size=1, max_size=3))
    columns = tuple(Column(f"c{place}", parse_type(type_)) for place, (type_, _) in enumerate(typed))
    row = st.tuples(*(st.none() | values for _, values in typed))
    rows = data.draw(st.lists(row, min_size=1, max_size=4))
    documents = [{column.name: value for column, value in zip(columns, each, strict=True)} for each in rows]
    values = pa.array([write(each).encode() for each in documents], pa.binary())
    decoded, is_sure, _ = BlockDecoder(columns).decode(values)
    assert is_sure.all()
    for place, field in enumerate(arrow_schema(columns)):
        for row_number, each in enumerate(documents):
            value = each[field.name]
            text = write_tokens(decoded.column(place))[row_number].as_py()
            assert json.loads(text or "null") == complete(field.type, value)
            read = ObjectReader(columns).read(values[row_number].as_py())[place]
            alone = write_tokens(pa.array([read], field.type))[0].as_py()
            assert alone == text


def read_alone(columns: tuple[Column, ...], text: bytes) -> tuple[Sequence[Any] | None, str | None]:
    """The values of a record, or why it has none."""
    try:
        return ObjectReader(columns).read(text), None
    except UnfitError as error:
        return None, str(error)


ANYTHING = st.recursive(
    st.none() | st.integers(-5, 5) | st.sampled_from(["x", "1.5", "2026-11-22"]) | st.floats(-2, 2) | st.booleans(),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=3),
    max_leaves=6,
)


@given(st.data())
def test_documents_that_may_not_fit_are_read_alike_in_blocks_and_alone(data: st.DataObject) -> None:
    """Also with a path into the same field."""
    type_, values = data.draw(TYPED)
    columns = parse_columns(f"a {type_}, a.b as within {data.draw(st.sampled_from([*SCALARS, 'jsonb']))}")
    documents = [{"a": data.draw(ANYTHING | values), "d": data.draw(ANYTHING)} for _ in range(3)]
    texts = [write(each).encode() for each in documents]
    policy = data.draw(st.sampled_from(UnknownFieldPolicy))
    decoder = RecordDecoder(columns, unknown_fields=policy)
    decoded = decoder.decode(records_of(*texts))
    rows = {row["_offset"]: row for batch in decoded.rows for row in batch.to_pylist()}
    errors = {} if decoded.set_aside is None else {e["offset"]: e["error"] for e in decoded.set_aside.to_pylist()}
    unknown = {}
    for names, seen in decoded.undeclared:
        unknown[seen.first[2]] = names
    schema = arrow_schema(columns)
    for offset, text in enumerate(texts):
        read, why = read_alone(columns, text)
        if read is None:
            assert errors[offset] == why
            continue
        names = ObjectReader(columns).find_unknown(text)
        if policy is UnknownFieldPolicy.QUARANTINE and names:
            assert errors[offset] == f"field {min(names)} is not declared"
            continue
        as_arrow = [pa.array([each], field.type)[0].as_py() for each, field in zip(read, schema, strict=True)]
        assert repr([rows[offset][field.name] for field in schema]) == repr(as_arrow)
    # What is kept is not undeclared: JSON has a name for each field.
    if policy.counts and policy is not UnknownFieldPolicy.KEEP:
        expected = [ObjectReader(columns).find_unknown(texts[offset]) for offset in rows]
        assert {name for each in expected for name in each} == {name for each in unknown.values() for name in each}


def test_records_of_nested_values_are_read_in_blocks() -> None:
    columns = parse_columns(
        "a struct<b int, c array<decimal(6,2)>>, a.b as b int, d map<string, double>, e jsonb, f-g as h int, s string"
    )
    text = b'{"a":{"b":1,"c":[1.25,null]},"d":{"x":1.5},"e":{"y":[1.10]},"f-g":2,"s":{"kept":1.0}}'
    rows, is_sure, _ = BlockDecoder(columns).decode(pa.array([text] * 300, pa.binary()))
    assert is_sure.all()
    (row,) = {repr(each) for each in rows.to_pylist()}
    assert row == (
        "{'a': {'b': 1, 'c': [Decimal('1.25'), None]}, 'b': 1, 'd': [('x', 1.5)], "
        "'e': '{\"y\":[1.10]}', 'h': 2, 's': '{\"kept\":1.0}'}"
    )


def test_negative_control_decimals_within_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    """The parser alone would make another number of one that is beyond 38 digits."""
    columns = parse_columns("a array<decimal(38,18)>")
    value = b'{"a":[350000000000000000000]}'
    assert not BlockDecoder(columns).decode(pa.array([value]))[1].any()
    monkeypatch.setattr(blocks, "require_same_decimals", lambda found, written: None)
    assert BlockDecoder(columns).decode(pa.array([value]))[1].any()


def test_unknown_fields_are_named_by_their_paths() -> None:
    columns = parse_columns(
        "a struct<b int>, c array<struct<d int>>, m map<string, struct<d int>>, o.p as p int, w jsonb"
    )
    value = b'{"a":{"b":1,"x":1},"c":[{"d":1},{"y":2}],"m":{"k":{"z":1}},"o":{"p":1,"q":2},"w":{"any":1},"n":1e999}'
    names = ObjectReader(columns).find_unknown(value)
    assert names == {"a.x", "c[].y", "m[].z", "o.q", "n"}


@pytest.mark.parametrize("policy", UnknownFieldPolicy)
def test_field_of_any_name_stands_beside_texts_that_are_picked(policy: UnknownFieldPolicy) -> None:
    columns = parse_columns("order-id as order_id int, extra jsonb, note string")
    value = b'{"order-id":1,"extra":{},"note":5}'
    decoded = RecordDecoder(columns, unknown_fields=policy).decode(records_of(*[value] * 100))
    assert decoded.set_aside is None
    assert {(row["order_id"], row["extra"], row["note"]) for rows in decoded.rows for row in rows.to_pylist()} == {
        (1, "{}", "5")
    }
