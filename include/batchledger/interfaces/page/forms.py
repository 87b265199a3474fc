"""The orders that the page offers, each as one value; and what a person asks for in a form, read into an order. Pure.

What cannot be read is refused by the name of its field.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from batchledger.interfaces.notation import parse_moment, parse_target
from batchledger.interfaces.page.rights import Verb
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
Order = Replay | Retake | AtOnce


@dataclass(frozen=True, slots=True)
class Offer:
    """An order as the page offers it: its title, a line on what it does, its verb, and how its form is read.

    ``controls`` are the macros of ``decisions.html.j2`` that make the form. ``hint_of_topic`` takes the place of the
    hint if the target replaces nothing. ``has_dry_run``: a run of Airflow shows what would change.
    """

    title: str
    hint: str
    verb: Verb
    controls: tuple[str, ...]
    read: Callable[[Fields], Order]
    hint_of_topic: str = ""
    has_dry_run: bool = False


def list_verbs(kind: DecisionKind, fields: Fields) -> tuple[Verb, ...]:
    """Return the verbs that an order with these fields of its form needs, all of them.

    A rewind that empties the target destroys, too.
    """
    verb, empties = OFFERS[kind].verb, kind is DecisionKind.REWIND and "truncate" in fields
    return (verb, Verb.DESTROY) if empties else (verb,)


def read_order(kind: DecisionKind, fields: Fields) -> Order:
    """Return the order that a form of that kind is. Raises ConfigurationError."""
    if kind not in OFFERS:
        raise ConfigurationError(
            f"{kind} is no order of this page. Nothing was changed.",
            advice="Choose an order that the page offers.",
            subject="kind",
        )
    return OFFERS[kind].read(fields)


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


OFFERS: Mapping[DecisionKind, Offer] = {
    DecisionKind.REPLAY: Offer(
        "Publish records again",
        "Reads these offsets from Kafka again, and replaces exactly their rows in one transaction.",
        Verb.OPERATE,
        ("replayed",),
        _read_replay,
        hint_of_topic="Reads these offsets from Kafka again. A topic replaces nothing: readers see them once more.",
        has_dry_run=True,
    ),
    DecisionKind.RETRY: Offer(
        "Take a batch again",
        "When its cause is removed: the same offsets are read and audited by a new attempt.",
        Verb.OPERATE,
        ("batch",),
        lambda fields: Retake(read_batch(fields)),
    ),
    DecisionKind.ACCEPT: Offer(
        "Accept a blocked batch",
        "Publishes it as it is staged, although checks have failed. Take it again instead if you can.",
        Verb.DECIDE,
        ("batch",),
        lambda fields: Accept(read_batch(fields)),
    ),
    DecisionKind.DISCARD: Offer(
        "Discard a batch",
        "Closes it. The next run plans the offsets of a live batch again; a replay is over.",
        Verb.DECIDE,
        ("batch",),
        lambda fields: Discard(read_batch(fields)),
    ),
    DecisionKind.QUARANTINE_REPLAY: Offer(
        "Publish records of quarantine again",
        "Decodes the kept bytes again, with the pipeline of today; what fails again stays.",
        Verb.OPERATE,
        ("set_aside",),
        lambda fields: Replay(Quarantined(_read_ranges(fields))),
        has_dry_run=True,
    ),
    DecisionKind.QUARANTINE_DROP: Offer(
        "Drop records of quarantine",
        "Removes them for good; the balance keeps how many there were.",
        Verb.DESTROY,
        ("set_aside",),
        lambda fields: DropQuarantined(_read_ranges(fields)),
    ),
    DecisionKind.ACCEPT_LOSS: Offer(
        "Accept a loss",
        "Goes on without offsets that Kafka removed before they were read; recorded for ever.",
        Verb.DECIDE,
        ("lost", "given_up"),
        lambda fields: AcceptLoss(_read_ranges(fields), _read_discarded(fields)),
    ),
    DecisionKind.SKIP: Offer(
        "Skip records",
        "Goes on without offsets that could be read; recorded for ever.",
        Verb.DECIDE,
        ("unread", "given_up"),
        lambda fields: Skip(_read_ranges(fields), _read_discarded(fields)),
    ),
    DecisionKind.REWIND: Offer(
        "Rewind",
        "Reads again from further back. What is read replaces the rows that are there.",
        Verb.DECIDE,
        ("target",),
        _read_rewind,
        hint_of_topic="Reads again from further back. A topic replaces nothing: readers see that once more.",
    ),
    DecisionKind.PAUSE: Offer(
        "Pause",
        "No batch is planned, by Airflow or by hand, until a person resumes. A planned batch may end.",
        Verb.OPERATE,
        (),
        lambda _: Pause(),
    ),
    DecisionKind.RESUME: Offer(
        "Resume", "Ends the pause, or takes a retired pipeline up again.", Verb.OPERATE, (), lambda _: Resume()
    ),
}
"""What can be decided on the page, in its order. A form asks for the reason of each by itself."""
