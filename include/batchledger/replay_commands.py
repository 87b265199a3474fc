"""``batchledger replay``: publish what was read before once more, by time or by offsets."""

from typing import Annotated

import typer

from batchledger import replay_display as display
from batchledger.batch import Decision
from batchledger.command_line import AsJson, Name, parse_bounds, parse_range, run_name, user
from batchledger.config import load_pipeline
from batchledger.replay import Replay, Window

AllowExpired = Annotated[
    bool, typer.Option(help="Leave out what Kafka has removed, and record it, instead of refusing.")
]
Reason = Annotated[str | None, typer.Option(help="Why; recorded with your name.")]


def replay(
    pipeline: Name,
    *,
    since: Annotated[
        str | None,
        typer.Option("--from", metavar="BOUND", help="A moment (UTC unless it has a zone), or orders[3]@1200."),
    ] = None,
    until: Annotated[str | None, typer.Option(metavar="BOUND", help="Where it ends; not part of it.")] = None,
    ranges: Annotated[
        list[str] | None, typer.Option("--range", metavar="RANGE", help='"orders[3] 1200..1500"; may be repeated.')
    ] = None,
    allow_expired: AllowExpired = False,
    reason: Reason = None,
    as_json: AsJson = False,
) -> None:
    """Publish offsets again: their rows are replaced in one transaction, and no position moves."""
    from batchledger import run_batch
    from batchledger.ledger.history import load_batch_history
    from batchledger.wiring import build_platform, choose_stage_step, ledger_dsn

    asked = _read_request(since, until, ranges or [], allow_expired)
    if not (reason or "").strip():
        raise typer.BadParameter("a replay needs --reason; others will read it in the ledger")
    config, run = load_pipeline(pipeline), run_name()
    platform = build_platform(config)
    batch = run_batch.plan_replay(platform, asked, run, Decision(user(), reason or ""), key=run)
    if batch is None:
        display.show_nothing_to_replay(pipeline, asked, as_json)
        return
    run_batch.take_through(platform, batch.batch_id, run, choose_stage_step(config))
    display.show_replayed(load_batch_history(ledger_dsn(config), batch.batch_id), as_json)


def _read_request(since: str | None, until: str | None, ranges: list[str], allow_expired: bool) -> Replay:
    named = tuple(parse_range(each) for each in ranges)
    if since is None and until is None and named:
        return Replay(named, allow_expired)
    if since is None or until is None or named:
        raise typer.BadParameter("name what to publish again: --from and --until, or --range once or more")
    bounds = parse_bounds(since, until)
    return Replay(bounds if isinstance(bounds, Window) else (bounds,), allow_expired)
