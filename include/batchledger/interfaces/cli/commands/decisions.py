"""The decisions of a person: each needs a reason, and ``--dry-run`` shows what it would change."""

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

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
    find_ledger_of,
    load_pipeline,
    name_connection,
    parse_range,
    parse_target,
    take_more,
)
from batchledger.interfaces.cli.display.decisions import describe_decided
from batchledger.interfaces.cli.printing import Shown
from batchledger.lifecycle.orders import Accept, AcceptLoss, AtOnce, Discard, Erase, Pause, Rename, Resume, Retire, Skip
from batchledger.model.batch import Decided
from batchledger.model.erasure import ErasureKey
from batchledger.model.errors import DecisionRefusedError, UnknownPipelineError
from batchledger.planning.rewind import Rewind

if TYPE_CHECKING:
    from batchledger.config.pipeline_file import PipelineConfig

Reason = Annotated[str, typer.Option(help="Why. The ledger keeps it with your name.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show what would change, and change nothing.")]
Ranges = Annotated[
    list[str], typer.Argument(metavar="RANGE", help='What to give up, from the position on: "orders[3] 10..25".')
]
DiscardBatch = Annotated[
    int | None, typer.Option(metavar="ID", help="Also discard this open batch, if it holds these partitions.")
]
Ordered = tuple["PipelineConfig", AtOnce]


def decision(find: Callable[..., Ordered]) -> Callable[..., Shown]:
    """Make a command of a function that returns a pipeline and an order: it takes a reason, and ``--dry-run``."""

    def command(reason: str, dry_run: bool = False, **said: Any) -> Shown:
        config, order = find(**said)
        decided = give(config, order, reason, dry_run=dry_run)
        return describe_decided(config.name, order.kind, decided, dry_run=dry_run)

    return take_more(command, find, reason=(Reason, inspect.Parameter.empty), dry_run=(DryRun, False))


@decision
def rewind(
    pipeline: Name,
    to: Annotated[
        list[str], typer.Option(metavar="WHERE", help="earliest, a moment, or orders[3]@1200 for each partition.")
    ],
    truncate: Annotated[
        bool,
        typer.Option(
            "--truncate", help="Also empty the table (PostgreSQL only). Readers see no row until it is read again."
        ),
    ] = False,
    allow_expired: Annotated[
        bool,
        typer.Option("--allow-expired", help="With --truncate: also remove rows whose records Kafka no longer has."),
    ] = False,
) -> Ordered:
    """Read again from further back. In a table, the new rows replace the old ones: nothing is there twice.

    A topic cannot replace records: its readers see them once more.
    The command first says how many.
    """
    return load_pipeline(pipeline), Rewind(parse_target(to), truncate, allow_expired)


@decision
def skip(pipeline: Name, ranges: Ranges, discard_batch: DiscardBatch = None) -> Ordered:
    """Give up offsets that Kafka still has. Moves the position of their partitions only."""
    return load_pipeline(pipeline), Skip(tuple(map(parse_range, ranges)), discard_batch)


@decision
def accept_loss(pipeline: Name, ranges: Ranges, discard_batch: DiscardBatch = None) -> Ordered:
    """Give up offsets that Kafka removed before they were read. Moves the position of their partitions only."""
    return load_pipeline(pipeline), AcceptLoss(tuple(map(parse_range, ranges)), discard_batch)


@decision
def accept(batch_id: BatchId, connection: Connection = "warehouse") -> Ordered:
    """Publish a blocked batch as it is staged. Offsets without an explanation become an accepted loss."""
    return _find_pipeline(batch_id, connection), Accept(batch_id)


@decision
def discard(batch_id: BatchId, connection: Connection = "warehouse") -> Ordered:
    """Close a batch that is not published. The next run plans its offsets again, unless it is a replay."""
    return _find_pipeline(batch_id, connection), Discard(batch_id)


@decision
def pause(pipeline: Name) -> Ordered:
    """Plan nothing new until `resume`. A run that has begun may finish its batch."""
    return load_pipeline(pipeline), Pause()


@decision
def resume(pipeline: Name) -> Ordered:
    """End a pause, or take up a retired pipeline again where it stood."""
    return load_pipeline(pipeline), Resume()


