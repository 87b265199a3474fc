"""A sink that commits by itself, and a ledger that confirms it: the outcome is found by asking, never guessed (I9)."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from batchledger.lifecycle import delivery, plans, run_batch
from batchledger.lifecycle.decisions import discard
from batchledger.lifecycle.delivery import deliver
from batchledger.lifecycle.platform import Platform
from batchledger.model.batch import Attempt, Batch, BatchState, Decision, DeliveryMode
from batchledger.model.checks import ACCEPTED_BY_TARGET
from batchledger.model.errors import (
    BatchBlockedError,
    FencedError,
    OutcomePendingError,
    OutcomeUnknownError,
    ServiceUnavailableError,
    StagingLostError,
    TargetChangedError,
    TargetRefusedError,
)
from batchledger.model.offsets import OffsetRange
from batchledger.model.presence import NO_PATIENCE
from batchledger.planning.replay import Replay
from batchledger.ports import CommittingSink, RowsToPublish
from tests.fakes.crash import CrashOnce, Interrupt, PassedPoints, SimulatedCrashError
from tests.fakes.database import MemoryDatabase
from tests.fakes.foreign_sink import ForeignStore, MemoryForeignSink
from tests.fakes.ledger import CommitFault, MemoryLedger
from tests.fakes.publication import MemoryPublication
from tests.fakes.sink import MemorySink
from tests.fakes.world import ORDERS_0, ORDERS_1, World, assert_exactly_once, catch_up, stage_and_audit

ANA = Decision("ana@host", "the run is gone for good")


@pytest.fixture
def world() -> World:
    """Two partitions with ten and five records, nothing published; the sink commits by itself."""
    world = World(foreign=ForeignStore())
    world.broker.create_topic("orders", 2)
    world.produce(ORDERS_0, 10)
    world.produce(ORDERS_1, 5)
    return world


def crash(world: World, point: str) -> None:
    """Let a run die at a point of the next batch."""
    with pytest.raises(SimulatedCrashError):
        run_batch.run_once(world.process(crash=CrashOnce(point)), "run-1")


def state(world: World) -> BatchState:
    return world.process().ledger.load_batch(1).state


def with_sink(world: World, kind: type[MemoryForeignSink]) -> Platform:
    """A process whose sink is of another kind, over the same store."""
    sink = world.sink
    assert isinstance(sink, MemoryForeignSink)
    return replace(world.process(), sink=kind(sink.database, sink.table, store=sink.store))


@pytest.mark.parametrize("run", ["run-1", "run-2"])
def test_what_the_sink_has_committed_is_confirmed_and_not_committed_again(world: World, run: str) -> None:
    crash(world, "sink_committed")
    assert state(world) is BatchState.COMMITTING
    store = world.foreign
    assert store is not None
    target = store.target
    batch = run_batch.run_once(world.process(), run, 1)
    assert batch is not None
    assert (batch.state, batch.attempt, batch.attempt_run) == (BatchState.PUBLISHED, 1, run)
    assert store.target is target, "the sink was written to again"
    assert_exactly_once(world)


@pytest.mark.parametrize("point", ["announced", "positions_moved", "rows_moved", "before_commit"])
@pytest.mark.parametrize("run", ["run-1", "run-2"])
def test_what_the_sink_has_not_committed_is_committed_from_the_same_staging(world: World, run: str, point: str) -> None:
    crash(world, point)
    passed = PassedPoints()
    batch = run_batch.run_once(world.process(crash=passed), run, 1)
    assert batch is not None
    assert (batch.state, batch.attempt) == (BatchState.PUBLISHED, 1)
    assert "attempt_opened" not in passed.points
    assert_exactly_once(world)


def test_negative_control_a_sink_that_cannot_be_asked_is_written_to_twice(world: World) -> None:
    class ForgetfulSink(MemoryForeignSink):
        def find_commit(self, attempt: Attempt) -> bool:
            return False

    crash(world, "sink_committed")
    run_batch.run_once(with_sink(world, ForgetfulSink), "run-2", 1)
    assert set(world.times_published().values()) == {2}


def forget(world: World) -> None:
    """Let the sink not know at once what it has committed."""
    assert world.foreign is not None
    world.foreign.is_forgotten = True


def assert_no_transaction(world: World) -> None:
    """The next one need not wait for any."""
    assert world.database._writer.acquire(blocking=False), "a transaction of the ledger waits for the search"
    world.database._writer.release()


@pytest.mark.parametrize("point", ["announced", "sink_committed"])
@pytest.mark.parametrize("run", ["run-1", "run-2"])
def test_sink_searches_for_what_it_has_forgotten_while_no_transaction_of_the_ledger_waits(
    world: World, run: str, point: str
) -> None:
    searched: list[tuple[int, ...] | None] = []

    class SearchingSink(MemoryForeignSink):
        def search_commit(self, attempt: Attempt) -> None:
            assert_no_transaction(world)
            searched.append(attempt.batch.announced_ends)
            super().search_commit(attempt)

    crash(world, point)
    forget(world)
    batch = run_batch.run_once(with_sink(world, SearchingSink), run, 1)
    assert batch is not None
    assert (batch.state, batch.attempt) == (BatchState.PUBLISHED, 1)
    assert searched == [(0,)]
    assert_exactly_once(world)


def test_sink_that_does_not_know_what_it_has_just_committed_searches_with_what_was_announced(world: World) -> None:
    """The attempt was opened before the announcement; the search needs the batch as it is now."""
    searched: list[tuple[int, ...] | None] = []

    class ForgetfulSink(SilentSink):
        def commit(self, rows: RowsToPublish) -> None:
            forget(world)
            super().commit(rows)

        def search_commit(self, attempt: Attempt) -> None:
            searched.append(attempt.batch.announced_ends)
            super().search_commit(attempt)

    batch = run_batch.run_once(with_sink(world, ForgetfulSink), "run-1")
    assert batch is not None
    assert batch.state is BatchState.PUBLISHED
    assert searched == [(0,)]
    assert_exactly_once(world)


def test_sink_that_knows_at_once_does_not_search(world: World) -> None:
    class KnowingSink(MemoryForeignSink):
        def search_commit(self, attempt: Attempt) -> None:
            raise AssertionError("a search may take long")

    crash(world, "sink_committed")
    run_batch.run_once(with_sink(world, KnowingSink), "run-2", 1)
    assert_exactly_once(world)


@pytest.mark.parametrize("left", ["by itself", "to the batch after it"])
def test_commit_between_the_search_and_the_transaction_is_seen(world: World, left: str) -> None:
    """The search says no; a twin commits and dies; then the ledger lets the searcher in."""
    catch_up(world)
    batch_id = audited_replay(world)
    with pytest.raises(SimulatedCrashError):
        run_batch.publish(world.process(crash=CrashOnce("announced")), batch_id, "again")
    world.produce(ORDERS_0, 3)
    forget(world)

    class OvertakenSink(MemoryForeignSink):
        def search_commit(self, attempt: Attempt) -> None:
            super().search_commit(attempt)
            with pytest.raises(SimulatedCrashError):
                run_batch.publish(world.process(crash=CrashOnce("sink_committed")), batch_id, "again")

    if left == "by itself":
        run_batch.publish(with_sink(world, OvertakenSink), batch_id, "again")
    else:
        run_batch.run_once(with_sink(world, OvertakenSink), "run-2")
    assert world.process().ledger.load_batch(batch_id).state is BatchState.PUBLISHED
    catch_up(world)
    assert_exactly_once(world)


def test_negative_control_answer_of_the_search_that_is_believed_later_takes_a_commit_back(world: World) -> None:
    class BelievingSink(MemoryForeignSink):
        def search_commit(self, attempt: Attempt) -> None:
            super().search_commit(attempt)
            # What is found from now on is what was found then.
            found = super().find_commit(attempt)
            type(self).find_commit = lambda *_: found  # type: ignore[method-assign]
            with pytest.raises(SimulatedCrashError):
                run_batch.publish(world.process(crash=CrashOnce("sink_committed")), 1, "run-2")

    crash(world, "announced")
    forget(world)
    run_batch.run_once(with_sink(world, BelievingSink), "run-2", 1)
    assert set(world.times_published().values()) == {2}


def test_answer_that_is_forgotten_again_before_the_transaction_is_looked_for_by_the_next_run(world: World) -> None:
    class ForgettingSink(MemoryForeignSink):
        def search_commit(self, attempt: Attempt) -> None:
            pass

    crash(world, "sink_committed")
    forget(world)
    with pytest.raises(
        ServiceUnavailableError, match=r"whether batch 1 of orders_copy was committed(.|\n)*and was deleted"
    ):
        run_batch.run_once(with_sink(world, ForgettingSink), "run-2", 1)
    assert state(world) is BatchState.COMMITTING
    catch_up(world, "run-3")
    assert_exactly_once(world)


def test_failed_search_leaves_the_question_open(world: World) -> None:
    class HiddenSink(MemoryForeignSink):
        def search_commit(self, attempt: Attempt) -> None:
            raise ServiceUnavailableError("behind an open transaction of somebody else")

    crash(world, "sink_committed")
    forget(world)
    with pytest.raises(ServiceUnavailableError, match="behind an open transaction"):
        run_batch.run_once(with_sink(world, HiddenSink), "run-2", 1)
    assert state(world) is BatchState.COMMITTING
    catch_up(world, "run-3")
    assert_exactly_once(world)


def test_other_target_is_not_searched(world: World) -> None:
    """What was not found there would be noted, and believed when the right one is named again."""

    class OtherSink(MemoryForeignSink):
        def search_commit(self, attempt: Attempt) -> None:
            raise AssertionError("another target was searched")

    catch_up(world)
    world.produce(ORDERS_0, 3)
    crash(world, "sink_committed")
    world.replace_target("another one")
    forget(world)
    with pytest.raises(TargetChangedError, match="Only the target of its announcement knows") as refused:
        run_batch.run_once(with_sink(world, OtherSink), "run-2", 2)
    assert refused.value.batch_id == 2


def test_what_was_committed_is_confirmed_whatever_has_become_of_the_target_since(world: World) -> None:
    """Otherwise the batch could never be settled: no run can take back what readers have seen."""
    catch_up(world)
    world.produce(ORDERS_0, 3)
    crash(world, "sink_committed")
    world.replace_target("another target")
    batch = run_batch.run_once(world.process(), "run-2", 2)
    assert batch is not None
    assert batch.state is BatchState.PUBLISHED
    world.produce(ORDERS_0, 3)
    with pytest.raises(TargetChangedError, match="is another one"):
        run_batch.run_once(world.process(), "run-3")


def test_yes_of_the_sink_is_believed_whatever_fails_after_it(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Asked again, the sink may have forgotten by then; a batch that is known to be committed would be taken back."""
    crash(world, "sink_committed")
    sink = world.sink
    assert isinstance(sink, MemoryForeignSink)
    asked: list[Attempt] = []

    class Counting(MemoryForeignSink):
        def find_commit(self, attempt: Attempt) -> bool | None:
            asked.append(attempt)
            return super().find_commit(attempt)

    def fail(_: MemoryPublication) -> RowsToPublish:
        raise ServiceUnavailableError("the ledger is gone")

    monkeypatch.setattr(MemoryPublication, "load", fail)
    with pytest.raises(ServiceUnavailableError, match="the ledger is gone"):
        run_batch.run_once(with_sink(world, Counting), "run-2", 1)
    assert len(asked) == 2, "before the transaction and within it"
    assert state(world) is BatchState.COMMITTING


