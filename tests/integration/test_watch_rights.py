"""The rights that a watch needs: to read the topic, to read the table, and its own tables in the ledger."""

from dataclasses import replace
from uuid import uuid4

import psycopg
import pytest
from confluent_kafka.admin import AclOperation, ResourceType
from psycopg import sql
from psycopg.conninfo import make_conninfo

from batchledger.model.errors import BatchledgerError
from batchledger.proof.watching import Discrepancy, WatchOutcome
from batchledger.source.kafka.log import KafkaLog
from batchledger.watching.postgres import PostgresTable
from tests.conftest import as_superuser
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
    role, password = f"reader_{uuid4().hex[:10]}", uuid4().hex
    watch = replace(shop.watch(), source=KafkaLog(broker.password("PLAIN", USER)))
    with psycopg.connect(as_superuser(warehouse_dsn), autocommit=True) as connection:
        name = sql.Identifier(role)
        connection.execute(sql.SQL("create role {} login password {}").format(name, sql.Literal(password)))
        connection.execute(sql.SQL("grant select on {} to {}").format(shop.table, name))
        dsn = make_conninfo(as_superuser(warehouse_dsn), user=role, password=password)
        table = watch.table
        assert isinstance(table, PostgresTable)
        watch = replace(watch, table=replace(table, dsn=dsn))
        try:
            with pytest.raises(BatchledgerError, match=rf"{shop.name}"):
                shop.look(watch)
            for right in (AclOperation.DESCRIBE, AclOperation.READ, AclOperation.DESCRIBE_CONFIGS):
                broker.grant(USER, ResourceType.TOPIC, shop.name, right)
            look = shop.look(watch)
            assert look.outcome is WatchOutcome.WRONG
            assert offsets_of(look, Discrepancy.MISSING) == ["0: 2..3"]
            assert dict(look.holes) == {"aborted": 2, "markers": 1}
        finally:
            connection.execute(sql.SQL("drop owned by {0}; drop role {0}").format(name))
