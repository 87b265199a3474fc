"""Each protection switched off: the fault that it stands against must then appear, or the tests above have no teeth."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import psycopg
import pytest

from batchledger import run_batch
from batchledger.batch import Attempt, Batch, BatchState
from batchledger.errors import PositionConflictError
from batchledger.ledger.postgres import PostgresLedger
from batchledger.ledger.publication import PostgresPublication
from batchledger.pipeline import Platform
from batchledger.wiring import verify_pipeline
from tests.support import TestPipeline, Workplace

CONSTRAINT = (
    "alter table batchledger.batch_range add constraint batch_range_disjoint exclude using gist "
    "(pipeline with =, topic with =, partition with =, offsets with &&) where (published_live)"
)


class CarelessPublication(PostgresPublication):
    """Moves positions without comparing them first."""

    def advance_positions(self) -> None:
        """Overwrite."""
        self.connection.execute(
            "update batchledger.position p set next_offset = upper(r.offsets) from batchledger.batch_range r "
            "where r.batch_id = %s and p.pipeline = r.pipeline and p.topic = r.topic and p.partition = r.partition",
            [self.attempt.batch.batch_id],
        )


class CarelessLedger(PostgresLedger):
    """The real ledger without the compare-and-swap."""

    @contextmanager
    def publication(self, attempt: Attempt, expected: BatchState = BatchState.AUDITED) -> Iterator[PostgresPublication]:
        """Lend the careless one."""
        with super().publication(attempt, expected) as careful:
            yield CarelessPublication(careful.connection, careful.attempt)


@dataclass(frozen=True)
class Overlap:
    """A pipeline with a published batch, and an audited second batch over the same offsets."""

    pipeline: TestPipeline
    second: Batch


@pytest.fixture
def overlap(workplace: Workplace) -> Overlap:
    """Turn the position back by hand between two plans, as a second, unsynchronised planner would see it."""
    pipeline = workplace.create()
    pipeline.send(20)
    platform = pipeline.platform()
    run_batch.run_once(platform, "first")
    with psycopg.connect(workplace.dsn) as connection:
        rewind = "update batchledger.position set next_offset = 0 where pipeline = %s"
        connection.execute(rewind, [pipeline.name])
        connection.commit()
        second = run_batch.plan(platform, "second")
        assert second is not None
        run_batch.stage(platform, second.batch_id, "second")
        run_batch.audit(platform, second.batch_id, "second")
        connection.execute("update batchledger.position set next_offset = 10 where pipeline = %s", [pipeline.name])
    return Overlap(pipeline, second)


@contextmanager
def without_exclusion_constraint(dsn: str, overlapping: Batch) -> Iterator[None]:
    """Drop the constraint; remove the overlapping ranges and bring it back."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("alter table batchledger.batch_range drop constraint batch_range_disjoint")
        try:
            yield
        finally:
            connection.execute("delete from batchledger.batch_range where batch_id = %s", [overlapping.batch_id])
            connection.execute(CONSTRAINT)


def careless(platform: Platform, dsn: str) -> Platform:
    """The platform without the compare-and-swap."""
    return replace(platform, ledger=CarelessLedger(dsn))


def test_compare_and_swap_refuses_ranges_that_are_published_already(workplace: Workplace, overlap: Overlap) -> None:
    """S56: the protection in place."""
    with pytest.raises(PositionConflictError, match=r"\[0\] expected 0, found 10; .*\[1\] expected 0, found 10"):
        run_batch.publish(overlap.pipeline.platform(), overlap.second.batch_id, "second")
    overlap.pipeline.assert_exact()


def test_without_compare_and_swap_the_database_still_refuses_the_overlap(
    workplace: Workplace, overlap: Overlap
) -> None:
    """I2 is kept by the exclusion constraint alone."""
    platform = careless(overlap.pipeline.platform(), workplace.dsn)
    with pytest.raises(PositionConflictError, match="overlaps offsets that are published already"):
        run_batch.publish(platform, overlap.second.batch_id, "second")
    overlap.pipeline.assert_exact()


def test_without_compare_and_swap_and_constraint_duplicates_appear_and_are_found(
    workplace: Workplace, overlap: Overlap
) -> None:
    """S57: the negative control."""
    pipeline = overlap.pipeline
    with without_exclusion_constraint(workplace.dsn, overlap.second):
        run_batch.publish(careless(pipeline.platform(), workplace.dsn), overlap.second.batch_id, "second")
        assert pipeline.find_differences() == dict.fromkeys(pipeline.sent, 1)
        verification = verify_pipeline(pipeline.config)
        assert {finding.invariant for finding in verification.findings} == {"I2"}
