"""The plan task as Airflow runs it, over a platform in memory: what ends as skipped, and what fails for good."""

import logging
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from airflow.sdk import DAG
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException
from airflow.sdk.execution_time.context import set_current_context

from batchledger.config.pipeline_file import PipelineConfig
from batchledger.interfaces.airflow import tasks
from batchledger.interfaces.airflow.task_group import BatchledgerTaskGroup, add_steps
from batchledger.interfaces.data_docs.site import Built
from batchledger.lifecycle import run_batch
from batchledger.lifecycle.platform import Platform
from batchledger.model.batch import BatchState, Decision, RecordOrigin
from batchledger.model.errors import BatchBlockedError, ConfigurationError, ServiceUnavailableError
from batchledger.model.offsets import TopicPartition, count_offsets
from batchledger.model.presence import NO_PATIENCE
from batchledger.monitoring.alerting import Alerting
from batchledger.planning.live import Limits
from batchledger.ports import Channel
from tests.fakes.incidents import MemoryIncidents
from tests.fakes.work import Rows, keep_all
from tests.fakes.world import PIPELINE, World, catch_up, stage_and_audit, staged_twice

ORDERS_0 = TopicPartition("orders", 0)
CONFIG = PipelineConfig.model_validate(
    {"name": PIPELINE, "source": {"topics": ["orders"], "schema": "message_id string"}, "sink": {"table": "orders"}}
)
RANGES = {"action": "replay_ranges", "ranges": ["orders[0] 3..7"], "reason": "wrong rate"}
QUARANTINE = {"action": "replay_quarantine", "ranges": ["orders[0] 0..100"], "reason": "another schema"}
DRY_RUN = {"action": "replay_ranges", "ranges": ["orders[0] 3..7"], "dry_run": True}
STARTED = datetime(2026, 1, 1, tzinfo=UTC)
ONE_BATCH = {"action": "one_batch", "max_records": 5, "reason": "a look"}
RETRY = {"action": "retry_batch", "batch_id": 17, "reason": "mended"}


@pytest.fixture
def world() -> World:
    """Ten records, published by one batch."""
    world = World()
    world.broker.create_topic("orders", 1)
    world.produce(ORDERS_0, 10)
    catch_up(world)
    return world


def plan(
    platform: Platform,
    monkeypatch: pytest.MonkeyPatch,
    fields: dict[str, Any],
    started_at: datetime = STARTED,
    user: str | None = "ana",
) -> int:
    """Run the task in a run that was triggered with these fields."""
    monkeypatch.setattr("batchledger.wiring.build_platform", lambda _: platform)
    monkeypatch.setattr("batchledger.wiring.choose_stage_step", lambda *_, **__: run_batch.stage)
    with in_run(fields, started_at, user):
        return tasks.plan(CONFIG)


def in_run(
    fields: dict[str, Any],
    started_at: datetime = STARTED,
    user: str | None = "ana",
    dag_id: str = PIPELINE,
    task_id: str = "plan",
    planned: int | None = None,
) -> AbstractContextManager[Any]:
    """Be a task of a run that was triggered with these fields."""
    dag_run = SimpleNamespace(
        run_id="manual__1", run_type="manual", conf=fields, clear_number=0, triggering_user_name=user,
        data_interval_start=None, data_interval_end=None, start_date=started_at,
    )  # fmt: skip
    ti = task_instance(task_id, planned, dag_id=dag_id)
    dag = graph(dag_id, task_id.rpartition(".")[0])
    return set_current_context({"dag_run": dag_run, "ti": ti, "dag": dag})  # type: ignore[typeddict-item]


def graph(dag_id: str = PIPELINE, group: str = "") -> DAG:
    """A DAG with the four steps of the pipeline, in a group of that name."""
    with DAG(dag_id, schedule=None, tags={"shop", "batchledger:orders_kafka"}) as dag:
        if group:
            BatchledgerTaskGroup(group, pipeline=CONFIG)
        else:
            add_steps(CONFIG)
    return dag


