"""What a record means is what ``docs/reference/meaning.md`` says: each of its rows, alone and among other records."""

import json
import math
from collections.abc import Callable, Iterator, Sequence
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchledger.formats.arrow_types import to_arrow_type
from batchledger.formats.decoding import blocks, settling
from batchledger.formats.decoding.blocks import BlockDecoder
from batchledger.formats.decoding.decoder import Decoded, RecordDecoder
from batchledger.formats.decoding.meaning import UnfitError
from batchledger.formats.decoding.objects import MOST_LEVELS, TOO_DEEP, ObjectReader
from batchledger.formats.encoding.blocks import write_tokens
from batchledger.formats.records import QUARANTINE_SCHEMA, RECORD_SCHEMA
from batchledger.model.records.columns import Column, parse_columns
from batchledger.model.records.outer import KeyFormat, OuterColumns, parse_key
from batchledger.model.records.rules import TombstonePolicy
from batchledger.model.records.types import NAMED_TYPES, parse_type
from tests.meaning import Meaning, at_each_row, columns_of_page, literal, of_section, read_page

NEIGHBOURS = 300


def records_of(*values: bytes | None, key: bytes | None = None, timestamp_ms: int | None = 0) -> pa.RecordBatch:
    """Records of one partition, from offset 0 on."""
    rows = [
        {"topic": "t", "partition": 0, "offset": place, "timestamp_ms": timestamp_ms, "key": key, "value": value}
        for place, value in enumerate(values)
    ]
    return pa.RecordBatch.from_pylist(rows, schema=RECORD_SCHEMA)


def show(value: Any, type_: str = "") -> str | None:
    """A value of a column as the page writes it."""
    match value:
        case None | str():
            return value
        case list() | dict():
            # As PostgreSQL and output topics have it.
            return str(write_tokens(pa.array([value], to_arrow_type(parse_type(type_))))[0])
        case bytes():
            return value.hex()
        case datetime():
            return str(value.replace(tzinfo=None))
        case bool() | int() | float() | Decimal() | date():
            return str(value)
        case _:
            raise TypeError(value)


def outcome(decoded: Decoded, offset: int, name: str, type_: str = "") -> tuple[str | None, str | None]:
    """What has become of the record at an offset: the column's value as the page writes it, or the error."""
    rows = [row for batch in decoded.rows for row in batch.filter(pc.equal(batch["_offset"], offset)).to_pylist()]
    errors = [] if decoded.set_aside is None else decoded.set_aside.to_pylist()
    bad = [each["error"] for each in errors if each["offset"] == offset]
    assert len(rows) + len(bad) == 1
    return (show(rows[0][name], type_), None) if rows else (None, bad[0])


def expected(meaning: Meaning, name: str) -> tuple[str | None, str | None]:
    """What the page says; the errors of columns carry the name of the column."""
    if meaning.error is None:
        return meaning.value, None
    is_column = meaning.section == "The values of a column"
    return None, f"{name} ({meaning.type}) cannot hold {meaning.error}" if is_column else meaning.error


def value_of(meaning: Meaning) -> bytes:
    """The record's value."""
    if meaning.section == "The whole value":
        return literal(meaning.written)
    return b'{"field":%s}' % meaning.written.encode()


def columns_for(meaning: Meaning) -> tuple[Column, ...]:
    """The schema that the page speaks of, with the column first."""
    match meaning.section:
        case "The whole value":
            return parse_columns("id bigint")
        case "A field within an object":
            return parse_columns("field.a.b as inner int")
        case _:
            return parse_columns(f"field {meaning.type}")


VALUES = [
    *of_section("The whole value"),
    *columns_of_page(),
    *of_section("Values within a value"),
    *of_section("A field within an object"),
]


@at_each_row(VALUES)
def test_value_becomes_what_the_page_says(meaning: Meaning) -> None:
    columns = columns_for(meaning)
    decoded = RecordDecoder(columns).decode(records_of(value_of(meaning)))
    assert outcome(decoded, 0, columns[0].name, meaning.type) == expected(meaning, columns[0].name)


