"""What PostgreSQL can call a schema and the columns of a table, and how many columns it takes. Pure.

Rows of every sink wait in a table of PostgreSQL: rows for a topic always, rows for an Iceberg table if they are
checked, compared or published again. So its limits hold for all of them, and a pipeline file meets them before its
first batch does (https://www.postgresql.org/docs/current/limits.html, ddl-system-columns.html).
"""

from collections.abc import Sequence

from batchledger.model.quoting import quote
from batchledger.model.records.columns import BATCH_COLUMN, DELETED_COLUMN, PROVENANCE_COLUMNS

MOST_COLUMNS = 1600
LONGEST_NAME_BYTES = 63
SQL_NAME = rf"[a-z_][a-z0-9_]{{0,{LONGEST_NAME_BYTES - 1}}}"
"""The pattern of a name that needs no quotation marks."""
MOST_KEY_COLUMNS = 32
"""PostgreSQL's limit for the columns of an index."""

SYSTEM_COLUMNS = ("cmax", "cmin", "ctid", "tableoid", "xmax", "xmin")
TASK_COLUMN = "_task"
"""The column of staging that says which task has written a row."""
OWN_SCHEMAS = ("batchledger", "batchledger_staging")


def explain_columns(names: Sequence[str]) -> str | None:
    """Return in words why rows with these columns cannot be staged; None if they can.

    ``names`` are all columns of the rows, the provenance columns included. Staging adds one for the task, and a target
    adds one for the batch.
    """
    added = [each for each in names if each in (*PROVENANCE_COLUMNS, DELETED_COLUMN)]
    most = MOST_COLUMNS - 1 - len(added)
    if len(names) - len(added) > most:
        return (
            f"{len(names) - len(added):,} columns are too many: PostgreSQL holds {MOST_COLUMNS:,} in a table, "
            f"{most:,} beside Batchledger's own"
        )
    known: dict[str, str] = {}
    for name in names:
        fault = _explain_name(name)
        if fault is None and (other := known.get(name.lower())) is not None:
            twice = "it is there twice" if other == name else f"{quote(other)} is there too"
            fault = f"{twice}, and Spark does not tell capital letters from small ones"
        known[name.lower()] = name
        if fault is not None:
            return f"column {quote(name)}: {fault}"
    return None


def explain_schema(name: str) -> str | None:
    """Return in words why no target may lie in a schema of this name; None if it may."""
    if name.startswith("pg_") or name == "information_schema":
        return f"schema {quote(name)} is PostgreSQL's own"
    if name in OWN_SCHEMAS:
        return f"schema {quote(name)} is Batchledger's own: the ledger, and what is staged"
    return None


def _explain_name(name: str) -> str | None:
    if not name or "\0" in name or any("\ud800" <= each <= "\udfff" for each in name):
        return "PostgreSQL cannot have such a name"
    if "%" in name:
        return "a name with % cannot be written into statements, where it stands for a value"
    length = len(name.encode())
    if length > LONGEST_NAME_BYTES:
        return f"the name has {length} bytes, PostgreSQL cuts it after {LONGEST_NAME_BYTES}, and two could become one"
    if name in SYSTEM_COLUMNS:
        return f"PostgreSQL keeps the name for itself, as {', '.join(SYSTEM_COLUMNS)}"
    if name in (TASK_COLUMN, BATCH_COLUMN):
        return "Batchledger adds a column of this name itself"
    return None
