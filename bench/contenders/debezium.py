"""The peer without code: Debezium's JDBC sink in Kafka Connect standalone.

It reads the same topic as the others: since Kafka 4.2, Connect's JSON converter takes the schema of all records from
its settings. Connect's own transforms add the coordinates.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial

from psycopg.conninfo import conninfo_to_dict

from batchledger.local.stack.jars import fetch_jars
from bench.contenders import connect
from bench.contenders.contender import Contender, Subject
from bench.orders import Order
from bench.services import Services
from bench.targets.table import SCHEMA, watching

TAIL_PAGES = 2000


def describe() -> Contender:
    """Debezium."""
    connector = connect.Connector(lambda services: fetch_jars(services.home, "connect"), connector_settings, _reading)
    start = partial(connect.start, connector=connector)
    return Contender(Subject("debezium", "Debezium JDBC sink in Kafka Connect standalone"), start)


def connector_settings(services: Services, order: Order) -> Mapping[str, str]:
    """The settings of the connector: insert mode, batches as large as polls, one connection a task."""
    address = conninfo_to_dict(services.dsn)
    url = f"jdbc:postgresql://{address['host']}:{address['port']}/{address['dbname']}"
    return {
        **connect.common_settings(order),
        "connector.class": "io.debezium.connector.jdbc.JdbcSinkConnector",
        "connection.url": f"{url}?reWriteBatchedInserts=true&currentSchema={SCHEMA}",
        "connection.username": str(address["user"]),
        "connection.password": str(address["password"]),
        "connection.pool.min_size": "1",
        "connection.pool.max_size": "2",
        "insert.mode": "insert",
        "primary.key.mode": "none",
        "schema.evolution": "none",
        "collection.name.format": order.target,
        "batch.size": "10000",
    }


@contextmanager
def _reading(services: Services, order: Order) -> Iterator[Callable[[], Mapping[int, int]]]:
    with watching(services.dsn, order.target, TAIL_PAGES) as watch:
        yield watch.look
