"""Runs that move only when they are let, from one pause to the next, and may die or lose a reply on the way.

A process runs in a thread of its own, but never beside the machine: each waits while the other is at work, so a
schedule has one outcome. It pauses at every crash point, and before every write to the ledger, so that others may act
between what a step has read and what it writes. Inside the publishing transaction it holds locks and does not pause.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import Any

from batchledger.lifecycle import plans, run_batch
from batchledger.lifecycle.platform import Platform
from batchledger.model.batch import Attempt, Batch, BatchState, Decision, DeliveryMode, Lane
from batchledger.model.errors import OutcomeUnknownError
from batchledger.planning.replay import Replay
from batchledger.ports import Ledger, Publication
from tests.fakes.crash import SimulatedCrashError, crash_points, replay_crash_points
from tests.fakes.ledger import CommitFault
from tests.machine.model import Place
from tests.machine.releases import Release

BY_ANA = Decision("ana@host", "the schema was wrong")

_INSIDE_TRANSACTION = ("rows_withdrawn", "positions_moved", "rows_moved", "before_commit", "sink_committed")
_PLAN_WRITES = {Lane.LIVE: "store_plan", Lane.REPLAY: "store_replay"}
_WRITES = ("open_attempt", "mark_staged", "record_audit", "publication", "resume_commit")
FENCED_WRITES = ("mark_staged", "record_audit", "publication")
"""The writes that carry the number of an attempt; a pause before one of them has its name."""

_TURN_SECONDS = 120.0


def points(delivery: DeliveryMode, lane: Lane, *, is_foreign: bool = False) -> list[str]:
    """Where a process that works in a lane may die; a replay is one commit in every mode."""
    if lane is Lane.REPLAY:
        return replay_crash_points(is_foreign=is_foreign)
    return crash_points(delivery, is_foreign=is_foreign)


def pauses(delivery: DeliveryMode, lane: Lane, *, is_foreign: bool = False) -> list[str]:
    """The names of all pauses of a process."""
    outside = [point for point in points(delivery, lane, is_foreign=is_foreign) if point not in _INSIDE_TRANSACTION]
    return [_PLAN_WRITES[lane], *_WRITES, *outside]


class Step(Enum):
    """Where a run is in the life of a batch."""

    PLAN = auto()
    STAGE = auto()
    AUDIT = auto()
    PUBLISH = auto()


@dataclass(frozen=True)
class Request:
    """What a person asks to publish again; ``key`` tells the request from others."""

    replay: Replay
    key: str


_STEPS = {Step.STAGE: run_batch.stage, Step.AUDIT: run_batch.audit, Step.PUBLISH: run_batch.publish}


class Process:
    """One execution of a run's tasks, one after the other, from ``step`` on; without ``batch_id`` it plans first.

    With a ``request`` it plans a replay. ``holds`` is the attempt that its last write to the ledger carries,
    ``commits`` how many publications of its batch it has committed, also when it does not know,
    ``sink_commits`` how many a sink has that commits by itself, and ``at_risk`` where the first of
    its two commits stands alone. ``error`` is how it ended, None when well.
    """

    def __init__(
        self,
        run: str,
        platform: Platform,
        release: Release,
        batch_id: int | None = None,
        step: Step = Step.PLAN,
        lane: Lane = Lane.LIVE,
        request: Request | None = None,
    ) -> None:
        self.run = run
        self.release = release
        self.batch_id = batch_id
        self.step = step
        self.lane = lane
        self.request = request
        self.at_risk: set[Place] = set()
        self.paused_at: str | None = None
        self.passed: set[str] = set()
        self.holds: Attempt | None = None
        self.fatal_point: str | None = None
        self.commit_fault: CommitFault | None = None
        self.commits = 0
        self.sink_commits = 0
        self.result: Batch | None = None
        self.error: BaseException | None = None
        self.is_over = False
        self._platform = replace(platform, ledger=PausingLedger(platform.ledger, self), crash=self.reach)
        self._is_killed = False
        self._its_turn, self._our_turn = threading.Semaphore(0), threading.Semaphore(0)
        self._thread = threading.Thread(target=self._live, name=run, daemon=True)
        self._thread.start()

    def __repr__(self) -> str:
        return f"<{self.run} {'over' if self.is_over else f'before {self.paused_at or self.step.name}'}>"

    @property
    def has_published(self) -> bool:
        """Whether it has said that its batch is published."""
        return self.is_over and self.error is None and self.result is not None

    def advance(self) -> None:
        """Let it go on until its next pause, or its end."""
        self._its_turn.release()
        assert self._our_turn.acquire(timeout=_TURN_SECONDS), f"{self} neither paused nor ended"
        if self.is_over:
            self._thread.join()

    def kill(self) -> None:
        """Let it die where it is."""
        self._is_killed = True
        self.advance()

    def reach(self, point: str) -> None:
        """The crash hook: die here, or pause, or go on."""
        self.passed.add(point)
        self.sink_commits += point == "sink_committed"
        if point == self.fatal_point:
            raise SimulatedCrashError(point)
        if point not in _INSIDE_TRANSACTION:
            self.paused_at = point
            self._our_turn.release()
            self._wait()

    def _wait(self) -> None:
        self._its_turn.acquire()
        if self._is_killed:
            raise SimulatedCrashError(str(self.paused_at))

    def _live(self) -> None:
        try:
            self._wait()
            self.result = self._work()
        except BaseException as error:  # noqa: BLE001  The end of a process; the machine looks at what it ended with.
            self.error = error
        self.is_over = True
        self._our_turn.release()

    def _work(self) -> Batch | None:
        batch = None
        if self.batch_id is None:
            batch = self._plan()
            if batch is None:
                return None
            self.batch_id, self.step = batch.batch_id, Step.STAGE
        for step in list(_STEPS)[list(_STEPS).index(self.step) :]:
            self.step = step
            batch = _STEPS[step](self._platform, self.batch_id, self.run)
        return batch

    def _plan(self) -> Batch | None:
        if self.request is None:
            return plans.plan(self._platform, self.run)
        return plans.plan_replay(self._platform, self.request.replay, self.run, BY_ANA, self.request.key)


class PausingLedger:
    """Any ledger; its process pauses before each write, and may lose the reply to a commit."""

    def __init__(self, ledger: Ledger, process: Process) -> None:
        self._ledger = ledger
        self._process = process

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._ledger, name)
        if name not in (*_WRITES, *_PLAN_WRITES.values()):
            return method

        def write(*arguments: Any) -> Any:
            self._pause(name, arguments)
            return method(*arguments)

        return write

    @contextmanager
    def publication(self, attempt: Attempt, expected: BatchState = BatchState.AUDITED) -> Iterator[Publication]:
        """Publish; the connection may be lost before the commit or after it."""
        self._pause("publication", (attempt,))
        with self._ledger.publication(attempt, expected) as publication:
            yield publication
            self._lose_reply(CommitFault.BEFORE)
        if attempt.batch.batch_id == self._process.batch_id and not self._only_asks(attempt, expected):
            self._process.commits += 1
        self._lose_reply(CommitFault.AFTER)

    def _only_asks(self, attempt: Attempt, expected: BatchState) -> bool:
        """Whether the publication has announced a commit of the sink, or revoked it."""
        found = self._ledger.load_batch(attempt.batch.batch_id).state
        is_revoked = (expected, found) == (BatchState.COMMITTING, BatchState.AUDITED)
        return found is BatchState.COMMITTING or is_revoked

    def _pause(self, name: str, arguments: tuple[Any, ...]) -> None:
        if name in FENCED_WRITES:
            self._process.holds = arguments[0]
        self._process.reach(name)

    def _lose_reply(self, moment: CommitFault) -> None:
        if self._process.commit_fault is moment:
            self._process.commit_fault = None
            raise OutcomeUnknownError("the reply to COMMIT was lost")
