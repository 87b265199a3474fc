"""How the values of a key are written, which its hash depends on: ``1`` and ``1.00`` are different keys.

Keys are remembered as hashes of what PostgreSQL writes of their values. Another type of a column writes them in another
way, and every remembered key would silently be forgotten. So the types are kept beside the keys, and a change is
refused as long as a key is remembered. Another choice of columns is another key, with types of its own. The types of
the first key stay, so that it may come back.

A column that is hashed holds another text than one that is not, so the types say that, too. Known limit: a column that
a transform makes of a hashed one under another name counts as one that is not.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import psycopg
import pyarrow as pa
from psycopg import sql

from batchledger.formats.arrow_types import is_hashed
from batchledger.model.batch import Attempt
from batchledger.model.errors import ConfigurationError

_REMEMBERED_IN = {"dedupe.key": "message_key", "sink.key": "deleted_key", "sequence.key": "sequence"}
_HASHED = ", hashed"
_WAY_ON = {
    "dedupe.key": "read everything again (batchledger rewind {pipeline} --to earliest --truncate --reason WHY)",
    "sink.key": "read everything again (batchledger rewind {pipeline} --to earliest --truncate --reason WHY)",
    "sequence.key": "let the numbering begin anew (batchledger rewind {pipeline} --to WHERE --reason WHY)",
}


def describe_types(columns: Sequence[str], schema: pa.Schema) -> dict[str, str]:
    """Return how the values of each column are written, in the order of the columns."""
    return {each: _written_as(schema.field(each)) for each in columns}


def is_hash_changed(before: Mapping[str, str], now: Mapping[str, str]) -> bool:
    """Whether a column is hashed that was not, or the other way round: rows have the same column with other keys."""
    return any(before[each].endswith(_HASHED) != now[each].endswith(_HASHED) for each in now)


def require_same_types(pipeline: str, rule: str, before: Mapping[str, str], now: Mapping[str, str]) -> None:
    """Raise ConfigurationError when a column of the same key is written in another way than the remembered keys."""
    changed = [each for each in now if before[each] != now[each]]
    if changed:
        what = ", ".join(f"{each} as {before[each]}, now as {now[each]}" for each in changed)
        raise ConfigurationError(
            f"{rule} of {pipeline}: the type of a key has changed. Nothing was staged.",
            why=f"Keys are remembered that were written with {what}. The same value has another hash now, and every "
            "key would be forgotten.",
            advice="Restore the type in source.schema, or by a cast in the transform, and the column in "
            "source.protect.\nOr "
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
        if before is not None and (
            _is_remembered(cursor, pipeline, rule)
            or (rule == "sink.key" and is_hash_changed(before, now) and has_published(cursor, pipeline))
        ):
            require_same_types(pipeline, rule, before, now)
        if before != now and not attempt.batch.is_dry_run:
            cursor.execute(
                "insert into batchledger.key_type (pipeline, rule, columns, types) values (%s, %s, %s, %s) "
                "on conflict (pipeline, rule, columns) do update set types = excluded.types",
                [*key, list(now.values())],
            )


def _is_remembered(cursor: psycopg.Cursor[Any], pipeline: str, rule: str) -> bool:
    query = sql.SQL("select exists (select from batchledger.{} where pipeline = %s{})")
    # What an erasure has left stays when everything is read again, and must not be in the way.
    if_kept = sql.SQL(" and not is_erased" if rule == "sink.key" else "")
    cursor.execute(query.format(sql.Identifier(_REMEMBERED_IN[rule]), if_kept), [pipeline])
    return bool(cursor.fetchall()[0][0])


def has_published(cursor: psycopg.Cursor[Any], pipeline: str) -> bool:
    """Whether published batches of the pipeline hold offsets, so that the target may have their rows."""
    query = "select exists (select from batchledger.batch_range where pipeline = %s and not isempty(held))"
    cursor.execute(query, [pipeline])
    return bool(cursor.fetchall()[0][0])


def _written_as(field: pa.Field) -> str:
    """Say how JSON writes a value of the field. Whole numbers of any width look alike."""
    type_ = field.type
    if pa.types.is_integer(type_) or (pa.types.is_decimal(type_) and type_.scale == 0):
        return "whole numbers"
    if pa.types.is_decimal(type_):
        return f"decimals of scale {type_.scale}"
    if pa.types.is_string(type_) or pa.types.is_large_string(type_):
        return f"text{_HASHED}" if is_hashed(field) else "text"
    if pa.types.is_binary(type_) or pa.types.is_large_binary(type_):
        return "bytes"
    if pa.types.is_timestamp(type_):
        return "timestamps" if type_.tz else "timestamps without time zone"
    return {pa.float32(): "floats", pa.float64(): "doubles"}.get(type_, str(type_))
