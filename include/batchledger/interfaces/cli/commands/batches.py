"""The commands that run batches, show them and prove them."""

from datetime import UTC, datetime
from typing import Annotated

import typer

from batchledger.interfaces.cli.command_line import (
    BatchId,
    Connection,
    IfGone,
    Name,
    OwnersLogin,
    decide,
    find_known,
    find_ledger,
    find_ledger_named,
    load_pipeline,
    run_name,
)
from batchledger.interfaces.cli.commands.looks import note_look
from batchledger.interfaces.cli.display import batches as display
from batchledger.interfaces.cli.display.progress import build_followed
from batchledger.interfaces.cli.display.verifications import describe_verification
from batchledger.interfaces.cli.printing import Shown
from batchledger.lifecycle.platform import Platform
from batchledger.model.batch import Batch, BatchState
from batchledger.model.errors import AtWorkError, ConfigurationError


def migrate(pipeline: Name, login: OwnersLogin = None) -> Shown:
    """Bring the ledger's tables in the pipeline's warehouse up to date."""
    from batchledger.ledger.migrate import migrate as run_migrations
    from batchledger.settings.key_secret import find_key_secret

    before, after = run_migrations(find_ledger_named(pipeline, login), find_key_secret())
    return Shown({"before": before, "after": after}, [display.describe_migrated(before, after)])


def plan(pipeline: Name) -> Shown:
    """Print the ranges that the next run would take: the open batch, else a new plan. Changes nothing.

    It also prints what threatens unread records: open transactions that hold
    them back, and when the oldest may expire; and how the declared columns
    differ from the table's. And it says why rows would not stream into the
    table in one write.
    """
    from batchledger.lifecycle import plans
    from batchledger.lifecycle.streaming import choose_way
    from batchledger.monitoring.health import read_threats
    from batchledger.planning.live import Plan
    from batchledger.wiring import build_platform, compare_schema

    config = load_pipeline(pipeline)
    platform = build_platform(config)
    now = datetime.now(UTC)
    planned = platform.ledger.find_open_batch(pipeline) or plans.preview(platform)
    threats = read_threats(platform, now, planned.first_positions if isinstance(planned, Plan) else ())
    replaced = plans.find_replaced_rows(platform, planned.ranges)
    once_more = plans.find_once_more(platform, planned.ranges)
    number = planned.attempt + 1 if isinstance(planned, Batch) else 1
    try:
        reason, _ = choose_way(platform, planned, number)
    except ConfigurationError as error:
        reason = error.message
    return display.describe_plan(
        pipeline,
        planned,
        threats,
        now,
        replaced=replaced,
        once_more=once_more,
        differences=compare_schema(config).differences,
        staged_because=reason,
    )


def run(
    pipeline: Name,
    until_caught_up: Annotated[bool, typer.Option(help="Take batches up to the present log ends.")] = False,
    batch: Annotated[int | None, typer.Option(help="Take this batch again, even a blocked one.")] = None,
    reason: Annotated[
        str, typer.Option(help="With --batch: why. The ledger keeps it with your name.")
    ] = "no reason given",
) -> Shown | list[Shown]:
    """Plan, stage, audit and publish without Airflow.

    If another run is at work on the batch, this command says so,
    changes nothing and ends with exit code 0.
    With --until-caught-up, it waits for the other run.
    """
    from batchledger.lifecycle import plans, run_batch
    from batchledger.lifecycle.catching_up import catch_up
    from batchledger.lifecycle.ownership import load_batch

    platform, stage = build_followed(load_pipeline(pipeline))
    if batch is not None and (known := load_batch(platform, batch)).state is BatchState.PUBLISHED:
        told = f"{known.label} is published already, by attempt {known.attempt} of run {known.attempt_run}."
        return Shown([], [told])
    if until_caught_up and batch is None:
        published = list(catch_up(platform, run_name, stage))
    else:
        name = run_name()
        try:
            if batch is not None:
                plans.retake(platform, batch, name, decide(reason))
            done = run_batch.run_once(platform, name, batch, stage)
        except AtWorkError as error:
            return [display.describe_left(error)]
        published = [] if done is None else [done]
    shown = [display.describe_published(each, _count_quarantined(platform, each)) for each in published]
    return shown or Shown([], [f"{pipeline}: nothing to do."])


def _count_quarantined(platform: Platform, batch: Batch) -> int:
    return sum(balance.quarantined for balance in platform.decisions.load_balances(batch.batch_id))


def batches(
    pipeline: Name,
    limit: Annotated[int, typer.Option(min=1, help="How many batches.")] = 20,
    connection: IfGone = "warehouse",
) -> Shown:
    """List the batches of a pipeline and the decisions about them, the newest first."""
    from batchledger.books.history import list_batches, list_decisions

    _, dsn = find_known(pipeline, connection)
    decisions = list_decisions(dsn, pipeline, limit)
    return display.describe_batches(pipeline, list_batches(dsn, pipeline, limit), decisions)


def batch(
    batch_id: BatchId,
    connection: Connection = "warehouse",
    show_errors: Annotated[
        bool,
        typer.Option(help="Also print errors in full, which may quote values. The ledger keeps who has looked."),
    ] = False,
) -> Shown:
    """Show one batch: its ranges and their balance, its attempts and its checks."""
    from batchledger.books.history import load_batch_history, load_quoted

    dsn = find_ledger(connection)
    history = load_batch_history(dsn, batch_id)
    batch_id = history.batch.batch_id
    quoted = load_quoted(dsn, batch_id) if show_errors else {}
    note_look(dsn, history.batch.pipeline, (), batch_id=batch_id, errors=len(quoted))
    return display.describe_batch(history, quoted)


def verify(pipeline: Name, connection: IfGone = "warehouse") -> Shown:
    """Prove I1, I2, I7 and I8 over the whole history, and compare the target with the ledger.

    If the pipeline file is gone, the target cannot be found, and the ledger alone is proved.
    Exit code 1 if there is a finding.
    """
    from batchledger.wiring import verify_history, verify_pipeline

    config, dsn = find_known(pipeline, connection)
    verification = verify_history(dsn, pipeline) if config is None else verify_pipeline(config)
    return describe_verification(verification, config.delivery if config else None)
