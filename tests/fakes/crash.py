"""Crashes on purpose: an error of the tests' own that nothing in the code under test may catch."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from batchledger.model.batch import DeliveryMode

SHARED, FOREIGN = SINKS = ("ledger's database", "foreign sink")
"""Where the target of a test is: in the ledger's database, or in a sink that commits by itself."""

BEFORE_PUBLISHING = (
    "plan_stored",
    "attempt_opened",
    "staging_sealed",
    "staged",
    "audited",
)
PUBLISHING: Mapping[DeliveryMode, tuple[str, ...]] = {
    DeliveryMode.EXACTLY_ONCE: ("positions_moved", "rows_moved", "before_commit"),
    DeliveryMode.AT_LEAST_ONCE: ("rows_moved", "between_commits", "positions_moved", "before_commit"),
    DeliveryMode.AT_MOST_ONCE: ("positions_moved", "between_commits", "rows_moved", "before_commit"),
}
PUBLISHING_TO_FOREIGN_SINK: Mapping[DeliveryMode, tuple[str, ...]] = {
    DeliveryMode.EXACTLY_ONCE: ("announced", "positions_moved", "rows_moved", "before_commit", "sink_committed"),
    DeliveryMode.AT_LEAST_ONCE: ("rows_moved", "sink_committed", "between_commits", "positions_moved", "before_commit"),
    DeliveryMode.AT_MOST_ONCE: ("positions_moved", "between_commits", "rows_moved", "before_commit", "sink_committed"),
}
AFTER_COMMIT = ("committed",)
"""The crash points of ``run_batch``, in the order in which a batch passes them."""


# From the first commit to the last one, a crash leaves what the delivery mode allows.
_COPIES_AFTER_HALF: Mapping[DeliveryMode, int] = {DeliveryMode.AT_LEAST_ONCE: 2, DeliveryMode.AT_MOST_ONCE: 0}


def copies_after_crash(delivery: DeliveryMode, point: str, *, is_foreign: bool = False) -> int:
    """How often each row of the batch is in the target, when a run after the crash has done what was left to do."""
    points = crash_points(delivery, is_foreign=is_foreign)
    if delivery is DeliveryMode.EXACTLY_ONCE or point in AFTER_COMMIT:
        return 1
    if (delivery, point) == (DeliveryMode.AT_MOST_ONCE, "sink_committed"):
        return 1
    # The first commit is the sink's own, if it has one.
    first = "sink_committed" if is_foreign and delivery is DeliveryMode.AT_LEAST_ONCE else "between_commits"
    return 1 if points.index(point) < points.index(first) else _COPIES_AFTER_HALF[delivery]


def crash_points(delivery: DeliveryMode, *, is_foreign: bool = False) -> list[str]:
    """Every crash point that a batch passes under a delivery mode, in order."""
    publishing = PUBLISHING_TO_FOREIGN_SINK if is_foreign else PUBLISHING
    return [*BEFORE_PUBLISHING, *publishing[delivery], *AFTER_COMMIT]


def sinks_and_crashes() -> list[tuple[str, DeliveryMode, str]]:
    """Every crash point, for each mode and kind of sink that makes a difference there; parameters of ``world``.

    Up to the publication none does: nothing but ``delivery.deliver`` and the end of ``run_batch.publish`` reads the
    mode, and either sink stages by the same code; only the target of the foreign one is created there. So these points
    come once.
    """
    return [
        (sink, delivery, point)
        for sink in SINKS
        for delivery in DeliveryMode
        for point in crash_points(delivery, is_foreign=sink == FOREIGN)
        if point not in BEFORE_PUBLISHING or (sink, delivery) == (SHARED, DeliveryMode.EXACTLY_ONCE)
    ]


def replay_crash_points(*, is_foreign: bool = False) -> list[str]:
    """Every crash point that a replay passes, in order: it is one commit under every mode."""
    points = crash_points(DeliveryMode.EXACTLY_ONCE, is_foreign=is_foreign)
    at = points.index("positions_moved")
    return [*points[:at], "rows_withdrawn", *points[at:]]


def sinks_and_replay_crashes() -> list[tuple[str, str]]:
    """Every crash point of a replay, from its publication on for either kind of sink; parameters of ``world``."""
    return [
        (sink, point)
        for sink in SINKS
        for point in replay_crash_points(is_foreign=sink == FOREIGN)
        if point not in BEFORE_PUBLISHING or sink == SHARED
    ]


class SimulatedCrashError(BaseException):
    """The process died here. Not an Exception, because no handler runs in a process that is killed."""


@dataclass
class CrashOnce:
    """A crash hook that dies the first time ``point`` is passed; the retry gets through."""

    point: str
    has_crashed: bool = False

    def __call__(self, point: str) -> None:
        if point == self.point and not self.has_crashed:
            self.has_crashed = True
            raise SimulatedCrashError(point)


@dataclass
class PassedPoints:
    """A crash hook that never crashes and remembers, in order, what was passed."""

    points: list[str] = field(default_factory=list)

    def __call__(self, point: str) -> None:
        self.points.append(point)


@dataclass
class Interrupt:
    """A crash hook that lets another process act at ``point``, once, before the step goes on."""

    point: str
    act: Callable[[], object]
    has_acted: bool = False

    def __call__(self, point: str) -> None:
        if point == self.point and not self.has_acted:
            self.has_acted = True
            self.act()
