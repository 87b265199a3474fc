"""What Spark reads of exactly the stored ranges: the same rows every time, whatever records and log are like."""

import asyncio
import json
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Any

import psycopg
import pytest
import yaml
from aiokafka import TopicPartition as SecondPartition
from aiokafka.client import AIOKafkaClient
from aiokafka.protocol.produce import ProduceRequest
from aiokafka.record.default_records import _DefaultRecordBatchBuilderPy
from psycopg import sql
from typing_extensions import override

from batchledger.config.pipeline_file import read_pipeline_file
from batchledger.lifecycle import plans, run_batch
from batchledger.lifecycle.platform import Platform
from batchledger.model.batch import Batch
from batchledger.model.checks import IntegrityCheck
from batchledger.model.errors import (
    BatchBlockedError,
    BatchledgerError,
    LossError,
    ServiceUnavailableError,
    StagingError,
    TopicChangedError,
)
from batchledger.model.offsets import OffsetRange, TopicPartition
from batchledger.model.presence import NO_PATIENCE
from batchledger.planning.live import Plan
from batchledger.source.kafka import range_reader
from batchledger.source.kafka.range_reader import SILENCE_SECONDS
from batchledger.source.kafka.records import read_share
from batchledger.source.kafka.second_client import to_settings
from tests.fakes.crash import Interrupt
from tests.integration.test_holes import ABORTED, open_transaction
from tests.support import TestPipeline, Workplace, change_stager, create_topic, delete_records, delete_topic, stager_of


def impatient(platform: Platform) -> Platform:
    """The platform with a reader that waits for the next record for two seconds only."""
    return change_stager(platform, read_share=partial(stager_of(platform).read_share, silence_seconds=2))


def read_staging(pipeline: TestPipeline, batch: Batch, attempt: int) -> list[tuple[Any, ...]]:
    """The rows that an attempt has staged, without the id of the task that wrote them."""
    table = sql.Identifier("batchledger_staging", f"b{batch.batch_id}_a{attempt}_rows")
    query = sql.SQL("select message_id, number, amount, _topic, _partition, _offset, _timestamp from {} order by 5, 6")
    with psycopg.connect(pipeline.workplace.dsn) as connection:
        return connection.execute(query.format(table)).fetchall()


def test_s30_plan_that_is_read_twice_stages_the_same_rows_although_the_topic_grew(workplace: Workplace) -> None:
    """S17, S29: exactly the stored ranges, end excluded."""
    pipeline = workplace.create(limits={"max_records": 6})
    pipeline.send(10)
    batch = plans.plan(pipeline.platform(), "plan")
    assert batch is not None
    assert [(each.start, each.until) for each in batch.ranges] == [(0, 3), (0, 3)]
    run_batch.stage(pipeline.platform(), batch.batch_id, "first")
    first = read_staging(pipeline, batch, attempt=1)
    pipeline.send(10)
    run_batch.stage(pipeline.platform(patience=NO_PATIENCE), batch.batch_id, "second")
    second = read_staging(pipeline, batch, attempt=2)
    assert first == second
    assert [(row[4], row[5]) for row in first] == [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2)]


def store_plan(pipeline: TestPipeline, until: int) -> Batch:
    """Store a plan over partition 0 up to an end that Kafka does not show, as if it had shown it once."""
    platform = pipeline.platform()
    planned = plans.preview(platform)
    ranges = (OffsetRange(TopicPartition(pipeline.name, 0), 0, until),)
    return platform.ledger.store_plan(pipeline.name, Plan(ranges, 0, planned.first_positions), "planned")


def fail_to_stage(pipeline: TestPipeline, batch: Batch) -> None:
    """The read ends at the first offset that is not there, by an error worth a retry, and nothing is visible."""
    with pytest.raises(
        StagingError, match=r"0\.\.8 was not read through in time; .* shows .*\[0\] up to offset 5\."
    ) as failure:
        run_batch.run_once(impatient(pipeline.platform()), "run", batch.batch_id)
    assert (failure.value.batch_id, failure.value.retryable) == (batch.batch_id, True)
    assert pipeline.count_target_rows() == 0
    assert pipeline.list_staging() == []
    assert {each.next_offset for each in pipeline.platform().ledger.load_positions(pipeline.name)} == {0}


def test_s34_plan_that_ends_behind_an_open_transaction_fails_in_bounded_time_and_is_never_short(
    workplace: Workplace,
) -> None:
    """By default the bound is half a minute."""
    assert SILENCE_SECONDS == 30
    pipeline = workplace.create(partitions=1, source={"holes": "transactional"})
    pipeline.send(5, partitions=1)
    batch = store_plan(pipeline, until=8)
    with open_transaction(pipeline, [ABORTED] * 2):
        pipeline.send(1, partitions=1)
        fail_to_stage(pipeline, batch)
    run_batch.run_once(pipeline.platform(), "retry", batch.batch_id)
    pipeline.assert_exact()


