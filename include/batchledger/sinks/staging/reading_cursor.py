"""The cursor of checks: each statement stands alone, can only read, and leaves nothing behind (I6).

A setting of the session is no permission: a statement can change it. And a text of several statements can end the
transaction that protects it. So each statement gets a transaction of its own. That can only read from its first
snapshot on, which PostgreSQL lets no statement change. The text is prepared, and PostgreSQL prepares no more than one
statement. So nothing follows a statement that ends its transaction.

Known limit: this holds for what PostgreSQL itself does. A function of an extension may open a connection of its own,
and a superuser may copy rows to a program.
"""

from typing import Any, Self

import psycopg
from psycopg.rows import Row
from typing_extensions import override


class ReadingCursor(psycopg.Cursor[Row]):
    """Executes as its base does; the statement is prepared, and its transaction is rolled back."""

    @override
    def execute(self, *arguments: Any, **options: Any) -> Self:
        """Raises psycopg.errors.SyntaxError for several statements, and ReadOnlySqlTransaction for one that writes."""
        with self.connection.transaction(force_rollback=True):
            # In a text of its own, which is not prepared.
            beginning = psycopg.Cursor(self.connection)
            beginning.execute("set transaction read only; select 1", prepare=False)
            super().execute(*arguments, **{**options, "prepare": True})
        return self
