"""What a batch in an output topic looks like to its readers: whole or not at all, in order, with its origin."""

import os
import re
from collections.abc import Iterator

import pytest

from batchledger.model.batch import Lane
from batchledger.model.errors import FencedError, ServiceUnavailableError, StagingLostError, TargetRefusedError
from batchledger.model.offsets import single_offset
from batchledger.model.records.rules import HeaderForm
from batchledger.sinks.topic import log, sending
from batchledger.sinks.topic.pace import SendingPace, Verdict, is_too_slow
from batchledger.source.kafka import requests
from batchledger.source.kafka.requests import Isolation
from tests.contract.outputs import LONG_AGO_MS, PARTITIONS, Output, OutputRecord
from tests.support import delete_topic

# From UtilsTest.testMurmur2 of Kafka's own tests.
MURMUR2 = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}
METADATA = re.compile(r"batchledger/1 batch=7 attempt=2 planned=\d+")


@pytest.fixture
def output(kafka: object) -> Output:
    return Output(kafka.options)  # type: ignore[attr-defined]


def test_readers_of_committed_records_see_the_whole_batch_or_nothing(output: Output) -> None:
    output.create()

    def look_before_the_end() -> Iterator[OutputRecord]:
        yield from output.records(300)
        output.wait_for_open_transaction()
        assert output.values() == []
        assert len(output.read(Isolation.UNCOMMITTED)) > 0

    output.topic().commit(output.attempt(), look_before_the_end(), 300)
    assert sorted(output.values()) == sorted(each.value for each in output.records(300))
    assert output.held_back() == 0


def test_offsets_are_in_the_same_transaction_and_name_the_batch(output: Output) -> None:
    output.create()

    def look_before_the_end() -> Iterator[OutputRecord]:
        yield from output.records(30)
        assert output.committed("sink") == {}

    output.topic().commit(output.attempt(7, until=120, number=2), look_before_the_end(), 30)
    committed = output.committed("sink")
    assert {partition: offset for partition, (offset, _) in committed.items()} == dict.fromkeys(range(PARTITIONS), 120)
    assert all(METADATA.fullmatch(text or "") for _, text in committed.values())
    assert output.committed("replay") == {}


def test_replays_commit_in_a_group_of_their_own(output: Output) -> None:
    output.create()
    output.topic().commit(output.attempt(1, until=100), output.records(3), 3)
    output.topic().commit(output.attempt(2, until=20, lane=Lane.REPLAY), output.records(3), 3)
    assert {offset for offset, _ in output.committed("sink").values()} == {100}
    assert {offset for offset, _ in output.committed("replay").values()} == {20}


def test_batch_without_rows_commits_its_offsets(output: Output) -> None:
    output.create()
    output.topic().commit(output.attempt(), [], 0)
    assert {offset for offset, _ in output.committed("sink").values()} == {100}
    assert output.topic().find_commit(output.attempt())
    assert output.written() == 0


def test_rows_of_topics_that_this_cluster_does_not_have_are_committed_and_found(output: Output) -> None:
    """A cluster takes no offsets of topics that it does not know."""
    output.create()
    delete_topic(output.options, output.source)
    output.topic().commit(output.attempt(), output.records(30), 30)
    assert len(output.values()) == 30
    assert output.topic().find_commit(output.attempt())
    assert not output.topic().find_commit(output.attempt(2))


def test_keys_go_where_javas_clients_send_them(output: Output) -> None:
    output.create(partitions=7)
    records = [OutputRecord(key, b"", output.source, 0, at, None) for at, key in enumerate(MURMUR2)]
    output.topic().commit(output.attempt(), records, len(records))
    found = {message.key(): message.partition() for message in output.read(partitions=7)}
    assert found == {key: (number & 0x7FFFFFFF) % 7 for key, number in MURMUR2.items()}


def test_records_of_a_key_keep_their_order(output: Output) -> None:
    output.create()
    output.topic().commit(output.attempt(until=10_000), output.records(20_000), 20_000)
    numbers_by_key: dict[bytes, list[int]] = {}
    for message in output.read():
        numbers_by_key.setdefault(message.key(), []).append(int(message.value().rpartition(b"-")[2]))
    assert sum(map(len, numbers_by_key.values())) == 20_000
    assert all(numbers == sorted(numbers) for numbers in numbers_by_key.values())


