"""What a dry run has found, as the command line prints it: whose rows would go, and how those that come differ."""

import dataclasses
from collections.abc import Sequence
from typing import Any

from rich.text import Text

from batchledger.interfaces.cli.printing import new_table, print_out, range_as_json
from batchledger.interfaces.wording import as_sentence
from batchledger.model.offsets import describe_ranges
from batchledger.model.records.comparison import Comparison, DryRunOutcome, ReplacedRows


def show_replaced(replaced: Sequence[ReplacedRows], title: str) -> None:
    """Print whose rows would go; nothing when there are none, as of a topic."""
    if not any(each.rows for each in replaced):
        return
    table = new_table(title, "batch", "range", "rows")
    for each in replaced:
        table.add_row(str(each.held.batch_id), str(each.held.range), f"{each.rows:,}")
    print_out(table)


def replaced_as_json(replaced: Sequence[ReplacedRows]) -> list[dict[str, Any]]:
    """Whose rows would go, for scripts."""
    return [{"batch_id": each.held.batch_id, **range_as_json(each.held.range), "rows": each.rows} for each in replaced]


def show_outcome(found: DryRunOutcome) -> None:
    """Print what a dry run has found: rows that would go, how those that come differ, what speaks against it."""
    show_replaced(found.replaced, "Would be replaced")
    for note in found.notes:
        print_out(Text(as_sentence(note), "yellow"))
    if found.expired:
        print_out(Text(f"Kafka no longer has {describe_ranges(found.expired)}: their rows would stay.", "yellow"))
    if found.comparison is not None:
        _show_comparison(found.comparison)
    for objection in found.objections:
        print_out(Text(f"It would not be published: {objection}", "bold red"))


def _show_comparison(found: Comparison) -> None:
    print_out(Text(as_sentence(str(found)), "green" if found.is_same else "yellow"))
    if found.absent_columns:
        names = ", ".join(found.absent_columns)
        print_out(Text(f"Not in the rows, so they would get their default: {names}.", "yellow"))
    if found.examples:
        table = new_table(f"Changed, {len(found.examples):,} of {found.changed:,}", "record", "columns that differ")
        for each in found.examples:
            table.add_row(str(each), ", ".join(each.columns))
        print_out(table)


def outcome_as_json(found: DryRunOutcome) -> dict[str, Any]:
    """What a dry run has found, for scripts."""
    comparison = None
    if found.comparison is not None:
        examples = [{"record": str(each), "columns": each.columns} for each in found.comparison.examples]
        comparison = {**dataclasses.asdict(found.comparison), "examples": examples}
    return {
        "expired": [range_as_json(each) for each in found.expired],
        "replaced": replaced_as_json(found.replaced),
        "comparison": comparison,
        "objections": found.objections,
        "notes": found.notes,
    }
