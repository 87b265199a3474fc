"""What Spark reads of exactly the stored ranges: the same rows every time, whatever records and log are like."""

import json
from dataclasses import replace
from functools import partial
from typing import Any

import psycopg
import pytest
import yaml
from psycopg import sql

from batchledger.adapters.kafka.range_reader import SILENCE_SECONDS
from batchledger.config.pipeline_file import read_pipeline_file
from batchledger.lifecycle import plans, run_batch
from batchledger.lifecycle.platform import Platform
from batchledger.model.batch import Batch
from batchledger.model.checks import IntegrityCheck
from batchledger.model.errors import BatchBlockedError, BatchledgerError, LossError, StagingError, TopicChangedError
from batchledger.model.offsets import OffsetRange, TopicPartition
from batchledger.model.presence import NO_PATIENCE
from batchledger.planning.live import Plan
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
    pipeline = workplace.create(partitions=1, source={"options": fetches, "holes": "transactional"})
    large = json.dumps({"message_id": "x" * 500_000, "number": 1}).encode()
    pipeline.send_in_transaction([large] * 3, partition=0, commit=True)
    pipeline.send_in_transaction([large], partition=0, commit=False)
    run_batch.run_once(pipeline.platform(), "run")
    assert pipeline.query("select length(message_id) from {target}") == [(500_000,)] * 3


def test_s92_s112_job_that_fails_when_other_tasks_have_written_shows_nothing_and_leaves_nothing(
    workplace: Workplace,
) -> None:
    """S97: the failed attempt removes its own staging."""
    pipeline = workplace.create(transform="tests.transforms:fail_in_partition_1")
    pipeline.send(6000)
    with pytest.raises(StagingError, match="planted") as failure:
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
