"""The roles around the core. Adapters implement them and meet only here; they never import each other.

Each role has a real adapter and an in-memory one, and both pass the same contract tests. The three outcomes of a
publication are told apart: it returned (published), it raised a typed error (not published), or it raised
OutcomeUnknownError (ask for the batch id, I9).
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Protocol

from batchledger.accounting import (
    Balance,
    HoleEvidence,
    IntegrityCheck,
    StagedRange,
    TargetCount,
    WitnessedRange,
)
from batchledger.batch import (
    Attempt,
    Batch,
    BatchState,
    Decided,
    Decision,
    DecisionKind,
    DecisionRecord,
    HeldRange,
    LogState,
    PartitionHealth,
    Position,
    QuarantinedRecord,
    Staged,
)
from batchledger.checking import CheckResult, FailedRecord, JudgedCheck, Offender
from batchledger.comparison import Comparison
from batchledger.facts import BatchFacts
from batchledger.incidents import ChannelFailure, Findings, Incident, Message, Notification, Settlement
from batchledger.numbering import NumberFacts
from batchledger.offsets import OffsetRange, TopicPartition
from batchledger.pacing import Pace
from batchledger.planning import Plan
from batchledger.rewind import ResolvedRewind
from batchledger.stored_facts import StoredFacts

if TYPE_CHECKING:
    # Airflow parses DAG files through this module, and importing pyarrow takes half a second.
    import pyarrow as pa

CrashHook = Callable[[str], None]
"""Called with the name of each crash point as it is passed; does nothing outside of fault tests."""


def no_crash(point: str) -> None:
    """The crash hook of normal operation."""


class SourceLog(Protocol):
    """What Kafka holds, read without a consumer group and without changing anything.

    Raises ServiceUnavailableError within 30 s when no broker answers.
    """

    def read_log(self, topics: Sequence[str]) -> LogState:
        """Return identity and readable ends of the topics; topics that do not exist are absent from the result."""

    def find_offsets(self, partitions: Sequence[TopicPartition], at: datetime) -> Mapping[TopicPartition, int]:
        """Return the first offset whose timestamp is at or after ``at``; absent when there is none."""

    def commit_courtesy(self, group: str, next_offset_by_partition: Mapping[TopicPartition, int]) -> None:
        """Commit group offsets so that lag tools show the pipeline. Nothing ever reads them back."""

    def look_into(self, holes: Sequence[OffsetRange]) -> HoleEvidence:
        """Read the given offsets again, by another client than the stage step used, under both isolation levels.

        A hole below the log start is not seen; the log start tells. Returns or raises within 60 s of reading, plus 1 s
        for each 100,000 offsets between the first and the last hole of a partition: ServiceUnavailableError when they
        could not be read in that time or lie behind the last stable offset, TopicChangedError when the log ends before
        a hole does. Needs READ and DESCRIBE on the topics, and DESCRIBE_CONFIGS, without which it is unknown whether a
        topic is compacted.
        """

    def read_health(self, next_offset_by_partition: Mapping[TopicPartition, int]) -> Sequence[PartitionHealth]:
        """Return what threatens the unread records, one entry a partition, in the order of partitions.

        A few requests, whatever the number of partitions. Returns or raises ServiceUnavailableError within 60 s. Needs
        READ and DESCRIBE on the topics, and DESCRIBE_CONFIGS, without which no expiry is known.
        """

    def read_records(self, records: Sequence[OffsetRange], limit_bytes: int) -> "pa.Table":
        """Return the committed records at exactly these offsets, with the columns of ``QUARANTINE_SCHEMA``, no error.

        Missing are records that Kafka has removed, and those after ``limit_bytes`` of keys and values were read. Takes
        as long as ``look_into`` at most, and raises ServiceUnavailableError as it does.
        """


class TargetAccess(Protocol):
    """The open transaction in which a rewind empties the target; the pipeline is locked."""

    @property
    def connection(self) -> Any:
        """The database connection of the transaction, for a sink that shares the ledger's database."""

    @property
    def pipeline(self) -> str:
        """Whose target it is."""

    def confirm_target(self, name: str, identity: str) -> None:
        """Raise TargetChangedError when the pipeline has published to another table, or it is another pipeline's."""

    def forget_target(self) -> None:
        """Let the next publication create the table: the one that the pipeline has published to is gone."""


