"""The Sink port on a topic: rows wait in the ledger's database, and are produced in a transaction of Kafka's.

A record is the row as JSON, without the columns of provenance, which are headers; a row that deletes its key is a
tombstone. Committed records stay: nothing is withdrawn, and a replay produces its records once more. Only the ledger
knows what was decided about message keys. A row of an earlier batch counts as accepted if it is neither listed as a
duplicate, nor in quarantine, nor remembered with another key.
"""

from collections.abc import Generator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

import psycopg
from psycopg import sql
from tenacity import retry, retry_if_result, stop_after_delay, wait_fixed
from typing_extensions import override

from batchledger.adapters.postgres.database import held_as_arrays, read_sql, transaction
from batchledger.adapters.postgres.sinks.null_keys import require_keys
from batchledger.adapters.postgres.staging.deduplication import AcceptedRows
from batchledger.adapters.postgres.staging.staging import PostgresStaging
from batchledger.adapters.postgres.staging.tables import hash_of, join_names, rows_table
from batchledger.adapters.postgres.staging.withdrawal import find_replaced
from batchledger.model.balance import TargetCounts
from batchledger.model.batch import Attempt, BatchState, HeldRange, Target
from batchledger.model.claims import PreparedRows, TargetClaim
from batchledger.model.errors import DecisionRefusedError, TargetChangedError, UnsettledError
from batchledger.model.offsets import OffsetRange
from batchledger.model.records.columns import DELETED_COLUMN, PROVENANCE_COLUMNS
from batchledger.model.records.comparison import Comparison
from batchledger.model.records.rules import Deduplication, SequenceRule
from batchledger.ports import CommittingSink, OutputCounts, OutputRecord, OutputTopic, Publication, Sink, TargetAccess

_OUTPUT = sql.Identifier("pg_temp", "batchledger_output")
"""The rows that are to be produced."""
ROWS_AT_ONCE = 10_000
SETTLING_SECONDS = 10.0


