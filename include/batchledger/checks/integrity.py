"""The Auditor port: the integrity suite that every batch has to pass, judged by Great Expectations.

The facts are one small table, a row per range and a column per check, aggregated in one pass before; expectations over
millions of rows would run one query each. They are counts, so no value of a record is among them. This module never
changes data (I6). A check that could not run is neither a pass nor bad data: it is ``not_run``, and stored as that.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import pandas as pd
from great_expectations.core import ExpectationValidationResult
from great_expectations.expectations.core import ExpectColumnValuesToBeInSet
from great_expectations.expectations.expectation_configuration import ExpectationConfiguration
from great_expectations.expectations.metadata_types import FailureSeverity
from great_expectations.render import LegacyDiagnosticRendererType, RenderedStringTemplateContent
from great_expectations.render.renderer.renderer import renderer
from typing_extensions import override

from batchledger.checks.judging import judge_table
from batchledger.model.attempt_facts import AttemptFacts
from batchledger.model.balance import count_holes, describe_holes
from batchledger.model.checks import (
    CHECKS_OF_BATCH,
    CHECKS_OF_NUMBERS,
    CheckResult,
    IntegrityCheck,
    Offender,
    Outcome,
    Severity,
)
from batchledger.model.offsets import count_covered
from batchledger.model.records.numbering import NumberFacts, describe_numbers
from batchledger.model.records.quarantine import QuarantineLimit
from batchledger.model.records.unknown_fields import NAMELESS, UnknownFields
from batchledger.ports import Auditor

RANGES_SHOWN = 8
FACTS_KEPT = 16

Verdict = Mapping[str, Any] | str
"""What Great Expectations says of a check, as JSON; a text says why the check could not run."""
_judged: dict[Any, Mapping[str, Verdict]] = {}


class ExpectFactToBeZero(ExpectColumnValuesToBeInSet):
    """Each range has 0 of the fact; the description is the promise of the check that ``meta`` names."""

    @classmethod
    @renderer(renderer_type=LegacyDiagnosticRendererType.UNEXPECTED_STATEMENT)
    @override
    def _diagnostic_unexpected_statement_renderer(
        cls,
        configuration: ExpectationConfiguration | None = None,
        result: ExpectationValidationResult | None = None,
        runtime_configuration: dict[str, Any] | None = None,
    ) -> list[Any]:
        """What Data Docs say of a failure: the numbers, in the words of the check."""
        if result is None or result.success or result.expectation_config is None:
            return []
        check = IntegrityCheck((result.expectation_config.meta or {})["check"])
        failure = check.failure.format(total=result.result["observed_value"])
        template = {"template": failure, "styling": {"classes": ["text-danger"]}}
        return [RenderedStringTemplateContent(content_block_type="string_template", string_template=template)]

    @classmethod
    @renderer(renderer_type=LegacyDiagnosticRendererType.UNEXPECTED_TABLE)
    @override
    def _diagnostic_unexpected_table_renderer(
        cls,
        configuration: ExpectationConfiguration | None = None,
        result: ExpectationValidationResult | None = None,
        runtime_configuration: dict[str, Any] | None = None,
    ) -> None:
        """No table: the column's numbers say nothing without their ranges."""


@dataclass(frozen=True)
class IntegrityAuditor(Auditor):
    """Judges by the suite of Great Expectations that compares facts."""

    @override
    def judge(self, facts: AttemptFacts) -> Sequence[CheckResult]:
        table = build_facts_table(facts)
        severities = {each: _severity_of(each, facts) for each in choose_checks(facts)}
        results = _judge(table, severities)
        return [
            _annotate(replace(_explain(each, results[each], table), severity=severity), facts)
            for each, severity in severities.items()
        ]


def _judge(table: pd.DataFrame, severities: Mapping[IntegrityCheck, Severity]) -> Mapping[str, Verdict]:
    """Return the verdict of each check; the same facts are judged once a process, unless a check could not run."""
    key = (*severities.items(), *((name, *table[name]) for name in table.columns.drop("range")))
    if (known := _judged.get(key)) is not None:
        return known
    # More than the counts costs a metric each, and the table is at hand.
    found = judge_table(
        table,
        {each: build_expectation(each, severity) for each, severity in severities.items()},
        {"result_format": "BASIC"},
    )
    verdicts = {name: each if isinstance(each, str) else each.to_json_dict() for name, each in found.items()}
    if not any(isinstance(each, str) for each in verdicts.values()):
        if len(_judged) >= FACTS_KEPT:
            _judged.clear()
        _judged[key] = verdicts
    return verdicts


