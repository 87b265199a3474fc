"""A broker that asks who is there and what they may do: logins over SASL, rights by access control lists."""

import json
import secrets
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)

from batchledger.lifecycle import plans, run_batch
from batchledger.local.samples.delivery import deliver
from batchledger.local.samples.guarantee import Guarantee, Transactions
from batchledger.local.samples.producer import SampleRecord
from batchledger.local.stack import kafka_broker, local_stack, processes
from batchledger.model.batch import BatchState
from batchledger.model.errors import BatchBlockedError, BatchledgerError, StagingError
from batchledger.wiring import verify_pipeline
from tests.conftest import SERVICES, choose_ports
from tests.support import TestPipeline, Workplace, admin_client, wait_until

PASSWORD = secrets.token_hex(12)
MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
USERS = ("operator", "planner", "reader", "writer")
READS = (AclOperation.DESCRIBE, AclOperation.READ)


@dataclass(frozen=True)
class SecuredBroker:
    """``operator`` may do everything, the others what a test grants them."""

    servers: str

    def options(self, user: str) -> dict[str, str]:
        return {
            "bootstrap.servers": self.servers,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": user,
            "sasl.password": PASSWORD,
        }

    def grant(self, user: str, kind: ResourceType, name: str, *operations: AclOperation) -> None:
        bindings = [
            AclBinding(kind, name, ResourcePatternType.LITERAL, f"User:{user}", "*", operation, AclPermissionType.ALLOW)
            for operation in operations
        ]
        with admin_client(self.options("operator")) as client:
            for future in client.create_acls(bindings).values():
                future.result(30)


def secured_properties(plain: str) -> str:
    """The settings of the local broker, with logins for its clients and lists of who may do what."""
    settings = dict(line.split("=", 1) for line in plain.splitlines())
    users = " ".join(f'user_{user}="{PASSWORD}"' for user in USERS)
    login = f'{MODULE} required username="operator" password="{PASSWORD}" {users};'
    settings |= {
        "listeners": settings["listeners"].replace("PLAINTEXT", "SASL_PLAINTEXT"),
        "advertised.listeners": settings["advertised.listeners"].replace("PLAINTEXT", "SASL_PLAINTEXT"),
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT",
        "inter.broker.listener.name": "SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": login,
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:operator;User:ANONYMOUS",
    }
    return "".join(f"{key}={value}\n" for key, value in settings.items())


@pytest.fixture(scope="module")
def broker() -> Iterator[SecuredBroker]:
    home = replace(SERVICES.home, local=SERVICES.home.local / "secured-kafka")
    ports = choose_ports()
    launch = kafka_broker.kafka_service(home, ports).prepare()
    properties = home.local / "kafka" / "server.properties"
    properties.write_text(secured_properties(properties.read_text()))
    processes.start(home, "kafka", launch)
    broker = SecuredBroker(f"127.0.0.1:{ports.kafka}")
    try:
        with admin_client(broker.options("operator") | {"log_level": "0"}) as client:
            wait_until(lambda: bool(client.list_topics(timeout=20).brokers), 60)
        yield broker
    finally:
        local_stack.down(home)


@pytest.fixture
def secured(broker: SecuredBroker, warehouse_dsn: str, spark: None, monkeypatch: pytest.MonkeyPatch) -> TestPipeline:
    """A topic with 20 records, and a pipeline whose connection logs in as the user that ``act_as`` names."""
    workplace = Workplace(broker.options("operator"), warehouse_dsn, SERVICES.home.pipelines)
    pipeline = workplace.create(source={"connection": "kafka_secured"})
    pipeline.send(20)
    act_as(broker.options("planner"), monkeypatch)
    return pipeline


def act_as(options: Mapping[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    connection = json.dumps({"conn_type": "kafka", "extra": dict(options)})
    monkeypatch.setenv("AIRFLOW_CONN_KAFKA_SECURED", connection)


def test_s134_planning_needs_the_right_to_describe_only(broker: SecuredBroker, secured: TestPipeline) -> None:
    with pytest.raises(BatchledgerError, match="authorization failed"):
        plans.preview(secured.platform())
    broker.grant("planner", ResourceType.TOPIC, secured.name, AclOperation.DESCRIBE)
    assert sum(len(each) for each in plans.preview(secured.platform()).ranges) == 20


def test_s132_without_the_right_to_read_nothing_is_stored_and_the_batch_waits(
    broker: SecuredBroker, secured: TestPipeline
) -> None:
    broker.grant("planner", ResourceType.TOPIC, secured.name, AclOperation.DESCRIBE)
    with pytest.raises(StagingError, match="Topic authorization failed"):
        run_batch.run_once(secured.platform(), "without the right")
    assert secured.count_target_rows() == 0
    assert {each.next_offset for each in secured.platform().ledger.load_positions(secured.name)} == {0}
    broker.grant("planner", ResourceType.TOPIC, secured.name, AclOperation.READ)
    batch = run_batch.run_once(secured.platform(), "with it")
    assert batch is not None
    assert (batch.state, batch.attempt) == (BatchState.PUBLISHED, 2)
    secured.assert_exact()


def test_s133_s142_a_pipeline_that_logs_in_needs_no_right_on_any_group(
    broker: SecuredBroker, secured: TestPipeline, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Only the courtesy offsets for lag tools are then missing, and a warning says so."""
    act_as(broker.options("reader"), monkeypatch)
    broker.grant("reader", ResourceType.TOPIC, secured.name, *READS)
    run_batch.run_once(secured.platform(), "run")
    secured.assert_exact()
    assert "only the courtesy offsets for lag tools were not committed" in caplog.text


def test_holes_can_be_looked_into_without_the_right_to_read_the_settings_of_the_topic(
    broker: SecuredBroker, secured: TestPipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether an invisible offset is a marker or was compacted stays open then, and the message names the right."""
    act_as(broker.options("reader"), monkeypatch)
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
    broker: SecuredBroker, secured: TestPipeline
) -> None:
    def produce() -> int:
        return deliver(
            broker.options("writer"),
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
