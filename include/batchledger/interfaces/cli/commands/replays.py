"""``batchledger replay``: publish records again, chosen by time or by offsets."""

import dataclasses
import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from batchledger.interfaces.cli.command_line import (
    Name,
    decide,
    load_pipeline,
    parse_bounds,
    parse_range,
    run_name,
)
from batchledger.interfaces.cli.display.batches import balance_table, erased_line, replacements_table
from batchledger.interfaces.cli.display.dry_runs import outcome_as_json, outcome_parts
from batchledger.interfaces.cli.display.progress import build_followed
from batchledger.interfaces.cli.printing import Shown, pick
from batchledger.lifecycle.delivery_steps import describe_delivery
from batchledger.lifecycle.dry_run import DryRun, summarise_dry_run
from batchledger.model.batch import Batch, Decision, RecordOrigin
from batchledger.model.counting import describe_count
from batchledger.model.errors import BatchBlockedError, BatchledgerError
from batchledger.model.offsets import count_offsets
from batchledger.planning.replay import Replay, Window

if TYPE_CHECKING:
    from batchledger.books.history import BatchHistory

logger = logging.getLogger(__name__)

_DECODED = ("accepted", "quarantined")

AllowExpired = Annotated[
    bool, typer.Option(help="Leave out what Kafka has removed, instead of refusing. It is recorded.")
]
DryRunOnly = Annotated[bool, typer.Option("--dry-run", help="Show what would happen to the rows, and change nothing.")]
Reason = Annotated[str | None, typer.Option(help="Why. The ledger keeps it with your name.")]


def replay(
    pipeline: Name,
    *,
    since: Annotated[
        str | None,
        typer.Option(
            "--from", metavar="BOUND", help="Where it begins: a moment (UTC unless it has a zone), or orders[3]@1200."
        ),
    ] = None,
    until: Annotated[str | None, typer.Option(metavar="BOUND", help="Where it ends, exclusive.")] = None,
    ranges: Annotated[
        list[str] | None,
        typer.Option("--range", metavar="RANGE", help='Instead: "orders[3] 1200..1500"; may be repeated.'),
    ] = None,
    allow_expired: AllowExpired = False,
    reason: Reason = None,
    dry_run: DryRunOnly = False,
) -> Shown:
    """Publish offsets again. One transaction replaces their rows, and no position moves.

    A topic cannot replace records: its readers see them once more.
    The command first says how many.
    """
    asked = _read_request(since, until, ranges or [], allow_expired)
    if dry_run:
        return rehearse(pipeline, asked, reason)
    decision = decide(require_reason(reason))
    done = publish_again(pipeline, [asked], decision)
    return describe_replayed(done[0]) if done else describe_nothing_to_replay(pipeline, asked)


def require_reason(reason: str | None) -> str:
    """Return the reason. Raises typer.BadParameter if there is none."""
    if reason is None or not reason.strip():
        raise typer.BadParameter("give a --reason; others will read it in the ledger")
    return reason


def publish_again(pipeline: str, requests: Sequence[Replay], decision: Decision) -> "list[BatchHistory]":
    """Publish each request as a batch of its own; return the histories of these batches. An empty request has none."""
    from batchledger.books.history import load_batch_history
    from batchledger.lifecycle import plans, run_batch
    from batchledger.looking import ledger_dsn

    config = load_pipeline(pipeline)
    platform, stage = build_followed(config)
    done = []
    for request in requests:
        run = run_name()
        batch = plans.plan_replay(platform, request, run, decision, key=run)
        if batch is not None:
            with _explaining_how_to_go_on(batch):
                run_batch.take_through(platform, batch.batch_id, run, stage)
            done.append(load_batch_history(ledger_dsn(config), batch.batch_id))
    return done


