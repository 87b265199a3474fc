"""What people ask of the ledger: the batches of a pipeline, everything about one batch, and the material of the proof.

Reads only. The material of the proof is one snapshot, so that what is compared belongs together.
"""

import base64
import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import psycopg
from psycopg.rows import class_row
from typing_extensions import override

from batchledger.database.transactions import ranges_as_arrays, read_statement
from batchledger.ledger import rows
from batchledger.ledger.ledger import PostgresLedger
from batchledger.ledger.rows import find_spans, read_positions
from batchledger.ledger.schema import snapshot, transaction
from batchledger.model.batch import Batch, DecisionRecord, Lane
from batchledger.model.checks import CheckResult
from batchledger.model.offsets import OffsetRange, TopicPartition
from batchledger.model.records.comparison import DryRunOutcome
from batchledger.model.records.lookup import Record
from batchledger.proof.decision_chain import ChainedDecision, DecisionChain
from batchledger.proof.verification import PublishedHistory, PublishedRange, Removed, TargetKey

DUPLICATES_SHOWN = 20


@dataclass(frozen=True, slots=True)
class BatchSummary:
    """One line of the list of batches; ``seconds`` from planned to published.

    ``rows`` were published; ``rows_erased`` of them were erased, at once or since.
    """

    batch_id: int
    lane: str
    state: str
    attempt: int
    planned_by: str
    planned_at: datetime
    published_at: datetime | None
    rows: int | None
    seconds: float | None
    ranges: int
    offsets: int
    quarantined: int
    is_dry_run: bool
    rows_erased: int = 0


@dataclass(frozen=True, slots=True)
class AttemptRecord:
    """One execution of a batch and how it ended; ``outcome`` is None while it is at work or was killed.

    ``given_up``: why its rows did not stream, if that was tried.
    """

    number: int
    run: str
    opened_at: datetime
    staged_at: datetime | None
    audited_at: datetime | None
    ended_at: datetime | None
    outcome: str | None
    error: str | None
    failed_step: str | None
    fingerprint: str | None = None
    schema: str | None = None
    given_up: str | None = None

    @property
    def failure(self) -> str | None:
        """The error of a step, with the name of the step."""
        return None if self.error is None else f"{self.failed_step} step: {self.error}"


@dataclass(frozen=True, slots=True)
class RangeRecord:
    """One range with the lines of its balance; None before the audit. ``rows_erased`` of the accepted were erased."""

    topic: str
    partition: int
    start: int
    until: int
    accepted: int | None
    duplicates: int | None
    quarantined: int | None
    tombstones: int | None
    filtered: int | None
    holes: int | None
    aborted: int | None
    markers: int | None
    compacted: int | None
    accepted_loss: int | None
    unexplained: int | None
    rows_erased: int = 0


@dataclass(frozen=True, slots=True)
class DuplicateRecord:
    """A record that was dropped, and the record that came first with the same message key."""

    topic: str
    partition: int
    offset: int
    first_topic: str
    first_partition: int
    first_offset: int


@dataclass(frozen=True, slots=True)
class ReplacementRecord:
    """Offsets that a batch took over from another one, and how much of the other it removed there."""

    batch_id: int
    replaced_batch_id: int
    topic: str
    partition: int
    start: int
    until: int
    rows: int
    quarantined: int
    duplicates: int


@dataclass(frozen=True, slots=True)
class QuarantineLine:
    """A record that could not be decoded, with the batch that set it aside last. ``timestamp`` is ISO text.

    ``payload_kept``: key and value were written. Otherwise both are None, whatever the record had.
    """

    topic: str
    partition: int
    offset: int
    timestamp: str | None
    error: str
    batch_id: int
    quarantined_at: datetime
    key: bytes | None
    value: bytes | None
    payload_kept: bool

    @property
    def place(self) -> tuple[TopicPartition, int]:
        """Its partition and its offset."""
        return TopicPartition(self.topic, self.partition), self.offset

    @override
    def __str__(self) -> str:
        return f"{self.topic}[{self.partition}]@{self.offset}"


