"""What the ledger says of a pipeline at one moment, as the alerts need it."""

from dataclasses import dataclass
from datetime import datetime

from batchledger.batch import Batch
from batchledger.checking import CheckResult


@dataclass(frozen=True, slots=True)
class BatchFacts:
    """One batch with the checks of its present attempt.

    ``failures_in_a_row`` counts the newest attempts that failed or were superseded, up to the last one that came to a
    result; one that is at work does not count. ``is_accepted`` is whether a person has accepted the batch as it is.
    """

    batch: Batch
    checks: tuple[CheckResult, ...] = ()
    failures_in_a_row: int = 0
    blocked_since: datetime | None = None
    is_accepted: bool = False


@dataclass(frozen=True, slots=True)
class StoredFacts:
    """The open batches of both lanes without dry runs, the newest published live one, and when it was published."""

    open_batches: tuple[BatchFacts, ...] = ()
    newest_published: BatchFacts | None = None
    published_at: datetime | None = None
