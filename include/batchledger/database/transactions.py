"""Transactions of the ledger and the sink beside it, and errors in the family's words."""

import logging
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from importlib.resources import files
from typing import Any

import psycopg
from psycopg import sql

from batchledger.database.sessions import is_joined, use_connection
from batchledger.database.weather import Cause, find_cause
from batchledger.model.batch import Attempt, HeldRange
from batchledger.model.checks import Offender, show_records
from batchledger.model.errors import (
    BatchledgerError,
    ConfigurationError,
    DatabaseRefusedError,
    OutcomeUnknownError,
    RowsRefusedError,
    ServiceUnavailableError,
    StagingLostError,
)
from batchledger.model.offsets import OffsetRange, TopicPartition

logger = logging.getLogger(__name__)

STAGING_SCHEMA = "batchledger_staging"
WRITERS_LEAVE_WITHIN = "2s"

# The codes of errors whose first line quotes no value: not UTF-8; constraints, names, limits, states.
_WITHOUT_VALUES = ("0A", "22021", "23", "25", "2B", "42", "44", "53", "54", "55", "57")
# Other errors of data (class 22) put a value into quotation marks. The exception is the parts of a moment.
_OF_DATA, _OF_MOMENTS = "22", "22008"
_LOGIN_REFUSED = "password authentication failed"
_WRONG_LOGIN = "Correct the login or the password of the connection."
_GRANT = (
    "Grant the right to the user of the warehouse connection. For the ledger, its owner does it:\n"
    "batchledger grant PIPELINE --role USER --apply --login CONNECTION-OF-THE-OWNER"
)
# The server has a language, and each has its own marks. A login cannot choose it.
_MARKS = re.compile("[\"'\u00ab\u00bb\u2018-\u201f\u2039\u203a\u300c-\u300f]")
# What raises the words of a function's author, with any code: PL/pgSQL and PL/Python.
_RAISING = ("exec_stmt_raise", "PLy_")


@cache
def read_statements(package: str) -> dict[str, str]:
    """Return the statements of ``sql/*.sql`` in ``package`` by name: each stands behind a line ``-- name:``.

    The statements of a module are in the file of its name, in the order of their use.
    """
    scripts = [each for each in files(package).joinpath("sql").iterdir() if each.name.endswith(".sql")]
    texts = [each.read_text(encoding="utf-8") for each in scripts]
    parts = [part for text in texts for part in re.split(r"^-- name: (\w+)\n", text, flags=re.MULTILINE)[1:]]
    return dict(zip(parts[::2], map(str.strip, parts[1::2]), strict=True))


def read_statement(package: str, name: str) -> bytes:
    """Return a statement of ``package`` by its name."""
    return read_statements(package)[name].encode()


def read_sql(package: str, name: str) -> sql.SQL:
    """Return a statement of ``package`` whose placeholders can be filled, by its name."""
    return sql.SQL(read_statements(package)[name])


def cause_of(error: psycopg.Error) -> Cause:
    """Return what an error is about (``weather``)."""
    sqlstate = error.diag.sqlstate or error.sqlstate
    if sqlstate is None:
        is_lost = isinstance(error, psycopg.OperationalError | psycopg.InterfaceError)
        # If the client itself cannot send or read something, it is a value.
        return find_cause(None) if is_lost else Cause.REFUSAL
    if sqlstate == psycopg.errors.UniqueViolation.sqlstate and error.diag.schema_name == "pg_catalog":
        # Two transactions have created the same schema or table at once.
        return Cause.WEATHER
    return find_cause(sqlstate, is_raised=error.diag.source_function == "exec_stmt_raise")


def _is_staging_gone(error: psycopg.Error) -> bool:
    return isinstance(error, psycopg.errors.UndefinedTable) and STAGING_SCHEMA in str(error)


@contextmanager
def translate_errors(action: str, rows: Attempt | None = None) -> Iterator[None]:
    """Translate what the database says: unavailable, staging gone, ledger not migrated, right missing, refused.

    ``rows`` is the attempt whose rows the block is about, if any: a refusal then blocks their batch. Raises
    ServiceUnavailableError, StagingLostError, ConfigurationError, RowsRefusedError or DatabaseRefusedError.
    """
    try:
        yield
    except psycopg.Error as error:
        raise _translate(error, action, rows) from error


