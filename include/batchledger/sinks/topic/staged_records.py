"""The staged records of an output topic: keys and values as bytes, ready to be sent, beside the staged rows.

Tasks make them once. They wait in ``batchledger_staging.b17_a2_arriving``, sealed ``b17_a2_records``: a row of the
table is a *piece*, the records of one source partition within a window of offsets that one task has written at once.
So PostgreSQL orders pieces, not records, and a piece travels and is unpacked as a whole. Pieces whose offsets overlap
are merged: a transform may have shuffled its rows. A window has at most ``OFFSETS_IN_PIECE`` offsets and, by the size
of the records, about ``BYTES_IN_WINDOW``: so much is merged at once. Which rows are accepted is judged by the rows;
the records of the others are left out.
"""

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
import psycopg
import pyarrow as pa
import pyarrow.compute as pc
from psycopg import sql
from typing_extensions import override

from batchledger.database.transactions import STAGING_SCHEMA, read_sql, read_statement
from batchledger.formats.encoding.blocks import RecordEncoder
from batchledger.model.batch import Attempt
from batchledger.model.errors import StagingError, StagingLostError
from batchledger.model.offsets import OffsetRange, TopicPartition, single_offset
from batchledger.model.refusals import stage_again
from batchledger.ports import StagingWriter
from batchledger.sinks.staging.tables import find_aside, rows_table, table_prefix
from batchledger.sinks.topic.records import OutputBlock

OFFSETS_IN_PIECE = 8192
PIECES_AT_ONCE = 8
HELD_BYTES = 16 * 1024 * 1024
"""A task holds so many bytes of records before it packs them: after a shuffle, few of a block are of one partition."""
MERGED_BYTES = 16 * 1024 * 1024
BYTES_IN_WINDOW = 16 * 1024 * 1024

_CONTENT = ("offset", "timestamp_ms", "key", "value")
_MERGED_SCHEMA = pa.schema(
    [("offset", pa.int64()), ("timestamp_ms", pa.int64()), ("key", pa.large_binary()), ("value", pa.large_binary())]
)
_PIECE_SCHEMA = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("first_offset", pa.int64()),
        ("last_offset", pa.int64()),
        ("records", pa.int32()),
        ("largest_bytes", pa.int32()),
        ("content", pa.binary()),
    ]
)


@dataclass(frozen=True)
class RecordStagingWriter(StagingWriter):
    """Writes rows, and the records that the encoder makes of them."""

    rows: StagingWriter
    pieces: StagingWriter
    encoder: RecordEncoder = field(repr=False)

    @contextmanager
    @override
    def open(self, task: int) -> Iterator[Callable[[pa.RecordBatch], None]]:
        with ExitStack() as stack:
            write_rows, write_pieces = (stack.enter_context(each.open(task)) for each in (self.rows, self.pieces))
            held: list[pa.RecordBatch] = []

            def flush() -> None:
                if held:
                    write_pieces(pack(pa.concat_batches(held)))
                held.clear()

            def write(batch: pa.RecordBatch) -> None:
                write_rows(batch)
                for records in self.encoder.encode(batch):
                    if held and sum(each.nbytes for each in (*held, records)) > HELD_BYTES:
                        flush()
                    held.append(records)

            yield write
            flush()


def pack(records: pa.RecordBatch) -> pa.RecordBatch:
    """Return the pieces of some records of the encoder, with the columns of ``_PIECE_SCHEMA``.

    Example: offsets 8190, 8191 and 8192 of one partition are two pieces, one from 8190 to 8191, one of 8192 alone.
    """
    placed = records.append_column("window", pc.divide(records["offset"], _choose_window(records)))
    order = pc.sort_indices(placed, [(name, "ascending") for name in ("topic", "partition", "offset")])
    if not np.array_equal(order, np.arange(len(order))):
        placed = placed.take(order)
    before, after = placed.slice(0, placed.num_rows - 1), placed.slice(1)
    is_next = [
        pc.not_equal(before[name], after[name]).to_numpy(zero_copy_only=False)
        for name in ("topic", "partition", "window")
    ]
    starts = [0, *(np.logical_or.reduce(is_next).nonzero()[0] + 1).tolist(), placed.num_rows]
    pieces = [placed.slice(start, until - start) for start, until in pairwise(starts)]
    return pa.RecordBatch.from_pylist([_describe(each) for each in pieces], schema=_PIECE_SCHEMA)


