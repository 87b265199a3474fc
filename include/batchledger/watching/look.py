"""One look at a table that others wrote: the only place that knows the order of its steps.

What earlier looks have proved, the log, the table, the log again where rows are missing, a judgement; it is stored in
one transaction. A look that dies has stored nothing, and the next one begins where it began.
"""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial
from itertools import groupby, islice
from math import ceil

from batchledger.ledger.watches import Known, WatchStore
from batchledger.model.balance import HoleEvidence, HolePolicy
from batchledger.model.batch import LogState
from batchledger.model.errors import TopicAwaitedError
from batchledger.model.offsets import (
    OffsetRange,
    TopicPartition,
    count_covered,
    count_offsets,
    find_gaps,
    merge_ranges,
    single_offset,
)
from batchledger.ports import SourceLog
from batchledger.proof.parts import Fingerprint, Part, split_parts
from batchledger.proof.watching import (
    LACKING,
    ComparedTable,
    Discrepancy,
    Found,
    Frame,
    Judgement,
    PartitionStanding,
    TableLook,
    WatchedPartition,
    judge_look,
    lay_frame,
    name_outcome,
    tell,
)
from batchledger.watching.fingerprints import compare_hashes
from batchledger.watching.table import ENDLESS, Asked, WatchedTable

PLACES_NAMED = 5
LAG_ALLOWED = timedelta(minutes=1)


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
    table: WatchedTable
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
    before, log, known, recreated = find_known(watch, now, as_of)
    proved = [part for each in known for part in each.proved]
    chance = chance or random.Random()  # noqa: S311
    again = proved if everything else choose_again(proved, watch.rules.recheck, chance, watch.table.newest_parts)
    again = merge_ranges([*again, *before.find_changed(proved)])
    untils = _find_untils(watch, before, log, as_of)
    old = {partition: list(parts) for partition, parts in groupby(again, key=lambda each: each.partition)}
    frames = [
        lay_frame(each, untils[each.partition], log.log_by_partition[each.partition].end, old.get(each.partition, ()))
        for each in known
    ]
    is_whole = everything or (before.revision is None and watch.rules.since is None)
    read_log = partial(watch.source.read_log, watch.rules.topics)
    compared = watch.table.compare(Asked(watch.rules.name, frames, log, read_log, watch.tell, is_whole))
    stray, foreign = compared.counted.stray, compared.counted.foreign
    if not is_whole:
        stray, foreign = max(stray, before.stray), max(foreign, before.foreign)
    # Rows of a topic that is gone belong to no partition that is there.
    counted = replace(compared.counted, stray=stray, foreign=0 if recreated else foreign)
    compared = replace(compared, counted=counted)
    judgement = judge_look(compared, _look_into(watch, compared), watch.rules.holes)
    prints: Mapping[Part, Fingerprint] = {}
    changed: list[Found] = []
    if watch.rules.fingerprint:
        prints, changed = compare_hashes(watch.table, before.fingerprints, compared.seen, judgement)
    changed += _find_behind(watch, frames, now, replayed) or compared.find_young()
    judgement = replace(judgement, found=(*judgement.found, *changed, *recreated))
    said = TableLook(
        watch.rules.name,
        now,
        name_outcome(judgement.found),
        _list_standings(compared, judgement),
        judgement.found,
        judgement.holes,
        rechecked=sum(count_covered(judgement.proved, compared.old)),
        notes=(*note_losses(compared), *compared.counted.notes, *_name_places(watch.table, judgement)),
    )
    watch.store.save(said, before, known, judgement, prints, since=str(watch.rules.since))
    return said


def _name_places(table: WatchedTable, judgement: Judgement) -> list[str]:
    """Say of the first doubled offsets where their rows are."""
    twice = judgement.list_ranges(Discrepancy.TWICE)
    offsets = ((each.partition, at) for each in twice for at in range(each.start, each.until))
    first = [single_offset(place.topic, place.partition, at) for place, at in islice(offsets, PLACES_NAMED)]
    found = [each for each in table.locate(first) if each.rows > 1 and each.places] if first else []
    return [f"{each.offsets}: {each.rows} rows, at {', '.join(each.places)}" for each in found]


def find_known(
    watch: TableWatch, now: datetime, as_of: datetime
) -> tuple[Known, LogState, list[WatchedPartition], list[Found]]:
    """Return what is stored, the log, what is known of each partition, and the topics that were created again since.

    What is stored names the ends of the logs as the newest look before ``as_of`` has seen them.
    """
    before = watch.store.load(watch.rules.name, watch.rules.subject, as_of)
    log = watch.source.read_log(watch.rules.topics)
    for topic in watch.rules.topics:
        if topic not in log.identity_by_topic:
            raise TopicAwaitedError(
                f"Topic {topic} is not there. Nothing was looked at.",
                advice="Correct source.topics, or create the topic.",
                subject=topic,
            )
    return before, log, _find_starts(watch, before, log, now), _find_recreated(before, log)


def _find_recreated(before: Known, log: LogState) -> list[Found]:
    """Return the topics that were created again: what was proved of them is about other records."""
    stale = [each for each in before.partitions.values() if each.topic_id != _identify(log, each.partition)]
    ranges = merge_ranges(part for each in stale for part in each.held)
    return [Found(Discrepancy.RECREATED, count_offsets(ranges), tuple(ranges))] if stale else []


def _identify(log: LogState, partition: TopicPartition) -> str:
    identity = log.identity_by_topic.get(partition.topic)
    return "" if identity is None else f"{identity.cluster_id}/{identity.topic_id}"


