"""Which pipelines start because records are there: real log ends, a real ledger; Airflow's answer is given."""

import json
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field

import pytest
from confluent_kafka import Producer

from batchledger.adapters.kafka.ends import LogEnds
from batchledger.adapters.postgres.ledger import starting
from batchledger.interfaces.airflow import record_watch
from batchledger.interfaces.airflow.record_watch import REFRESH_SECONDS, RecordWatch
from batchledger.lifecycle import plans
from batchledger.model.batch import Decision
from batchledger.model.offsets import TopicPartition
from batchledger.monitoring.starting import FIRST_PATIENCE_SECONDS, LONGEST_PATIENCE_SECONDS, StartFacts
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

    def open(self, connection: str = "kafka_default") -> RecordWatch:
        """A watch as the triggerer has it."""
        return RecordWatch(connection, 1.0, self.has_run, lambda: self.now)

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
    watch = watched.open()
    assert watch.find_starts() == {}
    questions.clear()
    assert [watch.find_starts() for _ in range(3)] == [{}] * 3
    assert questions == [], "while nothing arrives, the ledger is left alone"
    one.send(1)
    assert watch.find_starts() == {one.name: {"pipeline": one.name, "unread_records": 1, "open_batch": None}}
    assert questions == [[one.name]]
    assert other.name not in watched.asked


def test_pipeline_without_the_key_never_starts(workplace: Workplace, watched: Watched) -> None:
    """The negative control of all others."""
    pipeline = workplace.create()
    pipeline.send(10)
    watch = watched.open()
    assert watch.find_starts() == {}


def test_new_pipeline_starts_a_run_that_notes_where_it_begins(workplace: Workplace, watched: Watched) -> None:
    pipeline = workplace.create(start_on_records=EVERY_SECOND, source={"start": "latest"})
    watch = watched.open()
    assert list(watch.find_starts()) == [pipeline.name]
    begin(pipeline)
    watched.now += FIRST_PATIENCE_SECONDS
    assert watch.find_starts() == {}
    add_partitions(workplace.kafka_options, pipeline.name, 3)
    watched.now += REFRESH_SECONDS
    assert list(watch.find_starts()) == [pipeline.name], "a new partition belongs to it, too"


def test_start_that_has_no_effect_is_asked_for_again_and_more_and_more_rarely(
    workplace: Workplace, watched: Watched
) -> None:
    """Airflow has lost the event, or each run fails: an hour of looks, one a second."""
    pipeline = create(workplace)
    pipeline.send(1)
    watch = watched.open()
    starts = []
    for second in range(1200):
        watched.now = float(second)
        starts += [second] if watch.find_starts() else []
    assert starts == [0, 5, 15, 35, 75, 155, 315, 615, 915]
    assert starts[-1] - starts[-2] == LONGEST_PATIENCE_SECONDS
    assert len(watched.asked) == len(starts)


def test_run_at_work_is_left_alone_and_what_arrived_meanwhile_starts_the_next(
    workplace: Workplace, watched: Watched
) -> None:
    pipeline = create(workplace)
    pipeline.send(1)
    watch = watched.open()
    watched.running = {pipeline.name}
    for second in range(10):
        watched.now = float(second)
        assert watch.find_starts() == {}
    plans.plan(pipeline.platform(), "at work")
    pipeline.send(1)
    for second in range(10, 60):
        watched.now = float(second)
        assert watch.find_starts() == {}
    assert len(watched.asked) < 30
    watched.running = set()
    watched.now += 60 / 4
    assert watch.find_starts()[pipeline.name]["open_batch"] is not None


def test_few_records_wait_as_the_limits_say(workplace: Workplace, watched: Watched) -> None:
    pipeline = create(workplace, limits={"min_records": 10, "max_delay": "1h"})
    pipeline.query(
        "insert into batchledger.batch (pipeline, lane, state, lag_left_records, planned_by, published_rows, "
        "published_at) values (%s, 'live', 'published', 0, 'a run', 0, now()) returning 1",
        pipeline.name,
    )
    pipeline.send(9)
    watch = watched.open()
    assert watch.find_starts() == {}
    pipeline.send(1)
    assert watch.find_starts()[pipeline.name]["unread_records"] == 10


