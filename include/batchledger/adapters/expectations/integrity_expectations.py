"""The expectations of the integrity suite, as Great Expectations knows them: by a name, a description, rendered text.

Each is about one column of a small table of facts, a row per range, which is 0 when all is well. The facts are counts
and ranges: no value of a record is among them.
"""

from typing import Any, ClassVar, Self

from great_expectations.core import ExpectationValidationResult
from great_expectations.expectations.core import ExpectColumnValuesToBeInSet
from great_expectations.expectations.expectation_configuration import ExpectationConfiguration
from great_expectations.expectations.metadata_types import FailureSeverity
from great_expectations.render import LegacyDiagnosticRendererType
from great_expectations.render.renderer.renderer import renderer

from batchledger.adapters.expectations.promises import Promising, as_text
from batchledger.model.attempt_facts import AttemptFacts
from batchledger.model.checks import IntegrityCheck, Severity


class ExpectFactToBeZero(Promising, ExpectColumnValuesToBeInSet):
    """Each range has 0 of the fact.

    The first line of a class's text is its promise, which people read. ``fact`` is the column, ``check`` the name under
    which results are stored, ``failure`` what is wrong otherwise; ``{total}`` in it is the sum of the column.
    """

    fact: ClassVar[str]
    check: ClassVar[str]
    failure: ClassVar[str]

    @classmethod
    def of_facts(cls, severity: Severity = Severity.CRITICAL) -> Self:
        """Return the expectation about its column of the facts."""
        return cls(
            column=cls.fact,
            value_set=[0],
            description=cls.promise(),
            meta={"check": cls.check},
            severity=FailureSeverity(severity.value),
        )

    @classmethod
    @renderer(renderer_type=LegacyDiagnosticRendererType.UNEXPECTED_STATEMENT)
    def _diagnostic_unexpected_statement_renderer(
        cls,
        configuration: ExpectationConfiguration | None = None,
        result: ExpectationValidationResult | None = None,
        runtime_configuration: dict[str, Any] | None = None,
    ) -> list[Any]:
        """What Data Docs say of a failure: the numbers, in the words of the check."""
        if result is None or result.success or "observed_value" not in result.result:
            statement: list[Any] = super()._diagnostic_unexpected_statement_renderer(
                configuration, result, runtime_configuration
            )
            return statement
        return [as_text(cls.failure.format(total=result.result["observed_value"]), "text-danger")]

    @classmethod
    @renderer(renderer_type=LegacyDiagnosticRendererType.UNEXPECTED_TABLE)
    def _diagnostic_unexpected_table_renderer(
        cls,
        configuration: ExpectationConfiguration | None = None,
        result: ExpectationValidationResult | None = None,
        runtime_configuration: dict[str, Any] | None = None,
    ) -> None:
        """No table: the column's numbers say nothing without their ranges."""


class ExpectOffsetsToBeStagedOnce(ExpectFactToBeZero):
    """Each (topic, partition, offset) is staged once."""

    fact: ClassVar[str] = "extra_copies"
    check: ClassVar[str] = IntegrityCheck.NO_DUPLICATE_OFFSETS
    failure: ClassVar[str] = "rows that repeat an offset staged already: {total}"


class ExpectRowsToLieInRanges(ExpectFactToBeZero):
    """Staging holds rows of the batch's ranges only."""

    fact: ClassVar[str] = "outside"
    check: ClassVar[str] = IntegrityCheck.NO_ROWS_OUTSIDE_RANGES
    failure: ClassVar[str] = "rows outside of the batch's ranges: {total}"


class ExpectHolesToBeExplained(ExpectFactToBeZero):
    """Every offset of the ranges has a visible record, or the pipeline declares such holes."""

    fact: ClassVar[str] = "unexplained_holes"
    check: ClassVar[str] = IntegrityCheck.NO_UNEXPLAINED_HOLES
    failure: ClassVar[str] = "offsets without a visible record, which source.holes does not allow for: {total}"


