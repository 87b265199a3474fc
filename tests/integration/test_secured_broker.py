"""A broker that knows what each user may do: rights by access control lists."""

import json
from collections.abc import Iterator, Mapping

import pytest
from confluent_kafka.admin import AclOperation, ResourceType

from batchledger.lifecycle import plans, run_batch
from batchledger.local.samples.delivery import deliver
from batchledger.local.samples.guarantee import Guarantee, Transactions
from batchledger.local.samples.producer import SampleRecord
from batchledger.model.batch import BatchState
from batchledger.model.errors import BatchBlockedError, BatchledgerError, RightMissingError
from batchledger.wiring import verify_pipeline
from tests.conftest import open_workplace
from tests.secured_kafka import SecuredKafka, broker
from tests.support import TestPipeline

__all__ = ["broker"]

READS = (AclOperation.DESCRIBE, AclOperation.READ)


@pytest.fixture
def secured(
    broker: SecuredKafka, warehouse_dsn: str, spark: None, monkeypatch: pytest.MonkeyPatch
) -> Iterator[TestPipeline]:
    """A topic with 20 records, and a pipeline whose connection logs in as the user that ``act_as`` names."""
    with open_workplace(broker.operator, warehouse_dsn) as workplace:
        pipeline = workplace.create(source={"connection": "kafka_secured"})
        pipeline.send(20)
        act_as(broker.password("PLAIN", "planner"), monkeypatch)
        yield pipeline


def act_as(options: Mapping[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    connection = json.dumps({"conn_type": "kafka", "extra": dict(options)})
    monkeypatch.setenv("AIRFLOW_CONN_KAFKA_SECURED", connection)


def test_s134_planning_needs_the_right_to_describe_only(broker: SecuredKafka, secured: TestPipeline) -> None:
    with pytest.raises(RightMissingError, match="authorization failed"):
        plans.preview(secured.platform())
    broker.grant("planner", ResourceType.TOPIC, secured.name, AclOperation.DESCRIBE)
    assert sum(len(each) for each in plans.preview(secured.platform()).ranges) == 20


def test_s132_without_the_right_to_read_nothing_is_stored_and_the_batch_waits(
    broker: SecuredKafka, secured: TestPipeline
) -> None:
    broker.grant("planner", ResourceType.TOPIC, secured.name, AclOperation.DESCRIBE)
    with pytest.raises(RightMissingError, match="Topic authorization failed"):
        run_batch.run_once(secured.platform(), "without the right")
    assert secured.count_target_rows() == 0
    assert {each.next_offset for each in secured.platform().ledger.load_positions(secured.name)} == {0}
    broker.grant("planner", ResourceType.TOPIC, secured.name, AclOperation.READ)
    batch = run_batch.run_once(secured.platform(), "with it")
    assert batch is not None
    assert (batch.state, batch.attempt) == (BatchState.PUBLISHED, 2)
    secured.assert_exact()


def test_s133_s142_a_pipeline_that_logs_in_needs_no_right_on_any_group(
    broker: SecuredKafka, secured: TestPipeline, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Only the courtesy offsets for lag tools are then missing, and a warning says so."""
    act_as(broker.password("PLAIN", "reader"), monkeypatch)
    broker.grant("reader", ResourceType.TOPIC, secured.name, *READS)
    run_batch.run_once(secured.platform(), "run")
    secured.assert_exact()
    assert "only the courtesy offsets for lag tools were not committed" in caplog.text


def test_holes_can_be_looked_into_without_the_right_to_read_the_settings_of_the_topic(
    broker: SecuredKafka, secured: TestPipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether an invisible offset is a marker or was compacted stays open then, and the message names the right."""
    act_as(broker.password("PLAIN", "reader"), monkeypatch)
    broker.grant("reader", ResourceType.TOPIC, secured.name, *READS)
    secured.path.write_text(secured.path.read_text().replace("schema:", "holes: transactional\n  schema:"))
    secured.send_in_transaction([b'{"number": 1}'] * 3, partition=0, commit=True)
    with pytest.raises(BatchBlockedError, match="grant DESCRIBE_CONFIGS on the topic") as blocked:
        run_batch.run_once(secured.platform(), "run")
    broker.grant("reader", ResourceType.TOPIC, secured.name, AclOperation.DESCRIBE_CONFIGS)
    run_batch.run_once(secured.platform(), "again", blocked.value.batch_id)
    assert secured.count_target_rows() == 23
    assert verify_pipeline(secured.config).holds


def test_s135_transactional_producer_without_the_rights_says_so_and_works_after_the_grant(
    broker: SecuredKafka, secured: TestPipeline
) -> None:
    def produce() -> int:
        return deliver(
            broker.password("PLAIN", "writer"),
            secured.name,
            2,
            [SampleRecord(b"key", b'{"number": 1}')],
            guarantee=Guarantee.TRANSACTIONAL,
            transactions=Transactions(),
            report=lambda _: None,
        ).sent

    broker.grant("writer", ResourceType.TOPIC, secured.name, AclOperation.WRITE, AclOperation.DESCRIBE)
    with pytest.raises(BatchledgerError, match=r"[Aa]uthorization failed"):
        produce()
    broker.grant("writer", ResourceType.TRANSACTIONAL_ID, f"batchledger-produce-{secured.name}", AclOperation.ALL)
    assert produce() == 1
