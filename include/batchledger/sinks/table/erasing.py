"""Erases the rows of a key from a table, and keeps them away when their records are read once more.

What is erased must not come back in silence: a replay, a rewind or an older record of an upsert would bring it. So two
things are remembered: where the erased records lie, and a hash of the key with how far each partition was read.

One rule, applied when staging is sealed and before anything is judged (``mark``): a staged row at such an offset, or
below such a bound with such a hash, is erased. It is counted as accepted and in ``rows_erased``, so the proof stays
exact. No check sees it, it is neither a first record nor a duplicate, and no row comes of it. In a target that is
updated by key it deletes the key as a tombstone does: its record is still the newest one.

Offsets, because they hold whatever a record decodes to by now. A hash, because offsets do not name the older records of
an upsert, or records that could not be decoded by then. Each pipeline has one salt, so a row is hashed once and not for
every erased key.

Known limits: a column that rows get in the table, from a default or a trigger, is found when its rows are written
(``settle``), and so are rows that an older version has staged; the comparison before a replay counts these rows as
added. In a ledger that hashes keys without a secret, a person who reads the salt and the hashes can find a value by
trying all that it may be.
"""

import secrets
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg import sql

from batchledger.database.transactions import ranges_as_arrays, read_sql, read_statement
from batchledger.model.batch import Attempt
from batchledger.model.counting import describe_count
from batchledger.model.erasure import Erased, ErasureKey
from batchledger.model.errors import DecisionRefusedError, TargetChangedError
from batchledger.model.records.rules import Deduplication, Upsert
from batchledger.sinks.merging.swallowing import find_swallowers
from batchledger.sinks.staging.key_secret import ReadSecret, know_secret
from batchledger.sinks.staging.spans import holder_of, read_spans
from batchledger.sinks.staging.tables import (
    ERASED,
    ERASED_WITHOUT_VERSION,
    count_rows,
    hash_of_values,
    rows_table,
    under_secret,
)
from batchledger.sinks.table.target import TargetTable

_FORGET = ("forget_erased_messages", "forget_erased_deletions")
_SALT_BYTES = 32

_NUMBERS = ("smallint", "integer", "bigint", "numeric")
_NUMBER = r"^-?[0-9]+(\.[0-9]+)?$"

