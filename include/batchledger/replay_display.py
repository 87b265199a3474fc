"""What the commands about replays print: a table for people, or one JSON document with the same content."""

from batchledger.display import replacements_table
from batchledger.ledger.history import BatchHistory
from batchledger.offsets import count_offsets
from batchledger.printing import print_json, print_out, range_as_json
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
