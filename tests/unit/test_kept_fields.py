"""``unknown_fields: keep``: what no column declares stays with its row, exactly, or the record is set aside."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batchledger.config.sections import SourceConfig
from batchledger.formats.arrow_types import is_json
from batchledger.formats.decoding.blocks import BlockDecoder
from batchledger.formats.decoding.decoder import Decoded, RecordDecoder
from batchledger.formats.decoding.documents import DocumentDecoder, RestReader
from batchledger.model.records.columns import REST, parse_columns, read_columns, write_columns
from batchledger.model.records.contract import describe_change, fingerprint
from batchledger.model.records.outer import KeyFormat, OuterColumns, parse_headers, parse_key
from batchledger.model.records.rules import TombstonePolicy, UnknownFieldPolicy
from tests.meaning import PAGE, Meaning, of_section
from tests.unit.test_unknown_fields import errors_of, records_of, rows_of

COLUMNS = parse_columns(
    "id bigint, whole jsonb, customer struct<id bigint, name string>, customer.at.city as city string, "
    "items array<struct<price double, code string>>, by_name map<string, struct<n int>>"
)
SCHEMA_OF_PAGE = (
    "id bigint, customer struct<id bigint>, customer.at.city as city string, items array<struct<price double>>, "
    "by_name map<string, struct<n int>>"
)
FLAT = parse_columns("id bigint, note string, amount double")


def keeping(columns: str | Sequence[Any], tombstones: TombstonePolicy = TombstonePolicy.QUARANTINE) -> RecordDecoder:
    declared = parse_columns(columns) if isinstance(columns, str) else tuple(columns)
    return RecordDecoder(declared, tombstones, unknown_fields=UnknownFieldPolicy.KEEP)


def rest_of(decoded: Decoded) -> Mapping[int, str | None]:
    """What is kept, by offset."""
    return {offset: row["_rest"] for offset, row in rows_of(decoded).items()}


@pytest.mark.parametrize("meaning", of_section("Fields that are kept"), ids=str)
@pytest.mark.parametrize("neighbours", [0, 300])
def test_undeclared_fields_are_kept_as_the_page_says(meaning: Meaning, neighbours: int) -> None:
    others = [b'{"id":1}'] * neighbours
    assert f"`{SCHEMA_OF_PAGE}`" in PAGE.read_text()
    decoded = keeping(SCHEMA_OF_PAGE).decode(records_of([*others, meaning.written.encode(), *others]))
    assert rest_of(decoded).get(neighbours) == meaning.value
    assert errors_of(decoded) == ({} if meaning.error is None else {neighbours: meaning.error})
    assert len(rows_of(decoded)) == 2 * neighbours + (meaning.error is None)


NAMES = st.sampled_from(["id", "name", "n", "price", "customer", "x", "Id", "é", "a b", 'q"', "x\x01", "_rest", ""])
LEAVES = st.sampled_from([None, True, 0, -7, 12345678901234567890123, 0.5, "", "text", "é\u2028", 'a"b', "\\u0000"])
ANY = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3), max_leaves=6
)
TEXT, NUMBER = st.text(max_size=3).filter(lambda text: "\0" not in text), st.integers(-9, 9)


def objects(**declared: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Objects with some of the declared fields, and with others."""
    others = st.dictionaries(NAMES.filter(lambda name: name not in declared), ANY, max_size=2)
    return st.builds(lambda own, more: {**own, **more}, st.fixed_dictionaries({}, optional=declared), others)


DOCUMENTS = objects(
    id=NUMBER,
    whole=ANY,
    customer=objects(id=NUMBER, name=TEXT, at=objects(city=TEXT)),
    items=st.lists(st.none() | objects(price=NUMBER, code=TEXT), max_size=3),
    by_name=st.dictionaries(TEXT, objects(n=NUMBER), max_size=2),
    note=TEXT,
)
ASCII, ROUGH = partial(json.dumps, ensure_ascii=True), partial(json.dumps, ensure_ascii=False, indent=1)
DENSE = partial(json.dumps, ensure_ascii=False, separators=(",", ":"))


def join(one: Any, other: Any) -> Any:
    """The statement: what is declared and what is kept, field by field and element by element."""
    match one, other:
        case _, None:
            return one
        case None, _:
            return other
        case dict(), dict():
            return {name: join(one.get(name), other.get(name)) for name in {**one, **other}}
        case list(), list():
            return [join(*each) for each in zip(one, other, strict=True)]
    raise AssertionError(one, other)