@dataclass(frozen=True)
class TopicSink(PostgresStaging, CommittingSink, Sink):
    """``key`` names the columns that become the key of a record; without it records have none.

    A key of one column is its text; a key of several is the JSON array of their values.
    """

    dsn: str = field(repr=False)
    topic: OutputTopic
    key: tuple[str, ...] = ()
    deduplication: Deduplication | None = None
    sequence: SequenceRule | None = None

    @property
    @override
    def name(self) -> str:
        """The topic as people write it."""
        return f"topic {self.topic.name}"

    @property
    @override
    def key_columns(self) -> tuple[str, ...]:
        return self.key

    @override
    def find_old_rows(
        self,
        cursor: psycopg.Cursor[Any],
        attempt: Attempt,
        replaced: Sequence[HeldRange],
    ) -> tuple[sql.Composable, dict[str, Any]]:
        """Records never change, so these are the rows that the attempt has staged."""
        key_hash = hash_of(self.deduplication.key if self.deduplication else ())
        return read_sql(__package__, "select_produced_before").format(
            staging=rows_table(attempt), key_hash=key_hash
        ), held_as_arrays(replaced)

    @override
    def require_fit(self, cursor: psycopg.Cursor[Any], attempt: Attempt, columns: Sequence[str]) -> None:
        """Any columns fit into a record."""

    @override
    def withdraw(self, publication: Publication, replaced: Sequence[HeldRange]) -> Sequence[int]:
        """Nothing goes: the records of other batches stay in the topic."""
        if self.message_keys is not None:
            with publication.connection.cursor() as cursor:
                rows, parameters = self.find_old_rows(cursor, publication.attempt, replaced)
                self.message_keys.recall(cursor, publication.attempt, replaced, rows, parameters)
        return [0] * len(replaced)

    @override
    def count_held(self, held: Sequence[HeldRange]) -> Sequence[int]:
        """No row of another batch would go."""
        return [0] * len(held)

    @override
    def compare(self, attempt: Attempt, limit: int) -> Comparison:
        """Every accepted row is one more record; rows of offsets that other batches hold come once more."""
        with transaction(self.dsn, f"count what {attempt.batch.label} would produce", attempt) as cursor:
            self.staged_columns(cursor, attempt)
            rows: sql.Composable = rows_table(attempt)
            if self.message_keys is not None:
                rows = self.message_keys.select_accepted(cursor, attempt)
            query = read_sql(__package__, "count_produced").format(rows=rows)
            cursor.execute(query, held_as_arrays(find_replaced(cursor, attempt)))
            ((repeated, added),) = cursor.fetchall()
            cursor.connection.rollback()
            return Comparison(added=added, repeated=repeated)

    @override
    def claim_target(self, attempt: Attempt, connection: psycopg.Connection[Any] | None = None) -> TargetClaim:
        """A topic that is missing is created."""
        with self.asking(attempt, connection) as cursor:
            return self._claim(cursor, attempt)

    @override
    def find_target(self) -> Target | None:
        identity = self.topic.identify()
        return None if identity is None else Target(self.name, identity)

    @override
    def check(self, publication: Publication) -> None:
        """If the topic takes the largest record, it takes all."""
        with publication.connection.cursor(binary=True) as cursor:
            records = self._select_records(cursor, publication.attempt)
            cursor.execute(read_sql(__package__, "find_largest").format(records=records))
            largest = cursor.fetchone()
        if largest is not None:
            self.topic.require_room(publication.attempt, OutputRecord._make(largest))

    @override
    def publish(self, publication: Publication) -> PreparedRows:
        """The records to produce are a view of the transaction."""
        attempt = publication.attempt
        rows, accepted = self._account(publication)
        with publication.connection.cursor() as cursor:
            cursor.execute(sql.SQL("create temporary view {} as select * from {}").format(_OUTPUT, rows.missing))
            self._require_keys(cursor, attempt)
        return PreparedRows(accepted, rows.dropped)

    @override
    def confirm(self, publication: Publication) -> PreparedRows:
        rows, accepted = self._account(publication)
        return PreparedRows(accepted, rows.dropped)

    def _account(self, publication: Publication) -> tuple[AcceptedRows, int]:
        """Say which of the staged rows are accepted, and how many; let later batches know their keys."""
        rows = AcceptedRows(rows_table(publication.attempt))
        with publication.connection.cursor() as cursor:
            self.staged_columns(cursor, publication.attempt)
            if self.message_keys is not None:
                cursor.execute("set local work_mem = '256MB'")
                rows = self.message_keys.accept(cursor, publication)
            return rows, rows.held + _count(cursor, rows.missing)

    @override
    def commit(self, publication: Publication) -> None:
        attempt = publication.attempt
        with publication.connection.cursor() as cursor:
            count = _count(cursor, _OUTPUT)
            query = self._select_records(cursor, attempt)
            # With the default, hundreds of thousands of rows are sorted on disk.
            cursor.execute("set local work_mem = '256MB'")
        with publication.connection.cursor(name="batchledger_output", binary=True) as cursor:
            cursor.execute(query)
            with closing(_read_ahead(cursor)) as rows:
                records = map(OutputRecord._make, rows)
                if attempt.batch.state is BatchState.COMMITTING:
                    self.topic.commit(attempt, records, count)
                else:
                    self.topic.send(attempt, records)

    @override
    def prepare_commit(self, attempt: Attempt) -> Sequence[int]:
        return self.topic.prepare_commit(attempt)

    @override
    def find_commit(self, attempt: Attempt) -> bool | None:
        return self.topic.find_commit(attempt)

    @override
    def search_commit(self, attempt: Attempt) -> None:
        self.topic.search_commit(attempt)

    @override
    def truncate(self, access: TargetAccess) -> int:
        """Never asked for: a rewind that would do so is refused before (``decisions``)."""
        raise DecisionRefusedError(f"{self.name} of {access.pipeline} cannot be emptied.")

    @override
    def count_target(self, pipeline: str, within: Sequence[OffsetRange] | None = None) -> TargetCounts:
        """Records that no pipeline has written belong to other producers."""
        counts = self._count(within)
        if counts.held_back:
            raise UnsettledError(
                f"{pipeline} cannot be proved now.",
                why=f"{counts.held_back:,} offsets of {self.name} lie behind an open transaction.",
                advice="Ask again when it has ended; Kafka ends it after its transaction.timeout.ms.",
                pipeline=pipeline,
            )
        return TargetCounts(counts.count_by_batch, counts.incomplete_until)

    @retry(
        # Kafka answers a commit before its readers see the records.
        retry=retry_if_result(lambda counts: counts.held_back > 0),
        stop=stop_after_delay(SETTLING_SECONDS),
        wait=wait_fixed(0.2),
        retry_error_callback=lambda state: state.outcome.result() if state.outcome else None,
    )
    def _count(self, within: Sequence[OffsetRange] | None) -> OutputCounts:
        return self.topic.count(within)

    def _select_records(self, cursor: psycopg.Cursor[Any], attempt: Attempt) -> sql.Composed:
        """Return the query for the records that are to be produced, as the fields of ``OutputRecord``."""
        types = self.staged_columns(cursor, attempt)
        declared = [each for each in types if each not in (*PROVENANCE_COLUMNS, DELETED_COLUMN)]
        row = sql.SQL("(select row_to_json(r)::text from (select {}) r)").format(join_names(declared))
        deletes = sql.SQL("{} is true").format(sql.Identifier(DELETED_COLUMN))
        return read_sql(__package__, "read_output").format(
            rows=_OUTPUT,
            key=self._key(types),
            value=row if declared else sql.Literal("{}"),
            deletes=deletes if DELETED_COLUMN in types else sql.SQL("false"),
        )

    def _key(self, types: Mapping[str, str]) -> sql.Composable:
        names = join_names(self.key)
        match self.key:
            case ():
                return sql.SQL("null::bytea")
            case (column,):
                return names if types[column] == "bytea" else sql.SQL("convert_to({}::text, 'UTF8')").format(names)
            case _:
                whole = sql.SQL("convert_to(jsonb_build_array({})::text, 'UTF8')").format(names)
                return sql.SQL("case when num_nulls({}) = 0 then {} end").format(names, whole)

    def _claim(self, cursor: psycopg.Cursor[Any], attempt: Attempt) -> TargetClaim:
        """Return the claim. Raises TargetChangedError when the topic is one that the pipeline reads."""

        def knows(batch_id: int) -> bool:
            owner = [batch_id, attempt.batch.pipeline]
            cursor.execute("select 1 from batchledger.batch where batch_id = %s and pipeline = %s", owner)
            return cursor.fetchone() is not None

        identity = self.topic.require_usable(attempt, knows)
        cursor.execute(
            "select topic from batchledger.position where pipeline = %s and concat_ws(' ', cluster_id, topic_id) = %s",
            [attempt.batch.pipeline, identity],
        )
        if cursor.fetchone() is not None:
            raise TargetChangedError(
                f"{self.name} is a topic that {attempt.batch.pipeline} reads. Nothing was produced.",
                why="The pipeline would read its own rows for ever.",
                advice="Name another topic in sink.topic.",
                pipeline=attempt.batch.pipeline,
            )
        return TargetClaim(self.name, identity)

    def _require_keys(self, cursor: psycopg.Cursor[Any], attempt: Attempt) -> None:
        """Raise KeyConflictError when a record would have no key: no partition would keep its order."""
        if not self.key:
            return
        is_null = sql.SQL("{} is null").format(self._key(self.staged_columns(cursor, attempt)))
        require_keys(cursor, attempt, self.key, _OUTPUT, is_null, done="produced")


def _read_ahead(cursor: psycopg.ServerCursor[Any]) -> Generator[tuple[Any, ...]]:
    """Yield the rows of a query; the database makes the next ones while the caller sends these."""
    with ThreadPoolExecutor(1) as thread:
        coming = thread.submit(cursor.fetchmany, ROWS_AT_ONCE)
        while rows := coming.result():
            coming = thread.submit(cursor.fetchmany, ROWS_AT_ONCE)
            yield from rows


def _count(cursor: psycopg.Cursor[Any], rows: sql.Composable) -> int:
    cursor.execute(sql.SQL("select count(*) from {}").format(rows))
    return int(cursor.fetchall()[0][0])
