"""Torture's producer writes down what is true, and its checker reads what is there: both on a real broker."""

import json
import uuid
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from batchledger.local.torture.checker import LogReader
from batchledger.local.torture.producer import Journal, Writer
from batchledger.local.torture.records import WriteKind, WriteOutcome, payload_of
from batchledger.local.torture.schedule import Chunk
from tests.conftest import Kafka, choose_ports
from tests.support import add_partitions, create_topic, delete_records


@pytest.fixture
def topic(kafka: Kafka) -> str:
    name = f"t_{uuid.uuid4().hex[:12]}"
    create_topic(kafka.options, name, partitions=2)
    return name


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    return Journal(tmp_path / "journal.jsonl")


@pytest.fixture
def writer(kafka: Kafka, topic: str, journal: Journal) -> Writer:
    return Writer("writer", topic, kafka.options, journal)


def outcomes(journal: Journal) -> Counter[tuple[str, str]]:
    """How many records of each guarantee ended in which way, as the file says."""
    lines = [json.loads(line) for line in journal.path.read_text().splitlines()]
    assert len({line["id"] for line in lines}) == len(lines)
    return Counter((line["guarantee"], line["outcome"]) for line in lines)


def test_acknowledged_records_are_what_a_committed_reader_sees(
    kafka: Kafka, topic: str, journal: Journal, writer: Writer
) -> None:
    for guarantee, records in ((WriteKind.IDEMPOTENT, 5), (WriteKind.ABORT, 7), (WriteKind.COMMIT, 9)):
        assert writer.write(Chunk(guarantee, records), partitions=2)
    assert outcomes(journal) == {
        (WriteKind.IDEMPOTENT, WriteOutcome.ACKNOWLEDGED): 5,
        (WriteKind.ABORT, WriteOutcome.FAILED): 7,
        (WriteKind.COMMIT, WriteOutcome.ACKNOWLEDGED): 9,
    }
    log = LogReader(kafka.options, topic)
    log.read()
    assert {each.record_id for each in log.records.values()} == journal.acknowledged(topic)
    assert len(journal.failed(topic)) == 7
    assert journal.failed(topic).isdisjoint(journal.acknowledged(topic))
    assert all(each.payload == payload_of(each.record_id) for each in log.records.values())


def test_within_a_key_sequence_numbers_grow_with_the_offset_and_a_key_keeps_its_partition(
    kafka: Kafka, topic: str, writer: Writer
) -> None:
    writer.write(Chunk(WriteKind.IDEMPOTENT, 20), partitions=2)
    add_partitions(kafka.options, topic, total=3)
    writer.write(Chunk(WriteKind.COMMIT, 20), partitions=3)
    log = LogReader(kafka.options, topic)
    log.read()
    by_key: dict[str, list[tuple[int, int, int]]] = {}
    for (partition, offset), record in sorted(log.records.items()):
        by_key.setdefault(record.record_key, []).append((partition, offset, record.sequence))
    assert len(log.records) == 40
    assert {partition for partition, _ in log.records} == {0, 1, 2}
    for written in by_key.values():
        assert len({partition for partition, _, _ in written}) == 1
        assert [sequence for _, _, sequence in written] == list(range(len(written)))


def test_what_was_read_stays_known_when_it_expires(kafka: Kafka, topic: str, writer: Writer) -> None:
    log = LogReader(kafka.options, topic)
    writer.write(Chunk(WriteKind.COMMIT, 10), partitions=2)
    log.read()
    # The commit marker goes as well, and what comes next begins where the reader has never been.
    delete_records(kafka.options, topic, partition=0, before_offset=6)
    writer.write(Chunk(WriteKind.IDEMPOTENT, 4), partitions=2)
    log.read()
    assert len(log.records) == 14


def test_open_transaction_hides_what_follows_until_it_ends(kafka: Kafka, topic: str, writer: Writer) -> None:
    holder = Writer("holder", topic, kafka.options, writer.journal)
    reports = holder.begin(2, partitions=2)
    writer.write(Chunk(WriteKind.IDEMPOTENT, 4), partitions=2)
    log = LogReader(kafka.options, topic)
    log.read()
    assert log.records == {}
    with ThreadPoolExecutor(1) as pool:
        decided = pool.submit(log.wait_until_decided)
        with pytest.raises(TimeoutError):
            decided.result(1)
        assert holder.end(WriteKind.ABORT, reports)
        decided.result(30)
    log.read()
    assert len(log.records) == 4


def test_writing_to_a_broker_that_is_not_there_is_of_unknown_outcome(journal: Journal, topic: str) -> None:
    nowhere = {"bootstrap.servers": f"127.0.0.1:{choose_ports().kafka}", "message.timeout.ms": "1000"}
    writer = Writer("writer", topic, nowhere, journal)
    assert not writer.write(Chunk(WriteKind.IDEMPOTENT, 3), partitions=2)
    assert outcomes(journal) == {(WriteKind.IDEMPOTENT, WriteOutcome.UNKNOWN): 3}
    assert (journal.acknowledged(topic), journal.failed(topic)) == (set(), set())
