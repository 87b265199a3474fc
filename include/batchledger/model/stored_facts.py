"""The facts that alerts need from the ledger, about one pipeline at one moment."""

from dataclasses import dataclass
from datetime import datetime

from batchledger.model.batch import Batch, BatchState, Step
from batchledger.model.checks import CheckResult, Outcome
from batchledger.model.incidents import Key
from batchledger.model.records.quarantine import NOTHING, QuarantineContent


@dataclass(frozen=True, slots=True)
class JudgedBatch:
    """One batch with the checks of its newest judged attempt, ``judged_attempt``.

    ``failures_in_a_row`` counts the newest attempts that failed or were superseded, up to the last one with a result;
    an attempt at work does not count. ``blocked_since`` is when an attempt was blocked last. ``is_accepted``: a person
    has accepted the judged attempt as it is. ``failed_step`` is the step of the newest error.
    """

    batch: Batch
    checks: tuple[CheckResult, ...] = ()
    judged_attempt: int | None = None
    failures_in_a_row: int = 0
    blocked_since: datetime | None = None
    is_accepted: bool = False
    failed_step: Step | None = None

    @property
    def is_taken_again(self) -> bool:
        """Whether a newer attempt was opened, and is not judged yet."""
        return self.judged_attempt is not None and self.judged_attempt < self.batch.attempt

    @property
    def is_blocked(self) -> bool:
        """Whether the batch is blocked, or was until a new attempt took it again that is not judged yet."""
        is_bad = any(each.blocks and each.outcome is Outcome.FAILED for each in self.checks)
        return self.batch.state is BatchState.BLOCKED or (self.is_taken_again and is_bad and not self.is_accepted)


@dataclass(frozen=True, slots=True)
class OpenIncident:
    """An incident that is not over, with the present state of its batch, if it is about one."""

    key: Key
    batch_id: int | None = None
    batch_state: BatchState | None = None
    is_accepted: bool = False


@dataclass(frozen=True, slots=True)
class StoredFacts:
    """The open batches of both lanes without dry runs, and the newest published one of each lane.

    ``published_at`` is when a live batch was published last. ``known_since`` is when the pipeline first planned.
    """

    open_batches: tuple[JudgedBatch, ...] = ()
    newest_published: tuple[JudgedBatch, ...] = ()
    published_at: datetime | None = None
    known_since: datetime | None = None
    open_incidents: tuple[OpenIncident, ...] = ()
    quarantine: QuarantineContent = NOTHING