def test_sink_that_cannot_tell_says_why_and_the_question_stays_open(world: World) -> None:
    class DoubtfulSink(MemoryForeignSink):
        def find_commit(self, attempt: Attempt) -> bool:
            raise TargetRefusedError("somebody else has committed in the group")

    crash(world, "sink_committed")
    with pytest.raises(TargetRefusedError, match="somebody else has committed"):
        run_batch.run_once(with_sink(world, DoubtfulSink), "run-2", 1)
    assert state(world) is BatchState.COMMITTING
    catch_up(world, "run-3")
    assert_exactly_once(world)


def test_sink_that_cannot_be_reached_leaves_the_question_open_and_is_asked_by_the_next_run(world: World) -> None:
    class UnreachableSink(MemoryForeignSink):
        def find_commit(self, attempt: Attempt) -> bool:
            raise ServiceUnavailableError("no broker answers")

    crash(world, "sink_committed")
    with pytest.raises(ServiceUnavailableError, match="no broker answers"):
        run_batch.run_once(with_sink(world, UnreachableSink), "run-2", 1)
    assert state(world) is BatchState.COMMITTING
    catch_up(world, "run-3")
    assert_exactly_once(world)


class SilentSink(MemoryForeignSink):
    """Commits, and its reply is lost."""

    def commit(self, rows: RowsToPublish) -> None:
        """Commit, and do not say so."""
        super().commit(rows)
        raise OutcomeUnknownError("the reply of the sink was lost")


