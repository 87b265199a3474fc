"""Streams the rows of an attempt into the target, in one transaction that is judged before it commits (ADR 0073).

While Spark reads, a COPY is open and takes what comes through the door. Then a view with the name of a sealed staging
table shows the attempt's rows in the target. So they are counted, checked and named by the statements of staging. The
view is gone before the commit. What the target would not take as it is, or what has to be written twice, is staged.
"""

import os
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar

import psycopg
import pyarrow as pa
from psycopg import sql
from typing_extensions import override

from batchledger.database.sessions import LOST_IS_NOTICED, Connection, connect
from batchledger.database.transactions import read_sql, transaction, translate_errors
from batchledger.model.batch import Attempt
from batchledger.model.checks import Severity
from batchledger.model.claims import PreparedRows
from batchledger.model.offsets import OffsetRange
from batchledger.model.records.columns import BATCH_COLUMN
from batchledger.model.stream_address import StreamAddress, name_session
from batchledger.ports import RowsToPublish, RowStream, StagingWriter
from batchledger.sinks.staging.deduplication import Repeated
from batchledger.sinks.staging.lending import LentConnection, QueryCursor
from batchledger.sinks.staging.staged_rows import PostgresStagedRows
from batchledger.sinks.staging.strangers import require_no_strangers
from batchledger.sinks.staging.tables import (
    COPY_HEADER,
    COPY_TRAILER,
    copy_to,
    join_names,
    postgres_type,
    rows_table,
)
from batchledger.sinks.streaming.stream import OpenStream, StreamedStaging
from batchledger.sinks.table.copy_rows import CopyRows
from batchledger.sinks.table.sink import PostgresSink
from batchledger.sinks.table.target import TargetTable

OPEN_SECONDS = 600.0
"""So long a stream may take with its commit: its transaction keeps VACUUM from removing what was deleted since."""

_LARGE_BYTES = 128 << 20


@contextmanager
def open_stream(sink: PostgresSink, address: StreamAddress, attempt: Attempt) -> Iterator["TableStream"]:
    """Yield a stream into the table of a sink; what is not committed in it is rolled back."""
    with translate_errors(f"open the stream of {attempt.batch.label}", attempt):
        connection = connect(sink.dsn, application_name=name_session(attempt.batch.batch_id), **LOST_IS_NOTICED)
    connection.prepare_threshold = None
    with TableStream(sink, attempt, address, connection=connection).used() as stream:
        yield stream


