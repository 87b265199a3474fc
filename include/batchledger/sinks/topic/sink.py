"""The Sink port on a topic: rows wait in the ledger's database, and are produced in a transaction of Kafka's.

A record is the row as JSON or Avro, without the columns of provenance, which are headers; a row that deletes its key is
a tombstone. The tasks that write the rows make the records, too (``topic_records``). Committed records stay: nothing is
withdrawn, and a replay produces its records once more. Only the ledger knows what was decided about message keys. A row
of an earlier batch counts as accepted if it is neither listed as a duplicate, nor in quarantine, nor remembered with
another key.
"""

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any, ClassVar

import psycopg
import pyarrow as pa
from psycopg import sql
from typing_extensions import override

from batchledger.database.transactions import drop_staging_tables, held_as_arrays, read_sql, transaction
from batchledger.formats.encoding.blocks import RecordEncoder
from batchledger.formats.encoding.registered import RegisteredOutput
from batchledger.model.balance import TargetCounts
from batchledger.model.batch import Attempt, BatchState, HeldRange, Target
from batchledger.model.capabilities import Capabilities
from batchledger.model.claims import PreparedRows, TargetClaim, Withdrawn
from batchledger.model.errors import BatchledgerError, TargetChangedError, UnsettledError
from batchledger.model.offsets import OffsetRange
from batchledger.model.records.comparison import Comparison
from batchledger.model.records.rules import Deduplication, SequenceRule
from batchledger.ports import CommittingSink, RowsToPublish, Sink, StagingWriter
from batchledger.sinks.merging.null_keys import require_keys
from batchledger.sinks.staging.deduplication import AcceptedRows
from batchledger.sinks.staging.key_secret import ReadSecret, no_secret
from batchledger.sinks.staging.staging import PostgresStaging
from batchledger.sinks.staging.tables import PostgresStagingWriter, count_rows, hash_of, join_names, rows_table
from batchledger.sinks.staging.withdrawal import OldRows, find_replaced
from batchledger.sinks.topic.capabilities import CAPABILITIES
from batchledger.sinks.topic.staged_records import RecordStagingWriter, StagedRecords, create_pieces, require_records
from batchledger.sinks.topic.topic import KafkaOutputTopic

SETTLING_SECONDS = 10.0


