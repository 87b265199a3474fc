"""The life of what follows an attempt: it ends with the step, never fails it, and never looks at one that is over soon.

Time passes only when a test lets it: ``Ticks`` is clock and wait in one.
"""

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from queue import Queue
from threading import Event

import pyarrow as pa
import pytest

from batchledger import looking, wiring
from batchledger.config.pipeline_file import PipelineConfig
from batchledger.lifecycle import following, plans, run_batch
from batchledger.lifecycle.following import Follower, Look, Tell, log_progress
from batchledger.lifecycle.platform import look_at_reading
from batchledger.model.batch import Attempt, BatchState
from batchledger.model.errors import ServiceUnavailableError, StagingError
from batchledger.model.progress import Progress, Reading
from batchledger.settings.connections import Connection
from tests.fakes.crash import CrashOnce, SimulatedCrashError
from tests.fakes.evidence import MemoryEvidence
from tests.fakes.work import ROW_SCHEMA
from tests.fakes.world import ORDERS_0, ORDERS_1, PIPELINE, World
from tests.support import wait_until

CONFIG = PipelineConfig.model_validate(
    {"name": PIPELINE, "source": {"topics": ["orders"], "schema": "message_id string"}, "sink": {"table": "orders"}}
)
SUBMIT_HOOK = "airflow.providers.apache.spark.hooks.spark_submit.SparkSubmitHook"


@dataclass
class Ticks:
    """Lets one wait of a follower pass at a time; each takes ten seconds of its clock."""

    now: float = 0.0
    allowed: Queue[bool] = field(default_factory=Queue)
    waits: int = 0
    waited_seconds: list[float] = field(default_factory=list)

    def clock(self) -> float:
        return self.now

    def wait(self, over: Event, seconds: float) -> bool:
        self.waited_seconds.append(seconds)
        self.waits += 1
        while not over.is_set():
            if not self.allowed.empty():
                self.allowed.get()
                self.now += seconds
                return False
            over.wait(0.001)
        return True

    def pass_one(self) -> None:
        """Let one interval pass, and wait until the follower has done what it does then."""
        before = self.waits
        wait_until(lambda: self.waits > 0)
        self.allowed.put(True)
        wait_until(lambda: self.waits > max(before, 1), every=0.001)


@dataclass
class Told:
    """A display that notes what it gets, and whether it is shown."""

    progress: list[Progress] = field(default_factory=list)
    shown: list[str] = field(default_factory=list)

    @contextmanager
    def display(self, attempt: Attempt) -> Iterator[Tell]:
        self.shown.append("begun")
        yield self.progress.append
        self.shown.append("ended")


def follower(told: Told, ticks: Ticks) -> Follower:
    return Follower(told.display, 10.0, ticks.clock, ticks.wait)


@pytest.fixture
def world() -> World:
    world = World()
    world.broker.create_topic("orders", 2)
    for partition in (ORDERS_0, ORDERS_1):
        world.produce(partition, 500)
    return world


@pytest.fixture
def attempt(world: World) -> Attempt:
    platform = world.process()
    batch = plans.plan(platform, "run")
    assert batch is not None
    return platform.ledger.open_attempt(batch.batch_id, "run")


def count_followers() -> int:
    return sum(each.name.startswith("follow ") for each in threading.enumerate())


def test_each_interval_one_progress_is_told_until_the_step_is_over(attempt: Attempt) -> None:
    told, ticks, read = Told(), Ticks(), iter([Reading(100), Reading(400), Reading(300)])
    with follower(told, ticks).follow(attempt, lambda: next(read)):
        for _ in range(3):
            ticks.pass_one()
        assert count_followers() == 1
    assert [str(each) for each in told.progress] == [
        "100 of 1,000 records read (10%), 10 a second, about 90 s left",
        "400 of 1,000 records read (40%), 20 a second, about 30 s left",
        "400 of 1,000 records read (40%), 13 a second, about 45 s left",
    ]
    assert told.shown == ["begun", "ended"]
    assert count_followers() == 0


def test_a_step_that_is_over_within_the_first_interval_is_never_looked_at(attempt: Attempt) -> None:
    told, looks = Told(), []

    def look() -> Reading:
        looks.append("a connection")
        return Reading(0)

    with follower(told, Ticks()).follow(attempt, look):
        pass
    assert (looks, told.shown, count_followers()) == ([], [], 0)


