"""The limits of this machine: single parts of the work, in one process, each on all records of the topic."""

import io
import json
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import orjson
import psycopg
from confluent_kafka import Consumer, Message, TopicPartition
from psycopg import sql
from pyarrow import json as arrow_json

from bench.arrow_schema import RECORD_SCHEMA
from bench.orders import COPY_FILE_VARIABLE, DSN_VARIABLE, KAFKA_VARIABLE, Order, serve
from bench.targets.table import identify

RECORDS_AT_ONCE = 10_000
BYTES_AT_ONCE = 1024 * 1024

_chunks: list[list[bytes]] = []
"""The values of the topic, for the limits that only parse them."""


def consume(order: Order) -> None:
    """Receive every record, and look at none."""
    for _ in _consume(order):
        pass


def load(order: Order) -> None:
    """Keep every value in memory; this is no limit itself."""
    _chunks[:] = [[message.value() or b"" for message in messages] for messages in _consume(order)]


def parse_with_orjson(_: Order) -> None:
    """Parse every value, one by one, and keep nothing."""
    while _chunks:
        for value in _chunks.pop():
            orjson.loads(value)


def parse_with_arrow(_: Order) -> None:
    """Parse every value into columns of known types, ten thousand at a time, and keep nothing."""
    options = arrow_json.ParseOptions(explicit_schema=RECORD_SCHEMA, unexpected_field_behavior="ignore")
    while _chunks:
        arrow_json.read_json(io.BytesIO(b"\n".join(_chunks.pop())), parse_options=options)


def copy(order: Order) -> None:
    """COPY a file that holds every row in PostgreSQL's own binary format."""
    statement = sql.SQL("copy {} from stdin (format binary)").format(identify(order.target))
    with (
        psycopg.connect(os.environ[DSN_VARIABLE]) as connection,
        Path(os.environ[COPY_FILE_VARIABLE]).open("rb") as file,
        connection.cursor().copy(statement) as rows,
    ):
        while data := file.read(BYTES_AT_ONCE):
            rows.write(data)


WORK_BY_NAME: Mapping[str, Callable[[Order], None]] = {
    each.__name__: each for each in (consume, load, parse_with_orjson, parse_with_arrow, copy)
}


def work(order: Order) -> Mapping[str, float]:
    """Carry out the limit that the order's settings name."""
    WORK_BY_NAME[order.settings["work"]](order)
    return {}


def _consume(order: Order) -> Iterator[list[Message]]:
    options = {
        **json.loads(os.environ[KAFKA_VARIABLE]),
        "group.id": order.name,
        "enable.auto.commit": False,
        # Like the hand-written loop, for the same reason.
        "fetch.queue.backoff.ms": 10,
    }
    consumer = Consumer(options)
    try:
        # Otherwise the client may learn a second later which brokers lead the partitions.
        consumer.list_topics(order.topic, timeout=30)
        consumer.assign([TopicPartition(order.topic, partition, 0) for partition in order.end_by_partition])
        missing = order.records
        while missing > 0:
            messages = consumer.consume(RECORDS_AT_ONCE, timeout=1.0)
            missing -= len(messages)
            yield messages
    finally:
        consumer.close()


if __name__ == "__main__":
    serve(work)