def task_instance(task_id: str, planned: int | None = None, dag_id: str = PIPELINE, **more: Any) -> SimpleNamespace:
    """A task of a DAG, of the pipeline's without another one, in a run whose plan task has left that batch."""
    left = {"return_value": planned}
    return SimpleNamespace(
        dag_id=dag_id, task_id=task_id, map_index=-1, xcom_push=lambda key, value: None,
        xcom_pull=lambda task_ids, key, map_indexes: left.get(key),
        **{"get_task_states": lambda *_, **__: {}, **more},
    )  # fmt: skip


@pytest.mark.parametrize(
    ("fields", "takes_more"), [({}, True), (ONE_BATCH, False), (RANGES, False), (RETRY, False)], ids=str
)
def test_task_for_all_steps_takes_more_only_if_nothing_else_was_asked_for(
    fields: dict[str, Any], takes_more: bool
) -> None:
    """A batch that was to be tried again would be taken again and again."""
    with in_run(fields):
        assert tasks.may_take_more(CONFIG) is takes_more


@pytest.mark.parametrize(
    ("asked", "error", "told"),
    [
        ("orders_kafka", AirflowSkipException, "the run is asked for orders_kafka alone"),
        ("clicks", AirflowFailException, "clicks does not stand in the DAG nightly"),
        ("order_kafka", AirflowFailException, "There is no pipeline 'order_kafka'"),
    ],
)
def test_order_for_another_pipeline_skips_this_one_and_fails_if_it_is_not_in_the_dag(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, asked: str, error: type[Exception], told: str
) -> None:
    for name in ("orders_kafka", "clicks"):
        text = f"name: {name}\nsource: {{topics: [t], schema: 'id bigint'}}\nsink: {{table: {name}}}\n"
        (tmp_path / f"{name}.yaml").write_text(text)
    monkeypatch.setenv("BATCHLEDGER_PIPELINES", str(tmp_path))
    order = {"action": "catch_up", "pipeline": asked}
    with in_run({"batchledger": order}, dag_id="nightly", task_id="load.plan"), pytest.raises(error, match=told):
        tasks.plan(CONFIG)


def test_configuration_of_another_dag_is_the_persons_own_but_for_one_key() -> None:
    own = {"action": "anything", "region": "eu", "season": 3}
    with in_run(own, dag_id="nightly", task_id="load.plan"):
        assert tasks.may_take_more(CONFIG)
    with in_run({**own, "batchledger": ONE_BATCH}, dag_id="nightly", task_id="load.plan"):
        assert not tasks.may_take_more(CONFIG)
    with in_run(own), pytest.raises(AirflowFailException, match="region: there is no such field"):
        tasks.may_take_more(CONFIG)


def without_one_row(rows: Rows) -> Rows:
    """A transform that drops a row."""
    return [row for row in rows if row["_offset"] != 5]


@pytest.mark.parametrize("fields", [{}, {"action": "catch_up", "reason": "before the audit"}], ids=["plain", "reason"])
def test_paused_pipeline_skips_what_only_catches_up(
    world: World, monkeypatch: pytest.MonkeyPatch, fields: dict[str, Any]
) -> None:
    world.produce(ORDERS_0, 10)
    world.process().decisions.pause(PIPELINE, Decision("ana", "maintenance"))
    with pytest.raises(AirflowSkipException, match="ana paused it"):
        plan(world.process(), monkeypatch, fields)


@pytest.mark.parametrize("fields", [RANGES, ONE_BATCH], ids=["replay", "one_batch"])
def test_paused_pipeline_fails_what_a_person_asked_for_so_that_it_does_not_look_done(
    world: World, monkeypatch: pytest.MonkeyPatch, fields: dict[str, Any]
) -> None:
    world.produce(ORDERS_0, 10)
    world.process().decisions.pause(PIPELINE, Decision("ana", "maintenance"))
    with pytest.raises(AirflowFailException, match="ana paused it"):
        plan(world.process(), monkeypatch, fields)