@dataclass(frozen=True, slots=True)
class QuarantineList:
    """The first records of a pipeline's quarantine in the order of offsets, and how many there are."""

    lines: Sequence[QuarantineLine]
    total: int


@dataclass(frozen=True, slots=True)
class BatchHistory:
    """Everything the ledger knows about one batch, with the first ``DUPLICATES_SHOWN`` of its duplicates.

    ``replaced`` is what it took over from others, ``replaced_by`` what others took over from it. ``dry_run`` is what a
    finished dry run has found. ``joined_from`` is the first of the batches that were joined into it; then ranges and
    balance are of all of them.
    """

    batch: Batch
    decisions: Sequence[DecisionRecord]
    attempts: Sequence[AttemptRecord]
    ranges: Sequence[RangeRecord]
    checks: Sequence[CheckResult]
    duplicates: Sequence[DuplicateRecord] = ()
    replaced: Sequence[ReplacementRecord] = ()
    replaced_by: Sequence[ReplacementRecord] = ()
    dry_run: DryRunOutcome | None = None
    joined_from: int | None = None

    @property
    def schema(self) -> str | None:
        """The schema that the newest attempt has decoded records with; None if an older version has staged it."""
        return self.attempts[-1].schema if self.attempts else None


def list_batches(dsn: str, pipeline: str, limit: int = 20, before: int | None = None) -> list[BatchSummary]:
    """Return the newest batches of a pipeline, newest first; only batches ``before`` one if it is given."""
    with transaction(dsn, f"list the batches of {pipeline}") as cursor:
        parameters = {"pipeline": pipeline, "limit": limit, "before": before}
        cursor.execute(read_statement(__package__, "list_batches"), parameters)
        return [BatchSummary(*row) for row in cursor]


def list_decisions(dsn: str, pipeline: str, limit: int = 20) -> list[DecisionRecord]:
    """Return what was decided about a pipeline and its batches, the newest first."""
    with transaction(dsn, f"list the decisions about {pipeline}") as cursor:
        return rows.list_decisions(cursor, pipeline=pipeline, limit=limit)


def load_batch_history(dsn: str, batch_id: int, pipeline: str | None = None) -> BatchHistory:
    """Return everything about one batch, or about the one that it was joined into; with ``pipeline`` only of it.

    Raises UnknownBatchError.
    """
    ledger = PostgresLedger(dsn)
    with transaction(dsn, f"look for batch {batch_id}") as cursor:
        spans = find_spans(cursor, batch_id, pipeline)
    # If there are several, load_batch names each.
    batch_id = spans[0][0] if len(spans) == 1 else batch_id
    batch = ledger.load_batch(batch_id, pipeline)
    with transaction(dsn, f"load the history of batch {batch_id}") as cursor:
        attempts = cursor.connection.cursor(row_factory=class_row(AttemptRecord))
        attempts.execute(
            "select number, run, opened_at, staged_at, audited_at, ended_at, outcome, error, failed_step, fingerprint, "
            'definition as "schema", given_up '
            "from batchledger.attempt left join batchledger.record_schema using (schema_id) "
            "where batch_id = %s order by number",
            [batch_id],
        )
        ranges = cursor.connection.cursor(row_factory=class_row(RangeRecord))
        ranges.execute(
            'select topic, partition, lower(offsets) as start, upper(offsets) as "until", accepted, duplicates, '
            "quarantined, tombstones, filtered, holes, aborted, markers, compacted, accepted_loss, unexplained, "
            "rows_erased from batchledger.batch_range where batch_id = %s order by topic, partition, offsets",
            [batch_id],
        )
        duplicates = cursor.connection.cursor(row_factory=class_row(DuplicateRecord))
        duplicates.execute(
            'select topic, partition, "offset", first_topic, first_partition, first_offset from batchledger.duplicate '
            "where batch_id = %s order by topic, partition, 3 limit %s",
            [batch_id, DUPLICATES_SHOWN],
        )
        replacements = cursor.connection.cursor(row_factory=class_row(ReplacementRecord))
        replacements.execute(
            'select batch_id, replaced_batch_id, topic, partition, lower(offsets) as start, upper(offsets) as "until", '
            "rows, quarantined, duplicates from batchledger.replacement "
            "where %(id)s in (batch_id, replaced_batch_id) order by topic, partition, offsets, batch_id",
            {"id": batch_id},
        )
        exchanged = replacements.fetchall()
        cursor.execute("select dry_run, joined_from from batchledger.batch where batch_id = %s", [batch_id])
        ((dry_run, joined_from),) = cursor.fetchall()
        return BatchHistory(
            batch=batch,
            decisions=rows.list_decisions(cursor, batch_id=batch_id)[::-1],
            attempts=attempts.fetchall(),
            ranges=ranges.fetchall(),
            checks=ledger.load_checks(batch_id),
            duplicates=duplicates.fetchall(),
            replaced=[each for each in exchanged if each.batch_id == batch_id],
            replaced_by=[each for each in exchanged if each.replaced_batch_id == batch_id],
            dry_run=None if dry_run is None else DryRunOutcome.from_json(dry_run),
            joined_from=joined_from,
        )