def test_records_without_a_key_keep_the_order_of_their_source_partition(output: Output) -> None:
    output.create(partitions=2)
    records = [each._replace(key=None) for each in output.records(9_000)]
    output.topic().commit(output.attempt(until=3_000), records, len(records))
    found: dict[bytes, list[int]] = {}
    for message in output.read(partitions=2):
        headers = dict(message.headers())
        assert message.partition() == int(headers["_partition"]) % 2
        found.setdefault(headers["_partition"], []).append(int(headers["_offset"]))
    assert found == {str(each).encode(): list(range(3_000)) for each in range(PARTITIONS)}


def test_headers_tell_where_a_record_is_from_and_its_own_time_is_that_of_sending(output: Output) -> None:
    output.create()
    timed = OutputRecord(b"a", b"1", output.source, 2, 41, LONG_AGO_MS)
    timeless = OutputRecord(b"b", b"2", output.source, 0, 7, None)
    output.topic().commit(output.attempt(17), [timed, timeless], 2)
    by_value = {message.value(): message for message in output.read()}
    source = output.source.encode()
    common = {"_topic": source, "_batch_id": b"17"}
    timestamp = str(LONG_AGO_MS).encode()
    assert dict(by_value[b"1"].headers()) == {
        **common, "_partition": b"2", "_offset": b"41", "_timestamp": timestamp
    }  # fmt: skip
    assert dict(by_value[b"2"].headers()) == {**common, "_partition": b"0", "_offset": b"7"}
    assert all(message.timestamp()[1] > LONG_AGO_MS for message in by_value.values())


def test_packed_header_has_the_same_texts_in_one(output: Output) -> None:
    output.create()
    timed = OutputRecord(b"a", b"1", output.source, 2, 41, LONG_AGO_MS)
    timeless = OutputRecord(b"b", b"2", output.source, 0, 7, None)
    output.topic(headers=HeaderForm.PACKED).commit(output.attempt(17), [timed, timeless], 2)
    assert {message.value(): message.headers() for message in output.read()} == {
        b"1": [("_batchledger", f"{output.source}|2|41|{LONG_AGO_MS}|17".encode())],
        b"2": [("_batchledger", f"{output.source}|0|7||17".encode())],
    }


def test_row_without_a_value_deletes_its_key(output: Output) -> None:
    output.create({"cleanup.policy": "compact"})
    records = [OutputRecord(b"a", value, output.source, 0, at, None) for at, value in enumerate((b"1", None))]
    output.topic().commit(output.attempt(), records, 2)
    assert [(message.key(), message.value()) for message in output.read()] == [(b"a", b"1"), (b"a", None)]


def test_record_that_is_too_large_leaves_nothing_visible_and_is_named(output: Output) -> None:
    output.create({"max.message.bytes": "20000"})
    secret = os.urandom(50_000).hex().encode()

    def records() -> Iterator[OutputRecord]:
        yield from output.records(100)
        yield OutputRecord(b"large", secret, output.source, 1, 4711, None)
        yield from output.records(100, start=100)

    with pytest.raises(TargetRefusedError, match=r"max\.message\.bytes") as refused:
        output.topic().commit(output.attempt(), records(), 201)
    assert f"{output.source}[1]@4711" in str(refused.value)
    assert secret[:20].decode() not in str(refused.value)
    assert output.values() == []
    assert output.held_back() == 0
    assert not output.topic().find_commit(output.attempt())


def test_record_that_is_too_large_is_refused_before_anything_is_written(output: Output) -> None:
    output.create({"max.message.bytes": "20000"})
    record = OutputRecord(b"large", os.urandom(19_000), output.source, 1, 4711, None)
    origin, size_bytes = single_offset(output.source, 1, 4711), len(b"large") + 19_000
    output.topic().require_room(output.attempt(), origin, size_bytes)
    output.topic().commit(output.attempt(), [record], 1)
    with pytest.raises(TargetRefusedError, match=r"(?s)\[1\]@4711.*max\.message\.bytes"):
        output.topic().require_room(output.attempt(), origin, size_bytes + 1_000)
    assert len(output.values()) == 1


def test_small_records_are_not_refused_because_many_were_sent_at_once(output: Output) -> None:
    output.create({"max.message.bytes": "20000"})
    records = [each._replace(value=os.urandom(500)) for each in output.records(2_000)]
    output.topic().commit(output.attempt(until=1_000), records, len(records))
    assert len(output.values()) == 2_000


