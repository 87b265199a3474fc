"""Rows without a key: they belong to no state and to no partition, so that a batch with one is refused."""

from collections.abc import Sequence
from typing import Any

import psycopg
from psycopg import sql

from batchledger.model.batch import Attempt
from batchledger.model.errors import KeyConflictError

OFFENDERS_SHOWN = 5


def require_keys(
    cursor: psycopg.Cursor[Any],
    attempt: Attempt,
    key: Sequence[str],
    rows: sql.Composable,
    is_without: sql.Composable,
    *,
    done: str = "published",
) -> None:
    """Raise KeyConflictError, which names some, when the condition holds for a row; ``done`` is what was not."""
    query = "select _topic, _partition, _offset from {} where {} order by 1, 2, 3 limit %s"
    cursor.execute(sql.SQL(query).format(rows, is_without), [OFFENDERS_SHOWN])
    without_key = [f"{topic}[{partition}]@{offset}" for topic, partition, offset in cursor]
    if without_key:
        raise KeyConflictError(
            f"{attempt.batch.label} has records without a value in sink.key ({', '.join(key)}). Nothing was {done}.",
            why=f"For example {', '.join(without_key)}.",
            advice="Let a transform drop or correct them.\nOr set them aside by a check of each column of the key: "
            "{type: expect_column_values_to_not_be_null, "
            f"column: {key[0]}, on_failure: quarantine}}",
            batch_id=attempt.batch.batch_id,
            coordinates=tuple(without_key),
        )