def test_after_a_look_that_takes_long_the_database_is_left_alone_for_longer(attempt: Attempt) -> None:
    told, ticks = Told(), Ticks()
    seconds = iter([0.1, 3.0, 0.1])

    def look() -> Reading:
        ticks.now += next(seconds)
        return Reading(1)

    with follower(told, ticks).follow(attempt, look):
        for _ in range(3):
            ticks.pass_one()
    assert ticks.waited_seconds == [10.0, 10.0, pytest.approx(60.0), 10.0]


@pytest.mark.parametrize("error", [StagingError("it failed"), KeyboardInterrupt(), SystemExit(1)])
def test_the_follower_ends_with_a_step_that_fails_and_leaves_the_error_as_it_is(
    attempt: Attempt, error: BaseException
) -> None:
    told, ticks = Told(), Ticks()

    def fail() -> None:
        with follower(told, ticks).follow(attempt, lambda: Reading(1)):
            ticks.pass_one()
            raise error

    with pytest.raises(type(error)) as raised:
        fail()
    assert raised.value is error
    assert told.shown == ["begun", "ended"]
    assert count_followers() == 0


def test_what_cannot_be_learnt_is_left_out(attempt: Attempt) -> None:
    told, ticks, answers = Told(), Ticks(), iter([Reading(100), None, Reading(300)])

    def look() -> Reading:
        if (answer := next(answers)) is None:
            raise ServiceUnavailableError("the database is down")
        return answer

    with follower(told, ticks).follow(attempt, look):
        for _ in range(3):
            ticks.pass_one()
    assert [(each.read_records, each.seconds) for each in told.progress] == [(100, 10.0), (300, 30.0)]


def test_a_mistake_ends_the_follower_with_one_warning_and_the_step_goes_on(
    attempt: Attempt, caplog: pytest.LogCaptureFixture
) -> None:
    ticks = Ticks()

    def look() -> Reading:
        raise ZeroDivisionError

    with caplog.at_level(logging.WARNING), follower(Told(), ticks).follow(attempt, look):
        wait_until(lambda: ticks.waits == 1)
        ticks.allowed.put(True)
        wait_until(lambda: count_followers() == 0)
    assert [each.getMessage() for each in caplog.records] == [
        f"{attempt.batch.label} is not followed any more; it goes on"
    ]


