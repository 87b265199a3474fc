"""A watched table in PostgreSQL. The server makes the words; a role that may read the columns is enough."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Any

import numpy as np
import psycopg
from psycopg import sql
from typing_extensions import override

from batchledger.database.transactions import ranges_as_arrays, read_sql
from batchledger.model.offsets import OffsetRange, single_offset
from batchledger.watching.counting import Words, split_words
from batchledger.watching.relation import Relation
from batchledger.watching.table import CountedTable, LocatedRows, ReadCost, RowCoordinates, require_bound

PLACES_SHOWN = 4
FEW_SPANS = 100
_INTEGERS, _TEXTS = frozenset({"int2", "int4", "int8"}), frozenset({"text", "varchar", "bpchar", "name"})
_DOCUMENTS = frozenset({"json", "jsonb"})
_HEADER_BYTES = 19
_ROW = np.dtype(
    [("fields", ">i2"), *((f"{part}{n}", kind) for n in range(5) for part, kind in (("l", ">i4"), ("v", ">i8")))]
)
_ROWS_AT_ONCE = 50_000
_HAS_PLACES = frozenset({"r", "m", "p"})


@dataclass(frozen=True)
class PostgresTable(CountedTable):
    """``topics`` are the ones that its rows are of, ``hashed`` the columns of a fingerprint."""

    relation: Relation
    coordinates: RowCoordinates
    topics: tuple[str, ...]
    max_rows: int | None = None
    hashed: tuple[str, ...] = ()

    @property
    @override
    def name(self) -> str:
        return self.relation.name

    @override
    def find_moment(self) -> datetime | None:
        return self.relation.find_moment()

    @override
    def estimate(self, spans: Sequence[OffsetRange] | None) -> ReadCost:
        text = self._fill("count_words", spans).as_string(None)
        select = text.removeprefix("copy (").removesuffix(") to stdout (format binary)")
        cost, has_whole = self.relation.explain(sql.SQL(select))
        if spans is not None and has_whole:
            cost = ReadCost(self.estimate(None).rows, cost.how)
        advice = "Create an index on the coordinates, let the watch begin later (since), or raise max_rows."
        return require_bound(self.name, cost, self.max_rows, advice)

    @override
    def count(self, spans: Sequence[OffsetRange] | None) -> Iterator[Words]:
        return self._copy(self._fill("count_words", spans), "count its offsets")

    @override
    def count_repeated(self, spans: Sequence[OffsetRange]) -> Iterator[Words]:
        return self._copy(self._fill("count_repeated_words", spans), "find offsets that are there twice")

    @override
    def locate(self, offsets: Sequence[OffsetRange]) -> Sequence[LocatedRows]:
        more = {"places": sql.Literal(PLACES_SHOWN), "topic": sql.Literal(self.topics[0])}
        with self.relation.session("find rows that are there twice") as cursor:
            cursor.execute(self._fill("locate_rows", offsets, **more))
            return [
                LocatedRows(single_offset(topic, partition, offset), rows, tuple(filter(None, places)))
                for topic, partition, offset, rows, places in cursor
            ]

    @override
    def fingerprint(self, ranges: Sequence[OffsetRange]) -> Sequence[int]:
        if not ranges:
            return []
        query = read_sql(__package__, "fingerprint_ranges").format(all=self._all_rows, **self._join(ranges))
        with self.relation.session("hash the rows") as cursor:
            return [found for (found,) in cursor.execute(query)]

    def _join(self, spans: Sequence[OffsetRange]) -> dict[str, sql.Composable]:
        same_topic = sql.SQL("" if self.coordinates.topic is None else "and t.topic = s.topic")
        return {**{name: sql.Literal(each) for name, each in ranges_as_arrays(spans).items()}, "same_topic": same_topic}

    def _fill(self, statement: str, spans: Sequence[OffsetRange] | None, **more: sql.Composable) -> sql.Composed:
        rows = self._all_rows if spans is None else self._select(spans)
        # Numbers of topics have one size, so that rows of a copy can be read as an array.
        number = sql.SQL("array_position({}::text[], r.topic)").format(sql.Literal(list(self.topics)))
        topic = sql.Literal(1) if self.coordinates.topic is None else number
        return read_sql(__package__, statement).format(**{"topic": topic, "rows": rows, **more})

    def _select(self, spans: Sequence[OffsetRange]) -> sql.Composed:
        """Return a query for the rows of the spans. PostgreSQL estimates its cost well if they are few."""
        has_topic = self.coordinates.topic is not None
        if len(spans) > FEW_SPANS:
            return read_sql(__package__, "rows_of_spans").format(all=self._all_rows, **self._join(spans))
        conditions = [
            read_sql(__package__, "span_as_condition").format(
                partition=sql.Literal(each.partition.partition),
                start=sql.Literal(each.start),
                until=sql.Literal(each.until),
                same_topic=sql.SQL("and t.topic = {}" if has_topic else "").format(sql.Literal(each.partition.topic)),
            )
            for each in spans
        ]
        return read_sql(__package__, "rows_of_few_spans").format(
            all=self._all_rows, conditions=sql.SQL(" or ").join(conditions)
        )

    @cached_property
    def _all_rows(self) -> sql.Composed:
        """Read which types the coordinates have; return a query for the coordinates of all rows of the topics."""
        with self.relation.session("look at its columns") as cursor:
            relation, kind, may_read_all = self.relation.describe(cursor)
            partition = self._integer(cursor, relation, "partition", self.coordinates.partition)
            record = self._integer(cursor, relation, "offset", self.coordinates.offset)
            topic: sql.Composable = sql.SQL("null::text")
            where: sql.Composable = sql.SQL("")
            if self.coordinates.topic is not None:
                path, type_name = self._walk(cursor, relation, "topic", self.coordinates.topic)
                if type_name not in _TEXTS:
                    raise self.relation.refuse(f"has a topic of type {type_name}", "Name a column of text.")
                topic = sql.SQL("({})::text").format(path)
                where = sql.SQL("where ({0})::text = any({1}::text[]) or ({0}) is null").format(
                    path, sql.Literal(list(self.topics))
                )
        # The place of a row needs the right to read all columns.
        place = sql.SQL("c.ctid::text" if may_read_all and kind in _HAS_PLACES else "null::text")
        hashed = sql.SQL(", ").join(sql.Identifier("c", each) for each in self.hashed)
        content = sql.SQL("row({})::text").format(hashed) if self.hashed else sql.SQL("null::text")
        return sql.SQL(
            "(select {} as topic, {} as partition, {} as record, {} as place, {} as content from {} c {})"
        ).format(topic, partition, record, place, content, self.relation.identifier, where)

    def _integer(self, cursor: psycopg.Cursor[Any], relation: int, what: str, path: str) -> sql.Composable:
        """Return an expression for a coordinate: a whole number, or null if what is there is none."""
        found, type_name = self._walk(cursor, relation, what, path)
        if type_name in _INTEGERS:
            # As it is: an index on it is of use.
            return found
        if type_name in _TEXTS:
            return sql.SQL("case when {0} ~ '^[0-9]{{1,18}}$' then ({0})::bigint end").format(found)
        if type_name == "numeric":
            return sql.SQL("case when {0} = trunc({0}) and {0} between 0 and 9e18 then ({0})::bigint end").format(found)
        advice = (
            "Numbers above 2⁵³ would not be exact."
            if type_name.startswith("float")
            else "Name a whole number, or a text."
        )
        raise self.relation.refuse(f"has {path} of type {type_name} for the {what}", advice)

    def _walk(self, cursor: psycopg.Cursor[Any], relation: int, what: str, path: str) -> tuple[sql.Composable, str]:
        """Return the expression of a path, and its type. A path leads into composite types and JSON."""
        first, *rest = re.split(r"[.:]", path)
        expression: sql.Composable = sql.Identifier("c", first)
        type_name, below = self._describe(cursor, relation, what, path, first)
        while rest and type_name not in _DOCUMENTS:
            part, *rest = rest
            if not below:
                raise self.relation.refuse(
                    f"has no {path} for the {what}: type {type_name} has no parts", "Correct the path."
                )
            expression = sql.SQL("({}).{}").format(expression, sql.Identifier(part))
            type_name, below = self._describe(cursor, below, what, path, part)
        if type_name in _DOCUMENTS:
            return sql.SQL("({} #>> {}::text[])").format(expression, sql.Literal(rest)), "text"
        return expression, type_name

    def _describe(self, cursor: psycopg.Cursor[Any], relation: int, what: str, path: str, name: str) -> tuple[str, int]:
        found = self.relation.find_type(cursor, relation, name)
        if found is None:
            hint = self.relation.explain_columns(cursor, relation, name)
            advice = f"Write in coordinates what its column is called; {hint}"
            raise self.relation.refuse(f"has no {path} for the {what}", advice)
        return found

    def _copy(self, statement: sql.Composed, action: str) -> Iterator[Words]:
        """Read the rows of a copy, which have one size, many at a time."""
        with self.relation.session(action) as cursor, cursor.copy(statement) as copy:
            parts: list[bytes] = []
            skipped = False
            for part in copy:
                parts.append(bytes(part))
                if len(parts) >= _ROWS_AT_ONCE:
                    yield from self._read(parts, skipped)
                    parts, skipped = [], True
            yield from self._read(parts, skipped)

    def _read(self, parts: list[bytes], is_begun: bool) -> Iterator[Words]:
        content = b"".join(parts)
        start = 0 if is_begun else _HEADER_BYTES
        rows = np.frombuffer(content, _ROW, (len(content) - start) // _ROW.itemsize, start)
        topics, *of_words = (rows[f"v{at}"].astype(np.int64) for at in range(5))
        return split_words(self.topics, topics - 1, *of_words)