def _choose_window(records: pa.RecordBatch) -> int:
    """Return the offsets of a window: a power of two, so that windows of several sizes never overlap in part."""
    fitting: int = BYTES_IN_WINDOW * records.num_rows // max(1, records.nbytes)
    return min(OFFSETS_IN_PIECE, 1 << max(0, fitting.bit_length() - 1))


def _describe(piece: pa.RecordBatch) -> dict[str, Any]:
    with pa.BufferOutputStream() as stream:
        content = piece.select(_CONTENT)
        with pa.ipc.new_stream(stream, content.schema, options=pa.ipc.IpcWriteOptions(compression="lz4")) as writer:
            writer.write_batch(content)
        packed = stream.getvalue()
    return {
        **{name: piece[name][0].as_py() for name in ("topic", "partition")},
        "first_offset": piece["offset"][0].as_py(),
        "last_offset": piece["offset"][-1].as_py(),
        "records": piece.num_rows,
        "largest_bytes": pc.max(_sizes(piece)).as_py(),
        "content": packed.to_pybytes(),
    }


def _sizes(records: pa.RecordBatch) -> pa.Array:
    """Return the bytes of key and value of each record."""
    return pc.add(*(pc.fill_null(pc.binary_length(records[name]), 0) for name in ("key", "value")))


def require_records(cursor: psycopg.Cursor[Any], attempt: Attempt) -> None:
    """Raise StagingError unless as many records are sealed as rows."""
    records = sql.Identifier(STAGING_SCHEMA, f"{table_prefix(attempt)}_records")
    cursor.execute(read_sql(__package__, "find_missing").format(rows=rows_table(attempt), records=records))
    for rows, count in cursor:
        raise StagingError(
            f"{attempt.batch.label} attempt {attempt.number} has not staged a record for each row. Nothing is visible.",
            why=f"Tasks wrote {rows:,} rows, and {count:,} records.",
            advice="The next attempt writes to a staging of its own.",
            batch_id=attempt.batch.batch_id,
        )


def create_pieces(cursor: psycopg.Cursor[Any], attempt: Attempt, *, is_logged: bool) -> str:
    """Create the table that tasks write to, and return its name. If ``is_logged`` it outlives a crash."""
    name = f"{table_prefix(attempt)}_arriving"
    parts = {"kind": sql.SQL("table" if is_logged else "unlogged table"), "table": sql.Identifier(STAGING_SCHEMA, name)}
    cursor.execute(read_sql(__package__, "create_pieces").format(**parts))
    return name


