"""Erases the rows of a key from a table, and erases them again when their records are published once more.

What is erased must not come back in silence: a replay, a rewind or an older record of an upsert would bring it. So a
hash of the key is remembered, with how far each partition was read. A publication that reads below that deletes such
rows in its own transaction, so no reader sees them. Its audit counts them as accepted, and ``rows_erased`` counts them
as gone: the proof stays exact.

A hash, because coordinates do not name the older records of an upsert, or records that could not be decoded by then.
Each pipeline has one salt, so a row is hashed once and not for every erased key.

Known limits: the comparison before a replay does not find such rows by a column that they do not have, and get from its
default. In a ledger that hashes keys without a secret, a person who reads the salt and the hashes can find a value by
trying all that it may be.
"""

import secrets
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg import sql

from batchledger.adapters.postgres.database import ranges_as_arrays, read_sql, read_statement
from batchledger.adapters.postgres.sinks.swallowing import find_swallowers
from batchledger.adapters.postgres.sinks.target import TargetTable
from batchledger.adapters.postgres.staging.key_secret import ReadSecret, know_secret
from batchledger.adapters.postgres.staging.tables import hash_of_values, under_secret
from batchledger.model.batch import Attempt
from batchledger.model.counting import describe_count
from batchledger.model.erasure import Erased, ErasureKey
from batchledger.model.errors import DecisionRefusedError, TargetChangedError
from batchledger.model.records.rules import Deduplication, Upsert

_FORGET = ("forget_erased_messages", "forget_erased_deletions")
_SALT_BYTES = 32

Erasure = tuple[list[str], bytes]
"""The columns of keys that were erased, and the salt of their hashes."""


