"""What strikes a database that goes on serving: other settings of its sessions, and a clock that has moved.

Both are undone at the end of a block. The checker opens its sessions afterwards.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import psycopg
from psycopg import sql

from batchledger.local.torture.schedule import FaultKind

FOREIGN_SETTINGS = {
    "client_encoding": "LATIN1",
    "datestyle": "German",
    "intervalstyle": "iso_8601",
    "timezone": "Asia/Kathmandu",
    "timezone_abbreviations": "India",
    "bytea_output": "escape",
    "extra_float_digits": "-15",
    "array_nulls": "off",
    "xmlbinary": "hex",
    "xmloption": "document",
    "quote_all_identifiers": "on",
    "standard_conforming_strings": "off",
    "backslash_quote": "on",
    "transform_null_equals": "on",
    "row_security": "off",
    "exit_on_error": "on",
    "default_transaction_isolation": "serializable",
    "lock_timeout": "1ms",
    "idle_in_transaction_session_timeout": "10min",
    "synchronous_commit": "off",
}
"""What roles and databases may set, each other than a session means it."""

MOVED_BY = "10 hours"

# Every default, trigger and statement asks these two functions. What PostgreSQL plans has their new text in it: the
# server has the old code under another name, and time stamps of commits stay as they are.
_CLOCKS = {"now": "stable", "clock_timestamp": "volatile"}
_CREATE = "create or replace function pg_catalog.{2}{0}() returns timestamptz parallel safe {1} "
_KEEP = f"{_CREATE} language internal as '{{0}}'"
_MOVE = f"{_CREATE} language sql as $$ select pg_catalog.unmoved_{{0}}() + interval '{{3}}' $$"
_BACK = (f"{_CREATE} strict language internal as '{{0}}'", "drop function pg_catalog.unmoved_{0}()")


@contextmanager
def change_database(dsn: str, kind: FaultKind) -> Iterator[bool]:
    """Change the database for the length of the block, as its superuser; whether sessions that begin now notice it."""
    database = str(psycopg.conninfo.conninfo_to_dict(dsn)["dbname"])
    match kind:
        case FaultKind.CHANGE_SETTINGS:
            done, undone = _set(database, FOREIGN_SETTINGS), _set(database, dict.fromkeys(FOREIGN_SETTINGS, None))
            question = "select current_setting('datestyle') = 'German, DMY'"
        case _:
            by = MOVED_BY if kind is FaultKind.CLOCK_AHEAD else f"-{MOVED_BY}"
            done = [
                sql.SQL(statement.format(*clock, prefix, by))
                for clock in _CLOCKS.items()
                for statement, prefix in ((_KEEP, "unmoved_"), (_MOVE, ""))
            ]
            undone = [sql.SQL(each.format(*clock, "")) for clock in _CLOCKS.items() for each in _BACK]
            question = f"select now() = transaction_timestamp() + interval '{by}'"
    _run(dsn, done)
    try:
        with psycopg.connect(dsn) as connection:
            is_noticed = connection.execute(sql.SQL(question)).fetchone() == (True,)
        yield is_noticed
    finally:
        _run(dsn, undone)


def _set(database: str, value_by_name: Mapping[str, str | None]) -> list[sql.SQL | sql.Composed]:
    alter = sql.SQL("alter database {} set {} to {}")
    return [
        alter.format(sql.Identifier(database), sql.Identifier(name), sql.Literal(value) if value else sql.DEFAULT)
        for name, value in value_by_name.items()
    ]


def _run(dsn: str, statements: Sequence[sql.SQL | sql.Composed]) -> None:
    with psycopg.connect(dsn) as connection:
        for each in statements:
            connection.execute(each)