Truncate = Callable[[TargetAccess], int]
"""Empties the target, or only counts what it would remove; returns the number of rows."""


class Publication(Protocol):
    """The open transaction of one attempt that may publish: pipeline locked, attempt and state checked."""

    @property
    def connection(self) -> Any:
        """The database connection of the transaction, for a sink that shares the ledger's database."""

    @property
    def attempt(self) -> Attempt:
        """Who publishes."""

    @property
    def accepted_rows(self) -> int:
        """How many rows the audit accepted; a sink that moves another number refuses."""

    @property
    def duplicate_rows(self) -> int:
        """How many rows the audit counted as duplicates; a sink that drops another number refuses."""

    def confirm_target(self, name: str, identity: str) -> None:
        """Store which table the pipeline publishes to.

        Raises TargetChangedError when it was another one before, or when it is another pipeline's.
        """

    def advance_positions(self) -> None:
        """Move every partition of the batch from start to until. Raises PositionConflictError with both sides.

        Where the position is still behind the batch it is a PredecessorPendingError, which is retryable (S58).
        """

    def find_replaced(self) -> Sequence[HeldRange]:
        """Return what other published batches hold of the batch's ranges, and this one would take over.

        A replay takes over from every batch; a live batch from replays, and from live batches of earlier epochs. What
        another live batch of its epoch holds is not among them: ``mark_published`` refuses it (I2).
        """

    def find_quarantined(self) -> Sequence[QuarantinedRecord]:
        """Return which records of the batch's ranges are in quarantine now; nobody can drop one any more."""

    def take_over(self, replaced: Sequence[HeldRange], removed_rows: Sequence[int]) -> None:
        """Let the batch replace what ``find_replaced`` returned, and remove what was set aside there (I8).

        Of the batch itself nothing is visible from here on either: its rows were withdrawn too.

        ``removed_rows``: how many offsets of each had rows in the target, as the sink has removed them.
        """

    @property
    def holds_all_ranges(self) -> bool:
        """Whether the batch is published and nobody has replaced any part of it since."""

    def publish_quarantine(self) -> None:
        """Move the attempt's staged quarantine into the ledger. Raises StagingLostError when some is missing."""

    @property
    def has_rows(self) -> bool:
        """Whether rows of the batch have been written, by this attempt or an earlier one."""

    def mark_rows(self) -> None:
        """Record that the rows are written; ``verify`` reports a published batch without."""

    def mark_published(self) -> None:
        """Set the state of the batch and let its ranges count as published, with the rows that the audit accepted.

        Raises PositionConflictError when a range overlaps one that is published already (I2), and BatchBlockedError
        when a balance is not closed (I7): the database itself refuses both.
        """


@dataclass(frozen=True)
class RowsToCheck:
    """The rows that would be published, as checks see them: without duplicates, and without those that delete a key.

    ``connection`` is one that can only read, and ``table`` the name of the rows in it. ``accepted`` counts all rows
    that would be published, those that delete a key among them; ``checked`` counts the others.
    """

    connection: Any = field(repr=False)
    table: str
    accepted: int
    checked: int


@dataclass(frozen=True, slots=True)
class RecentBatch:
    """A published live batch: how many rows it had, and what checks have observed of it, by their names."""

    batch_id: int
    accepted: int
    observed: Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class CheckedBatch:
    """What checks that compare batches need to know of one: what was read of it, and the batches before, newest first.

    ``visible`` counts its records, ``quarantined`` those of them that are set aside.
    """

    batch: Batch
    visible: int
    quarantined: int
    recent: Sequence[RecentBatch] = ()