def load_quoted(dsn: str, batch_id: int) -> dict[int, str]:
    """Return the whole texts of errors by the numbers of attempts; they may quote values of records.

    They are read apart from the history, which others see, too.
    """
    with snapshot(dsn, f"load the texts of errors of batch {batch_id}") as cursor:
        cursor.execute(
            "select number, quoted from batchledger.attempt where batch_id = %s and quoted is not null order by number",
            [batch_id],
        )
        return dict(cursor.fetchall())


def list_quarantine(dsn: str, pipeline: str, limit: int, batch_id: int | None = None, skip: int = 0) -> QuarantineList:
    """Return up to ``limit`` records of the quarantine of a pipeline, or of one of its batches, with their bytes.

    ``skip`` leaves out the first ones.
    """
    chosen = "pipeline = %(pipeline)s and (%(batch_id)s::bigint is null or batch_id = %(batch_id)s)"
    parameters = {"pipeline": pipeline, "batch_id": batch_id, "limit": limit, "skip": skip}
    with snapshot(dsn, f"list the quarantine of {pipeline}") as cursor:
        cursor.execute(f"select count(*) from batchledger.quarantine where {chosen}", parameters)  # noqa: S608
        total = int(cursor.fetchall()[0][0])
        cursor.execute(
            'select topic, partition, "offset", '  # noqa: S608
            "coalesce(to_json(\"timestamp\") #>> '{}', nullif(timestamp_ms, -1) || ' ms'), "
            f"error, batch_id, quarantined_at, key, value, payload_kept from batchledger.quarantine where {chosen} "
            'order by topic, partition, "offset" limit %(limit)s offset %(skip)s',
            parameters,
        )
        return QuarantineList([QuarantineLine(*row) for row in cursor], total)


def load_quarantined(dsn: str, pipeline: str, ranges: Sequence[OffsetRange], limit: int) -> list[Record]:
    """Return the first ``limit`` records of the ranges that are in quarantine, with their bytes."""
    with snapshot(dsn, f"read the quarantine of {pipeline}") as cursor:
        parameters = {"pipeline": pipeline, "limit": limit, **ranges_as_arrays(ranges)}
        cursor.execute(read_statement(__package__, "show_quarantined"), parameters)
        return [
            Record(TopicPartition(topic, partition), offset, moment, key, value, _read_headers(headers), error)
            for topic, partition, offset, moment, key, value, headers, error in cursor
        ]