def tidy(value: Any) -> Any:
    """A document without the difference between null, absent and an object that has nothing: rows do not know it."""
    match value:
        case dict():
            fields = {name: tidy(each) for name, each in value.items()}
            return {name: each for name, each in fields.items() if each is not None} or None
        case list():
            return [tidy(each) for each in value]
    return value


def document_of(row: Mapping[str, Any]) -> Any:
    """The declared columns of a row at the places of their fields."""
    customer = join(row["customer"], {"at": {"city": row["city"]}}) if row["city"] is not None else row["customer"]
    return {
        "id": row["id"],
        "whole": row["whole"] and json.loads(row["whole"]),
        "customer": customer,
        "items": row["items"],
        "by_name": None if row["by_name"] is None else dict(row["by_name"]),
    }


# Each run draws other documents: what these do not meet, the next run may meet.
FEW = settings(max_examples=40)


@FEW
@given(
    st.lists(st.tuples(DOCUMENTS, st.sampled_from([ASCII, ROUGH, DENSE])), min_size=1, max_size=5), st.integers(1, 40)
)
def test_columns_and_what_is_kept_give_the_whole_record_back(written: Sequence[tuple[Any, Any]], times: int) -> None:
    values = [write(document).encode() for document, write in written] * times
    decoded = keeping(COLUMNS).decode(records_of(values))
    rows, errors = rows_of(decoded), errors_of(decoded)
    assert errors == {}
    for offset, (document, _) in enumerate(written * times):
        row = rows[offset]
        rest = row["_rest"] and json.loads(row["_rest"])
        assert tidy(join(document_of(row), rest)) == tidy(document)
        # Nothing of what is declared is there twice.
        assert rest != {}
        assert not {"id", "whole"} & set(rest or ())


TEXTS = st.builds(lambda document, write: write(document), DOCUMENTS, st.sampled_from([ASCII, ROUGH, DENSE])) | (
    st.sampled_from(
        [
            '{"id":1,"x":2,"x":3}',
            '{"id":1,"x":2,"\\u0078":3}',
            '{"customer":{"x":1,"x":1}}',
            '{"x":{"y":1,"y":1}}',
            '{"x":"\\u0000"}',
            '{"\\u0000":1}',
            '{"x":1e10001}',
            '{"items":[{"x":1},{"price":"no"}]}',
            '\ufeff {"x":1} ',
            "{",
        ]
    )
)


@FEW
@given(st.lists(TEXTS, max_size=5), st.sampled_from([COLUMNS, FLAT]), st.integers(1, 60))
def test_records_together_and_each_by_itself_keep_the_same(texts: Sequence[str], columns: Any, times: int) -> None:
    """S119. Blocks of records decode in another way than a single record."""
    values = [text.encode() for text in texts] * times
    together = keeping(columns).decode(records_of(values))
    rows, errors = rows_of(together), errors_of(together)
    alone = keeping(columns)
    alone._values.__dict__["_blocks"] = _NothingIsSure(columns)
    decoded_alone = {value: alone.decode(records_of([value])) for value in set(values)}
    for offset, value in enumerate(values):
        single = decoded_alone[value]
        assert errors.get(offset) == errors_of(single).get(0)
        assert ({**rows[offset], "_offset": 0} if offset in rows else None) == rows_of(single).get(0)


class _NothingIsSure(BlockDecoder):
    def decode(self, values: pa.BinaryArray) -> Any:
        return super().decode(pa.nulls(len(values), pa.binary()))


@pytest.mark.parametrize("columns", [FLAT, COLUMNS], ids=["flat", "nested"])
def test_records_without_other_fields_are_not_looked_at_one_by_one(columns: Any) -> None:
    values = pa.array([b'{"id":%d}' % number for number in range(300)], pa.binary())
    decoder = DocumentDecoder((*columns, REST), UnknownFieldPolicy.KEEP)
    decoder.__dict__.update(_rest=_NeverAsked(columns), _objects=None)
    found = decoder.decode(values)
    assert (found.rows["_rest"].null_count, found.is_decoded.all()) == (300, True)


class _NeverAsked(RestReader):
    def read(self, value: bytes) -> str | None:
        raise AssertionError(value)


