"""The Auditor port: the integrity suite that every batch has to pass, judged by Great Expectations.

The facts are one small table, a row per range, aggregated in one pass before; expectations over millions of rows would
run one query each. This module never changes data (I6). A check that could not run raises: it is neither a pass nor bad
data.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import great_expectations as gx
import pandas as pd
from great_expectations import expectations as gxe
from great_expectations.core import ExpectationValidationResult
from great_expectations.data_context.types.base import ProgressBarsConfig

from batchledger.accounting import Balance, IntegrityCheck, RangeFacts, describe_holes
from batchledger.batch import Position
from batchledger.checking import CheckResult, Outcome
from batchledger.errors import CheckNotRunError


@dataclass(frozen=True, slots=True)
class _Rule:
    """One expectation over one column of the facts: the column has to be 0 in every range."""

    check: IntegrityCheck
    column: str
    meaning: str
    failure: str


RULES = (
    _Rule(
        IntegrityCheck.NO_DUPLICATE_OFFSETS,
        "extra_copies",
        "Each (topic, partition, offset) is staged once.",
        "{total} rows repeat an offset that is staged already",
    ),
    _Rule(
        IntegrityCheck.NO_ROWS_OUTSIDE_RANGES,
        "outside",
        "Staging holds rows of the batch's ranges only.",
        "{total} rows lie outside of the batch's ranges",
    ),
    _Rule(
        IntegrityCheck.NO_UNEXPLAINED_HOLES,
        "unexplained_holes",
        "Every offset of the ranges has a visible record, or the pipeline declares such holes.",
        "{total} offsets have no visible record, and source.holes does not allow for them",
    ),
    _Rule(
        IntegrityCheck.BALANCE_CLOSES,
        "unexplained",
        "until - start = accepted + duplicates + quarantined + tombstones + filtered + holes + accepted loss.",
        "the balance does not close: {total:+d} offsets are unaccounted for",
    ),
    _Rule(
        IntegrityCheck.RANGES_MEET_POSITION,
        "distance_to_position",
        "Each range starts at the stored next offset.",
        "ranges do not start at the stored position, off by {total:+d} offsets",
    ),
    _Rule(
        IntegrityCheck.STAGED_AS_REPORTED,
        "missing_of_reported",
        "Staging holds as many rows as the writing tasks reported.",
        "staging differs by {total:+d} rows from what the writing tasks reported",
    ),
)


_OF_LIVE_BATCHES = IntegrityCheck.RANGES_MEET_POSITION


@dataclass(frozen=True)
class IntegrityAuditor:
    """See the port."""

    def judge(
        self,
        facts: Sequence[RangeFacts],
        balances: Sequence[Balance],
        positions: Sequence[Position] | None,
        reported: int,
    ) -> Sequence[CheckResult]:
        """See the port."""
        rules = [each for each in RULES if positions is not None or each.check is not _OF_LIVE_BATCHES]
        table = build_facts_table(facts, balances, positions or (), reported)
        outcomes = _evaluate(table, rules)
        return [
            each.with_note(describe_holes(facts, balances))
            if each.name == IntegrityCheck.NO_UNEXPLAINED_HOLES
            else each
            for each in (_explain(rule, outcomes[rule.check], table) for rule in rules)
        ]


def build_facts_table(
    facts: Sequence[RangeFacts], balances: Sequence[Balance], positions: Sequence[Position], reported: int
) -> pd.DataFrame:
    """Return one row per range; every judged column is 0 when all is well. ``range`` names the row."""
    next_offset = {position.partition: position.next_offset for position in positions}
    surplus = reported - sum(each.staged + each.outside for each in facts)
    return pd.DataFrame(
        [
            {
                "range": str(each.range),
                "extra_copies": each.staged - each.distinct,
                "outside": each.outside,
                "unexplained_holes": len(each.range) - each.visible - balance.holes,
                "unexplained": balance.unexplained,
                "distance_to_position": each.range.start - next_offset.get(each.range.partition, -1),
                "missing_of_reported": surplus if index == 0 else 0,
            }
            for index, (each, balance) in enumerate(zip(facts, balances, strict=True))
        ]
    )


def _evaluate(table: pd.DataFrame, rules: Sequence[_Rule]) -> dict[IntegrityCheck, dict[str, Any]]:
    context = gx.get_context(mode="ephemeral")
    context.variables.progress_bars = ProgressBarsConfig(globally=False)
    batch = context.data_sources.add_pandas("facts").read_dataframe(table, asset_name="ranges")
    suite = gx.ExpectationSuite(
        name="integrity",
        expectations=[
            gxe.ExpectColumnValuesToBeInSet(
                column=rule.column, value_set=[0], meta={"check": rule.check.value}, notes=rule.meaning
            )
            for rule in rules
        ],
    )
    validation = batch.validate(suite, result_format="COMPLETE")
    outcomes = {}
    for result in validation.results:
        check = IntegrityCheck(_meta_of(result)["check"])
        if result.exception_info.get("raised_exception") or "unexpected_count" not in result.result:
            raise CheckNotRunError(
                f"check {check} could not run: {result.exception_info.get('exception_message')}. This says "
                "nothing about the data; the batch stays staged and can be audited again."
            )
        outcomes[check] = {"passed": bool(result.success), "unexpected_ranges": int(result.result["unexpected_count"])}
    return outcomes


def _meta_of(result: ExpectationValidationResult) -> dict[str, Any]:
    return dict((result.expectation_config and result.expectation_config.meta) or {})


def _explain(rule: _Rule, outcome: dict[str, Any], table: pd.DataFrame) -> CheckResult:
    column = table[rule.column]
    if outcome["passed"]:
        return CheckResult(rule.check, Outcome.PASSED, f"{len(table)} ranges: {rule.meaning}", {"ranges": len(table)})
    wrong = table.loc[column != 0, "range"].head(8).tolist()
    total = int(column.sum()) or int(column.abs().sum())
    detail = f"{rule.failure.format(total=total)} (in {', '.join(wrong)})"
    observed = {"ranges": len(table), "unexpected_ranges": outcome["unexpected_ranges"], "total": total}
    return CheckResult(rule.check, Outcome.FAILED, detail, observed)
