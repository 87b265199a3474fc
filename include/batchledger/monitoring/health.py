"""How a pipeline stands: is it complete, what holds it back, and until when a person has to act. Changes nothing.

``survey`` and ``read_threats`` ask the ledger and the source; everything else here is pure.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from batchledger.lifecycle import plans
from batchledger.lifecycle.platform import Outlook, PipelineRules, load_positions
from batchledger.model.batch import (
    Batch,
    BatchState,
    DecisionRecord,
    LogState,
    PartitionHealth,
    PartitionLog,
    Position,
    StepFailure,
)
from batchledger.model.counting import describe_count
from batchledger.model.errors import BatchledgerError, LossError, TopicAwaitedError, TopicChangedError
from batchledger.model.findings import PipelineState
from batchledger.model.offsets import TopicPartition
from batchledger.model.pauses import is_retired
from batchledger.model.records.quarantine import NOTHING, QuarantineContent
from batchledger.planning.live import check_source, choose_first_positions

# The default of the broker's transaction.max.timeout.ms: no producer that is alive keeps a transaction open for longer.
STUCK_AFTER = timedelta(minutes=15)

# The connection that commands look for the ledger behind, if no pipeline file names one.
DEFAULT_LEDGER = "warehouse"

# A longer error is cut to its first sentence.
SHORT_ERROR_CHARACTERS = 200


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """A transaction that holds back the records behind its first one.

    ``since`` is when a plan first saw the last stable offset where it still is; None when none has seen it there.
    """

    partition: TopicPartition
    last_stable_offset: int
    held_back_records: int
    since: datetime | None
    is_stuck: bool


@dataclass(frozen=True, slots=True)
class Threats:
    """What threatens the unread records of a pipeline: waiting for ever, or being deleted; ``partitions`` have each."""

    unread_records: int
    transactions: tuple[OpenTransaction, ...]
    oldest_unread: PartitionHealth | None
    first_to_expire: PartitionHealth | None
    partitions: tuple[PartitionHealth, ...] = ()


@dataclass(frozen=True, slots=True)
class CurrentBatch:
    """The live batch that a pipeline is at.

    ``failure`` is the error with which a step of its newest attempt has ended, ``run`` whose attempt that is.
    ``is_at_work``: the attempt has not ended, and its run still goes on.
    """

    batch_id: int
    label: str
    state: BatchState
    failure: StepFailure | None = None
    run: str | None = None
    is_at_work: bool = False


@dataclass(frozen=True, slots=True)
class Book:
    """What the ledger has of a pipeline that matters for how it stands.

    ``given_up`` is why rows of its newest published batch were staged after they had begun to stream.
    """

    positions: tuple[Position, ...] = ()
    open_batch: CurrentBatch | None = None
    pause: DecisionRecord | None = None
    quarantine: QuarantineContent = NOTHING
    given_up: str = ""


@dataclass(frozen=True, slots=True)
class LeftPipeline:
    """What the ledger has of a pipeline whose file is gone; ``open_batches`` name each with its state."""

    name: str
    open_batches: tuple[str, ...] = ()
    quarantine: QuarantineContent = NOTHING


@dataclass(frozen=True, slots=True)
class PipelineHealth:
    """How one pipeline stands. ``detail`` is the error, if any; ``threats`` is None if they could not be read.

    ``quarantine`` is what it has there, in any state; nothing if the ledger could not be asked. ``missing_service`` is
    an undefined connection that the local services would define. ``given_up`` is as a Book has it.
    """

    pipeline: str
    state: PipelineState
    detail: str
    threats: Threats | None
    quarantine: QuarantineContent = NOTHING
    missing_service: str = ""
    given_up: str = ""


def find_threats(partitions: Sequence[PartitionHealth], positions: Sequence[Position], now: datetime) -> Threats:
    """Add up what the partitions tell.

    A transaction counts as stuck when the last stable offset has stood still for longer than ``STUCK_AFTER`` although
    records lie behind it, as the plans of that time have seen.
    """
    position_by_partition = {each.partition: each for each in positions}
    transactions = tuple(
        _find_transaction(each, position_by_partition.get(each.partition), now)
        for each in partitions
        if each.high_watermark > each.end
    )
    dated = [each for each in partitions if each.oldest_unread_at is not None]
    expiring = [each for each in partitions if each.expires_at is not None]
    return Threats(
        unread_records=sum(max(0, each.end - each.next_offset) for each in partitions),
        transactions=transactions,
        oldest_unread=min(dated, key=lambda each: each.oldest_unread_at or now, default=None),
        first_to_expire=min(expiring, key=lambda each: each.expires_at or now, default=None),
        partitions=tuple(partitions),
    )


def read_threats(platform: Outlook, now: datetime, first_positions: Sequence[Position] = ()) -> Threats:
    """Ask the source about the unread records; ``first_positions`` are those that are not stored yet."""
    concerned = [*load_positions(platform).values(), *first_positions]
    partitions = platform.source.read_health({each.partition: each.next_offset for each in concerned})
    return find_threats(partitions, concerned, now)


def survey(platform: Outlook, now: datetime) -> PipelineHealth:
    """Say how the pipeline stands; what cannot be asked is ``unknown``, with the error, and nothing is raised."""
    name = platform.rules.name
    try:
        quarantine = platform.ledger.summarise_quarantine(name)
    except BatchledgerError as error:
        return PipelineHealth(name, PipelineState.UNKNOWN, str(error), None)
    return replace(_survey(platform, now), quarantine=quarantine)


def _survey(platform: Outlook, now: datetime) -> PipelineHealth:
    name = platform.rules.name
    try:
        batch = platform.ledger.find_open_batch(name)
        open_batch = None if batch is None else _open(batch, platform.ledger.find_failure(batch))
        pause = platform.decisions.find_pause(name)
        if pause is not None and is_retired(pause):
            return _retired(pause)
        planned = plans.preview(platform)
        threats = read_threats(platform, now, planned.first_positions)
    except LossError as error:
        return PipelineHealth(name, PipelineState.LOSS, str(error), None)
    except TopicChangedError as error:
        return PipelineHealth(name, _tell_apart(error), str(error), None)
    except BatchledgerError as error:
        return PipelineHealth(name, PipelineState.UNKNOWN, str(error), None)
    return PipelineHealth(name, *_judge(open_batch, threats, pause), threats)


def judge(
    rules: PipelineRules,
    book: Book,
    log: LogState,
    seen: Mapping[TopicPartition, PartitionHealth],
    now: datetime,
) -> PipelineHealth:
    """Say how a pipeline stands, given what the ledger and Kafka hold; as ``survey`` does, which asks them itself.

    ``seen`` are earlier looks at the unread records of some partitions; one that was taken at another position says
    nothing any more. If a pipeline that starts at a moment has read nothing yet, the whole log counts as unread.
    """
    return replace(_judge_book(rules, book, log, seen, now), quarantine=book.quarantine, given_up=book.given_up)


def _judge_book(
    rules: PipelineRules,
    book: Book,
    log: LogState,
    seen: Mapping[TopicPartition, PartitionHealth],
    now: datetime,
) -> PipelineHealth:
    if book.pause is not None and is_retired(book.pause):
        return _retired(book.pause)
    positions = find_positions(rules, book, log)
    try:
        check_source(rules.name, positions, log, rules.topics, is_json=rules.is_json)
    except LossError as error:
        return PipelineHealth(rules.name, PipelineState.LOSS, str(error), None)
    except TopicChangedError as error:
        return PipelineHealth(rules.name, _tell_apart(error), str(error), None)
    held = log.log_by_partition
    looks = [look(each, held[each.partition], seen.get(each.partition)) for each in positions]
    threats = find_threats(looks, positions, now)
    return PipelineHealth(rules.name, *_judge(book.open_batch, threats, book.pause), threats)


def judge_left(left: LeftPipeline, ledger: str) -> tuple[PipelineHealth, str]:
    """Say what is left of a pipeline whose file is gone, with the ways on, which are returned by themselves as well.

    ``ledger`` is a connection.
    """
    waiting = f", and open is {', '.join(left.open_batches)}" if left.open_batches else ""
    named = "" if ledger == DEFAULT_LEDGER else f" --connection {ledger}"
    advice = f"Put the file back, or end the pipeline: batchledger retire {left.name}{named} --reason WHY"
    detail = f"No pipeline file has this name{waiting}.\n{advice}"
    return PipelineHealth(left.name, PipelineState.FILE_GONE, detail, None, left.quarantine), advice


def find_positions(rules: PipelineRules, book: Book, log: LogState) -> tuple[Position, ...]:
    """Return where the pipeline stands in each partition, or would start."""
    stored = {each.partition: each for each in book.positions if each.partition.topic in rules.topics}
    starts = {each: held.log_start for each, held in log.log_by_partition.items()}
    return (*stored.values(), *choose_first_positions(stored, log, rules.start, starts))


def look(position: Position, held: PartitionLog, seen: PartitionHealth | None) -> PartitionHealth:
    """Return what threatens the unread records of a partition, with the moments of an earlier look that still hold."""
    is_same = seen is not None and seen.next_offset == position.next_offset
    return PartitionHealth(
        partition=position.partition,
        next_offset=position.next_offset,
        end=held.end,
        high_watermark=held.high_watermark,
        oldest_unread_at=seen.oldest_unread_at if seen and is_same else None,
        expires_at=seen.expires_at if seen and is_same else None,
    )


def describe_threats(threats: Threats, now: datetime) -> list[str]:
    """Return a sentence for each threat, ready to be read; empty when nothing threatens."""
    lines = [describe_transaction(each, now) for each in threats.transactions]
    expiring = threats.first_to_expire
    if expiring is not None and expiring.expires_at is not None:
        left = expiring.expires_at - now
        when = f"in {describe_duration(left)}" if left > timedelta() else "at any moment"
        lines.append(f"{expiring.partition}: the oldest unread record may expire {when}")
    return lines


def describe_quarantine(content: QuarantineContent) -> list[str]:
    """Return a sentence on what is in quarantine, ready to be read; empty when nothing is."""
    return [f"{content.title}: {'; '.join(content.lines)}"] if content.records else []


def describe_duration(duration: timedelta) -> str:
    """Return a duration in its two largest units: ``3 d 4 h``, ``12 min 5 s``."""
    seconds = int(duration.total_seconds())
    parts = [(seconds // 86400, "d"), (seconds // 3600 % 24, "h"), (seconds // 60 % 60, "min"), (seconds % 60, "s")]
    told = [f"{count} {unit}" for count, unit in parts if count]
    return " ".join(told[:2]) or "0 s"


def _judge(
    open_batch: CurrentBatch | None, threats: Threats, pause: DecisionRecord | None
) -> tuple[PipelineState, str]:
    """Return the state of a pipeline whose source and ledger have answered, and what to know of it."""
    if open_batch is not None and open_batch.state is BatchState.BLOCKED:
        return PipelineState.BLOCKED, f"{open_batch.label}: batchledger batch {open_batch.batch_id}"
    if open_batch is not None and open_batch.failure is not None:
        return PipelineState.FAILING, _describe_failure(open_batch, open_batch.failure)
    if any(each.is_stuck for each in threats.transactions):
        return PipelineState.STUCK, ""
    if pause is not None:
        return PipelineState.PAUSED, _describe_pause(pause)
    if open_batch is not None and open_batch.is_at_work:
        return PipelineState.RUNNING, f"{open_batch.label}, {open_batch.state}"
    return (PipelineState.UNREAD if threats.unread_records else PipelineState.CAUGHT_UP), ""


def _tell_apart(error: TopicChangedError) -> PipelineState:
    return PipelineState.AWAITING if isinstance(error, TopicAwaitedError) else PipelineState.SOURCE_CHANGED


def _retired(pause: DecisionRecord) -> PipelineHealth:
    """Nothing is asked of the source: it may be gone as well."""
    return PipelineHealth(pause.pipeline, PipelineState.RETIRED, _describe_pause(pause), None)


def _describe_pause(pause: DecisionRecord) -> str:
    return f"by {pause.actor} since {pause.decided_at:%Y-%m-%d %H:%M} UTC: {pause.reason}"


def _open(batch: Batch, failure: StepFailure | None) -> CurrentBatch:
    return CurrentBatch(batch.batch_id, batch.label, batch.state, failure, batch.attempt_run)


def _describe_failure(batch: CurrentBatch, failure: StepFailure) -> str:
    error, where = failure.error, f"{batch.label}, {failure.step} step"
    if len(error) <= SHORT_ERROR_CHARACTERS:
        return f"{where}: {error}"
    return f"{where}: {error.partition('. ')[0]}. The whole error: batchledger batch {batch.batch_id}"


def _find_transaction(health: PartitionHealth, position: Position | None, now: datetime) -> OpenTransaction:
    since = position.held_back_since if position and position.held_back_at == health.end else None
    return OpenTransaction(
        partition=health.partition,
        last_stable_offset=health.end,
        held_back_records=health.high_watermark - health.end,
        since=since,
        is_stuck=since is not None and now - since > STUCK_AFTER,
    )


def describe_transaction(each: OpenTransaction, now: datetime) -> str:
    """Return what a transaction holds back, and how to end it when it is stuck."""
    age = f", for {describe_duration(now - each.since)} at least" if each.since else ""
    held_back = (
        f"{each.partition}: an open transaction holds back {describe_count(each.held_back_records, 'offset')}{age}"
    )
    if not each.is_stuck:
        return held_back
    partition, offset = each.partition, each.last_stable_offset
    return (
        f"{held_back}.\nIt is stuck: the last stable offset stands still at {offset}.\n"
        "Find its producer with: kafka-transactions.sh find-hanging\n"
        "When it is gone, end the transaction with: kafka-transactions.sh abort "
        f"--topic {partition.topic} --partition {partition.partition} --start-offset {offset}"
    )
