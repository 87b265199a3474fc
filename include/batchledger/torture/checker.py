"""Compares the log with the target, record by record. Shares no code with the platform: it has clients of its own.

It reads the log as any consumer would (read_committed), before records expire, and the target as any client would. What
the platform's ledger says is never asked.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from time import monotonic

import psycopg
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, TopicPartition
from psycopg import sql

from batchledger.torture.records import Record, payload_of

_SILENCE_SECONDS = 60.0
_CONSUMER = {
    "group.id": "torture-checker",
    "enable.auto.commit": False,
    "isolation.level": "read_committed",
    "enable.partition.eof": True,
    # Records expire only when they were read; what is left of a transaction behind them may go as well.
    "auto.offset.reset": "earliest",
    "log_level": 0,
}


@dataclass(frozen=True, slots=True)
class Row:
    """One row of the target: the record it carries, where it says it comes from, and the batch that brought it."""

    record: Record
    topic: str
    partition: int
    offset: int
    batch_id: int


@dataclass(frozen=True)
class Differences:
    """What is wrong with a target, by record id; empty lists mean that log and target agree.

    ``out_of_order`` holds the first record of each key that arrived in a later batch than one that follows it.
    ``broker_lost`` are records that the broker acknowledged and the log does not hold: the platform is not to blame.
    """

    records: int
    rows: int
    lost: Sequence[str] = ()
    duplicated: Sequence[str] = ()
    phantom: Sequence[str] = ()
    out_of_order: Sequence[str] = ()
    wrong_value: Sequence[str] = ()
    broker_lost: Sequence[str] = ()


@dataclass
class LogReader:
    """Everything that a topic has ever held, by (partition, offset); ``read`` adds what has come since.

    ``options`` are those of a librdkafka client.
    """

    options: Mapping[str, str]
    topic: str
    records: dict[tuple[int, int], Record] = field(default_factory=dict)
    _next_offset_by_partition: dict[int, int] = field(default_factory=dict)

    def read(self) -> None:
        """Read to the last stable offset of every partition. Raises TimeoutError when the broker is silent."""
        consumer = Consumer({**self.options, **_CONSUMER})
        try:
            partitions = consumer.list_topics(self.topic, timeout=_SILENCE_SECONDS).topics[self.topic].partitions
            starts = {each: self._next_offset_by_partition.get(each, OFFSET_BEGINNING) for each in partitions}
            consumer.assign([TopicPartition(self.topic, each, start) for each, start in starts.items()])
            self._read_to_the_end(consumer, set(partitions))
            for each in consumer.position([TopicPartition(self.topic, number) for number in partitions]):
                if each.offset >= 0:
                    self._next_offset_by_partition[each.partition] = each.offset
        finally:
            consumer.close()

    def _read_to_the_end(self, consumer: Consumer, unfinished: set[int]) -> None:
        deadline = monotonic() + _SILENCE_SECONDS
        while unfinished:
            message = consumer.poll(1.0)
            if message is None:
                if monotonic() > deadline:
                    raise TimeoutError(f"the broker was silent for {_SILENCE_SECONDS:.0f} s; {self.topic} is unread")
                continue
            error, partition, value = message.error(), message.partition(), message.value()
            if error is None and partition is not None and value is not None:
                deadline = monotonic() + _SILENCE_SECONDS
                self.records[partition, message.offset() or 0] = Record.decode(value)
            elif error is not None and error.code() == KafkaError._PARTITION_EOF and partition is not None:
                unfinished.discard(partition)
            elif error is not None:
                raise KafkaException(error)


def read_target(dsn: str, table: str) -> list[Row]:
    """Return every row of the target, empty when there is no target yet."""
    with psycopg.connect(dsn) as connection:
        if connection.execute("select to_regclass(%s)", [table]).fetchone() == (None,):
            return []
        query = sql.SQL(
            "select record_id, record_key, sequence, payload, _topic, _partition, _offset, _batch_id from {}"
        ).format(sql.Identifier(table))
        return [Row(Record(*found[:4]), *found[4:]) for found in connection.execute(query)]


def compare(
    topic: str, log: Mapping[tuple[int, int], Record], rows: Sequence[Row], acknowledged: Iterable[str]
) -> Differences:
    """Compare by record id. ``log`` holds committed records of the topic by (partition, offset)."""
    expected = Counter(each.record_id for each in log.values())
    found = Counter(each.record.record_id for each in rows)
    return Differences(
        records=len(log),
        rows=len(rows),
        lost=sorted((expected - found).elements()),
        duplicated=sorted(each for each, count in found.items() if 0 < expected[each] < count),
        phantom=sorted(each for each in found if each not in expected),
        out_of_order=_find_out_of_order(rows),
        wrong_value=sorted({each.record.record_id for each in rows if _is_wrong(each, topic, log, expected)}),
        broker_lost=sorted(each for each in acknowledged if each not in expected),
    )


def _is_wrong(row: Row, topic: str, log: Mapping[tuple[int, int], Record], known: Mapping[str, int]) -> bool:
    """Whether the row is not the record that the log holds at the very place that the row names.

    Phantoms have no such place; of them only the payload can be wrong.
    """
    if row.record.payload != payload_of(row.record.record_id):
        return True
    is_in_log = row.record.record_id in known
    return is_in_log and (row.topic != topic or log.get((row.partition, row.offset)) != row.record)


def _find_out_of_order(rows: Sequence[Row]) -> list[str]:
    """Look at the first arrival of each record; within a key, a later batch must not bring an earlier record."""
    rows_by_key: dict[str, list[Row]] = defaultdict(list)
    for each in sorted(rows, key=lambda row: (row.batch_id, row.offset)):
        rows_by_key[each.record.record_key].append(each)
    late = []
    for arrivals in rows_by_key.values():
        seen: set[str] = set()
        newest = -1
        for record in (row.record for row in arrivals):
            if record.record_id in seen:
                continue
            seen.add(record.record_id)
            if record.sequence < newest:
                late.append(record.record_id)
                break
            newest = record.sequence
    return late
