"""What an Avro value means is what ``docs/reference/avro.md`` says: each of its rows, alone and among other records."""

import ast
import json
import pickle
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from typing_extensions import override

from batchledger.formats.decoding.avro.decoder import NO_DATUM, AvroDecoder
from batchledger.formats.decoding.avro.lanes import MOST_STEPS_OF_ALL
from batchledger.formats.decoding.avro.scanning import _Items
from batchledger.formats.decoding.avro.schema import AvroSchemaError
from batchledger.formats.decoding.decoded import read_singly
from batchledger.model.records.columns import Column, parse_columns
from tests.avro import encode
from tests.meaning import at_each_row

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "avro.md"
NEIGHBOURS = 200


@dataclass(frozen=True)
class AvroMeaning:
    """One row: the writer's type, the column's type, the bytes if there are some, and what becomes of them."""

    writer: str
    column: str
    value: bytes | None
    becomes: str

    @override
    def __str__(self) -> str:
        return f"{self.column}: {self.writer[:40]} {self.value!r}"

    @property
    def schema(self) -> str:
        """The record that has one field of the writer's type."""
        return record_of({"name": "field", "type": json.loads(self.writer)})

    @property
    def columns(self) -> tuple[Column, ...]:
        """The one declared column."""
        return parse_columns(f"field {self.column}")

    @property
    def errors(self) -> set[str]:
        """The ways to say the error: of the whole record, or of the column."""
        why = self.becomes.removeprefix("quarantined: ")
        return set() if why == self.becomes else {why, f"field ({self.column}) cannot hold {why}"}


def record_of(*fields: dict[str, Any]) -> str:
    return json.dumps({"type": "record", "name": "Top", "fields": fields})


def read_page() -> Iterator[AvroMeaning]:
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        row = re.fullmatch(r"\| `(.+?)` \| `(.+?)` \| (?:`(.+?)` \| )?(.*) \|", line)
        if row is not None:
            yield AvroMeaning(row[1], row[2], None if row[3] is None else ast.literal_eval(row[3]), row[4])


ROWS = list(read_page())
VALUES = [each for each in ROWS if each.value is not None]
NEVER = [each for each in ROWS if each.value is None]


def show(value: Any) -> str:
    """A value of a column as the page writes it."""
    match value:
        case None:
            return "*null*"
        case "":
            return "``"
        case bytes():
            return f"`{value.hex()}`"
        case datetime():
            return f"`{value.replace(tzinfo=None)}`"
        case _:
            return f"`{value}`"


def check(meaning: AvroMeaning, value: Any, error: str | None) -> None:
    if meaning.errors:
        assert error in meaning.errors
    else:
        assert (show(value), error) == (meaning.becomes, None)


def test_page_has_rows() -> None:
    assert len(VALUES) > 100
    assert len(NEVER) > 10


@at_each_row(VALUES)
def test_value_becomes_what_the_page_says(meaning: AvroMeaning) -> None:
    decoder = AvroDecoder(meaning.schema, (), meaning.columns)
    rows, _, errors = decoder.decode(pa.array([meaning.value], pa.binary()))
    rows.validate(full=True)
    check(meaning, rows["field"][0].as_py() if rows.num_rows else None, errors.get(0))


@at_each_row(VALUES)
def test_value_becomes_the_same_when_it_is_read_by_itself(meaning: AvroMeaning) -> None:
    """Without the fast path, so that neither of the two ways of reading can hide behind the other."""
    decoder = AvroDecoder(meaning.schema, (), meaning.columns)
    assert meaning.value is not None
    nothing, _ = decoder._decode_side_by_side(pa.array([], pa.binary()))
    value = pa.array([meaning.value], pa.binary())
    data = read_singly(nothing, np.zeros(1, bool), value, decoder._reference.read)
    check(meaning, data.rows["field"][0].as_py() if data.rows.num_rows else None, data.errors.get(0))


@at_each_row(VALUES)
def test_value_becomes_the_same_among_others(meaning: AvroMeaning) -> None:
    """Beside another column, and behind a union that most records have another branch of."""
    field = {"name": "field", "type": json.loads(meaning.writer)}
    body = {"type": "record", "name": "Body", "fields": [field]}
    schema = record_of({"name": "id", "type": "long"}, {"name": "body", "type": ["null", body]})
    columns = (*parse_columns("id bigint"), Column("field", meaning.columns[0].type, ("body", "field")))
    assert meaning.value is not None
    other = [b"\x02\x00"] * NEIGHBOURS
    values = [*other, b"\x04\x02" + meaning.value, *other]
    rows, is_decoded, errors = AvroDecoder(schema, (), columns).decode(pa.array(values, pa.binary()))
    assert rows["id"].to_pylist().count(1) == 2 * NEIGHBOURS
    if not meaning.errors:
        assert errors == {}
        assert show(rows["field"][NEIGHBOURS].as_py()) == meaning.becomes
    else:
        assert list(errors) == [NEIGHBOURS]
    assert is_decoded.sum() == len(values) - len(errors)