def _translate(error: psycopg.Error, action: str, rows: Attempt | None) -> BatchledgerError:
    reason = str(error).strip().partition("\n")[0]
    cause, batch_id = cause_of(error), None if rows is None else rows.batch.batch_id
    if cause is Cause.WEATHER:
        return ServiceUnavailableError(
            f"could not {action}. Nothing was changed.",
            why=f"The warehouse database says: {reason}.",
            advice=_WRONG_LOGIN if _LOGIN_REFUSED in reason else "Run the step again when the database answers.",
            batch_id=batch_id,
        )
    if cause is Cause.LIMIT:
        return _limited(action, reason)
    if _is_staging_gone(error):
        why = f"{reason}. Another attempt or a person has removed it."
        return StagingLostError(
            f"could not {action}: the staging is gone.", why=why, advice="Stage the batch again.", batch_id=batch_id
        )
    return _translate_refusal(error, action, rows, reason)


def is_right_missing(error: psycopg.Error) -> bool:
    """Whether a grant is missing: a policy and a trigger may refuse a row with the same code."""
    return (error.diag.source_function or "").startswith("aclcheck_error")


def without_values(error: psycopg.Error) -> str:
    """Return what the database says, if its words quote no value of a row; else the name and code of the error.

    Examples: ``value too long for type character varying(3)``, ``InvalidTextRepresentation (SQLSTATE 22P02)``.
    """
    said = (error.diag.message_primary or str(error)).strip().partition("\n")[0]
    sqlstate = error.diag.sqlstate or error.sqlstate or ""
    is_raised = (error.diag.source_function or "").startswith(_RAISING)
    is_of_data = sqlstate.startswith(_OF_DATA) and sqlstate != _OF_MOMENTS
    if not is_raised and (sqlstate.startswith(_WITHOUT_VALUES) or (is_of_data and not _MARKS.search(said))):
        return said
    names = (error.diag.schema_name, error.diag.table_name, error.diag.column_name, error.diag.constraint_name)
    about = ".".join(name for name in names if name)
    code = f" (SQLSTATE {sqlstate})" if sqlstate else ""
    return f"{type(error).__name__}{code}" + (f", about {about}" if about and not is_raised else "")


def tell_all(error: psycopg.Error) -> str:
    """Return all that the database says: its detail often holds the row."""
    context = f"\nCONTEXT: {error.diag.context}" if error.diag.context else ""
    return f"{type(error).__name__}: {str(error).strip()}{context}"


def _translate_refusal(error: psycopg.Error, action: str, rows: Attempt | None, reason: str) -> BatchledgerError:
    if isinstance(error, psycopg.errors.UndefinedTable | psycopg.errors.InvalidSchemaName):
        return ConfigurationError(
            f"could not {action}: the ledger's tables are not there.",
            why=f"The warehouse database says: {reason}.",
            advice="Create them: batchledger migrate PIPELINE",
        )
    if isinstance(error, psycopg.errors.InsufficientPrivilege):
        return _without_right(action, reason)
    if rows is not None:
        what = f"the rows of {rows.batch.label}"
        return rows_refused("the warehouse database", what, without_values(error), tell_all(error))
    return DatabaseRefusedError(
        f"could not {action}. Nothing was changed.",
        why=f"The warehouse database refuses it: {without_values(error)}.",
        advice="Look at what it names: trying again changes nothing.",
        quoted=tell_all(error),
    )


def _without_right(action: str, reason: str) -> ConfigurationError:
    return ConfigurationError(
        f"could not {action}. Nothing was changed.",
        why=f"The warehouse database says: {reason}.",
        advice=_GRANT,
    )


def _limited(action: str, reason: str) -> ConfigurationError:
    return ConfigurationError(
        f"could not {action}. Nothing was changed.",
        why=f"The warehouse database says: {reason}.",
        advice="Raise the setting of the database, or of the connection's user, that ends it. Or make batches smaller "
        "(limits.max_records).\nIf a person has ended it, run the step again.",
    )


def rows_refused(
    who: str, what: str, reason: str, quoted: str, row: Offender | None = None, *, pipeline: str = ""
) -> RowsRefusedError:
    """Say who does not take which rows, and why; ``quoted`` is all that it says. ``row`` is the pipeline's first."""
    named, see = (
        ("", "")
        if row is None
        else (f"\nThe first is {row}.", f"See the record: {show_records(pipeline, [row.offsets])}\n")
    )
    return RowsRefusedError(
        f"{who} refuses {what}. Nothing was published.",
        why=f"It says: {reason}.{named}",
        advice=f"{see}Alter the table, or correct the records in a transform.",
        quoted=quoted,
        coordinates=() if row is None else (str(row),),
    )


