"""``batchledger looks``: who was shown keys and values of records, or errors in full, here or on the page."""

from collections.abc import Sequence
from typing import Annotated

import typer
from rich.text import Text

from batchledger.interfaces.cli.command_line import Name, find_actor, find_ledger_named
from batchledger.interfaces.cli.printing import Shown, new_table
from batchledger.model.actors import PayloadLook
from batchledger.model.offsets import TopicPartition


def looks(
    pipeline: Name,
    *,
    limit: Annotated[int, typer.Option(min=1, help="How many, the newest first.")] = 20,
) -> Shown:
    """List who has looked at keys and values of a pipeline's or watch's records, and at errors in full."""
    from batchledger.ledger.looks import list_looks

    return describe_looks(pipeline, list_looks(find_ledger_named(pipeline, None), pipeline, limit))


def note_look(
    dsn: str,
    pipeline: str,
    places: Sequence[tuple[TopicPartition, int]],
    *,
    batch_id: int | None = None,
    errors: int = 0,
) -> None:
    """Record in the ledger that this command is about to show the records at these places, and errors in full.

    Raises ConfigurationError if the ledger's user may not do that; the command shows nothing then.
    """
    from batchledger.ledger.looks import record_look

    record_look(dsn, pipeline, find_actor(), places, batch_id=batch_id, errors=errors)


def describe_looks(pipeline: str, found: Sequence[PayloadLook]) -> Shown:
    """Show one look a line."""
    if not found:
        return Shown(found, [f"{pipeline}: no payload was looked at."])
    table = new_table(f"Looks at payloads of {pipeline}", "looked UTC", "by", "batch", "records", "errors", "where")
    for each in found:
        batch = "" if each.batch_id is None else str(each.batch_id)
        counts = (f"{each.records:,}", f"{each.errors:,}")
        table.add_row(
            f"{each.looked_at:%m-%d %H:%M}", Text(str(each.actor)), batch, *counts, Text("\n".join(each.ranges))
        )
    return Shown(found, [table])
