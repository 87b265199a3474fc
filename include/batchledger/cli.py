"""The command line: the same steps as Airflow's tasks, for when Airflow is down, and the questions people ask.

Exit codes: 0 done, 1 failed, 2 usage or configuration, 3 blocked or waiting for a person, 130 interrupted. ``--json``
prints exactly one JSON document on standard output, none when the command ends by an error; everything else goes to
standard error.
"""

import dataclasses
import logging
import os
import shlex
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Annotated

import typer
from rich.logging import RichHandler

from batchledger import (
    adoption_commands,
    alert_commands,
    alert_display,
    decision_commands,
    display,
    docs_commands,
    quarantine_commands,
    record_commands,
    replay_commands,
    upkeep_commands,
)
from batchledger.batch import Batch, BatchState, Decision
from batchledger.command_line import AsJson, Name, run_name, user
from batchledger.config import PipelineConfig, load_pipeline
from batchledger.database import keep_connections
from batchledger.errors import AtWorkError, BatchledgerError
from batchledger.kafka.guarantees import RECORDS_PER_TRANSACTION, Guarantee, Transactions
from batchledger.pipeline import Platform
from batchledger.printing import print_json, standard_error
from batchledger.progress_display import build_followed
from batchledger.quoting import shorten
from batchledger.stack import Home, commands, environment, environment_without_services, local_folder
from batchledger.torture import commands as torture_commands
from batchledger.unexpected import explain_unexpected

INTERRUPTED = 130