class Ledger(Protocol):
    """The control table: plans, attempts, positions, balances, results. Every method is one transaction.

    Raises ServiceUnavailableError when the database does not answer, UnknownBatchError for ids that do not exist.
    """

    def load_positions(self, pipeline: str) -> Sequence[Position]:
        """Return where the pipeline is, one position per partition it has ever planned; empty before the first."""

    def seconds_since_published(self, pipeline: str) -> float | None:
        """Return how long ago the pipeline last published, None when it never has."""

    def load_paces(self, pipeline: str, limit: int) -> Sequence[Pace]:
        """Return what the newest ``limit`` published live batches took, the newest first.

        Those that nobody executed (an accepted loss) are left out, those that waited for a person who accepted them,
        and those during which the clock was set back. The cost does not depend on how many batches there have been.
        """

    def load_recent(self, pipeline: str, limit: int) -> Sequence[RecentBatch]:
        """Return the newest ``limit`` published live batches, the newest first, without those that nobody executed.

        The cost does not depend on how many batches there have been.
        """

    def find_open_batch(self, pipeline: str) -> Batch | None:
        """Return the live batch that is neither published nor discarded; there is at most one."""

    def load_batch(self, batch_id: int) -> Batch:
        """Return one batch with its ranges."""

    def store_plan(self, pipeline: str, plan: Plan, run: str, decision: Decision | None = None) -> Batch:
        """Store a plan before anything is read. Returns the open batch instead when another run was faster (I5).

        ``decision``: who triggered it, and why, if it was a person. Raises PositionConflictError when a range does not
        start at the stored next offset, and PipelinePausedError.
        """

    def store_replay(self, pipeline: str, plan: Plan, run: str, decision: Decision, key: str | None) -> Batch:
        """Store the plan of a replay, with who asked for it and why; any number of replays may be open.

        Returns the batch that is stored under ``key`` already, if there is one; a dry run has no key. Open replays of
        the same ``run`` under another key are discarded, by ``decision``: the run was asked anew. A dry run publishes
        nothing: it discards dry runs only, and does not raise PipelinePausedError as others do.
        """

    def find_open_replays(self, pipeline: str, run: str) -> Sequence[Batch]:
        """Return the replays that this run has planned and that are neither published nor discarded, in order."""

    def note_expired(self, pipeline: str, expired: Sequence[OffsetRange], decision: Decision, key: str) -> None:
        """Record a replay that has to leave out everything it asks for, so that it is no batch; once for each key."""

    def find_replay(self, pipeline: str, key: str) -> Batch | None:
        """Return the replay that was stored under the key."""

    def find_held(self, pipeline: str, ranges: Sequence[OffsetRange]) -> Sequence[HeldRange]:
        """Return what published batches hold of these offsets, in the order of offsets."""

    def find_published(self, batch: Batch) -> Sequence[HeldRange]:
        """Return what other live batches of its epoch have published of the ranges of a batch, in order.

        The database refuses to publish these offsets once more (I2); this says it earlier.
        """

    def find_quarantined(self, pipeline: str, ranges: Sequence[OffsetRange] | None) -> Sequence[QuarantinedRecord]:
        """Return which records of the ranges are in quarantine, of all offsets when it is None; in their order."""

    def drop_quarantined(self, pipeline: str, ranges: Sequence[OffsetRange], decision: Decision) -> int:
        """Remove the records of the ranges from quarantine for good; return how many there were.

        The balances keep them as quarantined, and the ledger keeps who dropped them. Nothing is recorded when there
        was none.
        """

    def end_dry_run(self, batch_id: int) -> None:
        """Discard the batch of a dry run; harmless to repeat. Any other batch stays as it is."""

    def store_first_positions(self, pipeline: str, positions: Sequence[Position]) -> None:
        """Store where a pipeline starts in partitions that it has no position for; others are left as they are."""

    def note_held_back(self, pipeline: str, stable_offset_by_partition: Mapping[TopicPartition, int]) -> None:
        """Remember where open transactions hold records back now, and since when they do at this very offset.

        What was remembered of the pipeline's other partitions is forgotten. Never waits for a publication: a partition
        that one is moving is left as it is, for the next plan.
        """

    def open_attempt(self, batch_id: int, run: str) -> Attempt:
        """Take the batch over: the next attempt number, state planned. Fences every earlier attempt (I4).

        Raises FencedError when the batch is published or discarded already.
        """

    def mark_failed(self, attempt: Attempt, reason: str) -> None:
        """Record why an attempt ended; the batch stays as it is. Does nothing to an attempt that has ended already."""

    def find_failure(self, batch: Batch) -> str | None:
        """Return the reason with which the newest attempt of the batch was marked failed; None when it was not."""

    def mark_staged(self, attempt: Attempt, staged: Staged) -> None:
        """Record that staging is complete and sealed. Raises FencedError."""

    def load_reported_rows(self, attempt: Attempt) -> int:
        """Return what ``mark_staged`` recorded."""

    def record_audit(
        self,
        attempt: Attempt,
        balances: Sequence[Balance],
        checks: Sequence[CheckResult],
        expected: BatchState = BatchState.STAGED,
    ) -> Batch:
        """Store balances and results; the batch becomes audited, or blocked when a check failed (``blocks``).

        It is staged, again if need be, when a critical check could not run. The results of an earlier audit of the
        attempt are replaced.

        ``expected`` is the state that the batch has to be in: an audited one may be audited again, and gets the new
        numbers in place of the old ones. Raises FencedError.
        """

    def block(self, attempt: Attempt, refusal: CheckResult) -> Batch:
        """Let the audited batch wait for a person, because of what became known only after its audit.

        Raises FencedError when the batch is not audited, or is another attempt's.
        """

    def has_rows(self, batch_id: int) -> bool:
        """Whether rows of the batch have been committed, by whichever attempt."""

    def load_checks(self, batch_id: int) -> Sequence[CheckResult]:
        """Return the results of the newest audit of the batch."""

    def publication(
        self, attempt: Attempt, expected: BatchState = BatchState.AUDITED
    ) -> AbstractContextManager[Publication]:
        """Open a publishing transaction; commits on a normal exit, rolls back on any error (I3).

        ``expected`` is the state that the batch has to be in. Raises FencedError when another attempt owns the batch,
        BatchBlockedError when it is blocked, and OutcomeUnknownError when the connection is lost while committing.
        """


