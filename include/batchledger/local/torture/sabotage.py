"""The platform without one of its protections, to see that the checker notices. Never used outside of torture.

Systems of this kind have shipped with each of these mistakes. The protections stand behind each other: taking one out
shows nothing unless the others that would catch the same fault are out, too.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, cast

import psycopg
from psycopg import sql
from typing_extensions import override

from batchledger.config.pipeline_file import PipelineConfig
from batchledger.database.sessions import connect
from batchledger.database.transactions import transaction
from batchledger.ledger.evidence import PostgresEvidence
from batchledger.ledger.ledger import PostgresLedger
from batchledger.ledger.publication import PostgresPublication
from batchledger.lifecycle.platform import Platform
from batchledger.local.torture.schedule import PLAN_CHOSEN, Protection
from batchledger.looking import ledger_dsn
from batchledger.model.batch import Attempt, Batch, BatchState, Decision, DeliveryMode, HeldRange, Staged
from batchledger.planning.live import Plan
from batchledger.ports import CrashHook, Stager, no_crash
from batchledger.sinks.table.sink import PostgresSink
from batchledger.wiring import build_platform

_CONSTRAINTS = ("batch_range_disjoint", "batch_range_held_once")


def build_platform_without(protection: Protection | None, pipeline: PipelineConfig, crash: CrashHook) -> Platform:
    """Build the platform of a pipeline without one of its protections, or with all of them."""
    platform = build_platform(pipeline, crash=crash)
    match protection:
        case None:
            return platform
        case Protection.FENCING:
            dsn, sink = ledger_dsn(pipeline), cast("PostgresSink", platform.sink)
            keeping = KeepingSink(sink.dsn, sink.table)
            evidence = KeepingEvidence(dsn)
            # The number of an attempt fences staged rows. A stream holds its batch by a lock.
            return replace(
                platform, ledger=UnfencedLedger(dsn), sink=keeping, evidence=evidence, find_stream=lambda: None
            )
        case Protection.COMPARE_AND_SWAP:
            return replace(platform, ledger=OverwritingLedger(ledger_dsn(pipeline), crash))
        case Protection.READ_COMMITTED:
            return replace(platform, make_stager=lambda: _uncommitted(platform))
        case Protection.ONE_TRANSACTION:
            return replace(platform, rules=replace(platform.rules, delivery=DeliveryMode.AT_LEAST_ONCE))


@contextmanager
def overlaps_allowed(protection: Protection | None, dsn: str, pipeline: str) -> Iterator[None]:
    """Drop the database's own refusal of overlaps if it would hide the missing protection; restore it afterwards.

    Then the published ranges of ``pipeline`` are deleted, because they may overlap.
    """
    if protection not in (Protection.FENCING, Protection.COMPARE_AND_SWAP):
        yield
        return
    table = sql.SQL("batchledger.batch_range")
    drop, add = sql.SQL("alter table {} drop constraint {}"), sql.SQL("alter table {} add constraint {} {}")
    with psycopg.connect(dsn, autocommit=True) as connection:
        query = "select conname, pg_get_constraintdef(oid) from pg_constraint where conname = any(%s)"
        definitions = connection.execute(query, [list(_CONSTRAINTS)]).fetchall()
        for name, _ in definitions:
            connection.execute(drop.format(table, sql.Identifier(name)))
    try:
        yield
    finally:
        with psycopg.connect(dsn, autocommit=True) as connection:
            connection.execute("delete from batchledger.batch_range where pipeline = %s", [pipeline])
            for name, definition in definitions:
                connection.execute(add.format(table, sql.Identifier(name), sql.SQL(definition)))


class OverwritingPublication(PostgresPublication):
    """Moves positions without comparing them first."""

    @override
    def advance_positions(self) -> None:
        """Overwrite."""
        self.connection.execute(
            "update batchledger.position p set next_offset = upper(r.offsets) from batchledger.batch_range r "
            "where r.batch_id = %s and p.pipeline = r.pipeline and p.topic = r.topic and p.partition = r.partition",
            [self.attempt.batch.batch_id],
        )


@dataclass(frozen=True)
class OverwritingLedger(PostgresLedger):
    """The real ledger without the compare-and-swap: when a plan is stored, audited and published."""

    crash: CrashHook = no_crash

    @override
    def store_plan(self, pipeline: str, plan: Plan, run: str, decision: Decision | None = None) -> Batch:
        """Set the position to where this process believes it to be."""
        self.crash(PLAN_CHOSEN)
        with transaction(self.dsn, "overwrite positions") as cursor:
            cursor.executemany(
                "update batchledger.position set next_offset = %s where (pipeline, topic, partition) = (%s, %s, %s)",
                [(each.start, pipeline, each.partition.topic, each.partition.partition) for each in plan.ranges],
            )
        return super().store_plan(pipeline, plan, run, decision)

    @override
    def find_published(self, batch: Batch) -> Sequence[HeldRange]:
        """Find nothing: otherwise the audit finds what the comparison missed."""
        return ()

    @contextmanager
    @override
    def publication(self, attempt: Attempt, expected: BatchState = BatchState.AUDITED) -> Iterator[PostgresPublication]:
        """Lend the one without comparisons."""
        with super().publication(attempt, expected) as careful:
            yield OverwritingPublication(careful.connection, careful.attempt)


class KeepingSink(PostgresSink):
    """Keeps the staging of superseded attempts, which a stale process needs in order to publish."""

    @override
    def drop_staging(self, attempt: Attempt) -> None:
        """Leave it."""


class KeepingEvidence(PostgresEvidence):
    """As above."""

    @override
    def drop(self, attempt: Attempt) -> None:
        """Leave it."""


@dataclass(frozen=True)
class UnfencedLedger(PostgresLedger):
    """The real ledger for a process that believes that a batch stays its own for ever."""

    own: dict[int, Batch] = field(default_factory=dict)
    staged: dict[tuple[int, int], Staged] = field(default_factory=dict)

    @override
    def load_batch(self, batch_id: int, pipeline: str | None = None) -> Batch:
        """Return what this process last did to the batch, even if another has taken it over."""
        return self.own.get(batch_id) or super().load_batch(batch_id, pipeline)

    @override
    def load_staged(self, attempt: Attempt) -> Staged:
        """Return what its audit has found, even if another attempt has followed."""
        key = (attempt.batch.batch_id, attempt.number)
        if key not in self.staged:
            self.staged[key] = super().load_staged(attempt)
        return self.staged[key]

    @override
    def record_audit(self, attempt: Attempt, *found: Any) -> Batch:
        """Remember the result as the latest one."""
        batch = super().record_audit(attempt, *found)
        self.own[batch.batch_id] = batch
        return batch

    @contextmanager
    @override
    def publication(
        self,
        attempt: Attempt,
        expected: BatchState = BatchState.AUDITED,
    ) -> Iterator[PostgresPublication]:
        """Neither lock nor compare."""
        batch_id = attempt.batch.batch_id
        with connect(self.dsn) as connection:
            yield OverwritingPublication(connection, attempt)
        self.own[batch_id] = replace(self.own[batch_id], state=BatchState.PUBLISHED)


def _uncommitted(platform: Platform) -> Stager:
    from batchledger.source.kafka.requests import Isolation
    from batchledger.source.spark.stager import SparkStager

    stager = cast("SparkStager", platform.make_stager())
    return replace(stager, read_share=partial(stager.read_share, isolation=Isolation.UNCOMMITTED))