@at_each_row(VALUES)
def test_value_becomes_the_same_among_others_and_beside_a_decimal_column(meaning: Meaning) -> None:
    columns = (*columns_for(meaning), *parse_columns("amount decimal(10,2), note string"))
    other = b'{"amount":1.25,"note":"n"}'
    decoded = RecordDecoder(columns).decode(records_of(*[other] * NEIGHBOURS, value_of(meaning), *[other] * NEIGHBOURS))
    assert outcome(decoded, NEIGHBOURS, columns[0].name, meaning.type) == expected(meaning, columns[0].name)
    rows = pa.Table.from_batches(decoded.rows).filter(pc.field("_offset") != NEIGHBOURS)
    assert sorted(rows["_offset"].to_pylist()) == [*range(NEIGHBOURS), *range(NEIGHBOURS + 1, 2 * NEIGHBOURS + 1)]
    assert [rows[name].unique().to_pylist() for name in ("note", "amount")] == [["n"], [Decimal("1.25")]]


@at_each_row(VALUES)
def test_value_becomes_the_same_when_it_is_read_by_itself(meaning: Meaning) -> None:
    """Without the fast path, so that neither of the two ways of reading can hide behind the other."""
    columns = columns_for(meaning)
    decoder = RecordDecoder(columns)
    decoder.__dict__["_blocks"] = _NothingIsSure(columns)
    decoded = decoder.decode(records_of(value_of(meaning)))
    assert outcome(decoded, 0, columns[0].name, meaning.type) == expected(meaning, columns[0].name)


class _NothingIsSure(BlockDecoder):
    def decode(self, values: pa.BinaryArray) -> Any:
        return BlockDecoder(self.columns).decode(pa.nulls(len(values), pa.binary()))


def test_most_of_what_the_page_accepts_is_decoded_in_blocks() -> None:
    accepted = [each for each in VALUES if each.error is None]
    left = [
        str(each)
        for each in accepted
        if not BlockDecoder(columns_for(each)).decode(pa.array([value_of(each)], pa.binary()))[1].all()
    ]
    # Texts of what is no string, numbers at the edge of their type, and escapes at odd places.
    assert len(left) < 25, left


@pytest.mark.parametrize("meaning", of_section("The record's own timestamp"), ids=str)
@pytest.mark.parametrize("value", [b'{"id":1}', b'{"id":1,"id":1', None], ids=["good", "bad", "none"])
def test_own_timestamp_becomes_what_the_page_says(meaning: Meaning, value: bytes | None) -> None:
    decoder = RecordDecoder(parse_columns("id bigint"), TombstonePolicy.KEEP)
    records = records_of(b"{}", value, timestamp_ms=int(meaning.written))
    found = outcome(decoder.decode(records), 1, "_timestamp")
    is_bad = value is not None and not value.endswith(b"}")
    if meaning.error is None and is_bad:
        assert found == (None, "the value is not exactly one JSON object")
    else:
        assert found == expected(meaning, "_timestamp")


def test_record_without_any_timestamp_has_none() -> None:
    decoded = RecordDecoder(parse_columns("id bigint")).decode(records_of(b"{}", timestamp_ms=None))
    assert outcome(decoded, 0, "_timestamp") == (None, None)


@at_each_row(of_section("The keys of tombstones"))
def test_key_of_a_tombstone_becomes_what_the_page_says(meaning: Meaning) -> None:
    decoder = RecordDecoder(parse_columns(f"field {meaning.type}, other int"), TombstonePolicy.DELETE, ("field",))
    found, error = outcome(decoder.decode(records_of(None, key=literal(meaning.written))), 0, "field")
    assert found == meaning.value
    assert (error or "").endswith(meaning.error or "")
    assert (error is None) == (meaning.error is None)


def test_every_type_of_a_pipeline_file_is_on_the_page() -> None:
    text = "".join(line for line in _page_lines() if line.startswith(("### ", "Also ", "| `")))
    assert [each for each in NAMED_TYPES if f"`{each}`" not in text] == []


