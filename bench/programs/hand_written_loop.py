"""What a competent engineer writes by hand: one process, one consumer, COPY in binary. At least once, no audit.

The rows are committed before the offsets, so a process that is killed in between writes its last rows twice.
"""

import os
from collections.abc import Mapping
from datetime import UTC, datetime

import orjson
import psycopg
from confluent_kafka import Consumer, Message
from psycopg import sql

from bench.orders import DSN_VARIABLE, KAFKA_VARIABLE, Order, serve
from bench.target import identify

RECORDS_PER_COMMIT = 10_000
TYPES = ("text", "int4", "int8", "float8", "text", "text", "int4", "int8", "timestamptz", "int8")
COPY = sql.SQL("copy {} from stdin (format binary)")
PROGRESS = sql.SQL("select _partition, max(_offset) + 1 from {} group by 1")
OPTIONS = {
    "auto.offset.reset": "earliest",
    "enable.auto.commit": False,
    "fetch.wait.max.ms": 50,
    # A killed process is found out soon, and its partitions are given to the next one.
    "session.timeout.ms": 6000,
    "log_level": 3,
}


def drain(order: Order) -> Mapping[str, float]:
    """Consume, parse, copy, commit, until every partition is at its end."""
    next_offsets: dict[int, int] = {}
    options = {**OPTIONS, "bootstrap.servers": os.environ[KAFKA_VARIABLE], "group.id": order.name}
    consumer = Consumer(options)
    try:
        consumer.subscribe([order.topic])
        with psycopg.connect(os.environ[DSN_VARIABLE]) as connection:
            next_offsets.update(_find_progress(connection, order))
            while any(next_offsets.get(each, 0) < end for each, end in order.end_by_partition.items()):
                messages = consumer.consume(RECORDS_PER_COMMIT, timeout=0.1)
                if messages:
                    next_offsets.update(_copy(connection, order, messages))
                    connection.commit()
                    consumer.commit(asynchronous=False)
    finally:
        consumer.close()
    return {}


def _copy(connection: "psycopg.Connection[tuple[int, int]]", order: Order, messages: list[Message]) -> dict[int, int]:
    """Write the records of one poll; return the next offset of the partitions among them."""
    loads, to_moment, topic = orjson.loads, datetime.fromtimestamp, order.topic
    next_offsets: dict[int, int] = {}
    with connection.cursor().copy(COPY.format(identify(order.table))) as copy:
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


def _find_progress(connection: "psycopg.Connection[tuple[int, int]]", order: Order) -> dict[int, int]:
    """What an earlier process of the same group has left in the table: only to know when everything is done."""
    return dict(connection.execute(PROGRESS.format(identify(order.table))).fetchall())


if __name__ == "__main__":
    serve(drain)
