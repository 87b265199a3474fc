"""Faults planted on a real topic by a producer of another hand: found, named, and their clean twins pass."""

import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import pytest
import yaml

from batchledger.ledger.ledger import PostgresLedger
from batchledger.lifecycle import run_batch
from batchledger.model.batch import Batch, BatchState, Decision, Lane
from batchledger.model.checks import CheckResult, OnFailure, Outcome, Suite
from batchledger.model.errors import BatchBlockedError, CheckNotRunError, ConfigurationError
from batchledger.model.offsets import OffsetRange, TopicPartition
from batchledger.planning.live import Plan
from batchledger.planning.replay import plan_quarantined
from batchledger.wiring import verify_pipeline
from tests.fakes.crash import CrashOnce, SimulatedCrashError
from tests.support import TestPipeline, Workplace

NOT_NULL = {"type": "expect_column_values_to_not_be_null", "column": "amount"}
RECENT = {"type": "expect_batch_rows_to_be_near_recent", "min_ratio": 0.5}
SCHEMA = "message_id string, number int, amount double, name string"
NAME = "expect_column_values_to_not_be_null(amount)"


def produce(pipeline: TestPipeline, count: int, changes: Mapping[int, Mapping[str, Any]] = {}, **more: Any) -> None:
    """Write records as another program would: ``changes`` are planted in some of them, by their place."""
    start = len(pipeline.sent)
    records = [
        {
            "message_id": f"{pipeline.name}-{start + index}",
            "number": index,
            "amount": index / 4,
            "name": f"n{index % 5}",
            **changes.get(index, {}),
        }
        for index in range(count)
    ]
    pipeline.sent.extend(each["message_id"] for each in records)
    pipeline.send_raw([(0, json.dumps(each).encode()) for each in records], **more)


def run(pipeline: TestPipeline, name: str) -> Batch:
    batch = run_batch.run_once(pipeline.platform(), name)
    assert batch is not None
    return batch


def newest_batch(pipeline: TestPipeline) -> int:
    ((batch_id,),) = pipeline.query("select max(batch_id) from batchledger.batch where pipeline = %s", pipeline.name)
    return int(batch_id)


def own_checks(pipeline: TestPipeline) -> list[CheckResult]:
    """The results of the newest batch."""
    checks = PostgresLedger(pipeline.workplace.dsn).load_checks(newest_batch(pipeline))
    return [each for each in checks if each.suite is Suite.PIPELINE]


def ask_for(pipeline: TestPipeline, checks: Sequence[Mapping[str, Any]]) -> None:
    """Let the pipeline's file have these checks from now on."""
    content = yaml.safe_load(pipeline.path.read_text())
    pipeline.path.write_text(yaml.safe_dump({**content, "checks": list(checks)}))


def coordinates(pipeline: TestPipeline, offsets: Iterable[int]) -> list[str]:
    return [f"{pipeline.name}[0]@{each}" for each in offsets]


@pytest.mark.parametrize("column", ["amount", "name"], ids=["number", "text"])
def test_nullable_that_turned_null_blocks_with_its_coordinates_and_the_clean_twin_passes(
    workplace: Workplace, column: str
) -> None:
    pipeline = workplace.create(partitions=1, checks=[{**NOT_NULL, "column": column}], source={"schema": SCHEMA})
    produce(pipeline, 50)
    run(pipeline, "clean twin")
    assert [each.outcome for each in own_checks(pipeline)] == [Outcome.PASSED]
    produce(pipeline, 50, {3: {column: None}, 40: {column: None}})
    with pytest.raises(BatchBlockedError, match="2 of 50 do not pass"):
        run(pipeline, "fault")
    (check,) = own_checks(pipeline)
    assert check.observed["coordinates"] == coordinates(pipeline, [53, 90])
    assert pipeline.count_target_rows() == 50


@pytest.mark.parametrize("column", ["amount", "name"], ids=["number", "text"])
def test_without_the_check_the_same_fault_is_published(workplace: Workplace, column: str) -> None:
    """The negative control."""
    pipeline = workplace.create(partitions=1, source={"schema": SCHEMA})
    produce(pipeline, 50, {3: {column: None}, 40: {column: None}})
    run(pipeline, "nobody looks")
    assert pipeline.query(f"select count(*) from {{target}} where {column} is null") == [(2,)]  # noqa: S608


