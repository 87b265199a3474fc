"""The schemas that records were decoded with: each is kept once for its pipeline, and each attempt names its own."""

from collections.abc import Sequence
from typing import Any

import psycopg

from batchledger.database.transactions import read_statement
from batchledger.ledger.schema import transaction
from batchledger.model.batch import Attempt, Staged
from batchledger.model.records.contract import SchemaVersion, fingerprint


def note_rules(cursor: psycopg.Cursor[Any], attempt: Attempt, staged: Staged) -> None:
    """Keep by which rules an attempt has made rows, why they did not stream, and the schema of their records."""
    parameters = {
        "pipeline": attempt.batch.pipeline,
        "fingerprint": fingerprint(staged.schema),
        "definition": staged.schema,
        "batch_id": attempt.batch.batch_id,
        "number": attempt.number,
        "row_rules": staged.row_rules,
        "given_up": staged.given_up,
    }
    cursor.execute(read_statement(__package__, "note_row_rules"), parameters)
    if not staged.schema:
        return
    cursor.execute(read_statement(__package__, "insert_schema"), parameters)
    cursor.execute(read_statement(__package__, "name_schema"), parameters)


def add_columns(cursor: psycopg.Cursor[Any], attempt: Attempt, names: Sequence[str]) -> None:
    """Keep the names of columns that records have brought."""
    cursor.execute(
        "insert into batchledger.added_column (pipeline, name, batch_id) select %s, name, %s "
        "from unnest(%s::text[]) with ordinality as added (name, place) order by place on conflict do nothing",
        [attempt.batch.pipeline, attempt.batch.batch_id, list(names)],
    )


def list_added_columns(cursor: psycopg.Cursor[Any], pipeline: str) -> list[str]:
    """Return the names of the columns that records of a pipeline have brought, the oldest first."""
    cursor.execute("select name from batchledger.added_column where pipeline = %s order by number", [pipeline])
    return [name for (name,) in cursor]


def list_schemas(dsn: str, pipeline: str, limit: int = 20) -> list[SchemaVersion]:
    """Return the schemas that a pipeline has decoded records with, the newest first."""
    with transaction(dsn, f"list the schemas of {pipeline}") as cursor:
        cursor.execute(
            "select fingerprint, definition, first_used_at, last_used_at, first_batch_id, last_batch_id "
            "from batchledger.record_schema where pipeline = %s order by last_batch_id desc, schema_id desc limit %s",
            [pipeline, limit],
        )
        return [SchemaVersion(*row) for row in cursor]