def choose_checks(facts: AttemptFacts) -> list[IntegrityCheck]:
    """Return what a batch with these facts has to meet."""
    chosen = [
        IntegrityCheck.NO_DUPLICATE_OFFSETS,
        IntegrityCheck.NO_ROWS_OUTSIDE_RANGES,
        IntegrityCheck.NO_UNEXPLAINED_HOLES,
        IntegrityCheck.BALANCE_CLOSES,
        IntegrityCheck.STAGED_AS_REPORTED,
    ]
    if facts.positions is not None:
        chosen += [IntegrityCheck.RANGES_MEET_POSITION, IntegrityCheck.NO_PUBLISHED_OFFSETS]
    if facts.quarantine_limit is not None:
        chosen.append(IntegrityCheck.QUARANTINE_WITHIN_LIMIT)
    if facts.unknown_fields is not None:
        chosen.append(IntegrityCheck.NO_UNKNOWN_FIELDS)
    if facts.unmatched is not None:
        chosen.append(IntegrityCheck.DELETIONS_FIND_ROWS)
    if facts.is_blocked_by_duplicates:
        chosen.append(IntegrityCheck.NO_DUPLICATE_MESSAGES)
    if facts.numbers is not None:
        chosen += [IntegrityCheck.NO_MISSING_NUMBERS, IntegrityCheck.NO_REPEATED_NUMBERS]
    return chosen


def build_expectation(check: IntegrityCheck, severity: Severity = Severity.CRITICAL) -> ExpectFactToBeZero:
    """Return the expectation about the check's column of the facts."""
    return ExpectFactToBeZero(
        column=check.value,
        value_set=[0],
        description=check.promise,
        meta={"check": check.value},
        severity=FailureSeverity(severity.value),
    )


def build_facts_table(facts: AttemptFacts) -> pd.DataFrame:
    """Return one row per range; every judged column is 0 when all is well. ``range`` names the row.

    Facts about the batch as a whole stand in the first row.
    """
    next_offset = {position.partition: position.next_offset for position in facts.positions or ()}
    published = count_covered([each.range for each in facts.published], [each.range for each in facts.ranges])
    rows: list[dict[str, Any]] = [
        dict.fromkeys(IntegrityCheck, 0)
        | {
            "range": str(each.range),
            IntegrityCheck.NO_DUPLICATE_OFFSETS: each.staged - each.distinct,
            IntegrityCheck.NO_ROWS_OUTSIDE_RANGES: each.outside,
            IntegrityCheck.NO_UNEXPLAINED_HOLES: len(each.range) - each.visible - balance.holes,
            IntegrityCheck.BALANCE_CLOSES: balance.unexplained,
            IntegrityCheck.RANGES_MEET_POSITION: each.range.start - next_offset.get(each.range.partition, -1),
            IntegrityCheck.NO_PUBLISHED_OFFSETS: taken,
            # Duplicates that were listed when the range was published before have been accepted.
            IntegrityCheck.NO_DUPLICATE_MESSAGES: each.duplicates - each.known_duplicates,
        }
        for each, balance, taken in zip(facts.ranges, facts.balances, published, strict=True)
    ]
    staged = sum(each.staged + each.outside for each in facts.ranges)
    rows[0][IntegrityCheck.STAGED_AS_REPORTED] = facts.reported - facts.set_aside - staged
    rows[0][IntegrityCheck.QUARANTINE_WITHIN_LIMIT] = facts.quarantined if facts.drains else 0
    if facts.unmatched is not None:
        rows[0][IntegrityCheck.DELETIONS_FIND_ROWS] = facts.unmatched.records
    if facts.unknown_fields is not None:
        rows[0][IntegrityCheck.NO_UNKNOWN_FIELDS] = facts.unknown_fields.records
    if facts.numbers is not None:
        rows[0][IntegrityCheck.NO_MISSING_NUMBERS] = facts.missing_numbers
        rows[0][IntegrityCheck.NO_REPEATED_NUMBERS] = facts.numbers.repeated
    return pd.DataFrame(rows)


def _explain(check: IntegrityCheck, result: Verdict, table: pd.DataFrame) -> CheckResult:
    if isinstance(result, str):
        return CheckResult(check.value, Outcome.NOT_RUN, f"could not run: {result}")
    column = table[check]
    total = int(column.sum()) or int(column.abs().sum())
    observed = {"ranges": len(table), "unexpected_ranges": int(result["result"]["unexpected_count"]), "total": total}
    # As Data Docs read it: numbers of the facts, which hold no value of a record.
    validation = {**result, "result": {**result["result"], "observed_value": total}}
    if result["success"]:
        detail = f"{len(table)} {'range' if len(table) == 1 else 'ranges'}: {check.promise}"
        return CheckResult(check.value, Outcome.PASSED, detail, observed, validation=validation)
    detail = check.failure.format(total=total)
    if check not in CHECKS_OF_BATCH:
        wrong = table.loc[column != 0, "range"].head(RANGES_SHOWN).tolist()
        detail = f"{detail} (in {', '.join(wrong)})"
    return CheckResult(check.value, Outcome.FAILED, detail, observed, validation=validation)


