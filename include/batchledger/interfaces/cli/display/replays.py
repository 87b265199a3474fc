"""What the command line shows of replays: what was published again, or would be."""

import dataclasses
from typing import TYPE_CHECKING

from batchledger.interfaces.cli.display.batches import balance_table, replacements_table
from batchledger.interfaces.cli.display.dry_runs import outcome_as_json, outcome_parts
from batchledger.interfaces.cli.printing import Shown, pick
from batchledger.lifecycle.dry_run import DryRun, summarise_dry_run
from batchledger.model.offsets import count_offsets
from batchledger.planning.replay import Replay

if TYPE_CHECKING:
    from batchledger.adapters.postgres.ledger.history import BatchHistory


def describe_nothing_to_replay(pipeline: str, asked: Replay) -> Shown:
    """Show that no record lies in what was asked for, which is a success."""
    nothing = f"{pipeline}: nothing to publish again in {asked}."
    return Shown({"batch_id": None, "ranges": [], "replaced": []}, [nothing])


def describe_replayed(history: "BatchHistory") -> Shown:
    """Show what was published again, and what of which batches that was, or has replaced."""
    batch, taken = history.batch, history.replaced
    untouched = "No batch held these offsets before; nothing was replaced."
    return Shown(
        {**pick(batch, "batch_id", "state", "ranges"), "replaced": taken},
        [
            f"[green]published[/] {batch.label}, a replay of {count_offsets(batch.ranges):,} offsets",
            replacements_table(taken, batch.batch_id) if taken else untouched,
        ],
    )


def describe_dry_run(found: DryRun, history: "BatchHistory") -> Shown:
    """Show what a replay would do: records, rows that would go, how those that come differ, what speaks against it.

    Who has asked is shown the words of a target that refuses the rows, which the ledger does not keep.
    """
    outcome = dataclasses.replace(summarise_dry_run(found), objections=found.words)
    document = {"batch_id": found.batch.batch_id, "dry_run": True, "ranges": history.ranges}
    line = f"[bold]Dry run[/] of {count_offsets(found.batch.ranges):,} offsets: nothing was changed."
    return Shown(
        {**document, **outcome_as_json(outcome)}, [line, balance_table(history.ranges), *outcome_parts(outcome)]
    )