def test_s65_reply_of_the_sink_that_is_lost_is_asked_for_at_once(world: World) -> None:
    batch = run_batch.run_once(with_sink(world, SilentSink), "run-1")
    assert batch is not None
    assert batch.state is BatchState.PUBLISHED
    assert_exactly_once(world)


def test_s66_commit_whose_outcome_nobody_tells_stays_open_until_somebody_does(world: World) -> None:
    class MuteSink(SilentSink):
        def find_commit(self, attempt: Attempt) -> bool:
            raise ServiceUnavailableError("no broker answers")

    with pytest.raises(ServiceUnavailableError):
        run_batch.run_once(with_sink(world, MuteSink), "run-1")
    assert state(world) is BatchState.COMMITTING
    catch_up(world, "run-2")
    assert_exactly_once(world)


def test_commit_that_certainly_failed_leaves_an_audited_batch_that_the_retry_publishes(world: World) -> None:
    class FailingSink(MemoryForeignSink):
        def commit(self, rows: RowsToPublish) -> None:
            raise ServiceUnavailableError("no broker answered before the commit was asked for")

    batch = stage_and_audit(world.process(), "run-1")
    with pytest.raises(ServiceUnavailableError):
        run_batch.publish(with_sink(world, FailingSink), batch.batch_id, "run-1")
    assert state(world) is BatchState.AUDITED
    assert run_batch.publish(world.process(), batch.batch_id, "run-1").attempt == 1
    assert_exactly_once(world)


