"""``batchledger audit`` and ``batchledger housekeeping``: what the two DAGs of these names do."""

from collections import Counter
from collections.abc import Iterator
from typing import Annotated

import typer
from rich.text import Text

from batchledger.interfaces.cli.command_line import MaybeName, load_pipeline
from batchledger.interfaces.cli.display.alerts import describe_failures
from batchledger.interfaces.cli.display.batches import checks_parts
from batchledger.interfaces.cli.printing import Part, Shown, new_table, pick
from batchledger.model.counting import describe_count
from batchledger.model.errors import BatchledgerError
from batchledger.model.housekeeping import Housekeeping, Leftover
from batchledger.monitoring.ledger_audit import LedgerAudit

Newest = Annotated[
    int | None,
    typer.Option(
        min=0,
        help="Prove only what this many newest batches have published; 0 proves the whole history.",
        show_default="as the file says",
    ),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show what would be removed, and change nothing.")]


def audit(pipeline: MaybeName = None, newest: Newest = None) -> list[Shown]:
    """Prove ledger and target, and look for what is stuck or left behind. Stores the results and sends alerts.

    Exit code 1 if something is wrong or could not be judged,
    3 if every finding waits for a person.
    """
    from batchledger.config.pipeline_file import find_pipeline_files
    from batchledger.interfaces.upkeep import audit_and_tell

    audits: list[LedgerAudit] = []
    failures: dict[str, BatchledgerError] = {}
    for name in [pipeline] if pipeline else [path.stem for path in find_pipeline_files()]:
        try:
            audits.append(audit_and_tell(load_pipeline(name), newest))
        except BatchledgerError as error:
            if pipeline:
                raise
            failures[name] = error
    return [*map(describe_audit, audits), *describe_failures(failures, "audited")]


def housekeeping(dry_run: DryRun = False) -> list[Shown]:
    """Remove staging of ended attempts, expired message keys and quarantine, and old validations and audits.

    It removes nothing that an open batch needs, so it is safe beside runs.
    It removes a bounded number at a time, and the next housekeeping goes on.
    With history.keep in a pipeline file, it joins older batches.
    In Iceberg tables it also removes branches of ended attempts and old
    snapshots, and merges small files.
    """
    from batchledger.interfaces.upkeep import keep_house

    return [describe_housekeeping(each, dry_run) for each in keep_house(is_dry_run=dry_run)]


def describe_audit(audit: LedgerAudit) -> Shown:
    """Show what the audit of a pipeline has found."""
    failed = f"[bold red]{len(audit.failed)} of {describe_count(len(audit.checks), 'check')} not passed[/]"
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
        *checks_parts("", audit.checks),
        *(Text(f"Not proved: {line}.", "yellow") for line in unproved),
        *map(Text, commands),
    ]
    return Shown(document, parts, exit_code=audit.exit_code)


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
