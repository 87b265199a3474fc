"""What a key of an erasure is, which records hold it, and that no text shows its values."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchledger.formats.records import write_headers
from batchledger.lifecycle.execution import carry_out, explain
from batchledger.lifecycle.orders import Erase
from batchledger.model.batch import Decision
from batchledger.model.erasure import Erased, ErasureKey, Holding, describe_doubtful, find_holding
from batchledger.model.errors import DecisionRefusedError
from batchledger.model.offsets import OffsetRange, TopicPartition
from tests.fakes.history import prove
from tests.fakes.world import ORDERS_0, PIPELINE, World, catch_up

KEY = ErasureKey.parse(["customer=4711"])
TYPES = {"customer": "bigint"}


def test_key_is_read_sorted_by_column_and_only_the_first_sign_parts() -> None:
    assert ErasureKey.parse(["region=a=b", "customer=4711"]).pairs == (("customer", "4711"), ("region", "a=b"))


@pytest.mark.parametrize("texts", [[], ["customer"], ["customer="], ["=4711"], ["customer=1", "customer=2"]])
def test_key_that_cannot_be_read_is_refused_without_its_value(texts: list[str]) -> None:
    with pytest.raises(ValueError, match=r"^(write COLUMN=VALUE|name each column once)"):
        ErasureKey.parse(texts)


@pytest.mark.parametrize("column", ["_topic", "_partition", "_offset", "_timestamp", "_batch_id"])
def test_column_that_batchledger_adds_names_no_person(column: str) -> None:
    """A replay writes the rows with the id of another batch; and a whole topic would stay erased."""
    with pytest.raises(ValueError, match=f"^{column} says where a record lay"):
        ErasureKey.parse(["customer=4711", f"{column}=17"])


def test_values_are_not_shown() -> None:
    assert "4711" not in repr(KEY)
    assert "4711" not in repr(Erase(KEY))


@pytest.mark.parametrize("reason", ["4711 wants to be forgotten", "customer 4711", "(4711)"])
def test_reason_that_names_a_value_is_refused(reason: str) -> None:
    with pytest.raises(DecisionRefusedError, match="names a value"):
        KEY.require_unnamed(reason)


def test_reason_may_hold_the_value_as_a_part_of_another_word() -> None:
    KEY.require_unnamed("ticket 47112")


@pytest.mark.parametrize(
    ("record_key", "value", "holding"),
    [
        (None, b'{"customer": 4711}', Holding.YES),
        (None, b'{"customer": "4711", "amount": [1]}', Holding.YES),
        (b'{"customer": 4711}', None, Holding.YES),
        (None, b'{"customer": 4712, "note": "4711"}', Holding.NO),
        (None, b'{"customer": 4711', Holding.PERHAPS),
        (None, b"\x00\x00\x00\x00\x01\x084711", Holding.PERHAPS),
        (None, b'{"order": {"customer": 4711}}', Holding.PERHAPS),
        (b"4711", b'{"customer": 1}', Holding.PERHAPS),
        (None, b'{"customer": 1', Holding.NO),
        (None, b"[" * 100_000, Holding.NO),
        (None, None, Holding.NO),
    ],
)
def test_record_holds_the_key_in_a_field_or_perhaps_in_what_cannot_be_read(
    record_key: bytes | None, value: bytes | None, holding: Holding
) -> None:
    assert find_holding(KEY, TYPES, record_key, value, None) is holding


@pytest.mark.parametrize(
    ("type_", "given", "written", "holding"),
    [
        ("bigint", "4711", "4711.0", Holding.YES),
        ("numeric", "1", "1.00", Holding.YES),
        ("integer", "4711", "4712", Holding.NO),
        ("integer", "4711", '"none"', Holding.PERHAPS),
        ("text", "4711", "4711.0", Holding.NO),
        ("character varying", "ana", '"Ana"', Holding.NO),
        ("uuid", "0e37df36-f698-11e6-8dd4-cb9ced3df976", '"0E37DF36F69811E68DD4CB9CED3DF976"', Holding.YES),
        ("uuid", "0e37df36-f698-11e6-8dd4-cb9ced3df976", '"0e37df36-f698-11e6-8dd4-cb9ced3df977"', Holding.NO),
        ("timestamp with time zone", "1990-03-01 12:00+00", '"1990-03-01T12:00:00Z"', Holding.PERHAPS),
        ("timestamp with time zone", "1990-03-01 12:00+00", "636292800000", Holding.PERHAPS),
        ("double precision", "0.1", "0.10000000000000001", Holding.PERHAPS),
        ("citext", "ana", '"Ana"', Holding.PERHAPS),
        ("boolean", "t", "true", Holding.PERHAPS),
    ],
)
def test_record_without_the_text_of_the_value_holds_it_unless_the_values_are_certainly_unequal(
    type_: str, given: str, written: str, holding: Holding
) -> None:
    payload = f'{{"customer": {written}}}'.encode()
    key = ErasureKey.parse([f"customer={given}"])
    assert find_holding(key, {"customer": type_}, None, payload, None) is holding


@pytest.mark.parametrize(
    ("headers", "holding"),
    [
        ({"customer": b"4711"}, Holding.YES),
        ({"customer": b"4711.0"}, Holding.YES),
        ({"customer": b"4712"}, Holding.NO),
        ({"customer": b"\xff"}, Holding.PERHAPS),
        ({"from": b"customer 4711"}, Holding.PERHAPS),
        ({"customer": None}, Holding.NO),
        ({}, Holding.NO),
    ],
)
def test_record_holds_the_key_in_a_header(headers: dict[str, bytes | None], holding: Holding) -> None:
    assert find_holding(KEY, TYPES, None, b"{", write_headers(list(headers.items()))) is holding


def test_values_of_a_key_may_be_in_different_parts_of_a_record() -> None:
    key = ErasureKey.parse(["customer=4711", "region=eu", "shop=9"])
    types = {"customer": "bigint", "region": "text", "shop": "integer"}
    region = write_headers([("region", b"eu")])
    assert find_holding(key, types, b'{"customer": 4711}', b'{"shop": 9}', region) is Holding.YES
    assert find_holding(key, types, b'{"customer": 4711}', b'{"shop": 9', region) is Holding.PERHAPS
    assert find_holding(key, types, b'{"customer": 4711}', b'{"shop": 8}', region) is Holding.NO
    assert find_holding(key, types, b'{"customer": 4711}', b'{"shop": 9}', None) is Holding.NO


@given(st.text(min_size=1), st.text())
def test_record_with_the_field_holds_the_key_exactly_if_the_text_is_the_same(value: str, other: str) -> None:
    payload = json.dumps({"customer": other}).encode()
    expected = Holding.YES if other == value else Holding.NO
    assert find_holding(ErasureKey((("customer", value),)), {"customer": "text"}, None, payload, None) is expected


@given(st.none() | st.binary(), st.none() | st.binary(), st.lists(st.tuples(st.text(), st.none() | st.binary())))
def test_record_of_any_bytes_is_judged(
    record_key: bytes | None, value: bytes | None, headers: list[tuple[str, bytes | None]]
) -> None:
    assert find_holding(KEY, TYPES, record_key, value, write_headers(headers)) in Holding


@pytest.mark.parametrize(
    ("erased", "is_anything"),
    [
        (Erased(0, 0, is_remembered=False), False),
        (Erased(1, 0, is_remembered=False), True),
        (Erased(0, 1, is_remembered=False), True),
        (Erased(0, 0, is_remembered=True), True),
    ],
)
def test_erasure_is_recorded_if_it_changes_anything(erased: Erased, is_anything: bool) -> None:
    assert erased.is_anything is is_anything


def test_doubtful_records_are_named_with_what_to_do() -> None:
    assert describe_doubtful("orders", []) == ""
    told = describe_doubtful("orders", [OffsetRange(TopicPartition("orders", 0), 3, 5)])
    assert told.startswith("2 records in quarantine may hold the key: orders[0] 3..5.")
    assert "batchledger quarantine drop orders RANGE --reason WHY" in told


def published_world() -> World:
    """Three records of one partition, published."""
    world = World()
    world.broker.create_topic("orders", 1)
    world.produce(ORDERS_0, 3)
    catch_up(world)
    return world


def test_order_is_explained_without_a_change_and_carried_out_with_the_same_effect() -> None:
    world = published_world()
    order, decision = Erase(ErasureKey.parse([f"message_id={ORDERS_0}@1"])), Decision("ana", "ticket 812")
    explained = explain(world.process(), order, decision).record
    assert len(world.sink.read_target()) == 3
    kept = carry_out(world.process(), order, decision).record
    assert explained is not None
    assert kept is not None
    assert (explained.before, explained.after) == (kept.before, kept.after)
    assert sorted(each["_offset"] for each in world.sink.read_target()) == [0, 2]
    assert prove(world.sink, PIPELINE).findings == ()


@pytest.mark.parametrize("reason", ["", "orders[0]@1 left us"])
def test_order_without_a_reason_or_with_a_telling_one_changes_nothing(reason: str) -> None:
    world = published_world()
    order = Erase(ErasureKey.parse([f"message_id={ORDERS_0}@1"]))
    with pytest.raises(DecisionRefusedError):
        carry_out(world.process(), order, Decision("ana", reason))
    assert len(world.sink.read_target()) == 3