def _page_lines() -> Iterator[str]:
    from tests.meaning import PAGE

    yield from PAGE.read_text().splitlines()


def test_the_page_has_its_rows() -> None:
    assert len(read_page()) > 200


def nest(levels: int) -> bytes:
    """An object that is so deep."""
    return b'{"a":' * levels + b"1" + b"}" * levels


@pytest.mark.parametrize("wrap", [lambda deep: deep, lambda deep: b'{"field":' + deep[5:-1] + b"}"])
def test_levels_are_bounded_the_same_for_everybody(wrap: Callable[[bytes], bytes]) -> None:
    decoder = RecordDecoder(parse_columns("field string"))
    decoded = decoder.decode(records_of(wrap(nest(MOST_LEVELS)), wrap(nest(MOST_LEVELS + 1)), b"{}"))
    assert outcome(decoded, 0, "field")[1] is None
    assert outcome(decoded, 1, "field") == (None, TOO_DEEP)


@pytest.mark.parametrize("end", [b"", b"\\", b'"'], ids=["cut off", "cut off behind a backslash", "closed"])
def test_text_that_was_cut_off_costs_no_more_than_its_length(end: bytes) -> None:
    """JSON in a string of JSON, as long as a record may be; looked at anew from each quote it takes hours."""
    value = b'{"field":"' + b"[" * MOST_LEVELS * 2 + rb"\"" * 500_000 + end
    assert outcome(RecordDecoder(parse_columns("field string")).decode(records_of(value)), 0, "field")[1] is not None


def test_decimals_are_read_in_blocks_in_whatever_form_each_column_has() -> None:
    decoder = BlockDecoder(parse_columns("a decimal(10,2), b decimal(10,2), c decimal(10,2)"))
    values = [b'{"a":"%d.25","b":%d.5,"more":[1,"x"]}' % (number, number) for number in range(200)]
    rows, is_sure, _ = decoder.decode(pa.array(values, pa.binary()))
    assert is_sure.all()
    assert rows["a"].to_pylist() == [Decimal(number) + Decimal("0.25") for number in range(200)]
    assert rows["b"].to_pylist() == [Decimal(number) + Decimal("0.50") for number in range(200)]


WRITTEN = (
    b'{"field":{"a": [1.10, "x"]},"id":1}',
    b'{"id":2}',
    b'{"field":null,"id":3}',
    b'{"field":"a text","id":4}',
    b'{"field" : [ ],"id":5,"note":"field"}',
    b'{"field":-1.50,"id":6}',
)


def test_values_that_are_no_strings_keep_their_text_in_blocks() -> None:
    columns = parse_columns("id int, field string")
    rows, is_sure, _ = BlockDecoder(columns).decode(pa.array(WRITTEN * 50, pa.binary()))
    assert is_sure.all()
    texts = ['{"a": [1.10, "x"]}', None, None, "a text", "[ ]", "-1.50"]
    assert rows["field"].to_pylist() == texts * 50
    assert rows["id"].to_pylist() == [1, 2, 3, 4, 5, 6] * 50


GIVEN_TWICE = {
    "the same name": b'{"field":{},"field":{}}',
    "an escaped name": b'{"field":{},"fiel\\u0064":{}}',
    "escaped names": b'{"fi\\u0065ld":{},"fiel\\u0064":{}}',
    "a null": b'{"field":{},"field":null}',
}


@pytest.mark.parametrize("twice", GIVEN_TWICE.values(), ids=GIVEN_TWICE)
@pytest.mark.parametrize("other", [*WRITTEN, b'{"fiel\\u0064":{}}', b'{"field":{"field":1}}'])
def test_field_of_any_value_that_is_given_twice_is_found_in_a_block(twice: bytes, other: bytes) -> None:
    decoder = RecordDecoder(parse_columns("field string"))
    decoded = decoder.decode(records_of(*[WRITTEN[0]] * NEIGHBOURS, other, twice))
    assert outcome(decoded, NEIGHBOURS + 1, "field") == (None, "field field is given twice")
    assert outcome(decoded, NEIGHBOURS, "field")[1] is None


