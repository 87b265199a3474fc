"""What a pipeline does when its topic is not the one it knows, and when a service does not answer."""

import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

import pytest
from airflow.providers.apache.spark.hooks.spark_connect import SparkConnectHook
from pyspark.sql import SparkSession

from batchledger.books.history import load_batch_history
from batchledger.ledger.ledger import PostgresLedger
from batchledger.lifecycle import plans, run_batch
from batchledger.lifecycle.platform import Platform
from batchledger.local.stack.processes import ServiceRecord
from batchledger.model.batch import Attempt, Staged
from batchledger.model.checks import IntegrityCheck
from batchledger.model.errors import (
    BatchBlockedError,
    LossError,
    ServiceUnavailableError,
    StagingError,
    TopicChangedError,
)
from batchledger.model.offsets import OffsetRange, TopicPartition
from batchledger.ports import Stager
from batchledger.source.kafka.log import KafkaLog
from batchledger.source.kafka.records import read_share
from batchledger.source.spark.session import open_connect_session
from tests.conftest import SERVICES
from tests.support import (
    TestPipeline,
    Workplace,
    add_partitions,
    change_stager,
    create_topic,
    delete_records,
    delete_topic,
    staging,
)

SILENT = "accepts and says nothing"
silent_only = pytest.mark.parametrize("silent_port", [SILENT], indirect=True)
"""For steps that wait to the end of their patience: the client that waits is asked about both kinds once."""