def test_a_look_that_does_not_come_back_holds_nothing_up_and_is_told_to_nobody(
    attempt: Attempt, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(following, "LEAVE_WITHIN_SECONDS", 0.01)
    told, ticks, is_looking, may_end = Told(), Ticks(), Event(), Event()

    def look() -> Reading:
        is_looking.set()
        may_end.wait()
        return Reading(100)

    with follower(told, ticks).follow(attempt, look):
        ticks.allowed.put(True)
        is_looking.wait()
    assert count_followers() == 1
    may_end.set()
    wait_until(lambda: count_followers() == 0)
    assert told.shown == []


def test_the_log_has_one_line_with_batch_and_attempt_each_time(
    attempt: Attempt, caplog: pytest.LogCaptureFixture
) -> None:
    ticks, read = Ticks(), iter([Reading(0), Reading(500)])
    logged = Follower(log_progress, 10.0, ticks.clock, ticks.wait)
    with caplog.at_level(logging.INFO, "batchledger"), logged.follow(attempt, lambda: next(read)):
        ticks.pass_one()
        ticks.pass_one()
    assert [each.getMessage() for each in caplog.records] == [
        f"{attempt.batch.label} attempt 1: 0 of 1,000 records read (0%)",
        f"{attempt.batch.label} attempt 1: 500 of 1,000 records read (50%), 50 a second, about 10 s left",
    ]


def test_the_log_lines_belong_to_the_context_of_the_step(attempt: Attempt) -> None:
    """Airflow's log keeps run and task there."""
    task: ContextVar[str] = ContextVar("task")
    ticks, found = Ticks(), []
    task.set("stage")

    def look() -> Reading:
        found.append(task.get())
        return Reading(1)

    with follower(Told(), ticks).follow(attempt, look):
        ticks.pass_one()
    assert found == ["stage"]


@pytest.mark.parametrize(("has_transform", "expected"), [(False, Reading(500 + 30)), (True, Reading(500, rows=30))])
def test_rows_on_their_way_are_records_unless_a_transform_stands_between(
    world: World, attempt: Attempt, has_transform: bool, expected: Reading
) -> None:
    platform = world.process(has_transform=has_transform)
    with platform.evidence.open(attempt).open(0) as testimony:
        testimony.finish(attempt.batch.ranges[:1])
    row = {"_topic": "orders", "_partition": 1, "_offset": 0, "_timestamp": None, "message_id": "a"}
    with platform.sink.open_staging(attempt, ROW_SCHEMA).open(0) as write:
        write(pa.RecordBatch.from_pylist([row] * 30, schema=ROW_SCHEMA))
        assert look_at_reading(platform, attempt) == expected


@dataclass(frozen=True)
class EndingTask(MemoryEvidence):
    """Evidence of a part of the read that ends as soon as evidence has been asked."""

    end: Callable[[], None] = field(kw_only=True)

    def count_seen(self, attempt: Attempt) -> int:
        seen = super().count_seen(attempt)
        self.end()
        return seen


def test_a_part_that_ends_during_a_look_is_not_counted_twice(world: World, attempt: Attempt) -> None:
    """Its rows are on their way no more, and its offsets are not seen yet: the next look has them."""
    platform = world.process()
    evidence, rows = platform.evidence.open(attempt), platform.sink.open_staging(attempt, ROW_SCHEMA)
    row = {"_topic": "orders", "_partition": 0, "_offset": 0, "_timestamp": None, "message_id": "a"}
    with ExitStack() as task:
        task.enter_context(rows.open(0))(pa.RecordBatch.from_pylist([row] * 500, schema=ROW_SCHEMA))
        assert look_at_reading(platform, attempt) == Reading(500)

        def end() -> None:
            task.close()
            with evidence.open(0) as testimony:
                testimony.finish(attempt.batch.ranges[:1])

        ending = replace(platform, evidence=EndingTask(world.database, end=end))
        assert look_at_reading(ending, attempt) == Reading(0)
        assert look_at_reading(platform, attempt) == Reading(500)


def test_the_stage_step_is_followed_with_its_attempt_and_the_others_are_not(world: World) -> None:
    seen: list[tuple[int, BatchState]] = []

    @contextmanager
    def follow(attempt: Attempt, look: Look) -> Iterator[None]:
        yield
        state = platform.ledger.load_batch(attempt.batch.batch_id).state
        seen.append((attempt.number, state))
        assert look() == Reading(1000)

    platform = replace(world.process(), follow=follow)
    batch = run_batch.run_once(platform, "run")
    assert batch is not None
    assert batch.state is BatchState.PUBLISHED
    assert seen == [(1, BatchState.PLANNED)]


def test_what_a_killed_stage_job_has_read_is_not_told_of_the_next_one(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By spark-submit. Airflow retries under the same run id, and the new job takes a while to open its attempt."""
    platform = world.process()
    told: list[Reading] = []
    batch = plans.plan(platform, "run")
    assert batch is not None
    killed = world.process(crash=CrashOnce("staging_sealed"))
    with pytest.raises(SimulatedCrashError):
        run_batch.stage(killed, batch.batch_id, "run")
    assert look_at_reading(platform, Attempt(batch, 1, "run")) == Reading(1000)

    @contextmanager
    def follow(_: Attempt, look: Look) -> Iterator[None]:
        told.append(look())
        yield
        told.append(look())

    def submit(_: object, __: str, **___: object) -> None:
        told.append(Reading(-1))
        platform.ledger.open_attempt(batch.batch_id, "run")

    monkeypatch.setattr(looking, "load_connection", lambda name, *_: Connection(name, "spark"))
    monkeypatch.setattr(f"{SUBMIT_HOOK}.__init__", lambda *_, **__: None)
    monkeypatch.setattr(f"{SUBMIT_HOOK}.submit", submit)
    wiring.choose_stage_step(CONFIG, follow)(platform, batch.batch_id, "run")
    assert told == [Reading(0), Reading(-1), Reading(0)]