def test_negative_control_without_a_count_of_names_the_last_one_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    class Counts(bytes):
        def count(self, *_: Any) -> int:
            return 2

    read = blocks.read_as_written
    monkeypatch.setattr(
        blocks, "read_as_written", lambda each, found, text, total: read(each, found, Counts(text), total)
    )
    decoded = RecordDecoder(parse_columns("field string")).decode(records_of(WRITTEN[0], b'{"field":{},"field":[]}'))
    assert outcome(decoded, 1, "field") == ("[]", None)


def test_many_brackets_that_are_not_deep_are_no_depth() -> None:
    value = json.dumps({"field": [[]] * MOST_LEVELS * 2, "text": "[{" * MOST_LEVELS}).encode()
    assert outcome(RecordDecoder(parse_columns("field string")).decode(records_of(value)), 0, "field")[1] is None


ANYTHING = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.integers(0, 44).map(lambda power: 35 * 10**power)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5)
    | st.sampled_from([each.written for each in columns_of_page() if each.type in ("date", "timestamp", "uuid")]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("abn"), inner, max_size=2),
    max_leaves=4,
)
TYPES = (
    "string", "boolean", "tinyint", "smallint", "int", "bigint", "double", "float", "decimal(6,2)",
    "decimal(38,10)", "decimal(38,18)", "decimal(38,38)",
    "date", "timestamp", "timestamp_s", "timestamp_ms", "timestamp_us", "binary", "uuid", "jsonb",
    "array<double>", "array<uuid>",
    "map<string, int>", "struct<a int, b string>", "array<struct<n decimal(6,2), a array<bigint>>>",
)  # fmt: skip


NAMES = st.sampled_from(['"a"', '"b"', '"\\u0061"', '"c"', '"a "'])
WITH_NAMES_TWICE = st.recursive(
    st.sampled_from(["1", '"a"', '"\\"a\\":"', "null", "1.50", '"a\\":"', '"\\ud83d"', '"\\u003c"']),
    lambda inner: st.lists(st.tuples(NAMES, inner), max_size=3).map(
        lambda fields: "{" + ", ".join(f"{name} :{value}" for name, value in fields) + "}"
    ),
    max_leaves=4,
)


@given(st.lists(WITH_NAMES_TWICE.filter(lambda text: text[0] == "{"), max_size=5))
def test_texts_of_blocks_are_those_of_each_record_whatever_is_given_twice(texts: Sequence[str]) -> None:
    columns = parse_columns("a string, b string")
    values = [text.encode() for text in texts]
    decoded = RecordDecoder(columns).decode(records_of(*values))
    for offset, value in enumerate(values):
        try:
            expected_texts, why = ObjectReader(columns).read(value), None
        except UnfitError as error:
            expected_texts, why = [None, None], str(error)
        for name, text in zip(("a", "b"), expected_texts, strict=True):
            assert outcome(decoded, offset, name) == (text, why)


@given(
    st.lists(st.tuples(st.sampled_from(TYPES), ANYTHING), max_size=4),
    st.booleans(),
    st.sampled_from(["", " ", "\n", "\r\n", "\ufeff"]),
)
def test_what_is_decoded_in_blocks_is_what_is_read_by_itself(
    fields: Sequence[tuple[str, Any]], is_ascii: bool, around: str
) -> None:
    columns = tuple(Column(f"c{place}", parse_type(type_)) for place, (type_, _) in enumerate(fields))
    document = {f"c{place}": value for place, (_, value) in enumerate(fields)}
    value = (around + json.dumps(document, ensure_ascii=is_ascii) + around.strip("\ufeff")).encode()
    rows, is_sure, _ = BlockDecoder(columns).decode(pa.array([value], pa.binary()))
    if is_sure.all() and columns:
        by_itself = ObjectReader(columns).read(value)
        as_arrow = [pa.array([each], rows.schema.field(place).type)[0].as_py() for place, each in enumerate(by_itself)]
        assert [repr(each) for each in rows.to_pylist()[0].values()] == [repr(each) for each in as_arrow]


