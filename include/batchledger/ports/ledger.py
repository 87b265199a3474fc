"""The ledger: plans, attempts, audits, positions, and what people decide about them."""

from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

from batchledger.model.balance import Balance
from batchledger.model.batch import (
    Attempt,
    Batch,
    BatchState,
    Decided,
    Decision,
    DecisionKind,
    DecisionRecord,
    HeldRange,
    Position,
    QuarantinedRecord,
    Staged,
    StepFailure,
    Target,
)
from batchledger.model.checks import CheckResult
from batchledger.model.effects import Effect
from batchledger.model.erasure import ErasureKey
from batchledger.model.offsets import OffsetRange, TopicPartition
from batchledger.model.records.comparison import DryRunOutcome
from batchledger.model.records.quarantine import QuarantineContent
from batchledger.model.records.times import RecordTimes, TimedRange, TimeSpan
from batchledger.planning.batch_size import Pace
from batchledger.planning.live import Plan
from batchledger.planning.rewind import ResolvedRewind
from batchledger.ports.checks import RecentBatch
from batchledger.ports.publication import EraseRows, Publication, Truncate


class Ledger(Protocol):
    """The control table: plans, attempts, positions, balances, results. Every method is one transaction.

    Raises ServiceUnavailableError when the database does not answer, UnknownBatchError for ids that do not exist.
    """

    def load_positions(self, pipeline: str) -> Sequence[Position]:
        """Return where the pipeline is, one position per partition it has ever planned; empty before the first."""

    def list_targets(self) -> Mapping[str, Target]:
        """Return what each pipeline has published to; one that has published nothing is absent."""

    def seconds_since_published(self, pipeline: str) -> float | None:
        """Return how long ago the pipeline last published, None when it never has."""

    def load_paces(self, pipeline: str, limit: int) -> Sequence[Pace]:
        """Return what the newest ``limit`` published live batches took, the newest first.

        Spans are left out, batches that no run executed (an accepted loss), those that waited for a person who accepted
        them, and those during which the clock was set back. The cost does not depend on how many batches there have
        been.
        """

    def load_recent(self, pipeline: str, limit: int) -> Sequence[RecentBatch]:
        """Return the newest ``limit`` published live batches, the newest first, without spans.

        Those that no run executed are left out, too. The cost does not depend on how many batches there have been.
        """

    def find_open_batch(self, pipeline: str) -> Batch | None:
        """Return the live batch that is neither published nor discarded; there is at most one."""

    def load_batch(self, batch_id: int, pipeline: str | None = None) -> Batch:
        """Return one batch with its ranges; with ``pipeline`` one of another is unknown, in the same words."""

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

    def find_times(self, pipeline: str, span: TimeSpan, within: Sequence[OffsetRange]) -> Sequence[TimedRange]:
        """Return what published batches hold that may have records of the span, in the order of offsets.

        These are the held offsets of ranges whose times meet the span, have not been noted though there are records, or
        leave out records without a timestamp; and of every range of which something is held ``within``.
        """

    def note_times(self, pipeline: str, times_by_range: Mapping[OffsetRange, RecordTimes]) -> None:
        """Keep the times of whole ranges that were published before the ledger kept any; others stay as they are."""

    def find_quarantined(self, pipeline: str, ranges: Sequence[OffsetRange] | None) -> Sequence[QuarantinedRecord]:
        """Return which records of the ranges are in quarantine, of all offsets when it is None; in their order."""

    def summarise_quarantine(self, pipeline: str) -> QuarantineContent:
        """Return what the pipeline has in quarantine. The cost grows with the kinds of error, not with the records."""

    def end_dry_run(self, batch_id: int, found: DryRunOutcome | None = None) -> None:
        """Discard the batch of a dry run, and keep what it has found; None when it has not come to its end.

        Harmless to repeat: a batch that is discarded already stays as it is, and so does any that is no dry run.
        """

    def store_first_positions(self, pipeline: str, positions: Sequence[Position]) -> None:
        """Store where a pipeline starts in partitions that it has no position for; others are left as they are."""

    def note_held_back(self, pipeline: str, stable_offset_by_partition: Mapping[TopicPartition, int]) -> None:
        """Remember where open transactions hold records back now, and since when they do at this very offset.

        What was remembered of the pipeline's other partitions is forgotten. Never waits for a publication: a partition
        that one is moving is left as it is, for the next plan.
        """

    def open_attempt(self, batch_id: int, run: str) -> Attempt:
        """Take the batch over: the next attempt number, state planned. Fences every earlier attempt (I4).

        Raises FencedError when the batch is published or discarded already, and OutcomePendingError when it is
        committing.
        """

    def add_columns(self, attempt: Attempt, names: Sequence[str]) -> None:
        """Let records of the pipeline be decoded with text columns for these fields, too, from now on.

        Those that are known stay as they are.
        """

    def list_added_columns(self, pipeline: str) -> Sequence[str]:
        """Return the names that ``add_columns`` has ever been given, the oldest first."""

    def mark_failed(self, attempt: Attempt, failure: StepFailure) -> None:
        """Record with which error a step has ended; the batch stays as it is.

        A stage step that failed ends its attempt. An audit or a publication may be repeated by the same attempt: its
        newest error is kept until a step succeeds. Does nothing to an attempt that has ended already. The whole text
        (``quoted``) is kept apart from the error, and for a limited time.
        """

    def find_failure(self, batch: Batch) -> StepFailure | None:
        """Return what the newest attempt of the batch was marked failed with, unless it has gone on since."""

    def mark_staged(self, attempt: Attempt, staged: Staged) -> None:
        """Record that staging is complete and sealed. Raises FencedError."""

    def load_staged(self, attempt: Attempt) -> Staged:
        """Return what ``mark_staged`` recorded, without the schema. Raises FencedError."""

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

    def block(self, attempt: Attempt, refusal: CheckResult, quoted: str = "") -> Batch:
        """Let the batch wait for a person, because its target, or the staging before it, does not take its rows.

        ``quoted`` is kept as for ``mark_failed``. Raises FencedError when the batch is neither planned nor staged nor
        audited, or is another attempt's.
        """

    def resume_commit(self, batch_id: int, run: str) -> Attempt:
        """Let a run go on with the batch that is ``committing``: its attempt is this run's now.

        Raises FencedError when the batch is in another state.
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
        BatchBlockedError when it is blocked and that was not expected, OutcomePendingError while another batch of the
        pipeline is committing, and OutcomeUnknownError when the connection is lost while committing.
        """


