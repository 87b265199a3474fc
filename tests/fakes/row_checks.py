"""The RowChecks port in memory: each check is a function of a row."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from typing_extensions import override

from batchledger.model.checks import CheckResult, JudgedCheck, OnFailure, Outcome, Severity, Suite
from batchledger.model.errors import ConfigurationError
from batchledger.model.offsets import OffsetRange, TopicPartition, merge_ranges
from batchledger.ports import CheckedBatch, RowChecks, RowsToCheck


@dataclass(frozen=True)
class RowTest:
    """A check: a row passes when ``holds`` says so; one that raises makes the check fail to run."""

    name: str
    holds: Callable[[Mapping[str, Any]], bool]
    severity: Severity = Severity.CRITICAL
    on_failure: OnFailure = OnFailure.BLOCK
    is_usable: bool = True
    bound: int = 100


@dataclass(frozen=True)
class MemoryRowChecks(RowChecks):
    tests: Sequence[RowTest]
    recent_batches: int = 0

    @override
    def require_usable(self) -> None:
        unusable = [each.name for each in self.tests if not each.is_usable]
        if unusable:
            raise ConfigurationError(f"checks cannot be judged on any rows: {unusable}")

    @override
    def judge(self, rows: RowsToCheck, batch: CheckedBatch) -> Sequence[JudgedCheck]:
        return [self._judge(each, rows.connection) for each in self.tests]

    def _judge(self, test: RowTest, rows: Sequence[Mapping[str, Any]]) -> JudgedCheck:
        def result(outcome: Outcome, detail: str) -> CheckResult:
            about = {"severity": test.severity, "on_failure": test.on_failure, "suite": Suite.PIPELINE}
            return CheckResult(test.name, outcome, detail, {"rows": len(rows)}, **about)  # type: ignore[arg-type]

        try:
            failing = [row for row in rows if not test.holds(row)]
        except ZeroDivisionError:
            return JudgedCheck(result(Outcome.NOT_RUN, "divided by zero"))
        if not failing:
            return JudgedCheck(result(Outcome.PASSED if rows else Outcome.EMPTY, f"{len(rows)} rows"))
        ranges = merge_ranges(
            OffsetRange(TopicPartition(row["_topic"], row["_partition"]), row["_offset"], row["_offset"] + 1)
            for row in failing[: test.bound]
        )
        told = result(Outcome.FAILED, f"{len(failing)} rows fail")
        return JudgedCheck(told, failing=tuple(ranges), has_more=len(failing) > test.bound)