@contextmanager
def _explaining_how_to_go_on(batch: Batch) -> Iterator[None]:
    """Log what a person can do about a replay that failed: no later run takes it up by itself."""
    try:
        yield
    except BatchledgerError:
        logger.warning(
            "%s, the replay, stays open. Take it again: batchledger run %s --batch %d; or close it: batchledger "
            "discard %d --reason WHY",
            batch.label, batch.pipeline, batch.batch_id, batch.batch_id,
        )  # fmt: skip
        raise


def rehearse(pipeline: str, asked: Replay, reason: str | None) -> Shown:
    """Return what a replay would do. Exit code 3 if it would not be published."""
    from batchledger.books.history import load_batch_history
    from batchledger.lifecycle.dry_run import dry_run_replay
    from batchledger.looking import ledger_dsn

    config = load_pipeline(pipeline)
    platform, stage = build_followed(config)
    found = dry_run_replay(platform, asked, run_name(), decide(reason or "a dry run"), stage)
    if found is None:
        return describe_nothing_to_replay(pipeline, asked)
    history = load_batch_history(ledger_dsn(config), found.batch.batch_id)
    return describe_dry_run(found, history)


def describe_nothing_to_replay(pipeline: str, asked: Replay) -> Shown:
    """Show that there is no record to publish again, which is a success."""
    nothing = f"{pipeline}: nothing to publish again in {asked}."
    return Shown({"batch_id": None, "ranges": [], "replaced": []}, [nothing])


def describe_replayed(history: "BatchHistory") -> Shown:
    """Show what was published again, and which batches held it before."""
    batch, taken = history.batch, history.replaced
    untouched = "No batch held these offsets before; nothing was replaced."
    return Shown(
        {**pick(batch, "batch_id", "state", "ranges"), "replaced": taken},
        [
            f"[green]published[/] {batch.label}, a replay of {describe_count(count_offsets(batch.ranges), 'offset')}",
            erased_line(history.ranges),
            replacements_table(taken, batch.batch_id) if taken else untouched,
        ],
    )


def describe_dry_run(found: DryRun, history: "BatchHistory") -> Shown:
    """Show what a replay would do: its records, the rows that go, how the new rows differ, and the objections.

    If the target refuses the rows, its own words are shown here; the ledger does not keep them.
    """
    outcome = dataclasses.replace(summarise_dry_run(found), objections=found.words)
    document = {"batch_id": found.batch.batch_id, "dry_run": True, "ranges": history.ranges}
    line = f"[bold]Dry run[/] of {describe_count(count_offsets(found.batch.ranges), 'offset')}: nothing was changed."
    told = _describe_decoded(history) if found.batch.origin is RecordOrigin.QUARANTINE else None
    steps = f"Its publication would be: {describe_delivery(found.delivery)}." if found.delivery else None
    return Shown(
        {**document, **outcome_as_json(outcome)},
        [line, balance_table(history.ranges), told, *outcome_parts(outcome), steps],
        exit_code=BatchBlockedError.exit_code if found.objections else 0,
    )


def count_decoded(history: "BatchHistory") -> tuple[int, int]:
    """Return how many records of a replay from quarantine become rows, and how many stay there."""
    accepted, quarantined = (sum(getattr(each, line) or 0 for each in history.ranges) for line in _DECODED)
    return accepted, quarantined


def _describe_decoded(history: "BatchHistory") -> str:
    published, left = count_decoded(history)
    asked = describe_count(count_offsets(history.batch.ranges), "record")
    return f"{published:,} of {asked} would be published, {left:,} would stay in quarantine."


def _read_request(since: str | None, until: str | None, ranges: list[str], allow_expired: bool) -> Replay:
    named = tuple(parse_range(each) for each in ranges)
    if since is None and until is None and named:
        return Replay(named, allow_expired)
    if since is None or until is None or named:
        raise typer.BadParameter("name what to publish again: either --from and --until, or --range once or more")
    bounds = parse_bounds(since, until)
    return Replay(bounds if isinstance(bounds, Window) else (bounds,), allow_expired)
