"""Fields that no column declares are counted and named, exactly and in bounded memory; docs/guides/schema.md."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batchledger.formats.decoding.blocks import BlockDecoder
from batchledger.formats.decoding.decoder import Decoded, RecordDecoder
from batchledger.formats.decoding.documents import DocumentDecoder
from batchledger.formats.records import RECORD_SCHEMA
from batchledger.model.records.columns import parse_columns
from batchledger.model.records.rules import TombstonePolicy, UnknownFieldPolicy
from batchledger.model.records.unknown_fields import (
    LONGEST_NAME,
    NAMES_SHOWN,
    Place,
    Sighting,
    UnknownFieldCounter,
    UnknownFields,
    sum_up,
    write_name,
)

COLUMNS = parse_columns("id bigint, note string, amount decimal(6,2)")
DECLARED = {column.name for column in COLUMNS}

Seen = tuple[Place, frozenset[str]]

NAMES = st.text(st.characters(codec="utf-8"), max_size=3) | st.integers(0, 60).map("name {:02}".format)
PLACES = st.tuples(st.sampled_from(["a", "b"]), st.integers(0, 2), st.integers(0, 9))


def count(seen: Sequence[Seen]) -> UnknownFieldCounter:
    """What one task has counted."""
    counter = UnknownFieldCounter()
    for place, names in seen:
        counter.count(names, Sighting(1, place))
    return counter


def merge(counters: Sequence[UnknownFieldCounter]) -> UnknownFields:
    """What several tasks have counted together."""
    return sum_up(sum(each.records for each in counters), [seen for each in counters for seen in each.list_first()])


def expect(seen: Sequence[Seen]) -> UnknownFields:
    """The statement: the first names in the order of their letters, each with its records and the first place."""
    names = sorted({write_name(name) for _, found in seen for name in found})
    by_name = {}
    for name in names[:NAMES_SHOWN]:
        places = [place for place, found in seen if name in map(write_name, found)]
        by_name[name] = Sighting(len(places), min(places))
    return UnknownFields(sum(bool(found) for _, found in seen), by_name, len(names) > NAMES_SHOWN)


@given(st.lists(st.lists(st.tuples(PLACES, st.frozensets(NAMES, max_size=30)), max_size=8), max_size=4))
def test_tasks_count_together_what_one_would_count(tasks: Sequence[Sequence[Seen]]) -> None:
    assert merge([count(seen) for seen in tasks]) == expect([each for seen in tasks for each in seen])


def test_memory_does_not_grow_with_the_names_and_the_counts_stay_exact() -> None:
    counter = UnknownFieldCounter()
    for offset in range(1_000):
        # From the last name to the first, so that the first are the last to come.
        counter.count(
            [f"{999 - offset:03}.{number:03}" for number in range(100)] + ["always"], Sighting(1, ("orders", 0, offset))
        )
        assert len(counter.by_name) < 2_200
    found = merge([counter])
    assert list(found.by_name) == [f"000.{number:03}" for number in range(NAMES_SHOWN)]
    assert set(found.by_name.values()) == {Sighting(1, ("orders", 0, 999))}
    assert (found.records, found.has_more) == (1_000, True)


@pytest.mark.parametrize(
    ("name", "written"),
    [
        ("discount", "discount"),
        ("", ""),
        ("straße 😀", "straße 😀"),
        ("a\x00b\nc", "a\\u0000b\\nc"),
        ("x" * LONGEST_NAME, "x" * LONGEST_NAME),
        ("x" * 5_000_000, "x" * (LONGEST_NAME - 1) + "…"),
        ("\x00" * 5_000_000, ("\\u0000" * LONGEST_NAME)[: LONGEST_NAME - 1] + "…"),
    ],
    ids=["plain", "empty", "letters", "control characters", "longest", "too long", "too long in escapes"],
)
def test_name_is_written_as_one_short_line_that_a_database_takes(name: str, written: str) -> None:
    assert write_name(name) == written


def records_of(values: Sequence[bytes | None]) -> pa.RecordBatch:
    rows = [
        {"topic": "orders", "partition": 2, "offset": place, "timestamp_ms": 0, "value": value}
        for place, value in enumerate(values)
    ]
    return pa.RecordBatch.from_pylist(rows, schema=RECORD_SCHEMA)


def unknown_in(decoder: DocumentDecoder, values: Sequence[bytes | None]) -> Mapping[int, frozenset[str]]:
    """The unknown fields by place."""
    found = decoder.decode(pa.array(values, pa.binary()))
    return {place: names for names, places in found.undeclared for place in places.tolist()}


def rows_of(decoded: Decoded) -> Mapping[int, Mapping[str, Any]]:
    return {row["_offset"]: row for rows in decoded.rows for row in rows.to_pylist()}


def errors_of(decoded: Decoded) -> Mapping[int, str]:
    aside = [] if decoded.set_aside is None else decoded.set_aside.to_pylist()
    return {each["offset"]: each["error"] for each in aside}


VALUES = st.sampled_from([None, 1, 2.5, "text", True, {"id": 1}, {"deep": {"note": []}}, [1, "a"], 10**30])
DOCUMENTS = st.dictionaries(st.sampled_from([*DECLARED, "discount", "Id", "id ", "\u00e9", "id\x01", ""]), VALUES)
TEXTS = st.builds(
    lambda document, is_ascii, around: around + json.dumps(document, ensure_ascii=is_ascii) + around.strip("\ufeff"),
    DOCUMENTS,
    st.booleans(),
    st.sampled_from(["", "", "", " ", "\n", "\ufeff"]),
) | st.sampled_from(['{"id":1,"x":2,"x":3}', '{"id":1,"id":2,"x":3}', '{"i\\u0064":1}', '{"\\u0078":1}', "{", "[]"])


# What is kept: test_kept_fields.py.
POLICIES = [each for each in UnknownFieldPolicy if each is not UnknownFieldPolicy.KEEP]


# Each run draws other texts: what these do not meet, the next run may meet.
@settings(max_examples=40)
@given(st.lists(TEXTS, max_size=6), st.sampled_from(POLICIES), st.integers(1, 80))
def test_records_together_and_each_by_itself_have_the_same_unknown_fields(
    texts: Sequence[str], policy: UnknownFieldPolicy, times: int
) -> None:
    """S119. Blocks of records decode in another way than a single record."""
    values = [text.encode() for text in texts] * times
    decoder = RecordDecoder(COLUMNS, unknown_fields=policy)
    decoded = decoder.decode(records_of(values))
    rows, errors = rows_of(decoded), errors_of(decoded)
    unknown = unknown_in(DocumentDecoder(COLUMNS, policy), values)
    lenient = RecordDecoder(COLUMNS)
    decoded_alone = {value: lenient.decode(records_of([value])) for value in set(values)}
    for offset, value in enumerate(values):
        alone = decoded_alone[value]
        document = {} if rows_of(alone) == {} else json.loads(value.removeprefix(b"\xef\xbb\xbf"))
        expected = frozenset(document) - DECLARED
        if errors_of(alone):
            assert errors[offset] == errors_of(alone)[0]
        elif policy is UnknownFieldPolicy.QUARANTINE and expected:
            assert errors[offset] == f"field {min(map(write_name, expected))} is not declared"
        else:
            assert {**rows[offset], "_offset": 0} == rows_of(alone)[0]
            assert unknown.get(offset, frozenset()) == (expected if policy.counts else frozenset())


@pytest.mark.parametrize("document", [{"id": 1}, {"id": 1, "note": "text"}, {"id": 1, "note": {"any": [1]}}], ids=str)
@pytest.mark.parametrize("policy", UnknownFieldPolicy)
def test_records_without_unknown_fields_are_decoded_in_blocks_and_not_looked_through(
    document: Mapping[str, Any], policy: UnknownFieldPolicy
) -> None:
    values = pa.array([json.dumps(document).encode()] * 300, pa.binary())
    rows, is_sure, may_have_unknown = BlockDecoder(COLUMNS, policy).decode(values)
    assert (rows.num_rows, is_sure.all(), may_have_unknown.any()) == (300, True, False)


@pytest.mark.parametrize("note", ["text", {"any": [1]}], ids=["text", "object"])
@pytest.mark.parametrize("policy", [UnknownFieldPolicy.WARN, UnknownFieldPolicy.BLOCK])
def test_records_with_unknown_fields_are_decoded_in_blocks(note: Any, policy: UnknownFieldPolicy) -> None:
    value = json.dumps({"id": 1, "note": note, "discount": 3}).encode()
    rows, is_sure, may_have_unknown = BlockDecoder(COLUMNS, policy).decode(pa.array([value] * 300, pa.binary()))
    assert (rows.num_rows, is_sure.all(), may_have_unknown.all()) == (300, True, True)


def test_one_record_with_an_unknown_field_is_set_aside_and_its_neighbours_become_rows() -> None:
    values = [b'{"id":%d}' % number for number in range(500)]
    values[77] = b'{"id":77,"shipping":{},"discount":3}'
    decoder = RecordDecoder(COLUMNS, unknown_fields=UnknownFieldPolicy.QUARANTINE)
    decoded = decoder.decode(records_of(values))
    assert errors_of(decoded) == {77: "field discount is not declared"}
    assert sorted(rows_of(decoded)) == [number for number in range(500) if number != 77]


def test_tombstone_that_is_kept_as_a_row_has_no_unknown_field() -> None:
    decoder = RecordDecoder(COLUMNS, TombstonePolicy.KEEP, unknown_fields=UnknownFieldPolicy.WARN)
    decoded = decoder.decode(records_of([None, b'{"other":1}']))
    assert decoded.undeclared == [({"other"}, Sighting(1, ("orders", 2, 1)))]
