"""What a person decides, on the command line: each needs a reason, and ``--dry-run`` shows what it would change."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer

from batchledger.config.pipeline_file import PipelineConfig, load_pipeline
from batchledger.interfaces.cli.command_line import AsJson, Name, parse_range, parse_target, user
from batchledger.interfaces.cli.display.decisions import show_decided
from batchledger.model.batch import Decided, Decision, DecisionKind
from batchledger.planning.rewind import Rewind

if TYPE_CHECKING:
    from batchledger.lifecycle.platform import Platform

Reason = Annotated[str, typer.Option(help="Why; recorded with your name.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show what would change, and change nothing.")]
BatchId = Annotated[int, typer.Argument(metavar="ID", help="The number of a batch.")]
Connection = Annotated[str, typer.Option(help="The Airflow connection of the ledger's database.")]
Ranges = Annotated[
    list[str], typer.Argument(metavar="RANGE...", help='What is given up: "orders[3] 10..25", from the position on.')
]
DiscardBatch = Annotated[
    int | None, typer.Option(metavar="ID", help="Give up too what this open batch has staged of these partitions.")
]


def rewind(
    pipeline: Name,
    *,
    to: Annotated[
        list[str],
        typer.Option(metavar="WHERE", help="earliest, a moment, or orders[3]@1200 (once for each partition)."),
    ],
    reason: Reason,
    truncate: Annotated[
        bool,
        typer.Option(
            "--truncate",
            help="Empty the table too (in PostgreSQL only): readers see none of its rows until they are back.",
        ),
    ] = False,
    allow_expired: Annotated[
        bool, typer.Option("--allow-expired", help="With --truncate: even rows that Kafka cannot give again.")
    ] = False,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Read again from further back. In a table what is read replaces the rows that are there; nothing is there twice.

    A topic replaces nothing: its readers see once more what is read again; how much that is, it says first.
    """
    from batchledger.lifecycle import decisions

    asked = Rewind(parse_target(to), truncate, allow_expired)
    _carry_out(
        load_pipeline(pipeline),
        DecisionKind.REWIND,
        lambda platform: decisions.rewind(platform, asked, Decision(user(), reason)),
        dry_run,
        as_json,
    )


def skip(
    pipeline: Name,
    ranges: Ranges,
    *,
    reason: Reason,
    discard_batch: DiscardBatch = None,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Go on without offsets that could be read. Moves only their partitions, and is recorded."""
    from batchledger.lifecycle import decisions

    given_up = [parse_range(each) for each in ranges]
    _carry_out(
        load_pipeline(pipeline),
        DecisionKind.SKIP,
        lambda platform: decisions.skip(platform, given_up, Decision(user(), reason), discard_batch),
        dry_run,
        as_json,
    )


def accept_loss(
    pipeline: Name,
    ranges: Ranges,
    *,
    reason: Reason,
    discard_batch: DiscardBatch = None,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Go on without offsets that Kafka removed before they were read. Moves only their partitions, and is recorded."""
    from batchledger.lifecycle import decisions

    lost = [parse_range(each) for each in ranges]
    _carry_out(
        load_pipeline(pipeline),
        DecisionKind.ACCEPT_LOSS,
        lambda platform: decisions.accept_loss(platform, lost, Decision(user(), reason), discard_batch),
        dry_run,
        as_json,
    )


def accept(
    batch_id: BatchId,
    *,
    reason: Reason,
    connection: Connection = "warehouse",
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Publish a blocked batch as it is staged; what nobody has explained is recorded as an accepted loss."""
    from batchledger.lifecycle import decisions

    _carry_out(
        _find_pipeline(batch_id, connection),
        DecisionKind.ACCEPT,
        lambda platform: decisions.accept(platform, batch_id, Decision(user(), reason)),
        dry_run,
        as_json,
    )


def discard(
    batch_id: BatchId,
    *,
    reason: Reason,
    connection: Connection = "warehouse",
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Close a batch that is not published. The next run plans its offsets again; a replay is over."""
    from batchledger.lifecycle import decisions

    _carry_out(
        _find_pipeline(batch_id, connection),
        DecisionKind.DISCARD,
        lambda platform: decisions.discard(platform, batch_id, Decision(user(), reason)),
        dry_run,
        as_json,
    )


def pause(pipeline: Name, *, reason: Reason, dry_run: DryRun = False, as_json: AsJson = False) -> None:
    """Plan nothing new, whoever asks, until `resume`. What is being worked on may be finished."""
    from batchledger.lifecycle import decisions

    _carry_out(
        load_pipeline(pipeline),
        DecisionKind.PAUSE,
        lambda platform: decisions.pause(platform, Decision(user(), reason)),
        dry_run,
        as_json,
    )


def resume(pipeline: Name, *, reason: Reason, dry_run: DryRun = False, as_json: AsJson = False) -> None:
    """End a pause."""
    from batchledger.lifecycle import decisions

    _carry_out(
        load_pipeline(pipeline),
        DecisionKind.RESUME,
        lambda platform: decisions.resume(platform, Decision(user(), reason)),
        dry_run,
        as_json,
    )


def _carry_out(
    config: PipelineConfig, kind: DecisionKind, decide: "Callable[[Platform], Decided]", dry_run: bool, as_json: bool
) -> None:
    from batchledger.lifecycle.decisions import rehearse
    from batchledger.wiring import build_platform

    platform = build_platform(config)
    decided = decide(rehearse(platform) if dry_run else platform)
    show_decided(config.name, kind, decided, dry_run=dry_run, as_json=as_json)


def _find_pipeline(batch_id: int, connection: str) -> PipelineConfig:
    from batchledger.adapters.postgres.ledger.ledger import PostgresLedger
    from batchledger.config.connections import load_connection, postgres_dsn

    dsn = postgres_dsn(load_connection(connection, ("postgres",), "--connection"))
    return load_pipeline(PostgresLedger(dsn).load_batch(batch_id).pipeline)
