"""Bring the ledger's schema up to date. Numbered SQL migrations, run by Alembic; harmless to repeat or to race."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from batchledger.database.sessions import connect
from batchledger.database.transactions import translate_errors
from batchledger.ledger.rekeying import adopt_secret
from batchledger.ledger.schema import MIGRATIONS, OWNERS_PATH, known_revisions, newer_schema, saying_who_may

if TYPE_CHECKING:
    import sqlalchemy


def migrate(dsn: str, secret: bytes | None = None) -> tuple[str | None, str | None]:
    """Apply every migration that is missing, in one transaction; return the revisions before and after.

    If the ledger has no key yet, it hashes all that come with ``secret``. Raises ServiceUnavailableError when the
    database does not answer. Raises ConfigurationError when a newer version of this code has migrated it already: there
    is no way back (S19). Raises it also when the ledger's keys are hashed with another secret, after migrating.
    """
    moved = _apply_missing(dsn)
    if secret is not None:
        adopt_secret(dsn, secret)
    return moved


def _apply_missing(dsn: str) -> tuple[str | None, str | None]:
    # Alembic and SQLAlchemy are imported where they are used: what only reads the ledger imports this module, too.
    import sqlalchemy
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    with saying_who_may(), translate_errors("migrate the ledger"), _without_wrapping():
        engine = sqlalchemy.create_engine(
            "postgresql+psycopg://",
            creator=lambda: connect(dsn, search_path=OWNERS_PATH, lock_timeout="0"),
            poolclass=sqlalchemy.NullPool,
        )
        with engine.begin() as connection:
            before = _revision(connection)
            if before is not None and before not in known_revisions():
                raise newer_schema(before)
            config.attributes["connection"] = connection
            command.upgrade(config, "head")
            return before, _revision(connection)


@contextmanager
def _without_wrapping() -> Iterator[None]:
    """Let psycopg's own errors through SQLAlchemy."""
    import sqlalchemy

    try:
        yield
    except sqlalchemy.exc.DBAPIError as error:
        raise (error.orig or error) from None


def _revision(connection: "sqlalchemy.Connection") -> str | None:
    from alembic.runtime.migration import MigrationContext

    options = {"version_table_schema": "batchledger", "version_table": "migration"}
    return MigrationContext.configure(connection, opts=options).get_current_revision()
