"""What judges a batch."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from batchledger.model.attempt_facts import AttemptFacts
from batchledger.model.batch import Batch
from batchledger.model.checks import CheckResult, JudgedCheck
from batchledger.ports.sink import RowsToCheck


@dataclass(frozen=True, slots=True)
class RecentBatch:
    """A published live batch: how many rows it had, and what checks have observed of it, by their names.

    ``gave_up``: an attempt of it has given up a stream.
    """

    batch_id: int
    accepted: int
    observed: Mapping[str, Mapping[str, Any]]
    gave_up: bool = False


@dataclass(frozen=True, slots=True)
class CheckedBatch:
    """What checks that compare batches need to know of one: what was read of it, and the batches before, newest first.

    ``visible`` counts its records, ``quarantined`` the ones that are set aside.
    """

    batch: Batch
    visible: int
    quarantined: int
    recent: Sequence[RecentBatch] = ()


class Auditor(Protocol):
    """Judges facts. Never changes data (I6)."""

    def judge(self, facts: AttemptFacts) -> Sequence[CheckResult]:
        """Return one result per check, in one order. A check that cannot run is ``not_run``; it never passes."""


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
