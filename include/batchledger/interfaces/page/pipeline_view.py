"""One pipeline, and one of its partitions, as their pages show them. Reads only."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from time import monotonic

from batchledger.books.history import list_decisions
from batchledger.books.overview import (
    Held,
    LastBatch,
    QuarantinedOffsets,
    find_quarantined,
    list_given_up,
    list_holders,
    load_books,
    load_last_batches,
)
from batchledger.config.pipeline_file import PipelineConfig
from batchledger.interfaces.batch_view import Paging, turn_to
from batchledger.interfaces.page.batch_list import BatchList, BatchQuery, load_batches
from batchledger.interfaces.page.lookout import Lookout, Source
from batchledger.interfaces.page.overview import for_page, note_runs
from batchledger.interfaces.page.partition_list import (
    PARTITIONS_ON_PAGE,
    PartitionLine,
    PartitionQuery,
    arrange_partitions,
)
from batchledger.interfaces.page.ribbon import COLUMNS, Piece, draw_ribbon, place
from batchledger.interfaces.page.watch import Sight
from batchledger.ledger.ledger import PostgresLedger
from batchledger.ledger.requests import list_requests
from batchledger.looking import ledger_dsn
from batchledger.model.batch import BatchState, DecisionRecord, PartitionHealth, PartitionLog, Position
from batchledger.model.findings import PipelineState
from batchledger.model.offsets import OffsetRange, TopicPartition
from batchledger.monitoring.health import Book, CurrentBatch, PipelineHealth, judge, look
from batchledger.planning.live import find_losses
from batchledger.proof.coverage import Accounted, Kind, Segment, choose_frame, count_by_kind, cover, find_missing

HOLDERS_SHOWN = 200
SEGMENTS_SHOWN = 200
DECISIONS_SHOWN = 10
_PATIENCE_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class Strip:
    """One partition: its ribbon, where things are on it, and the same in numbers.

    ``pieces`` are the ribbon, ``counts`` how many offsets of the frame are of each kind. ``log`` is None if Kafka
    does not answer or has no such partition; ``health`` then, too.
    """

    position: Position
    log: PartitionLog | None
    health: PartitionHealth | None
    frame: OffsetRange
    segments: tuple[Segment[Kind], ...]
    pieces: tuple[Piece, ...]
    counts: Mapping[Kind, int]

    @property
    def partition(self) -> TopicPartition:
        """Which one it is."""
        return self.position.partition

    @property
    def position_at(self) -> int | None:
        """The column of the position."""
        return place(self.frame, self.position.next_offset)

    @property
    def unread(self) -> int:
        """How many readable offsets wait."""
        return max(0, self.log.end - self.position.next_offset) if self.log else 0


@dataclass(frozen=True, slots=True)
class StateView:
    """How a pipeline stands; ``losses`` is what Kafka has removed before it was read, and no person has accepted."""

    health: PipelineHealth
    open_batch: CurrentBatch | None
    pause: DecisionRecord | None
    losses: Sequence[OffsetRange]


@dataclass(frozen=True, slots=True)
class Freshness:
    """How old a page is. ``is_reading``: the history is being read, so that the ribbons are not there yet.

    ``seen_at`` is when Kafka was looked at; ``history_error`` why the history could not be read, or read again.
    """

    now: datetime
    seen_at: datetime | None
    kafka_error: str | None
    history_error: str | None
    is_reading: bool


@dataclass(frozen=True, slots=True)
class PipelineView:
    """The page of a pipeline: one page of its partitions, and one of its batches.

    ``found`` is the number of partitions on all pages, ``partitions`` the number without a filter.
    ``requests`` is how many wait for a second person.
    """

    config: PipelineConfig
    state: StateView
    strips: Sequence[Strip]
    paging: Paging
    found: int
    partitions: int
    missing: Sequence[OffsetRange]
    batches: BatchList
    decisions: Sequence[DecisionRecord]
    requests: int
    last: LastBatch | None
    freshness: Freshness


@dataclass(frozen=True, slots=True)
class PartitionView:
    """A part of a partition, near enough to see batches; ``holders`` is None if there would be too many."""

    config: PipelineConfig
    whole: OffsetRange
    strip: Strip
    holders: Sequence[tuple[int, OffsetRange]] | None
    open_batch: int | None
    freshness: Freshness


def look_at_pipeline(
    lookout: Lookout, config: PipelineConfig, partitions: PartitionQuery, batches: BatchQuery
) -> PipelineView:
    """Return what there is to see of a pipeline: the partitions and the batches that are asked for.

    Raises ServiceUnavailableError when the ledger does not answer; Kafka may be silent.
    """
    seen = _look(lookout, config)
    positions = [each for each in seen.book.positions if each.partition.topic in config.source.topics]
    found = arrange_partitions([PartitionLine(each, *seen.measure(each)) for each in positions], partitions)
    paging = turn_to(partitions.page, len(found), PARTITIONS_ON_PAGE)
    shown = found[paging.shown]
    return PipelineView(
        config=config,
        state=_judge(config, seen.book, seen.kafka),
        strips=seen.draw({each: choose_frame(each, seen.log_of(each)) for each in map(seen.settle, shown)})
        if seen.held
        else (),
        paging=paging,
        found=len(found),
        partitions=len(positions),
        missing=[gap for each in map(seen.settle, positions) for gap in find_missing(each, seen.account(each))],
        batches=load_batches(seen.dsn, config.name, batches),
        decisions=list_decisions(seen.dsn, config.name, DECISIONS_SHOWN),
        requests=len(list_requests(seen.dsn, config.name)),
        last=load_last_batches(seen.dsn, [config.name]).get(config.name),
        freshness=seen.freshness,
    )


def look_at_state(lookout: Lookout, config: PipelineConfig) -> StateView:
    """Return how a pipeline stands, and nothing of its history. Raises ServiceUnavailableError as above."""
    sight = lookout.source(config.name).look(_PATIENCE_SECONDS)
    book = note_runs(load_books(ledger_dsn(config), [config.name]))[config.name]
    return _judge(config, book, sight)


def _judge(config: PipelineConfig, book: Book, sight: Sight[Source]) -> StateView:
    if sight.value is None:
        reason = sight.error or "Kafka is being asked; its answer follows in a moment."
        unknown = PipelineHealth(config.name, PipelineState.UNKNOWN, reason, None, book.quarantine)
        return StateView(unknown, book.open_batch, book.pause, ())
    source, now = sight.value, datetime.now(UTC)
    health = judge(config.rules, replace(book, positions=source.positions), source.log, source.seen, now)
    known = [each for each in source.positions if each.partition in source.log.log_by_partition]
    losses = find_losses(known, source.log)
    return StateView(for_page(health, book.open_batch), book.open_batch, book.pause, losses)


def look_at_partition(
    lookout: Lookout, config: PipelineConfig, partition: TopicPartition, start: int | None, until: int | None
) -> PartitionView | None:
    """Return a part of a partition, all of it if nothing else is asked for; None when it was never read.

    Raises ServiceUnavailableError as ``look_at_pipeline``.
    """
    seen = _look(lookout, config)
    found = next((each for each in seen.book.positions if each.partition == partition), None)
    if found is None:
        return None
    position = seen.settle(found) if seen.held else found
    usual = choose_frame(position, seen.log_of(position))
    # What lies before the log start was published once, and can be looked at, too.
    whole = OffsetRange(partition, min(usual.start, position.origin_offset), usual.until)
    first = usual.start if start is None else min(max(start, whole.start), whole.until)
    last = usual.until if until is None else min(max(until, first), whole.until)
    frame = OffsetRange(partition, first, last)
    (strip,) = seen.draw({position: frame})
    return PartitionView(
        config=config,
        whole=whole,
        strip=strip,
        holders=list_holders(seen.dsn, config.name, frame, HOLDERS_SHOWN),
        open_batch=seen.book.open_batch.batch_id if seen.book.open_batch else None,
        freshness=seen.freshness,
    )


@dataclass(frozen=True, slots=True)
class _Seen:
    """What was read for a page. ``open_ranges`` are the ranges of the open batch."""

    dsn: str
    pipeline: str
    book: Book
    kafka: Sight[Source]
    history: Sight[Held]
    given_up: Mapping[TopicPartition, Sequence[OffsetRange]]
    open_ranges: Mapping[TopicPartition, Sequence[OffsetRange]]

    @property
    def held(self) -> Held | None:
        """What published batches hold; None while it is read."""
        return self.history.value

    @property
    def freshness(self) -> Freshness:
        """How old the page is."""
        return Freshness(
            now=datetime.now(UTC),
            seen_at=self.kafka.found_at,
            kafka_error=self.kafka.error,
            history_error=self.history.error,
            is_reading=self.held is None,
        )

    def log_of(self, position: Position) -> PartitionLog | None:
        return self.kafka.value.log.log_by_partition.get(position.partition) if self.kafka.value else None

    def measure(self, position: Position) -> tuple[PartitionLog | None, PartitionHealth | None]:
        """Return what Kafka holds of a partition, and how its unread records stand."""
        log = self.log_of(position)
        known = self.kafka.value.seen.get(position.partition) if self.kafka.value else None
        return log, None if log is None else look(position, log, known)

    def account(self, position: Position, quarantined: Sequence[OffsetRange] = ()) -> Accounted:
        """Return what the ledger says of a partition."""
        held = self.held.ranges_by_partition if self.held else {}
        mine = self.open_ranges.get(position.partition, ())
        is_blocked = self.book.open_batch is not None and self.book.open_batch.state is BatchState.BLOCKED
        return Accounted(
            held=held.get(position.partition, ()),
            lost=self.given_up.get(position.partition, ()),
            quarantined=quarantined,
            in_flight=() if is_blocked else mine,
            blocked=mine if is_blocked else (),
        )

    def settle(self, position: Position) -> Position:
        """Return a position as it was when the history was read, which may be some seconds older.

        Otherwise what was published in between would look as if nothing held it: a gap.
        """
        known = self.held.next_offset_by_partition if self.held else {}
        passed = known.get(position.partition, position.origin_offset)
        return position if passed >= position.next_offset else replace(position, next_offset=passed)

    def draw(self, frame_by_position: Mapping[Position, OffsetRange]) -> list[Strip]:
        """Return the strips of partitions, each over its frame."""
        found = find_quarantined(self.dsn, self.pipeline, list(frame_by_position.values()), COLUMNS)
        none = QuarantinedOffsets(0, ())
        return [
            self._draw(position, frame, found.get(position.partition, none))
            for position, frame in frame_by_position.items()
        ]

    def _draw(self, position: Position, frame: OffsetRange, quarantined: QuarantinedOffsets) -> Strip:
        log, health = self.measure(position)
        segments = cover(frame, position, log, self.account(position, quarantined.ranges))
        counts = count_by_kind(segments, Kind)
        # If very many are in quarantine, only some have a segment of their own. The others count as published there.
        shown, published = counts.get(Kind.QUARANTINED, 0), counts.get(Kind.PUBLISHED, 0)
        if quarantined.count > COLUMNS and (hidden := min(quarantined.count - shown, published)):
            counts |= {Kind.QUARANTINED: shown + hidden, Kind.PUBLISHED: published - hidden}
        return Strip(
            position=position,
            log=log,
            health=health,
            frame=frame,
            segments=segments,
            pieces=draw_ribbon(frame, segments),
            counts=counts,
        )


def _look(lookout: Lookout, config: PipelineConfig) -> _Seen:
    dsn, name = ledger_dsn(config), config.name
    history, source = lookout.held(name), lookout.source(name)
    # Both are found at the same time, and waited for together.
    history.look(0)
    until = monotonic() + _PATIENCE_SECONDS
    sight = source.look(_PATIENCE_SECONDS)
    held = history.look(max(0.0, until - monotonic()))
    book = note_runs(load_books(dsn, [name]))[name]
    given_up = _by_partition(list_given_up(dsn, name))
    ranges = PostgresLedger(dsn).load_batch(book.open_batch.batch_id).ranges if book.open_batch else ()
    return _Seen(
        dsn=dsn,
        pipeline=name,
        book=book,
        kafka=sight,
        history=held,
        given_up=given_up,
        open_ranges=_by_partition(ranges),
    )


def _by_partition(ranges: Iterable[OffsetRange]) -> dict[TopicPartition, list[OffsetRange]]:
    found: dict[TopicPartition, list[OffsetRange]] = {}
    for each in ranges:
        found.setdefault(each.partition, []).append(each)
    return found