@dataclass(frozen=True)
class StagedRecords:
    """The sealed records of an attempt, in the transaction of its publication."""

    connection: psycopg.Connection[Any]
    attempt: Attempt

    def choose(self, accepted: sql.Composable, count: int) -> None:
        """Let the transaction know which records are not to be sent: their rows are not among the ``accepted``.

        Raises StagingLostError when the others are not ``count``. If an older version has staged the batch, there is no
        table, which the publication takes for a lost staging, too.
        """
        with self.connection.cursor() as cursor:
            cursor.execute(read_statement(__package__, "create_left_out"))
            if self.count() > count:
                aside = find_aside(cursor, self.attempt)
                tables = [rows_table(self.attempt), *([aside] if aside else [])]
                places = sql.SQL(" union all ").join(
                    sql.SQL("select _topic, _partition, _offset from {}").format(each) for each in tables
                )
                cursor.execute(read_sql(__package__, "leave_out").format(staged=places, accepted=accepted))
        self._require(count, self.count())

    def count(self) -> int:
        """Return how many records are to be sent."""
        with self.connection.cursor() as cursor:
            cursor.execute(read_sql(__package__, "count_records").format(records=self._table))
            return int(cursor.fetchall()[0][0])

    def read(self) -> Generator[OutputBlock]:
        """Yield the records by topic, partition and offset; the database reads ahead while the caller sends.

        Raises StagingLostError at the end when they were not as many as ``count`` says.
        """
        left_out = self._find_left_out()
        wanted, found = self.count(), 0
        with self._select("read_pieces") as cursor, closing(_read_ahead(cursor)) as rows:
            for partition, contents in _join_overlapping(rows):
                for records in _unpack(contents):
                    block = _leave_out(OutputBlock(partition, records), left_out)
                    if block.records.num_rows:
                        found += block.records.num_rows
                        yield block
        self._require(wanted, found)

    def _require(self, rows: int, records: int) -> None:
        if records != rows:
            raise StagingLostError(
                f"{self.attempt.batch.label} lacks staged records of attempt {self.attempt.number}.",
                why=f"It has {rows:,} rows to publish, and {records:,} records.",
                advice=stage_again(self.attempt.batch),
                batch_id=self.attempt.batch.batch_id,
            )

    def find_largest(self) -> tuple[OffsetRange, int] | None:
        """Return where the largest record is from, and the bytes of its key and value; None without records."""
        left_out = self._find_left_out()
        found: tuple[OffsetRange, int] | None = None
        with self._select("read_largest_pieces") as cursor:
            for topic, partition, bound, content in cursor:
                if found is not None and bound <= found[1]:
                    break
                (records,) = _unpack([content])
                block = _leave_out(OutputBlock(TopicPartition(topic, partition), records), left_out)
                if block.records.num_rows:
                    sizes = _sizes(block.records)
                    largest = pc.max(sizes).as_py()
                    if found is None or largest > found[1]:
                        offset = block.records["offset"][pc.index(sizes, largest).as_py()].as_py()
                        found = single_offset(topic, partition, offset), largest
        return found

    def _find_left_out(self) -> Mapping[TopicPartition, np.ndarray]:
        with self.connection.cursor(binary=True) as cursor:
            cursor.execute("select topic, partition, offsets from batchledger_left_out")
            return {TopicPartition(topic, partition): np.array(offsets) for topic, partition, offsets in cursor}

    @contextmanager
    def _select(self, statement: str) -> Iterator[psycopg.ServerCursor[Any]]:
        with self.connection.cursor(name="batchledger_records", binary=True) as cursor:
            cursor.itersize = PIECES_AT_ONCE
            cursor.execute(read_sql(__package__, statement).format(records=self._table))
            yield cursor

    @property
    def _table(self) -> sql.Identifier:
        return sql.Identifier(STAGING_SCHEMA, f"{table_prefix(self.attempt)}_records")


def _join_overlapping(rows: Iterable[tuple[Any, ...]]) -> Iterator[tuple[TopicPartition, list[bytes]]]:
    """Yield the contents of pieces, which are in the order of their first offsets; if some overlap, these together."""
    found: tuple[TopicPartition, list[bytes]] | None = None
    until = 0
    for topic, number, first, last, content in rows:
        partition = TopicPartition(topic, number)
        if found is not None and found[0] == partition and first < until:
            found[1].append(content)
            until = max(until, last + 1)
            continue
        if found is not None:
            yield found
        found, until = (partition, [content]), last + 1
    if found is not None:
        yield found


def _unpack(contents: Sequence[bytes]) -> Iterator[pa.RecordBatch]:
    """Yield the records of pieces that overlap, in the order of their offsets, in batches of bounded size."""
    tables = [pa.ipc.open_stream(each).read_all() for each in contents]
    if len(tables) == 1:
        yield from tables[0].to_batches()
        return
    # Together they may have more bytes than a plain array of Arrow can hold.
    merged = pa.concat_tables([each.cast(_MERGED_SCHEMA) for each in tables]).combine_chunks().sort_by("offset")
    step = max(1, merged.num_rows * MERGED_BYTES // max(1, merged.nbytes))
    for start in range(0, merged.num_rows, step):
        yield from merged.slice(start, step).combine_chunks().to_batches()


def _leave_out(block: OutputBlock, left_out: Mapping[TopicPartition, np.ndarray]) -> OutputBlock:
    """Return the block without the offsets that are left out of its partition."""
    if block.source not in left_out:
        return block
    offsets, listed = block.records["offset"].to_numpy(), left_out[block.source]
    # Both are in order, so only what lies between the first and the last offset matters.
    near = listed[np.searchsorted(listed, offsets[0]) : np.searchsorted(listed, offsets[-1], side="right")]
    is_left = np.isin(offsets, near, assume_unique=True)
    return OutputBlock(block.source, block.records.filter(pa.array(~is_left)))


def _read_ahead(cursor: psycopg.ServerCursor[Any]) -> Generator[tuple[Any, ...]]:
    """Yield the rows of a query; the database makes the next ones while the caller sends these."""
    with ThreadPoolExecutor(1) as thread:
        coming = thread.submit(cursor.fetchmany, PIECES_AT_ONCE)
        while rows := coming.result():
            coming = thread.submit(cursor.fetchmany, PIECES_AT_ONCE)
            yield from rows
