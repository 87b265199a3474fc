"""Which batch answers for a row: the one that wrote it, or the span that this one was joined into (``housekeeping``).

A span is the last of the batches that were joined. Rows keep the ids that they were written with.
"""

from typing import Any

import psycopg
from psycopg import sql


def read_spans(cursor: psycopg.Cursor[Any], pipeline: str) -> dict[str, list[int]]:
    """Return the spans of the pipeline as the parameters of a statement that has a ``holder_of``."""
    cursor.execute(
        "select joined_from, batch_id from batchledger.batch where pipeline = %s and joined_from is not null "
        "order by batch_id",
        [pipeline],
    )
    spans = cursor.fetchall()
    return {"firsts": [first for first, _ in spans], "lasts": [last for _, last in spans]}


def holder_of(column: str) -> sql.SQL:
    """Return what the statement calls the batch that answers for the batch in ``column``.

    Example: with the span of 5 to 9, it is 9 for 7, and 12 for 12. A proof asks it for every row, so it looks
    into sorted arrays.
    """
    span = f"(%(lasts)s::bigint[])[width_bucket({column}, %(firsts)s::bigint[])]"
    return sql.SQL(f"case when {column} <= {span} then {span} else {column} end")