@dataclass(frozen=True)
class PostgresErasure:
    """Erases from ``target``. ``deduplication`` says by which columns messages are known."""

    target: TargetTable
    deduplication: Deduplication | None
    read_secret: ReadSecret

    def erase(self, cursor: psycopg.Cursor[Any], pipeline: str, key: ErasureKey) -> Erased:
        """Erase a key, count what is gone, and remember it as erased. The pipeline is locked.

        Raises DecisionRefusedError if the table lacks a column, takes no such value or has it as money, or if it keeps
        rows that are deleted.
        """
        types = self._read_types(cursor, pipeline, key)
        parameters = {
            "pipeline": pipeline,
            "salt": self._find_salt(cursor, pipeline),
            "columns": list(key.columns),
            "form": key.form,
            **{_parameter(column): value for column, value in zip(key.columns, key.values, strict=True)},
        }
        given = {each: _cast(_parameter(each), types[each]) for each in key.columns}
        is_comparable = sql.SQL(" and ").join(sql.SQL("{0} = {0}").format(value) for value in given.values())
        know_secret(cursor, self.read_secret)
        cursor.execute(read_statement(__package__, "create_erased"))
        try:
            cursor.execute(
                read_sql(__package__, "note_given").format(is_comparable=is_comparable, **self._hashes(given, given)),
                parameters,
            )
        except (psycopg.DataError, psycopg.errors.CheckViolation, psycopg.errors.UndefinedFunction):
            # The cause quotes the value.
            raise _unfit(pipeline, types) from None
        rows = self._delete(cursor, pipeline, given, parameters)
        keys = self._count_and_forget(cursor, parameters)
        cursor.execute(read_statement(__package__, "remember_erased"), parameters)
        return Erased(rows, keys, cursor.rowcount > 0, types)

    def erase_again(self, cursor: psycopg.Cursor[Any], attempt: Attempt) -> None:
        """Erase the rows that the attempt has just written of keys that were erased. Within its publication.

        Raises TargetChangedError if the table has lost a column of such a key: its rows would come back in silence.
        """
        erasures = self.find_erasures(cursor, attempt)
        if erasures:
            parameters = _parameters_of(attempt)
            self._require_columns(attempt, erasures, self.target.read_columns(cursor))
            cursor.execute(read_statement(__package__, "uncount_erased"), parameters)
            self._delete_again(cursor, attempt, erasures, self.target.identifier)
            self._count_and_forget(cursor, parameters)

    def find_erasures(self, cursor: psycopg.Cursor[Any], attempt: Attempt) -> Sequence[Erasure]:
        """Return which keys were erased whose records may be among the attempt's."""
        cursor.execute(read_statement(__package__, "find_erasures"), _parameters_of(attempt))
        return cursor.fetchall()

    def leave_out(
        self,
        cursor: psycopg.Cursor[Any],
        attempt: Attempt,
        erasures: Sequence[Erasure],
        rows: sql.Identifier,
        *,
        columns: Sequence[str],
        columns_after: Container[str],
    ) -> int:
        """Delete from ``rows`` what the attempt would write and erase again; return how many rows that is.

        ``rows`` is a temporary table with these columns and ``_batch_id``; ``columns_after`` are the target's by then.
        """
        self._require_columns(attempt, erasures, columns_after)
        known = [each for each in erasures if set(each[0]) <= set(columns)]
        return self._delete_again(cursor, attempt, known, rows)

    def _delete_again(
        self, cursor: psycopg.Cursor[Any], attempt: Attempt, erasures: Iterable[Erasure], rows: sql.Identifier
    ) -> int:
        """Delete rows of erased keys within the ranges of the attempt, and return how many."""
        parameters = _parameters_of(attempt)
        know_secret(cursor, self.read_secret)
        cursor.execute(read_statement(__package__, "create_erased"))
        cursor.execute(read_statement(__package__, "gather_erasures"), parameters)
        # Without numbers about it, PostgreSQL would compare each row with each key.
        cursor.execute("analyze batchledger_erasing")
        # A hidden row would stay: with this, PostgreSQL says so.
        cursor.execute("set local row_security = off")
        deleted = 0
        for columns, salt in erasures:
            statement = read_sql(__package__, "erase_again").format(
                target=rows, **self._hashes(columns, self._of_rows(columns))
            )
            cursor.execute(statement, parameters | {"columns": columns, "salt": salt})
            deleted += cursor.rowcount
        cursor.execute("set local row_security = on")
        return deleted

    def _delete(
        self,
        cursor: psycopg.Cursor[Any],
        pipeline: str,
        given: Mapping[str, sql.Composable],
        parameters: Mapping[str, Any],
    ) -> int:
        target = self.target.identifier
        is_key = sql.SQL(" and ").join(
            sql.SQL("{} = {}").format(_of_row(column), value) for column, value in given.items()
        )
        hashes = self._hashes(given, self._of_rows(given))
        # As above.
        cursor.execute("set local row_security = off")
        cursor.execute(read_sql(__package__, "erase_rows").format(target=target, is_key=is_key, **hashes), parameters)
        rows = cursor.rowcount
        cursor.execute("set local row_security = on")
        swallowers = find_swallowers(cursor, target)
        if swallowers:
            cursor.execute(read_sql(__package__, "count_kept").format(target=target, is_key=is_key), parameters)
            ((kept,),) = cursor.fetchall()
            if kept:
                rows_kept = describe_count(kept, "row")
                raise DecisionRefusedError(
                    f"Table {self.target.name} keeps {rows_kept} of the key, without an error. Nothing was erased.",
                    why=f"It has: {', '.join(swallowers)}.",
                    advice="Let the table give up every row that is deleted, and erase again.",
                    pipeline=pipeline,
                    subject=self.target.name,
                )
        return rows

    def _count_and_forget(self, cursor: psycopg.Cursor[Any], parameters: Mapping[str, Any]) -> int:
        """Count the erased rows in their ranges, and forget their keys; return how many keys were remembered."""
        cursor.execute(read_statement(__package__, "count_erased"), parameters)
        forgotten = 0
        for statement in _FORGET:
            cursor.execute(read_statement(__package__, statement), parameters)
            forgotten += cursor.rowcount
        cursor.execute(read_statement(__package__, "unlist_erased"), parameters)
        return forgotten

    def _read_types(self, cursor: psycopg.Cursor[Any], pipeline: str, key: ErasureKey) -> dict[str, str]:
        """Return the type of each column of the key, without modifiers."""
        target = sql.Literal(self.target.identifier.as_string(cursor))
        cursor.execute(read_sql(__package__, "read_key_types").format(target=target), {"columns": list(key.columns)})
        types: dict[str, str] = dict(cursor.fetchall())
        missing = [each for each in key.columns if each not in types]
        if missing:
            raise DecisionRefusedError(
                f"Table {self.target.name} has no column {', '.join(missing)}. Nothing was erased.",
                advice="Name columns of the table: --key COLUMN=VALUE",
                pipeline=pipeline,
                subject=missing[0],
            )
        unsteady = [column for column, type_ in types.items() if type_.removesuffix("[]") == "money"]
        if unsteady:
            raise DecisionRefusedError(
                f"Column {unsteady[0]} of {self.target.name} is money. Nothing was erased.",
                why="PostgreSQL writes money as lc_monetary says, so the key would not be known again.",
                advice="Name other columns, or alter the column to numeric.",
                pipeline=pipeline,
                subject=unsteady[0],
            )
        return types

    def _find_salt(self, cursor: psycopg.Cursor[Any], pipeline: str) -> bytes:
        """Return the salt of the pipeline's erased keys, a new one for the first."""
        cursor.execute(read_statement(__package__, "find_salt"), {"pipeline": pipeline})
        for (salt,) in cursor:
            return bytes(salt)
        return secrets.token_bytes(_SALT_BYTES)

    def _require_columns(self, attempt: Attempt, erasures: Iterable[Erasure], present: Container[str]) -> None:
        missing = sorted({each for columns, _ in erasures for each in columns if each not in present})
        if missing:
            raise TargetChangedError(
                f"Table {self.target.name} has lost column {', '.join(missing)}. Nothing was published.",
                why="Rows were erased by this column. Without it, they would come back unnoticed.",
                advice="Add the column to the table again.",
                batch_id=attempt.batch.batch_id,
                pipeline=attempt.batch.pipeline,
                subject=missing[0],
            )

    def _of_rows(self, columns: Iterable[str]) -> dict[str, sql.Composable]:
        """The columns of rows that the key names, and that messages and deletions are known by."""
        rules = [each for each in (self.deduplication, self.target.upsert) if each is not None]
        return {column: _of_row(column) for column in (*columns, *(each for rule in rules for each in rule.key))}

    def _hashes(
        self, columns: Iterable[str], value_by_column: Mapping[str, sql.Composable]
    ) -> dict[str, sql.Composable]:
        """The parts of statements by which a row or a key is known; null if its columns do not say.

        Texts go into the hash of an erased key, so it stays the same if a column gets another type.
        """
        salted = sql.SQL("sha256(%(salt)s::bytea || convert_to(jsonb_build_array({})::text, 'UTF8'))")
        texts = [sql.SQL("{}::text").format(value_by_column[each]) for each in columns]
        return {
            "erased_hash": under_secret(salted.format(sql.SQL(", ").join(texts))),
            "message_hash": _hash_by(self.deduplication, value_by_column),
            "deleted_hash": _hash_by(self.target.upsert, value_by_column),
        }


