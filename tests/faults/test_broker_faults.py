"""The broker goes away in the middle of a batch: killed, restarted, down for longer, back without its last records."""

import json
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from batchledger.lifecycle import plans, run_batch
from batchledger.local.stack.home import Credentials
from batchledger.local.stack.kafka_broker import client_options
from batchledger.model.batch import Batch, BatchState
from batchledger.model.errors import ServiceUnavailableError, TopicChangedError
from batchledger.source.kafka.clients import REQUEST_TIMEOUT_SECONDS
from tests.fakes.crash import Interrupt
from tests.faults.servers import Server, server_of_its_own
from tests.support import TestPipeline, Workplace

CONNECTION = "kafka_of_faults"


@pytest.fixture(scope="module")
def broker() -> Iterator[Server]:
    with server_of_its_own("kafka", signal.SIGTERM) as broker:
        yield broker


@pytest.fixture
def faulty(workplace: Workplace, broker: Server, monkeypatch: pytest.MonkeyPatch) -> Workplace:
    """A workplace whose broker is the one of this module."""
    options = client_options(broker.ports, Credentials.of(broker.home))
    monkeypatch.setenv(f"AIRFLOW_CONN_{CONNECTION.upper()}", json.dumps({"conn_type": "kafka", "extra": options}))
    return replace(workplace, kafka_options=options)


def pipeline_with_holes(faulty: Workplace) -> TestPipeline:
    """Twenty records and an aborted one wait to be published, so that also the audit has something to read."""
    pipeline = faulty.create(source={"connection": CONNECTION, "holes": "transactional"})
    pipeline.send(10)
    pipeline.send_in_transaction([b"{}"], partition=0, commit=False)
    pipeline.send(10)
    return pipeline


@pytest.mark.parametrize(("point", "fault"), [("attempt_opened", "kill"), ("staged", "restart")])
def test_s102_broker_that_bounces_in_the_middle_of_a_batch_changes_nothing(
    faulty: Workplace, broker: Server, point: str, fault: str
) -> None:
    """The run goes on when the broker is back, with every client that was connected before."""
    pipeline = pipeline_with_holes(faulty)
    run_batch.run_once(pipeline.platform(), "before")
    pipeline.send(10)
    crash = Interrupt(point, getattr(broker, fault))
    assert run_batch.run_once(pipeline.platform(crash=crash), "disturbed") is not None
    assert crash.has_acted
    assert run_batch.run_once(pipeline.platform(), "after") is None
    pipeline.assert_exact()


def start(pipeline: TestPipeline, *steps: Callable[..., Batch]) -> Batch:
    """Plan and take the first steps."""
    batch = plans.plan(pipeline.platform(), "run")
    assert batch is not None
    for step in steps:
        step(pipeline.platform(), batch.batch_id, "run")
    return batch


def test_s103_broker_that_is_down_is_a_retryable_error_of_every_step_that_needs_it(
    faulty: Workplace, broker: Server
) -> None:
    """It ends with the time of its request; publishing needs no broker, and only the courtesy offsets are left out."""
    assert REQUEST_TIMEOUT_SECONDS == 10
    unplanned, planned, staged, audited = (pipeline_with_holes(faulty) for _ in range(4))
    to_stage = start(planned)
    to_audit = start(staged, run_batch.stage)
    to_publish = start(audited, run_batch.stage, run_batch.audit)
    broker.crash()
    try:
        attempts: list[Callable[[], object]] = [
            lambda: plans.plan(unplanned.platform(), "run"),
            lambda: run_batch.stage(planned.platform(), to_stage.batch_id, "run"),
            lambda: run_batch.audit(staged.platform(), to_audit.batch_id, "run"),
            lambda: run_batch.publish(audited.platform(), to_publish.batch_id, "run").state,
        ]
        with ThreadPoolExecutor(len(attempts)) as threads:
            *refused, published = [threads.submit(each) for each in attempts]
            for each in refused:
                failure = each.exception()
                assert isinstance(failure, ServiceUnavailableError)
                assert failure.retryable
                assert "Timed out" in str(failure)
        assert published.result() is BatchState.PUBLISHED
        audited.assert_exact()
    finally:
        broker.up()
    for pipeline in (unplanned, planned, staged):
        run_batch.run_once(pipeline.platform(), "run")
        pipeline.assert_exact()


def test_s50_broker_that_comes_back_without_its_last_records_stops_the_pipeline(
    faulty: Workplace, broker: Server
) -> None:
    """As after an unclean election: the log ends before the position, under the same topic id."""
    pipeline = faulty.create(partitions=1, source={"connection": CONNECTION})
    pipeline.send(10, partitions=1)
    run_batch.run_once(pipeline.platform(), "before")
    (log,) = (broker.home.local / "kafka" / "data" / f"{pipeline.name}-0").glob("*.log")
    kept = log.stat().st_size
    pipeline.send(10, partitions=1)
    run_batch.run_once(pipeline.platform(), "before")
    broker.crash()
    with log.open("r+b") as file:
        file.truncate(kept)
    broker.up()
    with pytest.raises(TopicChangedError, match="is 20, the readable end is 10") as refused:
        run_batch.run_once(pipeline.platform(), "after")
    assert refused.value.subject == f"{pipeline.name}[0]"
    assert "was truncated" in str(refused.value)
    pipeline.assert_exact()
