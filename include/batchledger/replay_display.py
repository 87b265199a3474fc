"""What the commands about replays print: a table for people, or one JSON document with the same content."""

import dataclasses
from typing import Any

from rich.text import Text

from batchledger.comparison import Comparison
from batchledger.display import balance_table, replaced_as_json, replacements_table, show_replaced
from batchledger.dry_run import DryRun
from batchledger.ledger.history import BatchHistory
from batchledger.offsets import count_offsets, describe_ranges
from batchledger.printing import new_table, print_json, print_out, range_as_json
from batchledger.replay import Replay


def show_nothing_to_replay(pipeline: str, asked: Replay, as_json: bool) -> None:
    """Say that no record lies in what was asked for, which is a success."""
    if as_json:
        print_json({"batch_id": None, "ranges": [], "replaced": []})
    else:
        print_out(f"{pipeline}: nothing to publish again in {asked}.")


def show_replayed(history: BatchHistory, as_json: bool) -> None:
    """Say what was published again, and what of which batches it has replaced."""
    batch = history.batch
    if as_json:
        ranges = [range_as_json(each) for each in batch.ranges]
        print_json({"batch_id": batch.batch_id, "state": batch.state, "ranges": ranges, "replaced": history.replaced})
        return
    print_out(f"[green]published[/] {batch.label}, a replay of {count_offsets(batch.ranges):,} offsets")
    if history.replaced:
        print_out(replacements_table("Replaced", history.replaced, batch.batch_id))
    else:
        print_out("No batch held these offsets before; nothing was replaced.")


def show_dry_run(found: DryRun, history: BatchHistory, as_json: bool) -> None:
    """Say what a replay would do: records, rows that would go, how those that come differ, what speaks against it."""
    if as_json:
        print_json(_dry_run_as_json(found, history))
        return
    print_out(f"[bold]Dry run[/] of {count_offsets(found.batch.ranges):,} offsets: nothing was changed.")
    print_out(balance_table(history.ranges))
    show_replaced(found.replaced, "Would be replaced")
    if found.expired:
        print_out(Text(f"Kafka no longer has {describe_ranges(found.expired)}: their rows would stay.", "yellow"))
    if found.comparison is not None:
        _show_comparison(found.comparison)
    for objection in found.objections:
        print_out(Text(f"It would not be published: {objection}", "bold red"))


def _show_comparison(found: Comparison) -> None:
    told = str(found)
    print_out(Text(f"{told[0].upper()}{told[1:]}.", "green" if found.is_same else "yellow"))
    if found.absent_columns:
        names = ", ".join(found.absent_columns)
        print_out(Text(f"Not in the rows, so they would get their default: {names}.", "yellow"))
    if found.examples:
        table = new_table(f"Changed, {len(found.examples):,} of {found.changed:,}", "record", "columns that differ")
        for each in found.examples:
            table.add_row(str(each), ", ".join(each.columns))
        print_out(table)


def _dry_run_as_json(found: DryRun, history: BatchHistory) -> dict[str, Any]:
    comparison = None
    if found.comparison is not None:
        examples = [{"record": str(each), "columns": each.columns} for each in found.comparison.examples]
        comparison = {**dataclasses.asdict(found.comparison), "examples": examples}
    return {
        "batch_id": found.batch.batch_id,
        "dry_run": True,
        "ranges": history.ranges,
        "expired": [range_as_json(each) for each in found.expired],
        "replaced": replaced_as_json(found.replaced),
        "comparison": comparison,
        "objections": found.objections,
    }
