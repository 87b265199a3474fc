"""Offsets without a visible record: every read comes to its end, and every hole is explained by what is there."""

import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from batchledger.books.history import RangeRecord, load_batch_history
from batchledger.lifecycle import run_batch
from batchledger.lifecycle.platform import Platform
from batchledger.model.errors import BatchBlockedError
from batchledger.model.offsets import OffsetRange, TopicPartition
from batchledger.source.kafka import second_client
from tests.support import TestPipeline, Workplace, admin_client, change_stager, stager_of, wait_until

ABORTED = b'{"message_id": "aborted"}'


def take_all(pipeline: TestPipeline) -> list[RangeRecord]:
    """Publish until nothing is left; return the balance of every range."""
    balances: list[RangeRecord] = []
    while (batch := run_batch.run_once(pipeline.platform(), "run")) is not None:
        balances += load_batch_history(pipeline.workplace.dsn, batch.batch_id).ranges
    return balances


def transactional(workplace: Workplace, **limits: int) -> TestPipeline:
    return workplace.create(
        partitions=1, source={"holes": "transactional"}, limits={"max_records": 1_000_000, **limits}
    )


@contextmanager
def open_transaction(pipeline: TestPipeline, values: list[bytes]) -> Iterator[Producer]:
    """A transaction whose records are written and undecided; aborted at the end of the block if still open."""
    producer = Producer({**pipeline.workplace.kafka_options, "transactional.id": uuid.uuid4().hex})
    producer.init_transactions(30)
    producer.begin_transaction()
    for value in values:
        producer.produce(pipeline.name, value=value, partition=0)
    producer.flush(30)
    yield producer
    producer.abort_transaction(30)


def test_range_that_holds_only_aborted_records_is_read_to_its_end_and_explained(workplace: Workplace) -> None:
    """S31, S63: 100,000 offsets and nothing to see."""
    pipeline = transactional(workplace)
    pipeline.send_in_transaction([ABORTED] * 100_000, partition=0, commit=False)
    (balance,) = take_all(pipeline)
    assert (balance.until, balance.accepted, balance.aborted, balance.markers) == (100_001, 0, 100_000, 1)
    pipeline.assert_exact()


def test_ranges_that_start_and_end_in_the_middle_of_invisible_offsets_are_explained(workplace: Workplace) -> None:
    """S9, S31: batches of eleven offsets cut through records, aborted records and markers."""
    pipeline = transactional(workplace, max_records=11)
    for _ in range(3):
        pipeline.send(4, partitions=1)
        pipeline.send_in_transaction([ABORTED] * 9, partition=0, commit=False)
    balances = take_all(pipeline)
    assert {each.until - each.start for each in balances[:-1]} == {11}
    totals = [sum(getattr(each, line) or 0 for each in balances) for line in ("accepted", "aborted", "markers")]
    assert totals == [12, 27, 3]
    pipeline.assert_exact()


def with_a_fault(platform: Platform) -> Platform:
    """The platform whose tasks read with a client that loses every fourth record."""
    read = stager_of(platform).read_share

    # Pickled whole, because the workers do not have the tests.
    def lose(ranges: Sequence[OffsetRange]) -> Iterator[pa.RecordBatch]:
        for records in read(ranges):
            yield records.filter(pc.not_equal(pc.bit_wise_and(records["offset"], 3), 3))

    return change_stager(platform, read_share=lose)


def test_records_that_the_first_client_loses_are_found_by_the_second_one(workplace: Workplace) -> None:
    """On a topic that may have holes nothing else could tell."""
    pipeline = transactional(workplace)
    pipeline.send_in_transaction([b'{"message_id": "one"}'] * 12, partition=0, commit=True)
    pipeline.send(1, partitions=1)
    with pytest.raises(BatchBlockedError, match="unread are committed records that the stage step did not return"):
        run_batch.run_once(with_a_fault(pipeline.platform()), "run")
    assert pipeline.count_target_rows() == 0


