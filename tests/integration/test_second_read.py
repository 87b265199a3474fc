"""The second read of holes on a real broker: it agrees with what the producers did, and ends in bounded time."""

import gc
import logging
import random
import uuid
from time import monotonic

import pytest
from confluent_kafka import Message, Producer

from batchledger.local.samples.admin import KEEP_FOREVER, ensure_topic
from batchledger.model.errors import ServiceUnavailableError
from batchledger.model.offsets import OffsetRange, TopicPartition, count_offsets, merge_ranges
from batchledger.source.kafka import range_reader, second_client, second_read
from batchledger.source.kafka.log import KafkaLog
from batchledger.source.kafka.range_reader import RangeReader
from batchledger.source.kafka.requests import Isolation
from tests.conftest import Kafka

PARTITIONS = 2


@pytest.fixture
def topic(kafka: Kafka) -> str:
    name = f"second-read-{uuid.uuid4().hex[:12]}"
    ensure_topic(kafka.options, name, PARTITIONS, KEEP_FOREVER)
    return name


def transact(producer: Producer, topic: str, counts: list[int], commit: bool) -> set[tuple[int, int]]:
    """Write ``counts[n]`` records to partition n, decide, and return the places of the records."""
    places = set()

    def note(error: object, message: Message) -> None:
        assert error is None
        places.add((message.partition(), message.offset()))

    producer.begin_transaction()
    for partition, count in enumerate(counts):
        for _ in range(count):
            producer.produce(topic, b"x" * 150, partition=partition, on_delivery=note)
    assert producer.flush(60) == 0
    (producer.commit_transaction if commit else producer.abort_transaction)(60)
    return places  # type: ignore[return-value]


def transactional_producer(kafka: Kafka) -> Producer:
    more = {"transactional.id": uuid.uuid4().hex, "queue.buffering.max.messages": 200_000, "log_level": 0}
    producer = Producer({**kafka.options, **more})
    producer.init_transactions(60)
    return producer


def pick(places: set[tuple[int, int]], holes: list[OffsetRange]) -> list[OffsetRange]:
    """The places that lie in a hole."""
    found = {(hole.partition, offset) for hole in holes for offset in range(hole.start, hole.until)}
    return merge_ranges(
        OffsetRange(partition, offset, offset + 1)
        for partition, offset in found
        if (partition.partition, offset) in places
    )


def see(kafka: Kafka, isolation: Isolation, ranges: list[OffsetRange]) -> list[OffsetRange]:
    """What the client of the stage step sees within the ranges; collections of garbage are as usual afterwards."""
    usual = gc.get_threshold()
    with RangeReader(kafka.options, isolation, ranges, monotonic() + 60) as reader:
        seen = merge_ranges(OffsetRange(partition, offset, offset + 1) for partition, offset, _ in reader)
        assert gc.get_threshold()[0] == max(usual[0], range_reader.OBJECTS_BETWEEN_COLLECTIONS)
    assert gc.get_threshold() == usual
    return seen


