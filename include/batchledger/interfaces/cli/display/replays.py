"""What the commands about replays print: a table for people, or one JSON document with the same content."""

import dataclasses
from typing import TYPE_CHECKING

from batchledger.interfaces.cli.display.batches import balance_table, replacements_table
from batchledger.interfaces.cli.display.dry_runs import outcome_as_json, show_outcome
from batchledger.interfaces.cli.printing import print_json, print_out, range_as_json
from batchledger.lifecycle.dry_run import DryRun, summarise_dry_run
from batchledger.model.offsets import count_offsets
from batchledger.planning.replay import Replay

if TYPE_CHECKING:
    from batchledger.adapters.postgres.ledger.history import BatchHistory


def show_nothing_to_replay(pipeline: str, asked: Replay, as_json: bool) -> None:
    """Say that no record lies in what was asked for, which is a success."""
    if as_json:
        print_json({"batch_id": None, "ranges": [], "replaced": []})
    else:
        print_out(f"{pipeline}: nothing to publish again in {asked}.")


def show_replayed(history: "BatchHistory", as_json: bool) -> None:
    """Say what was published again, and what of which batches that was, or has replaced."""
    batch = history.batch
    if as_json:
        ranges = [range_as_json(each) for each in batch.ranges]
        print_json({"batch_id": batch.batch_id, "state": batch.state, "ranges": ranges, "replaced": history.replaced})
        return
    print_out(f"[green]published[/] {batch.label}, a replay of {count_offsets(batch.ranges):,} offsets")
    if history.replaced:
        print_out(replacements_table(history.replaced, batch.batch_id))
    else:
        print_out("No batch held these offsets before; nothing was replaced.")


def show_dry_run(found: DryRun, history: "BatchHistory", as_json: bool) -> None:
    """Say what a replay would do: records, rows that would go, how those that come differ, what speaks against it.

    Who has asked is shown the words of a target that refuses the rows, which the ledger does not keep.
    """
    outcome = dataclasses.replace(summarise_dry_run(found), objections=found.words)
    if as_json:
        document = {"batch_id": found.batch.batch_id, "dry_run": True, "ranges": history.ranges}
        print_json({**document, **outcome_as_json(outcome)})
        return
    print_out(f"[bold]Dry run[/] of {count_offsets(found.batch.ranges):,} offsets: nothing was changed.")
    print_out(balance_table(history.ranges))
    show_outcome(outcome)
