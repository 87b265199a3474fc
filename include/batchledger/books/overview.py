"""What a page over many pipelines, and the picture of one, ask of the ledger. Reads only.

It takes a few statements, whatever the number of pipelines. A function says so if its cost grows with the history.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from psycopg.rows import class_row

from batchledger.database.transactions import ranges_as_arrays, read_ranges, read_statement
from batchledger.ledger.rows import load_quarantine_contents
from batchledger.ledger.schema import snapshot, transaction
from batchledger.model.batch import BatchState, DecisionRecord, Position, Step, StepFailure, TopicIdentity
from batchledger.model.offsets import OffsetRange, TopicPartition, merge_ranges
from batchledger.model.records.quarantine import NOTHING
from batchledger.monitoring.health import Book, CurrentBatch, LeftPipeline

HOURS_SHOWN = 24
# Publications of a pipeline follow each other, but their clock may be set back, or become another server's.
_COMMITTED_WITHIN = timedelta(minutes=15)


@dataclass(frozen=True, slots=True)
class LastBatch:
    """The newest batch of a pipeline, whichever its lane.

    ``unknown_fields`` are the first fields of its records that the schema does not declare, if its audit complains.
    """

    pipeline: str
    batch_id: int
    state: str
    planned_at: datetime
    published_at: datetime | None
    unknown_fields: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Volume:
    """How many rows of a pipeline became visible: on this day (UTC), and in each of the last ``HOURS_SHOWN`` hours.

    The oldest hour comes first; the last one is not over. Rows that a replay has published again count again.
    """

    rows_today: int
    rows_by_hour: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Held:
    """What published batches hold of each partition in an epoch, read at a moment; the ranges are merged.

    ``next_offset_by_partition`` are the positions of that moment: offsets that they have passed and no batch holds are
    a gap. A position from another moment may have passed offsets that were published in between.
    """

    epoch: int
    newest: datetime | None
    ranges_by_partition: Mapping[TopicPartition, Sequence[OffsetRange]]
    next_offset_by_partition: Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class QuarantinedOffsets:
    """How many offsets of a frame are in quarantine, and which; if very many, only some, spread over the frame."""

    count: int
    ranges: Sequence[OffsetRange]


def load_books(dsn: str, pipelines: Sequence[str]) -> dict[str, Book]:
    """Return what the ledger has of each of the pipelines; an empty book for one that it does not know.

    ``is_at_work`` says here only that the newest attempt has not ended: the ledger does not know of a killed run.
    """
    with transaction(dsn, "look at all pipelines") as cursor:
        cursor.execute(read_statement(__package__, "list_pauses"), [list(pipelines)])
        pauses = {row[2]: DecisionRecord(*row) for row in cursor}
        cursor.execute(read_statement(__package__, "list_attempts_at_work"), [list(pipelines)])
        open_batches = {
            name: CurrentBatch(
                batch_id,
                f"batch {batch_id} of {name}",
                BatchState(state),
                None if step is None else StepFailure(Step(step), error),
                run,
                is_at_work,
            )
            for name, batch_id, state, run, is_at_work, step, error in cursor
        }
        cursor.execute(
            "select pipeline, topic, partition, origin_offset, next_offset, cluster_id, topic_id, held_back_at, "
            "held_back_since, rewound_to from batchledger.position where pipeline = any(%s)",
            [list(pipelines)],
        )
        positions: dict[str, list[Position]] = {name: [] for name in pipelines}
        for name, topic, partition, origin, next_offset, cluster, topic_id, *rest in cursor:
            where, identity = TopicPartition(topic, partition), TopicIdentity(cluster, topic_id)
            positions[name].append(Position(where, origin, next_offset, identity, *rest))
        quarantine = load_quarantine_contents(cursor, pipelines)
        cursor.execute(read_statement(__package__, "list_streams_given_up"), [list(pipelines)])
        given_up = {name: str(why) for name, why in cursor}
    return {
        name: Book(
            tuple(sorted(found, key=lambda each: each.partition)),
            open_batches.get(name),
            pauses.get(name),
            quarantine.get(name, NOTHING),
            given_up.get(name, ""),
        )
        for name, found in positions.items()
    }


def list_waiting_replays(dsn: str, pipelines: Sequence[str]) -> dict[str, list[int]]:
    """Return the blocked replays, which wait for a person, by pipeline; the oldest first."""
    found: dict[str, list[int]] = {}
    with transaction(dsn, "look for blocked replays") as cursor:
        cursor.execute(
            # The index of open replays holds the batches that are not final.
            "select pipeline, batch_id from batchledger.batch where pipeline = any(%s) and lane = 'replay' "
            "and state not in ('published', 'discarded') and state = 'blocked' and not is_dry_run order by batch_id",
            [list(pipelines)],
        )
        for name, batch_id in cursor:
            found.setdefault(name, []).append(batch_id)
    return found


def list_without_file(dsn: str, named: Collection[str]) -> list[LeftPipeline]:
    """Return the pipelines of the ledger that are not ``named`` and that no person has retired, by name.

    A role that is held to its pipelines finds these only.
    """
    with transaction(dsn, "look for pipelines without a file") as cursor:
        cursor.execute(read_statement(__package__, "list_without_file"), {"named": list(named)})
        found = cursor.fetchall()
        quarantine = load_quarantine_contents(cursor, [name for name, _ in found])
    return [LeftPipeline(name, tuple(batches), quarantine.get(name, NOTHING)) for name, batches in found]


def load_last_batches(dsn: str, pipelines: Sequence[str]) -> dict[str, LastBatch]:
    """Return the newest batch of each pipeline that has one."""
    with transaction(dsn, "look at the newest batches") as cursor:
        rows = cursor.connection.cursor(row_factory=class_row(LastBatch))
        rows.execute(read_statement(__package__, "list_last_batches"), [list(pipelines)])
        return {each.pipeline: each for each in rows}


def load_volumes(dsn: str, pipelines: Sequence[str], now: datetime) -> dict[str, Volume]:
    """Return how much each pipeline has published lately; its cost grows with the batches of a day."""
    today = now.replace(hour=0, minute=0, second=0, microsecond=0)
    first = now.replace(minute=0, second=0, microsecond=0) - timedelta(hours=HOURS_SHOWN - 1)
    by_hour = {name: [0] * HOURS_SHOWN for name in pipelines}
    rows_today = dict.fromkeys(pipelines, 0)
    with transaction(dsn, "add up what was published lately") as cursor:
        cursor.execute(
            "select pipeline, date_bin('1 hour', published_at, %(first)s), coalesce(sum(published_rows), 0)::bigint "
            "from batchledger.batch where pipeline = any(%(names)s) and state = 'published' "
            "and published_at >= %(first)s group by 1, 2",
            {"names": list(pipelines), "first": first},
        )
        for name, hour, count in cursor:
            index = min(int((hour - first) / timedelta(hours=1)), HOURS_SHOWN - 1)
            by_hour[name][index] += count
            rows_today[name] += count if hour >= today else 0
    return {name: Volume(rows_today[name], tuple(by_hour[name])) for name in pipelines}


def load_held(dsn: str, pipeline: str, before: Held | None) -> Held:
    """Return what published batches hold: what was read ``before``, and what is new.

    The first time this reads the whole history: 1.5 s for a million ranges. What is held only grows within an epoch,
    because a replay takes over what another batch held; only a rewind may empty the table.
    """
    with snapshot(dsn, f"read what is published of {pipeline}") as cursor:
        cursor.execute(
            "select epoch, (select max(published_at) from batchledger.batch where pipeline = name "
            "and state = 'published') from batchledger.pipeline where name = %s",
            [pipeline],
        )
        epoch, newest = next(iter(cursor), (0, None))
        known = before if before is not None and before.epoch == epoch else None
        since = known.newest - _COMMITTED_WITHIN if known and known.newest else None
        statement = "list_held" if since is None else "list_held_since"
        cursor.execute(read_statement(__package__, statement), {"pipeline": pipeline, "since": since})
        ranges = read_ranges(cursor)
        cursor.execute("select topic, partition, next_offset from batchledger.position where pipeline = %s", [pipeline])
        next_offsets = {TopicPartition(topic, partition): offset for topic, partition, offset in cursor}
    by_partition = dict(known.ranges_by_partition) if known else {}
    added: dict[TopicPartition, list[OffsetRange]] = {}
    for each in ranges:
        added.setdefault(each.partition, []).append(each)
    for partition, new in added.items():
        by_partition[partition] = merge_ranges([*by_partition.get(partition, ()), *new])
    return Held(epoch, newest, by_partition, next_offsets)


def list_given_up(dsn: str, pipeline: str) -> list[OffsetRange]:
    """Return what people have given up: accepted losses, skips, and what a rewind has removed for good."""
    with transaction(dsn, f"look what was given up of {pipeline}") as cursor:
        cursor.execute(read_statement(__package__, "list_given_up"), {"pipeline": pipeline})
        held = read_ranges(cursor)
        cursor.execute(
            "select jsonb_array_elements_text(after -> 'given_up') from batchledger.decision "
            "where pipeline = %s and kind = 'rewind' and after ? 'given_up'",
            [pipeline],
        )
        return [*held, *(OffsetRange.parse(text) for (text,) in cursor)]


def find_quarantined(
    dsn: str, pipeline: str, frames: Sequence[OffsetRange], columns: int
) -> dict[TopicPartition, QuarantinedOffsets]:
    """Return the quarantined offsets of each frame, by one statement; each frame has its own partition.

    Above ``columns`` records, the frame is divided into so many parts, and one record stands for all of its part.
    """
    if not frames:
        return {}
    found: dict[TopicPartition, tuple[int, list[OffsetRange]]] = {}
    with transaction(dsn, f"look into the quarantine of {pipeline}") as cursor:
        parameters = {"pipeline": pipeline, "columns": columns, **ranges_as_arrays(frames)}
        cursor.execute(read_statement(__package__, "find_quarantined_offsets"), parameters)
        for topic, number, count, start, until in cursor:
            partition = TopicPartition(topic, number)
            found.setdefault(partition, (count, []))[1].append(OffsetRange(partition, start, until))
    return {partition: QuarantinedOffsets(count, ranges) for partition, (count, ranges) in found.items()}


def list_holders(dsn: str, pipeline: str, frame: OffsetRange, limit: int) -> list[tuple[int, OffsetRange]] | None:
    """Return the batches that hold offsets of a frame, with these offsets, in order; None if over ``limit``."""
    with transaction(dsn, f"look who holds {frame}") as cursor:
        # Otherwise PostgreSQL would look at all of them before it takes the first.
        cursor.execute("set local enable_bitmapscan = off")
        parameters: dict[str, Any] = {
            "pipeline": pipeline,
            "topic": frame.partition.topic,
            "partition": frame.partition.partition,
            "start": frame.start,
            "until": frame.until,
            "limit": limit + 1,
        }
        cursor.execute(read_statement(__package__, "list_holders"), parameters)
        found = [(batch_id, OffsetRange(frame.partition, start, until)) for batch_id, start, until in cursor]
        return found if len(found) <= limit else None


def find_batch_of_run(dsn: str, pipeline: str, run: str) -> int | None:
    """Return the batch that a run has worked on last; None when it had none.

    ``RUN@DAG/`` means the work of a run in all places of a person's own DAG.
    """
    asked = {"pipeline": pipeline, "run": run, "has_places": run.endswith("/")}
    with transaction(dsn, f"look for the batch of run {run}") as cursor:
        cursor.execute(read_statement(__package__, "find_batch_of_run"), asked)
        return next((None if batch_id is None else int(batch_id) for (batch_id,) in cursor), None)


def list_batches_of_run(dsn: str, pipeline: str, run: str) -> list[int]:
    """Return the batches that a run has published, in their order."""
    with transaction(dsn, f"look for the batches of run {run}") as cursor:
        cursor.execute(
            "select batch_id from batchledger.batch join batchledger.attempt a using (batch_id) "
            "where a.run = %s and a.number = batch.attempt and pipeline = %s and state = 'published' order by 1",
            (run, pipeline),
        )
        return [int(batch_id) for (batch_id,) in cursor]


def list_published_since(dsn: str, pipeline: str, since: datetime, most: int = 10_000) -> dict[int, datetime]:
    """Return when the newest ``most`` batches with rows were published, at or after a moment; the oldest comes first.

    What a person has given up has no rows, and at_most_once moves the position before they are there.
    """
    with transaction(dsn, f"look for batches of {pipeline}") as cursor:
        cursor.execute(
            "select batch_id, published_at from batchledger.batch where pipeline = %s and state = 'published' "
            "and rows_published_at is not null and published_at >= %s "
            "order by published_at desc, batch_id desc limit %s",
            (pipeline, since, most),
        )
        return {int(batch_id): published_at for batch_id, published_at in reversed(cursor.fetchall())}