def test_s34_s50_plan_that_ends_behind_the_log_fails_in_bounded_time_and_is_never_short(workplace: Workplace) -> None:
    """A broker took over without the last records; what comes back later is read then."""
    pipeline = workplace.create(partitions=1)
    pipeline.send(5, partitions=1)
    batch = store_plan(pipeline, until=8)
    fail_to_stage(pipeline, batch)
    pipeline.send(3, partitions=1)
    run_batch.run_once(pipeline.platform(), "retry", batch.batch_id)
    pipeline.assert_exact()


GOING_AWAY: dict[str, tuple[str, type[BatchledgerError], str]] = {
    "deleted": ("Unknown topic or partition|was not read through", TopicChangedError, "does not exist"),
    "expired": ("Offset out of range", LossError, r"7 offsets .*0\.\.7"),
}


@pytest.mark.parametrize("fault", GOING_AWAY)
def test_s39_topic_that_goes_away_when_the_read_begins_fails_the_attempt_and_the_next_run_names_the_loss(
    workplace: Workplace, fault: str
) -> None:
    """S37: after all checks of ours, so that the reader is what is left."""
    pipeline = workplace.create(partitions=1)
    pipeline.send(20, partitions=1)
    said, next_error, said_next = GOING_AWAY[fault]

    def go_away() -> None:
        if fault == "deleted":
            delete_topic(workplace.kafka_options, pipeline.name)
        else:
            delete_records(workplace.kafka_options, pipeline.name, 0, before_offset=7)

    platform = impatient(pipeline.platform(crash=Interrupt("attempt_opened", go_away)))
    with pytest.raises(StagingError, match=said):
        run_batch.run_once(platform, "run")
    assert pipeline.count_target_rows() == 0
    assert pipeline.list_staging() == []
    with pytest.raises(next_error, match=said_next):
        run_batch.run_once(pipeline.platform(), "next")


def test_s45_transform_may_use_its_rows_twice(workplace: Workplace) -> None:
    pipeline = workplace.create(transform="tests.transforms:with_total")
    pipeline.send(20)
    run_batch.run_once(pipeline.platform(), "run")
    assert pipeline.query("select distinct total from {target}") == [(20,)]
    pipeline.assert_exact()


def test_s45_transform_that_multiplies_rows_is_stopped_by_the_audit(workplace: Workplace) -> None:
    pipeline = workplace.create(transform="tests.transforms:twice")
    pipeline.send(4)
    with pytest.raises(BatchBlockedError, match="an offset staged already: 4 ") as blocked:
        run_batch.run_once(pipeline.platform(), "run")
    assert blocked.value.failed == (IntegrityCheck.NO_DUPLICATE_OFFSETS, IntegrityCheck.BALANCE_CLOSES)
    assert pipeline.count_target_rows() == 0


def test_s49_record_that_is_larger_than_a_fetch_is_read(workplace: Workplace) -> None:
    """Also by the second read, which looks at the hole beside it."""
    fetches = {"max.partition.fetch.bytes": "1000", "fetch.max.bytes": "2000"}
    pipeline = workplace.create(
        partitions=1,
        topic_config={"max.message.bytes": "8000000"},
        source={"options": fetches, "holes": "transactional"},
    )
    # The second read has no settings for its fetches; a client asks for a megabyte at once.
    large = json.dumps({"message_id": "x" * 2_000_000, "number": 1}).encode()
    more = {"message.max.bytes": 8_000_000}
    pipeline.send_in_transaction([large] * 3, partition=0, commit=True, **more)
    pipeline.send_in_transaction([large], partition=0, commit=False, **more)
    run_batch.run_once(pipeline.platform(), "run")
    assert pipeline.query("select length(message_id) from {target}") == [(2_000_000,)] * 3


class NoText(str):
    """A header's name as a producer in C may write it."""

    __slots__ = ()

    @override
    def encode(self, encoding: str = "utf-8", errors: str = "strict") -> bytes:
        return b"caf\xe9"


async def send_with_broken_name(options: Mapping[str, str], topic: str, value: bytes) -> None:
    """Write a record with such a header, which no client library at hand does: the bytes of a batch are made here."""
    batch = _DefaultRecordBatchBuilderPy(2, 0, 0, -1, -1, -1, 100_000)
    batch.append(0, 1_700_000_000_000, b"key", value, [(NoText("cafe"), b"1"), ("good", b"2")])
    client = AIOKafkaClient(**to_settings(options))
    await client.bootstrap()
    try:
        await client.add_topic(topic)
        request = ProduceRequest(
            transactional_id=None, required_acks=1, timeout=10_000, topics=[(topic, [(0, bytes(batch.build()))])]
        )
        answer = await client.send(client.cluster.leader_for_partition(SecondPartition(topic, 0)), request)
        assert answer.topics[0][1][0][1] == 0
    finally:
        await client.close()


