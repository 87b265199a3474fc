"""The directive ``commands``: every command of the program with its options, read from the program itself."""

import re
from collections.abc import Iterator

import typer
from docutils import nodes
from docutils.statemachine import StringList
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from batchledger import cli


class CommandsDirective(SphinxDirective):
    """A section for each command, in the groups of ``batchledger --help``."""

    def run(self) -> list[nodes.Node]:
        """Return the sections."""
        lines = StringList(list(write_commands()), source=cli.__file__)
        parent = nodes.Element()
        self.state.nested_parse(lines, self.content_offset, parent, match_titles=True)
        return parent.children


def write_commands() -> Iterator[str]:
    """Yield the reference as lines of Markdown."""
    group = typer.main.get_command(cli.app)
    panels: dict[str, list[str]] = {}
    for name, listed in group.commands.items():  # type: ignore[attr-defined]
        panels.setdefault(listed.rich_help_panel, []).append(name)
    for panel, names in panels.items():
        yield from (f"## {panel}", "")
        for name in names:
            yield from _write_command(f"batchledger {name}", cli.load_command(name))


def _write_command(path: str, command: object) -> Iterator[str]:
    context = command.context_class(command, info_name=path)  # type: ignore[attr-defined]
    pieces = [re.sub("[{}]", "", each) for each in command.collect_usage_pieces(context)]  # type: ignore[attr-defined]
    yield from (f"### {path.removeprefix('batchledger ')}", "", "```text", " ".join([path, *pieces]), "```", "")
    yield from (" ".join((command.help or "").split()), "")  # type: ignore[attr-defined]
    rows = [row for each in command.get_params(context) if (row := _write_parameter(each, context))]  # type: ignore[attr-defined]
    if rows:
        yield from ("| argument or option | meaning |", "|---|---|", *rows, "")
    for name, child in getattr(command, "commands", {}).items():
        yield from _write_command(f"{path} {name}", child)


def _write_parameter(parameter: object, context: object) -> str:
    record = parameter.get_help_record(context)  # type: ignore[attr-defined]
    if record is None or "--help" in record[0]:
        return ""
    name, meaning = (" ".join(each.split()).replace("|", "\\|") for each in record)
    return f"| `{name}` | {meaning} |"


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the directive."""
    app.add_directive("commands", CommandsDirective)
    return {"parallel_read_safe": True}
