"""Opens the sessions of PostgreSQL: a statement means the same, and a value has the same text, in each of them.

Roles, databases and variables such as PGTZ and PGDATESTYLE have settings, too. A session sets its own by a statement:
poolers such as PgBouncer refuse ``options`` at its start, and a variable of libpq comes after these.
"""

import os
import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import psycopg
from psycopg.pq import TransactionStatus
from psycopg.rows import TupleRow

from batchledger.model.errors import ConfigurationError

Connection = psycopg.Connection[TupleRow]

PINNED = {
    # What a text is, and what a text means.
    "client_encoding": "UTF8",
    "datestyle": "ISO, MDY",
    "intervalstyle": "postgres",
    "timezone": "UTC",
    "timezone_abbreviations": "Default",
    "bytea_output": "hex",
    "extra_float_digits": "1",
    "array_nulls": "on",
    "xmlbinary": "base64",
    "xmloption": "content",
    "quote_all_identifiers": "off",
    # What a statement is, and what it does.
    "standard_conforming_strings": "on",
    "backslash_quote": "safe_encoding",
    "transform_null_equals": "off",
    "row_security": "on",
    "exit_on_error": "off",
    "default_transaction_isolation": "read committed",
    # How long it waits.
    "lock_timeout": "20s",
    # A process that is paused inside a transaction would hold the pipeline's lock until it wakes up.
    "idle_in_transaction_session_timeout": "60s",
}
"""PostgreSQL's own defaults, apart from time zone and waits. A read-only role or a limit of statements stays one."""

LOST_IS_NOTICED = {
    # A machine that is lost does not close its connections: the server finds out within half a minute.
    "tcp_keepalives_idle": "10",
    "tcp_keepalives_interval": "5",
    "tcp_keepalives_count": "3",
}
"""For a session that may hold something while nothing is asked of it."""

# Names of functions and operators are whole: the path may lead to other ones first. It keeps the login's own schemas,
# without the two in which PostgreSQL then looks first by itself: of temporary tables, and pg_catalog.
_PATH = """coalesce((
    select pg_catalog.string_agg(pg_catalog.quote_ident(w.name::pg_catalog.text), ', ' order by w.place)
    from pg_catalog.unnest(pg_catalog.current_schemas(false)) with ordinality as w (name, place)
    where w.name operator(pg_catalog.<>) 'pg_catalog'
        and not pg_catalog.starts_with(w.name::pg_catalog.text, 'pg_temp_')), '')"""
# A commit reaches the disk: a sink elsewhere commits after the ledger has announced it.
_COMMITTED = """case when pg_catalog.current_setting('synchronous_commit') operator(pg_catalog.=) 'off' then 'on'
    else pg_catalog.current_setting('synchronous_commit') end"""


def connect(dsn: str, **settings: str) -> Connection:
    """Open a session with ``PINNED`` and ``settings``. Raises psycopg.Error, and ConfigurationError as ``pin`` does."""
    connection = psycopg.connect(dsn, autocommit=True)
    try:
        pin(connection, **settings)
    except BaseException:
        connection.close()
        raise
    connection.autocommit = False
    return connection


def pin(connection: Any, **settings: str) -> None:
    """Give the session of any driver ``PINNED`` and ``settings``; the caller commits, if the driver has begun.

    Values are words of this code, never a person's: they are part of the statement.
    Raises ConfigurationError if the session's triggers would not fire: only a superuser could change that.
    """
    wanted = {"search_path": _PATH, "synchronous_commit": _COMMITTED}
    wanted |= {name: f"'{value}'" for name, value in {**PINNED, **settings}.items()}
    # A flat list without parameters: PostgreSQL plans it anew each time that a session is renewed.
    pins = ", ".join(f"pg_catalog.set_config('{name}', {value}, false)" for name, value in wanted.items())
    with connection.cursor() as cursor:
        cursor.execute(f"select pg_catalog.current_setting('session_replication_role'), {pins}")
        ((replication_role, *_),) = cursor.fetchall()
    if replication_role == "replica":
        raise ConfigurationError(
            "PostgreSQL opens sessions in which no trigger fires. Nothing was read or changed.",
            why="session_replication_role of the role or of the database is replica. Triggers seal decisions and count "
            "quarantine, and foreign keys are triggers.",
            advice="Reset it as a superuser: alter role ROLE reset session_replication_role\n"
            "Or, if the database has it: alter database DATABASE reset session_replication_role",
        )


