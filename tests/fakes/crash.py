"""Crashes on purpose: an error of the tests' own that nothing in the code under test may catch."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from batchledger.batch import DeliveryMode

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
AFTER_COMMIT = ("committed",)
"""The crash points of ``run_batch``, in the order in which a batch passes them."""


# From the first commit to the last one, a crash leaves what the delivery mode allows.
_COPIES_AFTER_HALF: Mapping[DeliveryMode, int] = {DeliveryMode.AT_LEAST_ONCE: 2, DeliveryMode.AT_MOST_ONCE: 0}


def copies_after_crash(delivery: DeliveryMode, point: str) -> int:
    """How often each row of the batch is in the target, when a run after the crash has done what was left to do."""
    points = crash_points(delivery)
    if "between_commits" not in points or point in AFTER_COMMIT:
        return 1
    return 1 if points.index(point) < points.index("between_commits") else _COPIES_AFTER_HALF[delivery]


def crash_points(delivery: DeliveryMode) -> list[str]:
    """Every crash point that a batch passes under a delivery mode, in order."""
    return [*BEFORE_PUBLISHING, *PUBLISHING[delivery], *AFTER_COMMIT]


def replay_crash_points() -> list[str]:
    """Every crash point that a replay passes, in order: it is one transaction under every mode."""
    return [*BEFORE_PUBLISHING, "rows_withdrawn", *PUBLISHING[DeliveryMode.EXACTLY_ONCE], *AFTER_COMMIT]


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
    """A crash hook that lets somebody else act at ``point``, once, before the step goes on."""

    point: str
    act: Callable[[], object]
    has_acted: bool = False

    def __call__(self, point: str) -> None:
        if point == self.point and not self.has_acted:
            self.has_acted = True
            self.act()