def test_negative_control_without_a_second_client_records_that_the_first_one_loses_pass_for_markers(
    workplace: Workplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = transactional(workplace)
    pipeline.send_in_transaction([b'{"message_id": "one"}'] * 12, partition=0, commit=True)
    monkeypatch.setattr(second_client, "find_visible", lambda *_: [])
    run_batch.run_once(with_a_fault(pipeline.platform()), "run")
    assert pipeline.count_target_rows() == 9


def test_shares_that_begin_and_end_among_aborted_records_and_markers_see_each_record_once(workplace: Workplace) -> None:
    """S31: ranges of three partitions, cut about every ten offsets, wherever that is."""
    pipeline = workplace.create(partitions=3, source={"holes": "transactional"})
    for round_ in range(4):
        pipeline.send(9, partitions=3)
        pipeline.send_in_transaction([ABORTED] * (5 + round_), partition=round_ % 3, commit=False)
    run_batch.run_once(change_stager(pipeline.platform(), offsets_in_share=10), "run")
    pipeline.assert_exact()


def test_open_transaction_pins_the_end_of_every_plan_until_it_is_decided(workplace: Workplace) -> None:
    """S21, S34, S108: nothing behind the last stable offset is planned, so no read waits for it."""
    pipeline = transactional(workplace)
    pipeline.send(5, partitions=1)
    with open_transaction(pipeline, [ABORTED] * 3):
        pipeline.send(5, partitions=1)
        (balance,) = take_all(pipeline)
        assert (balance.until, balance.accepted) == (5, 5)
    (balance,) = take_all(pipeline)
    assert (balance.start, balance.until, balance.accepted, balance.aborted, balance.markers) == (5, 14, 5, 3, 1)
    pipeline.assert_exact()


def test_transactional_topic_that_declares_no_holes_is_told_what_its_holes_are(workplace: Workplace) -> None:
    pipeline = workplace.create(partitions=1)
    pipeline.send_in_transaction([ABORTED] * 2, partition=0, commit=False)
    pipeline.send(1, partitions=1)
    with pytest.raises(BatchBlockedError, match="holes: aborted 2, markers 1"):
        run_batch.run_once(pipeline.platform(), "run")


def clean_often(options: Mapping[str, str]) -> None:
    """Let the broker remove older records of a key soon."""
    with admin_client(options) as client:
        often = ConfigEntry("log.cleaner.backoff.ms", "200", incremental_operation=AlterConfigOpType.SET)
        broker = ConfigResource(ResourceType.BROKER, "1", incremental_configs=[often])
        client.incremental_alter_configs([broker])[broker].result(30)


def compact(pipeline: TestPipeline) -> None:
    """Write the same keys again and again until the broker has removed the older records."""
    clean_often(pipeline.workplace.kafka_options)

    def is_compacted() -> bool:
        # Only segments that are closed are cleaned; a record that comes later than segment.ms closes one.
        pipeline.send_raw([(0, b'{"message_id": "old"}')], key=b"same")
        held = pipeline.platform().source.look_into([_whole_log(pipeline)])
        return sum(len(each) for each in held.committed) < len(_whole_log(pipeline)) - 5

    wait_until(is_compacted, seconds=120)


def _whole_log(pipeline: TestPipeline) -> OffsetRange:
    partition = TopicPartition(pipeline.name, 0)
    held = pipeline.platform().source.read_log([pipeline.name]).log_by_partition[partition]
    return OffsetRange(partition, held.log_start, held.end)


COMPACTED = {
    "cleanup.policy": "compact",
    "segment.ms": "100",
    "min.cleanable.dirty.ratio": "0.01",
    "min.compaction.lag.ms": "0",
}


def test_compacted_topic_is_explained_where_it_is_declared_and_blocks_where_it_is_not(workplace: Workplace) -> None:
    """Records are really removed by the broker's cleaner."""
    pipeline = workplace.create(partitions=1, topic_config=COMPACTED, source={"holes": "transactional"})
    compact(pipeline)
    with pytest.raises(BatchBlockedError, match=r"holes: compacted \d+") as blocked:
        run_batch.run_once(pipeline.platform(), "undeclared")
    content = pipeline.path.read_text().replace("transactional", "compacted")
    pipeline.path.write_text(content)
    batch = run_batch.run_once(pipeline.platform(), "declared", blocked.value.batch_id)
    assert batch is not None
    (balance,) = load_batch_history(workplace.dsn, batch.batch_id).ranges
    assert balance.compacted
    assert balance.unexplained == 0
