"""Which pipelines start because records are there: real log ends, a real ledger; Airflow's answer is given."""

import json
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest
from confluent_kafka import Producer

from batchledger.books import starting
from batchledger.interfaces.airflow import record_watch
from batchledger.interfaces.airflow.record_watch import REFRESH_SECONDS, RecordWatch
from batchledger.lifecycle import plans
from batchledger.lifecycle.at_work import begin_work
from batchledger.model.batch import Decision
from batchledger.model.offsets import TopicPartition
from batchledger.monitoring.starting import FIRST_PATIENCE_SECONDS, LONGEST_PATIENCE_SECONDS, StartFacts
from batchledger.source.kafka.ends import LogEnds
from tests.endpoints import free_port
from tests.support import TestPipeline, Workplace, add_partitions, delete_topic, wait_until

EVERY_SECOND = {"check_every": "1s"}
BOSS = Decision("a person", "because")


@dataclass
class Watched:
    """A watch whose clock and whose Airflow are the test's."""

    now: float = 0.0
    running: set[str] = field(default_factory=set)
    asked: list[str] = field(default_factory=list)

    def open(self, *pipelines: TestPipeline, connection: str = "kafka_default") -> Callable[[], dict[str, Any]]:
        """A look as the triggerer has it, whose triggers listen for these pipelines."""
        watch, names = RecordWatch(connection, self.has_run, lambda: self.now), [each.name for each in pipelines]
        return lambda: watch.find_starts(names)

    def has_run(self, pipeline: str) -> bool:
        """Say what Airflow would say."""
        self.asked.append(pipeline)
        return pipeline in self.running


@pytest.fixture
def watched() -> Watched:
    return Watched()


def begin(pipeline: TestPipeline) -> None:
    """Let the pipeline note where it starts, as its first run does."""
    assert plans.plan(pipeline.platform(), "first") is None


def create(workplace: Workplace, **changes: object) -> TestPipeline:
    """A pipeline that starts on records, and has read all that there is, which is nothing."""
    pipeline = workplace.create(**{"start_on_records": EVERY_SECOND, **changes})  # type: ignore[arg-type]
    begin(pipeline)
    return pipeline