@dataclass(eq=False)
class TableStream(OpenStream, RowStream):
    """One transaction. ``copied`` are the rows that PostgreSQL says it has taken."""

    in_order: ClassVar[bool] = False

    plain: PostgresSink
    connection: Connection = field(kw_only=True, repr=False)
    columns: tuple[str, ...] = ()
    copied: int = 0
    _copying: Any = None

    def __post_init__(self) -> None:
        self.lent = LentConnection(self.connection.pgconn)
        self.sink = self.make_sink(StreamingSink)

    @contextmanager
    @override
    def joined(self) -> Iterator[None]:
        with self.join(self.connection):
            yield

    @override
    def open(self, schema: pa.Schema) -> StagingWriter:
        """Begin the COPY."""
        target, columns = self.plain.target_table, {each.name: postgres_type(each) for each in schema}
        with translate_errors(f"open the stream of {self.attempt.batch.label}", self.attempt):
            cursor = self.connection.cursor()
            if self.plain.erasure.concerns(cursor, self.attempt):
                self.refuse("rows were erased that its records may bring back")
            if not (known := target.read_columns(cursor)):
                # At once, and empty: a replay that would create it must not wait for the end of the stream.
                with transaction(self.plain.dsn, f"create {target.name}") as creating:
                    target.create(creating, columns)
                known = target.read_columns(cursor)
            self._require_same(cursor, target, known, columns)
            self.columns = tuple(columns)
            manager = cursor.copy(copy_to(target.identifier, (*columns, BATCH_COLUMN)))
            copy = manager.__enter__()
            self._copying = (cursor, manager, copy)
            copy.write(COPY_HEADER)
        return self.listen(copy.write, partial(CopyRows, self.attempt.batch.batch_id), OPEN_SECONDS)

    def _require_same(
        self, cursor: psycopg.Cursor[Any], target: TargetTable, known: dict[str, str], columns: dict[str, str]
    ) -> None:
        """Refuse a table that takes rows only by a conversion, or in which the rows of a batch are hard to find."""
        other = [
            f"{name} is {known.get(name, 'missing')}" for name, type_ in columns.items() if known.get(name) != type_
        ]
        if other or known.get(BATCH_COLUMN) != "bigint":
            self.refuse(
                f"the rows need a conversion: in {target.name} column {(*other, f'{BATCH_COLUMN} is another')[0]}"
            )
        cursor.execute(
            read_sql(__package__, "describe_target").format(target=sql.Literal(target.identifier.as_string(cursor)))
        )
        ((is_other, size, has_index),) = cursor.fetchall()
        if is_other:
            self.refuse(f"{target.name} has row security, a rule or an identity, which COPY does not heed")
        if size > _LARGE_BYTES and not has_index:
            self.refuse(
                f"no index finds the rows of a batch in {target.name}, which is large; add one: "
                f"create index concurrently on {target.name} using brin (_partition, _offset)"
            )

    @override
    def seal(self, accepted_tasks: Sequence[int]) -> None:
        """Also show the rows."""
        found = self.shut()
        cursor, manager, copy = self._copying
        with translate_errors(f"stream the rows of {self.attempt.batch.label}", self.attempt):
            copy.write(COPY_TRAILER)
            self._copying = None
            manager.__exit__(None, None, None)
            self.copied = cursor.rowcount
            self.require_whole(found, accepted_tasks, self.copied)
            cursor.execute(
                sql.SQL("create view {} as select 0::bigint as _task, {} from {} where {}").format(
                    rows_table(self.attempt),
                    join_names(self.columns),
                    self.plain.target_table.identifier,
                    self._is_own,
                )
            )

    def require_no_strangers(self, cursor: psycopg.Cursor[Any]) -> None:
        """Raise TargetChangedError when the table has rows that no batch has written, besides the attempt's own."""
        others = sql.SQL("(select * from {} where ({}) is not true)").format(
            self.plain.target_table.identifier, self._is_own
        )
        require_no_strangers(cursor, self.attempt.batch, others, self.plain.name)

    @property
    def _is_own(self) -> sql.Composed:
        """The condition that a row of the table is of the batch, and where the batch may have rows."""
        return sql.SQL("{} = {} and ({})").format(
            sql.Identifier(BATCH_COLUMN),
            sql.Literal(self.attempt.batch.batch_id),
            sql.SQL(" or ").join(_lies_in(each) for each in self.attempt.batch.ranges),
        )

    @override
    def end(self) -> None:
        """The server ends a COPY only if it sees the end of the connection."""
        self.ended = f"its transaction was open for {OPEN_SECONDS:.0f} s; VACUUM may wait no longer"
        self._end_session()

    def _end_session(self) -> None:
        with suppress(OSError, psycopg.Error), socket.socket(fileno=os.dup(self.connection.fileno())) as session:
            session.shutdown(socket.SHUT_RDWR)

    @override
    def explain(self, broken: Exception) -> None:
        if isinstance(broken, psycopg.Error):
            with translate_errors(f"stream the rows of {self.attempt.batch.label}", self.attempt):
                raise broken

    @override
    def close(self) -> None:
        """End the session; what was not committed is rolled back."""
        if self._copying is not None:
            # The door waits for what it hands on, and the table may wait for a lock that another session holds.
            self._end_session()
        self.shut()
        self.connection.close()
        if self._copying is not None:
            _, manager, _ = self._copying
            # It would send the end of the data to a session that is gone.
            with suppress(psycopg.Error):
                manager.__exit__(None, None, None)


@dataclass(frozen=True)
class StreamingSink(StreamedStaging, PostgresSink):
    """Has the rows of its attempt in the target itself, uncommitted."""

    stream: TableStream = field(kw_only=True, repr=False)

    @contextmanager
    @override
    def read_staged(self, attempt: Attempt) -> Iterator[PostgresStagedRows]:
        with translate_errors(f"look at the rows of {attempt.batch.label}", attempt):
            yield PostgresStagedRows(
                self.stream.lent,
                attempt,
                self.stream.columns,
                None,
                Repeated(),
                self.read_secret,
                self.select_unmatched,
                Severity.WARNING,
                QueryCursor,
            )

    @override
    def publish(self, rows: RowsToPublish) -> PreparedRows:
        """The rows are there; only the view goes."""
        with rows.connection.cursor() as cursor:
            if rows.is_ledger_moved:
                self.stream.require_no_strangers(cursor)
            if self.erasure.concerns(cursor, rows.attempt):
                self.stream.refuse("rows were erased that its records may bring back")
            cursor.execute(sql.SQL("drop view {} cascade").format(rows_table(rows.attempt)))
        return PreparedRows(self.stream.copied, 0, is_ledger_known=rows.is_ledger_moved)


def _lies_in(each: OffsetRange) -> sql.Composed:
    return sql.SQL("(_topic = {} and _partition = {} and _offset >= {} and _offset < {})").format(
        each.partition.topic, each.partition.partition, each.start, each.until
    )
