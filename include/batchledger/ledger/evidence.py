"""The Evidence port on PostgreSQL: what the reading tasks witnessed, apart from the rows they wrote.

Two small tables an attempt, ``b17_a2_visible`` and ``b17_a2_quarantine``. They are logged, unlike the rows:
evidence that a crash of the database empties could let lost records pass for holes (S113).
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import psycopg
import pyarrow as pa
from psycopg import sql
from typing_extensions import override

from batchledger.database.sessions import write_and_commit
from batchledger.database.transactions import (
    drop_staging_tables,
    handing_over,
    read_ranges,
    read_statement,
    transaction,
)
from batchledger.formats.records import QUARANTINE_SCHEMA
from batchledger.ledger.evidence_tables import about, quarantine_table, visible_table, withhold_payloads
from batchledger.model.balance import WitnessedRange
from batchledger.model.batch import Attempt, Batch, RecordOrigin
from batchledger.model.checks import FailedRecord
from batchledger.model.errors import StagingError, StagingLostError
from batchledger.model.offsets import OffsetRange, TopicPartition, merge_ranges
from batchledger.model.records.quarantine import ErrorKind, QuarantineContent, summarise
from batchledger.model.records.times import RecordTimes
from batchledger.model.records.unknown_fields import Sighting, UnknownFieldCounter, UnknownFields, sum_up
from batchledger.ports import Evidence, EvidenceWriter, Testimony

_COLUMNS = ", ".join(f'"{each}"' for each in QUARANTINE_SCHEMA.names)
_ROWS_AT_ONCE = 1_000
# Headers that were read are a list. The statement publish_quarantine knows the difference.
_NO_PAYLOAD = {"key": None, "value": None, "headers": "null"}


@dataclass(frozen=True)
class PostgresEvidenceWriter(EvidenceWriter):
    """Holds only text, so that it can be pickled to executors."""

    dsn: str = field(repr=False)
    visible: str
    quarantine: str
    keeps_payloads: bool

    @contextmanager
    @override
    def open(self, reader: int) -> Iterator["PostgresTestimony"]:
        """A task that sets nothing aside opens no connection before its end."""
        with handing_over(f"the evidence in {self.quarantine}", "a record"), ExitStack() as stack:
            yield PostgresTestimony(self, reader, stack)


@dataclass
class PostgresTestimony(Testimony):
    """One transaction; ``stack`` ends it."""

    writer: PostgresEvidenceWriter
    reader: int
    stack: ExitStack

    @override
    def set_aside(self, records: pa.RecordBatch) -> None:
        with self._cursor.copy(f"copy {self.writer.quarantine} ({_COLUMNS}) from stdin") as copy:
            for row in _as_rows(records, keeps_payloads=self.writer.keeps_payloads):
                copy.write_row(tuple(row.values()))

    @override
    def finish(
        self,
        visible: Sequence[OffsetRange],
        tombstones: Sequence[OffsetRange] = (),
        unknown: UnknownFieldCounter | None = None,
    ) -> None:
        table = self.writer.visible
        with self._cursor.copy(f"copy {table} (reader) from stdin") as copy:
            copy.write_row((self.reader,))
        for column, ranges in (("offsets", visible), ("tombstones", tombstones)):
            if not ranges:
                continue
            with self._cursor.copy(f"copy {table} (topic, partition, {column}) from stdin") as copy:
                for each in ranges:
                    copy.write_row((each.partition.topic, each.partition.partition, f"[{each.start},{each.until})"))
        if unknown is not None and unknown.records:
            self._note_unknown(unknown)

    def _note_unknown(self, unknown: UnknownFieldCounter) -> None:
        columns = "reader, field, records, topic, partition, first_offset"
        with self._cursor.copy(f"copy {self.writer.visible} ({columns}) from stdin") as copy:
            copy.write_row((self.reader, None, unknown.records, None, None, None))
            for name, seen in unknown.list_first():
                copy.write_row((self.reader, name, seen.records, *seen.first))

    @cached_property
    def _cursor(self) -> psycopg.Cursor[Any]:
        connection = self.stack.enter_context(write_and_commit(self.writer.dsn))
        # Between two records that are set aside a task may read for hours.
        connection.execute("set idle_in_transaction_session_timeout = 0")
        return self.stack.enter_context(connection.cursor())


@dataclass(frozen=True)
class PostgresEvidence(Evidence):
    """Evidence in tables of the ledger's database.

    ``keeps_payloads``: whether a record that is set aside is written with its key, value and headers. What came from
    quarantine keeps them anyway: they lie there, perhaps nowhere else, and a replay takes their row away.
    """

    dsn: str = field(repr=False)
    keeps_payloads: bool = True

    @override
    def open(self, attempt: Attempt) -> PostgresEvidenceWriter:
        visible, quarantine = visible_table(attempt), quarantine_table(attempt)
        with (
            transaction(self.dsn, f"create the evidence of {attempt.batch.label}") as cursor,
            _requiring_new(attempt),
        ):
            cursor.execute(
                sql.SQL(
                    "create table {} (reader int, topic text, partition int, offsets int8range, tombstones int8range, "
                    "field text, records bigint, first_offset bigint)"
                ).format(visible)
            )
            cursor.execute(
                sql.SQL(
                    'create table {} (topic text, partition int, "offset" bigint, timestamp_ms bigint, '
                    "key bytea, value bytea, headers text, error text, checks text[])"
                ).format(quarantine)
            )
        keeps_payloads = self._keeps_payloads_of(attempt)
        return PostgresEvidenceWriter(self.dsn, visible.as_string(), quarantine.as_string(), keeps_payloads)

    @override
    def summarise(self, attempt: Attempt) -> Sequence[WitnessedRange]:
        with transaction(self.dsn, f"summarise the evidence of {attempt.batch.label}") as cursor:
            cursor.execute(about("summarise_evidence", attempt), {"batch_id": attempt.batch.batch_id})
            return [
                WitnessedRange(
                    OffsetRange(TopicPartition(topic, partition), start, until),
                    visible,
                    quarantined,
                    tombstones,
                    RecordTimes(*times),
                )
                for topic, partition, start, until, visible, quarantined, tombstones, *times in cursor.fetchall()
            ]

    @override
    def summarise_quarantine(self, attempt: Attempt) -> QuarantineContent:
        with transaction(self.dsn, f"summarise what would be quarantined of {attempt.batch.label}") as cursor:
            cursor.execute(about("summarise_staged_quarantine", attempt))
            return summarise(
                [
                    ErrorKind(error, records, OffsetRange(TopicPartition(topic, partition), offset, offset + 1))
                    for error, records, topic, partition, offset in cursor
                ]
            )

    @override
    def summarise_unknown_fields(self, attempt: Attempt) -> UnknownFields:
        with transaction(self.dsn, f"count the unknown fields of {attempt.batch.label}") as cursor:
            cursor.execute(about("summarise_unknown_fields", attempt))
            total, sightings = 0, []
            for name, records, *place in cursor:
                if name is None:
                    total += records
                else:
                    sightings.append((name, Sighting(records, tuple(place))))
        return sum_up(total, sightings)

    @override
    def count_finished(self, attempt: Attempt) -> int:
        with transaction(self.dsn, f"count the finished reads of {attempt.batch.label}") as cursor:
            cursor.execute(sql.SQL("select count(distinct reader) from {}").format(visible_table(attempt)))
            return int(cursor.fetchall()[0][0])

    @override
    def count_seen(self, attempt: Attempt) -> int:
        try:
            with transaction(self.dsn, f"count what was read of {attempt.batch.label}") as cursor:
                cursor.execute(about("count_seen", attempt))
                return int(cursor.fetchall()[0][0])
        except StagingLostError:
            return 0

    @override
    def find_holes(self, attempt: Attempt) -> Sequence[OffsetRange]:
        with transaction(self.dsn, f"look for holes in {attempt.batch.label}") as cursor:
            cursor.execute(about("find_holes", attempt), {"batch_id": attempt.batch.batch_id})
            return read_ranges(cursor)

    @override
    def read_quarantine(self, batch: Batch) -> pa.Table:
        with transaction(self.dsn, f"read the quarantine of {batch.label}") as cursor:
            cursor.execute(read_statement(__package__, "read_quarantine"), {"batch_id": batch.batch_id})
            columns = list(zip(*cursor.fetchall(), strict=True)) or [()] * len(QUARANTINE_SCHEMA)
        return pa.table(columns, schema=QUARANTINE_SCHEMA)

    @override
    def set_aside(self, attempt: Attempt, failed: Sequence[FailedRecord], records: pa.Table) -> Sequence[OffsetRange]:
        failed_by_place = {(each.partition.topic, each.partition.partition, each.offset): each for each in failed}
        places = records.select(["topic", "partition", "offset"]).to_pydict()
        missing = failed_by_place.keys() - set(zip(*places.values(), strict=True))
        if missing:
            return merge_ranges(failed_by_place[each].range for each in missing)
        with transaction(self.dsn, f"set records of {attempt.batch.label} aside", attempt) as cursor:
            # Otherwise a twin could insert the same at the same time.
            cursor.execute(sql.SQL("lock table {} in share row exclusive mode").format(quarantine_table(attempt)))
            cursor.execute(
                sql.SQL("create temporary table batchledger_aside (like {}) on commit drop").format(
                    quarantine_table(attempt)
                )
            )
            with cursor.copy(f"copy batchledger_aside ({_COLUMNS}, checks) from stdin") as copy:
                for row in _as_rows(records, keeps_payloads=self._keeps_payloads_of(attempt)):
                    each = failed_by_place.pop((row["topic"], row["partition"], row["offset"]), None)
                    if each is not None:
                        copy.write_row((*(row | {"error": each.reason}).values(), list(each.checks)))
            cursor.execute("analyze batchledger_aside")
            cursor.execute(about("insert_set_aside", attempt))
            # A column of an erased key may be missing from the row by now, so that nothing has marked it.
            withhold_payloads(cursor, attempt)
        return ()

    @override
    def list_set_aside(self, attempt: Attempt) -> Sequence[FailedRecord]:
        with transaction(self.dsn, f"list what was set aside of {attempt.batch.label}") as cursor:
            cursor.execute(
                sql.SQL(
                    'select topic, partition, "offset", checks from {} where checks is not null '
                    'order by topic, partition, "offset"'
                ).format(quarantine_table(attempt))
            )
            return [
                FailedRecord(TopicPartition(topic, partition), offset, tuple(checks))
                for topic, partition, offset, checks in cursor
            ]

    @override
    def drop(self, attempt: Attempt) -> None:
        drop_staging_tables(self.dsn, attempt, ("visible", "quarantine"))

    def _keeps_payloads_of(self, attempt: Attempt) -> bool:
        return self.keeps_payloads or attempt.batch.origin is RecordOrigin.QUARANTINE


@contextmanager
def _requiring_new(attempt: Attempt) -> Iterator[None]:
    try:
        yield
    except psycopg.errors.DuplicateTable as error:
        raise StagingError(
            f"A task still writes what attempt {attempt.number} of {attempt.batch.label} has read before.",
            advice="The next attempt has tables of its own.",
            batch_id=attempt.batch.batch_id,
        ) from error


def _as_rows(records: pa.Table | pa.RecordBatch, *, keeps_payloads: bool) -> Iterator[dict[str, Any]]:
    """Yield the records a few at a time, because all of them may take hundreds of megabytes."""
    for start in range(0, records.num_rows, _ROWS_AT_ONCE):
        for row in records.slice(start, _ROWS_AT_ONCE).to_pylist():
            yield row if keeps_payloads else row | _NO_PAYLOAD
