"""Every protection against publishing twice stops a stale plan by itself; without all of them the duplicates appear."""

import pytest

from batchledger.lifecycle import plans, run_batch
from batchledger.lifecycle.requirement import publish_rows
from batchledger.model.checks import IntegrityCheck
from batchledger.model.errors import BatchBlockedError, PositionConflictError
from batchledger.ports import committing
from tests.fakes.publication import ALL_PROTECTIONS, Protection
from tests.fakes.world import PIPELINE, World, assert_exactly_once, stage_and_audit


def publish_a_stale_plan(world: World, protections: frozenset[Protection]) -> None:
    """Two runs preview the same ranges; the second stores its plan when the first has published."""
    platform = world.process(protections=protections)
    stale = plans.preview(platform)
    run_batch.run_once(platform, "run-1")
    batch = platform.ledger.store_plan(PIPELINE, stale, "run-2")
    run_batch.run_once(platform, "run-2", batch.batch_id)


def test_s56_stale_plan_is_refused_by_the_comparison_of_positions(world: World) -> None:
    with pytest.raises(PositionConflictError, match=r"orders\[0\]: expected 0, found 10"):
        publish_a_stale_plan(world, ALL_PROTECTIONS)
    assert_exactly_once(world)


def test_stale_plan_is_blocked_by_the_audit_when_positions_are_not_compared(world: World) -> None:
    with pytest.raises(BatchBlockedError) as blocked:
        publish_a_stale_plan(world, ALL_PROTECTIONS - {Protection.POSITIONS_COMPARED})
    assert blocked.value.failed == (IntegrityCheck.RANGES_MEET_POSITION, IntegrityCheck.NO_PUBLISHED_OFFSETS)
    assert_exactly_once(world)


def test_i2_stale_plan_is_refused_as_an_overlap_when_nothing_else_stops_it(world: World) -> None:
    world.ignored_checks = frozenset({IntegrityCheck.RANGES_MEET_POSITION, IntegrityCheck.NO_PUBLISHED_OFFSETS})
    with pytest.raises(PositionConflictError, match=r"0\.\.10 overlaps .* of batch 1"):
        publish_a_stale_plan(world, ALL_PROTECTIONS - {Protection.POSITIONS_COMPARED})
    assert_exactly_once(world)


def test_s57_negative_control_without_the_protections_duplicates_do_appear(world: World) -> None:
    world.ignored_checks = frozenset({IntegrityCheck.RANGES_MEET_POSITION, IntegrityCheck.NO_PUBLISHED_OFFSETS})
    unprotected = ALL_PROTECTIONS - {Protection.POSITIONS_COMPARED, Protection.OVERLAPS_REFUSED}
    publish_a_stale_plan(world, unprotected)
    assert set(world.times_published().values()) == {2}
    with pytest.raises(AssertionError):
        assert_exactly_once(world)


def test_negative_control_without_fencing_a_stale_attempt_does_publish_again(world: World) -> None:
    unprotected = frozenset({Protection.BALANCE_REQUIRED})
    batch = stage_and_audit(world.process(protections=unprotected), "run-1")
    platform = world.process(protections=unprotected)
    attempt = run_batch.Attempt(batch, batch.attempt, "run-1")
    for _ in range(2):
        with platform.ledger.publication(attempt) as publication:
            publication.advance_positions()
            rows = publish_rows(platform.sink, publication, publication.load())
            if not platform.sink.capabilities.shares_transaction:
                committing(platform.sink).commit(rows)
            publication.mark_rows()
            publication.mark_published()
    assert set(world.times_published().values()) == {2}
