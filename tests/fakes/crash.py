"""Crashes on purpose: an error of the tests' own that nothing in the code under test may catch."""

from collections.abc import Callable
from dataclasses import dataclass, field

BEFORE_COMMIT = (
    "plan_stored",
    "attempt_opened",
    "staging_sealed",
    "staged",
    "audited",
    "positions_moved",
    "rows_moved",
    "before_commit",
)
AFTER_COMMIT = ("committed",)
"""The crash points of ``run_batch``, in the order in which a batch passes them."""


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
