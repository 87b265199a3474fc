"""Looking keys up takes time by the batch, whatever PostgreSQL's statistics say of the tables that pipelines share."""

from collections.abc import Iterator

import psycopg
import pytest

from batchledger.model.batch import Attempt
from batchledger.model.offsets import OffsetRange, TopicPartition
from tests.contract import life
from tests.contract.messages import BY_ID
from tests.contract.warehouses import PostgresWarehouse, open_postgres

RANGE = OffsetRange(TopicPartition("orders", 0), 0, 30_000)
KEYS = (
    'insert into batchledger.message_key (pipeline, key_hash, topic, partition, "offset", batch_id, remembered_until) '
    "select %s, sha256(g::text::bytea), 'orders', 0, g, 0, 'infinity' from generate_series(1, 30000) g"
)


@pytest.fixture
def warehouse(warehouse_dsn: str) -> Iterator[PostgresWarehouse]:
    """A new pipeline beside one that all statistics are about."""
    for warehouse in open_postgres(warehouse_dsn):
        other = f"{warehouse.pipeline}_other"
        with psycopg.connect(warehouse_dsn, autocommit=True) as connection:
            connection.execute(KEYS, [other])
            connection.execute("analyze batchledger.message_key")
            yield warehouse.with_rules(BY_ID)
            connection.execute("delete from batchledger.message_key where pipeline = %s", [other])


def publish(warehouse: PostgresWarehouse, attempt: Attempt) -> int:
    """Publish with a bound: comparing every row with every key would take minutes."""
    with warehouse.ledger.publication(attempt) as publication:
        publication.connection.execute("set local statement_timeout = '20s'")
        return life.apply(warehouse, publication).accepted


@pytest.mark.proof
def test_batches_of_a_pipeline_that_is_newer_than_the_statistics_are_published_in_time(
    warehouse: PostgresWarehouse,
) -> None:
    live = life.take_to_audited(warehouse, RANGE)
    assert publish(warehouse, live) == len(RANGE)
    for run in ("again", "once more"):
        assert publish(warehouse, life.take_replay_to_audited(warehouse, RANGE, run=run)) == len(RANGE)
    assert warehouse.prove().findings == ()