class Decisions(Protocol):
    """What a person changes in the ledger. Each method is one transaction, which also stores who decided it and why.

    No decision discards a batch that is committing: OutcomePendingError.

    Takes the same locks as a publication, so that a decision comes before it or after it, never in between. Repeating
    a decision that stands changes nothing. Raises what Ledger does.

    A decision with a ``request_id`` carries out that request. Each method raises DecisionRefusedError, and changes
    nothing, unless ``requests.require_confirmable`` lets it.
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

    def request(
        self, pipeline: str, order: Mapping[str, Any], decision: Decision, effect: Effect, batch_id: int | None = None
    ) -> Decided:
        """Record what a person asks for, with the effect that was shown; a second person has to confirm it.

        ``order`` is JSON, and its ``kind`` the kind of the decision that may carry it out. An open request for the same
        order with the same effect stands.
        """

    def find_end(self, request_id: int) -> DecisionRecord | None:
        """Return the decision that carried a request out or withdrew it; None while it is open."""

    def withdraw(self, request: DecisionRecord, decision: Decision) -> Decided:
        """End an open request. Raises DecisionRefusedError if it was confirmed."""

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
        """Account for ranges that no run will read, as a published batch without rows; move only these positions.

        ``first_positions`` are stored first, if there is none yet.

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
        batches, quarantine and the list of duplicates hold nothing any more. Raises PositionConflictError when another
        person has rewound the pipeline since the rewind was resolved, or the target has come to hold rows that would go
        unseen (``rewind.require_checked``).
        """

    def adopt_target(self, pipeline: str, target: Target, decision: Decision, proof: Effect) -> Decided:
        """Let the pipeline go on with a target that was restored, in the place of the one it has published to.

        ``proof`` is recorded with it: what was found in the target. Raises DecisionRefusedError when it is another
        pipeline's, or the pipeline has published nothing.
        """

    def pause(self, pipeline: str, decision: Decision) -> Decided:
        """Let nothing new be planned; attempts of batches that are planned go on. A retirement that stands stays."""

    def resume(self, pipeline: str, decision: Decision) -> Decided:
        """End a pause, or a retirement."""

    def retire(
        self, pipeline: str, decision: Decision, *, discard: Collection[int] = (), free_target: bool = False
    ) -> Decided:
        """Let nothing new be planned, and end every incident. ``resume`` takes the pipeline up again.

        With ``free_target``, another pipeline may take the target. Raises UnknownPipelineError if the ledger has
        nothing of the pipeline. Raises DecisionRefusedError while a batch is open that ``discard`` does not name, or
        whose rows are visible already, and if it names another one; OutcomePendingError while one is committing.
        """

    def rename(self, pipeline: str, to: str, decision: Decision) -> Decided:
        """Let all that the ledger has of the pipeline belong to another name, and nothing begin under the old one.

        Raises DecisionRefusedError if the ledger has the name already, if another pipeline had it before, or while a
        batch is open; UnknownPipelineError if the ledger has nothing of the pipeline; ConfigurationError if it has
        another name by now, or if the login is not the owner of the ledger.
        """

    def drop_quarantined(self, pipeline: str, ranges: Sequence[OffsetRange], decision: Decision) -> Decided:
        """Remove for good what quarantine has of the ranges; the balance keeps how many there were.

        The effect names exactly the records that leave. Raises OutcomePendingError while a batch is committing, which
        may be publishing them.
        """

    def erase(self, pipeline: str, key: ErasureKey, decision: Decision, erase: EraseRows) -> Decided:
        """Erase the rows of a key by ``erase``, and what quarantine and the errors of attempts hold of it, for good.

        The record holds no value of the key. The ``warning`` names records of quarantine and staging of other roles
        that may hold it: they stay. Raises DecisionRefusedError while a batch of the pipeline is open, a dry run
        included: its staging may hold the key. Raises it as well while a published batch may still write its rows.
        """
