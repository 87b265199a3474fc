"""What the checks of a pipeline file do to a batch, over everything in memory: policies, crashes, retries."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from batchledger.lifecycle import decisions, run_batch
from batchledger.lifecycle.plans import plan
from batchledger.lifecycle.platform import Platform
from batchledger.model.batch import Attempt, Batch, BatchState, Decision, DeliveryMode
from batchledger.model.checks import CheckResult, OnFailure, Outcome, Severity
from batchledger.model.errors import (
    BatchBlockedError,
    CheckNotRunError,
    ConfigurationError,
    ServiceUnavailableError,
    TopicChangedError,
)
from batchledger.model.offsets import TopicPartition
from tests.fakes.crash import CrashOnce, Interrupt, SimulatedCrashError
from tests.fakes.row_checks import RowTest
from tests.fakes.source import ids_of
from tests.fakes.world import World, assert_exactly_once

ORDERS = TopicPartition("orders", 0)
RUN = "run-1"


def is_good(row: Mapping[str, Any]) -> bool:
    return not str(row["message_id"]).startswith("bad")


def breaks(row: Mapping[str, Any]) -> bool:
    return row == 1 // 0


def world_with(*tests: RowTest, ids: tuple[str, ...] = ("a", "bad-1", "b", "bad-2", "c")) -> World:
    world = World(row_tests=tests)
    world.broker.create_topic("orders", 1)
    world.broker.append(ORDERS, *(f'{{"message_id": "{each}"}}'.encode() for each in ids))
    return world


def visible_ids(world: World) -> list[str]:
    return [row["message_id"] for row in world.sink.read_target()]


def quarantined(world: World) -> dict[int, Mapping[str, Any]]:
    return {offset: row for (_, _, offset), row in world.database.committed.quarantine.items()}


def outcomes(world: World, batch_id: int = 1) -> dict[str, Outcome]:
    return {
        each.name: each.outcome for each in world.process().ledger.load_checks(batch_id) if each.suite == "pipeline"
    }


def staged(platform: Platform) -> int:
    batch = plan(platform, RUN)
    assert batch is not None
    run_batch.stage(platform, batch.batch_id, RUN)
    return batch.batch_id


def test_critical_check_that_fails_blocks_the_batch_and_moves_nothing() -> None:
    world = world_with(RowTest("good", is_good))
    with pytest.raises(BatchBlockedError, match="good: 2 rows fail"):
        run_batch.run_once(world.process(), RUN)
    assert visible_ids(world) == []
    assert [each.next_offset for each in world.process().ledger.load_positions("orders_copy")] == [0]


@pytest.mark.parametrize("severity", [Severity.WARNING, Severity.INFO])
def test_failed_check_of_lower_severity_is_recorded_and_published(severity: Severity) -> None:
    world = world_with(RowTest("good", is_good, severity))
    run_batch.run_once(world.process(), RUN)
    assert len(visible_ids(world)) == 5
    assert outcomes(world) == {"good": Outcome.FAILED}


def test_policy_publish_records_the_failure_and_publishes_everything() -> None:
    world = world_with(RowTest("good", is_good, on_failure=OnFailure.PUBLISH))
    run_batch.run_once(world.process(), RUN)
    assert len(visible_ids(world)) == 5
    assert outcomes(world) == {"good": Outcome.FAILED}
    assert quarantined(world) == {}


def test_policy_quarantine_sets_exactly_the_failing_rows_aside_and_the_balance_closes() -> None:
    world = world_with(RowTest("good", is_good, on_failure=OnFailure.QUARANTINE))
    batch = run_batch.run_once(world.process(), RUN)
    assert batch is not None
    assert visible_ids(world) == ["a", "b", "c"]
    assert {offset: row["value"] for offset, row in quarantined(world).items()} == {
        1: b'{"message_id": "bad-1"}',
        3: b'{"message_id": "bad-2"}',
    }
    assert quarantined(world)[1]["error"] == "check good: the row does not pass it"
    (balance,) = world.database.committed.batches[batch.batch_id].balances
    assert (balance.accepted, balance.quarantined, balance.unexplained) == (3, 2, 0)
    (check,) = [each for each in world.process().ledger.load_checks(batch.batch_id) if each.name == "good"]
    assert (check.outcome, check.blocks) == (Outcome.FAILED, False)
    assert "set aside: 2 records that did not pass, for example orders[0]@1, orders[0]@3" in check.detail


def test_row_that_fails_two_checks_is_set_aside_once_with_both_names() -> None:
    tests = [RowTest(name, is_good, on_failure=OnFailure.QUARANTINE) for name in ("first", "second")]
    world = world_with(*tests)
    run_batch.run_once(world.process(), RUN)
    assert quarantined(world)[1]["error"] == "check first, second: the row does not pass it"
    assert outcomes(world) == {"first": Outcome.FAILED, "second": Outcome.FAILED}


def test_row_that_is_set_aside_no_longer_fails_a_check_that_blocks() -> None:
    world = world_with(RowTest("strict", is_good), RowTest("good", is_good, on_failure=OnFailure.QUARANTINE))
    run_batch.run_once(world.process(), RUN)
    assert outcomes(world) == {"good": Outcome.FAILED, "strict": Outcome.PASSED}


@pytest.mark.parametrize("point", ["set_aside", "rows_removed", "audited"])
def test_crash_while_setting_aside_is_repeated_to_the_same_end(point: str) -> None:
    world = world_with(RowTest("good", is_good, on_failure=OnFailure.QUARANTINE))
    batch_id = staged(world.process())
    with pytest.raises(SimulatedCrashError):
        run_batch.audit(world.process(CrashOnce(point)), batch_id, RUN)
    run_batch.audit(world.process(), batch_id, RUN)
    run_batch.publish(world.process(), batch_id, RUN)
    assert visible_ids(world) == ["a", "b", "c"]
    assert sorted(quarantined(world)) == [1, 3]
    assert outcomes(world) == {"good": Outcome.FAILED}


@pytest.mark.parametrize("point", ["set_aside", "rows_removed"])
def test_new_attempt_after_a_crash_while_setting_aside_starts_anew(point: str) -> None:
    world = world_with(RowTest("good", is_good, on_failure=OnFailure.QUARANTINE))
    batch_id = staged(world.process())
    with pytest.raises(SimulatedCrashError):
        run_batch.audit(world.process(CrashOnce(point)), batch_id, RUN)
    run_batch.run_once(world.process(), "run-2", batch_id)
    assert visible_ids(world) == ["a", "b", "c"]
    assert sorted(quarantined(world)) == [1, 3]


def test_twin_of_the_audit_that_was_faster_leaves_the_same() -> None:
    """S4: Airflow may run a task twice at the same time."""
    world = world_with(RowTest("good", is_good, on_failure=OnFailure.QUARANTINE))
    batch_id = staged(world.process())
    twin = Interrupt("set_aside", lambda: run_batch.audit(world.process(), batch_id, RUN))
    run_batch.audit(world.process(twin), batch_id, RUN)
    run_batch.publish(world.process(), batch_id, RUN)
    assert visible_ids(world) == ["a", "b", "c"]
    assert sorted(quarantined(world)) == [1, 3]


def test_more_failing_rows_than_may_be_set_aside_block() -> None:
    world = world_with(RowTest("good", is_good, on_failure=OnFailure.QUARANTINE, bound=1))
    with pytest.raises(BatchBlockedError, match="more than 100,000 rows") as blocked:
        run_batch.run_once(world.process(), RUN)
    assert blocked.value.failed == ("good",)
    assert (visible_ids(world), quarantined(world)) == ([], {})


def test_check_that_names_no_failing_row_blocks() -> None:
    world = world_with(RowTest("good", is_good, on_failure=OnFailure.QUARANTINE, bound=0))
    with pytest.raises(BatchBlockedError, match="the failing rows cannot be named"):
        run_batch.run_once(world.process(), RUN)


def test_row_whose_record_has_expired_cannot_be_set_aside_and_blocks() -> None:
    world = world_with(RowTest("good", is_good, on_failure=OnFailure.QUARANTINE))
    batch_id = staged(world.process())
    world.broker.expire(ORDERS, 2)
    with pytest.raises(BatchBlockedError, match=r"1\.\.2 cannot be set aside: Kafka") as blocked:
        run_batch.audit(world.process(), batch_id, RUN)
    assert blocked.value.failed == ("good",)
    assert (visible_ids(world), quarantined(world)) == ([], {})


def test_records_of_a_topic_that_was_created_anew_are_not_set_aside() -> None:
    """Offsets of another topic have other bytes; they would stand in quarantine as if they had failed."""
    world = world_with(RowTest("good", is_good, on_failure=OnFailure.QUARANTINE))
    batch_id = staged(world.process())
    world.broker.create_topic("orders", 1)
    world.broker.append(ORDERS, *[b"of another topic"] * 5)
    with pytest.raises(TopicChangedError) as refused:
        run_batch.audit(world.process(), batch_id, RUN)
    assert ids_of(refused.value) == ("topic-1", "topic-2")
    assert world.process().evidence.list_set_aside(Attempt(world.process().ledger.load_batch(1), 1, RUN)) == []


def test_broker_that_is_down_while_rows_are_set_aside_is_waited_for() -> None:
    world = world_with(RowTest("good", is_good, on_failure=OnFailure.QUARANTINE))
    batch_id = staged(world.process())
    world.broker.is_down = True
    with pytest.raises(ServiceUnavailableError):
        run_batch.audit(world.process(), batch_id, RUN)
    world.broker.is_down = False
    run_batch.audit(world.process(), batch_id, RUN)
    run_batch.publish(world.process(), batch_id, RUN)
    assert visible_ids(world) == ["a", "b", "c"]


def test_critical_check_that_cannot_run_leaves_the_batch_staged_and_its_results_stored() -> None:
    world = world_with(RowTest("broken", breaks), RowTest("good", is_good, Severity.WARNING))
    with pytest.raises(CheckNotRunError, match="broken: divided by zero") as told:
        run_batch.run_once(world.process(), RUN)
    assert (told.value.batch_id, told.value.unjudged) == (1, ("broken",))
    assert world.process().ledger.load_batch(1).state is BatchState.STAGED
    assert outcomes(world) == {"broken": Outcome.NOT_RUN, "good": Outcome.FAILED}
    assert visible_ids(world) == []


def test_audit_is_run_again_after_the_check_was_corrected() -> None:
    world = world_with(RowTest("broken", breaks))
    with pytest.raises(CheckNotRunError):
        run_batch.run_once(world.process(), RUN)
    world.row_tests = [RowTest("corrected", lambda row: True)]
    run_batch.audit(world.process(), 1, RUN)
    run_batch.publish(world.process(), 1, RUN)
    assert_exactly_once(world)
    assert outcomes(world) == {"corrected": Outcome.PASSED}


def results(world: World) -> dict[str, CheckResult]:
    return {each.name: each for each in world.process().ledger.load_checks(1)}


def test_records_stay_aside_and_are_told_when_the_audit_is_repeated_without_any_checks() -> None:
    """Setting aside was done, another check could not run, and a person took the checks out of the file."""
    world = world_with(RowTest("good", is_good, on_failure=OnFailure.QUARANTINE), RowTest("broken", breaks))
    with pytest.raises(CheckNotRunError):
        run_batch.run_once(world.process(), RUN)
    world.row_tests = ()
    assert run_batch.audit(world.process(), 1, RUN).state is BatchState.AUDITED
    told = results(world)["good"]
    assert (told.outcome, told.blocks, told.observed["set_aside"]) == (Outcome.FAILED, False, 2)
    assert "2 records were set aside by an earlier audit of this attempt" in told.detail
    assert "judged anew with: batchledger run orders_copy --batch 1" in told.detail
    assert "for example orders[0]@1, orders[0]@3" in told.detail
    run_batch.publish(world.process(), 1, RUN)
    assert visible_ids(world) == ["a", "b", "c"]
    assert sorted(quarantined(world)) == [1, 3]


@pytest.mark.parametrize("corrected", [(), (RowTest("good", lambda row: True, on_failure=OnFailure.QUARANTINE),)])
def test_record_whose_row_a_crash_has_left_is_on_one_side_only_after_the_check_was_corrected(
    corrected: tuple[RowTest, ...],
) -> None:
    world = world_with(RowTest("good", is_good, on_failure=OnFailure.QUARANTINE))
    batch_id = staged(world.process())
    with pytest.raises(SimulatedCrashError):
        run_batch.audit(world.process(CrashOnce("set_aside")), batch_id, RUN)
    world.row_tests = corrected
    run_batch.audit(world.process(), batch_id, RUN)
    run_batch.publish(world.process(), batch_id, RUN)
    assert visible_ids(world) == ["a", "b", "c"]
    assert sorted(quarantined(world)) == [1, 3]


def test_check_that_was_corrected_says_that_records_lie_aside_for_what_it_was_before() -> None:
    world = world_with(RowTest("good", is_good, on_failure=OnFailure.QUARANTINE))
    batch_id = staged(world.process())
    with pytest.raises(SimulatedCrashError):
        run_batch.audit(world.process(CrashOnce("rows_removed")), batch_id, RUN)
    world.row_tests = [RowTest("good", lambda row: row["message_id"] != "a", on_failure=OnFailure.QUARANTINE)]
    run_batch.audit(world.process(), batch_id, RUN)
    told = results(world)["good"].detail
    assert "set aside: 3 records that did not pass; 2 of them by an earlier audit of this attempt" in told
    assert "judged anew with: batchledger run orders_copy --batch 1" in told


def test_batch_that_is_taken_again_after_the_check_was_corrected_starts_afresh() -> None:
    world = world_with(RowTest("good", is_good, on_failure=OnFailure.QUARANTINE))
    batch_id = staged(world.process())
    with pytest.raises(SimulatedCrashError):
        run_batch.audit(world.process(CrashOnce("rows_removed")), batch_id, RUN)
    world.row_tests = [RowTest("good", lambda row: True, on_failure=OnFailure.QUARANTINE)]
    run_batch.run_once(world.process(), "run-2", batch_id)
    assert_exactly_once(world)
    assert outcomes(world) == {"good": Outcome.PASSED}


def test_check_that_cannot_run_beside_one_that_fails_blocks() -> None:
    world = world_with(RowTest("broken", breaks), RowTest("good", is_good))
    with pytest.raises(BatchBlockedError, match="good: 2 rows fail"):
        run_batch.run_once(world.process(), RUN)


@pytest.mark.parametrize("severity", [Severity.WARNING, Severity.INFO])
def test_check_of_lower_severity_that_cannot_run_is_told_and_the_batch_published(severity: Severity) -> None:
    world = world_with(RowTest("broken", breaks, severity))
    run_batch.run_once(world.process(), RUN)
    assert_exactly_once(world)
    assert outcomes(world) == {"broken": Outcome.NOT_RUN}


def test_batch_without_rows_passes_nothing() -> None:
    world = world_with(RowTest("good", is_good), ids=())
    world.broker.append(ORDERS, b"no json", b"no json either")
    run_batch.run_once(world.process(), RUN)
    assert outcomes(world) == {"good": Outcome.EMPTY}


def test_check_that_cannot_be_judged_is_refused_before_anything_is_staged() -> None:
    world = world_with(RowTest("good", is_good, is_usable=False))
    with pytest.raises(ConfigurationError, match="good"):
        run_batch.run_once(world.process(), RUN)
    assert world.database.committed.staging == {}
    assert "good" in str(world.process().ledger.find_failure(world.process().ledger.load_batch(1)))


def test_check_that_cannot_be_judged_takes_nothing_from_a_blocked_batch() -> None:
    world = world_with(RowTest("good", is_good))
    with pytest.raises(BatchBlockedError):
        run_batch.run_once(world.process(), RUN)
    staged = world.database.committed.staging
    world.row_tests = (RowTest("good", is_good, is_usable=False),)
    with pytest.raises(ConfigurationError, match="good"):
        run_batch.run_once(world.process(), "again", 1)
    batch = world.process().ledger.load_batch(1)
    assert (batch.state, batch.attempt) == (BatchState.BLOCKED, 1)
    assert world.database.committed.staging == staged


@pytest.mark.parametrize("requirement", ["require_secret", "require_known_erasures"])
def test_hash_that_would_not_be_known_again_takes_nothing_from_a_blocked_batch(requirement: str) -> None:
    world = world_with(RowTest("good", is_good))
    with pytest.raises(BatchBlockedError):
        run_batch.run_once(world.process(), RUN)
    staged = world.database.committed.staging

    def refuse(*_: Batch) -> None:
        raise ConfigurationError("not known again")

    with pytest.raises(ConfigurationError, match="not known again"):
        run_batch.run_once(replace(world.process(), **{requirement: refuse}), "again", 1)
    batch = world.process().ledger.load_batch(1)
    assert (batch.state, batch.attempt) == (BatchState.BLOCKED, 1)
    assert world.database.committed.staging == staged


def test_blocked_batch_that_a_person_accepts_is_published_whole() -> None:
    world = world_with(RowTest("good", is_good))
    with pytest.raises(BatchBlockedError):
        run_batch.run_once(world.process(), RUN)
    decisions.accept(world.process(), 1, Decision("ana", "known"))
    assert_exactly_once(world)


@pytest.mark.parametrize("delivery", DeliveryMode)
def test_rows_are_set_aside_in_every_delivery_mode(delivery: DeliveryMode) -> None:
    world = world_with(RowTest("good", is_good, on_failure=OnFailure.QUARANTINE))
    world.delivery = delivery
    run_batch.run_once(world.process(), RUN)
    assert visible_ids(world) == ["a", "b", "c"]