@pytest.fixture
def questions(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The names that the ledger was asked about, one list for each question."""
    asked: list[list[str]] = []

    def load(dsn: str, pipelines: list[str]) -> dict[str, StartFacts]:
        asked.append(list(pipelines))
        return starting.load_start_facts(dsn, pipelines)

    monkeypatch.setattr(record_watch, "load_start_facts", load)
    return asked


def test_one_record_starts_a_run_and_nothing_else_does(
    workplace: Workplace, watched: Watched, questions: list[list[str]]
) -> None:
    one, other = create(workplace), create(workplace)
    look = watched.open(one, other)
    assert look() == {}
    questions.clear()
    assert [look() for _ in range(3)] == [{}] * 3
    assert questions == [], "while nothing arrives, the ledger is left alone"
    one.send(1)
    assert look() == {one.name: {"pipeline": one.name, "unread_records": 1, "open_batch": None}}
    assert questions == [[one.name]]
    assert other.name not in watched.asked


def test_pipeline_that_no_trigger_listens_for_is_not_looked_at(
    workplace: Workplace, watched: Watched, questions: list[list[str]]
) -> None:
    """Its DAG is switched off, or another triggerer has it. The negative control of all others."""
    pipeline, other = create(workplace), create(workplace)
    pipeline.send(10)
    watch = RecordWatch("kafka_default", watched.has_run, lambda: watched.now)
    for second in range(100):
        watched.now = float(second)
        assert watch.find_starts([other.name]) == {}
    assert pipeline.name not in {name for names in questions for name in names}
    assert list(watch.find_starts([pipeline.name, other.name])) == [pipeline.name], "at once, without any patience"


def test_airflow_that_does_not_answer_for_one_pipeline_harms_no_other(
    workplace: Workplace, watched: Watched, caplog: pytest.LogCaptureFixture
) -> None:
    one, other = create(workplace), create(workplace)
    one.send(1)
    other.send(1)

    def has_run(name: str) -> bool:
        if name == one.name:
            raise ConnectionError
        return False

    watch = RecordWatch("kafka_default", has_run, lambda: watched.now)
    assert list(watch.find_starts([one.name, other.name])) == [other.name]
    for _ in range(5):
        assert watch.find_starts([one.name, other.name]) == {}
    assert sum("Airflow does not say" in each for each in caplog.messages) == 1


def test_run_of_the_command_line_is_left_alone(workplace: Workplace, watched: Watched) -> None:
    pipeline = create(workplace)
    pipeline.send(1)
    platform = pipeline.platform()
    batch = plans.plan(platform, "cli__1")
    assert batch is not None
    look = watched.open(pipeline)
    with begin_work(platform, batch.batch_id, "cli__1"):
        assert look() == {}
        assert watched.asked == []
    pipeline.query("delete from batchledger.presence where batch_id = %s returning 1", batch.batch_id)
    assert look()[pipeline.name]["open_batch"] == batch.batch_id


def test_position_that_the_log_does_not_have_is_confirmed_by_a_second_look(
    workplace: Workplace, watched: Watched
) -> None:
    """A batch that was published between the two questions looks like it; nothing starts for that."""
    pipeline = create(workplace)
    look = watched.open(pipeline)
    pipeline.query("update batchledger.position set next_offset = 5 where pipeline = %s returning 1", pipeline.name)
    assert look() == {}
    pipeline.query("update batchledger.position set next_offset = 0 where pipeline = %s returning 1", pipeline.name)
    assert look() == {}
    pipeline.query("update batchledger.position set next_offset = 5 where pipeline = %s returning 1", pipeline.name)
    watched.now += REFRESH_SECONDS
    assert look() == {}
    assert list(look()) == [pipeline.name]


def test_new_pipeline_starts_a_run_that_notes_where_it_begins(workplace: Workplace, watched: Watched) -> None:
    pipeline = workplace.create(start_on_records=EVERY_SECOND, source={"start": "latest"})
    look = watched.open(pipeline)
    assert list(look()) == [pipeline.name]
    begin(pipeline)
    watched.now += FIRST_PATIENCE_SECONDS
    assert look() == {}
    add_partitions(workplace.kafka_options, pipeline.name, 3)
    watched.now += REFRESH_SECONDS
    assert list(look()) == [pipeline.name], "a new partition belongs to it, too"


def test_start_that_has_no_effect_is_asked_for_again_and_more_and_more_rarely(
    workplace: Workplace, watched: Watched
) -> None:
    """Airflow has lost the event, or each run fails: an hour of looks, one a second."""
    pipeline = create(workplace)
    pipeline.send(1)
    look = watched.open(pipeline)
    starts = []
    for second in range(1200):
        watched.now = float(second)
        starts += [second] if look() else []
    assert starts == [0, 5, 15, 35, 75, 155, 315, 615, 915]
    assert starts[-1] - starts[-2] == LONGEST_PATIENCE_SECONDS
    assert len(watched.asked) == len(starts)


def test_run_at_work_is_left_alone_and_what_arrived_meanwhile_starts_the_next(
    workplace: Workplace, watched: Watched
) -> None:
    pipeline = create(workplace)
    pipeline.send(1)
    look = watched.open(pipeline)
    watched.running = {pipeline.name}
    for second in range(10):
        watched.now = float(second)
        assert look() == {}
    plans.plan(pipeline.platform(), "at work")
    pipeline.send(1)
    for second in range(10, 60):
        watched.now = float(second)
        assert look() == {}
    assert len(watched.asked) < 30
    watched.running = set()
    watched.now += 60 / 4
    assert look()[pipeline.name]["open_batch"] is not None


def test_few_records_wait_as_the_limits_say(workplace: Workplace, watched: Watched) -> None:
    pipeline = create(workplace, limits={"min_records": 10, "max_delay": "1h"})
    pipeline.query(
        "insert into batchledger.batch (pipeline, lane, state, lag_left_records, planned_by, published_rows, "
        "published_at) values (%s, 'live', 'published', 0, 'a run', 0, now()) returning 1",
        pipeline.name,
    )
    pipeline.send(9)
    look = watched.open(pipeline)
    assert look() == {}
    pipeline.send(1)
    assert look()[pipeline.name]["unread_records"] == 10


def test_records_of_an_open_transaction_start_nothing_until_it_ends(workplace: Workplace, watched: Watched) -> None:
    pipeline = create(workplace)
    look = watched.open(pipeline)
    producer = Producer({**workplace.kafka_options, "transactional.id": pipeline.name})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(pipeline.name, value=b"{}", partition=0)
    producer.flush(30)
    pipeline.send_raw([(0, b"{}")])
    assert look() == {}, "the open transaction holds back what came after it, too"
    producer.commit_transaction(30)
    wait_until(lambda: pipeline.name in look())


def test_paused_pipeline_starts_nothing_until_it_is_resumed(workplace: Workplace, watched: Watched) -> None:
    pipeline = create(workplace)
    decisions = pipeline.platform().decisions
    decisions.pause(pipeline.name, BOSS)
    pipeline.send(5)
    look = watched.open(pipeline)
    assert look() == {}
    decisions.resume(pipeline.name, BOSS)
    assert list(look()) == [pipeline.name]


def test_rewind_is_noticed_although_no_record_arrives(workplace: Workplace, watched: Watched) -> None:
    pipeline = create(workplace)
    pipeline.send(4)
    look = watched.open(pipeline)
    pipeline.query("update batchledger.position set next_offset = 2 where pipeline = %s returning 1", pipeline.name)
    assert look() == {}
    pipeline.query(
        "update batchledger.position set next_offset = 1 where pipeline = %s and partition = 0 returning 1",
        pipeline.name,
    )
    assert look() == {}
    watched.now += REFRESH_SECONDS
    assert look()[pipeline.name]["unread_records"] == 1


def test_deleted_topic_starts_a_run_that_says_so_and_harms_no_other_pipeline(
    workplace: Workplace, watched: Watched
) -> None:
    gone, other = create(workplace), create(workplace)
    alone, both = watched.open(gone), watched.open(gone, other)
    assert (alone(), both()) == ({}, {})
    delete_topic(workplace.kafka_options, gone.name)
    other.send(1)
    watched.now += REFRESH_SECONDS
    started: set[str] = set()
    wait_until(lambda: started.update(both()) or started == {gone.name, other.name})
    wait_until(lambda: gone.name in alone())


def test_kafka_away_and_ledger_away_are_told_once_and_it_recovers_by_itself(
    workplace: Workplace, watched: Watched, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    name = f"cluster_{uuid.uuid4().hex[:8]}"

    def lead_to(options: Mapping[str, str]) -> None:
        connection = json.dumps({"conn_type": "kafka", "extra": options})
        monkeypatch.setenv(f"AIRFLOW_CONN_{name.upper()}", connection)

    lead_to(workplace.kafka_options)
    pipeline = create(workplace, source={"connection": name})
    pipeline.send(1)
    look = watched.open(pipeline, connection=name)
    lead_to({"bootstrap.servers": f"127.0.0.1:{free_port()}"})
    monkeypatch.setattr("batchledger.source.kafka.ends.REQUEST_TIMEOUT_SECONDS", 1.0)
    assert [look() for _ in range(2)] == [{}, {}]
    assert len([each for each in caplog.messages if "no run is started for now" in each]) == 1
    lead_to(workplace.kafka_options)
    with monkeypatch.context() as ledger_away:
        ledger_away.setattr(
            record_watch, "ledger_dsn", lambda _: f"host=127.0.0.1 port={free_port()} connect_timeout=1"
        )
        assert look() == {}
    watched.now += REFRESH_SECONDS
    assert list(look()) == [pipeline.name]


def test_error_that_was_not_foreseen_is_logged_once_with_its_traceback_and_the_looks_go_on(
    workplace: Workplace, watched: Watched, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    pipeline = create(workplace)
    pipeline.send(1)
    look = watched.open(pipeline)
    with monkeypatch.context() as broken:
        broken.setattr(LogEnds, "read", lambda _: [1 // 0])
        for second in range(0, 600, 20):
            watched.now = float(second)
            assert look() == {}
    (said,) = [each for each in caplog.records if "no run is started for now" in each.getMessage()]
    assert "ZeroDivisionError" in said.getMessage()
    assert said.exc_info is not None
    assert list(look()) == [pipeline.name]


def test_looks_read_no_record_and_join_no_group(workplace: Workplace, watched: Watched) -> None:
    pipeline = create(workplace)
    pipeline.send(1)
    ends = LogEnds(workplace.kafka_options)
    partitions = ends.list_partitions([pipeline.name, "there_is_no_such_topic"])
    assert partitions == [TopicPartition(pipeline.name, 0), TopicPartition(pipeline.name, 1)]
    assert ends.read() == [1, 0]