@pytest.fixture(params=["refuses", SILENT])
def silent_port(request: pytest.FixtureRequest) -> Iterator[int]:
    """A port where no service answers."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        if request.param == SILENT:
            held.listen()
        yield held.getsockname()[1]


def published_pipeline(workplace: Workplace) -> TestPipeline:
    pipeline = workplace.create()
    pipeline.send(20)
    run_batch.run_once(pipeline.platform(), "first")
    return pipeline


def test_missing_topic_stops_the_pipeline_by_name(workplace: Workplace) -> None:
    """S22, S23."""
    pipeline = published_pipeline(workplace)
    delete_topic(workplace.kafka_options, pipeline.name)
    with pytest.raises(TopicChangedError, match=f"Topic {pipeline.name} does not exist"):
        run_batch.run_once(pipeline.platform(), "second")
    assert [each.next_offset for each in pipeline.platform().ledger.load_positions(pipeline.name)] == [10, 10]


def test_recreated_topic_stops_the_pipeline_with_both_ids(workplace: Workplace) -> None:
    """S24: the new topic even holds more records than the position, so that only its id tells."""
    pipeline = published_pipeline(workplace)
    before = pipeline.platform().ledger.load_positions(pipeline.name)
    delete_topic(workplace.kafka_options, pipeline.name)
    create_topic(workplace.kafka_options, pipeline.name, 2)
    pipeline.send(100)
    with pytest.raises(TopicChangedError) as refused:
        run_batch.run_once(pipeline.platform(), "second")
    assert (refused.value.subject, refused.value.expected) == (pipeline.name, before[0].identity)
    assert refused.value.found not in (None, refused.value.expected)
    assert "Or read the topic again" in str(refused.value)
    assert pipeline.platform().ledger.load_positions(pipeline.name) == before


def test_records_deleted_before_they_were_read_are_named_not_skipped(workplace: Workplace) -> None:
    """S37: the position lies below the log start."""
    pipeline = published_pipeline(workplace)
    pipeline.send(40)
    delete_records(workplace.kafka_options, pipeline.name, partition=1, before_offset=25)
    with pytest.raises(LossError, match="Restore the records") as refused:
        run_batch.run_once(pipeline.platform(), "second")
    assert refused.value.ranges == (OffsetRange(TopicPartition(pipeline.name, 1), 10, 25),)
    assert pipeline.count_target_rows() == 20


def test_position_beyond_the_log_end_stops_the_pipeline(workplace: Workplace) -> None:
    """S50."""
    pipeline = published_pipeline(workplace)
    platform = pipeline.platform()

    class MovedLedger(PostgresLedger):
        """Claims a position that the log never had."""

        def load_positions(self, pipeline: str) -> list:  # type: ignore[type-arg]
            return [replace(each, next_offset=each.next_offset + 7) for each in super().load_positions(pipeline)]

    moved = replace(platform, ledger=MovedLedger(workplace.dsn))
    with pytest.raises(TopicChangedError, match="is 17, the readable end is 10") as refused:
        run_batch.run_once(moved, "second")
    assert refused.value.subject == f"{pipeline.name}[0], {pipeline.name}[1]"


def test_added_partition_is_read_from_its_beginning(workplace: Workplace) -> None:
    """S7."""
    pipeline = published_pipeline(workplace)
    add_partitions(workplace.kafka_options, pipeline.name, 3)
    pipeline.send(30, partitions=3)
    while run_batch.run_once(pipeline.platform(), "later") is not None:
        pass
    pipeline.assert_exact()
    assert [each.origin_offset for each in pipeline.platform().ledger.load_positions(pipeline.name)] == [0, 0, 0]


def test_commit_markers_block_a_topic_that_declares_no_holes(workplace: Workplace) -> None:
    """The broker writes the marker after it has answered the commit, so the next record may come first."""
    pipeline = workplace.create(partitions=1)
    pipeline.send_in_transaction([b"{}"] * 5, partition=0, commit=True)
    pipeline.send(1, partitions=1)
    with pytest.raises(BatchBlockedError, match=r"allow for: 1 .*\[0\] [56]\.\.[67]") as blocked:
        run_batch.run_once(pipeline.platform(), "run")
    assert blocked.value.failed == (IntegrityCheck.NO_UNEXPLAINED_HOLES, IntegrityCheck.BALANCE_CLOSES)


def test_aborted_records_and_markers_are_holes_of_a_transactional_topic(workplace: Workplace) -> None:
    """S31: the aborted rows are absent and the position still advances."""
    pipeline = workplace.create(partitions=1, source={"holes": "transactional"})
    pipeline.send_in_transaction([b'{"message_id": "aborted"}'] * 5, partition=0, commit=False)
    pipeline.send(3, partitions=1)
    batch = run_batch.run_once(pipeline.platform(), "run")
    assert batch is not None
    balance = load_batch_history(workplace.dsn, batch.batch_id).ranges[0]
    assert (balance.accepted, balance.holes, balance.unexplained) == (3, 6, 0)
    pipeline.assert_exact()


def test_broker_that_does_not_answer_is_a_retryable_error(silent_port: int) -> None:
    with pytest.raises(ServiceUnavailableError, match=f"127.0.0.1:{silent_port}") as caught:
        KafkaLog({"bootstrap.servers": f"127.0.0.1:{silent_port}"}).read_log(["any"])
    assert caught.value.retryable


def test_warehouse_that_does_not_answer_is_a_retryable_error(silent_port: int) -> None:
    with pytest.raises(ServiceUnavailableError, match="warehouse") as caught:
        PostgresLedger(f"host=127.0.0.1 port={silent_port} connect_timeout=2").load_positions("any")
    assert caught.value.retryable


def test_spark_that_does_not_answer_is_a_retryable_error(silent_port: int) -> None:
    with (
        pytest.raises(ServiceUnavailableError, match=f"localhost:{silent_port}") as caught,
        open_connect_session(f"sc://localhost:{silent_port}/;token=secret", "any"),
    ):
        pass
    assert caught.value.retryable
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("recreated", [False, True])
def test_topic_that_changes_after_planning_is_refused_by_the_stage(workplace: Workplace, recreated: bool) -> None:
    """S25, S39: a stored plan is read from the very topic that it was made for, or not at all."""
    pipeline = workplace.create()
    pipeline.send(10)
    batch = plans.plan(pipeline.platform(), "plan")
    assert batch is not None
    delete_topic(workplace.kafka_options, pipeline.name)
    if recreated:
        create_topic(workplace.kafka_options, pipeline.name, 2)
        pipeline.send(50)
    with pytest.raises(TopicChangedError, match=r"is not the one|does not exist") as refused:
        run_batch.stage(pipeline.platform(), batch.batch_id, "stage")
    assert refused.value.subject == pipeline.name
    assert pipeline.count_target_rows() == 0


class RecreatingStager:
    """A stager during whose work the topic is deleted and created again."""

    def __init__(self, platform: Platform, pipeline: TestPipeline) -> None:
        self._stager: Stager = platform.make_stager()
        self._pipeline = pipeline

    def stage(self, attempt: Attempt) -> Staged:
        """Stage; the other topic takes the place just after."""
        staged = self._stager.stage(attempt)
        delete_topic(self._pipeline.workplace.kafka_options, self._pipeline.name)
        create_topic(self._pipeline.workplace.kafka_options, self._pipeline.name, 2)
        return staged


def test_topic_recreated_while_it_is_read_is_noticed_before_the_audit(workplace: Workplace) -> None:
    """S39."""
    pipeline = workplace.create()
    pipeline.send(10)
    good = staging(pipeline.platform())
    with pytest.raises(TopicChangedError, match="is not the one") as refused:
        run_batch.run_once(replace(good, make_stager=lambda: RecreatingStager(good, pipeline)), "run")
    assert refused.value.subject == pipeline.name
    assert pipeline.count_target_rows() == 0
    assert pipeline.list_staging() == []


@silent_only
def test_broker_that_is_gone_when_the_stage_begins_is_a_retryable_error(
    workplace: Workplace, silent_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S103."""
    pipeline = workplace.create()
    pipeline.send(10)
    batch = plans.plan(pipeline.platform(), "plan")
    assert batch is not None
    gone = {"conn_type": "kafka", "extra": {"bootstrap.servers": f"127.0.0.1:{silent_port}"}}
    monkeypatch.setenv("AIRFLOW_CONN_KAFKA_GONE", json.dumps(gone))
    content = pipeline.path.read_text().replace("source:", "source:\n  connection: kafka_gone")
    pipeline.path.write_text(content)
    with pytest.raises(ServiceUnavailableError, match=f"127.0.0.1:{silent_port}") as caught:
        run_batch.stage(pipeline.platform(), batch.batch_id, "stage")
    assert caught.value.retryable