def test_rows_that_the_sink_refuses_block_the_batch(world: World) -> None:
    class RefusingSink(MemoryForeignSink):
        def commit(self, rows: RowsToPublish) -> None:
            raise TargetRefusedError("orders[0]@3 is larger than the topic allows")

    with pytest.raises(BatchBlockedError, match=r"orders\[0\]@3 is larger") as blocked:
        run_batch.run_once(with_sink(world, RefusingSink), "run-1")
    assert blocked.value.failed == (ACCEPTED_BY_TARGET,)
    assert state(world) is BatchState.BLOCKED
    assert world.times_published() == Counter()
    run_batch.run_once(world.process(), "by-hand", 1)
    assert_exactly_once(world)


@pytest.mark.parametrize("moment", CommitFault)
def test_announcement_whose_reply_is_lost_is_looked_up_and_the_batch_is_published(
    world: World, moment: CommitFault
) -> None:
    """The fault strikes the first commit of the step, which announces the other."""
    stage_and_audit(world.process(), "run-1")
    platform = replace(world.process(), ledger=MemoryLedger(world.database, commit_fault=moment))
    if moment is CommitFault.BEFORE:
        with pytest.raises(OutcomeUnknownError):
            run_batch.publish(platform, 1, "run-1")
        assert state(world) is BatchState.AUDITED
    assert run_batch.publish(platform, 1, "run-1").state is BatchState.PUBLISHED
    assert_exactly_once(world)


def test_staging_that_was_lost_before_the_commit_is_staged_again_by_the_next_run(world: World) -> None:
    crash(world, "announced")
    with world.database.transaction() as tables:
        tables.staging = {}
    batch = run_batch.run_once(world.process(), "run-2", 1)
    assert batch is not None
    assert (batch.state, batch.attempt) == (BatchState.PUBLISHED, 2)
    assert_exactly_once(world)


def test_publish_step_whose_staging_was_lost_leaves_the_batch_to_the_next_run(world: World) -> None:
    crash(world, "announced")
    with world.database.transaction() as tables:
        tables.staging = {}
    with pytest.raises(StagingLostError):
        run_batch.publish(world.process(), 1, "run-1")
    assert state(world) is BatchState.AUDITED
    catch_up(world, "run-2")
    assert_exactly_once(world)


