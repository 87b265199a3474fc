"""What a competent engineer writes by hand: one process, one consumer, COPY in binary. At least once, no audit.

The rows are committed before the offsets, so a process that is killed in between writes its last rows twice. An order
may turn that round: then it loses them. Partitions are assigned: the only consumer need not wait for a group to form.
"""

import json
import os
from collections.abc import Mapping
from datetime import UTC, datetime

import orjson
import psycopg
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition
from psycopg import sql

from bench.orders import DSN_VARIABLE, KAFKA_VARIABLE, Order, serve
from bench.targets.table import identify

RECORDS_PER_COMMIT = 10_000
OFFSETS = "offsets"
"""In an order's setting ``first``: they are committed before the rows."""
TYPES = ("text", "int4", "int8", "float8", "text", "text", "int4", "int8", "timestamptz", "int8")
COPY = sql.SQL("copy {} from stdin (format binary)")
OPTIONS = {
    "auto.offset.reset": "earliest",
    "enable.auto.commit": False,
    "fetch.wait.max.ms": 50,
    # By default the client pauses for a second whenever it is 100,000 records ahead, which halves the rows a second.
    "fetch.queue.backoff.ms": 10,
    "log_level": 3,
}


def drain(order: Order) -> Mapping[str, float]:
    """Consume, parse, copy, commit, until every partition is at its end."""
    records_at_once = int(order.settings.get("records_per_commit", RECORDS_PER_COMMIT))
    is_offsets_first = order.settings.get("first") == OFFSETS
    consumer = Consumer({**OPTIONS, **json.loads(os.environ[KAFKA_VARIABLE]), "group.id": order.name})
    try:
        # A negative offset means that the group has committed nothing: begin at the beginning.
        next_offsets = {each.partition: each.offset for each in _read_committed(consumer, order)}
        # Otherwise the client may learn a second later which brokers lead the partitions.
        consumer.list_topics(order.topic, timeout=30)
        consumer.assign([TopicPartition(order.topic, each, max(0, start)) for each, start in next_offsets.items()])
        with psycopg.connect(os.environ[DSN_VARIABLE]) as connection:
            while any(next_offsets[each] < end for each, end in order.end_by_partition.items()):
                messages = consumer.consume(records_at_once, timeout=0.1)
                if not messages:
                    continue
                if is_offsets_first:
                    consumer.commit(asynchronous=False)
                next_offsets |= _copy(connection, order, messages)
                connection.commit()
                if not is_offsets_first:
                    consumer.commit(asynchronous=False)
    finally:
        consumer.close()
    return {}


def _read_committed(consumer: Consumer, order: Order) -> list[TopicPartition]:
    """Ask again while a broker makes the topic of its first group."""
    while True:
        try:
            return consumer.committed([TopicPartition(order.topic, each) for each in order.end_by_partition], 30)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.NOT_COORDINATOR:
                raise


def _copy(
    connection: "psycopg.Connection[tuple[object, ...]]", order: Order, messages: list[Message]
) -> dict[int, int]:
    """Write the records of one poll; return the next offsets of their partitions."""
    loads, to_moment, topic = orjson.loads, datetime.fromtimestamp, order.topic
    next_offsets: dict[int, int] = {}
    with connection.cursor().copy(COPY.format(identify(order.target))) as copy:
        copy.set_types(TYPES)
        write_row = copy.write_row
        for message in messages:
            if message.error():
                raise RuntimeError(message.error())
            get = loads(message.value() or b"null").get
            partition, offset = message.partition() or 0, message.offset() or 0
            moment = to_moment(message.timestamp()[1] / 1000, UTC)
            row = (get("message_id"), get("device_id"), get("seq"), get("amount"), get("note"))
            write_row((*row, topic, partition, offset, moment, 0))
            next_offsets[partition] = offset + 1
    return next_offsets


if __name__ == "__main__":
    serve(drain)