def retire(
    pipeline: Name,
    *,
    reason: Reason,
    discard_batch: Annotated[
        list[int] | None, typer.Option(metavar="ID", help="Also discard this open batch. Repeat it for several.")
    ] = None,
    free_target: Annotated[
        bool,
        typer.Option("--free-target", help="Let another pipeline take the target. It has to be emptied by you first."),
    ] = False,
    connection: IfGone = "warehouse",
    dry_run: DryRun = False,
) -> Shown:
    """End a pipeline, also after its file was removed. Its history stays and can be verified; its incidents end.

    Rows stay where they are, and the target stays the pipeline's own,
    unless you free it. `resume` takes the pipeline up again.
    """
    from batchledger.ledger.decisions import PostgresDecisions
    from batchledger.lifecycle.execution import retire as carry_out

    config, dsn = find_known(pipeline, connection)
    decisions = PostgresDecisions(dsn)
    order = Retire(tuple(discard_batch or ()), free_target)
    try:
        decided = carry_out(decisions.rehearsal if dry_run else decisions, pipeline, order, decide(reason))
    except DecisionRefusedError as error:
        if config is None:
            error.advice = name_connection(error.advice, connection)
        raise
    return describe_decided(pipeline, order.kind, decided, dry_run=dry_run)


def rename(
    pipeline: Name,
    new_name: Annotated[
        str, typer.Argument(metavar="NEW", help="The new name, which the pipeline file has to have, too.")
    ],
    *,
    reason: Reason,
    connection: IfGone = "warehouse",
    login: OwnersLogin = None,
    dry_run: DryRun = False,
) -> Shown:
    """Give a pipeline another name, with its whole history. Rename its file at the same time.

    Under the old name no run writes any more, and the file with the new name goes on where it ended.
    No batch may be open. The owner of the ledger runs it; a large history takes its time.
    """
    from batchledger.ledger.decisions import PostgresDecisions
    from batchledger.lifecycle.execution import rename as carry_out

    order = Rename(parse_name(new_name))
    decisions = PostgresDecisions(_find_ledger_of_either(pipeline, new_name, connection, login))
    decided = carry_out(decisions.rehearsal if dry_run else decisions, pipeline, order, decide(reason))
    return describe_decided(pipeline, order.kind, decided, dry_run=dry_run)


def _find_ledger_of_either(pipeline: str, new_name: str, connection: str, login: str | None) -> str:
    """Return the connection string of the ledger: the file may have the old name, the new one already, or be gone."""
    try:
        config, dsn = find_known(pipeline, connection)
    except UnknownPipelineError as unknown:
        try:
            config, dsn = find_known(new_name, connection)
        except UnknownPipelineError:
            raise unknown from None
    if login is None:
        return dsn
    return find_ledger(login, "--login") if config is None else find_ledger_of(config, login)


def parse_name(text: str) -> str:
    """Return the text if a pipeline can have this name. Raises typer.BadParameter."""
    from batchledger.config.pipeline_file import check_name

    try:
        return check_name(text)
    except ValueError as error:
        raise typer.BadParameter(f"NEW: {text!r}: {error}") from error


@decision
def erase(
    pipeline: Name,
    key: Annotated[
        list[str],
        typer.Option(
            metavar="COLUMN=VALUE", help="Which rows: customer=4711. With several, a row has to have them all."
        ),
    ],
) -> Ordered:
    """Delete the rows of a key for good, with what quarantine and the ledger hold of it (PostgreSQL tables only).

    Records that are published again do not bring the rows back. The reason must not name a value of the key. Give the
    value itself, also if the column is hashed.
    """
    config = load_pipeline(pipeline)
    return config, Erase(parse_key(config, key))


def parse_key(pipeline: "PipelineConfig", texts: list[str]) -> ErasureKey:
    """Read the key of an erasure, and hash what the pipeline hashes. Raises typer.BadParameter."""
    from batchledger.reading import protect_key

    try:
        return protect_key(pipeline, ErasureKey.parse(texts))
    except ValueError as error:
        raise typer.BadParameter(f"--key: {error}") from error


def give(config: "PipelineConfig", order: AtOnce, reason: str, *, dry_run: bool) -> Decided:
    """Carry an order out, or only find out what it would change."""
    from batchledger.lifecycle.execution import carry_out, explain
    from batchledger.wiring import build_platform

    do = explain if dry_run else carry_out
    return do(build_platform(config), order, decide(reason))


def _find_pipeline(batch_id: int, connection: str) -> "PipelineConfig":
    from batchledger.ledger.ledger import PostgresLedger

    return load_pipeline(PostgresLedger(find_ledger(connection)).load_batch(batch_id).pipeline)