def _find_starts(watch: TableWatch, before: Known, log: LogState, now: datetime) -> list[WatchedPartition]:
    """Return what is known of each partition of the topics that are the same, with where its frame begins."""
    same = [
        each
        for each in sorted(log.log_by_partition)
        if each not in before.partitions or before.partitions[each].topic_id == _identify(log, each)
    ]
    since, is_same = watch.rules.since, before.since == str(watch.rules.since)
    first = watch.source.find_offsets(same, now - since if isinstance(since, timedelta) else since) if since else {}
    known = []
    for each in same:
        stored, held = before.partitions.get(each), log.log_by_partition[each]
        start = held.log_start if since is None else max(held.log_start, first.get(each, held.end))
        if stored is not None and is_same:
            # A window moves on with the records that are younger, and stands still without any.
            start = max(stored.start, first.get(each, 0)) if isinstance(since, timedelta) else stored.start
        known.append(replace(stored or WatchedPartition(each, _identify(log, each), start), start=start))
    return known


def _find_untils(watch: TableWatch, before: Known, log: LogState, as_of: datetime) -> dict[TopicPartition, int]:
    """Return up to where records are old enough to have a row: from before ``as_of``. Later ones may be on their way.

    The log's end of a look before that moment is old enough, too: a timestamp of the future holds nothing up.
    """
    ends = {each: log.log_by_partition[each].end for each in sorted(log.log_by_partition)}
    young = watch.source.find_offsets([*ends], as_of)
    return {each: min(end, max(young.get(each, end), before.seen_ends.get(each, 0))) for each, end in ends.items()}


def _find_behind(watch: TableWatch, frames: Sequence[Frame], now: datetime, replayed: datetime | None) -> list[Found]:
    """Return the records that are old enough, and for which a replica has stood still for too long."""
    if replayed is None or now - replayed <= max(watch.rules.lateness, LAG_ALLOWED):
        return []
    young = watch.source.find_offsets([each.known.partition for each in frames], now - watch.rules.lateness)
    waiting = []
    for each in frames:
        partition = each.known.partition
        until = min(each.end, young.get(partition, each.end))
        waiting.append(OffsetRange(partition, each.until, max(each.until, until)))
    behind = merge_ranges(waiting)
    return [tell(Discrepancy.BEHIND, behind)] if behind else []


def note_losses(compared: ComparedTable) -> list[str]:
    """Say it if no row says which record it is of, or if all rows that a look has seen are gone, or the newest ones."""
    if compared.is_misled:
        return ["No row has usable coordinates. Correct coordinates in the file: they have to lead to whole numbers."]
    if compared.due and not compared.counted.known and not compared.seen:
        return ["The table has no row of these topics. Perhaps its rows name the topic in another way."]
    if compared.gone and not compared.counted.held:
        return ["The table has no row where earlier looks have seen rows: it was emptied, or is another one."]
    last_seen = {each.partition: each.until for each in merge_ranges(compared.seen)}
    ends = [each for each in compared.gone if each.until == last_seen.get(each.partition)]
    if not ends:
        return []
    more = f" and {len(ends) - 1} more partitions" if len(ends) > 1 else ""
    return [f"The newest rows of {ends[0].partition}{more} are gone: the table was restored to an earlier state."]


def choose_again(
    proved: Sequence[OffsetRange], share: float, chance: random.Random, newest_parts: int
) -> list[OffsetRange]:
    """Return a share of what is proved, in whole parts: by chance, and the newest one of each partition, or of some."""
    pieces = list(split_parts(proved))
    parts = sorted({part for part, _ in pieces})
    newest = dict(parts)
    chosen = set(chance.sample(parts, min(len(parts), ceil(len(parts) * share)))) if share else set()
    if share:
        chosen.update(chance.sample(sorted(newest.items()), min(len(newest), newest_parts)))
    return merge_ranges(each for part, each in pieces if part in chosen)


def _look_into(watch: TableWatch, compared: ComparedTable) -> HoleEvidence:
    """Ask Kafka what it has where no row is; if the topic may have aborted records, at the rows, too.

    One client reads everything that is due, unless that was read for the keys of its records. The second one looks
    where the first has seen no record.
    """
    holes, visible = compared.holes, compared.counted.seen or ()
    if watch.rules.holes is not HolePolicy.NONE and compared.counted.seen is None:
        watch.tell(f"{watch.rules.name}: reads {count_offsets(compared.due):,} offsets of Kafka")
        visible = tuple(watch.source.find_records(compared.due))
        holes = merge_ranges([*holes, *find_gaps(visible, within=compared.due)])
    if not holes:
        return HoleEvidence(visible, visible, {}, frozenset())
    found = watch.source.look_into(holes)
    return replace(found, committed=(*found.committed, *visible), uncommitted=(*found.uncommitted, *visible))


def _list_standings(compared: ComparedTable, judgement: Judgement) -> tuple[PartitionStanding, ...]:
    """Return how each partition stands after the look."""
    whole = [each.whole for each in compared.frames]
    was_proved = [part for each in compared.frames for part in each.known.proved]
    proved = count_covered(find_gaps(judgement.withdrawn, within=merge_ranges([*was_proved, *judgement.proved])), whole)
    held = find_gaps(compared.gone, within=merge_ranges([*compared.seen, *compared.counted.held]))
    newest = {each.partition: each.until for each in held}
    tails = [OffsetRange(each.partition, newest.get(each.partition, each.start), ENDLESS) for each in whole]
    behind = count_covered(judgement.list_ranges(*LACKING), tails)
    ends = [each.end for each in compared.frames]
    return tuple(
        PartitionStanding(each.partition, each.start, each.until, *counts)
        for each, *counts in zip(whole, ends, proved, count_covered(held, whole), behind, strict=True)
    )