def test_i4_run_that_was_overtaken_while_it_committed_changes_nothing_more(world: World) -> None:
    """Between its announcement and its commit another run finds the batch, and finishes it."""
    world.patience = NO_PATIENCE

    def take_over() -> None:
        run_batch.run_once(world.process(), "run-2", 1)

    with pytest.raises(FencedError):
        run_batch.run_once(world.process(crash=Interrupt("announced", take_over)), "run-1")
    assert_exactly_once(world)


def committed_by_another_who_died(world: World) -> Interrupt:
    """While one sleeps after its announcement, another run commits in the sink and dies."""

    def commit_and_die() -> None:
        with pytest.raises(SimulatedCrashError):
            run_batch.run_once(world.process(crash=CrashOnce("sink_committed")), "run-2", 1)

    return Interrupt("announced", commit_and_die)


def test_i4_sleeper_finds_what_a_run_has_committed_that_died_before_it_confirmed(world: World) -> None:
    """S80."""
    world.patience = NO_PATIENCE
    with pytest.raises(OutcomeUnknownError, match="has been committed before"):
        run_batch.run_once(world.process(crash=committed_by_another_who_died(world)), "run-1")
    assert state(world) is BatchState.COMMITTING
    catch_up(world, "run-3")
    assert_exactly_once(world)


def test_negative_control_a_sink_that_does_not_look_before_it_commits_is_written_to_twice(world: World) -> None:
    world.patience = NO_PATIENCE

    class CarelessSink(MemoryForeignSink):
        def commit(self, rows: RowsToPublish) -> None:
            self.store.removed.pop(rows.attempt.batch.batch_id, None)
            super().commit(rows)

    careless = replace(with_sink(world, CarelessSink), crash=committed_by_another_who_died(world))
    run_batch.run_once(careless, "run-1")
    assert set(world.times_published().values()) == {2}


def test_no_of_another_target_is_no_answer(world: World) -> None:
    """Otherwise a sink that is configured wrongly for a while would lead to a second commit in the right one."""
    catch_up(world)
    world.produce(ORDERS_0, 3)
    crash(world, "sink_committed")
    right = world.foreign
    assert right is not None
    assert right.target is not None
    world.foreign = ForeignStore(target=replace(right.target, rows=(), identity="another one"))
    with pytest.raises(TargetChangedError, match="Only the target of its announcement knows") as refused:
        run_batch.run_once(world.process(), "run-2", 2)
    assert refused.value.batch_id == 2
    assert world.process().ledger.load_batch(2).state is BatchState.COMMITTING
    world.foreign = right
    catch_up(world, "run-3")
    assert_exactly_once(world)


def test_no_of_another_kind_of_sink_is_no_answer(world: World) -> None:
    """It has committed nothing, and cannot tell what the one before it did."""
    catch_up(world)
    world.produce(ORDERS_0, 3)
    crash(world, "sink_committed")
    with world.database.transaction() as tables:
        tables.targets.clear()
    plain = MemorySink(world.database, world.sink.table)
    with pytest.raises(TargetChangedError, match="Only the target of its announcement knows"):
        run_batch.run_once(replace(world.process(), sink=plain), "run-2", 2)
    assert world.process().ledger.load_batch(2).state is BatchState.COMMITTING
    catch_up(world, "run-3")
    assert_exactly_once(world)


def test_twin_of_the_step_that_is_faster_is_not_contradicted(world: World) -> None:
    def twin() -> None:
        run_batch.publish(world.process(), 1, "run-1")

    stage_and_audit(world.process(), "run-1")
    ended = run_batch.publish(world.process(crash=Interrupt("announced", twin)), 1, "run-1")
    assert ended.state is BatchState.PUBLISHED
    assert_exactly_once(world)


def test_person_cannot_discard_what_may_be_visible_but_can_after_it_was_not(world: World) -> None:
    crash(world, "announced")
    with pytest.raises(OutcomePendingError, match="batchledger run orders_copy --batch 1"):
        discard(world.process(), 1, ANA)
    with world.database.transaction() as tables:
        tables.staging = {}
    with pytest.raises(StagingLostError):
        run_batch.publish(world.process(), 1, "run-1")
    discard(world.process(), 1, ANA)
    catch_up(world)
    assert_exactly_once(world)


