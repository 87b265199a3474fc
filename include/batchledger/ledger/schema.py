"""Which schema of the ledger this code works on, and the refusal of every other one (S19).

A newer version of this code may have given tables and columns another meaning, so an older one must not touch them. An
older schema lacks what this code writes. Each process looks at the version once for each database.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import psycopg

from batchledger.database import transactions as database
from batchledger.model.errors import ConfigurationError

MIGRATIONS = Path(__file__).parent / "migrations"
NEWEST_MIGRATION = "0036"
"""Part of the loaded code: the files may be replaced by a newer version's while this process runs."""


@cache
def known_revisions() -> tuple[str, ...]:
    """Return the numbers of the migrations that come with this code, the newest last."""
    files = (MIGRATIONS / "versions").glob("*.py")
    found = (re.match(r"\d+", file.name) for file in files)
    return tuple(sorted(number[0] for number in found if number and number[0] <= NEWEST_MIGRATION))


@contextmanager
def transaction(dsn: str, action: str) -> Iterator[psycopg.Cursor[Any]]:
    """Run one transaction on the ledger. Raises ConfigurationError when its schema is not the one of this code."""
    require_known_schema(dsn)
    with database.transaction(dsn, action) as cursor:
        yield cursor


OWNERS_PATH = "batchledger"
"""Where the owner of the ledger looks for a name alone: in no schema that others may create in.

PostgreSQL prefers an operator for the very types of an expression, and it would run with the owner's rights.
"""


@contextmanager
def owners_transaction(dsn: str, action: str) -> Iterator[psycopg.Cursor[Any]]:
    """Run one transaction of the owner of the ledger, as ``transaction`` does. A missing right says who has it."""
    with saying_who_may(), transaction(dsn, action) as cursor:
        cursor.execute(f"set local search_path = {OWNERS_PATH}")
        yield cursor


@contextmanager
def saying_who_may() -> Iterator[None]:
    """Let a missing right say that the owner of the ledger has it."""
    try:
        yield
    except ConfigurationError as error:
        if not isinstance(error.__cause__, psycopg.errors.InsufficientPrivilege):
            raise
        advice = "Log in as the owner of the ledger: name a connection with its login, --login CONNECTION."
        raise replace(error, advice=advice) from error.__cause__


@contextmanager
def snapshot(dsn: str, action: str) -> Iterator[psycopg.Cursor[Any]]:
    """Read the ledger as of one moment. Raises ConfigurationError when its schema is not the one of this code."""
    require_known_schema(dsn)
    with database.snapshot(dsn, action) as cursor:
        yield cursor


@cache
def require_known_schema(dsn: str) -> None:
    """Refuse to work on a ledger that another version of this code has migrated, or that waits for a migration."""
    with database.transaction(dsn, "look at the version of the ledger") as cursor:
        cursor.execute("select version_num from batchledger.migration")
        found = next((str(revision) for (revision,) in cursor), None)
    newest = known_revisions()[-1]
    if found == newest:
        return
    if found in known_revisions() or found is None:
        raise ConfigurationError(
            f"The ledger is at migration {found}, and this version of batchledger needs {newest}. Nothing was read "
            "or changed.",
            advice="Bring it up to date: batchledger migrate PIPELINE",
        )
    raise newer_schema(found)


def newer_schema(found: str | None) -> ConfigurationError:
    """Say that a newer version of this code has migrated the ledger."""
    newest = known_revisions()[-1]
    return ConfigurationError(
        f"The ledger is at migration {found}, which this version of batchledger does not know. Nothing was read or "
        "changed.",
        why=f"This version knows migrations up to {newest}; a newer version has migrated the ledger.",
        advice="Install that version, or restore the ledger from before the migration.",
    )