class Decisions(Protocol):
    """What a person changes in the ledger. Each method is one transaction, which also stores who decided it and why.

    Takes the same locks as a publication, so that a decision comes before it or after it, never in between. Repeating
    a decision that stands changes nothing. Raises what Ledger does.
    """

    @property
    def rehearsal(self) -> "Decisions":
        """The same decisions, none of which is kept: a dry run."""

    @property
    def is_kept(self) -> bool:
        """Whether decisions are kept; False in a rehearsal."""

    def load_epoch(self, pipeline: str) -> int:
        """Return how often the pipeline was rewound."""

    def load_held(self, pipeline: str) -> Sequence[OffsetRange]:
        """Return the offsets that published batches hold, in order."""

    def load_balances(self, batch_id: int) -> Sequence[Balance]:
        """Return the accounting of the newest audit; a range that none has accounted for is left out."""

    def load_decisions(self, batch_id: int) -> Sequence[DecisionRecord]:
        """Return what was decided about a batch, in order."""

    def find_pause(self, pipeline: str) -> DecisionRecord | None:
        """Return the decision that has paused the pipeline; None when it runs."""

    def find_given_up(self, pipeline: str, ranges: Sequence[OffsetRange], kind: DecisionKind) -> DecisionRecord | None:
        """Return the decision by which exactly these ranges were given up in the present epoch."""

    def give_up(
        self,
        pipeline: str,
        ranges: Sequence[OffsetRange],
        kind: DecisionKind,
        decision: Decision,
        *,
        first_positions: Sequence[Position] = (),
        discard: int | None = None,
    ) -> Decided:
        """Account for ranges that nobody will read, as a published batch without rows; move only these positions.

        ``first_positions`` are stored first, where there is none yet.

        An open batch that was planned over one of these partitions is discarded: what is left of it is planned again.
        One that has been staged only when ``discard`` is its id, and never one whose rows are visible already
        (at_least_once): DecisionRefusedError. Raises PositionConflictError when a range does not start at the stored
        next offset.
        """

    def accept(self, attempt: Attempt, decision: Decision) -> Decided:
        """Let the blocked attempt be published as it is; what its balance leaves unexplained is an accepted loss.

        Also an audited one that is between its two commits. Raises FencedError when the batch is neither, or is another
        attempt's by now, and DecisionRefusedError when something is counted twice.
        """

    def trigger(self, batch_id: int, decision: Decision) -> Decided:
        """Record who triggered the run that takes the open batch, and why; the same decision once a batch.

        Nothing is recorded about a batch that is published or discarded.
        """

    def discard(self, batch_id: int, decision: Decision) -> Decided:
        """Close an open batch and fence its attempts. Raises DecisionRefusedError when it is published.

        Also when its rows are visible already, because at_least_once commits them first.
        """

    def retake(self, batch_id: int, run: str, decision: Decision) -> Decided:
        """Record that a run takes an open batch again. Raises FencedError when it is published or discarded."""

    def rewind(
        self, pipeline: str, rewind: ResolvedRewind, decision: Decision, truncate: Truncate | None = None
    ) -> Decided:
        """Open the next epoch: named partitions go back, the others begin it where they stand.

        The open live batch is discarded. With ``truncate`` the target is emptied by it in the same transaction, and
        batches, quarantine and the list of duplicates hold nothing any more. Raises PositionConflictError when somebody
        else has rewound the pipeline since the rewind was resolved, or the target has come to hold rows that would go
        unseen (``rewind.require_checked``).
        """

    def pause(self, pipeline: str, decision: Decision) -> Decided:
        """Let nothing new be planned; attempts of batches that are planned go on."""

    def resume(self, pipeline: str, decision: Decision) -> Decided:
        """End a pause."""


