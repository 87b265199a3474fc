"""The two tables of what the reading tasks of an attempt witnessed, by name, and what an erasure takes from them."""

from typing import Any

import psycopg
from psycopg import sql

from batchledger.database.transactions import STAGING_SCHEMA, read_statement
from batchledger.model.batch import Attempt


def visible_table(attempt: Attempt) -> sql.Identifier:
    """The table of the offset ranges that Kafka returned to this attempt."""
    return sql.Identifier(STAGING_SCHEMA, f"b{attempt.batch.batch_id}_a{attempt.number}_visible")


def quarantine_table(attempt: Attempt) -> sql.Identifier:
    """The table of the records that this attempt could not decode."""
    return sql.Identifier(STAGING_SCHEMA, f"b{attempt.batch.batch_id}_a{attempt.number}_quarantine")


def withhold_payloads(cursor: psycopg.Cursor[Any], attempt: Attempt) -> None:
    """Take the payload from what an attempt has set aside, if it was read before an erasure that did not see it."""
    pipeline = attempt.batch.pipeline
    cursor.execute("select exists (select from batchledger.erased_key where pipeline = %s)", [pipeline])
    if cursor.fetchone() == (True,):
        cursor.execute(about("withhold_payloads", attempt), {"pipeline": pipeline})


def about(name: str, attempt: Attempt) -> sql.Composed:
    """Return a statement about both tables of an attempt."""
    return sql.SQL(read_statement(__package__, name).decode()).format(
        visible=visible_table(attempt), quarantine=quarantine_table(attempt)
    )
