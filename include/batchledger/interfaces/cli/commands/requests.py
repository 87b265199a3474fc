"""Requests that wait for a second person: list them, confirm one, or withdraw it."""

from typing import TYPE_CHECKING, Annotated

import typer

from batchledger.interfaces.cli.command_line import Connection, decide, find_ledger, load_pipeline
from batchledger.interfaces.cli.commands.decisions import DryRun, Reason, parse_key
from batchledger.interfaces.cli.display.decisions import describe_decided, describe_requests, describe_withdrawn
from batchledger.interfaces.cli.printing import Shown
from batchledger.model.batch import DecisionKind

if TYPE_CHECKING:
    from batchledger.config.pipeline_file import PipelineConfig
    from batchledger.model.batch import DecisionRecord

RequestId = Annotated[int, typer.Argument(metavar="REQUEST", help="The number of a request, as `requests` shows it.")]


def requests(
    pipeline: Annotated[
        str | None, typer.Argument(metavar="PIPELINE", help="One pipeline; otherwise all of the ledger.")
    ] = None,
    *,
    connection: Connection = "warehouse",
) -> Shown:
    """List what waits for a second person: who asked for it, why, and what it would change."""
    from batchledger.ledger.requests import list_requests

    return describe_requests(list_requests(find_ledger(connection), pipeline))


def confirm(
    request_id: RequestId,
    *,
    reason: Reason,
    key: Annotated[
        list[str] | None, typer.Option(metavar="COLUMN=VALUE", help="For an erasure: its key, once more.")
    ] = None,
    code: Annotated[str, typer.Option(help="For an erasure: the code that the first person was given.")] = "",
    connection: Connection = "warehouse",
    dry_run: DryRun = False,
) -> Shown:
    """Carry out what another person has asked for, exactly as it was shown. The ledger keeps both names.

    You and the other person need a user of the operating system and a login to PostgreSQL each.
    A request that was made on the page is confirmed there.
    """
    from batchledger.lifecycle import execution
    from batchledger.wiring import build_platform

    request, pipeline = _find(request_id, connection)
    do = execution.explain_confirmation if dry_run else execution.confirm
    repeated = execution.RepeatedKey(parse_key(pipeline, key), code) if key else None
    kind = DecisionKind((request.requested_order or {})["kind"])
    decided = do(build_platform(pipeline), request, decide(reason), repeated)
    return describe_decided(request.pipeline, kind, decided, dry_run=dry_run)


def withdraw(request_id: RequestId, *, reason: Reason, connection: Connection = "warehouse") -> Shown:
    """End a request without carrying it out: your own, or another person's that you do not agree with.

    The ledger keeps the reason for ever, so it must not name the value of a key.
    """
    from batchledger.lifecycle import execution
    from batchledger.wiring import build_platform

    request, pipeline = _find(request_id, connection)
    decided = execution.withdraw(build_platform(pipeline), request, decide(reason))
    return describe_withdrawn(request, decided)


def _find(request_id: int, connection: str) -> "tuple[DecisionRecord, PipelineConfig]":
    """Return a request, and its pipeline."""
    from batchledger.ledger.requests import load_request

    request = load_request(find_ledger(connection), request_id)
    return request, load_pipeline(request.pipeline)
