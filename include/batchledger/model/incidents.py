"""Incidents: which condition opens one, which continues one, and which incident is over.

A look at a pipeline finds conditions. A condition that is found again belongs to the incident that it opened. So people
get a message at the beginning and at the end of an incident, whatever the number of looks in between. Pure; no I/O.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum
from itertools import takewhile
from typing import Any, Self

from batchledger.model.checks import Severity
from batchledger.model.counting import describe_count
from batchledger.model.findings import IncidentKind

Key = tuple[str, str, str]

FIRST_RETRY = timedelta(minutes=1)
LAST_RETRY = timedelta(minutes=15)
GIVEN_UP_AFTER = timedelta(days=1)
# One failure may be a blip. After three, other channels report it.
TRIES_OF_A_FAILING_CHANNEL = 3


class Event(StrEnum):
    """The events of an incident that people get a message about."""

    OPENED = "opened"
    ENDED = "ended"


@dataclass(frozen=True, slots=True)
class Condition:
    """Something that people need to know, as one look has found it.

    ``subject`` tells incidents of one kind apart, for example ``batch 17`` or ``orders[3]``; empty if there can be only
    one. ``title`` is a few words. ``lines`` give numbers and coordinates and, after an empty line, the ways on.
    ``command`` shows it, or answers it. None of them holds a record's value or a secret. ``run`` is the Airflow run of
    the batch, if there is one.
    """

    pipeline: str
    kind: IncidentKind
    subject: str
    severity: Severity
    title: str
    lines: tuple[str, ...] = ()
    command: str = ""
    batch_id: int | None = None
    run: str | None = None

    @classmethod
    def of(
        cls,
        kind: IncidentKind,
        pipeline: str,
        more: str = "",
        lines: tuple[str, ...] = (),
        *,
        subject: str = "",
        batch_id: int | None = None,
        run: str | None = None,
    ) -> Self:
        """Return the condition with the words of the catalogue. ``more`` ends its title."""
        row = kind.row
        command = row.command.format(pipeline=pipeline, subject=subject, batch_id=batch_id)
        return cls(pipeline, kind, subject, row.severity, row.happened + more, lines, command, batch_id, run)

    @property
    def facts(self) -> tuple[str, ...]:
        """The lines without the ways on, which only help while it lasts."""
        return tuple(takewhile(bool, self.lines))

    @property
    def key(self) -> Key:
        """Two conditions with the same key are one incident. A key has one open incident at most."""
        return self.pipeline, self.kind, self.subject


@dataclass(frozen=True, slots=True)
class Incident:
    """One condition from its first look to its last. ``condition`` is the latest one, found at ``seen_at``.

    ``ending`` says in a few words how it ended, such as ``published``; empty if that is not known.
    """

    incident_id: int
    condition: Condition
    opened_at: datetime
    seen_at: datetime
    ended_at: datetime | None = None
    ending: str = ""

    @property
    def duration(self) -> timedelta:
        """How long it has lasted, or had lasted when it was seen last."""
        return (self.ended_at or self.seen_at) - self.opened_at


@dataclass(frozen=True, slots=True)
class Findings:
    """The findings of a look, and which kinds it has looked for.

    It knows nothing about the ``unknown`` keys, although it has looked for their kind. ``endings`` says how incidents
    end, if they do.
    """

    found: tuple[Condition, ...] = ()
    looked_for: frozenset[IncidentKind] = frozenset()
    unknown: frozenset[Key] = frozenset()
    endings: Mapping[Key, str] = field(default_factory=dict)

    def __add__(self, other: "Findings") -> "Findings":
        return Findings(
            self.found + other.found,
            self.looked_for | other.looked_for,
            self.unknown | other.unknown,
            {**self.endings, **other.endings},
        )


@dataclass(frozen=True, slots=True)
class Settlement:
    """What a look changes: conditions that open an incident, incidents that go on, and incidents that are over.

    People get messages about ``opened`` and ``ended``, not about ``continued``. The condition is the present one.
    """

    opened: tuple[Condition, ...] = ()
    continued: tuple[Incident, ...] = ()
    ended: tuple[Incident, ...] = ()


@dataclass(frozen=True, slots=True)
class Notification:
    """One event of an incident for one channel. ``tries`` includes the try for which it was claimed."""

    notification_id: int
    incident: Incident
    channel: str
    event: Event
    tries: int = 0

    @property
    def since(self) -> datetime:
        """When the event happened."""
        incident = self.incident
        return incident.opened_at if self.event is Event.OPENED else (incident.ended_at or incident.seen_at)

    def is_old(self, now: datetime) -> bool:
        """Whether it was tried for so long that a working channel will never take it."""
        return now - self.since >= GIVEN_UP_AFTER


@dataclass(frozen=True, slots=True)
class ChannelFailure:
    """A channel that does not deliver: how often its oldest unsent notification was tried, and the last error.

    ``last_sent_at`` is when it last delivered another message of the pipeline.
    """

    channel: str
    tries: int
    unsent: int
    error: str
    last_sent_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Message:
    """What a channel delivers. ``text`` is for people, ``document`` (JSON) for programs. ``is_good``: it is over."""

    title: str
    text: str
    severity: Severity = Severity.INFO
    is_good: bool = False
    document: Mapping[str, Any] = field(default_factory=dict)


def settle(open_incidents: Sequence[Incident], findings: Findings, now: datetime) -> Settlement:
    """Return what a look that began at ``now`` changes among the open incidents of its pipelines.

    An incident stays as it is if its kind was not looked for: a silent Kafka does not show that a loss is over. It also
    stays if its key is ``unknown``, or if a later look has seen it. Several conditions with one key count as the first.

    Example: ``[blocked 17, lag]`` are open, ``[blocked 17, blocked 18]`` are found, all kinds were looked for: 18 is
    opened, 17 goes on, lag is over.
    """
    found_by_key: dict[Key, Condition] = {}
    for condition in findings.found:
        found_by_key.setdefault(condition.key, condition)
    known = {each.condition.key for each in open_incidents}
    current = [each for each in open_incidents if each.seen_at <= now]
    return Settlement(
        opened=tuple(condition for key, condition in found_by_key.items() if key not in known),
        continued=tuple(
            replace(each, condition=found_by_key[each.condition.key], seen_at=now)
            for each in current
            if each.condition.key in found_by_key
        ),
        ended=tuple(
            replace(each, ended_at=now, ending=findings.endings.get(each.condition.key, ""))
            for each in current
            if each.condition.key not in found_by_key
            and each.condition.kind in findings.looked_for
            and each.condition.key not in findings.unknown
        ),
    )


def choose_channels(condition: Condition, channels: Sequence[str]) -> list[str]:
    """Return the channels for a condition: all, but a failing channel does not report itself."""
    return [each for each in channels if (condition.kind, condition.subject) != (IncidentKind.CHANNEL_FAILING, each)]


def wait_after(tries: int) -> timedelta:
    """Return how long a notification waits after a try that failed: 1, 2, 4, 8 and then 15 minutes.

    >>> wait_after(3)
    datetime.timedelta(seconds=240)
    """
    return min(FIRST_RETRY * (1 << min(tries - 1, 10)), LAST_RETRY)


def describe_failing_channels(
    pipeline: str, failures: Iterable[ChannelFailure], channels: Collection[str], open_incidents: Iterable[Incident]
) -> Findings:
    """Return which of the ``channels`` do not deliver; the others report it.

    The incident of a channel that the pipeline file no longer names is over: it is not tried any more.
    """
    kind = IncidentKind.CHANNEL_FAILING
    unnamed = [
        each.condition.key
        for each in open_incidents
        if each.condition.kind is kind and each.condition.subject not in channels
    ]
    found = tuple(
        replace(
            Condition.of(kind, pipeline, lines=_tell_failure(each), subject=each.channel),
            title=f"alert channel {each.channel} does not deliver",
        )
        for each in failures
        if each.tries >= TRIES_OF_A_FAILING_CHANNEL
    )
    return Findings(found, frozenset({kind}), endings=dict.fromkeys(unnamed, "the pipeline file no longer names it"))


def _tell_failure(failure: ChannelFailure) -> tuple[str, ...]:
    waiting = f"{failure.unsent:,} waiting, tried up to {describe_count(failure.tries, 'time')}: {failure.error}"
    if failure.last_sent_at is None:
        return waiting, "it has never delivered anything of this pipeline"
    return waiting, f"the last one that arrived was sent at {failure.last_sent_at:%Y-%m-%d %H:%M} UTC"