def _hash_by(rule: Deduplication | Upsert | None, value_by_column: Mapping[str, sql.Composable]) -> sql.Composable:
    if rule is None or not set(rule.key) <= value_by_column.keys():
        return sql.SQL("null::bytea")
    return hash_of_values(sql.SQL(", ").join(value_by_column[each] for each in rule.key))


def _parameters_of(attempt: Attempt) -> dict[str, Any]:
    batch = attempt.batch
    return {"pipeline": batch.pipeline, "batch_id": batch.batch_id, **ranges_as_arrays(batch.ranges)}


def _parameter(column: str) -> str:
    """The name of a parameter; a column may be called anything."""
    return f"value_{column.encode().hex()}"


def _of_row(column: str) -> sql.Composed:
    return sql.SQL("t.{}").format(sql.Identifier(column))


def _cast(parameter: str, type_: str) -> sql.Composed:
    """``type_`` is as ``format_type`` writes it."""
    return sql.SQL("({}::{})").format(sql.Placeholder(parameter), sql.SQL(type_))


def _unfit(pipeline: str, types: Mapping[str, str]) -> DecisionRefusedError:
    columns = ", ".join(f"{column} ({type_})" for column, type_ in types.items())
    return DecisionRefusedError(
        "A value of the key does not fit the type of its column. Nothing was erased.",
        why=f"The columns are {columns}.",
        advice="Write the value as PostgreSQL writes it: --key COLUMN=VALUE",
        pipeline=pipeline,
    )
