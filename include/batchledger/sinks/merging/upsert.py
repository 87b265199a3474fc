"""Idempotent updates on PostgreSQL: the rows of a batch become one operation per key, then one statement per kind.

Everything happens in the publishing transaction. Each statement compares versions, so that an older record changes
nothing, also when its batch is published again. For that, ``batchledger.deleted_key`` keeps deleted keys.

A batch that takes offsets over first removes the states that came from them. Known limit: if it brings no record for
such a key, the key is gone. An older record of it, outside of the ranges, comes back only when it is published again.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg import sql

from batchledger.database.transactions import ranges_as_arrays, read_sql
from batchledger.model.batch import Attempt
from batchledger.model.errors import KeyConflictError, TargetChangedError
from batchledger.model.records.columns import DELETED_COLUMN
from batchledger.model.records.rules import Upsert, VersionBy
from batchledger.sinks.merging.key_equality import own_equality
from batchledger.sinks.merging.null_keys import OFFENDERS_SHOWN, require_keys, require_short_keys
from batchledger.sinks.merging.swallowing import find_swallowers
from batchledger.sinks.staging.key_secret import ReadSecret, know_secret
from batchledger.sinks.staging.tables import ERASED, hash_of, join_names
from batchledger.sinks.staging.withdrawal import WithdrawnRows

logger = logging.getLogger(__name__)

NO_KEY = sql.SQL("false")
"""The condition that no key meets."""
_LAST = sql.Identifier("pg_temp", "batchledger_last")
"""The newest record of each key, until the transaction ends."""


@dataclass(frozen=True)
class PostgresUpsert:
    """Applies rows to a target that has a unique index on the key."""

    rules: Upsert
    target: sql.Identifier
    read_secret: ReadSecret

    @property
    def primary_key(self) -> sql.Composed:
        """The constraint of a target that is created."""
        return sql.SQL("primary key ({})").format(join_names(self.rules.key))

    def require_unique_index(self, cursor: psycopg.Cursor[Any], name: str) -> None:
        """Raise TargetChangedError unless the target has a unique index on exactly the key columns.

        The index has to tell texts apart as the ledger does.
        """
        cursor.execute(read_sql(__package__, "find_unique_indexes"), {"target": self.target.as_string(cursor)})
        own_collations = [own for columns, own in cursor if set(columns) == set(self.rules.key)]
        key = ", ".join(self.rules.key)
        if any(own_collations):
            raise own_equality(name, f"({key}) has collation {', '.join(max(own_collations))}")
        if not own_collations:
            raise TargetChangedError(
                f"Table {name} has no unique index on exactly ({key}), which sink.mode upsert needs. Nothing was "
                "written.",
                advice=f"Create one: create unique index on {name} ({key})\nOr name a table that does not exist yet.",
                subject=name,
            )

    def select_unmatched(self, attempt: Attempt, rows: sql.Composable, *, has_target: bool) -> sql.Composable:
        """Return the query of the ``rows`` that delete a key which no row, deletion or earlier record has.

        The transaction has to know the secret of keys.
        """
        nothing = sql.SQL("(select * from {} where false)").format(rows)
        return read_sql(__package__, "select_unmatched").format(
            rows=rows,
            target=self.target if has_target else nothing,
            key=join_names(self.rules.key),
            key_hash=hash_of(self.rules.key),
            pipeline=sql.Literal(attempt.batch.pipeline),
            same_key_in_target=self._same_key("t", "s"),
            version=sql.SQL(", ").join(self._version("")),
        )

    def _same_key(self, one: str, other: str) -> sql.Composed:
        pairs = [
            sql.SQL("{} = {}").format(sql.Identifier(one, each), sql.Identifier(other, each)) for each in self.rules.key
        ]
        return sql.SQL(" and ").join(pairs)

    def withdraw(self, cursor: psycopg.Cursor[Any], attempt: Attempt, withdrawn: WithdrawnRows) -> None:
        """Remove the tombstones of the batch's ranges, whose rows are ``withdrawn``."""
        batch = attempt.batch
        know_secret(cursor, self.read_secret)
        cursor.execute(
            "create temporary table batchledger_withdrawn_key on commit drop as "
            'select key_hash, topic, partition, "offset", "timestamp" from batchledger.deleted_key with no data'
        )
        cursor.execute(
            read_sql(__package__, "withdraw_keys").format(key_hash=hash_of(self.rules.key), withdrawn=withdrawn.table),
            {"pipeline": batch.pipeline, **ranges_as_arrays(batch.ranges)},
        )

    def apply(
        self,
        cursor: psycopg.Cursor[Any],
        attempt: Attempt,
        rows: sql.Composable,
        columns: Sequence[str],
        *,
        erased: int = 0,
        is_too_long: sql.Composable = NO_KEY,
        has_withdrawn: bool = False,
    ) -> int:
        """Bring the target to the newest state of every key among ``rows``; return how many rows these are.

        ``erased`` of these have erased keys (``tables.ERASED``). ``has_withdrawn``: ``withdraw`` has come before. Once
        in a transaction, unless ``begin_again``. The count leaves out rows whose state the target does
        not show, although no statement has failed.

        Raises KeyConflictError when a key is null or ``is_too_long``, or comes from partitions whose offsets do not
        order.
        """
        cursor.execute(sql.SQL("select count(*) from {}").format(rows))
        accepted = int(cursor.fetchall()[0][0])
        parts = self.collapse(cursor, attempt, rows, columns, self.target)
        require_short_keys(cursor, attempt, self.rules.key, _LAST, is_too_long)
        parameters = {"pipeline": attempt.batch.pipeline, "batch_id": attempt.batch.batch_id}
        has_deleted = DELETED_COLUMN in columns or erased > 0
        changes = ("upsert_rows", "forget_deleted_keys", *(("delete_rows", "remember_deleted_keys") * has_deleted))
        for change in changes:
            cursor.execute(read_sql(__package__, change).format(**parts), parameters)
        if has_withdrawn:
            self._report_lost_keys(cursor, attempt, parts)
        return accepted - self._count_ignored(cursor, parts)

    def begin_again(self, cursor: psycopg.Cursor[Any]) -> None:
        """Let the transaction ``collapse`` other rows, or ``apply`` them."""
        cursor.execute(sql.SQL("drop table if exists {}").format(_LAST))

    def _count_ignored(self, cursor: psycopg.Cursor[Any], parts: Mapping[str, sql.Composable]) -> int:
        """Look only if something may swallow rows: it takes as long as a change."""
        if not find_swallowers(cursor, self.target):
            return 0
        cursor.execute(read_sql(__package__, "count_ignored").format(**parts))
        return int(cursor.fetchall()[0][0])

    def _report_lost_keys(
        self, cursor: psycopg.Cursor[Any], attempt: Attempt, parts: Mapping[str, sql.Composable]
    ) -> None:
        cursor.execute(read_sql(__package__, "count_lost_keys").format(**parts))
        lost = cursor.fetchall()[0][0]
        if lost:
            logger.warning(
                "%s replaces ranges that held the newest record of %d keys, and brings no such record for them. Older "
                "records of these keys, outside of its ranges, come back only when they are published again.",
                attempt.batch.label,
                lost,
            )

    def collapse(
        self,
        cursor: psycopg.Cursor[Any],
        attempt: Attempt,
        rows: sql.Composable,
        columns: Sequence[str],
        held: sql.Composable,
    ) -> dict[str, sql.Composable]:
        """Write down the newest record of each key, until the transaction ends.

        Returns the parts of statements about it, in which it is ``last``. Raises KeyConflictError when the records
        cannot be applied to ``held``, the target or a part of it, which may be a subquery with the ranges of the batch
        as its parameters.
        """
        self._write_last(cursor, attempt, rows, columns)
        is_without = sql.SQL("num_nulls({}) > 0").format(join_names(self.rules.key))
        require_keys(cursor, attempt, self.rules.key, _LAST, is_without)
        parts = self._parts([each for each in columns if each != DELETED_COLUMN])
        if self.rules.version is VersionBy.OFFSET:
            statement = read_sql(__package__, "find_divided_keys").format(**{**parts, "target": held})
            cursor.execute(statement, {"limit": OFFENDERS_SHOWN, **ranges_as_arrays(attempt.batch.ranges)})
            _refuse_divided(cursor, attempt)
        return parts

    def _write_last(
        self, cursor: psycopg.Cursor[Any], attempt: Attempt, rows: sql.Composable, columns: Sequence[str]
    ) -> None:
        is_by_offset = self.rules.version is VersionBy.OFFSET
        apart = (*self.rules.key, "_topic", "_partition") if is_by_offset else self.rules.key
        has_deleted = DELETED_COLUMN in columns
        deleted = sql.SQL("coalesce({}, false)").format(sql.Identifier(DELETED_COLUMN))
        know_secret(cursor, self.read_secret)
        cursor.execute(
            read_sql(__package__, "collapse_updates").format(
                last=_LAST,
                apart=join_names(apart),
                columns=join_names([each for each in columns if each != DELETED_COLUMN]),
                deleted=deleted if has_deleted else sql.Literal(False),
                key_hash=hash_of(self.rules.key),
                pipeline=sql.Literal(attempt.batch.pipeline),
                rows=rows,
                erased=sql.Literal(ERASED),
                key=join_names(self.rules.key),
                newest_first=sql.SQL(", ").join(sql.SQL("{} desc").format(each) for each in self._version("")),
            )
        )
        cursor.execute(sql.SQL("analyze {}").format(_LAST))

    def _parts(self, columns: Sequence[str]) -> dict[str, sql.Composable]:
        """The parts of the statements."""
        assigned = [sql.SQL("{0} = excluded.{0}").format(sql.Identifier(each)) for each in columns]
        return {
            "last": _LAST,
            "target": self.target,
            "columns": join_names(columns),
            "key": join_names(self.rules.key),
            "assignments": sql.SQL(", ").join(assigned),
            "same_key": self._same_key("t", "l"),
            "version_of_last": _as_row(self._version("l.")),
            "version_of_target": _as_row(self._version("t.")),
            "version_of_excluded": _as_row(self._version("excluded.")),
            "version_of_tombstone": _as_row(self._version("d.", underscore="")),
            "version_of_excluded_tombstone": _as_row(self._version("excluded.", underscore="")),
        }

    def _version(self, table: str, underscore: str = "_") -> Sequence[sql.SQL]:
        """The expressions that order the records of one key; ``table`` ends in a dot.

        A row of the target that no record has written has nulls here, and is older than any record.
        """
        offset = f'coalesce({table}"{underscore}offset", -1)'
        if self.rules.version is VersionBy.OFFSET:
            return [sql.SQL(offset)]
        timestamp = f"""coalesce({table}"{underscore}timestamp", '-infinity')"""
        topic = f"""coalesce({table}"{underscore}topic", '') collate "C\""""
        partition = f'coalesce({table}"{underscore}partition", -1)'
        return [sql.SQL(each) for each in (timestamp, topic, partition, offset)]


def _as_row(expressions: Sequence[sql.SQL]) -> sql.Composed:
    return sql.SQL("({})").format(sql.SQL(", ").join(expressions))


def _refuse_divided(cursor: psycopg.Cursor[Any], attempt: Attempt) -> None:
    both = [f"{topic}[{part}]@{at} and {other}[{its}]@{there}" for topic, part, at, other, its, there in cursor]
    if both:
        raise KeyConflictError(
            f"{attempt.batch.label} has records of one key in two partitions. Nothing was published.",
            why=f"Their offsets do not say which is newer: {'; '.join(both)}.",
            advice="Set sink.version to timestamp.\nOr let the producer key the topic by sink.key, and keep its "
            "number of partitions.",
            batch_id=attempt.batch.batch_id,
            coordinates=tuple(both),
        )
