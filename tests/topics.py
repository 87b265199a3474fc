"""What a reader of committed records sees of a topic that a sink has written to."""

import json
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from threading import Event
from time import monotonic
from typing import Any

from confluent_kafka import Consumer, KafkaError, Producer
from confluent_kafka import TopicPartition as KafkaTopicPartition

DEADLINE_SECONDS = 30.0
ENDED_BY_KAFKA_SECONDS = 120.0
"""A transaction whose producer is gone ends after its own timeout, a minute, when Kafka looks next."""
FOREIGN_AT_ONCE = 10_000
PACKED_HEADERS = ("_topic", "_partition", "_offset", "_timestamp", "_batch_id")


def read_rows(options: Mapping[str, str], topic: str) -> list[Mapping[str, Any]]:
    """The records of pipelines as rows of a table would be: their values, and their headers as columns."""
    return [as_row(message) for message in read_messages(options, topic) if message.headers()]


def write_foreign(options: Mapping[str, str], topic: str, count: int) -> None:
    """Write another producer's records, without headers, to the partitions in turn; a million takes some seconds."""
    producer = Producer({**options, "queue.buffering.max.messages": 20 * FOREIGN_AT_ONCE, "linger.ms": 20})
    partitions = len(producer.list_topics(topic, DEADLINE_SECONDS).topics[topic].partitions)
    for at in range(0, count, FOREIGN_AT_ONCE):
        records = [{"value": b"theirs %09d" % number} for number in range(at, min(count, at + FOREIGN_AT_ONCE))]
        while len(producer) > 10 * FOREIGN_AT_ONCE:
            producer.poll(0.01)
        assert producer.produce_batch(topic, records, partition=at // FOREIGN_AT_ONCE % partitions) == len(records)
    assert producer.flush(10 * DEADLINE_SECONDS) == 0


@contextmanager
def busy(options: Mapping[str, str], topic: str) -> Iterator[None]:
    """Let another producer write to the topic all the time within the block, some 10,000 records a second."""
    over = Event()

    def write() -> None:
        while not over.wait(0.1):
            write_foreign(options, topic, 1_000)

    with ThreadPoolExecutor(1) as thread:
        writing = thread.submit(write)
        try:
            yield
        finally:
            over.set()
        writing.result()


def as_row(message: Any) -> Mapping[str, Any]:
    """One record as a row; a tombstone has its provenance only."""
    headers = {name: value.decode() for name, value in message.headers()}
    if "_batchledger" in headers:
        headers = dict(zip(PACKED_HEADERS, headers["_batchledger"].split("|"), strict=True))
    numbers = {name: int(headers[name]) for name in ("_partition", "_offset", "_batch_id")}
    value = {} if message.value() is None else json.loads(message.value())
    timestamp = datetime.fromtimestamp(int(headers["_timestamp"]) / 1000, UTC)
    return {**value, "_topic": headers["_topic"], "_timestamp": timestamp, **numbers}


def read_messages(options: Mapping[str, str], topic: str) -> list[Any]:
    """The messages of every partition in order; none when there is no such topic.

    Waits until no transaction is open: Kafka answers a commit before its readers see it.
    """
    deadline = monotonic() + ENDED_BY_KAFKA_SECONDS
    with closing(Consumer({**options, "group.id": "unused"})) as consumer:
        known = consumer.list_topics(topic, DEADLINE_SECONDS).topics[topic]
        if known.error is not None:
            return []
        places = [KafkaTopicPartition(topic, each, 0) for each in known.partitions]
    while find_ends(options, places, "read_committed") != find_ends(options, places, "read_uncommitted"):
        assert monotonic() < deadline, "a transaction stays open"
    found = list(_consume(options, places, deadline))
    return sorted(found, key=lambda message: (message.partition(), message.offset()))


def find_ends(options: Mapping[str, str], places: Sequence[KafkaTopicPartition], isolation: str) -> list[int]:
    """The end of each partition, as readers of that isolation level see it."""
    with closing(Consumer({**options, "group.id": "unused", "isolation.level": isolation})) as consumer:
        return [consumer.get_watermark_offsets(each, DEADLINE_SECONDS)[1] for each in places]


def _consume(options: Mapping[str, str], places: Sequence[KafkaTopicPartition], deadline: float) -> Iterator[Any]:
    settings = {"isolation.level": "read_committed", "enable.partition.eof": True, "enable.auto.commit": False}
    ended: set[int] = set()
    with closing(Consumer({**options, **settings, "group.id": "unused"})) as consumer:
        consumer.assign(list(places))
        while len(ended) < len(places):
            assert monotonic() < deadline, f"read to the end of {ended} only"
            for message in consumer.consume(1_000, timeout=0.2):
                if message.error() is None:
                    yield message
                else:
                    assert message.error().code() == KafkaError._PARTITION_EOF
                    ended.add(message.partition())
