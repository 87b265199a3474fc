"""What tasks do when a person marks one of them, clears it by itself or runs it alone, over a platform in memory."""

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk import DAG
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException
from airflow.sdk.execution_time.context import set_current_context

from batchledger.interfaces.airflow import further_runs, operators, tasks
from batchledger.interfaces.airflow.batch_of_run import describe_present_run, find_marked
from batchledger.lifecycle import plans, run_batch
from batchledger.model.batch import Batch, Decision
from batchledger.model.errors import BatchBlockedError
from batchledger.model.offsets import OffsetRange
from batchledger.planning.live import Limits
from batchledger.planning.replay import Replay
from tests.fakes.world import PIPELINE, World, stage_and_audit, staged_twice
from tests.unit.test_airflow_tasks import CONFIG, ORDERS_0, STARTED, task_instance

RUN = "manual__1"


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    """Ten records that no run has planned."""
    world = World()
    world.broker.create_topic("orders", 1)
    world.produce(ORDERS_0, 10)
    monkeypatch.setattr("batchledger.wiring.build_platform", lambda _: world.process())
    monkeypatch.setattr("batchledger.wiring.choose_stage_step", lambda *_, **__: run_batch.stage)
    return world


@contextmanager
def in_run(planned: int | None, **states: str) -> Iterator[Any]:
    """Be a task of the run ``RUN``; ``states`` are those that Airflow shows of the others."""
    dag_run = SimpleNamespace(
        run_id=RUN, run_type="manual", conf={}, clear_number=0, triggering_user_name="ana",
        data_interval_start=None, data_interval_end=None, start_date=STARTED,
    )  # fmt: skip

    def get_task_states(
        dag_id: str, map_index: int | None, task_ids: list[str], run_ids: list[str]
    ) -> dict[str, Mapping[str, str]]:
        assert (dag_id, map_index, run_ids) == (PIPELINE, None, [RUN])
        return {RUN: {each: states[each] for each in task_ids if each in states}}

    ti = task_instance("publish", planned, get_task_states=get_task_states)
    with set_current_context({"dag_run": dag_run, "ti": ti}) as context:  # type: ignore[typeddict-item]
        yield context


def publish(context: Any = None) -> None:
    with DAG("orders", schedule=None):
        operators.PublishOperator(task_id="publish", pipeline=CONFIG).execute(context or {})


def catch_up() -> None:
    with DAG("orders", schedule=None):
        further_runs.CatchUpOperator(task_id="catch_up", pipeline=CONFIG).execute({})  # type: ignore[typeddict-item]


def planned(world: World) -> Batch:
    batch = plans.plan(world.process(), RUN)
    assert batch is not None
    return batch


def refusal(step: Callable[[], None]) -> str:
    """Return the words with which a task ends for good: Airflow does not retry this error."""
    with pytest.raises(AirflowFailException) as ended:
        step()
    return str(ended.value)


def test_publish_behind_an_audit_that_was_only_marked_names_the_batch_and_the_way_on(world: World) -> None:
    batch = planned(world)
    run_batch.stage(world.process(), batch.batch_id, RUN)
    with in_run(batch.batch_id):
        told = refusal(publish)
    assert "batch 1 of orders_copy is staged, and this step needs it audited. It changes nothing." in told
    assert "clear the audit task of this run in Airflow with everything downstream" in told
    assert "batchledger run orders_copy --batch 1" in told
    assert not world.times_published()


def test_audit_and_publish_without_a_stage_name_the_batch_and_the_way_on(world: World) -> None:
    batch = planned(world)
    for step in (lambda: tasks.audit(CONFIG), publish):
        with in_run(batch.batch_id):
            told = refusal(step)
        assert "batch 1 of orders_copy is planned, and this step needs it" in told
        assert "clear the stage task of this run in Airflow with everything downstream" in told


def test_run_that_goes_on_after_a_forced_audit_publishes_once(world: World) -> None:
    batch = planned(world)
    run_batch.stage(world.process(), batch.batch_id, RUN)
    with in_run(batch.batch_id):
        refusal(publish)
        tasks.audit(CONFIG)
    run_batch.publish(world.process(), batch.batch_id, RUN)
    assert set(world.times_published().values()) == {1}