def test_record_without_a_key_is_refused_by_a_compacted_topic_and_named(output: Output) -> None:
    output.create({"cleanup.policy": "compact"})
    record = OutputRecord(None, b"1", output.source, 2, 5, None)
    with pytest.raises(TargetRefusedError, match=r"(?s)\[2\]@5.* without a key"):
        output.topic().commit(output.attempt(), [record], 1)
    output.topic().commit(output.attempt(), [record._replace(key=b"key")], 1)
    assert output.values() == [b"1"]


def test_refused_record_is_told_from_those_that_were_sent_with_it(output: Output) -> None:
    output.create({"cleanup.policy": "compact"}, partitions=1)
    records = list(output.records(200))
    records[150] = records[150]._replace(key=None)
    with pytest.raises(TargetRefusedError, match=rf"{output.source}\[0\]@50\)"):
        output.topic().commit(output.attempt(), records, len(records))


def test_refused_record_is_named_although_the_client_gives_up_before_it_reports_it(
    output: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sending, "_SUSPICIOUS_SECONDS", -1.0)
    monkeypatch.setattr(sending, "_RECORDS_BETWEEN_LOOKS", 1)
    monkeypatch.setattr(sending, "LOOK_SECONDS", 0.0005)
    output.create({"cleanup.policy": "compact"}, partitions=1)
    records = list(output.records(200))
    records[150] = records[150]._replace(key=None)
    with pytest.raises(TargetRefusedError, match=rf"{output.source}\[0\]@50\)"):
        output.topic().commit(output.attempt(), records, len(records))


def test_topic_that_is_gone_refuses_the_batch(output: Output) -> None:
    output.create()
    delete_topic(output.options, output.name)
    with pytest.raises(TargetRefusedError, match="was deleted"):
        output.topic().commit(output.attempt(), output.records(3), 3)


def test_error_of_the_rows_leaves_nothing_visible_and_is_raised_as_it_is(output: Output) -> None:
    output.create()

    def records() -> Iterator[OutputRecord]:
        yield from output.records(300)
        raise LookupError("the cursor is gone")

    with pytest.raises(LookupError, match="the cursor is gone"):
        output.topic().commit(output.attempt(), records(), 400)
    assert output.values() == []
    assert output.held_back() == 0


def test_fencing_that_the_rows_report_is_raised_as_it_is_however_old_the_transaction(output: Output) -> None:
    output.create()
    age_seconds = [0.0]

    def records() -> Iterator[OutputRecord]:
        yield from output.records(300)
        age_seconds[0] = 20.0
        raise FencedError("the ledger knows a newer attempt")

    with pytest.raises(FencedError, match="the ledger knows"):
        output.topic(clock=lambda: age_seconds[0]).commit(output.attempt(), records(), 300)
    assert output.values() == []
    assert output.held_back() == 0


def test_other_number_of_rows_than_was_announced_commits_nothing(output: Output) -> None:
    output.create()
    with pytest.raises(StagingLostError, match="has 31 rows, and 30 were handed over"):
        output.topic().commit(output.attempt(), output.records(30), 31)
    assert output.values() == []


def test_batch_that_is_too_slow_for_the_transaction_is_given_up_early(output: Output) -> None:
    output.create()
    age_seconds = iter(range(10_000))
    taken: list[OutputRecord] = []

    def records() -> Iterator[OutputRecord]:
        for each in output.records(3_000_000):
            taken.append(each)
            yield each

    with pytest.raises(TargetRefusedError, match=r"limits\.max_records") as refused:
        output.topic(clock=lambda: float(next(age_seconds))).commit(output.attempt(), records(), 3_000_000)
    assert (refused.value.batch_id, refused.value.subject) == (1, output.name)
    assert "sink.transaction_timeout" in str(refused.value)
    assert len(taken) < 3_000_000
    assert output.values() == []
    assert output.held_back() == 0


@pytest.mark.parametrize(
    ("elapsed_seconds", "sent", "count", "is_given_up"),
    [
        (14.9, 0, 1_000_000, False),
        (15, 1_000, 4_000, True),
        (15, 1_200, 4_000, False),
        (15, 0, 1, False),
        (15, 0, 10, True),
        (53, 4_000, 4_000, False),
        (54.1, 4_000, 4_000, True),
        (0, 0, 0, False),
    ],
)
def test_pace_is_judged_once_a_quarter_of_the_timeout_is_over(
    elapsed_seconds: float, sent: int, count: int, is_given_up: bool
) -> None:
    assert is_too_slow(elapsed_seconds, sent, count, timeout_seconds=60) is is_given_up


