"""Each protection switched off: the fault that it stands against must then appear, or the tests above have no teeth."""

from dataclasses import dataclass, replace

import psycopg
import pytest

from batchledger.lifecycle import plans, run_batch
from batchledger.lifecycle.platform import Platform
from batchledger.local.torture.sabotage import build_platform_without, overlaps_allowed
from batchledger.local.torture.schedule import Protection
from batchledger.model.batch import Batch
from batchledger.model.errors import BatchBlockedError, PositionConflictError
from batchledger.model.presence import NO_PATIENCE
from batchledger.ports import no_crash
from batchledger.wiring import verify_pipeline
from tests.support import TestPipeline, Workplace

COMPARE_AND_SWAP = Protection.COMPARE_AND_SWAP


@dataclass(frozen=True)
class Overlap:
    """A pipeline with a published batch, and an audited second batch over the same offsets."""

    pipeline: TestPipeline
    second: Batch


def overwriting(pipeline: TestPipeline) -> Platform:
    """The platform without the compare-and-swap."""
    return build_platform_without(COMPARE_AND_SWAP, pipeline.config, no_crash)


@pytest.fixture
def overlap(workplace: Workplace) -> Overlap:
    """Turn the position back by hand between two plans, as a second, unsynchronised planner would see it.

    Its audit does not look at what others have published; otherwise it would find the overlap.
    """
    pipeline = workplace.create()
    pipeline.send(20)
    run_batch.run_once(pipeline.platform(), "first")
    platform = overwriting(pipeline)
    with psycopg.connect(workplace.dsn) as connection:
        rewind = "update batchledger.position set next_offset = 0 where pipeline = %s"
        connection.execute(rewind, [pipeline.name])
        connection.commit()
        second = plans.plan(platform, "second")
        assert second is not None
        run_batch.stage(platform, second.batch_id, "second")
        run_batch.audit(platform, second.batch_id, "second")
        connection.execute("update batchledger.position set next_offset = 10 where pipeline = %s", [pipeline.name])
    return Overlap(pipeline, second)


def test_audit_finds_ranges_that_are_published_already(overlap: Overlap) -> None:
    """The first of the protections: with it the second batch is blocked before it gets as far."""
    pipeline, again = overlap.pipeline, overlap.second.batch_id
    platform = replace(pipeline.platform(), patience=NO_PATIENCE)
    run_batch.stage(platform, again, "again")
    with pytest.raises(BatchBlockedError, match="no_published_offsets"):
        run_batch.audit(platform, again, "again")
    pipeline.assert_exact()


def test_compare_and_swap_refuses_ranges_that_are_published_already(overlap: Overlap) -> None:
    """S56: the protection in place."""
    with pytest.raises(PositionConflictError) as refused:
        run_batch.publish(overlap.pipeline.platform(), overlap.second.batch_id, "second")
    assert sorted(refused.value.ranges) == sorted(overlap.second.ranges)
    assert refused.value.found == {each.partition: 10 for each in overlap.second.ranges}
    overlap.pipeline.assert_exact()


def test_without_compare_and_swap_the_database_still_refuses_the_overlap(overlap: Overlap) -> None:
    """I2 is kept by the exclusion constraint alone."""
    with pytest.raises(PositionConflictError, match="overlaps offsets that are published") as refused:
        run_batch.publish(overwriting(overlap.pipeline), overlap.second.batch_id, "second")
    assert refused.value.batch_id == overlap.second.batch_id
    overlap.pipeline.assert_exact()


def test_without_compare_and_swap_and_constraint_duplicates_appear_and_are_found(
    workplace: Workplace, overlap: Overlap
) -> None:
    """S57: the negative control."""
    pipeline = overlap.pipeline
    with overlaps_allowed(COMPARE_AND_SWAP, workplace.dsn, pipeline.name):
        run_batch.publish(overwriting(pipeline), overlap.second.batch_id, "second")
        assert pipeline.find_differences() == dict.fromkeys(pipeline.sent, 1)
        verification = verify_pipeline(pipeline.config)
        assert {finding.invariant for finding in verification.findings} == {"I2", "I8"}
