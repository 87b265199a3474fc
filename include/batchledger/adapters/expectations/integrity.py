"""The Auditor port: the integrity suite that every batch has to pass, judged by Great Expectations.

The facts are one small table, a row per range, aggregated in one pass before; expectations over millions of rows would
run one query each. This module never changes data (I6). A check that could not run is neither a pass nor bad data: it
is ``not_run``, and stored as that.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import pandas as pd
from great_expectations.core import ExpectationValidationResult

from batchledger.adapters.expectations.integrity_expectations import ExpectFactToBeZero, choose_expectations
from batchledger.adapters.expectations.judging import judge_table
from batchledger.model.attempt_facts import AttemptFacts
from batchledger.model.balance import count_holes, describe_holes
from batchledger.model.checks import CHECKS_OF_BATCH, CHECKS_OF_NUMBERS, CheckResult, IntegrityCheck, Outcome, Severity
from batchledger.model.offsets import count_covered
from batchledger.model.records.numbering import describe_numbers
from batchledger.model.records.quarantine import QuarantineLimit

RANGES_SHOWN = 8


@dataclass(frozen=True)
class IntegrityAuditor:
    """See the port."""

    def judge(self, facts: AttemptFacts) -> Sequence[CheckResult]:
        """See the port."""
        table = build_facts_table(facts)
        severities = {each: _severity_of(each, facts) for each in choose_expectations(facts)}
        # More than the counts costs a metric each, and the table is at hand.
        results = judge_table(
            table,
            {each.check: each.of_facts(severity) for each, severity in severities.items()},
            {"result_format": "BASIC"},
        )
        return [
            _annotate(replace(_explain(kind, results[kind.check], table), severity=severity), facts)
            for kind, severity in severities.items()
        ]


def build_facts_table(facts: AttemptFacts) -> pd.DataFrame:
    """Return one row per range; every judged column is 0 when all is well. ``range`` names the row.

    What concerns the batch as a whole stands in the first row.
    """
    next_offset = {position.partition: position.next_offset for position in facts.positions or ()}
    published = count_covered([each.range for each in facts.published], [each.range for each in facts.ranges])
    rows = [
        {
            "range": str(each.range),
            "extra_copies": each.staged - each.distinct,
            "outside": each.outside,
            "unexplained_holes": len(each.range) - each.visible - balance.holes,
            "unexplained": balance.unexplained,
            "distance_to_position": each.range.start - next_offset.get(each.range.partition, -1),
            "published": taken,
            "missing_of_reported": 0,
            # What was listed when the range was published before has been accepted.
            "repeated_messages": each.duplicates - each.known_duplicates,
            "missing_numbers": 0,
            "repeated_numbers": 0,
            "quarantined_beyond_limit": 0,
        }
        for each, balance, taken in zip(facts.ranges, facts.balances, published, strict=True)
    ]
    staged = sum(each.staged + each.outside for each in facts.ranges)
    rows[0]["missing_of_reported"] = facts.reported - facts.set_aside - staged
    rows[0]["quarantined_beyond_limit"] = facts.quarantined if facts.drains else 0
    if facts.numbers is not None:
        rows[0] |= {"missing_numbers": facts.missing_numbers, "repeated_numbers": facts.numbers.repeated}
    return pd.DataFrame(rows)


def _explain(
    kind: type[ExpectFactToBeZero], result: ExpectationValidationResult | str, table: pd.DataFrame
) -> CheckResult:
    if isinstance(result, str):
        return CheckResult(kind.check, Outcome.NOT_RUN, f"could not run: {result}")
    column = table[kind.fact]
    total = int(column.sum()) or int(column.abs().sum())
    observed = {"ranges": len(table), "unexpected_ranges": int(result.result["unexpected_count"]), "total": total}
    validation = _without_context(result, total)
    if result.success:
        detail = f"{len(table)} {'range' if len(table) == 1 else 'ranges'}: {kind.promise()}"
        return CheckResult(kind.check, Outcome.PASSED, detail, observed, validation=validation)
    detail = kind.failure.format(total=total)
    if kind.check not in CHECKS_OF_BATCH:
        wrong = table.loc[column != 0, "range"].head(RANGES_SHOWN).tolist()
        detail = f"{detail} (in {', '.join(wrong)})"
    return CheckResult(kind.check, Outcome.FAILED, detail, observed, validation=validation)


def _without_context(result: ExpectationValidationResult, total: int) -> dict[str, Any]:
    """Return the result as Data Docs read it: numbers of the facts, which hold no value of a record."""
    stored: dict[str, Any] = result.to_json_dict()
    stored["result"] = {**stored["result"], "observed_value": total}
    return stored


def _severity_of(kind: type[ExpectFactToBeZero], facts: AttemptFacts) -> Severity:
    return facts.severity_of_numbers if kind.check in CHECKS_OF_NUMBERS else Severity.CRITICAL


def _annotate(check: CheckResult, facts: AttemptFacts) -> CheckResult:
    """Add what is known beside the verdict."""
    if check.outcome is Outcome.NOT_RUN:
        return check
    if check.name in CHECKS_OF_NUMBERS and facts.numbers is not None:
        if check.passed and not facts.numbers.series:
            check = replace(check, outcome=Outcome.EMPTY, detail="nothing to judge: no record has a number")
        check = check.with_observed(**asdict(facts.numbers))
        if check.name != IntegrityCheck.NO_MISSING_NUMBERS:
            return check
        unreadable = facts.quarantined - facts.set_aside
        return check.with_note(describe_numbers(facts.numbers, unreadable))
    if check.name == IntegrityCheck.QUARANTINE_WITHIN_LIMIT and facts.quarantine_limit is not None:
        return _annotate_quarantine(check, facts, facts.quarantine_limit)
    if check.name == IntegrityCheck.NO_UNEXPLAINED_HOLES:
        check = check.with_note(describe_holes(facts.ranges, facts.balances))
        return check.with_observed(holes=count_holes(facts.ranges))
    return check


def _annotate_quarantine(check: CheckResult, facts: AttemptFacts, limit: QuarantineLimit) -> CheckResult:
    """Add the share, and of a failure the kinds of error and what may be wrong."""
    check = check.with_observed(records=facts.records, quarantined=facts.quarantined, max_share=limit.max_share)
    if check.passed:
        return check
    share = facts.quarantined / facts.records
    kinds = {each.error: each.records for each in facts.quarantine.most_frequent}
    return check.with_observed(kinds=facts.quarantine.kinds, most_frequent=kinds).with_note(
        f"{share:.1%} of {facts.records:,}, while quarantine.max_share is {limit.max_share:g}. Correct source.schema, "
        "or the producer; if so many are to be expected, raise that share. Kinds of error: "
        f"{facts.quarantine.kinds:,}"
    )
