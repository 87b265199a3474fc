"""The command line: the steps of Airflow's tasks, without Airflow, and answers to what people ask.

Exit codes: 0 done, 1 failed, 2 usage or configuration, 3 blocked or waiting for a person, 130 interrupted. ``--json``
prints exactly one JSON document on standard output, or none if the command ends by an error. Everything else goes to
standard error.
"""

import keyword
import logging
import os
import re
import shlex
import sys
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.highlighter import NullHighlighter
from rich.logging import RichHandler
from typer.core import TyperGroup
from typing_extensions import override

from batchledger.interfaces.cli.printing import print_error, standard_error
from batchledger.local.stack import Home, environment, environment_without_services, local_folder
from batchledger.model.errors import BatchledgerError
from batchledger.model.quoting import shorten
from batchledger.settings.lookup import prepare_command

INTERRUPTED = 130

_COMMANDS: Mapping[str, Mapping[str, str]] = {
    "Run it": {
        "plan": "batches",
        "run": "batches",
        "replay": "replays",
        "migrate": "batches",
        "grant": "grants",
        "rekey": "keys",
    },
    "Look": {
        "status": "local.commands",
        "metrics": "metrics",
        "batches": "batches",
        "batch": "batches",
        "records": "records",
        "looks": "looks",
        "requests": "requests",
        "schema": "schemas",
        "connections": "connections",
        "verify": "batches",
        "watch": "watching",
        "audit": "upkeep",
        "docs": "docs",
        "check": "check",
        "export": "export",
        "try": "trial",
        "alerts": "alerts",
    },
    "Decide": {
        "accept": "decisions",
        "discard": "decisions",
        "skip": "decisions",
        "accept-loss": "decisions",
        "rewind": "decisions",
        "erase": "decisions",
        "pause": "decisions",
        "resume": "decisions",
        "retire": "decisions",
        "rename": "decisions",
        "confirm": "requests",
        "withdraw": "requests",
    },
    "Repair": {"adopt-target": "adoption", "housekeeping": "upkeep", "quarantine": "quarantine"},
    "Develop": {
        "up": "local.stack.commands",
        "down": "local.stack.commands",
        "produce": "local.samples.commands",
        "demo": "local.commands",
        "torture": "local.torture.commands",
    },
}
"""The commands in their panels, and the module that has each: of ``interfaces.cli.commands``, unless it has a dot.

A command is a function of its name, or a group that the module calls ``app``. None is imported in order to list the
commands.
"""


class _Commands(TyperGroup):
    """Imports the module of a command that runs, and none in order to list them."""

    @override
    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        command = super().get_command(ctx, cmd_name)
        if command is not None:
            command.help = _read_help(cmd_name)
        return command

    @override
    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        name, command, rest = super().resolve_command(ctx, args)
        if name in _COMMANDS["Develop"]:
            from batchledger.config.extras import require_extra

            require_extra("local", f"batchledger {name}")
        return name, load_command(name) if name and command else None, rest


app = typer.Typer(
    help="Exactly-once, batch by batch, from Kafka into tables and topics.",
    cls=_Commands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


def _stand_in() -> None:
    """Be listed."""


for _panel, _listed in _COMMANDS.items():
    for _name in _listed:
        app.command(_name, rich_help_panel=_panel)(_stand_in)


def _find_module(name: str) -> str:
    (module,) = (listed[name] for listed in _COMMANDS.values() if name in listed)
    return f"batchledger.{module if '.' in module else f'interfaces.cli.commands.{module}'}"


def _name_function(name: str) -> str:
    """Return the name of the function of a command: ``accept_loss``, ``try_``."""
    return f"{name}_" if keyword.iskeyword(name) else name.replace("-", "_")


def _read_help(name: str) -> str:
    """Return the first paragraph of the command's own text, from the source: importing all modules takes seconds."""
    source = Path(__file__).parent.joinpath(*_find_module(name).split(".")[1:]).with_suffix(".py").read_text("utf-8")
    text = rf'^def {_name_function(name)}\(.*?^    """(.+?)(?:"""|\n\n)'
    found = re.search(text, source, re.DOTALL | re.MULTILINE)
    return " ".join(found[1].split()) if found else ""


def load_command(name: str) -> Any:
    """Return the command, with its options; or the group of commands that its module calls ``app``."""
    found = import_module(_find_module(name))
    group = getattr(found, "app", None)
    if group is None:
        from batchledger.interfaces.cli.command_line import Commands

        group = Commands(add_completion=False)
        group.command(name)(getattr(found, _name_function(name)))
    return typer.main.get_command(group)


def _print_version(is_asked: bool) -> None:
    if is_asked:
        from importlib import metadata

        from batchledger import DISTRIBUTION

        typer.echo(f"batchledger {metadata.version(DISTRIBUTION)}")
        raise typer.Exit


@app.callback()
def _begin(
    context: typer.Context,
    version: Annotated[  # noqa: ARG001 -- its callback answers
        bool, typer.Option("--version", help="Print the version and end.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    # Imported only if a command runs: the list of commands does not need it.
    from batchledger.database.sessions import keep_connections

    context.with_resource(keep_connections())


def main() -> None:
    """Run the command line. A failure, foreseen or not, is printed, and the process exits with its code.

    Nothing is printed when a person interrupts the command, or when the reader of its output ends.
    """
    try:
        _prepare_environment()
        _configure_logging()
        app()
    except BatchledgerError as error:
        print_error(error)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    except BrokenPipeError:
        sys.exit(BatchledgerError.exit_code)
    except Exception as error:  # noqa: BLE001 (the edge of the process)
        from batchledger.interfaces.unexpected import explain_unexpected

        command = shorten(shlex.join(["batchledger", *sys.argv[1:]]))
        told = explain_unexpected(error, command, local_folder())
        standard_error.print(told, markup=False, highlight=False, soft_wrap=True)
        sys.exit(BatchledgerError.exit_code)
    finally:
        _flush()


def _flush() -> None:
    """Write what is left. If the reader is gone, discard it: otherwise Python prints a trace when it ends."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _prepare_environment() -> None:
    # Airflow writes its own log to standard output, and --json promises exactly one document there.
    os.environ.setdefault("AIRFLOW__LOGGING__LOGGING_LEVEL", "ERROR")
    prepare_command()
    home = Home.of_project()
    is_up = home.settings_file.exists()
    for name, value in (environment(home) if is_up else environment_without_services(home)).items():
        os.environ.setdefault(name, value)


def _configure_logging() -> None:
    """Show our own events on standard error. Not by the root logger: Airflow takes it over when it is imported."""
    handler = RichHandler(
        console=standard_error,
        show_path=False,
        show_level=False,
        log_time_format="[%X]",
        markup=False,
        highlighter=NullHighlighter(),
    )
    own = logging.getLogger("batchledger")
    own.handlers, own.propagate = [handler], False
    own.setLevel(logging.INFO)
    for noisy in ("airflow", "great_expectations"):
        logging.getLogger(noisy).setLevel(logging.ERROR)
