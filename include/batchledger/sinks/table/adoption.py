"""A table that others have filled becomes a pipeline's target: its rows get the columns that say where each is from.

Columns that exist are renamed, and new ones have a default for the rows that are there: nothing is rewritten. The batch
id is required from then on, so that the database refuses the former writer.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg import sql
from typing_extensions import override

from batchledger.database.transactions import read_sql
from batchledger.model.claims import TargetClaim
from batchledger.model.errors import DecisionRefusedError
from batchledger.model.records.columns import BATCH_COLUMN
from batchledger.sinks.kind import RowAdoption
from batchledger.sinks.table.target import TargetTable

LOCK_WAITS = "20s"
_TYPES: Mapping[str, tuple[str, ...]] = {
    "_topic": ("text", "character varying"),
    "_partition": ("integer", "bigint", "smallint"),
    "_offset": ("bigint", "integer"),
}


@dataclass(frozen=True)
class TableAdoption(RowAdoption):
    """``places`` says which columns have the coordinates, by our own name; ``topic`` is the one of a table without."""

    target: TargetTable
    places: Mapping[str, str]
    topic: str

    @override
    def explain(self, cursor: psycopg.Cursor[Any]) -> tuple[Sequence[str], Sequence[str]]:
        self._require_columns(cursor)
        changes, back = self._list_changes(cursor, sql.SQL("BATCH")), self._list_ways_back(cursor)
        return [each.as_string(cursor) for each in changes], [each.as_string(cursor) for each in back]

    def _require_columns(self, cursor: psycopg.Cursor[Any]) -> None:
        known = self.target.read_columns(cursor)
        for own, name in self.places.items():
            if known.get(name) not in _TYPES[own]:
                found = f"is {known[name]}" if name in known else "is no column"
                needed = f"The pipeline needs {own} of type {_TYPES[own][0]}"
                raise self._refuse(f"{name} {found}", f"{needed}: add it, fill it, and name it in the watch.")
            if own != name and own in known:
                raise self._refuse(f"it has {own} beside {name}", f"Drop {own}, or name it in the watch.")

    @override
    def lock(self, cursor: psycopg.Cursor[Any]) -> None:
        """It waits a while for writers that are at work; other ones wait behind it."""
        try:
            cursor.execute("select set_config('lock_timeout', %s, true)", [LOCK_WAITS])
            cursor.execute(sql.SQL("lock table {} in share row exclusive mode").format(self.target.identifier))
        except psycopg.errors.LockNotAvailable as error:
            raise self._refuse("another session writes to it", "Stop the other writer.") from error

    @override
    def list_rows(self, cursor: psycopg.Cursor[Any]) -> Sequence[tuple[str, int, int, int]]:
        topic = sql.Identifier(self.places["_topic"]) if "_topic" in self.places else sql.Literal(self.topic)
        parts = {own[1:]: sql.Identifier(self.places[own]) for own in ("_partition", "_offset")}
        cursor.execute(
            read_sql(__package__, "list_adopted_rows").format(table=self.target.identifier, topic=topic, **parts)
        )
        return cursor.fetchall()

    @override
    def claim(self, cursor: psycopg.Cursor[Any]) -> TargetClaim:
        return self.target.claim(cursor)

    @override
    def take(self, cursor: psycopg.Cursor[Any], batch_id: int) -> None:
        try:
            for each in list(self._list_changes(cursor, sql.Literal(batch_id))):
                cursor.execute(each)
        except psycopg.errors.InsufficientPrivilege as error:
            raise self._refuse(
                "the login does not own it",
                "Let the owner do what a dry run names, with new columns that have no default and may be null.",
            ) from error

    def _list_changes(self, cursor: psycopg.Cursor[Any], batch: sql.Composable) -> Iterator[sql.Composed]:
        alter, known = sql.SQL("alter table {} ").format(self.target.identifier), self.target.read_columns(cursor)
        for own, name in self.places.items():
            if own != name:
                yield alter + sql.SQL("rename column {} to {}").format(sql.Identifier(name), sql.Identifier(own))
        filled = {BATCH_COLUMN: batch} | ({} if "_topic" in self.places else {"_topic": sql.Literal(self.topic)})
        types = {"_topic": "text", "_timestamp": "timestamp with time zone", BATCH_COLUMN: "bigint not null"}
        added = [each for each in types if each not in {*known, *self.places}]
        if added:
            yield alter + sql.SQL(", ").join(self._add(each, types[each], filled.get(each)) for each in added)
        defaults = [each for each in added if each in filled]
        if defaults:
            drop = "alter column {} drop default"
            yield alter + sql.SQL(", ").join(sql.SQL(drop).format(sql.Identifier(each)) for each in defaults)
        there = [each for each in filled if each not in added]
        if there:
            pairs = [sql.SQL("{} = {}").format(sql.Identifier(each), filled[each]) for each in there]
            yield sql.SQL("update {} set {}").format(self.target.identifier, sql.SQL(", ").join(pairs))

    def _list_ways_back(self, cursor: psycopg.Cursor[Any]) -> Iterator[sql.Composed]:
        alter, known = sql.SQL("alter table {} ").format(self.target.identifier), self.target.read_columns(cursor)
        added = [each for each in ("_topic", "_timestamp", BATCH_COLUMN) if each not in {*known, *self.places}]
        if added:
            yield alter + sql.SQL(", ").join(sql.SQL("drop column {}").format(sql.Identifier(each)) for each in added)
        for own, name in self.places.items():
            if own != name:
                yield alter + sql.SQL("rename column {} to {}").format(sql.Identifier(own), sql.Identifier(name))

    @staticmethod
    def _add(name: str, type_: str, default: sql.Composable | None) -> sql.Composable:
        added = sql.SQL("add column {} ").format(sql.Identifier(name)) + sql.SQL(type_)
        return added if default is None else added + sql.SQL(" default {}").format(default)

    def _refuse(self, why: str, advice: str) -> DecisionRefusedError:
        return DecisionRefusedError(
            f"Table {self.target.name} cannot be taken over. Nothing was changed.",
            why=f"{why}.",
            advice=advice,
            subject=self.target.name,
        )