class EvidenceWriter(Protocol):
    """Writes from inside Spark tasks what Kafka returned; pickled to the executors."""

    def write(
        self,
        reader: int,
        visible: Sequence[OffsetRange],
        quarantined: "pa.Table | None",
        tombstones: Sequence[OffsetRange] = (),
    ) -> None:
        """Write the offsets that were seen and the records that could not be decoded, all or nothing.

        ``tombstones`` are those of ``visible`` that were skipped because they have no value.

        Called once a reading task has come to its end; ``reader`` is the number of its part of the read.
        Repeating it changes nothing, so a repeated task attempt does no harm. ``quarantined`` has the schema
        ``quarantine.QUARANTINE_SCHEMA``.
        """


class Evidence(Protocol):
    """What the reading tasks witnessed: which offsets Kafka returned, and the records to be quarantined.

    Kept in the ledger's database whatever the sink is, apart from the rows, so that a lost row cannot take its own
    evidence with it.
    """

    def open(self, attempt: Attempt) -> EvidenceWriter:
        """Create empty evidence for exactly this attempt."""

    def summarise(self, attempt: Attempt) -> Sequence[WitnessedRange]:
        """Return one entry per range of the batch, in their order."""

    def count_finished(self, attempt: Attempt) -> int:
        """Return how many parts of the read came to their end."""

    def find_holes(self, attempt: Attempt) -> Sequence[OffsetRange]:
        """Return the maximal stretches of offsets for which no record was seen, in order."""

    def read_quarantine(self, batch: Batch) -> "pa.Table":
        """Return the published quarantine of the ranges of the batch, with the columns of ``QUARANTINE_SCHEMA``."""

    def set_aside(self, attempt: Attempt, failed: Sequence[FailedRecord], records: "pa.Table") -> Sequence[OffsetRange]:
        """Add records whose rows fail checks to the staged quarantine; ``records`` are as ``read_records`` gives them.

        All or nothing: returns the offsets that ``records`` lacks, and then nothing was written. Repeating it changes
        nothing, also at the same time.
        """

    def list_set_aside(self, attempt: Attempt) -> Sequence[FailedRecord]:
        """Return the records that were set aside because of checks, in the order of offsets."""

    def drop(self, attempt: Attempt) -> None:
        """Remove the evidence of this attempt and of every earlier one of its batch; harmless to repeat."""


