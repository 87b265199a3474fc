"""Lists of offsets from a real broker: patient with partitions that are not led yet, and never for long."""

from concurrent.futures import ThreadPoolExecutor
from itertools import count
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka import TopicPartition as KafkaTopicPartition

from batchledger.model.errors import ServiceUnavailableError
from batchledger.model.offsets import TopicPartition
from batchledger.source.kafka import requests
from batchledger.source.kafka.clients import REQUEST_TIMEOUT_SECONDS
from batchledger.source.kafka.requests import LATEST, ask_offsets, list_offsets
from tests.conftest import Kafka
from tests.contract.sources import KafkaSource
from tests.fakes.source import DEFAULT_TIMESTAMP
from tests.support import wait_until


@pytest.fixture
def source(kafka: Kafka) -> KafkaSource:
    return KafkaSource(kafka.options)


def test_partition_that_has_no_leader_yet_is_asked_for_again(source: KafkaSource, kafka: Kafka) -> None:
    """As after the creation of its topic, or while a broker is started again."""
    partition = TopicPartition(source.topic, 0)
    with ThreadPoolExecutor(1) as pool:
        found = pool.submit(list_offsets, kafka.options, [partition], LATEST)
        wait_until(lambda: ask_offsets.statistics.get("attempt_number", 0) > 1)
        source.create_topic(1)
        assert found.result() == {partition: 0}


class ForgetfulConsumer:
    """Fails with these codes, the last first, and then answers: librdkafka does it now and then, and not at will."""

    def __init__(self, *codes: int) -> None:
        self.codes, self.timeouts = [*codes], list[float]()

    def offsets_for_times(self, asked: Any, timeout: float) -> Any:
        self.timeouts.append(timeout)
        if self.codes:
            raise KafkaException(KafkaError(self.codes.pop()))
        return [KafkaTopicPartition(each.topic, each.partition, 7) for each in asked]


def test_client_that_forgets_a_question_is_asked_again_with_more_patience_and_one_that_refuses_is_not() -> None:
    partition, late = TopicPartition("orders", 0), KafkaError._TIMED_OUT
    forgetful: Any = ForgetfulConsumer(late, late)
    assert ask_offsets(forgetful, [partition], LATEST) == {partition: 7}
    assert forgetful.timeouts == [0.25, 0.5, 1.0]
    refusing: Any = ForgetfulConsumer(KafkaError.TOPIC_AUTHORIZATION_FAILED)
    with pytest.raises(KafkaException):
        ask_offsets(refusing, [partition], LATEST)
    assert len(refusing.timeouts) == 1


def test_all_requests_of_a_list_have_one_deadline(source: KafkaSource, monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker that answers each of many requests late would otherwise be waited for as often."""
    (partition,) = source.create_topic(1)
    assert source.log.find_offsets([partition], DEFAULT_TIMESTAMP) == {}
    looks = count(step=REQUEST_TIMEOUT_SECONDS)
    monkeypatch.setattr(requests, "monotonic", lambda: next(looks))
    with pytest.raises(ServiceUnavailableError, match="no answer within"):
        source.log.find_offsets([partition], DEFAULT_TIMESTAMP)
