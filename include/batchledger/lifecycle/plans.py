"""Which batch a run works on: the open one, a new plan, a replay, or one that a person takes again.

A plan is stored before anything is read, and a run that repeats the step finds its own (I5). What is decided without
the ledger and Kafka is in ``planning``.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace

from batchledger.lifecycle.at_work import require_left
from batchledger.lifecycle.ownership import drop_discarded, is_published_by, load_batch
from batchledger.lifecycle.platform import Outlook, Platform, load_positions
from batchledger.model.batch import Batch, BatchState, Decision, DecisionKind, LogState, Position
from batchledger.model.counting import describe_count
from batchledger.model.errors import DecisionRefusedError, PositionConflictError
from batchledger.model.offsets import OffsetRange, TopicPartition, count_offsets, describe_ranges, split_ranges
from batchledger.model.pauses import paused_by
from batchledger.model.records.comparison import ReplacedRows, describe_once_more, describe_replaced
from batchledger.model.records.times import Searched
from batchledger.model.refusals import blocked, closed, never_published
from batchledger.planning.batch_size import PACES_CONSIDERED, BatchSize, choose_size
from batchledger.planning.live import (
    Plan,
    check_identity,
    check_source,
    check_topics,
    choose_first_positions,
    describe_idle,
    plan_batch,
)
from batchledger.planning.replay import (
    Interval,
    Quarantined,
    Replay,
    ResolvedReplay,
    Window,
    check_portions,
    plan_quarantined,
    plan_ranges,
    raise_log_starts,
    require_payloads,
    resolve_ranges,
    resolve_window,
)
from batchledger.planning.windows import PlacedWindow, find_candidates, find_records, keep_part, note_unknown

logger = logging.getLogger(__name__)

OFFSETS_SEARCHED_AT_ONCE = 5_000_000


def preview(platform: Outlook, max_records: int | None = None, min_records: int | None = None) -> Plan:
    """Return what the next live batch would take. Changes nothing. Raises LossError, TopicChangedError.

    ``max_records`` and ``min_records`` stand for the limits of the pipeline file.
    """
    rules, ledger = platform.rules, platform.ledger
    # Positions first: a batch published in between would else stand beyond the log that was read before it.
    stored = load_positions(platform)
    log = platform.source.read_log(rules.topics)
    check_source(rules.name, tuple(stored.values()), log, rules.topics, is_json=rules.is_json)
    first = _choose_first_positions(platform, stored, log)
    check_source(rules.name, first, log, rules.topics)
    size = _choose_size(platform) if max_records is None else None
    most = size.records if size else max_records
    limits = rules.limits if most is None else replace(rules.limits, max_records=most)
    limits = limits if min_records is None else replace(limits, min_records=min_records)
    planned = plan_batch((*stored.values(), *first), log, limits, ledger.seconds_since_published(rules.name), first)
    return replace(planned, size=size)


def preview_replay(platform: Platform, replay: Replay) -> Plan:
    """Return what a replay would publish again. Changes nothing but what the ledger knows of the times of records.

    What the pipeline has lost elsewhere, or has not read yet, is no obstacle. Raises ExpiredError, ReplayRefusedError.
    """
    if isinstance(replay.what, Quarantined):
        records = platform.ledger.find_quarantined(platform.rules.name, replay.what.ranges)
        require_payloads(platform.rules.name, records)
        check_portions(platform.rules.name, replay.what, records)
        return plan_quarantined(records)
    rules, (log, stored, first) = platform.rules, _read_for_replay(platform)
    if isinstance(replay.what, Window):
        resolved = _look_through(platform, replay.what, _place_window(platform, replay.what, log, (*stored, *first)))
    else:
        resolved = resolve_ranges(rules.name, replay.what, log)
    return plan_ranges(rules.name, replay, resolved, first)


def require_possible(platform: Platform, replay: Replay) -> None:
    """Raise at once what would refuse a replay, and DecisionRefusedError when nothing is left to publish again.

    Reads no record: whether a window has records, when that has to be looked up in Kafka, is left to the run.
    """
    if isinstance(replay.what, Window):
        log, stored, first = _read_for_replay(platform)
        placed = _place_window(platform, replay.what, log, (*stored, *first))
        if placed.candidates.doubtful:
            plan_ranges(platform.rules.name, replay, replace(placed.part, expired=placed.gone), first)
            return
        planned = plan_ranges(platform.rules.name, replay, _look_through(platform, replay.what, placed), first)
    else:
        planned = preview_replay(platform, replay)
    if planned.is_empty:
        raise DecisionRefusedError("There is nothing to publish again: no record is left in these offsets.")


def _read_for_replay(platform: Platform) -> tuple[LogState, Sequence[Position], tuple[Position, ...]]:
    """Return the log, the stored positions, and the first positions that the pipeline has not stored yet."""
    rules, stored = platform.rules, load_positions(platform)
    log = platform.source.read_log(rules.topics)
    check_topics(rules.name, log, rules.topics, tuple(stored.values()), is_json=rules.is_json)
    first = _choose_first_positions(platform, stored, log)
    check_identity((*stored.values(), *first), log)
    return log, tuple(stored.values()), first


def _place_window(platform: Platform, window: Window, log: LogState, positions: Sequence[Position]) -> PlacedWindow:
    """Return where the ledger and Kafka's index say that records of the window may lie. Reads no record."""
    rules, source = platform.rules, platform.source
    partitions = tuple(log.log_by_partition)
    since, until = source.find_offsets(partitions, window.since), source.find_offsets(partitions, window.until)
    later = source.read_log(rules.topics)
    check_identity(positions, later)
    log = raise_log_starts(log, later)
    part = resolve_window(log, since, until)
    published = platform.ledger.find_times(rules.name, window.span, part.ranges)
    return PlacedWindow(part, published, find_candidates(window, published, part, since, log))