class StagingWriter(Protocol):
    """Writes rows from inside Spark tasks; pickled to the executors."""

    def write(self, task: int, batches: "Iterator[pa.RecordBatch]") -> int:
        """Write the rows of one task in one transaction, return how many. ``task`` tells repeated attempts apart."""


class StagedRows(Protocol):
    """The sealed rows of an attempt in one judgement. Changes nothing (I6).

    Which of them are duplicates was found once, as they were opened, so that what is checked and what is counted agree
    whatever other batches do meanwhile. A publication that finds other duplicates refuses.
    """

    def show(self) -> RowsToCheck:
        """Return the rows that would be published, for checks; nothing can be changed through it, nor is left of it."""

    def summarise(self) -> Sequence[StagedRange]:
        """Aggregate the rows, one entry per range of the batch, in their order."""

    def count_numbers(self) -> NumberFacts | None:
        """Judge the producers' numbering of a live batch by what was seen before; None without a sequence.

        What ``publish`` would drop as a duplicate does not count.
        """


class Sink(Protocol):
    """Where rows go: first to the staging of an attempt, which nobody sees, then to the target."""

    def open_staging(self, attempt: Attempt, schema: "pa.Schema") -> StagingWriter:
        """Create empty staging for exactly this attempt.

        Raises TargetChangedError when the target cannot take the rows, ConfigurationError when a key column is missing.
        """

    def seal_staging(self, attempt: Attempt, accepted_tasks: Sequence[int]) -> None:
        """Keep the rows of the accepted tasks only, and make later writes of zombie tasks impossible (S75)."""

    def read_staged(self, attempt: Attempt) -> AbstractContextManager[StagedRows]:
        """Open the sealed rows for one judgement. Raises StagingLostError."""

    def find_offenders(
        self, attempt: Attempt, checks: Collection[IntegrityCheck], limit: int
    ) -> Mapping[IntegrityCheck, Sequence[Offender]]:
        """Return up to ``limit`` records for each of ``checks`` that is about rows; nothing is asked about others."""

    def withdraw(self, publication: Publication, replaced: Sequence[HeldRange]) -> Sequence[int]:
        """Remove every row of the batch's ranges, before ``publish`` writes the new ones (I8).

        Its own are among them when an earlier commit of it has written them, at least once.
        Returns, for each of ``replaced``, how many different offsets of it had a row. Readers see old rows or new ones,
        never neither, because both steps are in one transaction.
        """

    def remove_staged(self, attempt: Attempt, records: Sequence[OffsetRange]) -> None:
        """Remove the staged rows of these offsets, which were set aside; harmless to repeat."""

    def count_held(self, held: Sequence[HeldRange]) -> Sequence[int]:
        """Return, for each, how many rows of that batch the target has there."""

    def compare(self, attempt: Attempt, limit: int) -> Comparison:
        """Say what publishing the sealed rows as a replay would do to the rows of the target. Changes nothing (I6).

        Names up to ``limit`` rows that would change. Raises TargetRefusedError where ``publish`` would, as far as it
        can be known without writing to the target.
        """

    def check(self, publication: Publication) -> None:
        """Raise what ``publish`` would raise now, and leave nothing of it behind."""

    def publish(self, publication: Publication) -> int:
        """Make the accepted rows of the attempt visible within the publication; return their number.

        Duplicates are dropped and listed, and the message keys are remembered, in the same transaction. A row that an
        earlier attempt of the batch has made visible, as its message key tells, is left as it is and counted with the
        others. Raises StagingLostError or AuditOutdatedError when the rows are not those that were audited, and
        TargetRefusedError.
        """

    def remember_numbers(self, publication: Publication) -> None:
        """Let later batches know the numbers of this one, whose rows are visible, within the publication.

        Does nothing for a replay, and without a sequence. Raises StagingLostError when the rows are not those that were
        audited.
        """

    def truncate(self, access: TargetAccess) -> int:
        """Remove every row of the target and what is remembered of keys; return how many rows there were.

        Readers wait, and then see an empty table, also those whose snapshot is older. Raises TargetChangedError when
        the table is not the pipeline's own.
        """

    def drop_staging(self, attempt: Attempt) -> None:
        """Remove the staging of this attempt and of every earlier one of its batch; harmless to repeat.

        What a task is still writing to is left: its attempt is over, nobody reads it.
        """

    def count_target(
        self, pipeline: str, within: Sequence[OffsetRange] | None = None
    ) -> Mapping[tuple[int, TopicPartition], TargetCount]:
        """Return what the target holds of the pipeline, by batch id and partition.

        ``within`` are ranges that do not overlap: only their offsets are counted, and no repeated keys.
        """


