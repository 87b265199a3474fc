"""The result of a check of a batch: its outcome, how much it matters, and who asked for it. Pure; no I/O.

A failed check of severity ``critical`` follows its policy: keep the batch invisible, set the failing rows aside, or
publish and report. ``warning`` is reported, ``info`` only recorded. A check that could not run has neither passed nor
failed. A check that found nothing to judge has not passed.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Self

from typing_extensions import override

from batchledger.model.counting import describe_count
from batchledger.model.offsets import OffsetRange, TopicPartition, merge_ranges

# The name of the check that fails if the target refuses the rows of a batch.
ACCEPTED_BY_TARGET = "accepted_by_target"

MOST_COMPARED = 1_000
"""With how many batches before it a check compares a batch at most."""


class IntegrityCheck(StrEnum):
    """The checks that batches have to pass, by the names under which results are stored.

    Only live batches are checked for position, published offsets and numbers: a replay takes over what others hold.
    Messages and numbers are checked if the pipeline asks for it, and unknown fields unless it ignores them or sets
    their records aside. Deletions are checked if a table holds one row for each key. The limit of quarantine applies to
    batches that are read from Kafka: a replay of quarantine cannot add to it.

    ``promise`` is what holds if the check passes. ``failure`` is what is wrong otherwise, with a number as ``{total}``.
    """

    promise: str
    failure: str

    def __new__(cls, name: str, promise: str = "", failure: str = "") -> Self:
        """Return the name, with the promise and the failure of the check."""
        check = str.__new__(cls, name)
        check._value_, check.promise, check.failure = name, promise, failure
        return check

    NO_DUPLICATE_OFFSETS = (
        "no_duplicate_offsets",
        "Each (topic, partition, offset) is staged once.",
        "rows that repeat an offset staged already: {total}",
    )
    NO_ROWS_OUTSIDE_RANGES = (
        "no_rows_outside_ranges",
        "Staging holds rows of the batch's ranges only.",
        "rows outside of the batch's ranges: {total}",
    )
    NO_UNEXPLAINED_HOLES = (
        "no_unexplained_holes",
        "Every offset of the ranges has a visible record, or the pipeline declares such holes.",
        "offsets without a visible record, which source.holes does not allow for: {total}",
    )
    BALANCE_CLOSES = (
        "balance_closes",
        "until - start = accepted + duplicates + quarantined + tombstones + filtered + holes + accepted loss.",
        "the balance does not close; offsets unaccounted for: {total:+d}",
    )
    RANGES_MEET_POSITION = (
        "ranges_meet_position",
        "Each range starts at the stored next offset.",
        "ranges do not start at the stored position; offsets apart: {total:+d}",
    )
    NO_PUBLISHED_OFFSETS = (
        "no_published_offsets",
        "No other live batch of the epoch has published an offset of the ranges.",
        "offsets published already: {total}",
    )
    STAGED_AS_REPORTED = (
        "staged_as_reported",
        "Staging holds as many rows as the writing tasks reported.",
        "rows that the writing tasks reported and rows staged differ by {total:+d}",
    )
    NO_DUPLICATE_MESSAGES = (
        "no_duplicate_messages",
        "No record repeats a message, of this batch or of an earlier one.",
        "records that repeat a message, while dedupe.duplicates is block: {total}",
    )
    NO_MISSING_NUMBERS = (
        "no_missing_numbers",
        "No number is missing between those that the batch brings and those that were seen before.",
        "numbers missing in what the producers have numbered: {total}",
    )
    NO_REPEATED_NUMBERS = (
        "no_repeated_numbers",
        "No record has a number that was seen before.",
        "records whose number was seen before: {total}",
    )
    DELETIONS_FIND_ROWS = (
        "deletions_find_rows",
        "Each record that deletes a key finds its row, or the key is deleted already.",
        "records that delete a key which the table does not have: {total}",
    )
    NO_UNKNOWN_FIELDS = (
        "no_unknown_fields",
        "No record has a field that source.schema does not declare.",
        "records with fields that source.schema does not declare: {total}",
    )
    QUARANTINE_WITHIN_LIMIT = (
        "quarantine_within_limit",
        "No more of the records are quarantined than quarantine.max_share allows.",
        "too many of the records would be quarantined: {total}",
    )


def sort_causes_first(checks: Iterable["CheckResult"]) -> list["CheckResult"]:
    """Return checks with ``balance_closes`` last: the others say why it fails."""
    return sorted(checks, key=lambda each: each.name == IntegrityCheck.BALANCE_CLOSES)


CHECKS_OF_NUMBERS = frozenset({IntegrityCheck.NO_MISSING_NUMBERS, IntegrityCheck.NO_REPEATED_NUMBERS})
CHECKS_OF_BATCH = CHECKS_OF_NUMBERS | {
    IntegrityCheck.QUARANTINE_WITHIN_LIMIT,
    IntegrityCheck.NO_UNKNOWN_FIELDS,
    IntegrityCheck.DELETIONS_FIND_ROWS,
}
"""Checks of the batch as a whole: none of its ranges is at fault."""

CHECKS_NEVER_ACCEPTED = frozenset(
    {
        IntegrityCheck.NO_DUPLICATE_OFFSETS,
        IntegrityCheck.NO_ROWS_OUTSIDE_RANGES,
        IntegrityCheck.RANGES_MEET_POSITION,
        IntegrityCheck.NO_PUBLISHED_OFFSETS,
        IntegrityCheck.STAGED_AS_REPORTED,
    }
)
"""These find wrong rows, or rows that are missing in staging only. No person may accept that."""


class Severity(StrEnum):
    """What a failed check does: keep the batch invisible, raise an alert, or be recorded only."""

    CRITICAL = "critical"
    WARNING = "warning"
    INFO = "info"


class OnFailure(StrEnum):
    """What a failed critical check does: keep the batch invisible, set its failing rows aside, or only report."""

    BLOCK = "block"
    QUARANTINE = "quarantine"
    PUBLISH = "publish"


class Outcome(StrEnum):
    """``not_run``: the check itself broke, which says nothing about the data. ``empty``: there was no row to judge."""

    PASSED = "passed"
    FAILED = "failed"
    NOT_RUN = "not_run"
    EMPTY = "empty"


class Suite(StrEnum):
    """Who asked for the check: the platform (for every batch), the pipeline's file, or the audit of the ledger.

    A look at a watched table audits as the last one does.
    """

    INTEGRITY = "integrity"
    PIPELINE = "pipeline"
    LEDGER = "ledger"


@dataclass(frozen=True, slots=True)
class Offender:
    """Offsets that a failed check names, and their fault: ``orders[3]@1200 (repeats orders[0]@7)``."""

    offsets: OffsetRange
    note: str = ""

    @override
    def __str__(self) -> str:
        is_single = len(self.offsets) == 1
        place = f"{self.offsets.partition}@{self.offsets.start}" if is_single else str(self.offsets)
        return f"{place} ({self.note})" if self.note else place


@dataclass(frozen=True, slots=True)
class RequestedCheck:
    """A check that a pipeline file asks for.

    ``name`` is unique within the pipeline, such as ``expect_column_values_to_not_be_null(carrier)``. ``type`` is one of
    Great Expectations, one of Batchledger, or ``module:Class``.
    """

    name: str
    type: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    severity: Severity = Severity.CRITICAL
    on_failure: OnFailure = OnFailure.BLOCK


_EXAMPLES = ", for example {}"
_SEE_RECORDS = ". See the records with: {}"


@dataclass(frozen=True, slots=True)
class CheckResult:
    """One judged check. ``detail`` gives numbers and example coordinates, for people to read.

    ``on_failure`` is what its failure has done: ``BLOCK`` if rows should have been set aside and could not be.
    ``validation`` is the result of the expectation as Great Expectations serialises it, without values of records.
    """

    name: str
    outcome: Outcome
    detail: str
    observed: Mapping[str, Any] = field(default_factory=dict)
    severity: Severity = Severity.CRITICAL
    suite: Suite = Suite.INTEGRITY
    validation: Mapping[str, Any] | None = None
    on_failure: OnFailure = OnFailure.BLOCK

    @property
    def passed(self) -> bool:
        """Whether the check ran, had something to judge, and found nothing."""
        return self.outcome is Outcome.PASSED

    @property
    def blocks(self) -> bool:
        """Whether the check keeps the batch invisible."""
        is_fault = self.outcome is Outcome.FAILED and self.on_failure is OnFailure.BLOCK
        return self.severity is Severity.CRITICAL and (is_fault or self.outcome is Outcome.NOT_RUN)

    @property
    def public_detail(self) -> str:
        """The detail without the words of a table that refuses rows: these may quote a record."""
        if self.name == ACCEPTED_BY_TARGET:
            rows = ", ".join(self.observed.get("coordinates", ())) or "the rows"
            return f"the table refuses {rows}; its words are in the output of the command"
        return self.detail

    def take_apart(self) -> tuple[str, Sequence[str], str]:
        """Return the public detail, the example coordinates in it, and the command in it: for lines of their own.

        What ``with_offenders`` puts together. A detail without them is whole.
        """
        detail, examples, command = self.public_detail, self.observed.get("coordinates", ()), ""
        if asked := self.observed.get("command"):
            rest = detail.removesuffix(_SEE_RECORDS.format(asked))
            command, detail = ("", detail) if rest == detail else (asked, rest)
        rest = detail.removesuffix(_EXAMPLES.format(", ".join(examples)))
        return (detail, (), command) if rest == detail else (rest, examples, command)

    def with_note(self, note: str) -> "CheckResult":
        """Return the result with a note at the end of its detail; an empty note changes nothing."""
        return replace(self, detail=f"{self.detail.removesuffix('.')}; {note}") if note else self

    def with_observed(self, **numbers: Any) -> "CheckResult":
        """Return the result with more observed numbers."""
        return replace(self, observed={**self.observed, **numbers})

    def with_coordinates(self, coordinates: Sequence[str]) -> "CheckResult":
        """Return the result with example coordinates such as ``orders[3]@1200`` in its detail."""
        if not coordinates:
            return self
        detail = self.detail + _EXAMPLES.format(", ".join(coordinates))
        return replace(self, detail=detail).with_observed(coordinates=list(coordinates))

    def with_offenders(self, pipeline: str, offenders: Sequence[Offender]) -> "CheckResult":
        """Return the result with example offsets, and with the command that shows the records there."""
        if not offenders:
            return self
        command = show_records(pipeline, [each.offsets for each in offenders])
        named = self.with_coordinates([str(each) for each in offenders])
        detail = named.detail + _SEE_RECORDS.format(command)
        return replace(named, detail=detail).with_observed(command=command)


def show_records(pipeline: str, ranges: Sequence[OffsetRange]) -> str:
    """Return the command that shows the records of the ranges: ``batchledger records orders "orders[3] 7..8"``."""
    return " ".join(["batchledger records", pipeline, *(f'"{each}"' for each in merge_ranges(ranges))])


@dataclass(frozen=True, slots=True)
class JudgedCheck:
    """A result, some failing rows as examples, and all failing rows if they are to be set aside.

    ``has_more``: more rows fail than ``failing`` names.
    """

    result: CheckResult
    examples: tuple[Offender, ...] = ()
    failing: tuple[OffsetRange, ...] = ()
    has_more: bool = False

    def name_examples(self, pipeline: str) -> CheckResult:
        """Return the result with the examples in its detail."""
        return self.result.with_offenders(pipeline, self.examples)


@dataclass(frozen=True, slots=True)
class FailedRecord:
    """A record whose row fails checks, and their names."""

    partition: TopicPartition
    offset: int
    checks: tuple[str, ...]

    @property
    def range(self) -> OffsetRange:
        """Its offset alone."""
        return OffsetRange(self.partition, self.offset, self.offset + 1)

    @property
    def reason(self) -> str:
        """The text beside the record in quarantine."""
        return f"check {', '.join(self.checks)}: the row does not pass it"


def list_failed(judged: Sequence[JudgedCheck]) -> tuple[FailedRecord, ...]:
    """Return each record that checks set aside, once, with the names of these checks in their order."""
    names: dict[tuple[TopicPartition, int], list[str]] = {}
    for each in judged:
        for range_ in each.failing:
            for offset in range(range_.start, range_.until):
                names.setdefault((range_.partition, offset), []).append(each.result.name)
    return tuple(FailedRecord(*place, tuple(checks)) for place, checks in sorted(names.items()))


def describe_outcomes(checks: Sequence[CheckResult]) -> str:
    """Say how many checks have passed, how many had something to judge, and how many had nothing.

    Example: ``5 of 5 checks passed, 2 had nothing to judge``.
    """
    empty = sum(each.outcome is Outcome.EMPTY for each in checks)
    judged = describe_count(len(checks) - empty, "check")
    aside = f", {empty:,} had nothing to judge" if empty else ""
    return f"{sum(each.passed for each in checks):,} of {judged} passed{aside}"


def find_unjudged(checks: Sequence[CheckResult]) -> tuple[CheckResult, ...]:
    """Return the critical checks that could not run; none if another check keeps the batch invisible anyway."""
    blocking = [each for each in checks if each.blocks]
    if any(each.outcome is Outcome.FAILED for each in blocking):
        return ()
    return tuple(blocking)


def permit_publication(checks: Sequence[CheckResult]) -> bool:
    """Whether the checked rows may become visible. Without any check they may not."""
    return bool(checks) and not any(each.blocks for each in checks)
