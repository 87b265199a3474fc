"""One look at a table that others wrote: the only place that knows the order of its steps.

What earlier looks have proved, the log, the table, the log again where rows are missing, a judgement; it is stored in
one transaction. A look that dies has stored nothing, and the next one begins where it began.
"""

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from itertools import groupby
from math import ceil

from batchledger.ledger.watches import Known, WatchStore
from batchledger.model.balance import HoleEvidence, HolePolicy
from batchledger.model.batch import LogState
from batchledger.model.errors import ConfigurationError, TopicAwaitedError
from batchledger.model.offsets import (
    OffsetRange,
    TopicPartition,
    count_covered,
    count_offsets,
    find_gaps,
    merge_ranges,
)
from batchledger.ports import SourceLog
from batchledger.proof.parts import Fingerprint, Part, split_parts
from batchledger.proof.watching import (
    LACKING,
    Discrepancy,
    Found,
    Frame,
    Judgement,
    PartitionStanding,
    TableCount,
    TableLook,
    WatchedPartition,
    find_holes,
    judge_look,
    lay_frame,
    name_outcome,
    note_losses,
    tell,
)
from batchledger.watching.by_key import KeyedTable
from batchledger.watching.counting import OffsetCounter
from batchledger.watching.fingerprints import compare
from batchledger.watching.table import ENDLESS, WatchedTable

NEWEST_PARTS = 100
PLACES_NAMED = 5
LAG_ALLOWED = timedelta(minutes=1)
_NEAR_OFFSETS = 100_000


@dataclass(frozen=True)
class WatchRules:
    """What the steps need of a watch's file.

    ``since`` is where the watch begins: at the start of the log, at a moment, or so long ago. ``recheck`` is the share
    of what is proved that each look proves again. ``fingerprint``: rows are hashed when they are proved.
    """

    name: str
    subject: str
    topics: tuple[str, ...]
    holes: HolePolicy
    lateness: timedelta
    since: datetime | timedelta | None = None
    recheck: float = 0.01
    fingerprint: bool = False


@dataclass(frozen=True)
class TableWatch:
    """Everything that a look works with. ``tell`` is given sentences about what goes on."""

    rules: WatchRules
    source: SourceLog
    table: WatchedTable | KeyedTable
    store: WatchStore
    tell: Callable[[str], None] = field(default=lambda _: None)


def look(
    watch: TableWatch, now: datetime, *, everything: bool = False, chance: random.Random | None = None
) -> TableLook:
    """Look at the table once, store what is proved, and say what is not.

    With ``everything`` all that is proved is proved again. Raises what the source, the table and the store raise.
    """
    replayed = watch.table.find_moment()
    as_of = min(now, replayed or now) - watch.rules.lateness
    before = watch.store.load(watch.rules.name, watch.rules.subject, as_of)
    log = watch.source.read_log(watch.rules.topics)
    _require_topics(watch.rules, log)
    recreated = _find_recreated(before, log)
    known = _find_starts(watch, before, log, now)
    proved = [part for each in known.values() for part in each.proved]
    # By key, each part that is proved again is read from Kafka: a share is dear enough.
    newest = 0 if isinstance(watch.table, KeyedTable) else NEWEST_PARTS
    chance = chance or random.Random()  # noqa: S311
    again = proved if everything else choose_again(proved, watch.rules.recheck, chance, newest)
    again = merge_ranges([*again, *before.find_changed(proved)])
    untils = _find_untils(watch, before, log, as_of)
    old = {partition: list(parts) for partition, parts in groupby(again, key=lambda each: each.partition)}
    ends = {each: log.log_by_partition[each].end for each in known}
    frames = [lay_frame(held, untils[each], ends[each], old.get(each, ())) for each, held in known.items()]
    if isinstance(watch.table, KeyedTable):
        frames, counted = watch.table.count_records(frames, log, lambda: watch.source.read_log(watch.rules.topics))
    else:
        is_whole = everything or (before.revision is None and watch.rules.since is None)
        counted = _count(watch, frames, log, is_whole=is_whole)
        if not is_whole:
            stray, foreign = max(counted.stray, before.stray), max(counted.foreign, before.foreign)
            counted = replace(counted, stray=stray, foreign=foreign)
        if recreated:
            # Rows of a topic that is gone belong to no partition that is there.
            counted = replace(counted, foreign=0)
    partitions = list(known.values())
    judgement = judge_look(
        frames, partitions, counted, _look_into(watch, frames, partitions, counted), watch.rules.holes
    )
    prints: Mapping[Part, Fingerprint] = {}
    changed: list[Found] = []
    if watch.rules.fingerprint and not isinstance(watch.table, KeyedTable):
        held = [part for each in partitions for part in each.held]
        prints, changed = compare(watch.table, before.fingerprints, held, judgement)
    changed += _find_behind(watch, frames, now, replayed)
    judgement = replace(judgement, found=(*judgement.found, *changed, *recreated))
    outcome, places = name_outcome(judgement.found), tuple(_name_places(watch, judgement))
    said = TableLook(watch.rules.name, now, outcome, (), judgement.found, judgement.holes, notes=places)
    said = _tell(said, frames, partitions, counted, judgement)
    watch.store.save(said, before, partitions, judgement, prints, since=str(watch.rules.since))
    return said