class ExpectBalanceToClose(ExpectFactToBeZero):
    """until - start = accepted + duplicates + quarantined + tombstones + filtered + holes + accepted loss."""

    fact: ClassVar[str] = "unexplained"
    check: ClassVar[str] = IntegrityCheck.BALANCE_CLOSES
    failure: ClassVar[str] = "the balance does not close; offsets unaccounted for: {total:+d}"


class ExpectRangesToMeetPosition(ExpectFactToBeZero):
    """Each range starts at the stored next offset."""

    fact: ClassVar[str] = "distance_to_position"
    check: ClassVar[str] = IntegrityCheck.RANGES_MEET_POSITION
    failure: ClassVar[str] = "ranges do not start at the stored position; offsets apart: {total:+d}"


class ExpectOffsetsNotToBePublished(ExpectFactToBeZero):
    """No other live batch of the epoch has published an offset of the ranges."""

    fact: ClassVar[str] = "published"
    check: ClassVar[str] = IntegrityCheck.NO_PUBLISHED_OFFSETS
    failure: ClassVar[str] = "offsets published already: {total}"


class ExpectRowsToBeStagedAsReported(ExpectFactToBeZero):
    """Staging holds as many rows as the writing tasks reported."""

    fact: ClassVar[str] = "missing_of_reported"
    check: ClassVar[str] = IntegrityCheck.STAGED_AS_REPORTED
    failure: ClassVar[str] = "rows that the writing tasks reported and rows staged differ by {total:+d}"


class ExpectMessagesToComeOnce(ExpectFactToBeZero):
    """No record repeats a message, of this batch or of an earlier one."""

    fact: ClassVar[str] = "repeated_messages"
    check: ClassVar[str] = IntegrityCheck.NO_DUPLICATE_MESSAGES
    failure: ClassVar[str] = "records that repeat a message, while dedupe.duplicates is block: {total}"


class ExpectNumbersNotToBeMissing(ExpectFactToBeZero):
    """No number is missing between those that the batch brings and those that were seen before."""

    fact: ClassVar[str] = "missing_numbers"
    check: ClassVar[str] = IntegrityCheck.NO_MISSING_NUMBERS
    failure: ClassVar[str] = "numbers missing in what the producers have numbered: {total}"


class ExpectNumbersNotToRepeat(ExpectFactToBeZero):
    """No record has a number that was seen before."""

    fact: ClassVar[str] = "repeated_numbers"
    check: ClassVar[str] = IntegrityCheck.NO_REPEATED_NUMBERS
    failure: ClassVar[str] = "records whose number was seen before: {total}"


class ExpectQuarantineToStayWithinLimit(ExpectFactToBeZero):
    """No more of the records are quarantined than quarantine.max_share allows."""

    fact: ClassVar[str] = "quarantined_beyond_limit"
    check: ClassVar[str] = IntegrityCheck.QUARANTINE_WITHIN_LIMIT
    failure: ClassVar[str] = "too many of the records would be quarantined: {total}"


def choose_expectations(facts: AttemptFacts) -> list[type[ExpectFactToBeZero]]:
    """Return what a batch with these facts has to meet."""
    chosen: list[type[ExpectFactToBeZero]] = [
        ExpectOffsetsToBeStagedOnce,
        ExpectRowsToLieInRanges,
        ExpectHolesToBeExplained,
        ExpectBalanceToClose,
        ExpectRowsToBeStagedAsReported,
    ]
    if facts.positions is not None:
        chosen += [ExpectRangesToMeetPosition, ExpectOffsetsNotToBePublished]
    if facts.quarantine_limit is not None:
        chosen.append(ExpectQuarantineToStayWithinLimit)
    if facts.is_blocked_by_duplicates:
        chosen.append(ExpectMessagesToComeOnce)
    if facts.numbers is not None:
        chosen += [ExpectNumbersNotToBeMissing, ExpectNumbersNotToRepeat]
    return chosen
