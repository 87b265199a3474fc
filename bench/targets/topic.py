"""The topic that is written to: the fields of a record as JSON, the device as key, its coordinates as headers."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from time import monotonic

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from batchledger.local.samples.admin import ensure_topic, find_ends
from bench.records import PARTITIONS, delete_topics
from bench.targets.target import digest

SECONDS_WITHOUT_RECORDS = 30.0
RECORDS_AT_ONCE = 10_000
HEADERS = ("_topic", "_partition", "_offset", "_timestamp")
OPTIONS = {
    "group.id": "bench",
    "isolation.level": "read_committed",
    "enable.auto.commit": False,
    "enable.partition.eof": True,
    "fetch.wait.max.ms": 20,
    "fetch.queue.backoff.ms": 10,
}


@dataclass(frozen=True)
class Topics:
    """See the role. The topic has as many partitions as the one that is read."""

    options: Mapping[str, str] = field(repr=False)

    @contextmanager
    def fresh(self, name: str) -> Iterator[None]:
        """See the role."""
        ensure_topic(self.options, name, PARTITIONS, {})
        try:
            yield
        finally:
            delete_topics({**self.options, "log_level": 3}, [name])

    def count_rows(self, name: str) -> int:
        """See the role."""
        return sum(1 for _ in self._read(name))

    def read_digest(self, name: str) -> str:
        """See the role. A key's partition is content, too."""
        return digest(map(_to_row, self._read(name)))

    def _read(self, name: str) -> Iterator[Message]:
        """Yield the committed records up to the ends that the topic has now."""
        pending = {each: end for each, end in find_ends(self.options, name, PARTITIONS).items() if end}
        consumer = Consumer({**OPTIONS, **self.options})
        try:
            consumer.assign([TopicPartition(name, each, 0) for each in pending])
            deadline = monotonic() + SECONDS_WITHOUT_RECORDS
            while pending:
                for message in consumer.consume(RECORDS_AT_ONCE, timeout=0.1):
                    deadline = monotonic() + SECONDS_WITHOUT_RECORDS
                    error = message.error()
                    if error is None:
                        yield message
                    elif error.code() != KafkaError._PARTITION_EOF:
                        raise KafkaException(error)
                    # The end of the committed records. If a transaction is open, the partition ends later.
                    elif (message.offset() or 0) >= pending.get(message.partition() or 0, 0):
                        pending.pop(message.partition() or 0, None)
                if monotonic() > deadline:
                    raise RuntimeError(f"topic {name} was not read to its end: {pending}")
        finally:
            consumer.close()


def _to_row(message: Message) -> object:
    record = json.loads(message.value() or b"{}")
    # One contender writes 2, another one 2.0.
    record["amount"] = float(record["amount"])
    headers = dict(message.headers() or ())
    return record, message.key(), message.partition(), *(headers[each] for each in HEADERS)