def _name_places(watch: TableWatch, judgement: Judgement) -> list[str]:
    """Say of the first doubled offsets where their rows are."""
    twice = judgement.list_ranges(Discrepancy.TWICE)
    if not twice or isinstance(watch.table, KeyedTable):
        return []
    found = watch.table.find_repeated(twice[:PLACES_NAMED], PLACES_NAMED)
    return [f"{each.offsets}: {each.rows} rows, at {', '.join(each.places)}" for each in found if each.places]


def find_known(watch: TableWatch, now: datetime) -> tuple[LogState, list[WatchedPartition], list[Found]]:
    """Return the log, what is known of each partition, and the topics that were created again since."""
    before = watch.store.load(watch.rules.name, watch.rules.subject, now)
    log = watch.source.read_log(watch.rules.topics)
    _require_topics(watch.rules, log)
    return log, list(_find_starts(watch, before, log, now).values()), _find_recreated(before, log)


def _require_topics(rules: WatchRules, log: LogState) -> None:
    for topic in rules.topics:
        if topic not in log.identity_by_topic:
            raise TopicAwaitedError(
                f"Topic {topic} is not there. Nothing was looked at.",
                advice="Correct source.topics, or create the topic.",
                subject=topic,
            )


def _find_recreated(before: Known, log: LogState) -> list[Found]:
    """Return the topics that were created again: what was proved of them is about other records."""
    stale = [each for each in before.partitions.values() if each.topic_id != _identify(log, each.partition)]
    ranges = merge_ranges(part for each in stale for part in each.held)
    return [Found(Discrepancy.RECREATED, count_offsets(ranges), tuple(ranges))] if stale else []


def _identify(log: LogState, partition: TopicPartition) -> str:
    identity = log.identity_by_topic.get(partition.topic)
    return "" if identity is None else f"{identity.cluster_id}/{identity.topic_id}"


def _find_starts(
    watch: TableWatch, before: Known, log: LogState, now: datetime
) -> dict[TopicPartition, WatchedPartition]:
    """Return what is known of each partition of the topics that are the same, with where its frame begins."""
    same = [
        each
        for each in sorted(log.log_by_partition)
        if each not in before.partitions or before.partitions[each].topic_id == _identify(log, each)
    ]
    since, is_same = watch.rules.since, before.since == str(watch.rules.since)
    first = watch.source.find_offsets(same, now - since if isinstance(since, timedelta) else since) if since else {}
    known = {}
    for each in same:
        stored, held = before.partitions.get(each), log.log_by_partition[each]
        start = held.log_start if since is None else max(held.log_start, first.get(each, held.end))
        if stored is not None and is_same:
            # A window moves on with the records that are younger, and stands still without any.
            start = max(stored.start, first.get(each, 0)) if isinstance(since, timedelta) else stored.start
        known[each] = replace(stored, start=start) if stored else WatchedPartition(each, _identify(log, each), start)
    return known