def test_records_of_an_open_transaction_start_nothing_until_it_ends(workplace: Workplace, watched: Watched) -> None:
    pipeline = create(workplace)
    watch = watched.open()
    producer = Producer({**workplace.kafka_options, "transactional.id": pipeline.name})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(pipeline.name, value=b"{}", partition=0)
    producer.flush(30)
    pipeline.send_raw([(0, b"{}")])
    assert watch.find_starts() == {}, "the open transaction holds back what came after it, too"
    producer.commit_transaction(30)
    wait_until(lambda: pipeline.name in watch.find_starts())


def test_paused_pipeline_starts_nothing_until_it_is_resumed(workplace: Workplace, watched: Watched) -> None:
    pipeline = create(workplace)
    decisions = pipeline.platform().decisions
    decisions.pause(pipeline.name, BOSS)
    pipeline.send(5)
    watch = watched.open()
    assert watch.find_starts() == {}
    decisions.resume(pipeline.name, BOSS)
    assert list(watch.find_starts()) == [pipeline.name]


def test_rewind_is_noticed_although_no_record_arrives(workplace: Workplace, watched: Watched) -> None:
    pipeline = create(workplace)
    pipeline.send(4)
    watch = watched.open()
    pipeline.query("update batchledger.position set next_offset = 2 where pipeline = %s returning 1", pipeline.name)
    assert watch.find_starts() == {}
    pipeline.query(
        "update batchledger.position set next_offset = 1 where pipeline = %s and partition = 0 returning 1",
        pipeline.name,
    )
    assert watch.find_starts() == {}
    watched.now += REFRESH_SECONDS
    assert watch.find_starts()[pipeline.name]["unread_records"] == 1


def test_deleted_topic_starts_a_run_that_says_so_and_harms_no_other_pipeline(
    workplace: Workplace, watched: Watched
) -> None:
    gone, other = create(workplace), create(workplace)
    gone.send(1)
    begin_again = watched.open()
    assert list(begin_again.find_starts()) == [gone.name]
    delete_topic(workplace.kafka_options, gone.name)
    other.send(1)
    watched.now += REFRESH_SECONDS
    wait_until(lambda: other.name in begin_again.find_starts())
    watched.now += LONGEST_PATIENCE_SECONDS
    assert {gone.name, other.name} == set(begin_again.find_starts())


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
    watch = watched.open(name)
    lead_to({"bootstrap.servers": f"127.0.0.1:{free_port()}"})
    monkeypatch.setattr("batchledger.adapters.kafka.ends.REQUEST_TIMEOUT_SECONDS", 1.0)
    assert [watch.find_starts() for _ in range(2)] == [{}, {}]
    assert len([each for each in caplog.messages if "no run is started for now" in each]) == 1
    lead_to(workplace.kafka_options)
    with monkeypatch.context() as ledger_away:
        ledger_away.setattr(
            record_watch, "ledger_dsn", lambda _: f"host=127.0.0.1 port={free_port()} connect_timeout=1"
        )
        assert watch.find_starts() == {}
    watched.now += REFRESH_SECONDS
    assert list(watch.find_starts()) == [pipeline.name]


def test_looks_read_no_record_and_join_no_group(workplace: Workplace, watched: Watched) -> None:
    pipeline = create(workplace)
    pipeline.send(1)
    ends = LogEnds(workplace.kafka_options)
    partitions = ends.list_partitions([pipeline.name, "there_is_no_such_topic"])
    assert partitions == [TopicPartition(pipeline.name, 0), TopicPartition(pipeline.name, 1)]
    assert ends.read() == [1, 0]
