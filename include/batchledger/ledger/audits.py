"""Audits of the ledger on PostgreSQL: what is open, what lies in staging, where a window begins, and the results."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from psycopg.types.json import Jsonb

from batchledger.database.transactions import STAGING_SCHEMA, read_statement
from batchledger.ledger.housekeeping import list_staging
from batchledger.ledger.schema import snapshot, transaction
from batchledger.model.batch import BatchState, Lane
from batchledger.model.checks import CheckResult, Outcome, Severity, Suite
from batchledger.model.housekeeping import StagingTable
from batchledger.monitoring.ledger_audit import OpenBatch


@dataclass(frozen=True, slots=True)
class WorkInProgress:
    """The open batches of a pipeline, and the staging tables of its attempts, at one moment."""

    batches: Sequence[OpenBatch]
    tables: Sequence[StagingTable]


@dataclass(frozen=True, slots=True)
class StoredAudit:
    """What one audit has found."""

    audited_at: datetime
    checks: Sequence[CheckResult]

    @property
    def failing(self) -> list[str]:
        """The names of the checks that failed or could not run."""
        return [each.name for each in self.checks if each.outcome in (Outcome.FAILED, Outcome.NOT_RUN)]


def load_work(dsn: str, pipeline: str) -> WorkInProgress:
    """Return the open batches of a pipeline, and what lies in its staging."""
    with snapshot(dsn, f"look at the open batches of {pipeline}") as cursor:
        parameters = {"pipeline": pipeline, "schema": STAGING_SCHEMA}
        cursor.execute(read_statement(__package__, "list_work"), parameters)
        batches = [OpenBatch(batch_id, Lane(lane), BatchState(state), *rest) for batch_id, lane, state, *rest in cursor]
        tables = [each for each in list_staging(cursor) if each.known and each.known.pipeline == pipeline]
    return WorkInProgress(batches, tables)


def find_window(dsn: str, pipeline: str, newest: int) -> datetime | None:
    """Return when the oldest of the ``newest`` published batches was published; None when there are no more than that.

    A batch that takes offsets over is published after the other one. So the batches published since then hold the
    offsets of these, whatever was replayed.
    """
    with transaction(dsn, f"look for the newest batches of {pipeline}") as cursor:
        cursor.execute(
            "select published_at from batchledger.batch where pipeline = %s and state = 'published' "
            "order by published_at desc offset %s limit 2",
            [pipeline, newest - 1],
        )
        found = cursor.fetchall()
    return found[0][0] if len(found) > 1 else None


def store_audit(dsn: str, pipeline: str, audited_at: datetime, checks: Sequence[CheckResult]) -> None:
    """Store the results of one audit, all or none."""
    with transaction(dsn, f"store the audit of {pipeline}") as cursor:
        cursor.executemany(
            read_statement(__package__, "insert_audit_result"),
            [
                {
                    "pipeline": pipeline,
                    "audited_at": audited_at,
                    "name": each.name,
                    "outcome": each.outcome,
                    "severity": each.severity,
                    "detail": each.detail,
                    "observed": Jsonb(each.observed),
                    "validation": None if each.validation is None else Jsonb(each.validation),
                }
                for each in checks
            ],
        )


def load_newest_audit(dsn: str, pipeline: str) -> StoredAudit | None:
    """Return the newest audit of a pipeline; None when it never was audited."""
    with transaction(dsn, f"load the newest audit of {pipeline}") as cursor:
        cursor.execute(
            "select audited_at, name, outcome, detail, observed, severity, validation from batchledger.audit_result "
            "where pipeline = %(pipeline)s and audited_at = "
            "(select max(audited_at) from batchledger.audit_result where pipeline = %(pipeline)s) order by name",
            {"pipeline": pipeline},
        )
        rows: list[tuple[Any, ...]] = cursor.fetchall()
    if not rows:
        return None
    checks = [
        CheckResult(name, Outcome(outcome), detail, observed, Severity(severity), Suite.LEDGER, validation)
        for _, name, outcome, detail, observed, severity, validation in rows
    ]
    return StoredAudit(rows[0][0], checks)
