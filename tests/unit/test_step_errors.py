"""A step that fails leaves its error where people look: on the attempt, in ``status``, in the incident."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime

import pytest

from batchledger.lifecycle import run_batch
from batchledger.lifecycle.platform import Deadlines, Platform
from batchledger.model.batch import BatchState, Step, StepFailure
from batchledger.model.claims import PreparedRows
from batchledger.model.errors import (
    BatchBlockedError,
    BatchledgerError,
    FencedError,
    RowsRefusedError,
    ServiceUnavailableError,
    StagingLostError,
)
from batchledger.model.findings import PipelineState
from batchledger.model.presence import NO_PATIENCE
from batchledger.monitoring.conditions import find_conditions
from batchledger.monitoring.health import survey
from batchledger.ports import RowsToPublish
from tests.fakes.crash import Interrupt
from tests.fakes.incidents import MemoryIncidents
from tests.fakes.sink import MemorySink
from tests.fakes.world import PIPELINE, World, assert_exactly_once, catch_up, stage_and_audit

NOW = datetime(2026, 1, 1, tzinfo=UTC)
DISK_FULL = "the disk is full."


@dataclass(frozen=True)
class FailingSink(MemorySink):
    """A target that does not take rows now."""

    error: Callable[[str], BatchledgerError] = ServiceUnavailableError

    def publish(self, rows: RowsToPublish) -> PreparedRows:
        raise self.error(DISK_FULL)


def failing(world: World, step: Step, error: Callable[[str], BatchledgerError] = ServiceUnavailableError) -> Platform:
    """A process of which this step ends with an error."""
    platform = world.process()

    def fail() -> None:
        raise error(DISK_FULL)

    if step is Step.PUBLISH:
        return replace(platform, sink=FailingSink(world.database, "orders", error=error))
    if step is Step.AUDIT:
        return replace(platform, make_auditor=fail)  # type: ignore[arg-type]
    return replace(platform, make_stager=fail)  # type: ignore[arg-type]


def failure_of(world: World) -> StepFailure | None:
    ledger = world.process().ledger
    return ledger.find_failure(ledger.load_batch(1))


def find_incidents(world: World) -> list[str]:
    stored, health = MemoryIncidents(world.database).load_facts(PIPELINE), survey(world.process(), NOW)
    found = find_conditions(stored, health, Deadlines(), NOW).found
    return [" ".join((each.title, *each.lines)) for each in found]


@pytest.mark.parametrize("step", Step)
def test_error_of_every_step_is_on_its_attempt_and_in_the_status(world: World, step: Step) -> None:
    with pytest.raises(ServiceUnavailableError):
        run_batch.run_once(failing(world, step), "run-1")
    assert failure_of(world) == StepFailure(step, DISK_FULL)
    found = survey(world.process(), NOW)
    assert (found.state, found.detail) == (PipelineState.FAILING, f"batch 1 of {PIPELINE}, {step} step: {DISK_FULL}")


@pytest.mark.parametrize("step", Step)
def test_incident_says_which_step_it_is_that_fails_run_after_run(world: World, step: Step) -> None:
    for run in ("run-1", "run-2"):
        with pytest.raises(ServiceUnavailableError):
            run_batch.run_once(failing(world, step), run)
    (told,) = find_incidents(world)
    assert "failing — 2 attempts in a row" in told
    assert f"the newest error is of its {step} step" in told
    assert DISK_FULL not in told
    catch_up(world)
    assert find_incidents(world) == []
    assert_exactly_once(world)


@pytest.mark.parametrize("step", [Step.AUDIT, Step.PUBLISH])
def test_step_that_failed_is_repeated_by_its_own_attempt_and_takes_its_error_away(world: World, step: Step) -> None:
    with pytest.raises(ServiceUnavailableError):
        run_batch.run_once(failing(world, step), "run-1")
    run_batch.audit(world.process(), 1, "run-1")
    batch = run_batch.publish(world.process(), 1, "run-1")
    assert (batch.state, batch.attempt, failure_of(world)) == (BatchState.PUBLISHED, 1, None)
    assert_exactly_once(world)


def test_error_of_a_run_that_was_overtaken_is_not_told_of_the_one_that_goes_on(world: World) -> None:
    world.patience = NO_PATIENCE

    def overtake() -> None:
        stage_and_audit(world.process(), "run-2")

    with pytest.raises(FencedError):
        run_batch.run_once(world.process(crash=Interrupt("audited", overtake)), "run-1")
    assert failure_of(world) is None
    assert survey(world.process(), NOW).state is not PipelineState.FAILING


def test_ledger_that_takes_no_error_does_not_hide_it(world: World, caplog: pytest.LogCaptureFixture) -> None:
    platform = failing(world, Step.PUBLISH, StagingLostError)
    ledger = platform.ledger

    class Deaf(type(ledger)):  # type: ignore[misc]
        def mark_failed(self, *_: object) -> None:
            raise ServiceUnavailableError("the ledger is away")

    with pytest.raises(StagingLostError, match=DISK_FULL):
        run_batch.run_once(replace(platform, ledger=Deaf(world.database)), "run-1")
    assert "is not in the ledger: the ledger is away" in caplog.text


@pytest.mark.parametrize("step", Step)
def test_rows_that_are_refused_block_the_batch_whichever_step_finds_out(world: World, step: Step) -> None:
    """Tried again they would be refused again."""
    with pytest.raises(BatchBlockedError, match=f"accepted_by_target: {DISK_FULL[:-1]}"):
        run_batch.run_once(failing(world, step, RowsRefusedError), "run-1")
    assert world.process().ledger.load_batch(1).state is BatchState.BLOCKED
    assert failure_of(world) is None
    with pytest.raises(BatchBlockedError, match="accepted_by_target"):
        run_batch.run_once(world.process(), "the next run")
    assert world.process().ledger.load_batch(1).attempt == 1
    run_batch.run_once(world.process(), "by a person", 1)
    assert_exactly_once(world)
