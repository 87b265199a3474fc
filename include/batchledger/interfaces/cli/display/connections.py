"""How the command line shows connections: a line each, and below what is wrong with some."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from rich.text import Text

from batchledger.interfaces.cli.printing import Shown, label_parts, new_table, number, pick
from batchledger.model.errors import BatchledgerError

_MOST_NAMES = 3


@dataclass(frozen=True, slots=True)
class Listed:
    """A connection that pipelines name. ``found_in`` is empty if it is missing, and then ``error`` says so.

    ``place_by_types`` has the types that fit, and the first place that needs one of them, for each different use.
    ``milliseconds`` is None if nothing was asked. ``words`` say what has answered, or why nothing was asked.
    """

    connection: str
    place_by_types: dict[tuple[str, ...], str] = field(default_factory=dict)
    pipelines_by_key: dict[str, list[str]] = field(default_factory=dict)
    type: str = ""
    found_in: str = ""
    words: str = ""
    milliseconds: int | None = None
    error: BatchledgerError | None = None


def describe_connections(listed: Sequence[Listed], *, is_tested: bool) -> Shown:
    """Show what names the connections and where they are, or what they answer. The exit code is 1 if one fails."""
    more = ("ms", "answer") if is_tested else ("named by", "found in")
    table = new_table("Connections", "connection", "type", *more)
    for each in listed:
        fault = "" if each.error is None else "see below" if each.found_in else "missing"
        answer = number(each.milliseconds), Text(fault or each.words)
        place = Text(_name_uses(each)), Text(each.found_in or fault)
        table.add_row(each.connection, each.type, *(answer if is_tested else place))
    faults = [line for each in listed if each.error for line in label_parts(each.error)]
    documents = [
        pick(each, "connection", "type", "pipelines_by_key", "found_in", "words", "milliseconds")
        | {"error": None if each.error is None else str(each.error)}
        for each in listed
    ]
    none = None if listed else "No pipeline names a connection."
    return Shown(documents, [none or table, *faults], exit_code=1 if faults else 0)


def _name_uses(each: Listed) -> str:
    """Return the keys that name it, and of which pipelines."""
    told = []
    for key, pipelines in each.pipelines_by_key.items():
        more = len(pipelines) - _MOST_NAMES
        names = ", ".join(pipelines[:_MOST_NAMES]) + (f" and {more} more" if more > 0 else "")
        told.append(f"{key} of {names}")
    return "\n".join(told)