@dataclass(frozen=True)
class TopicSink(PostgresStaging, CommittingSink, Sink):
    """``key`` names the columns that become the key of a record; without it records have none.

    A key of one column is its text; a key of several is the JSON array of their values. ``output`` writes values whose
    schema a registry knows; without it they are JSON.
    """

    capabilities: ClassVar[Capabilities] = CAPABILITIES

    dsn: str = field(repr=False)
    topic: KafkaOutputTopic
    key: tuple[str, ...] = ()
    deduplication: Deduplication | None = None
    sequence: SequenceRule | None = None
    output: RegisteredOutput | None = None
    read_secret: ReadSecret = field(default=no_secret, repr=False)

    @property
    @override
    def name(self) -> str:
        """The topic as people write it."""
        return f"topic {self.topic.name}"

    @property
    @override
    def key_columns(self) -> tuple[str, ...]:
        return self.key

    @property
    @override
    def confirms_by_rows(self) -> bool:
        """By their keys and numbers, which later batches have to know; the audit has said the rest."""
        return self.deduplication is not None or self.sequence is not None

    @override
    def find_old_rows(self, cursor: psycopg.Cursor[Any], attempt: Attempt, replaced: Sequence[HeldRange]) -> OldRows:
        """Records never change, so these are the rows that the attempt has staged."""
        key_hash = hash_of(self.deduplication.key if self.deduplication else ())
        return read_sql(__package__, "select_produced_before").format(
            staging=rows_table(attempt), key_hash=key_hash
        ), held_as_arrays(replaced)

    @override
    def withdraw(self, rows: RowsToPublish) -> Withdrawn:
        """Nothing goes: the records of other batches stay in the topic. What was decided about them is recalled."""
        if self.message_keys is not None:
            with rows.connection.cursor() as cursor:
                old = self.find_old_rows(cursor, rows.attempt, rows.replaced)
                self.message_keys.recall(cursor, rows.replaced, old)
        return Withdrawn([0] * len(rows.replaced), handed=True)

    @override
    def count_held(self, pipeline: str, held: Sequence[HeldRange]) -> Sequence[int]:
        """No row of another batch would go."""
        return [0] * len(held)

    @override
    def compare(self, attempt: Attempt, limit: int) -> Comparison:
        """Every accepted row is one more record; rows of offsets that other batches hold come once more."""
        with transaction(self.dsn, f"count what {attempt.batch.label} would produce", attempt) as cursor:
            self.staged_columns(cursor, attempt)
            replaced = find_replaced(cursor, attempt)
            old = self.find_old_rows(cursor, attempt, replaced)
            rows = self.select_replayed(cursor, attempt, replaced, old)
            query = read_sql(__package__, "count_produced").format(rows=rows)
            cursor.execute(query, held_as_arrays(replaced))
            ((repeated, added),) = cursor.fetchall()
            cursor.connection.rollback()
            return Comparison(added=added, repeated=repeated)

    @override
    def find_target(self) -> Target | None:
        identity = self.topic.identify()
        return None if identity is None else Target(self.name, identity)

    @override
    def open_staging(self, attempt: Attempt, schema: pa.Schema) -> StagingWriter:
        # First, so that nothing is staged of what no reader of the topic could read.
        encoder = self.open_encoder(attempt, schema)
        rows = super().open_staging(attempt, schema)
        with transaction(self.dsn, f"create the staging of {attempt.batch.label}") as cursor:
            pieces = PostgresStagingWriter(self.dsn, create_pieces(cursor, attempt, is_logged=self.confirms_by_rows))
        return RecordStagingWriter(rows, pieces, encoder)

    def open_encoder(self, attempt: Attempt, schema: pa.Schema) -> RecordEncoder:
        """Return what makes records of rows with this schema. Raises what keeps readers from knowing them."""
        if self.output is None:
            return RecordEncoder(self.key)
        self.require_columns(schema)
        try:
            return RecordEncoder(self.key, self.output.open(schema, is_dry_run=attempt.batch.is_dry_run))
        except BatchledgerError as error:
            error.batch_id = attempt.batch.batch_id
            raise

    @override
    def seal_staging(self, attempt: Attempt, accepted_tasks: Sequence[int]) -> None:
        super().seal_staging(attempt, accepted_tasks)
        self.seal_table(attempt, "arriving", "records", accepted_tasks)
        with transaction(self.dsn, f"count the records of {attempt.batch.label}", attempt) as cursor:
            require_records(cursor, attempt)

    @override
    def drop_staging(self, attempt: Attempt) -> None:
        super().drop_staging(attempt)
        drop_staging_tables(self.dsn, attempt, ("arriving", "records"))

    @override
    def check(self, rows: RowsToPublish) -> None:
        """If the topic takes the largest record, it takes all."""
        records: StagedRecords = rows.handed
        largest = records.find_largest()
        if largest is not None:
            self.topic.require_room(rows.attempt, *largest)

    @override
    def publish(self, rows: RowsToPublish) -> PreparedRows:
        """It hands on the records to send."""
        accepted, count = self._account(rows)
        if self.key:
            with rows.connection.cursor() as cursor:
                # Without a key, no partition would keep the order of its records.
                is_null = sql.SQL("num_nulls({}) > 0").format(join_names(self.key))
                require_keys(cursor, rows.attempt, self.key, accepted.missing, is_null, done="produced")
        records = StagedRecords(rows.connection, rows.attempt)
        records.choose(accepted.missing, count - accepted.held)
        return PreparedRows(count, accepted.dropped, handed=records)

    @override
    def confirm(self, rows: RowsToPublish) -> PreparedRows:
        if not self.confirms_by_rows:
            # Without the rule of its audit nothing is a duplicate.
            return PreparedRows(rows.accepted + rows.duplicates, 0)
        accepted, count = self._account(rows)
        return PreparedRows(count, accepted.dropped)

    def _account(self, rows: RowsToPublish) -> tuple[AcceptedRows, int]:
        """Say which of the staged rows are accepted, and how many; let later batches know their keys."""
        with rows.connection.cursor() as cursor:
            self.staged_columns(cursor, rows.attempt)
            accepted = self.accept(cursor, rows)
            return accepted, accepted.held + count_rows(cursor, accepted.missing)

    @override
    def commit(self, rows: RowsToPublish) -> None:
        attempt, records = rows.attempt, rows.handed
        with closing(records.read()) as blocks:
            if attempt.batch.state is BatchState.COMMITTING:
                self.topic.commit(attempt, blocks, records.count())
            else:
                self.topic.send(attempt, blocks)

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
    def count_target(self, pipeline: str, within: Sequence[OffsetRange] | None = None) -> TargetCounts:
        """Records that no pipeline has written belong to other producers."""
        # Kafka answers a commit before its readers see the records, and a stream is open while Spark reads.
        counts = self.topic.count(within, SETTLING_SECONDS + min(60.0, self.topic.transaction_timeout_seconds))
        if counts.held_back:
            raise UnsettledError(
                f"{pipeline} cannot be proved now.",
                why=f"{counts.held_back:,} offsets of {self.name} lie behind an open transaction.",
                advice="Ask again when it has ended; Kafka ends it after its transaction.timeout.ms.",
                pipeline=pipeline,
            )
        return TargetCounts(counts.count_by_batch, counts.incomplete_until)

    @override
    def find_claim(self, cursor: psycopg.Cursor[Any], attempt: Attempt) -> TargetClaim:
        """A topic that is missing is created. Raises TargetChangedError when it is one that the pipeline reads."""
        identity = self.topic.require_usable(attempt)
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