def _severity_of(check: IntegrityCheck, facts: AttemptFacts) -> Severity:
    if check is IntegrityCheck.NO_UNKNOWN_FIELDS:
        return facts.severity_of_unknown_fields
    if check is IntegrityCheck.DELETIONS_FIND_ROWS and facts.unmatched is not None:
        return facts.unmatched.severity
    return facts.severity_of_numbers if check in CHECKS_OF_NUMBERS else Severity.CRITICAL


def _annotate(check: CheckResult, facts: AttemptFacts) -> CheckResult:
    """Add what is known beside the verdict."""
    if check.outcome is Outcome.NOT_RUN:
        return check
    if check.name in CHECKS_OF_NUMBERS and facts.numbers is not None:
        return _annotate_numbers(check, facts, facts.numbers)
    if check.name == IntegrityCheck.QUARANTINE_WITHIN_LIMIT and facts.quarantine_limit is not None:
        return _annotate_quarantine(check, facts, facts.quarantine_limit)
    if check.name == IntegrityCheck.NO_UNKNOWN_FIELDS and facts.unknown_fields is not None:
        return _annotate_unknown_fields(check, facts.unknown_fields, sum(each.staged for each in facts.ranges))
    if check.name == IntegrityCheck.DELETIONS_FIND_ROWS and not check.passed:
        check = check.with_note(
            "their keys may be written in another way than the keys of the rows, or their rows are older than the "
            "first record that was read"
        )
    if check.name == IntegrityCheck.NO_UNEXPLAINED_HOLES:
        check = check.with_note(describe_holes(facts.ranges, facts.balances))
        return check.with_observed(holes=count_holes(facts.ranges))
    return check


def _annotate_numbers(check: CheckResult, facts: AttemptFacts, numbers: NumberFacts) -> CheckResult:
    """Add what was counted, and to the check of missing numbers what may explain them."""
    if check.passed and not numbers.series:
        check = replace(check, outcome=Outcome.EMPTY, detail="nothing to judge: no record has a number")
    check = check.with_observed(**asdict(numbers))
    if check.name != IntegrityCheck.NO_MISSING_NUMBERS:
        return check
    return check.with_note(describe_numbers(numbers, facts.quarantined - facts.set_aside))


def _annotate_quarantine(check: CheckResult, facts: AttemptFacts, limit: QuarantineLimit) -> CheckResult:
    """Add the share, and to a failure the kinds of error and what may be wrong."""
    check = check.with_observed(records=facts.records, quarantined=facts.quarantined, max_share=limit.max_share)
    if check.passed:
        return check
    share = facts.quarantined / facts.records
    kinds = {each.error: each.records for each in facts.quarantine.most_frequent}
    return check.with_observed(kinds=facts.quarantine.kinds, most_frequent=kinds).with_note(
        f"{share:.1%} of {facts.records:,}, while quarantine.max_share is {limit.max_share:g}. {_advise(facts)}; "
        f"if so many are to be expected, raise that share. Kinds of error: {facts.quarantine.kinds:,}"
    )


def _annotate_unknown_fields(check: CheckResult, unknown: UnknownFields, rows: int) -> CheckResult:
    """Name the fields of a failure, and say where they may be declared."""
    if check.passed:
        return check
    fields = {
        name: {"records": each.records, "first": str(Offender(each.range))} for name, each in unknown.by_name.items()
    }
    declare = "Declare them in source.schema, or"
    if any(NAMELESS in name for name in fields):
        declare = (
            f"Declare what has a name in source.schema. A {NAMELESS} has none: let the producer write with a schema "
            "that defines it. Or"
        )
    return check.with_observed(rows=rows, fields=fields).with_note(
        f"of {rows:,} rows: {unknown.describe()}. Their values are not in the rows. {declare} say with "
        "source.unknown_fields what becomes of such records"
    )


def _advise(facts: AttemptFacts) -> str:
    """Say what may be wrong if too much would be quarantined."""
    if not facts.set_aside:
        return "Correct source.schema, or the producer"
    return (
        f"Checks with on_failure: quarantine set {facts.set_aside:,} of them aside. Correct these checks, "
        "source.schema, or the producer"
    )
