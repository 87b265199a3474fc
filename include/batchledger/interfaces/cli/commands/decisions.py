"""What a person decides, on the command line: each needs a reason, and ``--dry-run`` shows what it would change."""

from typing import TYPE_CHECKING, Annotated

import typer

from batchledger.interfaces.cli.command_line import (
    AsJson,
    BatchId,
    Connection,
    Name,
    find_ledger,
    load_pipeline,
    parse_range,
    parse_target,
    user,
)
from batchledger.interfaces.cli.display.decisions import describe_decided
from batchledger.interfaces.cli.printing import show
from batchledger.lifecycle.orders import Accept, AcceptLoss, AtOnce, Discard, Pause, Resume, Skip
from batchledger.model.batch import Decided, Decision
from batchledger.planning.rewind import Rewind

if TYPE_CHECKING:
    from batchledger.config.pipeline_file import PipelineConfig

Reason = Annotated[str, typer.Option(help="Why; recorded with your name.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show what would change, and change nothing.")]
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
    order = Rewind(parse_target(to), truncate, allow_expired)
    _give(load_pipeline(pipeline), order, reason, dry_run, as_json)


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
    order = Skip(tuple(parse_range(each) for each in ranges), discard_batch)
    _give(load_pipeline(pipeline), order, reason, dry_run, as_json)


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
    order = AcceptLoss(tuple(parse_range(each) for each in ranges), discard_batch)
    _give(load_pipeline(pipeline), order, reason, dry_run, as_json)


def accept(
    batch_id: BatchId,
    *,
    reason: Reason,
    connection: Connection = "warehouse",
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Publish a blocked batch as it is staged; what nobody has explained is recorded as an accepted loss."""
    _give(_find_pipeline(batch_id, connection), Accept(batch_id), reason, dry_run, as_json)


def discard(
    batch_id: BatchId,
    *,
    reason: Reason,
    connection: Connection = "warehouse",
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Close a batch that is not published. The next run plans its offsets again; a replay is over."""
    _give(_find_pipeline(batch_id, connection), Discard(batch_id), reason, dry_run, as_json)


def pause(pipeline: Name, *, reason: Reason, dry_run: DryRun = False, as_json: AsJson = False) -> None:
    """Plan nothing new, whoever asks, until `resume`. What is being worked on may be finished."""
    _give(load_pipeline(pipeline), Pause(), reason, dry_run, as_json)


def resume(pipeline: Name, *, reason: Reason, dry_run: DryRun = False, as_json: AsJson = False) -> None:
    """End a pause."""
    _give(load_pipeline(pipeline), Resume(), reason, dry_run, as_json)


def give(config: "PipelineConfig", order: AtOnce, reason: str, *, dry_run: bool) -> Decided:
    """Carry an order out, or only find out what it would change."""
    from batchledger.lifecycle.execution import carry_out, explain
    from batchledger.wiring import build_platform

    do = explain if dry_run else carry_out
    return do(build_platform(config), order, Decision(user(), reason))


def _give(config: "PipelineConfig", order: AtOnce, reason: str, dry_run: bool, as_json: bool) -> None:
    decided = give(config, order, reason, dry_run=dry_run)
    show(describe_decided(config.name, order.kind, decided, dry_run=dry_run), as_json)


def _find_pipeline(batch_id: int, connection: str) -> "PipelineConfig":
    from batchledger.adapters.postgres.ledger.ledger import PostgresLedger

    return load_pipeline(PostgresLedger(find_ledger(connection)).load_batch(batch_id).pipeline)