def audited_replay(world: World) -> int:
    """A replay that is to be published next."""
    replay = plans.plan_replay(world.process(), Replay((OffsetRange(ORDERS_0, 0, 5),)), "again", ANA, "again")
    assert replay is not None
    run_batch.stage(world.process(), replay.batch_id, "again")
    return run_batch.audit(world.process(), replay.batch_id, "again").batch_id


@pytest.mark.parametrize(
    ("point", "left"), [("sink_committed", BatchState.PUBLISHED), ("announced", BatchState.AUDITED)]
)
def test_replay_finds_the_outcome_of_the_batch_before_it_and_goes_on(
    world: World, point: str, left: BatchState
) -> None:
    catch_up(world)
    world.produce(ORDERS_0, 3)
    crash(world, point)
    assert run_batch.publish(world.process(), audited_replay(world), "again").state is BatchState.PUBLISHED
    assert world.process().ledger.load_batch(2).state is left
    catch_up(world)
    assert_exactly_once(world)


@pytest.mark.parametrize("point", ["announced", "sink_committed"])
def test_replay_whose_run_is_gone_holds_up_no_live_batch(world: World, point: str) -> None:
    """No run takes a replay again by itself."""
    catch_up(world)
    batch_id = audited_replay(world)
    with pytest.raises(SimulatedCrashError):
        run_batch.publish(world.process(crash=CrashOnce(point)), batch_id, "again")
    world.produce(ORDERS_0, 3)
    catch_up(world)
    assert_exactly_once(world)
    assert run_batch.publish(world.process(), batch_id, "again").state is BatchState.PUBLISHED
    assert_exactly_once(world)


def test_batch_is_not_blocked_because_nobody_can_tell_what_became_of_the_one_before_it(world: World) -> None:
    class DoubtfulSink(MemoryForeignSink):
        def find_commit(self, attempt: Attempt) -> bool:
            raise TargetRefusedError("somebody else has committed in the group")

    catch_up(world)
    batch_id = audited_replay(world)
    with pytest.raises(SimulatedCrashError):
        run_batch.publish(world.process(crash=CrashOnce("sink_committed")), batch_id, "again")
    world.produce(ORDERS_0, 3)
    with pytest.raises(OutcomePendingError, match="somebody else") as pending:
        run_batch.run_once(with_sink(world, DoubtfulSink), "run-2")
    assert pending.value.batch_id == batch_id
    open_batch = world.process().ledger.find_open_batch("orders_copy")
    assert open_batch is not None
    assert open_batch.state is BatchState.AUDITED
    catch_up(world)
    assert_exactly_once(world)


def test_run_whose_announcement_another_one_has_settled_goes_on(world: World) -> None:
    world.patience = NO_PATIENCE
    catch_up(world)
    batch_id = audited_replay(world)
    world.produce(ORDERS_0, 3)
    other = Interrupt("announced", lambda: catch_up(world))
    assert run_batch.publish(world.process(crash=other), batch_id, "again").state is BatchState.PUBLISHED
    assert_exactly_once(world)


def audited(world: World) -> Attempt:
    batch = stage_and_audit(world.process(), "run-1")
    return Attempt(batch, batch.attempt, "run-1")


def test_commit_that_the_ledger_could_not_confirm_is_named_as_unknown(world: World) -> None:
    prepared: list[Attempt] = []
    searched: list[tuple[int, ...] | None] = []

    class ForgetfulSink(MemoryForeignSink):
        def prepare_commit(self, attempt: Attempt) -> Sequence[int]:
            prepared.append(attempt)
            return super().prepare_commit(attempt)

        def commit(self, rows: RowsToPublish) -> None:
            super().commit(rows)
            forget(world)
            raise RuntimeError("the ledger is gone")

        def search_commit(self, attempt: Attempt) -> None:
            searched.append(attempt.batch.announced_ends)
            super().search_commit(attempt)

    attempt = audited(world)
    with pytest.raises(OutcomeUnknownError, match="The sink has committed batch 1") as unknown:
        deliver(with_sink(world, ForgetfulSink), attempt)
    assert (unknown.value.batch_id, unknown.value.why) == (1, "the ledger is gone")
    assert (prepared, searched) == ([attempt], [(0,)])
    assert state(world) is BatchState.COMMITTING