@silent_only
def test_spark_that_cannot_reach_the_broker_is_a_retryable_error_and_leaves_no_staging(
    workplace: Workplace, silent_port: int
) -> None:
    """S97, S103: the broker goes away after the checks, while Spark plans its read."""
    pipeline = workplace.create()
    pipeline.send(10)
    good = pipeline.platform()
    away = partial(read_share, {"bootstrap.servers": f"127.0.0.1:{silent_port}"}, silence_seconds=3)
    with pytest.raises(
        StagingError, match=rf"Kafka at 127\.0\.0\.1:{silent_port} says: .* not read through in time"
    ) as caught:
        run_batch.run_once(change_stager(good, read_share=away), "run")
    assert caught.value.retryable
    assert pipeline.count_target_rows() == 0
    assert pipeline.list_staging() == []


@contextmanager
def open_session_with_a_server_that_pauses() -> Iterator[SparkSession]:
    """A session whose server is paused as soon as it is open, and goes on when the session is left."""
    record = ServiceRecord.read(SERVICES.home, "spark")
    assert record is not None
    assert record.leader is not None
    url = SparkConnectHook(conn_id="spark_default").get_connection_url()
    try:
        with open_connect_session(url, "spark_default", call_timeout_seconds=3) as session:
            record.leader.suspend()
            yield session
    finally:
        record.leader.resume()


def test_spark_that_is_paused_while_it_stages_is_a_retryable_error_and_the_next_attempt_publishes(
    workplace: Workplace,
) -> None:
    """The step ends although the server neither answers nor closes its connections."""
    pipeline = published_pipeline(workplace)
    pipeline.send(10)
    good = pipeline.platform()
    pausing = change_stager(good, open_session=open_session_with_a_server_that_pauses)
    with pytest.raises(StagingError, match="did not answer a call in time") as caught:
        run_batch.run_once(pausing, "paused")
    assert caught.value.retryable
    assert pipeline.list_staging() == []
    run_batch.run_once(good, "later")
    pipeline.assert_exact()
