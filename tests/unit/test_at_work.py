"""A run leaves a batch alone at which another one is at work, and takes it over from one that died or stalls."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import count
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException
from airflow.sdk.execution_time.context import set_current_context

from batchledger.config.pipeline_file import PipelineConfig
from batchledger.interfaces.airflow import tasks
from batchledger.lifecycle import plans, run_batch
from batchledger.lifecycle.at_work import hand_on
from batchledger.lifecycle.platform import Platform
from batchledger.model.batch import BatchState, Decision, DeliveryMode
from batchledger.model.errors import AtWorkError, BatchBlockedError, FencedError, StagingError
from batchledger.model.offsets import OffsetRange
from batchledger.model.presence import NO_PATIENCE, Patience, Presence
from batchledger.planning.replay import Replay
from tests.fakes.crash import FOREIGN, CrashOnce, Interrupt, SimulatedCrashError, crash_points
from tests.fakes.foreign_sink import store_of
from tests.fakes.presence import MemoryPresences
from tests.fakes.world import ORDERS_0, World, assert_exactly_once, catch_up, stage_and_audit, staged_twice
from tests.support import wait_until
from tests.unit.test_airflow_tasks import CONFIG, graph, in_run, task_instance

BY_ANA = Decision("ana@host", "it takes too long")
NOW = datetime(2026, 11, 21, 10, 0, tzinfo=UTC)
AT_WORK = crash_points(DeliveryMode.EXACTLY_ONCE)[1:-1]
"""From the opening of the attempt to its commit."""


@pytest.mark.parametrize(
    ("silent_seconds", "is_held", "is_handed_on", "lasts"),
    [
        (0.0, True, False, True),
        (59.0, True, False, True),
        (60.0, True, False, False),
        (0.0, False, False, False),
        (59.0, False, False, False),
        (0.0, False, True, True),
        (299.0, False, True, True),
        (300.0, False, True, False),
    ],
)
def test_presence_lasts_while_its_process_lives_and_gives_signs_of_it_or_its_next_step_is_due(
    silent_seconds: float, is_held: bool, is_handed_on: bool, lasts: bool
) -> None:
    presence = Presence(1, "run", "ana@host", NOW, silent_seconds, is_held, is_handed_on)
    assert presence.lasts(Patience()) is lasts
    assert not presence.lasts(NO_PATIENCE)


@pytest.mark.parametrize("point", AT_WORK)
def test_run_that_meets_a_living_attempt_leaves_it_alone_and_says_who_is_at_work(world: World, point: str) -> None:
    met: list[AtWorkError] = []

    def come() -> None:
        for number in range(3):
            with pytest.raises(AtWorkError) as left:
                run_batch.run_once(world.process(), f"newcomer-{number}")
            met.append(left.value)

    batch = run_batch.run_once(world.process(crash=Interrupt(point, come)), "first")
    assert len(met) == 3
    for each in met:
        assert "batch 1 of orders_copy is left to run first of ana@host." in str(each)
        assert (each.batch_id, each.other.run, each.exit_code) == (1, "first", 0)
        assert not each.retryable
    assert batch is not None
    assert (batch.state, batch.attempt, batch.attempt_run) == (BatchState.PUBLISHED, 1, "first")
    assert_exactly_once(world)


def test_negative_control_newcomers_who_respect_nobody_let_no_attempt_come_to_its_end(world: World) -> None:
    """Each of twelve finds the batch staged by the one before, and fences it: nothing is published but by the last."""
    world.patience = NO_PATIENCE
    begun: list[str] = []

    def run(number: int) -> None:
        begun.append(f"run-{number}")
        following = Interrupt("staged", lambda: run(number + 1)) if number < 12 else CrashOnce("staged")
        with pytest.raises((FencedError, SimulatedCrashError)):
            run_batch.run_once(world.process(crash=following), f"run-{number}")

    run(1)
    assert len(begun) == 12
    assert not world.times_published()
    assert world.database.committed.batches[1].batch.attempt == 12


def test_run_that_plans_while_another_one_finishes_the_batch_goes_on_behind_it(world: World) -> None:
    """It has found the batch open, and published when it begins: nothing is wrong."""
    first = plans.plan(world.process(), "first")
    assert first is not None
    overtaken = Interrupt("plan_stored", lambda: run_batch.run_once(world.process(), "faster"))
    world.produce(ORDERS_0, 4)
    batch = run_batch.run_once(world.process(crash=overtaken), "first")
    assert batch is not None
    assert (batch.batch_id, batch.attempt) == (2, 1)
    assert_exactly_once(world)


def test_killed_attempt_is_taken_over_at_once(world: World) -> None:
    """A run holds its batch from the first step to the last; every other point is in ``test_crashes``."""
    with pytest.raises(SimulatedCrashError):
        run_batch.run_once(world.process(crash=CrashOnce("staged")), "killed")
    catch_up(world, "next")
    assert_exactly_once(world)


def in_the_future(platform: Platform, seconds: float) -> Platform:
    """The same platform, so much later."""
    assert isinstance(platform.presences, MemoryPresences)
    later = replace(platform.presences, clock=lambda: datetime.now(UTC) + timedelta(seconds=seconds))
    return replace(platform, presences=later)


def test_stalled_attempt_is_taken_over_after_a_bound_and_fenced_when_it_wakes_up(world: World) -> None:
    """S101."""

    def come() -> None:
        with pytest.raises(AtWorkError, match="if it stalls, after 60 s") as left:
            run_batch.run_once(in_the_future(world.process(), 59), "early")
        assert (left.value.step, left.value.other.run) == ("audit", "stalled")
        assert run_batch.run_once(in_the_future(world.process(), 61), "late") is not None

    with pytest.raises(FencedError, match="Attempt 2 of run late"):
        run_batch.run_once(world.process(crash=Interrupt("staged", come)), "stalled")
    assert_exactly_once(world)


def test_batch_between_two_steps_of_a_run_is_kept_for_it_for_a_bounded_time(world: World) -> None:
    """In Airflow no process is at work on it while the next task waits for a slot."""
    batch = stage_and_audit(world.process(), "scheduled__1")
    with pytest.raises(AtWorkError, match="does not begin within 300 s") as left:
        run_batch.run_once(world.process(), "impatient")
    assert (left.value.state, left.value.step, left.value.attempt) == ("audited", "publish", 1)
    assert (left.value.other.run, left.value.other.is_handed_on) == ("scheduled__1", True)
    assert run_batch.publish(world.process(), batch.batch_id, "scheduled__1").attempt == 1
    world.produce(ORDERS_0, 3)
    stage_and_audit(world.process(), "scheduled__2")
    taken = run_batch.run_once(in_the_future(world.process(), 301), "after the bound")
    assert taken is not None
    assert taken.attempt == 2
    assert_exactly_once(world)


def test_planned_batch_waits_for_the_stage_step_of_its_run(world: World) -> None:
    batch = plans.plan(world.process(), "scheduled__1")
    assert batch is not None
    hand_on(world.process(), batch.batch_id, "scheduled__1")
    with pytest.raises(AtWorkError, match="stage comes next"):
        run_batch.run_once(world.process(), "cli")
    assert run_batch.stage(world.process(), batch.batch_id, "scheduled__1").attempt == 1


def test_run_always_goes_on_with_its_own(world: World) -> None:
    """As a retry of Airflow, also while the process that is believed dead lives on."""
    retried = Interrupt("staging_sealed", lambda: stage_and_audit(world.process(), "run"))
    with pytest.raises(FencedError):
        run_batch.run_once(world.process(crash=retried), "run")
    assert run_batch.publish(world.process(), 1, "run").attempt == 2
    assert_exactly_once(world)


def test_step_that_failed_leaves_the_batch_to_the_next_run(world: World) -> None:
    def break_down(rows: object) -> list[dict[str, object]]:
        raise StagingError("Spark is gone")

    with pytest.raises(StagingError):
        run_batch.run_once(world.process(alter=break_down), "first")  # type: ignore[arg-type]
    assert run_batch.run_once(world.process(), "second") is not None


def test_blocked_batch_is_nobodys_and_a_person_takes_it_again_at_once(world: World) -> None:
    with pytest.raises(BatchBlockedError):
        run_batch.run_once(world.process(alter=staged_twice), "first")
    plans.retake(world.process(), 1, "by hand", BY_ANA)
    assert run_batch.run_once(world.process(), "by hand", 1) is not None


def test_person_who_takes_a_batch_again_leaves_it_to_a_living_attempt_and_nothing_is_recorded(world: World) -> None:
    def take_again() -> None:
        with pytest.raises(AtWorkError):
            plans.retake(world.process(), 1, "by hand", BY_ANA)
        with pytest.raises(AtWorkError):
            run_batch.run_once(world.process(), "by hand", 1)

    run_batch.run_once(world.process(crash=Interrupt("staged", take_again)), "first")
    assert world.process().decisions.load_decisions(1) == []
    assert_exactly_once(world)


def test_decision_to_discard_reaches_a_living_attempt(world: World) -> None:
    def discard() -> None:
        world.process().decisions.discard(1, BY_ANA)

    with pytest.raises(FencedError, match="discarded by a person's decision"):
        run_batch.run_once(world.process(crash=Interrupt("staged", discard)), "first")
    assert run_batch.run_once(world.process(), "second") is not None
    assert_exactly_once(world)


@contextmanager
def in_a_thread(act: object) -> Iterator[list[object]]:
    """Let something happen beside the block; yield what it returns, once it has."""
    outcome: list[object] = []
    thread = threading.Thread(target=lambda: outcome.append(act()), daemon=True)  # type: ignore[operator]
    thread.start()
    yield outcome
    thread.join(60)
    assert not thread.is_alive()


def test_publication_waits_for_a_living_run_that_is_committing_and_asks_no_sink_for_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """To ask the sink would fence the one that is about to commit."""
    world = World(foreign=store_of(FOREIGN))
    world.broker.create_topic("orders", 1)
    world.produce(ORDERS_0, 10)
    catch_up(world)
    replay = plans.plan_replay(world.process(), Replay((OffsetRange(ORDERS_0, 3, 6),)), "again", BY_ANA, "again")
    assert replay is not None
    world.produce(ORDERS_0, 5)
    live = stage_and_audit(world.process(), "live")
    is_announced, go_on = threading.Event(), threading.Event()

    def pause() -> None:
        is_announced.set()
        assert go_on.wait(60)

    committing = world.process(crash=Interrupt("announced", pause))
    with in_a_thread(lambda: run_batch.take_through(committing, replay.batch_id, "again")) as replayed:
        assert is_announced.wait(60)
        looks: list[int] = []

        class WatchedPresences(MemoryPresences):
            def find(self, batch_id: int) -> Presence | None:
                looks.append(batch_id)
                return super().find(batch_id)

        watched = replace(world.process(), presences=WatchedPresences(world.database))
        with in_a_thread(lambda: run_batch.publish(watched, live.batch_id, "live")) as published:
            wait_until(lambda: looks.count(replay.batch_id) > 1)
            assert published == []
            go_on.set()
    assert [each.state for each in (*replayed, *published)] == [BatchState.PUBLISHED] * 2  # type: ignore[attr-defined]
    assert "its sink is asked first" not in caplog.text
    assert not caplog.messages or all("is committing" not in each for each in caplog.messages)


RETRY = {"action": "retry_batch", "batch_id": 1, "reason": "it takes too long"}
ONE_BATCH = {"action": "one_batch", "max_records": 5_000, "reason": "a look"}


@pytest.mark.parametrize("step", ["plan", "stage"])
@pytest.mark.parametrize(
    ("asked", "ends_as"),
    [({}, AirflowSkipException), (RETRY, AirflowFailException), (ONE_BATCH, AirflowFailException)],
    ids=["catches up", "retry", "one batch"],
)
def test_airflow_run_that_meets_a_living_attempt_is_skipped_unless_a_person_has_asked_for_more(
    world: World, monkeypatch: pytest.MonkeyPatch, step: str, asked: dict[str, Any], ends_as: type[Exception]
) -> None:
    """What a person asked for never looks done when it was not."""
    monkeypatch.setattr("batchledger.wiring.build_platform", lambda _: world.process())
    monkeypatch.setattr("batchledger.wiring.choose_stage_step", lambda *_, **__: run_batch.stage)
    dag_run = SimpleNamespace(
        run_id="manual__2", run_type="manual", conf=asked, clear_number=0, triggering_user_name="ana",
        data_interval_start=None, data_interval_end=None, start_date=NOW,
    )  # fmt: skip

    def come() -> None:
        ti = task_instance("stage", 1)
        in_airflow = set_current_context({"dag_run": dag_run, "ti": ti, "dag": graph()})  # type: ignore[typeddict-item]
        with in_airflow, pytest.raises(ends_as, match="left to run cli__1 of ana@host"):
            tasks.plan(CONFIG) if step == "plan" else tasks.stage(CONFIG)

    run_batch.run_once(world.process(crash=Interrupt("staged", come)), "cli__1")
    assert_exactly_once(world)


def test_airflow_plan_keeps_its_batch_for_its_stage_task(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("batchledger.wiring.build_platform", lambda _: world.process())
    dag_run = SimpleNamespace(
        run_id="manual__1", run_type="manual", conf={}, clear_number=0, triggering_user_name=None,
        data_interval_start=None, data_interval_end=None, start_date=NOW,
    )  # fmt: skip
    with set_current_context({"dag_run": dag_run, "ti": task_instance("plan")}):  # type: ignore[typeddict-item]
        batch_id = tasks.plan(CONFIG)
    with pytest.raises(AtWorkError, match="left to run manual__1"):
        run_batch.run_once(world.process(), "cli__1")
    assert run_batch.take_through(world.process(), batch_id, "manual__1").attempt == 1


REPLAY = {"action": "replay_ranges", "ranges": ["orders[0] 3..7"], "reason": "wrong rate"}


@pytest.mark.parametrize("asked", [REPLAY, RETRY], ids=["replay", "retry"])
@pytest.mark.parametrize("step", [tasks.plan, tasks.stage, tasks.take_next], ids=["plan", "stage", "all steps"])
def test_second_place_of_a_run_leaves_its_order_to_the_first_and_a_place_of_another_run_fails(
    world: World, monkeypatch: pytest.MonkeyPatch, asked: dict[str, Any], step: Callable[[PipelineConfig], Any]
) -> None:
    """A backfill or another order is for all places of a pipeline in a run, and is carried out once."""
    monkeypatch.setattr("batchledger.wiring.build_platform", lambda _: world.process())
    monkeypatch.setattr("batchledger.wiring.choose_stage_step", lambda *_, **__: run_batch.stage)

    def come(group: str, act: Callable[[PipelineConfig], Any], dag_id: str = "nightly", planned: int = 0) -> Any:
        with in_run({"batchledger": asked}, dag_id=dag_id, task_id=f"{group}.plan", planned=planned):
            return act(CONFIG)

    if asked is REPLAY:
        catch_up(world)
    else:
        with pytest.raises(BatchBlockedError):
            run_batch.run_once(world.process(alter=staged_twice), "before")
    planned = come("first", tasks.plan)
    times_met = count(1)

    def come_second() -> None:
        with pytest.raises(AirflowSkipException, match="run manual__1@nightly/first "):
            come("second", step, planned=planned)
        with pytest.raises(AirflowFailException, match="run manual__1@nightly/first "):
            come("second", tasks.stage, "weekly", planned)
        next(times_met)

    run_batch.take_through(world.process(crash=Interrupt("staged", come_second)), planned, "manual__1@nightly/first")
    come_second()
    assert (next(times_met), max(world.database.committed.batches)) == (3, planned)
    assert_exactly_once(world)
