"""What a person asks for in a form, read into an order, or refused by the name of the field. Pure."""

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

from batchledger.interfaces.notation import parse_moment, parse_target
from batchledger.interfaces.trigger_form import RunFacts, read_request, write_request
from batchledger.lifecycle.orders import (
    Accept,
    AcceptLoss,
    AtOnce,
    Discard,
    DropQuarantined,
    Pause,
    Resume,
    Retake,
    Skip,
)
from batchledger.model.batch import DecisionKind
from batchledger.model.errors import ConfigurationError
from batchledger.model.offsets import OffsetRange
from batchledger.model.quoting import shorten
from batchledger.planning.replay import Quarantined, Replay, Window
from batchledger.planning.rewind import Rewind

Fields = Mapping[str, str]


def read_order(kind: DecisionKind, fields: Fields) -> Replay | Retake | AtOnce:
    """Return the order that a form of that kind is. Raises ConfigurationError."""
    if kind not in _READERS:
        raise ConfigurationError(
            f"{kind} is no order of this page. Nothing was changed.",
            advice="Choose an order that the page offers.",
            subject="kind",
        )
    return _READERS[kind](fields)


def write_run(
    order: Replay | Retake, reason: str, topics: Sequence[str], *, is_dry_run: bool = False
) -> dict[str, Any]:
    """Return the configuration of a run that does it, which its first task will not refuse.

    Raises ConfigurationError.
    """
    configuration = write_request(order, reason, is_dry_run=is_dry_run)
    read_request(configuration, RunFacts("asked for on the page"), topics)
    return configuration


def read_batch(fields: Fields, name: str = "batch") -> int:
    """Return the number of a batch. Raises ConfigurationError."""
    text = fields.get(name, "").strip()
    if not re.fullmatch(r"[0-9]{1,18}", text):
        raise ConfigurationError(
            f"{name}: {text!r} is not the number of a batch. Nothing was changed.",
            advice="Give a number from the list of batches, such as 8.",
            subject=name,
        )
    return int(text)


def _read_ranges(fields: Fields) -> tuple[OffsetRange, ...]:
    lines = _lines(fields, "ranges")
    if not lines:
        raise ConfigurationError(
            "ranges: there is none. Nothing was changed.",
            advice="Name at least one, such as orders[3] 1200..1500",
            subject="ranges",
        )
    ranges, faults = [], []
    for line in lines:
        try:
            ranges.append(OffsetRange.parse(line))
        except ValueError as error:
            faults.append(f"ranges: {shorten(str(error))}")
    if faults:
        raise ConfigurationError(
            "Ranges could not be read. Nothing was changed.",
            why="\n".join(faults),
            advice="Write one range a line, such as orders[3] 1200..1500",
            subject="ranges",
        )
    return tuple(ranges)


def _read_discarded(fields: Fields) -> int | None:
    return read_batch(fields, "discard_batch") if fields.get("discard_batch", "").strip() else None


def _read_replay(fields: Fields) -> Replay:
    has_window = any(fields.get(name, "").strip() for name in ("since", "until"))
    has_ranges = bool(_lines(fields, "ranges"))
    if has_window and has_ranges:
        raise ConfigurationError(
            "Both a window of time and ranges are given. Nothing was changed.",
            advice="Name a window of time or ranges, not both.",
            subject="ranges",
        )
    if not has_window and not has_ranges:
        raise ConfigurationError(
            "Neither a window of time nor ranges are given. Nothing was changed.",
            advice="Name what to publish again: a window of time, or ranges.",
            subject="ranges",
        )
    return Replay(_read_window(fields) if has_window else _read_ranges(fields), "allow_expired" in fields)


def _read_window(fields: Fields) -> Window:
    since, until = _read_moment(fields, "since"), _read_moment(fields, "until")
    try:
        return Window(since, until)
    except ValueError as error:
        raise ConfigurationError(
            f"until: {error}", advice="Let the window end after it begins.", subject="until"
        ) from error


def _read_rewind(fields: Fields) -> Rewind:
    try:
        target = parse_target(_lines(fields, "to"))
    except ValueError as error:
        raise ConfigurationError(
            f"to: {error}", advice="Write earliest, a moment, or an offset such as orders[0]@1200", subject="to"
        ) from error
    return Rewind(target, "truncate" in fields, "allow_expired" in fields)


def _read_moment(fields: Fields, name: str) -> datetime:
    try:
        return parse_moment(fields.get(name, "").strip())
    except ValueError as error:
        raise ConfigurationError(
            f"{name}: {error}", advice="Write a moment such as 2026-11-21T00:00Z", subject=name
        ) from error


def _lines(fields: Fields, name: str) -> list[str]:
    return [line.strip() for line in fields.get(name, "").splitlines() if line.strip()]


_READERS: Mapping[DecisionKind, Callable[[Fields], Replay | Retake | AtOnce]] = {
    DecisionKind.REPLAY: _read_replay,
    DecisionKind.QUARANTINE_REPLAY: lambda fields: Replay(Quarantined(_read_ranges(fields))),
    DecisionKind.RETRY: lambda fields: Retake(read_batch(fields)),
    DecisionKind.ACCEPT: lambda fields: Accept(read_batch(fields)),
    DecisionKind.DISCARD: lambda fields: Discard(read_batch(fields)),
    DecisionKind.ACCEPT_LOSS: lambda fields: AcceptLoss(_read_ranges(fields), _read_discarded(fields)),
    DecisionKind.SKIP: lambda fields: Skip(_read_ranges(fields), _read_discarded(fields)),
    DecisionKind.REWIND: _read_rewind,
    DecisionKind.PAUSE: lambda _: Pause(),
    DecisionKind.RESUME: lambda _: Resume(),
    DecisionKind.QUARANTINE_DROP: lambda fields: DropQuarantined(_read_ranges(fields)),
}