def test_negative_control_without_its_doubts_the_fast_path_accepts_what_the_page_does_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(blocks, "require_same_decimals", lambda found, written: None)
    monkeypatch.setattr(blocks, "require_form", lambda values, form: None)
    monkeypatch.setattr(blocks, "_require_sure", lambda text: None)
    monkeypatch.setattr(settling, "require_form", lambda values, form: None)
    monkeypatch.setattr(settling, "_require_numbers", lambda numbers, largest, records, are_beside: None)
    wrong = []
    # Without the doubts a far exponent would end this process.
    for meaning in [each for each in VALUES if "-9999999" not in each.written]:
        columns = columns_for(meaning)
        decoded = RecordDecoder(columns).decode(records_of(value_of(meaning)))
        try:
            is_right = outcome(decoded, 0, columns[0].name, meaning.type) == expected(meaning, columns[0].name)
        except OverflowError:
            # A year that Python does not know.
            is_right = False
        if not is_right:
            wrong.append(meaning.written)
    assert {'"a\\u0000b"', '"+1"', "9007199254740993", "1e-400", "350000000000000000000"} <= set(wrong)
    assert any("NaN" in each for each in wrong)


def test_negative_control_a_zero_that_lost_its_sign_is_another_value() -> None:
    assert show(-0.0) != show(0.0)
    assert math.copysign(1, -0.0) < 0


@pytest.mark.parametrize(
    ("policy", "fates"),
    [
        (TombstonePolicy.QUARANTINE, ("aside",)),
        (TombstonePolicy.KEEP, ("row",)),
        (TombstonePolicy.SKIP, ("skipped",)),
        (TombstonePolicy.DELETE, ("row",)),
    ],
)
def test_tombstone_has_the_fate_that_the_pipeline_declares(policy: TombstonePolicy, fates: Sequence[str]) -> None:
    decoder = RecordDecoder(parse_columns("id bigint, note string"), policy, ("id",))
    decoded = decoder.decode(records_of(b'{"id":1}', None, b'{"id":', key=b"7"))
    rows = [row for batch in decoded.rows for row in batch.to_pylist()]
    aside = [] if decoded.set_aside is None else decoded.set_aside.to_pylist()
    skipped = [] if decoded.skipped is None else decoded.skipped.to_pylist()
    by_fate = {"row": rows, "aside": aside, "skipped": skipped}
    offset = "_offset" if fates == ("row",) else "offset"
    assert [1 in [each[offset] for each in by_fate[fate]] for fate in fates] == [True]
    assert len(rows) + len(aside) + len(skipped) == 3
    if policy is TombstonePolicy.DELETE:
        assert [(row["id"], row["_deleted"]) for row in rows] == [(1, False), (7, True)]


def test_s119_what_is_set_aside_keeps_all_of_the_record() -> None:
    rows = [
        {"topic": "t", "partition": 3, "offset": 9, "timestamp_ms": 2**62, "key": b"k", "value": b"{", "headers": "[1]"}
    ]
    decoded = RecordDecoder(parse_columns("id int")).decode(pa.RecordBatch.from_pylist(rows, schema=RECORD_SCHEMA))
    assert decoded.set_aside is not None
    assert decoded.set_aside.schema == QUARANTINE_SCHEMA
    (kept,) = decoded.set_aside.to_pylist()
    assert {name: kept[name] for name in RECORD_SCHEMA.names} == rows[0]


def test_key_column_of_the_key_itself_keeps_each_character() -> None:
    """The way out for keys that really are texts in quotes: rows and tombstones have the same."""
    outer = OuterColumns(parse_key(KeyFormat.STRING, "id string"))
    decoder = RecordDecoder(parse_columns("n int"), TombstonePolicy.DELETE, ("id",), outer=outer)
    for value in (b'{"n": 1}', None):
        assert outcome(decoder.decode(records_of(value, key=b'"7"')), 0, "id") == ('"7"', None)