@pytest.mark.always
def test_failing_rows_are_set_aside_with_the_bytes_of_their_records_and_the_rest_is_published(
    workplace: Workplace,
) -> None:
    pipeline = workplace.create(partitions=1, checks=[NOT_NULL], on_check_failure="quarantine")
    produce(pipeline, 50, {3: {"amount": None}, 40: {"amount": None}}, key=b"\x00key", headers=[("trace", b"\xff")])
    with pytest.raises(SimulatedCrashError):
        run_batch.run_once(pipeline.platform(CrashOnce("rows_removed")), "run")
    ((batch_id,),) = pipeline.query("select batch_id from batchledger.batch where pipeline = %s", pipeline.name)
    run_batch.audit(pipeline.platform(), batch_id, "run")
    batch = run_batch.publish(pipeline.platform(), batch_id, "run")
    assert batch.state is BatchState.PUBLISHED
    assert pipeline.query("select count(*), count(amount) from {target}") == [(48, 48)]
    kept = pipeline.query(
        'select "offset", key, value, headers, error from batchledger.quarantine where pipeline = %s order by "offset"',
        pipeline.name,
    )
    sent = [
        json.dumps({"message_id": pipeline.sent[at], "number": at, "amount": None, "name": f"n{at % 5}"}).encode()
        for at in (3, 40)
    ]
    headers = [{"key": "trace", "value": "/w=="}]
    reason = f"check {NAME}: the row does not pass it"
    assert kept == [(at, b"\x00key", value, headers, reason) for at, value in zip((3, 40), sent, strict=True)]
    (check,) = own_checks(pipeline)
    assert (check.outcome, check.on_failure, check.observed["set_aside"]) == (Outcome.FAILED, OnFailure.QUARANTINE, 2)
    assert pipeline.list_staging() == []
    assert verify_pipeline(pipeline.config).holds


def test_record_that_was_set_aside_is_published_by_a_replay_once_it_passes(workplace: Workplace) -> None:
    pipeline = workplace.create(partitions=1, checks=[NOT_NULL], on_check_failure="quarantine")
    produce(pipeline, 10, {3: {"amount": None}})
    run(pipeline, "run")
    replay_quarantine(pipeline, "still null")
    assert pipeline.query("select count(*) from {target}") == [(9,)]
    assert [place for (place,) in pipeline.query(QUARANTINED, pipeline.name)] == [3]
    pipeline.path.write_text(
        pipeline.path.read_text().replace("on_check_failure: quarantine", "on_check_failure: publish")
    )
    replay_quarantine(pipeline, "allowed now")
    assert pipeline.query(QUARANTINED, pipeline.name) == []
    pipeline.assert_exact()


QUARANTINED = 'select "offset" from batchledger.quarantine where pipeline = %s'


def replay_quarantine(pipeline: TestPipeline, run_name: str) -> None:
    platform = pipeline.platform()
    plan = plan_quarantined(platform.ledger.find_quarantined(pipeline.name, None))
    batch = platform.ledger.store_replay(pipeline.name, plan, run_name, Decision("ana", run_name), run_name)
    run_batch.take_through(platform, batch.batch_id, run_name)


def test_policy_publish_tells_and_publishes(workplace: Workplace) -> None:
    pipeline = workplace.create(partitions=1, checks=[NOT_NULL], on_check_failure="publish")
    produce(pipeline, 10, {3: {"amount": None}})
    run(pipeline, "run")
    (check,) = own_checks(pipeline)
    assert (check.outcome, check.on_failure) == (Outcome.FAILED, OnFailure.PUBLISH)
    pipeline.assert_exact()


DRIFTS: Sequence[tuple[dict[str, Any], Mapping[str, Any]]] = [
    # A field was renamed: the declared column is null from now on.
    ({**NOT_NULL, "mostly": 0.5}, {"amount": None, "amount_eur": 1.0}),
    # A number became a text: the records do not decode any more.
    ({"type": "expect_share_quarantined_to_be_at_most", "max_share": 0.01}, {"amount": "1,50 EUR"}),
]


@pytest.mark.parametrize(("check", "drift"), DRIFTS, ids=["renamed", "retyped"])
def test_schema_drift_is_found_and_the_clean_twin_passes(
    workplace: Workplace, check: dict[str, Any], drift: Mapping[str, Any]
) -> None:
    pipeline = workplace.create(partitions=1, checks=[check])
    produce(pipeline, 20)
    run(pipeline, "clean twin")
    produce(pipeline, 20, dict.fromkeys(range(5, 20), drift))
    with pytest.raises(BatchBlockedError, match=check["type"]):
        run(pipeline, "drifted")
    assert pipeline.count_target_rows() == 20


@pytest.mark.parametrize("drift", [each for _, each in DRIFTS], ids=["renamed", "retyped"])
def test_without_the_check_a_schema_drift_goes_unseen(workplace: Workplace, drift: Mapping[str, Any]) -> None:
    """The negative control; the platform's own check would find the one whose records do not decode."""
    pipeline = workplace.create(partitions=1, quarantine={"max_share": 1})
    produce(pipeline, 20, dict.fromkeys(range(5, 20), drift))
    assert run(pipeline, "nobody looks").state is BatchState.PUBLISHED


def test_volume_that_drops_to_a_hundredth_is_found(workplace: Workplace) -> None:
    pipeline = workplace.create(partitions=1, checks=[RECENT])
    for number in range(6):
        produce(pipeline, 200)
        run(pipeline, f"usual {number}")
    assert own_checks(pipeline)[0].outcome is Outcome.PASSED
    produce(pipeline, 2)
    assert_found_by_the_check_alone(pipeline, r"2 rows, 0\.010 of the median 200 of 6 batches")


