"""UUIDs between text and bytes, in schemas, and in what is proposed, made up and protected."""

import json
from collections.abc import Sequence
from uuid import UUID

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchledger.formats.arrow_types import NO_UUID, is_uuid, mark_columns, pack_uuids, unpack_uuids
from batchledger.formats.decoding.avro.proposing import find_avro_shape
from batchledger.formats.decoding.meaning import NO_UUID_TEXT, UnfitError, make_text_reader
from batchledger.formats.decoding.nested import make_reader
from batchledger.formats.decoding.proposing import propose_columns
from batchledger.local.samples.synthetic import synthesize_records
from batchledger.model.errors import RowsRefusedError
from batchledger.model.records.columns import Column, parse_columns, write_columns
from batchledger.model.records.protection import ColumnProtection, check_protections
from batchledger.model.records.types import Scalar
from batchledger.source.spark.tasks import spell_uuids

COLUMN = Column("id", Scalar.UUID)
SPELLED = st.uuids().flatmap(lambda each: st.sampled_from([str(each), str(each).upper()]))
NO_UUIDS = st.one_of(
    st.text(max_size=40),
    st.text("0123456789abcdef-", min_size=30, max_size=38),
    st.uuids().flatmap(lambda each: st.sampled_from([f"{{{each}}}", each.urn, each.hex, f"{each} ", f"{each}\n"])),
).filter(lambda text: len(text) != len(str(UUID(int=0))))


@given(st.lists(st.none() | SPELLED, max_size=20), st.integers(0, 20))
def test_bytes_of_uuids_are_those_of_python_and_come_back_as_texts(texts: Sequence[str | None], start: int) -> None:
    given_ = pa.array(texts, pa.string())[start:]
    packed = pack_uuids(given_)
    assert packed.to_pylist() == [None if each is None else UUID(each).bytes for each in texts[start:]]
    whole = pack_uuids(pa.array(texts, pa.string())).cast(pa.uuid())
    assert unpack_uuids(whole[start:]).to_pylist() == [None if each is None else each.lower() for each in texts[start:]]


@given(st.lists(st.none() | SPELLED | NO_UUIDS, max_size=20))
def test_text_that_is_no_uuid_becomes_bytes_that_no_target_takes(texts: Sequence[str | None]) -> None:
    reads = make_text_reader(COLUMN)

    def is_one(text: str) -> bool:
        try:
            return reads(text) == text.lower()
        except UnfitError:
            return False

    expected = [None if each is None else UUID(each).bytes if is_one(each) else NO_UUID for each in texts]
    assert pack_uuids(pa.array(texts, pa.string())).to_pylist() == expected
    if NO_UUID in expected:
        with pytest.raises(pa.ArrowInvalid):
            pack_uuids(pa.array(texts, pa.string())).cast(pa.uuid())


def made_by_a_transform(texts: Sequence[str | None], start: int) -> pa.RecordBatch:
    """Rows from the middle of a larger batch, at the offsets from ``start`` on."""
    count = len(texts)
    places = {"_topic": ["orders"] * count, "_partition": [3] * count, "_offset": range(count)}
    columns = {"id": pa.array(texts, pa.string()), **{name: pa.array(each) for name, each in places.items()}}
    rows = pa.RecordBatch.from_pydict(columns)
    return rows.cast(mark_columns(rows.schema, [COLUMN])).slice(start)


@given(st.lists(st.none() | SPELLED, max_size=20), st.integers(0, 20))
def test_transforms_uuids_have_one_text_each_in_every_target(texts: Sequence[str | None], start: int) -> None:
    spelled = spell_uuids(made_by_a_transform(texts, start))
    assert spelled["id"].to_pylist() == [each and str(UUID(each)) for each in texts[start:]]
    assert is_uuid(spelled.schema.field("id"))


@given(st.lists(st.none() | SPELLED, max_size=9), NO_UUIDS, st.lists(SPELLED | NO_UUIDS, max_size=9))
def test_transforms_text_that_is_no_uuid_is_refused_with_its_record(
    before: Sequence[str | None], wrong: str, after: Sequence[str]
) -> None:
    with pytest.raises(RowsRefusedError) as refused:
        spell_uuids(made_by_a_transform([*before, wrong, *after], 0))
    assert refused.value.coordinates == (f"orders[3]@{len(before)} (id: no UUID)",)


@given(SPELLED)
def test_text_of_a_uuid_is_read_as_one_value_however_it_is_spelled(text: str) -> None:
    assert make_reader(COLUMN)(json.dumps(text).encode()) == str(UUID(text))


@given(NO_UUIDS)
def test_any_other_text_is_refused_without_its_value(text: str) -> None:
    with pytest.raises(UnfitError) as refused:
        make_reader(COLUMN)(json.dumps(text).encode())
    assert str(refused.value) == f"id (uuid) cannot hold {NO_UUID_TEXT}"


def test_type_is_written_and_read_by_its_name() -> None:
    text = "id uuid, ids array<uuid>, customer struct<id uuid>"
    assert write_columns(parse_columns(text.replace("uuid", "UUID"))) == text
    assert parse_columns("id uuid")[0].is_scalar


def test_avro_proposes_uuid_for_its_logical_type_and_string_for_a_text_without_it() -> None:
    fixed = {"type": "fixed", "name": "U", "size": 16, "logicalType": "uuid"}
    types = {
        "text": {"type": "string", "logicalType": "uuid"},
        "bytes": ["null", fixed],
        "plain": "string",
        "other": {"type": "fixed", "name": "F", "size": 16},
        "many": {"type": "array", "items": {"type": "string", "logicalType": "uuid"}},
    }
    schema = {"type": "record", "name": "R", "fields": [{"name": name, "type": of} for name, of in types.items()]}
    proposed = write_columns(propose_columns(find_avro_shape(json.dumps(schema), ())))
    assert proposed == "text uuid, bytes uuid, plain string, other binary, many array<uuid>"
    assert write_columns(parse_columns(proposed)) == proposed


def test_made_up_records_have_uuids_of_their_own_that_the_column_takes() -> None:
    records = [json.loads(each.value or b"") for each in synthesize_records((COLUMN,), 100)]
    assert len({make_text_reader(COLUMN)(each["id"]) for each in records}) == 100


@pytest.mark.parametrize("protection", [ColumnProtection.HASH, ColumnProtection.MASK])
def test_uuid_is_hashed_or_masked_only_as_a_string(protection: ColumnProtection) -> None:
    with pytest.raises(ValueError, match=f"'id' is a uuid, and {protection} is for texts; declare it as string"):
        check_protections({"id": protection}, [(COLUMN,)])
    check_protections({"id": ColumnProtection.DROP}, [(COLUMN,)])
