"""How the values of a key are written, which its hash depends on: ``1`` and ``1.00`` are different keys.

Keys are remembered as hashes of what PostgreSQL writes of their values. Another type of a column writes them in another
way, and every remembered key would silently be forgotten. So the types are kept beside the keys, and a change is
refused as long as a key is remembered. Another choice of columns is another key, with types of its own. The types of
the first key stay, so that it may come back.

A ledger from before migration 0016 has no types: they are kept from the first batch after it on. So do not change the
type of a key together with that upgrade.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import psycopg
import pyarrow as pa
from psycopg import sql

from batchledger.model.batch import Attempt
from batchledger.model.errors import ConfigurationError

_REMEMBERED_IN = {"dedupe.key": "message_key", "sink.key": "deleted_key", "sequence.key": "sequence"}
_WAY_ON = {
    "dedupe.key": "read everything again (batchledger rewind {pipeline} --to earliest --truncate --reason WHY)",
    "sink.key": "read everything again (batchledger rewind {pipeline} --to earliest --truncate --reason WHY)",
    "sequence.key": "let the numbering begin anew (batchledger rewind {pipeline} --to WHERE --reason WHY)",
}


def describe_types(columns: Sequence[str], schema: pa.Schema) -> dict[str, str]:
    """Return how the values of each column are written, in the order of the columns."""
    return {each: _written_as(schema.field(each).type) for each in columns}


def require_same_types(pipeline: str, rule: str, before: Mapping[str, str], now: Mapping[str, str]) -> None:
    """Raise ConfigurationError when a column of the same key is written in another way than the remembered keys."""
    changed = [each for each in now if before[each] != now[each]]
    if changed:
        what = ", ".join(f"{each} as {before[each]}, now as {now[each]}" for each in changed)
        raise ConfigurationError(
            f"{rule} of {pipeline}: the type of a key has changed. Nothing was staged.",
            why=f"Keys are remembered that were written with {what}. The same value has another hash now, and every "
            "key would be forgotten.",
            advice="Restore the type in source.schema, or by a cast in the transform.\nOr "
            f"{_WAY_ON[rule].format(pipeline=pipeline)}.\nOr read the source again under a new pipeline name.",
            pipeline=pipeline,
            subject=changed[0],
        )


def keep_types(
    cursor: psycopg.Cursor[Any], attempt: Attempt, keys: Mapping[str, Sequence[str]], schema: pa.Schema
) -> None:
    """Compare the types of the keys, by rule, with what is kept; keep them if nothing is remembered yet.

    A dry run keeps nothing. Raises ConfigurationError.
    """
    pipeline = attempt.batch.pipeline
    for rule, columns in keys.items():
        now = describe_types(columns, schema)
        key = [pipeline, rule, list(now)]
        cursor.execute("select types from batchledger.key_type where pipeline = %s and rule = %s and columns = %s", key)
        before = next((dict(zip(now, types, strict=True)) for (types,) in cursor), None)
        if before is not None and _is_remembered(cursor, pipeline, rule):
            require_same_types(pipeline, rule, before, now)
        if before != now and not attempt.batch.is_dry_run:
            cursor.execute(
                "insert into batchledger.key_type (pipeline, rule, columns, types) values (%s, %s, %s, %s) "
                "on conflict (pipeline, rule, columns) do update set types = excluded.types",
                [*key, list(now.values())],
            )


def _is_remembered(cursor: psycopg.Cursor[Any], pipeline: str, rule: str) -> bool:
    query = sql.SQL("select exists (select from batchledger.{} where pipeline = %s)")
    cursor.execute(query.format(sql.Identifier(_REMEMBERED_IN[rule])), [pipeline])
    return bool(cursor.fetchall()[0][0])


def _written_as(type_: pa.DataType) -> str:
    """Say how JSON writes a value of the type. Whole numbers of any width look alike."""
    if pa.types.is_integer(type_) or (pa.types.is_decimal(type_) and type_.scale == 0):
        return "whole numbers"
    if pa.types.is_decimal(type_):
        return f"decimals of scale {type_.scale}"
    if pa.types.is_string(type_) or pa.types.is_large_string(type_):
        return "text"
    if pa.types.is_binary(type_) or pa.types.is_large_binary(type_):
        return "bytes"
    if pa.types.is_timestamp(type_):
        return "timestamps" if type_.tz else "timestamps without time zone"
    return {pa.float32(): "floats", pa.float64(): "doubles"}.get(type_, str(type_))