def _find_untils(watch: TableWatch, before: Known, log: LogState, as_of: datetime) -> dict[TopicPartition, int]:
    """Return up to where records are old enough to have a row: from before ``as_of``. Later ones may be on their way.

    The log's end of a look before that moment is old enough, too: a timestamp of the future holds nothing up.
    """
    partitions = sorted(log.log_by_partition)
    young = watch.source.find_offsets(partitions, as_of)
    ends = {each: log.log_by_partition[each].end for each in partitions}
    return {each: min(end, max(young.get(each, end), before.seen_ends.get(each, 0))) for each, end in ends.items()}


def _find_behind(watch: TableWatch, frames: Sequence[Frame], now: datetime, replayed: datetime | None) -> list[Found]:
    """Return the records that are old enough, and for which a replica has stood still for too long."""
    if replayed is None or now - replayed <= max(watch.rules.lateness, LAG_ALLOWED):
        return []
    young = watch.source.find_offsets([each.partition for each in frames], now - watch.rules.lateness)
    waiting = [
        OffsetRange(each.partition, each.until, max(each.until, min(each.end, young.get(each.partition, each.end))))
        for each in frames
    ]
    behind = merge_ranges(waiting)
    return [tell(Discrepancy.BEHIND, behind)] if behind else []


def choose_again(
    proved: Sequence[OffsetRange], share: float, chance: random.Random, newest_parts: int = NEWEST_PARTS
) -> list[OffsetRange]:
    """Return a share of what is proved, in whole parts: by chance, and the newest one of each partition, or of some."""
    pieces = list(split_parts(proved))
    parts = sorted({part for part, _ in pieces})
    newest = dict(parts)
    chosen = set(chance.sample(parts, min(len(parts), ceil(len(parts) * share)))) if share else set()
    if share:
        chosen.update(chance.sample(sorted(newest.items()), min(len(newest), newest_parts)))
    return merge_ranges(each for part, each in pieces if part in chosen)


def require_coordinates(watch: TableWatch) -> WatchedTable:
    """Return the table of a watch. Raises ConfigurationError if its rows do not say which records they are of."""
    if isinstance(watch.table, KeyedTable):
        raise ConfigurationError(
            f"Rows of {watch.table.name} are known by key, not by offset. Nothing was changed.",
            advice="Write coordinates instead of key, if the table has them.",
            subject=watch.table.name,
        )
    return watch.table


def _count(watch: TableWatch, frames: Sequence[Frame], log: LogState, *, is_whole: bool) -> TableCount:
    """Read the table, then ask Kafka where its logs end now: rows may have come meanwhile."""
    table = require_coordinates(watch)
    spans = choose_spans(frames)
    asked = None if is_whole else spans
    high = {each: held.high_watermark for each, held in log.log_by_partition.items()}
    if asked == []:
        return TableCount(())
    cost = table.estimate(asked)
    watch.tell(f"{watch.rules.name}: reads about {cost.rows:,} rows of {table.name}: {cost.how}")
    bounded = [
        OffsetRange(each.partition, each.start, max(each.start, min(each.until, high[each.partition])))
        for each in spans
    ]
    return count_within(watch, bounded, asked)


def count_within(watch: TableWatch, room: Sequence[OffsetRange], asked: Sequence[OffsetRange] | None) -> TableCount:
    """Count the rows of the asked spans, or all if it is None; ``room`` has the ranges that are counted."""
    table = require_coordinates(watch)
    counter = OffsetCounter(room)
    for words in table.count(asked):
        counter.add(words)
    repeated: list[OffsetRange] = []
    doubtful = coarsen(counter.find_doubtful())
    if doubtful:
        again = OffsetCounter(doubtful)
        for words in table.count_repeated(doubtful):
            again.add(words)
        repeated = list(again.finish((), {}).held)
    later = watch.source.read_log(watch.rules.topics)
    now_high = {partition: held.high_watermark for partition, held in later.log_by_partition.items()}
    return counter.finish(repeated, now_high)


