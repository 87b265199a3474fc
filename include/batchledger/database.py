"""PostgreSQL connections for the ledger and the sink beside it: bounded waits, and errors in the family's words."""

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from importlib.resources import files
from typing import Any

import psycopg
from psycopg import sql
from psycopg.rows import TupleRow

from batchledger.batch import Attempt
from batchledger.errors import ServiceUnavailableError

logger = logging.getLogger(__name__)

Connection = psycopg.Connection[TupleRow]

_SESSION = {
    "timezone": "UTC",
    "lock_timeout": "20s",
    # A process that is paused inside a transaction would hold the pipeline's lock until it wakes up.
    "idle_in_transaction_session_timeout": "60s",
}


STAGING_SCHEMA = "batchledger_staging"


@cache
def read_statement(package: str, name: str) -> bytes:
    """Return the text of ``sql/<name>.sql`` in ``package``."""
    return files(package).joinpath("sql", f"{name}.sql").read_bytes()


def connect(dsn: str, **session: str) -> Connection:
    """Open a connection whose lock waits and idle transactions are bounded. Raises psycopg.OperationalError."""
    settings = " ".join(f"-c {key}={value}" for key, value in (_SESSION | session).items())
    return psycopg.connect(dsn, options=settings)


@contextmanager
def translate_errors(action: str) -> Iterator[None]:
    """Raise ServiceUnavailableError for a database that is down, unreachable or too long locked."""
    try:
        yield
    except psycopg.OperationalError as error:
        raise ServiceUnavailableError(
            f"could not {action}: the warehouse database says: {str(error).strip()}. Nothing was changed; the step "
            "can be run again when the database answers.",
            action=action,
        ) from error


@contextmanager
def transaction(dsn: str, action: str) -> Iterator[psycopg.Cursor[Any]]:
    """Run one transaction on a connection of its own; commit on a normal exit, roll back on any error."""
    with translate_errors(action), connect(dsn) as connection, connection.cursor() as cursor:
        yield cursor


def drop_staging_tables(dsn: str, attempt: Attempt, kinds: Sequence[str]) -> None:
    """Drop ``b17_a2_<kind>`` of an attempt and of every earlier attempt of its batch; newer ones are not touched.

    A table that a task is still writing to is left alone: nobody reads it, and housekeeping removes it.
    """
    pattern = rf"^b{attempt.batch.batch_id}_a(\d+)_({'|'.join(kinds)})$"
    with transaction(dsn, f"drop the staging of {attempt.batch.label}") as cursor:
        cursor.execute(
            "select tablename from pg_tables where schemaname = %(schema)s and tablename ~ %(pattern)s "
            "and substring(tablename from %(pattern)s)::int <= %(newest)s",
            {"schema": STAGING_SCHEMA, "pattern": pattern, "newest": attempt.number},
        )
        for (name,) in cursor.fetchall():
            table = sql.Identifier(STAGING_SCHEMA, name)
            try:
                with cursor.connection.transaction():
                    cursor.execute(sql.SQL("lock table {} in access exclusive mode nowait").format(table))
                    cursor.execute(sql.SQL("drop table {}").format(table))
            except (psycopg.errors.LockNotAvailable, psycopg.errors.UndefinedTable):
                logger.info("staging table %s is in use or gone already; left alone", name)