@dataclass
class _Kept:
    """The idle connections of one ``keep_connections``, by connection string."""

    owner: tuple[int, int]
    idle: dict[str, list[Connection]] = field(default_factory=lambda: defaultdict(list))


_kept: ContextVar[_Kept | None] = ContextVar("kept", default=None)
_joined: ContextVar[tuple[str, Connection] | None] = ContextVar("joined", default=None)


def _this_thread() -> tuple[int, int]:
    """Return what a forked process, or a thread with the context of another one, does not share."""
    return os.getpid(), threading.get_ident()


@contextmanager
def keep_connections() -> Iterator[None]:
    """Let the transactions of the block that come after each other share a connection; opening one takes 6 ms.

    A transaction within another one has a second connection, which is kept, too. Another thread and a forked process
    open their own. After an error a connection is not used again: a new one looks up what became of its transaction
    (I9).
    """
    if _kept.get() is not None:
        yield
        return
    kept = _Kept(_this_thread())
    token = _kept.set(kept)
    try:
        yield
    finally:
        _kept.reset(token)
        if kept.owner == _this_thread():
            for connection in chain.from_iterable(kept.idle.values()):
                connection.close()


@contextmanager
def joining(dsn: str, connection: Connection) -> Iterator[None]:
    """Let what the block does at ``dsn`` be part of the transaction of ``connection``, which the caller commits.

    Each transaction of the block is a savepoint: an error undoes it alone. Another thread has its own connections.
    """
    token = _joined.set((dsn, connection))
    try:
        yield
    finally:
        _joined.reset(token)


def require_open(connection: Connection) -> None:
    """Raise psycopg.OperationalError if no transaction is open: each statement would be one of its own."""
    if connection.info.transaction_status != TransactionStatus.INTRANS:
        raise psycopg.OperationalError("the transaction that this is a part of has ended")


def is_joined(connection: Connection) -> bool:
    """Whether a connection of the block is part of a larger transaction, and is not to be committed by itself."""
    joined = _joined.get()
    return joined is not None and joined[1] is connection


@contextmanager
def use_connection(dsn: str) -> Iterator[Connection]:
    """Yield a connection that is as good as new; a kept one if there is one. The caller commits.

    What is not committed is rolled back. Within ``joining`` it is that one. Raises psycopg.OperationalError.
    """
    joined = _joined.get()
    if joined is not None and joined[0] == dsn:
        require_open(joined[1])
        with joined[1].transaction():
            yield joined[1]
        return
    kept = _kept.get()
    if kept is None or kept.owner != _this_thread():
        with connect(dsn) as connection:
            yield connection
            connection.rollback()
        return
    connection = _find_kept(kept.idle[dsn]) or connect(dsn)
    # Each statement is planned for its own values: a batch may have one row or millions.
    connection.prepare_threshold = None
    try:
        yield connection
        connection.rollback()
    except BaseException:
        connection.close()
        raise
    kept.idle[dsn].append(connection)


@contextmanager
def write_and_commit(dsn: str) -> Iterator[Connection]:
    """Yield a connection as ``use_connection`` does, and commit on a normal exit. Raises psycopg.Error."""
    with use_connection(dsn) as connection:
        yield connection
        if not is_joined(connection):
            connection.commit()


def _find_kept(idle: list[Connection]) -> Connection | None:
    """Take a connection that is still there out of the idle ones."""
    while idle:
        connection = idle.pop()
        if _renew(connection):
            return connection
        connection.close()
    return None


def _renew(connection: Connection) -> bool:
    """Reset the session of an idle connection; return whether it is still there."""
    try:
        connection.autocommit = True
        connection.execute("discard all")
        pin(connection)
        connection.autocommit = False
    except psycopg.OperationalError:
        return False
    return True
