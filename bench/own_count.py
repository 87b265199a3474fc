"""Counts which offsets of a topic a table lacks, and which it has twice: a plain consumer, a plain query, a dictionary.

It shares no code with Batchledger, and so can judge what Batchledger says.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import psycopg
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from psycopg import sql

SECONDS = 30.0
RECORDS_AT_ONCE = 10_000
OPTIONS = {"group.id": "own_count", "enable.auto.commit": False, "enable.partition.eof": True, "log_level": 3}

Offset = tuple[int, int]
"""Partition and offset."""


@dataclass(frozen=True)
class OwnCount:
    """Offsets of records without a row, and offsets with more than one row."""

    missing: frozenset[Offset]
    twice: frozenset[Offset]


def compare(records: Iterable[Offset], rows: Iterable[Offset]) -> OwnCount:
    """Compare records with rows, each given by its offset. Raises RuntimeError if a row has no record."""
    known, counts = frozenset(records), Counter(rows)
    if unknown := counts.keys() - known:
        raise RuntimeError(f"{len(unknown)} rows have offsets without a record, such as {min(unknown)}")
    return OwnCount(known - counts.keys(), frozenset(each for each, count in counts.items() if count > 1))


def read_topic(options: Mapping[str, Any], topic: str) -> list[Offset]:
    """Read all committed records of a topic from its beginning."""
    found = []
    consumer = Consumer({**OPTIONS, **options})
    try:
        pending = set(consumer.list_topics(topic, SECONDS).topics[topic].partitions)
        consumer.assign([TopicPartition(topic, each, 0) for each in pending])
        while pending:
            messages = consumer.consume(RECORDS_AT_ONCE, SECONDS)
            if not messages:
                raise RuntimeError(f"topic {topic} was not read to its end")
            for message in messages:
                error = message.error()
                if error is None:
                    found.append((message.partition() or 0, message.offset() or 0))
                elif error.code() == KafkaError._PARTITION_EOF:
                    pending.discard(message.partition() or 0)
                else:
                    raise KafkaException(error)
    finally:
        consumer.close()
    return found


def read_table(dsn: str, table: sql.Identifier) -> list[Offset]:
    """Read the offsets of all rows, once nothing writes any more: a killed client may have left a transaction."""
    with psycopg.connect(dsn) as connection:
        connection.execute(sql.SQL("lock table {} in share mode").format(table))
        return connection.execute(sql.SQL("select _partition, _offset from {}").format(table)).fetchall()
