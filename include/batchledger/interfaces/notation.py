"""How people write moments, coordinates and bounds, on a command line or in a form. Pure.

Every function here raises ValueError, which says what was found and what was expected.
"""

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Literal

from batchledger.model.offsets import OffsetRange, TopicPartition
from batchledger.planning.live import StartPolicy
from batchledger.planning.replay import Window

_COORDINATE = re.compile(r"(?P<topic>[A-Za-z0-9._-]+)\[(?P<partition>\d+)\]@(?P<offset>\d+)", re.ASCII)

RewindTarget = Literal[StartPolicy.EARLIEST] | datetime | Mapping[TopicPartition, int]


def parse_moment(text: str) -> datetime:
    """Read a moment. Without a zone it is in UTC; a date stands for its first moment."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise ValueError(
            f"{text!r} is neither a moment (2026-11-21, 2026-11-21T10:00, 2026-11-21T10:00:00+01:00) nor an offset "
            "(orders[3]@1200)"
        ) from error
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def parse_coordinate(text: str) -> tuple[TopicPartition, int] | None:
    """Read ``orders[3]@1200``; None if it is something else."""
    found = _COORDINATE.fullmatch(text)
    return (TopicPartition(found["topic"], int(found["partition"])), int(found["offset"])) if found else None


def parse_bounds(since: str, until: str) -> Window | OffsetRange:
    """Read two moments, or two coordinates of one partition; the second one is the exclusive end.

    Example: ``2026-11-20`` and ``2026-11-21`` are one day in UTC, ``orders[3]@10`` and ``orders[3]@25`` are
    ``orders[3] 10..25``.
    """
    first, last = parse_coordinate(since), parse_coordinate(until)
    if first is None and last is None:
        return Window(parse_moment(since), parse_moment(until))
    if first is not None and last is not None and first[0] == last[0]:
        return OffsetRange(first[0], first[1], last[1])
    raise ValueError("name two moments, or two offsets of one partition")


def parse_target(texts: Sequence[str]) -> RewindTarget:
    """Read where a rewind goes: ``earliest``, one moment, or a coordinate of each partition."""
    if list(texts) == [StartPolicy.EARLIEST]:
        return StartPolicy.EARLIEST
    coordinates = [parse_coordinate(each) for each in texts]
    offsets = {each[0]: each[1] for each in coordinates if each is not None}
    if len(offsets) == len(texts) and texts:
        return offsets
    if len(texts) != 1:
        raise ValueError("name earliest, one moment, or once for each partition an offset such as orders[3]@1200")
    return parse_moment(texts[0])