app = typer.Typer(
    help="Exactly-once, batch by batch, from Kafka into tables and topics.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
app.command()(commands.up)
app.command()(commands.down)
app.command()(torture_commands.torture)
app.command()(replay_commands.replay)
app.command()(record_commands.records)
app.command()(docs_commands.docs)
app.command()(upkeep_commands.audit)
app.command()(upkeep_commands.housekeeping)
app.add_typer(alert_commands.app, name="alerts")
app.add_typer(quarantine_commands.app, name="quarantine")
for _decide in (
    decision_commands.rewind,
    decision_commands.skip,
    decision_commands.accept,
    decision_commands.discard,
    decision_commands.accept_loss,
    adoption_commands.adopt_target,
    decision_commands.pause,
    decision_commands.resume,
):
    app.command()(_decide)


@app.command()
def status(as_json: AsJson = False) -> None:
    """Show the local services, how each pipeline stands, whatever services it uses, and what people were told of."""
    from batchledger.wiring import list_open_incidents, survey_pipelines

    found, now = commands.look(), datetime.now(UTC)
    if not as_json:
        commands.show(found)
    pipelines, incidents = survey_pipelines(now), list_open_incidents()
    if as_json:
        surveyed = [display.pipeline_as_json(each) for each in pipelines]
        told = [alert_display.incident_as_json(each) for each in incidents]
        print_json({**dataclasses.asdict(found), "pipelines": surveyed, "incidents": told})
        return
    if pipelines:
        display.show_pipelines(pipelines, now)
    alert_display.show_open(incidents)


@app.command()
def migrate(pipeline: Name, as_json: AsJson = False) -> None:
    """Bring the ledger's tables in the pipeline's warehouse up to date."""
    from batchledger.ledger.migrate import migrate as run_migrations
    from batchledger.wiring import ledger_dsn

    before, after = run_migrations(ledger_dsn(load_pipeline(pipeline)))
    display.show_migration(before, after, as_json)


@app.command()
def produce(
    pipeline: Name,
    *,
    records: Annotated[
        int | None, typer.Option(min=1, help="How many to write; the flights pipeline has its own.")
    ] = None,
    partitions: Annotated[int, typer.Option(min=1, help="Partitions of the topic if it has to be created.")] = 4,
    guarantee: Annotated[Guarantee, typer.Option(help="What the producer asks of the broker.")] = Guarantee.IDEMPOTENT,
    records_per_transaction: Annotated[
        int | None, typer.Option(min=1, help="With transactional: records of one transaction.", show_default="1000")
    ] = None,
    abort_every: Annotated[
        int | None, typer.Option(min=1, help="With transactional: abort each N-th transaction.", metavar="N")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Write sample records to the pipeline's topic; continue where it was interrupted if they are a data set.

    Exit code 1 when a record failed, or when it is unknown whether it was written; with acks_0 nobody asks.
    """
    from batchledger.samples import SampleOrder, produce_samples

    if guarantee is not Guarantee.TRANSACTIONAL and (records_per_transaction or abort_every):
        raise typer.BadParameter("--records-per-transaction and --abort-every need --guarantee transactional")
    transactions = Transactions(records_per_transaction or RECORDS_PER_TRANSACTION, abort_every)
    order = SampleOrder(records, partitions, guarantee, transactions)
    produced = produce_samples(load_pipeline(pipeline), order, standard_error)
    display.show_produced(produced, as_json)
    if not produced.is_complete:
        raise typer.Exit(1)


@app.command()
def plan(pipeline: Name, as_json: AsJson = False) -> None:
    """Print the ranges that the next run would take: those of the open batch, else a new plan. Changes nothing.

    Also what threatens the unread records: open transactions that hold them back, and when the oldest may expire.
    """
    from batchledger import plans
    from batchledger.health import read_threats
    from batchledger.planning import Plan
    from batchledger.wiring import build_platform

    platform = build_platform(load_pipeline(pipeline))
    now = datetime.now(UTC)
    planned = platform.ledger.find_open_batch(pipeline) or plans.preview(platform)
    threats = read_threats(platform, now, planned.first_positions if isinstance(planned, Plan) else ())
    replaced = plans.find_replaced_rows(platform, planned.ranges)
    once_more = plans.find_once_more(platform, planned.ranges)
    display.show_plan(pipeline, planned, threats, now, as_json, replaced=replaced, once_more=once_more)


@app.command()
def run(
    pipeline: Name,
    until_caught_up: Annotated[bool, typer.Option(help="Go on to the log ends of this moment.")] = False,
    batch: Annotated[int | None, typer.Option(help="Take this batch again, a blocked one included.")] = None,
    reason: Annotated[str, typer.Option(help="With --batch: why; recorded with your name.")] = "no reason given",
    as_json: AsJson = False,
) -> None:
    """Plan, stage, audit and publish without Airflow.

    While another run is at work on the batch, it says so, changes nothing and ends with exit code 0; with
    --until-caught-up it waits for it.
    """
    from batchledger import plans, run_batch
    from batchledger.catching_up import catch_up
    from batchledger.ownership import load_batch

    platform, stage = build_followed(load_pipeline(pipeline))
    if batch is not None and (known := load_batch(platform, batch)).state is BatchState.PUBLISHED:
        display.show_published_already(known, as_json)
        return
    if until_caught_up and batch is None:
        _show_run(platform, list(catch_up(platform, run_name, stage)), as_json)
        return
    name = run_name()
    try:
        if batch is not None:
            plans.retake(platform, batch, name, Decision(user(), reason))
        done = run_batch.run_once(platform, name, batch, stage)
    except AtWorkError as error:
        display.show_left(error, as_json)
        return
    _show_run(platform, [] if done is None else [done], as_json)


def _show_run(platform: Platform, published: Sequence[Batch], as_json: bool) -> None:
    counted = [
        (each, sum(balance.quarantined for balance in platform.decisions.load_balances(each.batch_id)))
        for each in published
    ]
    display.show_run(platform.rules.name, counted, as_json)


@app.command()
def batches(
    pipeline: Name,
    limit: Annotated[int, typer.Option(min=1, help="How many, the newest first.")] = 20,
    as_json: AsJson = False,
) -> None:
    """List the batches of a pipeline, and what people decided about it and them, the newest first."""
    from batchledger.ledger.history import list_batches, list_decisions
    from batchledger.wiring import ledger_dsn

    dsn = ledger_dsn(load_pipeline(pipeline))
    decisions = list_decisions(dsn, pipeline, limit)
    display.show_batches(pipeline, list_batches(dsn, pipeline, limit), decisions, as_json)


@app.command()
def batch(
    batch_id: Annotated[int, typer.Argument(metavar="ID", help="The number of a batch.")],
    connection: Annotated[str, typer.Option(help="The Airflow connection of the ledger's database.")] = "warehouse",
    as_json: AsJson = False,
) -> None:
    """Show one batch: its ranges with their balance, its attempts, its checks."""
    from batchledger.connections import load_connection, postgres_dsn
    from batchledger.ledger.history import load_batch_history

    dsn = postgres_dsn(load_connection(connection, ("postgres",), "--connection"))
    display.show_batch(load_batch_history(dsn, batch_id), as_json)


@app.command()
def verify(pipeline: Name, as_json: AsJson = False) -> None:
    """Prove I1, I2, I7 and I8 over the whole history and compare the target with the ledger; 1 on any finding."""
    from batchledger.wiring import verify_pipeline

    config = load_pipeline(pipeline)
    verification = verify_pipeline(config)
    display.show_verification(verification, config.delivery, as_json)
    if not verification.holds:
        raise typer.Exit(1)


@app.command()
def demo(pipeline: Annotated[str, typer.Argument(hidden=True)] = "flights") -> None:
    """Feed 336,776 flights into Kafka, trigger the pipeline in Airflow, follow it until it has caught up."""
    from batchledger.demo import run_demo

    config: PipelineConfig = load_pipeline(pipeline)
    raise typer.Exit(run_demo(config, standard_error))


def main() -> None:
    """Run the command line. A failure, also an unforeseen one, prints one sentence and exits with its code.

    Interrupting it, and ending what reads its output, are no failures: nothing is printed.
    """
    try:
        _prepare_environment()
        _configure_logging()
        with keep_connections():
            app()
    except BatchledgerError as error:
        style = "bold red" if error.exit_code else "bold"
        standard_error.print(f"[{style}]{type(error).__name__}:[/]", end=" ")
        standard_error.print(str(error), markup=False, highlight=False, soft_wrap=True)
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
    """Write what is left, unless its reader is gone: Python would print a trace about that when it ends."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _prepare_environment() -> None:
    # Airflow writes its own log to standard output, and --json promises exactly one document there.
    os.environ.setdefault("AIRFLOW__LOGGING__LOGGING_LEVEL", "ERROR")
    home = Home.of_project()
    is_up = home.settings_file.exists()
    for name, value in (environment(home) if is_up else environment_without_services(home)).items():
        os.environ.setdefault(name, value)


def _configure_logging() -> None:
    """Show our own events on standard error, not by the root logger: Airflow takes that one when it is imported."""
    handler = RichHandler(
        console=standard_error, show_path=False, show_level=False, log_time_format="[%X]", markup=False
    )
    own = logging.getLogger("batchledger")
    own.handlers, own.propagate = [handler], False
    own.setLevel(logging.INFO)
    for noisy in ("airflow", "great_expectations"):
        logging.getLogger(noisy).setLevel(logging.ERROR)