def _look_through(platform: Platform, window: Window, placed: PlacedWindow) -> ResolvedReplay:
    """Return where the records of the window lie: in its part of the log, and elsewhere in what was published.

    The ledger keeps the times that it did not know, portion by portion, so that a search that breaks off is not lost.
    """
    rules, doubtful, searched = platform.rules, placed.candidates.doubtful, list[Searched]()
    for portion in split_ranges(doubtful, OFFSETS_SEARCHED_AT_ONCE):
        logger.info(
            "%s: looks through %s offsets in %s for records of %s; %s of %s done",
            rules.name,
            f"{count_offsets(portion):,}",
            describe_ranges(portion),
            window,
            f"{count_offsets([each.range for each in searched]):,}",
            f"{count_offsets(doubtful):,}",
        )
        found = platform.source.search(portion, window.span)
        if unknown := note_unknown(placed.candidates, found):
            platform.ledger.note_times(rules.name, unknown)
        searched += found
    if isinstance(window, Interval):
        return keep_part(rules.name, window, placed, searched)
    return find_records(placed, searched)


def plan(
    platform: Platform, run: str, *, max_records: int | None = None, decision: Decision | None = None
) -> Batch | None:
    """Return the batch to work on; None when there is nothing to do. Otherwise as ``plan_or_idle``."""
    found = plan_or_idle(platform, run, max_records=max_records, decision=decision)
    return found if isinstance(found, Batch) else None