@at_each_row(NEVER)
def test_type_that_never_fits_is_refused_when_the_decoder_is_made(meaning: AvroMeaning) -> None:
    with pytest.raises(AvroSchemaError) as refused:
        AvroDecoder(meaning.schema, (), meaning.columns)
    assert str(refused.value) == meaning.becomes


def test_error_within_a_nested_value_names_the_way_to_it() -> None:
    lines = {
        "type": "array",
        "items": {"type": "record", "name": "Line", "fields": [{"name": "count", "type": "int"}]},
    }
    decoder = AvroDecoder(
        record_of({"name": "lines", "type": lines}), (), parse_columns("lines array<struct<count tinyint>>")
    )
    _, _, errors = decoder.decode(pa.array([b"\x02\x80\x02\x00"], pa.binary()))
    assert errors == {0: "lines[].count (tinyint) cannot hold a number beyond its range"}


def test_named_types_come_from_references_and_columns_without_a_field_are_null() -> None:
    references = (
        ("shop.Unit", json.dumps({"type": "enum", "name": "Unit", "namespace": "shop", "symbols": ["kg", "m"]})),
        (
            "shop.Size",
            json.dumps(
                {"type": "record", "name": "shop.Size", "fields": [{"name": "unit", "type": "Unit"}]},
            ),
        ),
    )
    schema = record_of({"name": "size", "type": "shop.Size"}, {"name": "other", "type": "int"})
    decoder = AvroDecoder(schema, references, parse_columns("size.unit as unit string, absent date"))
    decoder = pickle.loads(pickle.dumps(decoder))  # noqa: S301 -- our own bytes
    rows, _, errors = decoder.decode(pa.array([b"\x02\x00", None], pa.binary()))
    assert rows.to_pylist() == [{"unit": "m", "absent": None}]
    assert errors == {1: NO_DATUM}


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        ('"long"', "is not a record"),
        ("{", "is not one of Avro|does not define"),
        (record_of({"name": "a", "type": "Missing"}), "uses the type 'Missing'"),
        (record_of({"name": "a", "type": {"type": "enum", "name": "E"}}), "does not say what"),
        (record_of({"name": "a", "type": {"type": "fixed", "size": 2}}), "without a name"),
        (record_of({"name": "a", "type": {"type": "array"}}), "Avro|does not define"),
    ],
)
def test_schema_that_is_none_is_refused(schema: str, why: str) -> None:
    with pytest.raises(AvroSchemaError, match=why):
        AvroDecoder(schema, (), parse_columns("a int"))


def test_arrays_within_arrays_of_one_value_cost_its_neighbours_little(monkeypatch: pytest.MonkeyPatch) -> None:
    """A step from item to item costs the same for one value as for many, and steps of two levels multiply."""
    steps: list[None] = []
    monkeypatch.setattr(_Items, "_open_blocks", _watched(_Items._open_blocks, steps))
    inner = {"type": "array", "items": "int"}
    schema = record_of({"name": "a", "type": {"type": "array", "items": inner}})
    large = {"a": [[1] * 250] * 250}
    values = [encode(json.loads(schema), large if number == 5 else {"a": [[number]]}) for number in range(1_000)]
    decoder = AvroDecoder(schema, (), parse_columns("a array<array<int>>"))
    rows, is_decoded, _ = decoder.decode(pa.array(values, pa.binary()))
    assert is_decoded.all()
    assert rows["a"][5].as_py() == large["a"]
    assert rows["a"][999].as_py() == [[999]]
    assert len(steps) <= MOST_STEPS_OF_ALL


def _watched(method: Callable[..., None], calls: list[None]) -> Callable[..., None]:
    def call(*arguments: Any) -> None:
        calls.append(None)
        method(*arguments)

    return call


@pytest.mark.parametrize("schema", ['["null", "null", "long"]', "[" * 3_000 + "]" * 3_000])
def test_schema_that_avro_does_not_allow_is_refused(schema: str) -> None:
    with pytest.raises(AvroSchemaError):
        AvroDecoder(f'{{"type": "record", "name": "r", "fields": [{{"name": "a", "type": {schema}}}]}}', (), ())
