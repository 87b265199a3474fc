"""Which schema of the ledger this code works on, and the refusal of every other one (S19).

A newer version of this code may have given tables and columns another meaning, so an older one must not touch them. An
older schema lacks what this code writes. Each process looks at the version once for each database.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from typing import Any

import psycopg

from batchledger.database import transactions as database
from batchledger.model.errors import ConfigurationError

RELEASES: Mapping[str, str] = {"0020": "0.2.0", "0037": "0.3.0", "0038": "0.4.0"}
"""The number of each migration, and the version that it leads to: its SQL file has this name. The newest is the last.

Part of the loaded code: the files may be replaced by a newer version's while this process runs.
"""
OLDEST_MIGRATION, *_, NEWEST_MIGRATION = RELEASES


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
    if found == NEWEST_MIGRATION:
        return
    if found in RELEASES or found is None:
        raise ConfigurationError(
            f"The ledger is at migration {found}, and this version of batchledger needs {NEWEST_MIGRATION}. "
            "Nothing was read or changed.",
            advice="Bring it up to date: batchledger migrate PIPELINE",
        )
    raise unknown_schema(found)


def unknown_schema(found: str) -> ConfigurationError:
    """Say why this version has no way on from a ledger at a migration that it does not know."""
    oldest = RELEASES[OLDEST_MIGRATION]
    if found > NEWEST_MIGRATION:
        why = f"This version knows migrations up to {NEWEST_MIGRATION}; a newer version has migrated the ledger."
        advice = "Install that version, or restore the ledger from before the migration."
    elif found < OLDEST_MIGRATION:
        why = f"A checkout from before version {oldest} has made the ledger, and its migrations are not here any more."
        advice = f"Install version {oldest}, migrate with it (batchledger migrate PIPELINE), then with this version."
    else:
        why = (
            "A checkout between two releases has migrated the ledger. This version has one migration for each release, "
            f"up to {NEWEST_MIGRATION}, and cannot begin in the middle of one."
        )
        advice = (
            f"Migrate it with the last checkout that has migration {found}: docs/guides/upgrade.md shows how. Or "
            "restore the ledger as the release before has left it, and run: batchledger migrate PIPELINE"
        )
    return ConfigurationError(
        f"The ledger is at migration {found}, which this version of batchledger does not know. Nothing was read or "
        "changed.",
        why=why,
        advice=advice,
    )


def describe_database(dsn: str) -> str:
    """Return in words which PostgreSQL answers, and whether it holds a ledger. Raises as ``database.transaction``."""
    with database.transaction(dsn, "look at the database") as cursor:
        cursor.execute("select current_setting('server_version'), to_regclass('batchledger.migration') is not null")
        ((server, is_there),) = cursor.fetchall()
        if not is_there:
            return f"PostgreSQL {server}, without a ledger yet: batchledger migrate PIPELINE"
        cursor.execute("select version_num from batchledger.migration")
        ((found,),) = cursor.fetchall()
    version = RELEASES.get(found, "of another version")
    return f"PostgreSQL {server}, ledger {version}"
