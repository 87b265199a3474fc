"""The rights that a watch needs: to read the topic, to read the table, and its own tables in the ledger."""

from dataclasses import replace

import pytest
from confluent_kafka.admin import AclOperation, ResourceType

from batchledger.model.errors import BatchledgerError
from batchledger.proof.watching import Discrepancy, WatchOutcome
from batchledger.source.kafka.log import KafkaLog
from tests.contract.warehouses import create_role, role_of
from tests.secured_kafka import SecuredKafka, broker
from tests.watched import WatchedTopic, offsets_of

__all__ = ["broker"]

USER = "reader"


def test_user_who_may_read_the_topic_and_role_that_may_read_the_table_are_enough(
    broker: SecuredKafka, warehouse_dsn: str
) -> None:
    shop = WatchedTopic(broker.operator, warehouse_dsn)
    shop.produce(5)
    shop.produce_in_transaction(2, is_committed=False)
    shop.insert([0, 1, 3, 4])
    with create_role(warehouse_dsn) as dsn:
        shop.run(f"grant select on {{table}} to {role_of(dsn)}")
        watch = replace(shop.watch(dsn=dsn), source=KafkaLog(broker.password("PLAIN", USER)))
        with pytest.raises(BatchledgerError, match=rf"{shop.name}"):
            shop.look(watch)
        for right in (AclOperation.DESCRIBE, AclOperation.READ, AclOperation.DESCRIBE_CONFIGS):
            broker.grant(USER, ResourceType.TOPIC, shop.name, right)
        look = shop.look(watch)
        assert look.outcome is WatchOutcome.WRONG
        assert offsets_of(look, Discrepancy.MISSING) == ["0: 2..3"]
        assert dict(look.holes) == {"aborted": 2, "markers": 1}
