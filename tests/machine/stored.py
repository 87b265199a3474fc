"""What the database holds at one moment, read directly from its tables and turned into plain values."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg import sql

from tests.fakes.database import Tables
from tests.machine.model import Row

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
    """One batch; ``lines`` are its balances by range, in the order of ``BALANCE_LINES``, absent before the audit."""

    state: str
    attempt: int
    run: str | None
    spans: tuple[Span, ...]
    lines: Mapping[Span, tuple[int, ...]]


@dataclass(frozen=True)
class Stored:
    """Everything that the invariants speak about."""

    origins: Mapping[int, int]
    next_offsets: dict[int, int]
    batches: Mapping[int, StoredBatch]
    rows: tuple[tuple[int, Row], ...]
    quarantine: tuple[tuple[int, int], ...]

    @property
    def published(self) -> dict[int, StoredBatch]:
        """The published batches by their ids, accepted losses among them."""
        return {number: batch for number, batch in self.batches.items() if batch.state == "published"}

    @property
    def target(self) -> Counter[Row]:
        """How often a reader sees each row."""
        return Counter(row for _, row in self.rows)

    @property
    def contents(self) -> tuple[Counter[Row], Counter[tuple[int, int]]]:
        """What readers see: target and quarantine."""
        return self.target, Counter(self.quarantine)


NOTHING_STORED = Stored({}, {}, {}, (), ())


def read_memory(tables: Tables, table: str) -> Stored:
    """Read the one pipeline of an in-memory database."""
    target = tables.targets.get(table)
    return Stored(
        origins={key.partition: each.origin_offset for (_, key), each in tables.positions.items()},
        next_offsets={key.partition: each.next_offset for (_, key), each in tables.positions.items()},
        batches={
            number: StoredBatch(
                state=held.batch.state.value,
                attempt=held.batch.attempt,
                run=held.batch.attempt_run,
                spans=tuple((each.partition.partition, each.start, each.until) for each in held.batch.ranges),
                lines={
                    (each.range.partition.partition, each.range.start, each.range.until): tuple(
                        getattr(each, line) for line in BALANCE_LINES
                    )
                    for each in held.balances
                },
            )
            for number, held in tables.batches.items()
        },
        rows=()
        if target is None
        else tuple(
            (row["_batch_id"], Row(row["_partition"], row["_offset"], row["message_id"])) for row in target.rows
        ),
        quarantine=tuple((partition.partition, offset) for _, partition, offset in tables.quarantine),
    )


def read_postgres(connection: psycopg.Connection[Any], pipeline: str, target: sql.Identifier) -> Stored:
    """Read one pipeline of a real ledger; the connection is in autocommit mode."""
    positions = connection.execute(
        "select partition, origin_offset, next_offset from batchledger.position where pipeline = %s", [pipeline]
    ).fetchall()
    batches = connection.execute(
        "select b.batch_id, b.state, b.attempt, a.run from batchledger.batch b left join batchledger.attempt a "
        "on a.batch_id = b.batch_id and a.number = b.attempt where b.pipeline = %s order by b.batch_id",
        [pipeline],
    ).fetchall()
    ranges = connection.execute(
        sql.SQL(
            "select batch_id, partition, lower(offsets), upper(offsets), {} from batchledger.batch_range "
            "where pipeline = %s order by batch_id, partition, offsets"
        ).format(sql.SQL(", ").join(map(sql.Identifier, BALANCE_LINES))),
        [pipeline],
    ).fetchall()
    quarantine = connection.execute(
        'select partition, "offset" from batchledger.quarantine where pipeline = %s', [pipeline]
    ).fetchall()
    spans = {(batch_id, (partition, start, until)): lines for batch_id, partition, start, until, *lines in ranges}
    return Stored(
        origins={partition: origin for partition, origin, _ in positions},
        next_offsets={partition: next_offset for partition, _, next_offset in positions},
        batches={
            number: StoredBatch(
                state=state,
                attempt=attempt,
                run=run,
                spans=tuple(span for batch_id, span in spans if batch_id == number),
                lines={
                    span: tuple(lines)
                    for (batch_id, span), lines in spans.items()
                    if batch_id == number and None not in lines
                },
            )
            for number, state, attempt, run in batches
        },
        rows=_read_rows(connection, target),
        quarantine=tuple(quarantine),
    )


def _read_rows(connection: psycopg.Connection[Any], target: sql.Identifier) -> tuple[tuple[int, Row], ...]:
    ((exists,),) = connection.execute("select to_regclass(%s) is not null", [target.as_string(connection)]).fetchall()
    if not exists:
        return ()
    query = sql.SQL("select _batch_id, _partition, _offset, message_id from {}").format(target)
    return tuple((batch_id, Row(*row)) for batch_id, *row in connection.execute(query))
