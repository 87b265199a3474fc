"""Rows whose key cannot be applied, so that a batch with one is refused: without a value, or cut by the table."""

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
    without_key = _find(cursor, rows, is_without)
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


def require_short_keys(
    cursor: psycopg.Cursor[Any],
    attempt: Attempt,
    key: Sequence[str],
    last: sql.Composable,
    is_too_long: sql.Composable,
) -> None:
    """Raise KeyConflictError when the condition holds for a row of ``last`` that is about to be stored."""
    too_long = _find(cursor, last, sql.SQL("not _is_deleted and ({})").format(is_too_long))
    if too_long:
        raise KeyConflictError(
            f"{attempt.batch.label} has records whose sink.key ({', '.join(key)}) is longer than its column. Nothing "
            "was published.",
            why=f"PostgreSQL cuts blanks at the end in silence, so another key would be stored: {', '.join(too_long)}.",
            advice="Give the column type text.\nOr let a transform cut the blanks.",
            batch_id=attempt.batch.batch_id,
            coordinates=tuple(too_long),
        )


def _find(cursor: psycopg.Cursor[Any], rows: sql.Composable, condition: sql.Composable) -> Sequence[str]:
    query = "select _topic, _partition, _offset from {} where {} order by 1, 2, 3 limit %s"
    cursor.execute(sql.SQL(query).format(rows, condition), [OFFENDERS_SHOWN])
    return [f"{topic}[{partition}]@{offset}" for topic, partition, offset in cursor]