@pytest.mark.parametrize(
    ("looks", "verdict"),
    [
        ([(4, 1_000), (8, 2_000), (12, 3_000), (16, 4_000)], Verdict.IN_TIME),
        ([(4, 10), (8, 20), (12, 30), (16, 40)], Verdict.TOO_SLOW),
        ([(4, 10), (30, 10), (60, 10)], Verdict.IN_TIME),
        ([(4, 100), (8, 200), (38, 300)], Verdict.STOOD_STILL),
        ([(30, 10)], Verdict.STOOD_STILL),
        ([(30, 10), (34, 20), (38, 30), (42, 40), (46, 50)], Verdict.TOO_SLOW),
        ([(2, 4_000), (60, 4_000)], Verdict.STOOD_STILL),
        ([(2, 3_000), (6, 4_000), (14, 4_000)], Verdict.IN_TIME),
    ],
    ids=["fast", "slow", "silent", "paused", "silent first", "slow and paused", "paused at the end", "slow at the end"],
)
def test_batch_is_refused_for_its_pace_only_where_its_records_flowed(
    looks: list[tuple[float, int]], verdict: Verdict
) -> None:
    pace = SendingPace(4_000, timeout_seconds=60, began_at=0)
    found = [each for each in (pace.look(*look) for look in looks) if each is not Verdict.IN_TIME]
    assert (found or [Verdict.IN_TIME])[-1] is verdict


def test_batch_whose_process_was_paused_is_given_up_and_may_be_tried_again(output: Output) -> None:
    output.create()
    age_seconds = [0.0]

    def records() -> Iterator[OutputRecord]:
        yield from output.records(300)
        age_seconds[0] = 57.0

    with pytest.raises(ServiceUnavailableError, match=r"took 57\.0 s\..* stood still") as told:
        output.topic(clock=lambda: age_seconds[0]).commit(output.attempt(), records(), 300)
    assert told.value.batch_id == 1
    assert "Run the step again" in str(told.value)
    assert output.values() == []
    assert output.held_back() == 0


def test_timeout_that_the_brokers_do_not_allow_is_refused_by_name(output: Output) -> None:
    output.create()
    with pytest.raises(TargetRefusedError, match=r"transaction\.max\.timeout\.ms") as refused:
        output.topic(transaction_timeout_seconds=1_000_000).commit(output.attempt(), output.records(3), 3)
    assert (refused.value.batch_id, refused.value.subject) == (1, output.name)
    assert "sink.transaction_timeout" in str(refused.value)


def test_records_outside_of_a_transaction_are_each_there_once_and_in_order(output: Output) -> None:
    output.create()
    output.topic().send(output.attempt(), output.records(5_000))
    assert sorted(output.values()) == sorted(each.value for each in output.records(5_000))
    assert output.batches() == {b"1"}
    assert output.committed("sink") == {}
    assert output.written() == 5_000


def test_record_that_is_refused_outside_of_a_transaction_is_named_and_those_before_it_stay(output: Output) -> None:
    output.create({"max.message.bytes": "20000"})

    def records() -> Iterator[OutputRecord]:
        yield from output.records(10)
        yield OutputRecord(b"large", os.urandom(50_000), output.source, 1, 4711, None)

    with pytest.raises(TargetRefusedError, match=r"\[1\]@4711.*stays visible"):
        output.topic().send(output.attempt(), records())
    assert len(output.values()) == 10


def test_broker_that_does_not_answer_is_a_typed_error(output: Output, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (log, requests):
        monkeypatch.setattr(module, "REQUEST_TIMEOUT_SECONDS", 0.5)
    topic = output.topic(options={"bootstrap.servers": "127.0.0.1:1"})
    for attempted in (
        lambda: topic.require_usable(output.attempt()),
        lambda: topic.commit(output.attempt(), output.records(3), 3),
        lambda: topic.send(output.attempt(), output.records(3)),
        topic.count,
    ):
        with pytest.raises(ServiceUnavailableError, match=r"127\.0\.0\.1:1"):
            attempted()
