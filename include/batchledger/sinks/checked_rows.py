"""The rows that checks see: a view that lives as long as its session, which can only read (I6)."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from psycopg import sql

from batchledger.batch import Attempt
from batchledger.columns import DELETED_COLUMN
from batchledger.database import connect, translate_errors
from batchledger.ports import RowsToCheck
from batchledger.sinks.deduplication import PostgresDeduplication
from batchledger.sinks.staging import join_names, statement_about

_ROWS = "batchledger_rows"
_REPEATED = sql.Identifier("pg_temp", "batchledger_repeated")


@contextmanager
def open_checked_rows(
    dsn: str, attempt: Attempt, columns: Sequence[str], deduplication: PostgresDeduplication | None
) -> Iterator[RowsToCheck]:
    """Yield the rows that would be published, ``columns`` of them, without duplicates and deleting rows."""
    with translate_errors(f"check the rows of {attempt.batch.label}"), connect(dsn) as connection:
        with connection.cursor() as cursor:
            cursor.execute("set local work_mem = '256MB'")
            cursor.execute("create temporary table batchledger_repeated (_topic text, _partition int, _offset bigint)")
            if deduplication is not None:
                deduplication.insert_repeated(cursor, attempt, _REPEATED)
            cursor.execute("analyze pg_temp.batchledger_repeated")
            is_row = sql.SQL("s.{} is not true").format(sql.Identifier(DELETED_COLUMN))
            parts = {"repeated": _REPEATED, "is_row": is_row if DELETED_COLUMN in columns else sql.SQL("true")}
            shown = join_names([each for each in columns if each != DELETED_COLUMN])
            view = sql.Identifier("pg_temp", _ROWS)
            cursor.execute(statement_about("create_rows_view", attempt, view=view, columns=shown, **parts))
            cursor.execute(statement_about("count_rows_to_check", attempt, **parts))
            ((accepted, checked),) = cursor.fetchall()
            cursor.execute("set default_transaction_read_only = on")
        connection.commit()
        # Each statement stands alone, so that one that fails does not take the others with it.
        connection.autocommit = True
        try:
            yield RowsToCheck(connection, _ROWS, accepted, checked)
        finally:
            # A check whose connection was lost could not run either, and that is no fault of the check.
            connection.execute("select 1")
