"""Lends the session of an open transaction to checks: they can read in it, and neither end nor change it (I6).

Each statement becomes the query of a cursor: PostgreSQL takes no statement there that ends a transaction. It runs in a
savepoint that can only read, and nothing is left of it. Great Expectations and SQLAlchemy roll back and close what they
were given, later and by themselves; here that does nothing.
"""

import re
from typing import Any, NoReturn, Self

import psycopg
from psycopg import sql
from psycopg.rows import Row, TupleRow
from typing_extensions import override

from batchledger.database.sessions import require_open

_CURSOR = "batchledger_query"
_SHOW = re.compile(r"\s*show\s", re.IGNORECASE)


class LentConnection(psycopg.Connection[TupleRow]):
    """Another object for the session of ``PGconn``. Make one a session: each would count its statements anew."""

    @override
    def commit(self) -> None:
        """Leave the transaction to its owner."""

    @override
    def rollback(self) -> None:
        """Leave the transaction to its owner."""

    @override
    def close(self) -> None:
        """Leave the session to its owner."""

    @override
    def cursor(self, name: str = "", **options: Any) -> Any:
        """Raises psycopg.Error for a name: a cursor of the server would read outside of the savepoint."""
        if name:
            _refuse()
        return super().cursor(**options)

    @override
    def set_autocommit(self, value: bool) -> None:
        """Leave the transaction to its owner."""

    @override
    def set_isolation_level(self, value: psycopg.IsolationLevel | None) -> None:
        """Leave the transaction to its owner."""

    @override
    def __del__(self, *_: Any) -> None:
        """The owner closes the session."""


class QueryCursor(psycopg.Cursor[Row]):
    """Executes queries, and ``show``, in the transaction of its owner."""

    @override
    def execute(self, query: Any, params: Any = None, **options: Any) -> Self:
        """Raises psycopg.Error for what is no query, for what writes, and if the owner's transaction has ended."""
        require_open(self.connection)
        text = query.as_string(self.connection) if isinstance(query, sql.Composable) else query
        text = text.decode() if isinstance(text, bytes) else text
        with self.connection.transaction(force_rollback=True):
            beginning = psycopg.Cursor(self.connection)
            beginning.execute("set transaction read only; select 1", prepare=False)
            # Prepared: PostgreSQL prepares no more than one statement.
            if _SHOW.match(text):
                return super().execute(text, params, prepare=True)
            # All of it is fetched. PostgreSQL plans a cursor for its first tenth, and without parallel workers.
            beginning.execute("set local cursor_tuple_fraction = 1")
            super().execute(f"declare {_CURSOR} no scroll cursor for {text}", params, prepare=True)
            return super().execute(f"fetch all from {_CURSOR}", binary=options.get("binary"))

    @override
    def executemany(self, *_: Any, **__: Any) -> NoReturn:
        _refuse()

    @override
    def stream(self, *_: Any, **__: Any) -> NoReturn:
        _refuse()

    @override
    def copy(self, *_: Any, **__: Any) -> NoReturn:
        _refuse()


def _refuse() -> NoReturn:
    raise psycopg.NotSupportedError("checks may execute queries, one at a time")