def test_both_clients_agree_with_the_producers_about_any_holes(
    kafka: Kafka, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Transactions of two producers, decided at random; short detours and small polls make the readers jump often."""
    for module in (second_client, range_reader):
        monkeypatch.setattr(module, "LONGEST_DETOUR_OFFSETS", 20)
        monkeypatch.setattr(module, "RECORDS_PER_POLL", 2)
    chance = random.Random(4)  # noqa: S311
    producers = [transactional_producer(kafka) for _ in range(2)]
    committed, aborted = set(), set()
    for _ in range(100):
        commit = chance.random() < 0.5
        counts = [chance.randrange(1, 9), chance.randrange(1, 9)]
        places = transact(chance.choice(producers), topic, counts, commit)
        (committed if commit else aborted).update(places)
    ends = {each: max(offset for partition, offset in committed | aborted if partition == each) + 1 for each in (0, 1)}
    for _ in range(15):
        starts = [(each, chance.randrange(ends[each])) for each in ends for _ in range(chance.randrange(1, 15))]
        holes = [
            OffsetRange(TopicPartition(topic, each), start, min(ends[each], start + chance.randrange(1, 12)))
            for each, start in starts
        ]
        evidence = KafkaLog(kafka.options).look_into(holes)
        assert list(evidence.committed) == pick(committed, holes)
        assert list(evidence.uncommitted) == pick(committed | aborted, holes)
        for isolation, places in ((Isolation.COMMITTED, committed), (Isolation.UNCOMMITTED, committed | aborted)):
            assert see(kafka, isolation, holes) == pick(places, holes)


def test_second_client_does_not_warn_at_each_look_of_a_login_that_is_not_encrypted(
    kafka: Kafka, topic: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    transact(transactional_producer(kafka), topic, [3, 3], commit=True)
    asked = OffsetRange(TopicPartition(topic, 0), 0, 3)

    def look() -> list[str]:
        caplog.clear()
        assert second_client.find_visible(kafka.options, Isolation.COMMITTED, [asked], monotonic() + 60) == [asked]
        warnings = (each for each in caplog.records if each.levelno >= logging.WARNING)
        return [each.getMessage() for each in warnings if each.name == "aiokafka.conn"]

    assert look() == []
    # Negative control.
    monkeypatch.setattr(logging.getLogger("aiokafka.conn"), "filters", [])
    monkeypatch.setattr(second_client, "_is_news", lambda _: True)
    assert second_client._UNENCRYPTED in look()


def test_partitions_are_assigned_a_few_at_a_time(kafka: Kafka, monkeypatch: pytest.MonkeyPatch) -> None:
    """Empty ranges, markers at their ends, and partitions that the caller leaves before their turn."""
    monkeypatch.setattr(range_reader, "PARTITIONS_AT_ONCE", 3)
    topic = f"many-{uuid.uuid4().hex[:12]}"
    ensure_topic(kafka.options, topic, 11, KEEP_FOREVER)
    counts = [5, 0, 3, 1, 7, 2, 0, 4, 6, 1, 9]
    producer = transactional_producer(kafka)
    places = transact(producer, topic, counts, commit=True)
    transact(producer, topic, [2] * 11, commit=False)
    ranges = [OffsetRange(TopicPartition(topic, each), 0, count + 3 + (count > 0)) for each, count in enumerate(counts)]
    assert see(kafka, Isolation.COMMITTED, ranges) == pick(places, ranges)
    left = {TopicPartition(topic, each) for each in (0, 4, 10)}
    with RangeReader(kafka.options, Isolation.COMMITTED, ranges, monotonic() + 60) as reader:
        reader.leave(*left)
        found = merge_ranges(OffsetRange(partition, offset, offset + 1) for partition, offset, _ in reader)
    assert found == pick(places, [each for each in ranges if each.partition not in left])


def test_s31_hundred_thousand_aborted_records_are_looked_into_within_ten_seconds(
    kafka: Kafka, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The read's own bound is set to ten seconds."""
    monkeypatch.setattr(second_read, "READING_SECONDS", 10.0)
    monkeypatch.setattr(second_read, "OFFSETS_PER_SECOND", float("inf"))
    transact(transactional_producer(kafka), topic, [100_000, 0], commit=False)
    first = TopicPartition(topic, 0)
    evidence = KafkaLog(kafka.options).look_into([OffsetRange(first, 0, 100_000)])
    assert (count_offsets(evidence.committed), count_offsets(evidence.uncommitted)) == (0, 100_000)


def test_second_read_that_cannot_end_in_its_time_is_a_retryable_error(
    kafka: Kafka, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S34: bounded, and never evidence from half of a read."""
    monkeypatch.setattr(second_read, "READING_SECONDS", -1.0)
    monkeypatch.setattr(second_client, "RECORDS_PER_POLL", 1)
    transact(transactional_producer(kafka), topic, [50, 0], commit=True)
    with pytest.raises(ServiceUnavailableError, match=r"0\.\.50 was not read through in time") as caught:
        KafkaLog(kafka.options).look_into([OffsetRange(TopicPartition(topic, 0), 0, 50)])
    assert caught.value.retryable