def choose_spans(frames: Sequence[Frame]) -> list[OffsetRange]:
    """Return what to ask the table: the asked offsets, near ones together, and everything behind the last of them."""
    spans = []
    for each in frames:
        asked = merge_ranges([*each.due, *each.old])
        near = coarsen(asked)
        tail = OffsetRange(each.partition, max(each.start, near[-1].start if near else each.until), ENDLESS)
        spans += [*near[:-1], tail]
    return spans


def coarsen(ranges: Iterable[OffsetRange]) -> list[OffsetRange]:
    """Return fewer, larger ranges: ranges that are near each other become one."""
    found: list[OffsetRange] = []
    for each in merge_ranges(ranges):
        last = found[-1] if found else None
        if last is not None and last.partition == each.partition and each.start - last.until <= _NEAR_OFFSETS:
            found[-1] = OffsetRange(each.partition, last.start, each.until)
        else:
            found.append(each)
    return found


def _look_into(
    watch: TableWatch, frames: Sequence[Frame], known: Sequence[WatchedPartition], counted: TableCount
) -> HoleEvidence:
    """Ask Kafka what it has where no row is; if the topic may have aborted records, at the rows, too.

    One client reads everything that is due, unless that was read for the keys of its records. The second one looks
    where the first has seen no record.
    """
    holes = find_holes(frames, known, counted)
    visible = counted.seen or ()
    if watch.rules.holes is not HolePolicy.NONE and counted.seen is None:
        due = [part for each in frames for part in each.due]
        watch.tell(f"{watch.rules.name}: reads {count_offsets(due):,} offsets of Kafka")
        visible = tuple(watch.source.find_records(due))
        holes = merge_ranges([*holes, *find_gaps(visible, within=due)])
    if not holes:
        return HoleEvidence(visible, visible, {}, frozenset())
    found = watch.source.look_into(holes)
    return replace(found, committed=(*found.committed, *visible), uncommitted=(*found.uncommitted, *visible))


def _tell(
    look: TableLook,
    frames: Sequence[Frame],
    known: Sequence[WatchedPartition],
    counted: TableCount,
    judgement: Judgement,
) -> TableLook:
    """Return the look with how its partitions stand, and with notes before its own."""
    whole = [OffsetRange(each.partition, each.start, each.until) for each in frames]
    was_proved = [part for each in known for part in each.proved]
    was_held = [part for each in known for part in each.held]
    proved = count_covered(find_gaps(judgement.withdrawn, within=merge_ranges([*was_proved, *judgement.proved])), whole)
    gone = judgement.list_ranges(Discrepancy.DELETED)
    held = find_gaps(gone, within=merge_ranges([*was_held, *counted.held]))
    rows = count_covered(held, whole)
    newest = {each.partition: each.until for each in held}
    tails = (OffsetRange(each.partition, newest.get(each.partition, each.start), ENDLESS) for each in whole)
    behind = count_covered(judgement.list_ranges(*LACKING), [*tails])
    standings = (
        PartitionStanding(each.partition, each.start, each.until, each.end, *counts)
        for each, *counts in zip(frames, proved, rows, behind, strict=True)
    )
    old = [part for each in frames for part in each.old]
    is_young = not any(map(len, whole)) and any(each.end > each.until for each in frames)
    young = ["No record is older than the lateness yet: nothing was compared."] if is_young else []
    return replace(
        look,
        partitions=tuple(standings),
        rechecked=sum(count_covered(judgement.proved, old)),
        notes=(*young, *note_losses(known, counted, gone), *counted.notes, *look.notes),
    )
