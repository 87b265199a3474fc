"""What the sink's user may have to be granted is asked for by name, and nothing else is needed."""

from collections.abc import Callable

import pytest
from confluent_kafka.admin import AclOperation, ResourceType

from batchledger.model.batch import Lane
from batchledger.model.errors import BatchledgerError, TargetRefusedError
from tests.contract.outputs import Output
from tests.secured_kafka import SecuredKafka, broker

__all__ = ["broker"]

USER = "writer"
ROWS = 30


@pytest.fixture
def output(broker: SecuredKafka) -> Output:
    return Output(broker.operator).create()


def refuse(call: Callable[[], object], match: str) -> None:
    with pytest.raises(TargetRefusedError, match=match):
        call()


def test_each_right_that_is_missing_is_named_and_these_are_enough(
    broker: SecuredKafka,
    output: Output,
) -> None:
    topic, attempt = output.topic(options=broker.password("PLAIN", USER)), output.attempt()

    def grant(kind: ResourceType, name: str, *operations: AclOperation) -> None:
        broker.grant(USER, kind, name, *operations)

    def commit() -> None:
        topic.commit(attempt, output.records(ROWS), ROWS)

    refuse(commit, "Grant WRITE and DESCRIBE on topic")
    grant(ResourceType.TOPIC, output.name, AclOperation.WRITE, AclOperation.DESCRIBE)
    refuse(commit, "READ on the source topics")
    grant(ResourceType.TOPIC, output.source, AclOperation.READ)
    refuse(commit, f"Grant WRITE and DESCRIBE on transactional id batchledger.{output.pipeline} ")
    grant(ResourceType.TRANSACTIONAL_ID, f"batchledger.{output.pipeline}", AclOperation.WRITE, AclOperation.DESCRIBE)
    refuse(commit, f"Grant READ on group {output.group('sink')} ")
    assert output.values() == []
    grant(ResourceType.GROUP, output.group("sink"), AclOperation.READ)
    topic.require_usable(attempt)
    commit()
    assert topic.find_commit(attempt)
    with pytest.raises(BatchledgerError, match="authorization failed"):
        topic.count()
    grant(ResourceType.TOPIC, output.name, AclOperation.READ)
    assert sum(each.rows for each in topic.count().count_by_batch.values()) == ROWS
    # Whether the topic is compacted is unknown without this one.
    assert topic.count().incomplete_until == 1
    grant(ResourceType.TOPIC, output.name, AclOperation.DESCRIBE_CONFIGS)
    assert topic.count().incomplete_until == 0


def test_offsets_that_may_not_be_read_are_not_taken_for_none(broker: SecuredKafka, output: Output) -> None:
    topic, group = output.topic(options=broker.password("PLAIN", USER)), output.group("sink")
    broker.grant(USER, ResourceType.TOPIC, output.name, AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE)
    broker.grant(USER, ResourceType.TRANSACTIONAL_ID, f"batchledger.{output.pipeline}", AclOperation.WRITE)
    broker.grant(USER, ResourceType.GROUP, group, AclOperation.READ)
    with pytest.raises(BatchledgerError, match="authorization failed"):
        topic.find_commit(output.attempt())
    broker.grant(USER, ResourceType.TOPIC, output.source, AclOperation.READ)
    assert not topic.find_commit(output.attempt())


def test_topic_that_may_not_be_created_is_refused_and_is_made_after_the_grant(
    broker: SecuredKafka,
) -> None:
    output = Output(broker.operator)
    topic, attempt = output.topic(options=broker.password("PLAIN", USER)), output.attempt(lane=Lane.REPLAY)
    broker.grant(USER, ResourceType.TOPIC, output.source, AclOperation.READ)
    broker.grant(USER, ResourceType.TOPIC, output.name, AclOperation.DESCRIBE)
    broker.grant(USER, ResourceType.GROUP, output.group("replay"), AclOperation.READ)
    refuse(lambda: topic.require_usable(attempt), r"(?s)could not be created: .*CREATE on it")
    broker.grant(USER, ResourceType.TOPIC, output.name, AclOperation.CREATE)
    topic.require_usable(attempt)