Erasure = tuple[list[str], list[str] | None, bytes]
"""The columns of keys that were erased, their types by then if these are known, and the salt of their hashes."""


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
        parameters["types"] = [types[each] for each in key.columns]
        given = {each: _cast(_parameter(each), types[each]) for each in key.columns}
        is_comparable = sql.SQL(" and ").join(sql.SQL("{0} = {0}").format(value) for value in given.values())
        know_secret(cursor, self.read_secret)
        cursor.execute(read_statement(__package__, "create_erased"))
        try:
            cursor.execute(
                read_sql(__package__, "note_given").format(
                    is_comparable=is_comparable, **self._hashes(given, given, types)
                ),
                parameters,
            )
        except (psycopg.DataError, psycopg.errors.CheckViolation, psycopg.errors.UndefinedFunction):
            # The cause quotes the value.
            raise _unfit(pipeline, types) from None
        rows = self._delete(cursor, pipeline, given, parameters, types)
        keys = self._count_and_forget(cursor, parameters, leaves_versions=self._leaves_versions(key.columns))
        cursor.execute(read_statement(__package__, "remember_erased"), parameters)
        return Erased(rows, keys, cursor.rowcount > 0, types, self._leaves_versions(key.columns))

    def mark(self, cursor: psycopg.Cursor[Any], attempt: Attempt, columns: Mapping[str, str]) -> None:
        """Mark the sealed rows of the attempt that were erased (``tables.ERASED``). ``columns`` are theirs."""
        parameters = _parameters_of(attempt)
        staging = rows_table(attempt)
        target = self.target.read_columns(cursor)
        known = [each for each in self._find_erasures(cursor, attempt) if set(each[0]) <= columns.keys()]
        if known:
            self._gather(cursor, parameters)
        for names, types, salt in known:
            # As the target will hold them.
            values = {each: sql.SQL(f"{{}}::{target.get(each, columns[each])}").format(_of_row(each)) for each in names}
            erased_hash = _erased_hash(names, values, types)
            mark = ERASED if self._leaves_versions(names) else ERASED_WITHOUT_VERSION
            cursor.execute(
                read_sql(__package__, "mark_keys").format(staging=staging, erased_hash=erased_hash),
                parameters | {"columns": names, "types": types, "salt": salt, "mark": mark},
            )
        marks = {"erased": ERASED, "without_version": ERASED_WITHOUT_VERSION}
        cursor.execute(read_sql(__package__, "mark_offsets").format(staging=staging), parameters | marks)

    def concerns(self, cursor: psycopg.Cursor[Any], attempt: Attempt) -> bool:
        """Whether records of the attempt may have been erased."""
        cursor.execute(read_statement(__package__, "may_have_erased"), _parameters_of(attempt))
        return bool(cursor.fetchall()[0][0])

    def count_marked(self, cursor: psycopg.Cursor[Any], attempt: Attempt, rows: sql.Composable) -> int:
        """Return how many of the attempt's ``rows`` were erased. Rows that nothing was erased of are not read."""
        if not self.concerns(cursor, attempt):
            return 0
        return count_rows(cursor, sql.SQL("{} where _task < 0").format(rows))

    def settle(
        self, cursor: psycopg.Cursor[Any], attempt: Attempt, rows: sql.Composable, columns: Container[str]
    ) -> None:
        """Count the attempt's ``rows`` that were erased. Within its publication, after the others are written.

        Erases what the table itself has made a row of an erased key, and what an older version has staged, which marked
        no row. Raises TargetChangedError if it has lost a column of such a key: its rows would come back in silence.
        """
        if not self.concerns(cursor, attempt):
            return
        parameters = _parameters_of(attempt)
        self.require_columns(cursor, attempt, self.target.read_columns(cursor))
        cursor.execute(read_statement(__package__, "uncount_erased"), parameters)
        cursor.execute(read_statement(__package__, "create_erased"))
        cursor.execute(read_sql(__package__, "note_marked").format(rows=rows), parameters | {"erased": ERASED})
        cursor.execute(read_statement(__package__, "is_unmarked"), [attempt.batch.batch_id, attempt.number])
        all_late = bool(cursor.fetchall()[0][0]) or bool(find_swallowers(cursor, self.target.identifier))
        late = [
            each for each in self._find_erasures(cursor, attempt) if all_late or any(c not in columns for c in each[0])
        ]
        if late:
            self._erase_late(cursor, parameters, late)
        leaves_versions = any(self._leaves_versions(names) for names, *_ in late)
        self._count_and_forget(cursor, parameters, leaves_versions=leaves_versions)

    def require_columns(self, cursor: psycopg.Cursor[Any], attempt: Attempt, present: Container[str]) -> None:
        """Raise TargetChangedError unless the target has the columns of erased keys that the attempt may have read."""
        erasures = self._find_erasures(cursor, attempt)
        missing = sorted({each for columns, *_ in erasures for each in columns if each not in present})
        if missing:
            raise TargetChangedError(
                f"Table {self.target.name} has lost column {', '.join(missing)}. Nothing was published.",
                why="Rows were erased by this column. Without it, they would come back unnoticed.",
                advice="Add the column to the table again.",
                batch_id=attempt.batch.batch_id,
                pipeline=attempt.batch.pipeline,
                subject=missing[0],
            )

    def _find_erasures(self, cursor: psycopg.Cursor[Any], attempt: Attempt) -> Sequence[Erasure]:
        """Return which keys were erased whose records may be among the attempt's."""
        cursor.execute(read_statement(__package__, "find_erasures"), _parameters_of(attempt))
        return cursor.fetchall()

    def _gather(self, cursor: psycopg.Cursor[Any], parameters: Mapping[str, Any]) -> None:
        know_secret(cursor, self.read_secret)
        cursor.execute(read_statement(__package__, "gather_erasures"), parameters)
        # Without numbers about it, PostgreSQL would compare each row with each key.
        cursor.execute("analyze batchledger_erasing")

    def _erase_late(
        self, cursor: psycopg.Cursor[Any], parameters: Mapping[str, Any], erasures: Iterable[Erasure]
    ) -> None:
        """Delete the rows of erased keys that the attempt has just written."""
        self._gather(cursor, parameters)
        # A hidden row would stay: with this, PostgreSQL says so.
        cursor.execute("set local row_security = off")
        for columns, types, salt in erasures:
            hashes = self._hashes(columns, self._of_rows(columns), dict(zip(columns, types or (), strict=False)))
            statement = read_sql(__package__, "erase_late").format(target=self.target.identifier, **hashes)
            cursor.execute(statement, {**parameters, "columns": columns, "types": types, "salt": salt})
        cursor.execute("set local row_security = on")

    def _leaves_versions(self, columns: Iterable[str]) -> bool:
        """Whether other rows of the keys of erased rows may have other values, so that no hash tells them."""
        upsert = self.target.upsert
        return upsert is not None and not set(columns) <= set(upsert.key)

    def _delete(
        self,
        cursor: psycopg.Cursor[Any],
        pipeline: str,
        given: Mapping[str, sql.Composable],
        parameters: Mapping[str, Any],
        types: Mapping[str, str],
    ) -> int:
        target = self.target.identifier
        is_key = sql.SQL(" and ").join(
            sql.SQL("{} = {}").format(_of_row(column), value) for column, value in given.items()
        )
        hashes = self._hashes(given, self._of_rows(given), types)
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

    def _count_and_forget(
        self, cursor: psycopg.Cursor[Any], parameters: Mapping[str, Any], *, leaves_versions: bool
    ) -> int:
        """Count the erased rows in their ranges, and forget their keys; return how many keys were remembered.

        Where they and their duplicates lie stays known, and that they are the newest of their keys, if hashes do not
        tell the others.
        """
        parameters = {**parameters, **read_spans(cursor, parameters["pipeline"]), "leaves_version": leaves_versions}
        for name in ("count_erased", "remember_offsets", *(["remember_versions"] if leaves_versions else [])):
            cursor.execute(read_sql(__package__, name).format(holder=holder_of("e.batch_id")), parameters)
        forgotten = 0
        for statement in _FORGET[: 1 if leaves_versions else 2]:
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

    def _of_rows(self, columns: Iterable[str]) -> dict[str, sql.Composable]:
        """The columns of rows that the key names, and that messages and deletions are known by."""
        rules = [each for each in (self.deduplication, self.target.upsert) if each is not None]
        return {column: _of_row(column) for column in (*columns, *(each for rule in rules for each in rule.key))}

    def _hashes(
        self, columns: Iterable[str], value_by_column: Mapping[str, sql.Composable], types: Mapping[str, str]
    ) -> dict[str, sql.Composable]:
        """The parts of statements by which a row or a key is known; null if its columns do not say."""
        names = list(columns)
        return {
            "erased_hash": _erased_hash(names, value_by_column, [types[each] for each in names] if types else None),
            "message_hash": _hash_by(self.deduplication, value_by_column),
            "deleted_hash": _hash_by(self.target.upsert, value_by_column),
        }


def _erased_hash(
    columns: Sequence[str], value_by_column: Mapping[str, sql.Composable], types: Sequence[str] | None
) -> sql.Composable:
    """The hash of an erased key, of texts: so it stays the same if a column gets another type.

    What was a number has the text of its value: ``1`` and ``1.00`` are one key, whatever the column is by now. A
    checkout before 0.3.0 hashed the text of every value; such a key has no types.
    """
    salted = sql.SQL("sha256(%(salt)s::bytea || convert_to(jsonb_build_array({})::text, 'UTF8'))")
    texts = [sql.SQL("{}::text").format(value_by_column[each]) for each in columns]
    as_number = sql.SQL("case when {0} ~ {1} then trim_scale({0}::numeric)::text else {0} end")
    known = [
        as_number.format(text, sql.Literal(_NUMBER)) if type_ in _NUMBERS else text
        for text, type_ in zip(texts, types or [""] * len(texts), strict=True)
    ]
    return under_secret(salted.format(sql.SQL(", ").join(known)))


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