@pytest.mark.parametrize(
    "step",
    [lambda: tasks.stage(CONFIG), lambda: tasks.audit(CONFIG), publish, catch_up],
    ids=["stage", "audit", "publish", "catch_up"],
)
@pytest.mark.parametrize("is_open", [True, False])
def test_task_behind_a_plan_that_was_only_marked_names_the_open_batch_and_the_way_on(
    world: World, step: Callable[[], None], is_open: bool
) -> None:
    if is_open:
        stage_and_audit(world.process(), "before")
    with in_run(None):
        told = refusal(step)
    assert "Run manual__1 of orders_copy has no batch. This step changes nothing." in told
    assert "Clear the plan task of this run in Airflow with everything downstream" in told
    assert ("batch 1 of orders_copy is open, and audited" in told) == is_open
    assert ("another run, which goes on with batch 1: batchledger run orders_copy" in told) == is_open


def test_catch_up_that_has_nothing_to_go_on_with_says_why_in_its_log(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    batch = planned(world)
    run_batch.take_through(world.process(), batch.batch_id, RUN)
    with caplog.at_level(logging.INFO, "batchledger"), in_run(1), pytest.raises(AirflowSkipException):
        catch_up()
    assert "batch 1 of orders_copy took everything that was readable" in caplog.messages


def note(batch_id: int | None, **states: str) -> str:
    with in_run(batch_id, **states):
        return describe_present_run(CONFIG)


def test_later_step_that_has_a_state_before_stage_has_ended_was_marked(world: World) -> None:
    assert marked(plan="success", audit="failed", publish="success") == (
        "audit is marked as failed, publish is marked as success"
    )
    # The negative control: a run whose later tasks wait for this one.
    assert marked(plan="success", stage="running") == ""
    assert marked(plan="success", stage="running", audit="upstream_failed", publish="upstream_failed") == ""


def marked(**states: str) -> str:
    with in_run(1, **states):
        return find_marked()


def test_note_of_a_run_counts_the_rows_of_its_batch_and_what_is_left(world: World) -> None:
    world.limits = Limits(max_records=8)
    batch = planned(world)
    run_batch.take_through(world.process(), batch.batch_id, RUN)
    assert note(1, plan="success", publish="success") == "batch 1: 8 rows published, 2 records left for the next run"


def test_note_of_a_run_names_the_run_that_has_published_its_batch(world: World) -> None:
    planned(world)
    run_batch.run_once(world.process(), "cli__1")
    assert note(1, plan="success", publish="failed") == "batch 1: 10 rows published by run cli__1"


def test_note_says_that_a_publication_was_only_marked(world: World) -> None:
    stage_and_audit(world.process(), RUN)
    forced = "Its publish task was marked as a success by hand, and that publishes nothing."
    told = note(1, plan="success", publish="success")
    assert (
        told
        == f"batch 1 is audited, and not visible. {forced} The next run goes on with it: batchledger run orders_copy"
    )
    # The negative control: a task that has failed was not marked.
    assert forced not in note(1, plan="success", publish="failed")


def test_note_of_a_replay_that_was_only_marked_names_the_batch_because_no_run_takes_it_over(world: World) -> None:
    run_batch.run_once(world.process(), "before")
    replay = plans.plan_replay(
        world.process(), Replay((OffsetRange(ORDERS_0, 0, 5),)), RUN, Decision("ana", "wrong rate"), "key"
    )
    assert replay is not None
    told = note(replay.batch_id, plan="success", publish="success")
    assert told.startswith("batch 2 is planned, and not visible. Its publish task was marked")
    assert told.endswith("batchledger run orders_copy --batch 2")


def test_note_of_a_blocked_batch_names_the_command_that_says_why(world: World) -> None:
    with pytest.raises(BatchBlockedError):
        run_batch.run_once(world.process(alter=staged_twice), RUN)
    told = note(1, plan="success", audit="failed")
    assert told == "batch 1 is blocked, and not visible. It waits for a person: batchledger batch 1"


def test_run_without_a_batch_has_a_note_only_if_a_person_has_marked_a_task(world: World) -> None:
    assert note(None, plan="skipped") == ""
    assert note(None, plan="success").startswith("This run has no batch, so nothing became visible. Its plan task was")
    assert "Its publish task was marked" in note(None, plan="skipped", publish="success")
