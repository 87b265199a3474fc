"""What several commands share: their arguments, who calls, and how what a person wrote is read."""

import getpass
import re
import socket
from datetime import UTC, datetime
from typing import Annotated

import typer

from batchledger.offsets import OffsetRange, TopicPartition
from batchledger.replay import Window

Name = Annotated[str, typer.Argument(metavar="PIPELINE", help="The name of a pipeline file, without .yaml.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]

_COORDINATE = re.compile(r"(?P<topic>[A-Za-z0-9._-]+)\[(?P<partition>\d+)\]@(?P<offset>\d+)", re.ASCII)


def run_name() -> str:
    """Who runs this, for the ledger: ``cli__2026-11-21T10:00:00+00:00__ana@host``."""
    moment = datetime.now(UTC).isoformat(timespec="milliseconds")
    return f"cli__{moment}__{user()}"


def user() -> str:
    """Who decides: ``ana@host``."""
    return f"{getpass.getuser()}@{socket.gethostname()}"


def parse_range(text: str) -> OffsetRange:
    """Read ``orders[3] 10..25``. Raises typer.BadParameter."""
    try:
        return OffsetRange.parse(text)
    except ValueError as error:
        raise typer.BadParameter(f'{error}, in quotes: "orders[3] 10..25"') from error


def parse_bounds(since: str, until: str) -> Window | OffsetRange:
    """Read two moments, or two coordinates of one partition; the second one is not part of it.

    Example: ``2026-11-20`` and ``2026-11-21`` are one day in UTC, ``orders[3]@10`` and ``orders[3]@25`` are
    ``orders[3] 10..25``. Raises typer.BadParameter.
    """
    first, last = parse_coordinate(since), parse_coordinate(until)
    try:
        if first is None and last is None:
            return Window(parse_moment(since), parse_moment(until))
        if first is not None and last is not None and first[0] == last[0]:
            return OffsetRange(first[0], first[1], last[1])
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    raise typer.BadParameter("--from and --until are two moments, or two offsets of one partition (orders[3]@1200)")


def parse_coordinate(text: str) -> tuple[TopicPartition, int] | None:
    """Read ``orders[3]@1200``; None when it is something else."""
    found = _COORDINATE.fullmatch(text)
    return (TopicPartition(found["topic"], int(found["partition"])), int(found["offset"])) if found else None


def parse_moment(text: str) -> datetime:
    """Read a moment: without a zone it is in UTC, a date is its first moment. Raises typer.BadParameter."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise typer.BadParameter(
            f"{text!r} is neither a moment (2026-11-21, 2026-11-21T10:00, 2026-11-21T10:00:00+01:00) nor an offset "
            "(orders[3]@1200)"
        ) from error
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
