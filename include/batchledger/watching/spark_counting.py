"""A watched Iceberg table whose offsets Spark counts, also if rows are deleted by equality. It brings the same words.

A word of 64 offsets takes 36 bytes on its way through the driver of Spark, whose heap bounds what a look can count.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass

import numpy as np
from pyiceberg.table import Table
from pyiceberg.types import DecimalType, StringType
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from typing_extensions import override

from batchledger.model.errors import ServiceUnavailableError
from batchledger.model.offsets import OffsetRange, single_offset
from batchledger.watching.counting import Words, split_words
from batchledger.watching.iceberg import LakeTable, RowPlace, count_total, describe_places
from batchledger.watching.iceberg_files import LARGEST, CoordinateColumn, CoordinateColumns
from batchledger.watching.table import CountedTable, LocatedRows, ReadCost

_RECORD = ("topic", "partition", "record")


@dataclass(frozen=True)
class SparkTable(CountedTable):
    """``lake`` is the table; ``open_session`` lends a session of Spark Connect."""

    lake: LakeTable
    open_session: Callable[[], AbstractContextManager[SparkSession]]

    @property
    @override
    def name(self) -> str:
        return self.lake.name

    @override
    def estimate(self, spans: Sequence[OffsetRange] | None) -> ReadCost:
        with self.lake.open("look at its size") as (table, _):
            how = f"Spark reads at most {count_total(table, 'data-files'):,} files"
            return self.lake.require_bound(ReadCost(count_total(table, "records"), how))

    @override
    def count(self, spans: Sequence[OffsetRange] | None) -> Iterator[Words]:
        with self._select("count its offsets", spans) as (_, rows):
            yield from self._fetch(rows)

    @override
    def count_repeated(self, spans: Sequence[OffsetRange]) -> Iterator[Words]:
        with self._select("find offsets that are there twice", spans) as (_, rows):
            yield from self._fetch(_repeated(rows))

    @override
    def locate(self, offsets: Sequence[OffsetRange]) -> Sequence[LocatedRows]:
        places: dict[OffsetRange, list[RowPlace]] = {}
        with self._select("find rows that are there twice", offsets) as (table, rows):
            for topic, *record, found in _repeated(rows).orderBy(*_RECORD).collect():
                at = sorted((path, row) for path, row in found)
                here = [RowPlace(path, row, at[:number].count((path, row))) for number, (path, row) in enumerate(at)]
                places[single_offset(self.lake.topics[topic], *record)] = here
            return describe_places(table, places)

    def _fetch(self, rows: DataFrame) -> Iterator[Words]:
        """Yield the words of rows. Their topics are numbers; -1 is none."""
        word, bit = f.shiftright("record", 6), f.expr("shiftleft(1L, cast(record & 63 as int))")
        words = rows.groupBy("topic", "partition", word.alias("word")).agg(f.bit_or(bit), f.count("*"))
        for batch in words.toArrow().to_batches():
            columns = (each.to_numpy(zero_copy_only=False).astype(np.int64) for each in batch.columns)
            yield from split_words(self.lake.topics, *columns)

    @contextmanager
    def _select(self, doing: str, spans: Sequence[OffsetRange] | None) -> Iterator[tuple[Table, DataFrame]]:
        """Yield one state of the table, and its rows of the topics and spans; a coordinate that is missing is -1."""
        with self.lake.open(doing) as (table, columns), self.open_session() as session:
            try:
                for name, value in self.lake.spark_settings.items():
                    session.conf.set(name, value)
                yield table, session.sql(self._write_query(table, columns, spans))
            except PySparkException as error:
                raise ServiceUnavailableError(
                    f"Spark could not {doing}: table {self.name}. Nothing was proved.",
                    why=f"{str(error).strip().partition(chr(10))[0]}.",
                    advice="Look again when the server answers. It needs iceberg-spark-runtime on its class path, and "
                    "more memory for its driver if that was too small.",
                    subject=self.name,
                ) from error

    def _write_query(self, table: Table, columns: CoordinateColumns, spans: Sequence[OffsetRange] | None) -> str:
        topics, topic, where = self.lake.topics, "0", ["true"]
        if columns.topic is not None:
            listed, name = ", ".join(f"'{each}'" for each in topics), _quote(*columns.topic.path)
            topic = f"coalesce(array_position(array({listed}), {name}) - 1, -1)"
            where = [f"({name} in ({listed}) or {name} is null)"]
        if spans is not None:
            where.append(f"({' or '.join(_list_conditions(columns, spans))})")
        snapshot = table.current_snapshot()
        state = f" version as of {snapshot.snapshot_id}" if snapshot else ""
        source = _quote(self.lake.catalog.name, *self.lake.table.split("."))
        numbers = ", ".join(f"coalesce({_write_number(each)}, -1)" for each in (columns.partition, columns.offset))
        # Names of topics have no quotes; other names are quoted.
        rows = f"select int({topic}), {numbers}, _file, _pos from {source}{state} where {' and '.join(where)}"  # noqa: S608
        return f"select * from ({rows}) as rows ({', '.join(_RECORD)}, _file, _pos)"  # noqa: S608


def _repeated(rows: DataFrame) -> DataFrame:
    """Return the offsets that more than one row has, each with the places of these rows."""
    places = f.collect_list(f.struct("_file", "_pos")).alias("places")
    complete = rows.where("topic >= 0 and partition >= 0 and record >= 0")
    return complete.groupBy(*_RECORD).agg(places).where("size(places) > 1")


def _list_conditions(columns: CoordinateColumns, spans: Sequence[OffsetRange]) -> Iterator[str]:
    """Yield which rows are asked for: of these spans, and without coordinates. Integers are compared as they lie."""
    topic = _quote(*columns.topic.path) if columns.topic else ""
    partition, offset = (
        _quote(*each.path) if each.is_integer else f"({_write_number(each)})"
        for each in (columns.partition, columns.offset)
    )
    yield f"{partition} is null or {offset} is null or {partition} < 0 or {offset} < 0"
    if topic:
        yield f"{topic} is null"
    for each in spans:
        same_topic = f"{topic} = '{each.partition.topic}' and " if topic else ""
        within = f"{offset} >= {each.start} and {offset} < {each.until}"
        yield f"{same_topic}{partition} = {each.partition.partition} and {within}"


def _write_number(column: CoordinateColumn) -> str:
    """Return a coordinate as a number; null if it is none."""
    name = _quote(*column.path)
    match column.type:
        case StringType():
            return rf"bigint(case when {name} rlike '^[0-9]{{1,18}}\\z' then {name} end)"
        case DecimalType():
            return f"bigint(case when {name} between 0 and {LARGEST} then {name} end)"
        case _:
            return f"bigint({name})"


def _quote(*path: str) -> str:
    return ".".join(f"`{each.replace('`', '``')}`" for each in path)