def plan_or_idle(
    platform: Platform, run: str, *, max_records: int | None = None, decision: Decision | None = None
) -> Batch | Plan:
    """Return the batch to work on: the open one if there is one (I5), else a new stored plan.

    If there is nothing to do, the plan without ranges says what waits nevertheless. ``max_records`` stands for the
    limit of the pipeline file; ``decision`` says who triggered the run, and why: for a person few records do not wait
    until there are more. Raises AtWorkError while another run is at work on the open batch, BatchBlockedError when that
    waits for a person, DecisionRefusedError when it has more than ``max_records`` offsets, PipelinePausedError.
    """
    _require_ready(platform)
    batch: Batch | Plan | None = platform.ledger.find_open_batch(platform.rules.name)
    if batch is None:
        try:
            batch = _plan_anew(platform, run, max_records, decision)
        except PositionConflictError:
            # Another run published in between; what it left is planned on top of it.
            batch = _plan_anew(platform, run, max_records, decision)
    if isinstance(batch, Plan):
        return batch
    require_left(platform, batch, run)
    if batch.state is BatchState.BLOCKED:
        raise blocked(batch, platform.ledger.load_checks(batch.batch_id))
    _require_within(batch, max_records)
    if decision is not None:
        _record_trigger(platform, batch, decision)
    logger.info("%s planned: %s", batch.label, describe_ranges(batch.ranges))
    _warn_once_more(platform, batch)
    platform.crash("plan_stored")
    return batch


def _plan_anew(platform: Platform, run: str, max_records: int | None, decision: Decision | None) -> Batch | Plan:
    planned = preview(platform, max_records, None if decision is None else 1)
    platform.ledger.note_held_back(platform.rules.name, planned.stable_offset_by_held_back)
    if not planned.is_empty:
        if planned.size:
            logger.info("%s: %s", platform.rules.name, planned.size)
        planned = replace(planned, delivery=platform.rules.delivery)
        return platform.ledger.store_plan(platform.rules.name, planned, run, decision)
    # Otherwise a start at the end of the log would be chosen anew, further on, at every run.
    platform.ledger.store_first_positions(platform.rules.name, planned.first_positions)
    logger.info("%s: nothing to do, %s", platform.rules.name, describe_idle(planned, platform.rules.limits))
    return planned


def _record_trigger(platform: Platform, batch: Batch, decision: Decision) -> None:
    """Record who triggered the run, unless the plan was stored with it: each decision waits for publications."""
    recorded = platform.decisions.load_decisions(batch.batch_id)
    if not any(each.kind == DecisionKind.TRIGGER and each.decision == decision for each in recorded):
        platform.decisions.trigger(batch.batch_id, decision)


def plan_replay(platform: Platform, replay: Replay, run: str, decision: Decision, key: str) -> Batch | None:
    """Return the stored plan of a replay; None when there is nothing to publish again.

    ``key`` tells this request from others: a step that is tried again finds the plan that it has stored (I5). If
    everything has expired, and that is allowed, the ledger keeps who asked for it, and what is gone. Raises
    PipelinePausedError, and FencedError if another run has carried the request out, or the replay was discarded.
    """
    batch = platform.ledger.find_replay(platform.rules.name, key)
    if batch is None:
        _require_ready(platform)
        planned = preview_replay(platform, replay)
        tell_notes(platform, planned)
        if planned.is_empty:
            if planned.expired:
                platform.ledger.note_expired(platform.rules.name, planned.expired, decision, key)
            logger.info("%s: nothing to publish again in %s", platform.rules.name, replay)
            return None
        batch = store_replay(platform, planned, run, decision, key)
    if batch.state.is_final and not is_published_by(batch, run):
        raise closed(batch, run)
    offsets = f"{describe_count(count_offsets(batch.ranges), 'offset')} in {describe_ranges(batch.ranges)}"
    logger.info("%s planned, a replay of %s: %s", batch.label, replay, offsets)
    if platform.rules.mode.can_replace:
        logger.info("%s would replace %s", batch.label, describe_replaced(find_replaced_rows(platform, batch.ranges)))
    _warn_once_more(platform, batch)
    platform.crash("plan_stored")
    return batch


def tell_notes(platform: Platform, planned: Plan) -> None:
    """Log what people should know of a plan before it is carried out."""
    for each in planned.notes:
        logger.warning("%s: %s", platform.rules.name, each)


