"""A dry run tells what a replay would do, and leaves nothing behind but its line in the ledger."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from typing_extensions import override

from batchledger.lifecycle import decisions, plans, run_batch
from batchledger.lifecycle.dry_run import describe_dry_run, dry_run_replay, summarise_dry_run
from batchledger.lifecycle.platform import Platform
from batchledger.model.batch import Attempt, BatchState, Decision, HeldRange
from batchledger.model.errors import (
    BatchBlockedError,
    ExpiredError,
    FencedError,
    PipelinePausedError,
    ReplayRefusedError,
    ServiceUnavailableError,
    StagingError,
    TargetChangedError,
)
from batchledger.model.offsets import OffsetRange, TopicPartition
from batchledger.model.records.comparison import Comparison, DryRunOutcome, describe_replaced
from batchledger.planning.live import Limits
from batchledger.planning.replay import Replay
from tests.fakes.ledger import MemoryLedger
from tests.fakes.sink import MemorySink
from tests.fakes.work import Rows
from tests.fakes.world import PIPELINE, World, catch_up, staged_twice

ORDERS_0 = TopicPartition("orders", 0)
ANA = Decision("ana@example", "a look")
MIDDLE = Replay((OffsetRange(ORDERS_0, 3, 7),))
VISIBLE = ("targets", "positions", "quarantine", "replacements")


@pytest.fixture
def world() -> World:
    """Ten records, published by two batches."""
    world = World(limits=Limits(max_records=5))
    world.broker.create_topic("orders", 1)
    world.produce(ORDERS_0, 10)
    catch_up(world)
    return world


def look(world: World) -> Mapping[str, Any]:
    """Everything that a dry run leaves as it is."""
    tables = world.database.committed
    held = {batch_id: stored.held for batch_id, stored in tables.batches.items() if stored.held}
    return {**{name: dict(getattr(tables, name)) for name in VISIBLE}, "held": held}


def kept_of(world: World) -> DryRunOutcome | None:
    """What the ledger has kept of the newest batch."""
    batches = world.database.committed.batches
    return batches[max(batches)].dry_run


class RefusingSink(MemorySink):
    """A target that does not take the rows, and quotes one."""

    @override
    def compare(self, attempt: Attempt, limit: int) -> Comparison:
        raise TargetChangedError("invalid input syntax: 'a secret value'")


class RepeatingSink(MemorySink):
    """A topic: nothing of it would go."""

    @override
    def count_held(self, pipeline: str, held: Sequence[HeldRange]) -> Sequence[int]:
        return [0] * len(held)

    @override
    def compare(self, attempt: Attempt, limit: int) -> Comparison:
        return Comparison(repeated=4)


class UnreachableSink(MemorySink):
    """A warehouse that goes away after the audit."""

    @override
    def compare(self, attempt: Attempt, limit: int) -> Comparison:
        raise ServiceUnavailableError("planted")


class EndlessLedger(MemoryLedger):
    """A ledger that cannot note that a dry run is over."""

    @override
    def end_dry_run(self, batch_id: int, found: DryRunOutcome | None = None) -> None:
        raise ServiceUnavailableError("planted")


def corrected(rows: Rows) -> Rows:
    """A transform that drops one row and changes another."""
    return [
        {**row, "message_id": "new" if row["_offset"] == 4 else row["message_id"]}
        for row in rows
        if row["_offset"] != 5
    ]


def test_dry_run_says_what_would_differ_and_changes_nothing(world: World) -> None:
    before = look(world)
    found = dry_run_replay(world.process(alter=corrected, has_transform=True), MIDDLE, "look", ANA)
    assert found is not None
    assert found.comparison is not None
    counts = found.comparison
    assert (counts.added, counts.removed, counts.changed, counts.unchanged) == (0, 1, 1, 2)
    assert [(str(each), each.columns) for each in counts.examples] == [("orders[0]@4", ("message_id",))]
    assert describe_replaced(found.replaced) == "4 rows: batch 1: 2, batch 2: 2"
    assert found.objections == ()
    assert look(world) == before
    assert kept_of(world) == summarise_dry_run(found)
    assert not world.database.committed.staging
    assert not world.database.committed.evidence
    assert world.database.committed.batches[found.batch.batch_id].batch.state is BatchState.DISCARDED


def test_log_of_a_dry_run_into_a_topic_speaks_of_records_once_more_and_of_no_replaced_rows(world: World) -> None:
    repeating = replace(world.process(), sink=RepeatingSink(world.database, "orders"))
    found = dry_run_replay(repeating, MIDDLE, "look", ANA)
    assert found is not None
    _, told, _ = describe_dry_run(found, ())
    assert told == "a topic replaces nothing: 4 records would be produced once more"


def test_dry_run_says_what_its_publication_would_do(world: World) -> None:
    found = dry_run_replay(world.process(), MIDDLE, "look", ANA)
    assert found is not None
    *_, told = describe_dry_run(found, ())
    assert told == "its publication would be: withdraw, positions, rows, numbers"


def test_dry_run_of_what_would_be_blocked_says_why(world: World) -> None:
    found = dry_run_replay(world.process(alter=staged_twice), MIDDLE, "look", ANA)
    assert found is not None
    assert any("no_duplicate_offsets" in each for each in found.words)
    kept = kept_of(world)
    assert kept is not None
    assert kept.objections == found.words


def test_what_a_target_says_that_refuses_the_rows_is_told_to_who_asked_and_not_kept(world: World) -> None:
    """The words of a table may quote a record."""
    platform = world.process()
    refusing = replace(platform, sink=RefusingSink(world.database, "orders"))
    found = dry_run_replay(refusing, MIDDLE, "look", ANA)
    assert found is not None
    assert found.words == ("accepted_by_target: invalid input syntax: 'a secret value'",)
    kept = kept_of(world)
    assert kept is not None
    assert kept.comparison is None
    assert describe_replaced(kept.replaced) == "4 rows: batch 1: 2, batch 2: 2"
    assert len(kept.objections) == 1
    assert kept.objections[0].startswith("accepted_by_target: ")
    assert "secret" not in json.dumps(kept.to_json())


def test_dry_run_of_nothing_is_no_batch(world: World) -> None:
    batches = dict(world.database.committed.batches)
    world.broker.partitions[ORDERS_0].log_start = 10
    expired = Replay((OffsetRange(ORDERS_0, 3, 7),), allow_expired=True)
    assert dry_run_replay(world.process(), expired, "look", ANA) is None
    with pytest.raises(ExpiredError):
        dry_run_replay(world.process(), MIDDLE, "look", ANA)
    assert world.database.committed.batches == batches


def test_dry_run_that_fails_is_discarded_too_and_may_be_asked_again(world: World) -> None:
    def fail(platform: Platform, batch_id: int, run: str) -> Any:
        raise StagingError("planted")

    before = look(world)
    with pytest.raises(StagingError):
        dry_run_replay(world.process(), MIDDLE, "look", ANA, fail)
    assert look(world) == before
    assert [each.batch.state for each in world.database.committed.batches.values()][-1] is BatchState.DISCARDED
    assert kept_of(world) is None
    assert dry_run_replay(world.process(), MIDDLE, "look", ANA) is not None
    assert kept_of(world) is not None


def test_dry_run_that_fails_after_its_audit_has_found_nothing(world: World) -> None:
    platform = world.process()
    failing = replace(platform, sink=UnreachableSink(world.database, "orders"))
    before = look(world)
    with pytest.raises(ServiceUnavailableError):
        dry_run_replay(failing, MIDDLE, "look", ANA)
    assert look(world) == before
    assert kept_of(world) is None
    assert [each.batch.state for each in world.database.committed.batches.values()][-1] is BatchState.DISCARDED
    assert (world.database.committed.staging, world.database.committed.evidence) == ({}, {})


def test_dry_run_whose_end_cannot_be_recorded_leaves_no_staging_and_nothing_that_can_be_published(world: World) -> None:
    platform = world.process()
    before = look(world)
    with pytest.raises(ServiceUnavailableError):
        dry_run_replay(replace(platform, ledger=EndlessLedger(world.database)), MIDDLE, "look", ANA)
    assert (world.database.committed.staging, world.database.committed.evidence) == ({}, {})
    left = max(world.database.committed.batches)
    with pytest.raises(ReplayRefusedError, match="never published"):
        run_batch.run_once(world.process(), "another", left)
    assert look(world) == before
    assert decisions.discard(world.process(), left, ANA).is_new
    assert kept_of(world) is None


def test_dry_run_is_allowed_while_the_pipeline_is_paused(world: World) -> None:
    platform = world.process()
    platform.decisions.pause(PIPELINE, ANA)
    assert dry_run_replay(platform, MIDDLE, "look", ANA) is not None
    with pytest.raises(PipelinePausedError):
        plans.plan_replay(platform, MIDDLE, "again", ANA, "again")


def test_dry_run_is_not_taken_again_as_a_replay(world: World) -> None:
    found = dry_run_replay(world.process(), MIDDLE, "look", ANA)
    assert found is not None
    before = look(world)
    with pytest.raises(FencedError, match="discarded"):
        run_batch.run_once(world.process(), "again", found.batch.batch_id)
    assert look(world) == before


def test_dry_run_stores_no_position_of_a_topic_that_was_never_read() -> None:
    world = World()
    world.broker.create_topic("orders", 1)
    world.broker.append(ORDERS_0, *(json.dumps({"message_id": str(n)}).encode() for n in range(10)))
    found = dry_run_replay(world.process(), MIDDLE, "look", ANA)
    assert found is not None
    assert found.comparison is not None
    assert (found.comparison.added, found.replaced) == (4, ())
    assert world.process().ledger.load_positions(PIPELINE) == []


def test_dry_run_whose_process_was_killed_cannot_be_published_by_another(world: World) -> None:
    platform = world.process()
    planned = replace(plans.preview_replay(platform, MIDDLE), is_dry_run=True)
    left = platform.ledger.store_replay(PIPELINE, planned, "killed", ANA, None)
    before = look(world)
    with pytest.raises(ReplayRefusedError, match="never published"):
        run_batch.run_once(world.process(), "another", left.batch_id)
    assert look(world) == before


def test_blocked_dry_run_whose_process_was_killed_is_neither_accepted_nor_taken_again_but_discarded(
    world: World,
) -> None:
    platform = world.process(alter=lambda rows: rows[1:])
    planned = replace(plans.preview_replay(platform, MIDDLE), is_dry_run=True)
    left = platform.ledger.store_replay(PIPELINE, planned, "killed", ANA, None)
    run_batch.stage(platform, left.batch_id, "killed")
    with pytest.raises(BatchBlockedError):
        run_batch.audit(platform, left.batch_id, "killed")
    before = look(world)
    with pytest.raises(ReplayRefusedError, match="never published"):
        decisions.accept(world.process(), left.batch_id, ANA)
    with pytest.raises(ReplayRefusedError, match="never published"):
        plans.retake(world.process(), left.batch_id, "another", ANA)
    assert [each.kind for each in platform.decisions.load_decisions(left.batch_id)] == ["dry-run"]
    assert look(world) == before
    assert decisions.discard(world.process(), left.batch_id, ANA).is_new
    assert platform.ledger.load_batch(left.batch_id).state is BatchState.DISCARDED
    assert (world.database.committed.staging, world.database.committed.evidence) == ({}, {})
    with pytest.raises(FencedError, match="was a dry run") as told:
        run_batch.audit(world.process(), left.batch_id, "killed")
    assert "planned again" not in str(told.value)


def test_plan_of_a_live_batch_tells_whose_rows_it_would_replace_behind_a_replay_that_read_ahead(world: World) -> None:
    world.produce(ORDERS_0, 5)
    ahead = plans.plan_replay(world.process(), Replay((OffsetRange(ORDERS_0, 12, 14),)), "ahead", ANA, "ahead")
    assert ahead is not None
    run_batch.take_through(world.process(), ahead.batch_id, "ahead")
    planned = plans.preview(world.process())
    replaced = plans.find_replaced_rows(world.process(), planned.ranges)
    assert describe_replaced(replaced) == f"2 rows: batch {ahead.batch_id}: 2"


def test_run_that_rehearses_keeps_the_replay_that_it_has_staged(world: World) -> None:
    """A run that is cleared, and asked for a dry run now, may still be at work on what it was asked for before."""
    replay = plans.plan_replay(world.process(), MIDDLE, "run", ANA, "run#0")
    assert replay is not None
    run_batch.stage(world.process(), replay.batch_id, "run")
    assert dry_run_replay(world.process(), MIDDLE, "run", ANA) is not None
    run_batch.audit(world.process(), replay.batch_id, "run")
    assert run_batch.publish(world.process(), replay.batch_id, "run").state is BatchState.PUBLISHED