def test_announcement_is_taken_back_if_the_ledger_is_lost_before_the_sink_commits(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempt, platform = audited(world), world.process()
    opened, publication = iter(range(9)), platform.ledger.publication

    def lose_the_second(*arguments: Any) -> Any:
        if next(opened) == 1:
            raise ServiceUnavailableError("connection lost")
        return publication(*arguments)

    monkeypatch.setattr(platform.ledger, "publication", lose_the_second)
    with pytest.raises(ServiceUnavailableError, match="connection lost"):
        deliver(platform, attempt)
    assert state(world) is BatchState.AUDITED


def test_batch_whose_run_is_at_work_is_not_waited_for_without_an_end(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delivery, "COMMITS_WITHIN_SECONDS", 0)
    catch_up(world)
    replay = audited_replay(world)
    world.produce(ORDERS_0, 3)

    def publish_replay() -> None:
        with pytest.raises(OutcomePendingError, match="being committed by its sink") as pending:
            run_batch.publish(world.process(), replay, "again")
        assert pending.value.batch_id == replay + 1

    run_batch.run_once(world.process(crash=Interrupt("announced", publish_replay)), "live")
    assert_exactly_once(world)


def test_batch_that_its_own_run_finishes_before_it_is_asked_for_is_left_to_it(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    catch_up(world)
    world.produce(ORDERS_0, 3)
    crash(world, "announced")
    replay, platform = audited_replay(world), world.process()
    load, is_done = platform.ledger.load_batch, False

    def finish_after_the_look(batch_id: int) -> Batch:
        nonlocal is_done
        found = load(batch_id)
        if found.state is BatchState.COMMITTING and not is_done:
            is_done = True
            run_batch.publish(world.process(), batch_id, "run-1")
        return found

    batch = load(replay)
    monkeypatch.setattr(platform.ledger, "load_batch", finish_after_the_look)
    deliver(platform, Attempt(batch, batch.attempt, "again"))
    assert is_done
    assert load(replay).state is BatchState.PUBLISHED
    assert_exactly_once(world)


def test_answer_that_is_lost_while_another_batch_is_settled_is_asked_for_again(world: World) -> None:
    catch_up(world)
    world.produce(ORDERS_0, 3)
    crash(world, "sink_committed")
    replay, platform = audited_replay(world), world.process()
    assert isinstance(platform.ledger, MemoryLedger)
    platform.ledger.commit_fault = CommitFault.AFTER
    assert run_batch.publish(platform, replay, "again").state is BatchState.PUBLISHED
    assert platform.ledger.commit_fault is None
    catch_up(world)
    assert_exactly_once(world)


@pytest.mark.parametrize("delivery", [DeliveryMode.AT_LEAST_ONCE, DeliveryMode.AT_MOST_ONCE])
def test_weaker_modes_announce_nothing_and_nobody_asks(world: World, delivery: DeliveryMode) -> None:
    world.delivery = delivery
    passed = PassedPoints()
    run_batch.run_once(world.process(crash=passed), "run-1")
    assert "announced" not in passed.points
    assert world.foreign is not None
    assert world.foreign.removed == {}
    assert_exactly_once(world)


@pytest.mark.parametrize("delivery", DeliveryMode)
def test_replay_of_a_foreign_sink_is_one_commit_that_is_found_again_in_every_mode(
    world: World, delivery: DeliveryMode
) -> None:
    world.delivery = delivery
    catch_up(world)
    asked = Replay((OffsetRange(ORDERS_0, 0, 10),))
    replay = plans.plan_replay(world.process(), asked, "again", ANA, "again")
    assert replay is not None
    with pytest.raises(SimulatedCrashError):
        run_batch.take_through(world.process(crash=CrashOnce("sink_committed")), replay.batch_id, "again")
    run_batch.publish(world.process(), replay.batch_id, "again")
    assert_exactly_once(world)


def test_sink_that_cannot_be_asked_for_its_commit_cannot_be_made() -> None:
    """It would pass for one that shares the ledger's commit, and never commit its rows."""

    class Incomplete(MemorySink, CommittingSink):
        def commit(self, rows: RowsToPublish) -> None:
            pass

    with pytest.raises(TypeError, match="abstract"):
        Incomplete(MemoryDatabase(), "orders")
