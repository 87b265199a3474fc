"""Which records a person is shown, and what is said of offsets without one."""

import json
from dataclasses import replace

import pytest

from batchledger.formats.decoding.objects import NOT_ONE_OBJECT
from batchledger.interfaces.cli.commands.records import describe_records
from batchledger.interfaces.cli.printing import show
from batchledger.model.batch import PartitionLog
from batchledger.model.offsets import OffsetRange, TopicPartition
from batchledger.model.records.lookup import FoundRecords, Record, combine_records, find_reach

ORDERS_0, ORDERS_1 = TopicPartition("orders", 0), TopicPartition("orders", 1)
LOG = {ORDERS_0: PartitionLog(5, 12), ORDERS_1: PartitionLog(0, 100)}


def record(offset: int, partition: TopicPartition = ORDERS_0, error: str | None = None) -> Record:
    return Record(partition, offset, "2026-11-21T10:00:00+00:00", b"k", b"v", error=error)


def test_what_kafka_holds_no_more_or_not_yet_is_told_from_what_can_be_read() -> None:
    reach = find_reach([OffsetRange(ORDERS_0, 0, 20), OffsetRange(ORDERS_1, 3, 5)], LOG)
    assert reach.expired == (OffsetRange(ORDERS_0, 0, 5),)
    assert reach.readable == (OffsetRange(ORDERS_0, 5, 12), OffsetRange(ORDERS_1, 3, 5))
    assert reach.unwritten == (OffsetRange(ORDERS_0, 12, 20),)


@pytest.mark.parametrize(("start", "until", "is_expired"), [(0, 3, True), (12, 14, False)])
def test_range_beside_the_log_is_wholly_expired_or_not_written_yet(start: int, until: int, is_expired: bool) -> None:
    asked = OffsetRange(ORDERS_0, start, until)
    reach = find_reach([asked], LOG)
    assert (reach.expired, reach.unwritten) == (((asked,), ()) if is_expired else ((), (asked,)))
    assert reach.readable == ()


def test_offsets_without_a_committed_record_are_named() -> None:
    reach = find_reach([OffsetRange(ORDERS_0, 6, 10)], LOG)
    found = combine_records(reach, [record(6), record(9)], [], 20)
    assert found == FoundRecords((record(6), record(9)), invisible=(OffsetRange(ORDERS_0, 7, 9),))


def test_record_in_quarantine_is_shown_with_its_error_and_once() -> None:
    reach = find_reach([OffsetRange(ORDERS_0, 6, 8)], LOG)
    poison = record(7, error="not decodable")
    assert combine_records(reach, [record(6), record(7)], [poison], 20).records == (record(6), poison)


def test_record_that_kafka_has_removed_is_shown_from_quarantine() -> None:
    reach = find_reach([OffsetRange(ORDERS_0, 3, 6)], LOG)
    kept = record(4, error="not decodable")
    found = combine_records(reach, [record(5)], [kept], 20)
    assert found.records == (kept, record(5))
    assert found.expired == (OffsetRange(ORDERS_0, 3, 4),)


def test_first_records_are_shown_and_nothing_is_said_of_what_lies_behind_them() -> None:
    reach = find_reach([OffsetRange(ORDERS_0, 5, 12), OffsetRange(ORDERS_1, 0, 9)], LOG)
    found = combine_records(reach, [record(5), record(8), record(11)], [], 2)
    assert [str(each) for each in found.records] == ["orders[0]@5", "orders[0]@8"]
    assert found.is_cut
    assert found.invisible == (OffsetRange(ORDERS_0, 6, 8),)
    assert not combine_records(reach, [record(5), record(8)], [], 2).is_cut


def test_shown_bytes_cannot_command_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    wild = Record(ORDERS_0, 1, None, b"\x1b[31m", b"\x07{}", (("tr\x1bace", b"\x00"),), "not decodable")
    decoded = replace(wild, decoded='{"a":"\x9b31m\u202e\U000e0001é"}')
    show(describe_records("orders", FoundRecords((wild, decoded))), as_json=False)
    printed = capsys.readouterr().out
    assert not set(printed) & {"\x1b", "\x07", "\x00", "\x9b", "\u202e", "\U000e0001"}
    assert r'{"a":"\u009b31m\u202e\udb40\udc01é"}' in printed
    assert "orders[0]@1" in printed
    assert "in quarantine" in printed


def test_records_for_scripts_have_everything(capsys: pytest.CaptureFixture[str]) -> None:
    gone = (OffsetRange(ORDERS_0, 0, 1),)
    show(describe_records("orders", FoundRecords((record(1, error="bad"),), expired=gone)), as_json=True)
    document = json.loads(capsys.readouterr().out)
    (shown,) = document["records"]
    assert (shown["topic"], shown["partition"], shown["offset"]) == ("orders", 0, 1)
    assert (shown["key"], shown["value"], shown["quarantined"]) == ("k", "v", "bad")
    assert document["expired"] == [{"topic": "orders", "partition": 0, "start": 0, "until": 1}]
    assert document["invisible"] == document["unwritten"] == []


def test_value_on_80_columns_is_one_line_to_be_copied(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    value = json.dumps({"id": 1, "note": "a long sentence " * 30}).encode()[:-1]
    broken = Record(ORDERS_0, 1, "2026-11-27T20:00:00+00:00", b"k", value, (("trace", b"t1"),), NOT_ONE_OBJECT)
    show(describe_records("orders", FoundRecords((broken, record(2)))), as_json=False)
    assert capsys.readouterr().out.splitlines() == [
        "Records of orders",
        "",
        "orders[0]@1  2026-11-27T20:00:00+00:00",
        "in quarantine: the value is not exactly one JSON object",
        f"it ends early, after {len(value)} bytes",
        "key: k",
        "header trace: t1",
        value.decode(),
        "",
        "orders[0]@2  2026-11-21T10:00:00+00:00",
        "key: k",
        "v",
    ]
    show(describe_records("orders", FoundRecords((broken,))), as_json=True)
    assert json.loads(capsys.readouterr().out)["records"][0]["fault"] == f"it ends early, after {len(value)} bytes"


def test_offsets_without_a_record_are_explained(capsys: pytest.CaptureFixture[str]) -> None:
    found = FoundRecords((), (OffsetRange(ORDERS_0, 0, 1),), (OffsetRange(ORDERS_0, 9, 10),), (), is_cut=False)
    show(describe_records("orders", found), as_json=False)
    assert capsys.readouterr().out.splitlines() == [
        "Kafka holds no more: orders[0] 0..1",
        "not readable yet: orders[0] 9..10",
    ]
