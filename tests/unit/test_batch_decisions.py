"""Decisions about one batch, and about whether a pipeline runs: accept, discard, take again, pause, trigger."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest

from batchledger.interfaces.cli.display.decisions import describe_decided
from batchledger.lifecycle import plans, run_batch
from batchledger.lifecycle.decisions import accept, discard, pause, rehearse, resume
from batchledger.lifecycle.platform import Platform
from batchledger.model.batch import (
    Attempt,
    Batch,
    BatchState,
    Decided,
    Decision,
    DecisionKind,
    DecisionRecord,
)
from batchledger.model.errors import (
    BatchBlockedError,
    DecisionRefusedError,
    FencedError,
    PipelinePausedError,
    StagingLostError,
    UnknownBatchError,
)
from batchledger.model.offsets import OffsetRange, TopicPartition
from batchledger.planning.live import Limits
from batchledger.planning.replay import Replay
from tests.fakes.crash import CrashOnce, SimulatedCrashError
from tests.fakes.decisions import MemoryDecisions
from tests.fakes.history import prove
from tests.fakes.work import Rows
from tests.fakes.world import PIPELINE, World, assert_exactly_once, catch_up, stage_and_audit, staged_twice

ORDERS_0, ORDERS_1 = TopicPartition("orders", 0), TopicPartition("orders", 1)
BY_ANA = Decision("ana@host", "the producer is known to lose records")
BY_BEN = Decision("ben@host", "once more")


def without_the_first(rows: Rows) -> Rows:
    """A fault: the first row of every range is lost."""
    return rows[1:]


def block(world: World, alter: Callable[[Rows], Rows] = without_the_first, run: str = "first") -> Batch:
    """Run a batch that its audit refuses."""
    platform = world.process(alter=alter)
    with pytest.raises(BatchBlockedError):
        run_batch.run_once(platform, run)
    batch = platform.ledger.find_open_batch(PIPELINE)
    assert batch is not None
    return batch


def record_of(decided: Decided) -> DecisionRecord:
    assert decided.record is not None
    return decided.record


def assert_proved(world: World) -> None:
    verification = prove(world.sink, PIPELINE)
    assert verification.holds, verification.findings


def test_accepted_batch_is_published_as_it_is_staged_and_its_gaps_are_an_accepted_loss(world: World) -> None:
    batch = block(world)
    record = record_of(accept(world.process(), batch.batch_id, BY_ANA))
    assert record.after is not None
    assert record.after["accepted_loss"] == {"orders[0] 0..10": 1, "orders[1] 0..5": 1}
    assert world.process().ledger.load_batch(batch.batch_id).state is BatchState.PUBLISHED
    assert len(world.times_published()) == 13
    assert world.database.committed.staging == {}
    assert_proved(world)


def test_acceptance_says_that_the_batch_was_published_after_what_it_has_changed(world: World) -> None:
    batch = block(world)
    decided = accept(world.process(), batch.batch_id, BY_ANA)
    shown = describe_decided(PIPELINE, DecisionKind.ACCEPT, decided, dry_run=False)
    text = "".join(map(str, shown.parts[1:]))
    assert text.startswith(f"Then {batch.label} was published.")


def test_accepting_twice_says_so_and_changes_nothing(world: World) -> None:
    batch = block(world)
    first = accept(world.process(), batch.batch_id, BY_ANA)
    assert accept(world.process(), batch.batch_id, BY_BEN) == Decided(first.record, is_new=False)
    assert len(world.times_published()) == 13


@pytest.mark.parametrize("point", ["rows_moved", "before_commit", "committed"])
def test_acceptance_that_was_interrupted_is_finished_by_repeating_it(world: World, point: str) -> None:
    batch = block(world)
    with pytest.raises(SimulatedCrashError):
        accept(world.process(CrashOnce(point)), batch.batch_id, BY_ANA)
    assert not accept(world.process(), batch.batch_id, BY_ANA).is_new
    assert world.process().ledger.load_batch(batch.batch_id).state is BatchState.PUBLISHED
    assert len(world.process().decisions.load_decisions(batch.batch_id)) == 1
    assert_proved(world)


def test_dry_run_of_an_acceptance_publishes_nothing(world: World) -> None:
    batch = block(world)
    told = accept(rehearse(world.process()), batch.batch_id, BY_ANA)
    assert record_of(told).before == {
        "attempt": 1,
        "state": "blocked",
        "unexplained": {"orders[0] 0..10": 1, "orders[1] 0..5": 1},
        "accepted_loss": {"orders[0] 0..10": 0, "orders[1] 0..5": 0},
    }
    assert world.process().ledger.load_batch(batch.batch_id) == batch
    with pytest.raises(SimulatedCrashError):
        accept(world.process(CrashOnce("before_commit")), batch.batch_id, BY_ANA)
    accept(rehearse(world.process()), batch.batch_id, BY_ANA)
    left = world.process().ledger.load_batch(batch.batch_id).state
    assert left is (BatchState.AUDITED if world.foreign is None else BatchState.COMMITTING)


def test_no_decision_makes_wrong_rows_right(world: World) -> None:
    batch = block(world, staged_twice)
    wrong = r"(?s)no_duplicate_offsets: rows that repeat an offset: 2.*Take it again"
    with pytest.raises(DecisionRefusedError, match=wrong):
        accept(world.process(), batch.batch_id, BY_ANA)
    assert world.process().ledger.load_batch(batch.batch_id).state is BatchState.BLOCKED


def test_batch_whose_staging_is_gone_has_to_be_taken_again(world: World) -> None:
    batch = block(world)
    with world.database.transaction() as tables:
        tables.staging = {key: replace(each, rows_by_task={}) for key, each in tables.staging.items()}
    with pytest.raises(StagingLostError, match="staging holds 0") as emptied:
        accept(world.process(), batch.batch_id, BY_ANA)
    world.process().sink.drop_staging(Attempt(batch, 1, "first"))
    with pytest.raises(StagingLostError, match=r"Staging of .* is gone") as dropped:
        accept(world.process(), batch.batch_id, BY_ANA)
    for lost in (emptied.value, dropped.value):
        assert lost.batch_id == batch.batch_id
        assert f"batchledger run {PIPELINE} --batch {batch.batch_id}" in str(lost)
    assert world.process().ledger.load_batch(batch.batch_id).state is BatchState.BLOCKED


def test_only_a_blocked_batch_is_accepted(world: World) -> None:
    planned = plans.plan(world.process(), "first")
    assert planned is not None
    with pytest.raises(DecisionRefusedError, match=r"is planned\. Only a blocked batch"):
        accept(world.process(), planned.batch_id, BY_ANA)
    run_batch.run_once(world.process(), "second")
    with pytest.raises(DecisionRefusedError, match="Attempt 1 of run second has published it") as refused:
        accept(world.process(), planned.batch_id, BY_ANA)
    assert refused.value.batch_id == planned.batch_id


def test_newer_attempt_fences_an_acceptance(world: World) -> None:
    """The newer attempt has not seen the decision: it is about rows that are not there any more."""
    batch = block(world)

    @dataclass(frozen=True)
    class LateDecisions(MemoryDecisions):
        def accept(self, attempt: Attempt, decision: Decision) -> Decided:
            world.process().ledger.open_attempt(batch.batch_id, "second")
            return super().accept(attempt, decision)

    late = replace(world.process(), decisions=LateDecisions(world.database))
    with pytest.raises(FencedError, match="Attempt 2 of run second"):
        accept(late, batch.batch_id, BY_ANA)
    assert world.times_published() == {}


def test_discarded_batch_is_planned_again_and_leaves_no_staging(world: World) -> None:
    batch = block(world)
    record = record_of(discard(world.process(), batch.batch_id, BY_ANA))
    assert (record.before, record.after) == ({"state": "blocked"}, {"state": "discarded"})
    assert (world.database.committed.staging, world.database.committed.evidence) == ({}, {})
    again = run_batch.run_once(world.process(), "second")
    assert again is not None
    assert (again.batch_id, again.ranges) == (batch.batch_id + 1, batch.ranges)
    assert_exactly_once(world)
    assert_proved(world)


def test_dry_run_of_discarding_keeps_what_is_staged(world: World) -> None:
    batch = block(world)
    assert discard(rehearse(world.process()), batch.batch_id, BY_ANA).is_new
    assert world.database.committed.staging != {}
    assert world.process().ledger.load_batch(batch.batch_id) == batch


def test_discarded_replay_changes_nothing(world: World) -> None:
    catch_up(world)
    ranges = (OffsetRange(ORDERS_0, 2, 5),)
    replay = plans.plan_replay(world.process(), Replay(ranges), "again", BY_ANA, "key")
    assert replay is not None
    run_batch.stage(world.process(), replay.batch_id, "again")
    discard(world.process(), replay.batch_id, BY_ANA)
    with pytest.raises(FencedError, match="discarded"):
        run_batch.audit(world.process(), replay.batch_id, "again")
    assert_exactly_once(world)
    assert_proved(world)


def test_batch_of_another_pipeline_is_left_alone_and_answered_as_one_that_is_not_there(world: World) -> None:
    batch = block(world)
    platform = world.process()
    other = replace(platform, rules=replace(platform.rules, name="other"))
    for decide in (accept, discard):
        said = []
        for number in (batch.batch_id, 404):
            with pytest.raises(UnknownBatchError, match=f"other has no batch {number}") as refused:
                decide(other, number, BY_ANA)
            said.append(str(refused.value).replace(str(number), "N"))
        assert said[0] == said[1]
    with pytest.raises(UnknownBatchError):
        plans.retake(other, batch.batch_id, "by-hand", BY_ANA)


def test_blocked_batch_is_taken_again_with_a_record_of_who_and_why(world: World) -> None:
    batch = block(world)
    taken = plans.retake(world.process(), batch.batch_id, "by-hand", BY_ANA)
    assert taken.batch_id == batch.batch_id
    run_batch.run_once(world.process(), "by-hand", taken.batch_id)
    (record,) = world.process().decisions.load_decisions(batch.batch_id)
    assert (record.kind, record.decided_by, record.reason) == ("retry", BY_ANA.decided_by, BY_ANA.reason)
    assert_exactly_once(world)
    assert plans.retake(world.process(), batch.batch_id, "by-hand", BY_ANA).state is BatchState.PUBLISHED
    with pytest.raises(FencedError):
        plans.retake(world.process(), batch.batch_id, "somebody else", BY_BEN)


def test_paused_pipeline_plans_nothing_and_its_open_batch_waits(world: World) -> None:
    planned = plans.plan(world.process(), "first")
    assert planned is not None
    run_batch.stage(world.process(), planned.batch_id, "first")
    assert pause(world.process(), BY_ANA).is_new
    assert not pause(world.process(), BY_BEN).is_new
    with pytest.raises(PipelinePausedError, match="ana@host paused it"):
        plans.plan(world.process(), "second")
    with pytest.raises(PipelinePausedError):
        plans.plan_replay(world.process(), Replay((OffsetRange(ORDERS_0, 0, 1),)), "second", BY_ANA, "key")
    run_batch.audit(world.process(), planned.batch_id, "first")
    run_batch.publish(world.process(), planned.batch_id, "first")
    assert resume(world.process(), BY_BEN).is_new
    assert plans.plan(world.process(), "second") is None
    assert_exactly_once(world)


@pytest.mark.parametrize("decide", [pause, resume])
def test_no_decision_without_a_reason(world: World, decide: Callable[[Platform, Decision], Decided]) -> None:
    with pytest.raises(DecisionRefusedError, match="needs a reason"):
        decide(world.process(), Decision("ana@host", " "))


@pytest.mark.parametrize(("max_records", "offsets"), [(4, 4), (12, 12), (None, 6)])
def test_one_batch_is_triggered_with_another_limit_and_says_who_asked(max_records: int | None, offsets: int) -> None:
    world = World(limits=Limits(max_records=6))
    world.broker.create_topic("orders", 1)
    world.produce(ORDERS_0, 20)
    batch = plans.plan(world.process(), "manual", max_records=max_records, decision=BY_ANA)
    assert batch is not None
    assert sum(len(each) for each in batch.ranges) == offsets
    (record,) = world.process().decisions.load_decisions(batch.batch_id)
    assert (record.kind, record.decided_by, record.reason) == ("trigger", BY_ANA.decided_by, BY_ANA.reason)


def test_plan_that_nobody_triggered_has_no_decision(world: World) -> None:
    batch = plans.plan(world.process(), "scheduled")
    assert batch is not None
    assert list(world.process().decisions.load_decisions(batch.batch_id)) == []


@pytest.fixture
def open_batch() -> tuple[World, Batch]:
    """A batch of six offsets that another run has planned; more are unread."""
    world = World(limits=Limits(max_records=6))
    world.broker.create_topic("orders", 1)
    world.produce(ORDERS_0, 20)
    batch = plans.plan(world.process(), "scheduled")
    assert batch is not None
    return world, batch


def test_whoever_triggers_a_run_that_takes_an_open_batch_is_recorded_on_it(open_batch: tuple[World, Batch]) -> None:
    world, batch = open_batch
    for _ in range(2):
        assert plans.plan(world.process(), "manual", max_records=6, decision=BY_ANA) == batch
    (record,) = world.process().decisions.load_decisions(batch.batch_id)
    assert (record.kind, record.decided_by, record.reason) == ("trigger", BY_ANA.decided_by, BY_ANA.reason)


def test_limit_that_comes_too_late_for_an_open_batch_is_refused_with_what_to_do(
    open_batch: tuple[World, Batch],
) -> None:
    world, batch = open_batch
    with pytest.raises(DecisionRefusedError, match="is open with 6 offsets; max_records asks for 5") as refused:
        plans.plan(world.process(), "manual", max_records=5, decision=BY_ANA)
    assert refused.value.batch_id == batch.batch_id
    assert f"batchledger run {PIPELINE} --batch {batch.batch_id}\nThen" in str(refused.value)
    assert list(world.process().decisions.load_decisions(batch.batch_id)) == []
    catch_up(world)
    assert_exactly_once(world)


def test_audited_batch_without_visible_rows_is_not_accepted(world: World) -> None:
    batch = stage_and_audit(world.process(), "first")
    with pytest.raises(DecisionRefusedError, match=r"is audited\. Only a blocked batch"):
        accept(world.process(), batch.batch_id, BY_ANA)
