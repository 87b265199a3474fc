"""Opens every session of PostgreSQL, in which a statement means the same and a value has the same text everywhere.

Roles, databases and variables such as PGTZ and PGDATESTYLE have settings, too. A session sets its own by a statement:
poolers such as PgBouncer refuse ``options`` at its start, and a variable of libpq comes after these.
"""

from typing import Any

import psycopg
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

    Raises ConfigurationError if the session's triggers would not fire: only a superuser could change that.
    """
    wanted = {name: f"'{value}'" for name, value in PINNED.items()}
    wanted |= {"search_path": _PATH, "synchronous_commit": _COMMITTED}
    # A flat list without parameters: PostgreSQL plans it anew each time that a session is renewed.
    pins = ", ".join(f"pg_catalog.set_config('{name}', {value}, false)" for name, value in wanted.items())
    with connection.cursor() as cursor:
        cursor.execute(f"select pg_catalog.current_setting('session_replication_role'), {pins}")
        ((replication_role, *_),) = cursor.fetchall()
        for name, value in settings.items():
            cursor.execute("select pg_catalog.set_config(%s, %s, false)", [name, value])
    if replication_role == "replica":
        raise ConfigurationError(
            "PostgreSQL opens sessions in which no trigger fires. Nothing was read or changed.",
            why="session_replication_role of the role or of the database is replica. Triggers seal decisions and count "
            "quarantine, and foreign keys are triggers.",
            advice="Reset it as a superuser: alter role ROLE reset session_replication_role\n"
            "Or, if the database has it: alter database DATABASE reset session_replication_role",
        )