def store_replay(platform: Platform, planned: Plan, run: str, decision: Decision, key: str | None) -> Batch:
    """Store the plan of a replay, and clean up after the replays that the run has asked for before."""
    superseded = platform.ledger.find_open_replays(platform.rules.name, run)
    batch = platform.ledger.store_replay(platform.rules.name, planned, run, decision, key)
    for each in superseded:
        drop_discarded(platform, each)
    return batch


def find_replaced_rows(platform: Platform, ranges: Sequence[OffsetRange]) -> tuple[ReplacedRows, ...]:
    """Return which batches hold offsets of the ranges now, with the rows that the target has of them. Reads only."""
    held = platform.ledger.find_held(platform.rules.name, ranges)
    rows = platform.sink.count_held(platform.rules.name, held)
    return tuple(ReplacedRows(each, count) for each, count in zip(held, rows, strict=True))


def find_once_more(platform: Platform, ranges: Sequence[OffsetRange]) -> str:
    """Say what readers would see once more if the ranges were published, for people to read before. Reads only.

    Empty if the target can replace rows, and if no batch holds any of the ranges.
    """
    if platform.rules.mode.can_replace:
        return ""
    return describe_once_more(platform.ledger.find_held(platform.rules.name, ranges))


def retake(platform: Platform, batch_id: int, run: str, decision: Decision) -> Batch:
    """Record that a run takes an open batch again, a blocked one included, and return it for its stage step.

    One that this run has published already is returned as it is. Raises UnknownBatchError, FencedError when it is
    published by another one, or discarded, ReplayRefusedError when it is a dry run, and AtWorkError while another run
    is at work on it: nothing is recorded then.
    """
    batch = load_batch(platform, batch_id)
    if batch.is_dry_run:
        raise never_published(batch)
    if is_published_by(batch, run):
        return batch
    require_left(platform, batch, run)
    platform.decisions.retake(batch_id, run, decision)
    logger.info("%s is taken again by %s: %s", batch.label, decision.actor, decision.reason)
    return batch


def _choose_first_positions(
    platform: Outlook, stored: Mapping[TopicPartition, Position], log: LogState
) -> tuple[Position, ...]:
    rules, new = platform.rules, tuple(each for each in log.log_by_partition if each not in stored)
    starts = platform.source.find_offsets(new, rules.start_at) if rules.start_at and new else {}
    return choose_first_positions(stored, log, rules.start, starts)


def _warn_once_more(platform: Platform, batch: Batch) -> None:
    once_more = find_once_more(platform, batch.ranges)
    if once_more:
        logger.warning("%s: %s", batch.label, once_more)


def _choose_size(platform: Outlook) -> BatchSize | None:
    """Return how many records the pipeline's target duration allows; None when it has no target."""
    limits = platform.rules.limits
    if limits.target_duration_seconds is None:
        return None
    paces = platform.ledger.load_paces(platform.rules.name, PACES_CONSIDERED)
    return choose_size(paces, limits.target_duration_seconds, limits.min_records, limits.max_records)


def _require_within(batch: Batch, max_records: int | None) -> None:
    """The ranges of a stored plan never change (I5), so a smaller limit comes too late for it."""
    offsets = count_offsets(batch.ranges)
    if max_records is not None and offsets > max_records:
        raise DecisionRefusedError(
            f"{batch.label} is open with {describe_count(offsets, 'offset')}; max_records asks for {max_records:,}. "
            "Nothing was changed.",
            why="The ranges of a batch are stored once, and never change.",
            advice=f"Let it finish, or take it again: batchledger run {batch.pipeline} --batch {batch.batch_id}\n"
            "Then ask again.",
            batch_id=batch.batch_id,
        )


def _require_ready(platform: Platform) -> None:
    pause = platform.decisions.find_pause(platform.rules.name)
    if pause is not None:
        raise paused_by(pause)
    # No batch is opened that could not be staged.
    platform.require_secret()
