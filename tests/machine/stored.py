"""What the database holds at one moment, read directly from its tables and turned into plain values."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Any

import psycopg
from psycopg import sql

from batchledger.model.batch import Lane
from batchledger.model.offsets import OffsetRange
from tests.fakes.database import Tables
from tests.machine.model import Place, Row, spell_out

BALANCE_LINES = (
    "accepted",
    "duplicates",
    "quarantined",
    "tombstones",
    "filtered",
    "aborted",
    "markers",
    "compacted",
    "accepted_loss",
)

Span = tuple[int, int, int]
"""Partition, start, until."""


@dataclass(frozen=True)
class StoredBatch:
    """One batch; ``lines`` are its balances by range, in the order of ``BALANCE_LINES``, absent before the audit.

    ``held`` is what the ledger says is its own in target and quarantine.
    """

    lane: Lane
    state: str
    attempt: int
    run: str | None
    spans: tuple[Span, ...]
    lines: Mapping[Span, tuple[int, ...]]
    held: tuple[Span, ...]
    published_at: datetime | None = None

    @property
    def is_over(self) -> bool:
        """Whether it is published or discarded."""
        return self.state in ("published", "discarded")


@dataclass(frozen=True)
class Stored:
    """Everything that the invariants speak about; rows and lines of quarantine with the batch that they name."""

    origins: Mapping[int, int]
    next_offsets: dict[int, int]
    batches: Mapping[int, StoredBatch]
    rows: tuple[tuple[int, Row], ...]
    quarantine: tuple[tuple[int, Place], ...]

    @property
    def published(self) -> dict[int, StoredBatch]:
        """The published batches of both lanes by their ids, accepted losses among them."""
        return {number: batch for number, batch in self.batches.items() if batch.state == "published"}

    @property
    def published_live(self) -> dict[int, StoredBatch]:
        """The published batches that moved the position."""
        return {number: batch for number, batch in self.published.items() if batch.lane is Lane.LIVE}

    @property
    def open_replays(self) -> list[int]:
        """The replays that are neither published nor discarded."""
        return [number for number, each in self.batches.items() if each.lane is Lane.REPLAY and not each.is_over]

    @property
    def unconfirmed(self) -> set[int]:
        """The batches that a sink shows already, perhaps, and the ledger has not confirmed; at most one."""
        return {number for number, batch in self.batches.items() if batch.state == "committing"}

    @property
    def unsettled(self) -> set[Place]:
        """Where sink and ledger may differ for now: the offsets of what is not confirmed."""
        return {place for number in self.unconfirmed for place in spell_out(self.batches[number].spans)}

    @property
    def target(self) -> Counter[Row]:
        """How often a reader sees each row."""
        return Counter(row for _, row in self.rows)

    @property
    def contents(self) -> tuple[Counter[tuple[int, Row]], Counter[tuple[int, Place]]]:
        """What readers see: target and quarantine."""
        return Counter(self.rows), Counter(self.quarantine)

    @property
    def records(self) -> Counter[Row | Place]:
        """The same without saying which batch it is from."""
        return Counter([row for _, row in self.rows]) + Counter([place for _, place in self.quarantine])

    @cached_property
    def places(self) -> frozenset[Place]:
        """Where the records lie that readers see."""
        return frozenset({row.place for _, row in self.rows} | {place for _, place in self.quarantine})


NOTHING_STORED = Stored({}, {}, {}, (), ())


def read_memory(tables: Tables, table: str) -> Stored:
    """Read the one pipeline of an in-memory database."""
    target = tables.targets.get(table)
    return Stored(
        origins={key.partition: each.origin_offset for (_, key), each in tables.positions.items()},
        next_offsets={key.partition: each.next_offset for (_, key), each in tables.positions.items()},
        batches={
            number: StoredBatch(
                lane=held.batch.lane,
                state=held.batch.state.value,
                attempt=held.batch.attempt,
                run=held.batch.attempt_run,
                spans=tuple(map(_span, held.batch.ranges)),
                lines={
                    _span(each.range): tuple(getattr(each, line) for line in BALANCE_LINES) for each in held.balances
                },
                held=tuple(map(_span, held.held)),
                published_at=held.published_at,
            )
            for number, held in tables.batches.items()
        },
        rows=()
        if target is None
        else tuple(
            (row["_batch_id"], Row(row["_partition"], row["_offset"], row["message_id"])) for row in target.rows
        ),
        quarantine=tuple(
            (row["batch_id"], (each.partition, offset)) for (_, each, offset), row in tables.quarantine.items()
        ),
    )


def read_postgres(connection: psycopg.Connection[Any], pipeline: str, target: sql.Identifier) -> Stored:
    """Read one pipeline of a real ledger; the connection is in autocommit mode."""
    positions = connection.execute(
        "select partition, origin_offset, next_offset from batchledger.position where pipeline = %s", [pipeline]
    ).fetchall()
    batches = connection.execute(
        "select b.batch_id, b.lane, b.state, b.attempt, a.run from batchledger.batch b left join batchledger.attempt a "
        "on a.batch_id = b.batch_id and a.number = b.attempt where b.pipeline = %s order by b.batch_id",
        [pipeline],
    ).fetchall()
    ranges = connection.execute(
        sql.SQL(
            "select batch_id, partition, lower(offsets), upper(offsets), held, {} from batchledger.batch_range "
            "where pipeline = %s order by batch_id, partition, offsets"
        ).format(sql.SQL(", ").join(map(sql.Identifier, BALANCE_LINES))),
        [pipeline],
    ).fetchall()
    quarantine = connection.execute(
        'select batch_id, partition, "offset" from batchledger.quarantine where pipeline = %s', [pipeline]
    ).fetchall()
    spans = {
        (batch_id, (partition, start, until)): (held, lines)
        for batch_id, partition, start, until, held, *lines in ranges
    }
    return Stored(
        origins={partition: origin for partition, origin, _ in positions},
        next_offsets={partition: next_offset for partition, _, next_offset in positions},
        batches={
            number: StoredBatch(
                lane=Lane(lane),
                state=state,
                attempt=attempt,
                run=run,
                spans=tuple(span for batch_id, span in spans if batch_id == number),
                lines={
                    span: tuple(lines)
                    for (batch_id, span), (_, lines) in spans.items()
                    if batch_id == number and None not in lines
                },
                held=tuple(
                    (partition, each.lower, each.upper)
                    for (batch_id, (partition, *_)), (held, _) in spans.items()
                    for each in held
                    if batch_id == number
                ),
            )
            for number, lane, state, attempt, run in batches
        },
        rows=_read_rows(connection, target),
        quarantine=tuple((number, (partition, offset)) for number, partition, offset in quarantine),
    )


def _span(range_: OffsetRange) -> Span:
    return range_.partition.partition, range_.start, range_.until


def _read_rows(connection: psycopg.Connection[Any], target: sql.Identifier) -> tuple[tuple[int, Row], ...]:
    ((exists,),) = connection.execute("select to_regclass(%s) is not null", [target.as_string(connection)]).fetchall()
    if not exists:
        return ()
    query = sql.SQL("select _batch_id, _partition, _offset, message_id from {}").format(target)
    return tuple((batch_id, Row(*row)) for batch_id, *row in connection.execute(query))