def test_paused_pipeline_may_be_looked_at(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.produce(ORDERS_0, 10)
    world.process().decisions.pause(PIPELINE, Decision("ana", "maintenance"))
    with pytest.raises(AirflowSkipException, match="dry run"):
        plan(world.process(), monkeypatch, DRY_RUN)


def test_paused_pipeline_lets_a_planned_batch_be_tried_again(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pause lets what is planned be finished."""
    world.patience = NO_PATIENCE
    world.produce(ORDERS_0, 10)
    batch = stage_and_audit(world.process(), "before")
    world.process().decisions.pause(PIPELINE, Decision("ana", "maintenance"))
    again = {"action": "retry_batch", "batch_id": batch.batch_id, "reason": "its run is gone"}
    assert plan(world.process(), monkeypatch, again) == batch.batch_id


def test_dry_run_tells_the_outcome_in_the_log_and_ends_the_run_there(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    before = dict(world.times_published())
    with caplog.at_level(logging.INFO, "batchledger"), pytest.raises(AirflowSkipException, match="a dry run"):
        plan(world.process(alter=without_one_row, has_transform=True), monkeypatch, DRY_RUN)
    told = [record.message for record in caplog.records if record.name.startswith("batchledger.interfaces.airflow.t")]
    assert told == [
        "dry run of 4 offsets in orders[0] 3..7: nothing was changed",
        "orders[0] 3..7: 4 offsets = 3 accepted + 1 filtered",
        "would replace 4 rows: batch 1: 4",
        "the rows would differ: 0 added, 1 removed, 0 changed, 3 unchanged",
        "its publication would be: withdraw, positions, rows, numbers",
        "orders_copy: a dry run, nothing was published",
    ]
    assert dict(world.times_published()) == before
    assert [each.batch.state for each in world.database.committed.batches.values()] == [
        BatchState.PUBLISHED, BatchState.DISCARDED
    ]  # fmt: skip


@pytest.mark.parametrize(("alter", "ends"), [(keep_all, AirflowSkipException), (staged_twice, AirflowFailException)])
def test_dry_run_of_a_replay_that_would_be_blocked_fails_with_what_speaks_against_it(
    world: World, monkeypatch: pytest.MonkeyPatch, alter: Callable[[Rows], Rows], ends: type[Exception]
) -> None:
    with pytest.raises(ends) as ended:
        plan(world.process(alter=alter), monkeypatch, DRY_RUN)
    assert ("no_duplicate_offsets" in str(ended.value)) == (ends is AirflowFailException)


def test_dry_run_of_nothing_is_skipped_and_says_so(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.broker.partitions[ORDERS_0].log_start = 10
    with pytest.raises(AirflowSkipException, match="no record is left in what the run was asked"):
        plan(world.process(), monkeypatch, DRY_RUN | {"allow_expired": True})


def test_run_for_quarantine_takes_its_records_as_one_batch_or_says_with_which_ranges_to_begin(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(AirflowSkipException, match="no record is left in what the run was asked"):
        plan(world.process(), monkeypatch, QUARANTINE)
    world.broker.append(ORDERS_0, b"{", b'{"message_id": "good"}', b"{")
    catch_up(world)
    taken = world.process().ledger.load_batch(plan(world.process(), monkeypatch, QUARANTINE))
    assert (taken.origin, [str(each) for each in taken.ranges]) == (
        RecordOrigin.QUARANTINE, ["orders[0] 10..11", "orders[0] 12..13"]
    )  # fmt: skip
    monkeypatch.setattr("batchledger.planning.replay.RANGES_AT_ONCE", 1)
    for fields in (QUARANTINE, QUARANTINE | {"dry_run": True}):
        with pytest.raises(AirflowFailException, match=r"then for the others: orders\[0\] 10\.\.11\n"):
            plan(world.process(), monkeypatch, fields, STARTED + timedelta(days=1))


def test_replay_asked_for_by_a_run_that_was_deleted_and_created_again_is_published_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise a backfill whose runs were deleted would find what it published the first time, and end at once."""
    first = plan(world.process(), monkeypatch, RANGES)
    run_batch.take_through(world.process(), first, "manual__1")
    assert plan(world.process(), monkeypatch, RANGES) == first
    again = plan(world.process(), monkeypatch, RANGES, STARTED + timedelta(days=1))
    assert again != first
    run_batch.take_through(world.process(), again, "manual__1")
    assert {world.database.committed.batches[each].batch.state for each in (first, again)} == {BatchState.PUBLISHED}
    rows = world.sink.read_target()
    assert Counter(row["_batch_id"] for row in rows) == {1: 6, again: 4}


FEW = Limits(max_records=100, min_records=8, max_delay_seconds=3600)


def test_run_that_leaves_too_few_records_waiting_says_so(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.limits = FEW
    world.produce(ORDERS_0, 7)
    with pytest.raises(AirflowSkipException, match=r"7 records wait: limits\.min_records is 8"):
        plan(world.process(), monkeypatch, {}, user=None)
    assert world.process().ledger.find_open_batch(PIPELINE) is None


def test_run_without_anything_to_do_names_the_transactions_that_hold_records_back(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.broker.append_undecided(ORDERS_0, b'{"message_id": "x"}')
    with pytest.raises(AirflowSkipException, match=r"every readable record .*hold records back from orders\[0\]@10 on"):
        plan(world.process(), monkeypatch, {}, user=None)


@pytest.mark.parametrize("fields", [{}, ONE_BATCH], ids=["catch_up", "one_batch"])
def test_person_who_triggers_a_run_need_not_wait_for_more_records(
    world: World, monkeypatch: pytest.MonkeyPatch, fields: dict[str, Any]
) -> None:
    world.limits = FEW
    world.produce(ORDERS_0, 5)
    batch = world.process().ledger.load_batch(plan(world.process(), monkeypatch, fields))
    assert count_offsets(batch.ranges) == 5


def test_report_tells_what_it_finds_and_fails_for_no_channel(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def open_nothing(connection_id: str) -> Channel:
        raise ConfigurationError(f"no connection {connection_id}")

    world.produce(ORDERS_0, 3)
    with pytest.raises(BatchBlockedError):
        run_batch.run_once(world.process(alter=staged_twice), "run-1")
    incidents = MemoryIncidents(world.database)
    alerts = Alerting(PIPELINE, incidents, ("ops",), open_nothing, clock=lambda: STARTED)
    monkeypatch.setattr("batchledger.wiring.build_platform", lambda _: world.process())
    monkeypatch.setattr("batchledger.wiring.build_alerting", lambda _: alerts)
    tasks.report(CONFIG)
    assert [each.condition.batch_id for each in incidents.list_open(PIPELINE)] == [2]
    assert [each.error for each in incidents.find_failures(PIPELINE, ["ops"])] == ["no connection ops"]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The files of three pipelines."""
    for name in ("clicks", "orders", "visits"):
        content = {"name": name, "source": {"topics": [name], "schema": "a int"}, "sink": {"table": name}}
        (tmp_path / f"{name}.yaml").write_text(yaml.safe_dump(content))
    monkeypatch.setenv("BATCHLEDGER_PIPELINES", str(tmp_path))
    return tmp_path


def write_docs(monkeypatch: pytest.MonkeyPatch, wrong: Mapping[str, Exception]) -> list[str]:
    """Run the task when pages of some pipelines cannot be written; return those that were asked for."""
    asked: list[str] = []

    def build(pipeline: PipelineConfig) -> Built:
        asked.append(pipeline.name)
        if pipeline.name in wrong:
            raise wrong[pipeline.name]
        return Built(pipeline.name, 1, 0, 0, "")

    monkeypatch.setattr("batchledger.interfaces.data_docs.site.build_docs", build)
    try:
        tasks.write_docs()
    finally:
        assert asked == ["clicks", "orders", "visits"]
    return asked


@pytest.mark.parametrize("error", [ZeroDivisionError(), ServiceUnavailableError("the warehouse does not answer")])
def test_pages_of_one_pipeline_that_cannot_be_written_keep_no_other_from_being_written_and_are_tried_again(
    folder: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """Whatever goes wrong with them: some of the rendering is not ours."""
    with pytest.raises(type(error)):
        write_docs(monkeypatch, {"clicks": error})


def test_refused_file_fails_no_pages(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "broken.yaml").write_text("name: [")
    write_docs(monkeypatch, {})