def _read_headers(headers: list[dict[str, str | None]] | None) -> tuple[tuple[str, bytes | None], ...]:
    # Spark's JSON leaves out null values.
    decoded = [(each["key"], each.get("value")) for each in headers or ()]
    return tuple((str(key), None if value is None else base64.b64decode(value)) for key, value in decoded)


def load_published_history(
    dsn: str, pipeline: str, since: datetime | None = None, *, batches: Sequence[int] | None = None
) -> PublishedHistory:
    """Return the material of the proof, at one moment.

    ``since`` limits it to batches that were published then or later, and to batches that hold offsets of them.
    ``batches`` limits it to these.
    """
    with snapshot(dsn, f"load the history of {pipeline}") as cursor:
        positions = read_positions(cursor, pipeline)
        cursor.execute("select epoch from batchledger.pipeline where name = %s", [pipeline])
        epoch = next((int(number) for (number,) in cursor), 0)
        asked = None if batches is None else list(batches)
        if since is not None:
            asked = _find_published_since(cursor, pipeline, since)
        cursor.execute(read_statement(__package__, "list_published"), {"pipeline": pipeline, "asked": asked})
        ranges = [_published_range(row) for row in cursor]
        cursor.execute(
            "select batch_id, topic, partition, count(*) from batchledger.quarantine where pipeline = %(pipeline)s "
            "and (%(asked)s::bigint[] is null or batch_id = any(%(asked)s)) group by batch_id, topic, partition",
            {"pipeline": pipeline, "asked": asked},
        )
        quarantined = _counts(cursor)
        cursor.execute(
            "select batch_id, topic, partition, count(*) from batchledger.batch b "
            "join batchledger.duplicate d using (batch_id) "
            "where b.pipeline = %(pipeline)s and b.state = 'published' "
            "and (%(asked)s::bigint[] is null or batch_id = any(%(asked)s)) group by batch_id, topic, partition",
            {"pipeline": pipeline, "asked": asked},
        )
        duplicates = _counts(cursor)
        cursor.execute(
            "select batch_id from batchledger.batch where pipeline = %s "
            "and (rows_published_at is not null or state = 'committing') "
            "and state not in ('published', 'discarded', 'blocked')",
            [pipeline],
        )
        visible_early = frozenset(batch_id for (batch_id,) in cursor)
        decisions = _load_chain(cursor, pipeline)
    return PublishedHistory(positions, ranges, quarantined, duplicates, epoch, visible_early, decisions)


def _load_chain(cursor: psycopg.Cursor[Any], pipeline: str) -> DecisionChain:
    cursor.execute("select decision_count from batchledger.pipeline where name = %s", [pipeline])
    counted = next((int(number) for (number,) in cursor), 0)
    cursor.execute(read_statement(__package__, "list_chain"), {"pipeline": pipeline})
    return DecisionChain(counted, [ChainedDecision(*row) for row in cursor])


def _find_published_since(cursor: psycopg.Cursor[Any], pipeline: str, since: datetime) -> list[int]:
    cursor.execute(read_statement(__package__, "find_published_since"), {"pipeline": pipeline, "since": since})
    return [batch_id for (batch_id,) in cursor]


def _counts(cursor: psycopg.Cursor[Any]) -> dict[TargetKey, int]:
    return {(batch, TopicPartition(topic, partition)): count for batch, topic, partition, count in cursor}


def _published_range(row: tuple[Any, ...]) -> PublishedRange:
    batch_id, topic, number, start, until, *counts, lane, epoch, replaced, rows, quarantined, duplicates = row[:-2]
    partition = TopicPartition(topic, number)
    published = PublishedRange(batch_id, OffsetRange(partition, start, until), *counts)
    dropped, erased = row[-2:]
    return dataclasses.replace(
        published,
        lane=Lane(lane),
        epoch=epoch,
        replaced=tuple(OffsetRange(partition, each.lower, each.upper) for each in replaced),
        removed=Removed(rows or 0, quarantined or 0, duplicates or 0),
        quarantine_dropped=dropped,
        rows_erased=erased,
    )
