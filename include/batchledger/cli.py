"""The command line: the steps of Airflow's tasks, without Airflow, and answers to what people ask.

Exit codes: 0 done, 1 failed, 2 usage or configuration, 3 blocked or waiting for a person, 130 interrupted. ``--json``
prints exactly one JSON document on standard output, or none if the command ends by an error. Everything else goes to
standard error.
"""

import logging
import os
import shlex
import sys
from importlib import metadata
from typing import Annotated

import typer
from rich.highlighter import NullHighlighter
from rich.logging import RichHandler

from batchledger.interfaces.cli.commands import (
    adoption,
    alerts,
    batches,
    decisions,
    docs,
    grants,
    keys,
    looks,
    metrics,
    quarantine,
    records,
    replays,
    requests,
    schemas,
    upkeep,
)
from batchledger.interfaces.cli.printing import print_error, standard_error
from batchledger.interfaces.unexpected import explain_unexpected
from batchledger.local import commands as local
from batchledger.local.samples import commands as samples
from batchledger.local.stack import Home, environment, environment_without_services, local_folder
from batchledger.local.stack import commands as stack
from batchledger.local.torture import commands as torture
from batchledger.model.errors import BatchledgerError
from batchledger.model.quoting import shorten
from batchledger.settings.lookup import prepare_command

INTERRUPTED = 130

app = typer.Typer(
    help="Exactly-once, batch by batch, from Kafka into tables and topics.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
_COMMANDS = {
    "Run it": (batches.plan, batches.run, replays.replay, batches.migrate, grants.grant, keys.rekey),
    "Look": (
        local.status,
        metrics.metrics,
        batches.batches,
        batches.batch,
        records.records,
        looks.looks,
        requests.requests,
        schemas.schema,
        batches.verify,
        upkeep.audit,
        docs.docs,
    ),
    "Decide": (
        decisions.accept,
        decisions.discard,
        decisions.skip,
        decisions.accept_loss,
        decisions.rewind,
        decisions.erase,
        decisions.pause,
        decisions.resume,
        decisions.retire,
        requests.confirm,
        requests.withdraw,
    ),
    "Repair": (adoption.adopt_target, upkeep.housekeeping),
    "Develop": (stack.up, stack.down, samples.produce, local.demo, torture.torture),
}
for _panel, _commands in _COMMANDS.items():
    for _command in _commands:
        app.command(rich_help_panel=_panel)(_command)
app.add_typer(alerts.app, name="alerts", rich_help_panel="Look")
app.add_typer(quarantine.app, name="quarantine", rich_help_panel="Repair")


def _print_version(is_asked: bool) -> None:
    if is_asked:
        typer.echo(f"batchledger {metadata.version('batchledger')}")
        raise typer.Exit


@app.callback()
def _begin(
    context: typer.Context,
    version: Annotated[  # noqa: ARG001 -- its callback answers
        bool, typer.Option("--version", help="Print the version and end.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    # Imported only if a command runs: the list of commands does not need it.
    from batchledger.database.transactions import keep_connections

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
