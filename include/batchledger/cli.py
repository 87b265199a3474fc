"""The command line: the steps of Airflow's tasks, without Airflow, and answers to what people ask.

Exit codes: 0 done, 1 failed, 2 usage or configuration, 3 blocked or waiting for a person, 130 interrupted. ``--json``
prints exactly one JSON document on standard output, or none if the command ends by an error. Everything else goes to
standard error.
"""

import logging
import os
import shlex
import sys
from collections.abc import Mapping
from importlib import import_module
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

_COMMANDS: Mapping[str, Mapping[str, tuple[str, str]]] = {
    "Run it": {
        "plan": (
            "batches",
            "Print the ranges that the next run would take: the open batch, else a new plan. Changes nothing.",
        ),
        "run": ("batches", "Plan, stage, audit and publish without Airflow."),
        "replay": ("replays", "Publish offsets again. One transaction replaces their rows, and no position moves."),
        "migrate": ("batches", "Bring the ledger's tables in the pipeline's warehouse up to date."),
        "grant": (
            "grants",
            "Print what a role needs to run a pipeline, and to see no other one; execute it with --apply.",
        ),
        "rekey": (
            "keys",
            (
                "Hash the keys of all pipelines of the ledger with the secret of the connection batchledger_keys, "
                "from now on."
            ),
        ),
    },
    "Look": {
        "status": ("local.commands", "Show the local services, the state of each pipeline, and the open incidents."),
        "metrics": (
            "metrics",
            "Print the metrics of the pipelines in Prometheus' text format, as the page in Airflow serves them.",
        ),
        "batches": ("batches", "List the batches of a pipeline and the decisions about them, the newest first."),
        "batch": ("batches", "Show one batch: its ranges and their balance, its attempts and its checks."),
        "records": ("records", "Show records with key, value and headers, from Kafka or from quarantine."),
        "looks": ("looks", "List who has looked at keys and values of a pipeline's records, and at errors in full."),
        "requests": (
            "requests",
            "List what waits for a second person: who asked for it, why, and what it would change.",
        ),
        "schema": (
            "schemas",
            "Compare the declared columns with the table, and with the newest records. Changes nothing.",
        ),
        "verify": (
            "batches",
            "Prove I1, I2, I7 and I8 over the whole history, and compare the target with the ledger.",
        ),
        "audit": (
            "upkeep",
            "Prove ledger and target, and look for what is stuck or left behind. Stores the results and sends alerts.",
        ),
        "docs": (
            "docs",
            "Write the history and the newest 200 batches of each pipeline as pages, as Airflow does after each run.",
        ),
        "alerts": ("alerts", "The incidents and the messages about them: list, send, test."),
    },
    "Decide": {
        "accept": (
            "decisions",
            "Publish a blocked batch as it is staged. Offsets without an explanation become an accepted loss.",
        ),
        "discard": (
            "decisions",
            "Close a batch that is not published. The next run plans its offsets again, unless it is a replay.",
        ),
        "skip": ("decisions", "Give up offsets that Kafka still has. Moves the position of their partitions only."),
        "accept-loss": (
            "decisions",
            "Give up offsets that Kafka removed before they were read. Moves the position of their partitions only.",
        ),
        "rewind": (
            "decisions",
            "Read again from further back. In a table, the new rows replace the old ones: nothing is there twice.",
        ),
        "erase": (
            "decisions",
            (
                "Delete the rows of a key for good, with what quarantine and the ledger hold of it (PostgreSQL "
                "tables only)."
            ),
        ),
        "pause": ("decisions", "Plan nothing new until `resume`. A run that has begun may finish its batch."),
        "resume": ("decisions", "End a pause, or take up a retired pipeline again where it stood."),
        "retire": (
            "decisions",
            (
                "End a pipeline, also after its file was removed. Its history stays and can be verified; its "
                "incidents end."
            ),
        ),
        "confirm": (
            "requests",
            "Carry out what another person has asked for, exactly as it was shown. The ledger keeps both names.",
        ),
        "withdraw": (
            "requests",
            "End a request without carrying it out: your own, or another person's that you do not agree with.",
        ),
    },
    "Repair": {
        "adopt-target": (
            "adoption",
            "Go on with a target that was restored from a backup or moved. `verify` has to hold against it.",
        ),
        "housekeeping": (
            "upkeep",
            "Remove staging of ended attempts, expired message keys and quarantine, and old validations and audits.",
        ),
        "quarantine": ("quarantine", "Records that could not be decoded: list them, replay them, drop them."),
    },
    "Develop": {
        "up": (
            "local.stack.commands",
            "Start the local services that do not run yet, and bring the ledger's tables up to date.",
        ),
        "down": ("local.stack.commands", "End every process that `up` has started. Data and logs stay."),
        "produce": (
            "local.samples.commands",
            "Write sample records to the pipeline's topic. An interrupted data set goes on where it stopped.",
        ),
        "demo": (
            "local.commands",
            "Write 336,776 flights into Kafka, trigger the pipeline in Airflow, and follow it until it has caught up.",
        ),
        "torture": (
            "local.torture.commands",
            "Kill, pause and cut off real services at random, then compare log and target.",
        ),
    },
}
"""The commands in their panels: the module that has each, and the first words of its help.

A module of ``interfaces.cli.commands``, unless it has a dot. None is imported in order to list the commands.
"""


class _Commands(TyperGroup):
    """Imports the module of a command that runs, and none in order to list them."""

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
    for _name, (_, _help) in _listed.items():
        app.command(_name, help=_help, rich_help_panel=_panel)(_stand_in)


def load_command(name: str) -> Any:
    """Return the command, with its options; or the group of commands that its module calls ``app``."""
    (module,) = (listed[name][0] for listed in _COMMANDS.values() if name in listed)
    found = import_module(f"batchledger.{module if '.' in module else f'interfaces.cli.commands.{module}'}")
    group = getattr(found, "app", None)
    if group is None:
        group = typer.Typer(add_completion=False)
        group.command(name)(getattr(found, name.replace("-", "_")))
    return typer.main.get_command(group)


def _print_version(is_asked: bool) -> None:
    if is_asked:
        from importlib import metadata

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
