"""What ``batchledger audit`` and ``batchledger housekeeping`` show."""

from collections import Counter
from collections.abc import Iterator

from rich.text import Text

from batchledger.interfaces.cli.display.batches import checks_table
from batchledger.interfaces.cli.printing import Part, Shown, new_table, pick
from batchledger.model.housekeeping import Housekeeping, Leftover
from batchledger.monitoring.ledger_audit import LedgerAudit


def describe_audit(audit: LedgerAudit) -> Shown:
    """Show what was found of a pipeline."""
    failed = f"[bold red]{len(audit.failed)} of {len(audit.checks)} checks not passed[/]"
    found, unproved = audit.findings.found, audit.coverage.describe_unproved()
    commands = dict.fromkeys(f"{each.title}: {each.command}" for each in found if each.command)
    document = {
        **pick(audit, "pipeline", "audited_at", "exit_code"),
        "whole_history": audit.coverage.is_complete,
        "not_proved": unproved,
        "checks": [pick(each, "name", "outcome", "severity", "detail", "observed") for each in audit.checks],
        "conditions": found,
    }
    parts: list[Part] = [
        f"[bold]{audit.pipeline}[/]: {failed if audit.failed else '[green]nothing found[/]'}",
        checks_table("", audit.checks),
        *(Text(f"Not proved: {line}.", "yellow") for line in unproved),
        *map(Text, commands),
    ]
    return Shown(document, parts)


def describe_housekeeping(done: Housekeeping, is_dry_run: bool) -> Shown:
    """Show what was removed from one ledger and its sinks, or would be."""
    document = {
        "pipelines": done.pipelines,
        "is_dry_run": is_dry_run,
        "removed": done.removals,
        "unknown_staging": done.unknown,
        "left_out": done.left_out,
        "is_complete": done.is_complete,
    }
    return Shown(document, list(_removal_parts(done, "Would be removed" if is_dry_run else "Removed")))


def _removal_parts(done: Housekeeping, title: str) -> Iterator[Part]:
    counts: Counter[tuple[Leftover, str]] = Counter()
    left: set[tuple[Leftover, str]] = set()
    for each in done.removals:
        key = (each.kind, "" if each.kind is Leftover.STAGING else each.subject)
        counts[key] += each.count
        if not each.is_complete:
            left.add(key)
    if not counts:
        yield "Nothing is left behind."
    else:
        table = new_table(title, "what", "of", "count", "left")
        for key, count in counts.items():
            table.add_row(*key, f"{count:,}", "the rest is for the next run" if key in left else "")
        yield table
        size_bytes = sum(each.size_bytes or 0 for each in done.removals)
        if size_bytes:
            yield f"{size_bytes / 2**20:,.1f} MiB of staging are free."
    if done.unknown:
        names = ", ".join(done.unknown[:20])
        yield Text(f"Left alone, because this ledger knows no such attempt: {names}.", "yellow")
    for line in done.left_out:
        yield Text(line, "yellow")
