"""The bench finds out when two contenders have not written the same rows, whatever they write to."""

import json
from collections.abc import Iterator, Mapping
from contextlib import closing
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pytest
from confluent_kafka import Producer

from bench.orders import NAMESPACE
from bench.targets.lake import SCHEMA, LakeTables, find_catalog
from bench.targets.topic import Topics
from tests.conftest import Kafka

MOMENT = datetime(2026, 1, 1, tzinfo=UTC)
RECORDS = [
    {"message_id": str(number), "device_id": number, "seq": 0, "amount": 0.5 * number, "note": ""}
    for number in range(10)
]
CHANGED = [*RECORDS[1:], RECORDS[0] | {"amount": 0.25}]
TWICE = [*RECORDS, RECORDS[0]]


@pytest.fixture
def topic(kafka: Kafka) -> Iterator[str]:
    name = f"target_{uuid4().hex[:8]}"
    with Topics(kafka.options).fresh(name):
        yield name


@pytest.fixture
def lake(warehouse_dsn: str) -> LakeTables:
    return LakeTables(find_catalog())


def produce(producer: Producer, topic: str, record: Mapping[str, Any], batch: int = 1) -> None:
    place = {"_topic": "t", "_partition": 0, "_offset": record["device_id"], "_timestamp": 5, "_batch_id": batch}
    headers: Any = [(name, str(value).encode()) for name, value in place.items()]
    producer.produce(topic, json.dumps(record).encode(), str(record["device_id"]).encode(), headers=headers)


def digest_topic(kafka: Kafka, records: list[dict[str, Any]], batch: int = 1) -> str:
    target, name = Topics(kafka.options), f"target_{uuid4().hex[:8]}"
    with target.fresh(name):
        with closing(Producer(kafka.options)) as producer:
            for each in records:
                produce(producer, name, each, batch)
        assert target.count_rows(name) == len(records)
        return target.read_digest(name)


def digest_table(lake: LakeTables, records: list[dict[str, Any]], batch: int = 1) -> str:
    name = f"target_{uuid4().hex[:8]}"
    rows = [
        {**each, "_topic": "t", "_kafka_partition": 0, "_offset": each["device_id"], "_timestamp": MOMENT}
        for each in records
    ]
    with lake.fresh(name):
        table = lake.catalog.opened.load_table((NAMESPACE, name))
        table.append(pa.Table.from_pylist([{**each, "_batch_id": batch} for each in rows], SCHEMA))
        assert lake.count_rows(name) == len(records)
        return lake.read_digest(name)


def test_topics_are_the_same_in_another_order_and_not_with_another_or_a_second_record(kafka: Kafka) -> None:
    wanted = digest_topic(kafka, RECORDS)
    # As PostgreSQL writes numbers: 2, and not 2.0.
    other = [each | {"amount": number // 2 if number % 2 == 0 else number / 2} for number, each in enumerate(RECORDS)]
    assert json.dumps(other) != json.dumps(RECORDS)
    assert digest_topic(kafka, other[::-1], batch=2) == wanted
    assert len({wanted, digest_topic(kafka, CHANGED), digest_topic(kafka, TWICE)}) == 3


def test_tables_are_the_same_in_another_order_and_not_with_another_or_a_second_row(lake: LakeTables) -> None:
    wanted = digest_table(lake, RECORDS)
    assert digest_table(lake, RECORDS[::-1], batch=2) == wanted
    assert len({wanted, digest_table(lake, CHANGED), digest_table(lake, TWICE)}) == 3


def test_records_of_an_aborted_transaction_are_not_counted(kafka: Kafka, topic: str) -> None:
    producer = Producer({**kafka.options, "transactional.id": topic})
    producer.init_transactions()
    for is_committed in (True, False):
        producer.begin_transaction()
        for each in RECORDS:
            produce(producer, topic, each)
        producer.flush()
        (producer.commit_transaction if is_committed else producer.abort_transaction)()
    assert Topics(kafka.options).count_rows(topic) == len(RECORDS)