class Stager(Protocol):
    """Reads exactly the stored ranges and writes them to staging."""

    def stage(self, attempt: Attempt) -> Staged:
        """Read, decode, transform, write and seal. Raises StagingError or ServiceUnavailableError, both retryable."""


class Auditor(Protocol):
    """Judges facts. Never changes data (I6)."""

    def judge(self, facts: BatchFacts) -> Sequence[CheckResult]:
        """Return one result per check, in one order. A check that cannot run is ``not_run``; it never passes."""


class Incidents(Protocol):
    """Incidents, and the outbox of what is to be told of them. Every method is one transaction.

    ``now`` is when the caller looked. Raises what Ledger does.
    """

    def load_facts(self, pipeline: str) -> StoredFacts:
        """Return what the ledger says of the pipeline, as of one moment; of an unknown one that there is nothing.

        The cost does not depend on how many batches there have been.
        """

    def settle(
        self,
        pipeline: str,
        findings: Findings,
        channels: Sequence[str],
        now: datetime,
    ) -> Settlement:
        """Store what ``incidents.settle`` makes of a look, and for each channel what is to be told (an outbox).

        Two looks at a pipeline are settled one after the other. A channel that was named after an incident had begun is
        told of it while it goes on. An end is told through the channels that are told of the opening; where nobody was
        to be told of that yet (``incidents.wait_before``), nobody is told of either.
        """

    def claim(self, pipeline: str, channel: str, now: datetime) -> Notification | None:
        """Return the oldest unsent notification that is due, and put its next try off (``incidents.wait_after``).

        Two callers never get the same one at the same time. Of one incident the end comes after the opening.
        """

    def mark_sent(self, notification: Notification, now: datetime) -> None:
        """Record the delivery. What else the channel has of the pipeline is due now: it works again."""

    def mark_failed(self, notification: Notification, error: str, now: datetime) -> None:
        """Record why a try failed, unless it was delivered after all.

        One that ``is_old`` is given up where the channel has delivered something of the pipeline since; where it has
        not, it is down, and gets everything when it works again.
        """

    def find_failures(self, pipeline: str, channels: Sequence[str]) -> Sequence[ChannelFailure]:
        """Return which of the channels have something unsent that was tried and failed, in the order of names."""

    def list_open(self, pipeline: str) -> Sequence[Incident]:
        """Return the incidents that are not over, the oldest first."""


class Channel(Protocol):
    """Something that carries messages to people."""

    def send(self, message: Message) -> None:
        """Deliver a message. Raises ChannelError, whose text holds no secret."""


class RowChecks(Protocol):
    """Judges the rows that would be published, as the pipeline file asks for. Never changes data (I6)."""

    @property
    def recent_batches(self) -> int:
        """How many earlier batches the checks compare with."""

    def require_usable(self) -> None:
        """Raise ConfigurationError, with the name of the check, when one of them cannot be judged on any rows."""

    def judge(self, rows: RowsToCheck, batch: CheckedBatch) -> Sequence[JudgedCheck]:
        """Return one entry per check, in their order; those that compare batches judge live ones only.

        A check that cannot run is ``not_run``, and one without anything to judge is ``empty``. Results hold no values
        of records.
        """