@pytest.mark.parametrize(
    "change",
    [lambda index: {"amount": 20 + index / 4}, lambda _: {"amount": None}, lambda _: {"name": None}],
    ids=["other numbers", "numbers turned null", "texts turned null"],
)
def test_values_that_are_distributed_otherwise_are_found(
    workplace: Workplace, change: Callable[[int], Mapping[str, Any]]
) -> None:
    (column,) = change(0)
    drift = {"type": "expect_column_distribution_to_stay_near_recent", "column": column, "max_distance": 0.3}
    pipeline = workplace.create(partitions=1, checks=[drift], source={"schema": SCHEMA})
    for number in range(6):
        produce(pipeline, 100)
        run(pipeline, f"usual {number}")
    assert own_checks(pipeline)[0].outcome is Outcome.PASSED
    produce(pipeline, 100, {index: change(index) for index in range(100)})
    reason = "the distance of the values to the 6 batches before|100.0% of the rows have no number, usually 0.0%"
    assert_found_by_the_check_alone(pipeline, reason)


def test_records_that_are_old_when_they_arrive_are_found(workplace: Workplace) -> None:
    young = {"type": "expect_newest_record_to_be_younger_than", "max_age": "1h"}
    pipeline = workplace.create(partitions=1, checks=[young])
    produce(pipeline, 10)
    run(pipeline, "clean twin")
    assert own_checks(pipeline)[0].outcome is Outcome.PASSED
    produce(pipeline, 10, timestamp=int((time.time() - 7200) * 1000))
    assert_found_by_the_check_alone(pipeline, "the newest record was 7,2")


def assert_found_by_the_check_alone(pipeline: TestPipeline, reason: str) -> None:
    """The next batch is blocked for this reason. The negative control: without the check the same one is published."""
    with pytest.raises(BatchBlockedError, match=reason):
        run(pipeline, "fault")
    ask_for(pipeline, [])
    batch = run_batch.run_once(pipeline.platform(), "nobody looks", newest_batch(pipeline))
    assert batch is not None
    assert batch.state is BatchState.PUBLISHED


def test_replay_of_old_records_is_not_compared_with_today(workplace: Workplace) -> None:
    pipeline = workplace.create(partitions=1)
    produce(pipeline, 10, timestamp=int((time.time() - 7200) * 1000))
    run(pipeline, "live")
    young = {"type": "expect_newest_record_to_be_younger_than", "max_age": "1h"}
    ask_for(pipeline, [young, NOT_NULL])
    platform = pipeline.platform()
    ranges = (OffsetRange(TopicPartition(pipeline.name, 0), 0, 10),)
    plan = Plan(ranges, 0, lane=Lane.REPLAY)
    batch = platform.ledger.store_replay(pipeline.name, plan, "again", Decision("ana", "again"), "again")
    assert run_batch.take_through(platform, batch.batch_id, "again").state is BatchState.PUBLISHED
    assert [each.name for each in own_checks(pipeline)] == [NAME]


def test_check_that_cannot_run_leaves_the_batch_staged_until_the_file_is_corrected(workplace: Workplace) -> None:
    missing = {"type": "expect_column_values_to_not_be_null", "column": "doubles"}
    pipeline = workplace.create(partitions=1, checks=[missing], transform="tests.transforms:keep_even")
    produce(pipeline, 10)
    with pytest.raises(CheckNotRunError, match='"doubles" in BatchData does not exist') as told:
        run(pipeline, "run")
    assert told.value.unjudged == ("expect_column_values_to_not_be_null(doubles)",)
    ((batch_id, state),) = pipeline.query(
        "select batch_id, state from batchledger.batch where pipeline = %s", pipeline.name
    )
    assert state == "staged"
    assert [each.outcome for each in own_checks(pipeline)] == [Outcome.NOT_RUN]
    pipeline.path.write_text(pipeline.path.read_text().replace("doubles", "doubled"))
    run_batch.audit(pipeline.platform(), batch_id, "run")
    assert run_batch.publish(pipeline.platform(), batch_id, "run").state is BatchState.PUBLISHED
    assert [each.outcome for each in own_checks(pipeline)] == [Outcome.PASSED]


def test_check_of_ones_own_that_cannot_be_built_is_refused_before_anything_is_staged(workplace: Workplace) -> None:
    module = "unbuildable_checks"
    (workplace.folder / f"{module}.py").write_text(
        "from great_expectations import expectations as gxe\n"
        "class ExpectUnbuildable(gxe.ExpectColumnValuesToBeInSet): ...\n"
    )
    pipeline = workplace.create(partitions=1, checks=[{"type": f"{module}:ExpectUnbuildable", "colum": "amount"}])
    produce(pipeline, 3)
    with pytest.raises(ConfigurationError, match="cannot be built from its arguments"):
        run(pipeline, "run")
    assert pipeline.list_staging() == []
