"""What ``batchledger audit`` and ``batchledger housekeeping`` print."""

from collections import Counter
from collections.abc import Mapping, Sequence

from rich.text import Text

from batchledger.interfaces.cli.printing import new_table, print_json, print_out
from batchledger.model.checks import CheckResult, Outcome, Severity
from batchledger.model.errors import BatchledgerError
from batchledger.model.housekeeping import Housekeeping, Leftover
from batchledger.monitoring.ledger_audit import LedgerAudit


def show_audits(audits: Sequence[LedgerAudit], failures: Mapping[str, BatchledgerError], as_json: bool) -> None:
    """Print what was found of each pipeline; ``failures`` are those that could not be audited at all."""
    if as_json:
        found = [_audit_as_json(each) for each in audits]
        print_json([*found, *({"pipeline": name, "error": str(error)} for name, error in failures.items())])
        return
    for audit in audits:
        verdict = (
            f"[bold red]{len(audit.failed)} of {len(audit.checks)} checks not passed[/]"
            if audit.failed
            else "[green]nothing found[/]"
        )
        print_out(f"[bold]{audit.pipeline}[/]: {verdict}")
        table = new_table("", "", "check", "what was found")
        for check in audit.checks:
            table.add_row(_outcome_of(check), check.name, Text(check.detail))
        print_out(table)
        for line in audit.coverage.describe_unproved():
            print_out(Text(f"Not proved: {line}.", "yellow"))
        for line in dict.fromkeys(f"{each.title}: {each.command}" for each in audit.findings.found if each.command):
            print_out(Text(line))
    for name, error in failures.items():
        print_out(Text(f"{name} could not be audited: {error}", "bold red"))


def show_housekeeping(done: Sequence[Housekeeping], is_dry_run: bool, as_json: bool) -> None:
    """Print what was removed, or would be."""
    if as_json:
        print_json([_housekeeping_as_json(each, is_dry_run) for each in done])
        return
    for each in done:
        _show_removals(each, "Would be removed" if is_dry_run else "Removed")


def _show_removals(done: Housekeeping, title: str) -> None:
    counts: Counter[tuple[Leftover, str]] = Counter()
    left: set[tuple[Leftover, str]] = set()
    for each in done.removals:
        key = (each.kind, "" if each.kind is Leftover.STAGING else each.subject)
        counts[key] += each.count
        if not each.is_complete:
            left.add(key)
    if not counts:
        print_out("Nothing is left behind.")
    else:
        table = new_table(title, "what", "of", "count", "left")
        for (kind, subject), count in counts.items():
            note = "the rest is for the next run" if (kind, subject) in left else ""
            table.add_row(kind, subject, f"{count:,}", note)
        print_out(table)
        size_bytes = sum(each.size_bytes or 0 for each in done.removals)
        if size_bytes:
            print_out(f"{size_bytes / 2**20:,.1f} MiB of staging are free.")
    if done.unknown:
        names = ", ".join(done.unknown[:20])
        print_out(Text(f"Left alone, because this ledger knows no such attempt: {names}.", "yellow"))
    for line in done.left_out:
        print_out(Text(line, "yellow"))


def _audit_as_json(audit: LedgerAudit) -> dict[str, object]:
    return {
        "pipeline": audit.pipeline,
        "audited_at": audit.audited_at,
        "exit_code": audit.exit_code,
        "whole_history": audit.coverage.is_complete,
        "not_proved": audit.coverage.describe_unproved(),
        "checks": [
            {
                "name": each.name,
                "outcome": each.outcome,
                "severity": each.severity,
                "detail": each.detail,
                "observed": dict(each.observed),
            }
            for each in audit.checks
        ],
        "conditions": list(audit.findings.found),
    }


def _housekeeping_as_json(done: Housekeeping, is_dry_run: bool) -> dict[str, object]:
    return {
        "pipelines": list(done.pipelines),
        "is_dry_run": is_dry_run,
        "removed": list(done.removals),
        "unknown_staging": list(done.unknown),
        "left_out": list(done.left_out),
        "is_complete": done.is_complete,
    }


def _outcome_of(check: CheckResult) -> Text:
    if check.outcome in (Outcome.PASSED, Outcome.EMPTY):
        return Text(check.outcome.value, "green" if check.passed else "dim")
    return Text(check.outcome.value.replace("_", " "), "bold red" if check.severity is Severity.CRITICAL else "yellow")