def test_records_with_other_fields_are_decoded_in_blocks() -> None:
    values = pa.array([b'{"id":%d,"tax":1.10}' % number for number in range(300)], pa.binary())
    decoder = DocumentDecoder((*FLAT, REST), UnknownFieldPolicy.KEEP)
    # Nothing reads a record by itself.
    decoder.__dict__["_objects"] = None
    found = decoder.decode(values)
    assert set(found.rows["_rest"].to_pylist()) == {'{"tax":1.10}'}
    assert (found.is_decoded.all(), found.undeclared) == (True, ())


def test_record_whose_other_fields_cannot_be_kept_is_set_aside_and_its_neighbours_become_rows() -> None:
    values = [b'{"id":%d,"x":%d}' % (number, number) for number in range(500)]
    values[77] = b'{"id":77,"x":1,"x":2}'
    decoded = keeping(FLAT).decode(records_of(values))
    assert errors_of(decoded) == {77: "_rest (jsonb) cannot hold a name that is given twice"}
    assert rest_of(decoded) == {number: f'{{"x":{number}}}' for number in range(500) if number != 77}
    assert all(row["id"] == row["_offset"] for row in rows_of(decoded).values())


def test_one_object_with_very_many_other_names_is_kept_whole() -> None:
    document = {f"name {number}": number for number in range(50_000)}
    decoded = keeping(FLAT).decode(records_of([DENSE(document).encode()]))
    assert rest_of(decoded) == {0: DENSE(document)}


@pytest.mark.parametrize("policy", [TombstonePolicy.KEEP, TombstonePolicy.DELETE])
def test_tombstone_keeps_nothing(policy: TombstonePolicy) -> None:
    decoder = replace(keeping(FLAT, policy), key=("id",) if policy is TombstonePolicy.DELETE else ())
    records = records_of([None, b'{"id":1,"x":2}'])
    keyed = records.set_column(records.schema.get_field_index("key"), records.schema.field("key"), pa.array([b"1"] * 2))
    assert rest_of(decoder.decode(keyed)) == {0: None, 1: '{"x":2}'}


def test_columns_of_key_and_headers_stay_beside_what_is_kept() -> None:
    outer = OuterColumns(parse_key(KeyFormat.STRING, "store string"), parse_headers({"trace": "header trace string"}))
    decoder = replace(keeping("id bigint"), outer=outer)
    records = records_of([b'{"id":1,"store":"other"}', b'{"id":1,"x":[1,1],"x":2}', b'{"id":3}'])
    keyed = records.set_column(records.schema.get_field_index("key"), records.schema.field("key"), pa.array([b"k"] * 3))
    decoded = decoder.decode(keyed)
    assert decoder.schema.names[:4] == ["id", "store", "trace", "_rest"]
    assert {offset: (row["store"], row["_rest"]) for offset, row in rows_of(decoded).items()} == {
        0: ("k", '{"store":"other"}'),
        2: ("k", None),
    }
    assert list(errors_of(decoded)) == [1]


def test_kept_fields_are_json_and_a_part_of_the_schema_that_the_ledger_keeps() -> None:
    decoder = keeping("id bigint, note string")
    definition = write_columns(decoder.declared)
    assert is_json(decoder.schema.field("_rest"))
    assert definition == "id bigint, note string, _rest jsonb"
    assert read_columns(definition) == decoder.declared
    without = write_columns(replace(decoder, unknown_fields=UnknownFieldPolicy.WARN).declared)
    assert fingerprint(without) != fingerprint(definition)
    assert describe_change(without, definition) == "_rest jsonb is new"
    assert describe_change(definition, without) == "_rest jsonb is gone"


def test_nothing_is_counted_as_lost() -> None:
    # Some in blocks, and one by itself.
    decoded = keeping(FLAT).decode(records_of([*[b'{"x":1}'] * 300, b'{"x":1,"id":-0}', b'{"x":1e10001}']))
    assert decoded.undeclared == []


def test_file_has_the_column_and_no_column_can_take_its_name() -> None:
    source = {"topics": ["orders"], "schema": "id bigint", "unknown_fields": "keep"}
    assert SourceConfig.model_validate(source).columns == (*parse_columns("id bigint"), REST)
    with pytest.raises(ValueError, match=re.escape("leading underscore")):
        SourceConfig.model_validate({**source, "schema": "_rest jsonb"})
