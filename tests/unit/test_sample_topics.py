"""Topics of sample data: the only broker of a cluster may be away from its own list for a moment."""

from types import SimpleNamespace
from typing import Any, cast

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from batchledger.local.samples.admin import _count_partitions


class Cluster:
    """Answers so many times with an error, then with a topic of three partitions."""

    def __init__(self, code: int, times: int = 1) -> None:
        self.code, self.left = code, times

    def list_topics(self, **_: Any) -> Any:
        if self.left:
            self.left -= 1
            raise KafkaException(KafkaError(self.code))
        return SimpleNamespace(topics={"orders": SimpleNamespace(partitions=dict.fromkeys(range(3)))})


def count(cluster: Cluster) -> int | None:
    return _count_partitions(cast("AdminClient", cluster), "orders")


def test_cluster_without_a_broker_is_asked_again() -> None:
    assert count(Cluster(KafkaError._PARTIAL, times=2)) == 3


def test_another_error_is_raised_at_once() -> None:
    cluster = Cluster(KafkaError.CLUSTER_AUTHORIZATION_FAILED, times=2)
    with pytest.raises(KafkaException):
        count(cluster)
    assert cluster.left == 1
