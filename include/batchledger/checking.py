"""What a check said of a batch: its outcome, how much it matters, and who asked for it. Pure; no I/O.

A check of severity ``critical`` that failed keeps the batch invisible; ``warning`` and ``info`` are told and recorded.
A check that could not run is neither passed nor failed, and one that found nothing to judge has not passed.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any


class Severity(StrEnum):
    """What a failed check does: keep the batch invisible, raise an alert, or be recorded only."""

    CRITICAL = "critical"
    WARNING = "warning"
    INFO = "info"


class Outcome(StrEnum):
    """``not_run``: the check itself broke, which says nothing of the data. ``empty``: there was no row to judge."""

    PASSED = "passed"
    FAILED = "failed"
    NOT_RUN = "not_run"
    EMPTY = "empty"


class Suite(StrEnum):
    """Who asked for the check: the platform, of every batch, the pipeline's file, or the audit of the ledger."""

    INTEGRITY = "integrity"
    PIPELINE = "pipeline"
    LEDGER = "ledger"


@dataclass(frozen=True, slots=True)
class CheckResult:
    """One judged check. ``detail`` says the numbers and example coordinates, ready to be read by a person.

    ``validation`` is the result of the expectation as Great Expectations serialises it, without values of records.
    """

    name: str
    outcome: Outcome
    detail: str
    observed: Mapping[str, Any] = field(default_factory=dict)
    severity: Severity = Severity.CRITICAL
    suite: Suite = Suite.INTEGRITY
    validation: Mapping[str, Any] | None = None

    @property
    def passed(self) -> bool:
        """Whether the check ran, had something to judge, and found nothing."""
        return self.outcome is Outcome.PASSED

    @property
    def blocks(self) -> bool:
        """Whether the batch has to stay invisible because of it."""
        return self.severity is Severity.CRITICAL and self.outcome in (Outcome.FAILED, Outcome.NOT_RUN)

    def with_note(self, note: str) -> "CheckResult":
        """Return the result with a note at the end of its detail; an empty note changes nothing."""
        return replace(self, detail=f"{self.detail.removesuffix('.')}; {note}") if note else self

    def with_coordinates(self, coordinates: Sequence[str]) -> "CheckResult":
        """Return the result with example coordinates such as ``orders[3]@1200`` in its detail."""
        if not coordinates:
            return self
        detail = f"{self.detail}, for example {', '.join(coordinates)}"
        return replace(self, detail=detail, observed={**self.observed, "coordinates": list(coordinates)})


def permit_publication(checks: Sequence[CheckResult]) -> bool:
    """Whether what was checked may become visible; what nothing has judged may not."""
    return bool(checks) and not any(each.blocks for each in checks)
