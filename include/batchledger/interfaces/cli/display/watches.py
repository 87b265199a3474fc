"""What the command line shows of watches: their newest looks."""

from collections.abc import Sequence

from rich.text import Text

from batchledger.interfaces.cli.printing import Shown, new_table, pick
from batchledger.interfaces.surveys import Standing
from batchledger.model.findings import PipelineState

_STYLE_BY_STATE = {PipelineState.PROVED: "green", PipelineState.NEVER_LOOKED: "dim"}


def describe_watches(watches: Sequence[Standing]) -> Shown:
    """Show how each watch stands; people see the worst first."""
    table = new_table("Watches: batchledger watch WATCH", "watch", "state", "looked UTC", "what to know")
    for each in sorted(watches, key=lambda one: list(PipelineState).index(one.health.state)):
        looked = f"{each.look.looked_at:%m-%d %H:%M}" if each.look else ""
        state = Text(each.health.state, _STYLE_BY_STATE.get(each.health.state, "bold red"))
        table.add_row(each.name, state, looked, Text(each.health.detail))
    documents = [{"watch": each.name, **pick(each.health, "state", "detail"), "look": each.look} for each in watches]
    return Shown(documents, [table if watches else None])