@pytest.mark.parametrize("is_good", [True, False])
def test_record_whose_header_has_a_name_that_is_no_text_stops_nothing(is_good: bool, workplace: Workplace) -> None:
    """Headers are kept in quarantine only, which says that these cannot be read."""
    pipeline = workplace.create(partitions=1)
    pipeline.send(3, partitions=1)
    value = json.dumps({"message_id": "odd", "number": 1 if is_good else "x"}).encode()
    # A browser of another test keeps an event loop in this thread.
    with ThreadPoolExecutor(1) as thread:
        thread.submit(asyncio.run, send_with_broken_name(workplace.kafka_options, pipeline.name, value)).result()
    run_batch.run_once(pipeline.platform(), "run")
    assert pipeline.count_target_rows() == (4 if is_good else 3)
    query = "select headers::text from batchledger.quarantine where pipeline = %s"
    assert pipeline.query(query, pipeline.name) == ([] if is_good else [('[{"key": "(a name that is not UTF-8)"}]',)])


def test_aborted_records_are_passed_however_long_that_takes(
    workplace: Workplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is shown for longer than a broker may be silent, and within a transaction no position moves."""
    pipeline = workplace.create(partitions=1)
    pipeline.send_in_transaction([b"x" * 1000] * 30_000, partition=0, commit=False, **{"batch.size": 1})
    pipeline.send(1, partitions=1)
    # Each fetch takes one record.
    slowly = {**workplace.kafka_options, "message.max.bytes": "1000", "fetch.max.bytes": "1000"}
    whole = OffsetRange(TopicPartition(pipeline.name, 0), 0, 30_002)
    steps: list[object] = []
    monkeypatch.setattr(range_reader.STEPS, "made", lambda: steps.append("of the task"))
    look, has_renewed = range_reader._PatientReader._look, list[bool]()

    def look_and_tell(reader: range_reader._PatientReader, statistics: str) -> None:
        before = reader._deadline
        look(reader, statistics)
        has_renewed.append(reader._deadline > before)

    # A busy machine may keep the client from a look for some time: the silence is long, and looks come often.
    monkeypatch.setattr(range_reader, "_LOOKS_IN_SILENCE", 300)
    monkeypatch.setattr(range_reader._PatientReader, "_look", look_and_tell)
    found = list(read_share(slowly, [whole], silence_seconds=60))
    assert sum(each.num_rows for each in found) == 1
    assert any(has_renewed), "what was fetched renews the deadline, although nothing is shown"
    assert len(steps) > len(found), "a task that gets nothing meanwhile makes steps"
    # Negative control: without a look at the statistics, the time is over before.
    monkeypatch.setattr(range_reader._PatientReader, "_look", lambda *_: None)
    with pytest.raises(ServiceUnavailableError, match="not read through in time"):
        list(read_share(slowly, [whole], silence_seconds=1))


def test_s92_s112_job_that_fails_when_other_tasks_have_written_shows_nothing_and_leaves_nothing(
    workplace: Workplace,
) -> None:
    """S97: the failed attempt removes its own staging."""
    pipeline = workplace.create(transform="tests.transforms:fail_in_partition_1")
    pipeline.send(6000)
    with pytest.raises(StagingError, match="USER_RAISED_EXCEPTION") as failure:
        run_batch.run_once(pipeline.platform(), "run")
    assert failure.value.retryable
    assert pipeline.count_target_rows() == 0
    assert pipeline.list_staging() == []
    pipeline.path.write_text(pipeline.path.read_text().replace("fail_in_partition_1", "with_total"))
    run_batch.run_once(pipeline.platform(), "repaired")
    pipeline.assert_exact()


def test_s123_topics_of_odd_names_and_partitions_are_told_apart(workplace: Workplace) -> None:
    """Two topics of one pipeline whose names differ in what other systems fold together; null keys and values."""
    pipeline = workplace.create(partitions=1)
    odd = [f"Odd.{pipeline.name}-1", f"odd.{pipeline.name}-1"]
    content = yaml.safe_load(pipeline.path.read_text())
    content["source"]["topics"] = odd
    pipeline.path.write_text(yaml.safe_dump(content))
    assert read_pipeline_file(pipeline.path).source.topics == odd
    for number, topic in enumerate(odd):
        create_topic(workplace.kafka_options, topic, 11)
        replace(pipeline, name=topic).send_raw([(10, json.dumps({"number": number}).encode()), (10, b"{}")])
    run_batch.run_once(pipeline.platform(), "run")
    rows = pipeline.query("select _topic, _partition, _offset, number, message_id from {target} order by number, 1")
    assert rows == [(odd[0], 10, 0, 0, None), (odd[1], 10, 0, 1, None), *((each, 10, 1, None, None) for each in odd)]