@contextmanager
def handing_over(
    who: str, what: str, find_row: Callable[[psycopg.Error], Offender | None] = lambda _: None, pipeline: str = ""
) -> Iterator[None]:
    """Raise what the database says: RowsRefusedError against rows, ConfigurationError at a limit or without a right.

    Weather is ServiceUnavailableError. That the staging is gone passes as it is. ``find_row`` returns the row of
    the pipeline that a refusal is about.
    """
    try:
        yield
    except psycopg.Error as error:
        reason = (error.diag.message_primary or str(error)).strip().partition("\n")[0]
        cause, action = cause_of(error), f"write {what} to {who}"
        if cause is Cause.LIMIT:
            raise _limited(action, reason) from error
        if is_right_missing(error):
            raise _without_right(action, reason) from error
        if cause is Cause.REFUSAL and not _is_staging_gone(error):
            said, row = without_values(error), find_row(error)
            raise rows_refused(who, what, said, tell_all(error), row, pipeline=pipeline) from error
        if cause is Cause.WEATHER:
            why = f"The warehouse database says: {reason}."
            raise ServiceUnavailableError(f"could not {action}.", why=why) from error
        raise


@contextmanager
def transaction(dsn: str, action: str, rows: Attempt | None = None) -> Iterator[psycopg.Cursor[Any]]:
    """Run one transaction that has its connection for itself; commit on a normal exit, roll back on any error.

    ``rows`` as for ``translate_errors``. Raises OutcomeUnknownError when the connection is lost while committing.
    """
    with translate_errors(action, rows), use_connection(dsn) as connection, connection.cursor() as cursor:
        yield cursor
        commit(connection, action)


def commit(connection: psycopg.Connection[Any], action: str) -> None:
    """Commit. A refusal by the database itself (a deferred constraint or trigger) is raised as it is.

    Within ``joining`` nothing is done: who has begun the larger transaction commits it. Raises OutcomeUnknownError when
    it cannot say whether it has committed.
    """
    if is_joined(connection):
        return
    try:
        connection.commit()
    except psycopg.Error as error:
        if cause_of(error) is not Cause.WEATHER:
            raise
        raise OutcomeUnknownError(
            f"The connection was lost during the COMMIT of: {action}. It is unknown whether it was done.",
            why=f"The warehouse database says: {str(error).strip()}.",
            advice="Run it again when the database answers: the outcome is looked up first, and nothing is done twice.",
        ) from error


@contextmanager
def snapshot(dsn: str, action: str) -> Iterator[psycopg.Cursor[Any]]:
    """Read in one transaction in which all statements see the same moment."""
    with translate_errors(action), use_connection(dsn) as connection, connection.cursor() as cursor:
        cursor.execute("set transaction isolation level repeatable read read only")
        yield cursor


def ranges_as_arrays(ranges: Sequence[OffsetRange]) -> dict[str, list[Any]]:
    """Return ranges as the parameters of a statement that unnests them: topics, partitions, starts, untils."""
    return {
        "topics": [each.partition.topic for each in ranges],
        "partitions": [each.partition.partition for each in ranges],
        "starts": [each.start for each in ranges],
        "untils": [each.until for each in ranges],
    }


def held_as_arrays(held: Sequence[HeldRange]) -> dict[str, list[Any]]:
    """Return pieces as the parameters of a statement that unnests them: batches, and their ranges."""
    return {"batches": [each.batch_id for each in held], **ranges_as_arrays([each.range for each in held])}


def read_ranges(rows: Iterable[tuple[Any, ...]]) -> list[OffsetRange]:
    """Return the rows of a query for ranges: topic, partition, start, until."""
    return [OffsetRange(TopicPartition(topic, partition), start, until) for topic, partition, start, until in rows]


def read_held(cursor: psycopg.Cursor[Any]) -> list[HeldRange]:
    """Return the rows of a query for holders: batch, topic, partition, start, until."""
    return [
        HeldRange(batch_id, OffsetRange(TopicPartition(topic, partition), start, until))
        for batch_id, topic, partition, start, until in cursor
    ]


def drop_staging_tables(dsn: str, attempt: Attempt, kinds: Sequence[str]) -> None:
    """Drop ``b17_a2_<kind>`` of an attempt and of every earlier attempt of its batch; newer ones are not touched.

    A table that a task is still writing to after ``WRITERS_LEAVE_WITHIN`` is left alone: it has no readers, and the
    next attempt tries again. The wait is for the tasks of a job that has just failed.
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
                    cursor.execute(sql.SQL("set local lock_timeout = {}").format(sql.Literal(WRITERS_LEAVE_WITHIN)))
                    cursor.execute(sql.SQL("drop table {}").format(table))
            except (
                psycopg.errors.LockNotAvailable,
                psycopg.errors.UndefinedTable,
                # Checks look at the table through a view.
                psycopg.errors.DependentObjectsStillExist,
            ):
                logger.info("staging table %s is in use or gone already; left alone", name)
