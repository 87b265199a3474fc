"""Every contract test runs once over the in-memory implementation and once over each real one that it is about."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from batchledger.adapters.postgres.database import keep_connections
from tests.contract.lake_warehouse import LakeWarehouse, open_lake
from tests.contract.sources import KafkaSource, MemorySource, Source
from tests.contract.topic_warehouse import open_topic
from tests.contract.warehouses import MemoryWarehouse, Warehouse, open_postgres

if TYPE_CHECKING:
    from tests.rest_catalog import RestServer

TABLES = ("memory", "postgres")
EVERY_TABLE = (*TABLES, "lake")
EVERY_SINK = (*EVERY_TABLE, "topic")
JUDGED_IN_DATABASE = (*TABLES, "topic")
"""For what topic and lake do by the same code; over the lake run those marked so, and ``test_replayed_messages``."""


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        "table: about a sink whose rows become visible with the ledger's commit, and can be taken away again; or about "
        "the ledger alone",
    )
    config.addinivalue_line(
        "markers", "lake: what a lake does with the verdict, in a module that leaves it out otherwise"
    )


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Choose the warehouses of a test: its module's ``WAREHOUSES``, tables without.

    A module with a fixture ``warehouse`` of its own would run its tests once for each of them, and all on its own one.
    """
    if "warehouse" in metafunc.fixturenames and not hasattr(metafunc.module, "warehouse"):
        is_about_tables = metafunc.definition.get_closest_marker("table") is not None
        sinks = getattr(metafunc.module, "WAREHOUSES", TABLES)
        if metafunc.definition.get_closest_marker("lake") is not None:
            sinks = (*sinks, "lake")
        metafunc.parametrize("warehouse", TABLES if is_about_tables else sinks, indirect=True)


@pytest.fixture(scope="package", autouse=True)
def _kept_connections() -> Iterator[None]:
    """As in every process of the product: transactions after each other share a connection."""
    with keep_connections():
        yield


@pytest.fixture
def warehouse(request: pytest.FixtureRequest) -> Iterator[Warehouse]:
    """An empty ledger and sink. The real services are asked for only if they are needed."""
    match request.param:
        case "memory":
            yield MemoryWarehouse()
        case "postgres":
            yield from open_postgres(request.getfixturevalue("warehouse_dsn"))
        case "lake":
            folder = request.getfixturevalue("tmp_path")
            yield from open_lake(request.getfixturevalue("warehouse_dsn"), folder)
        case "topic":
            kafka = request.getfixturevalue("kafka")
            yield from open_topic(request.getfixturevalue("warehouse_dsn"), kafka.options)


@pytest.fixture
def lake(request: pytest.FixtureRequest, warehouse_dsn: str, tmp_path: Path) -> Iterator[LakeWarehouse]:
    """The catalog is in the database, unless a test asks for others."""
    is_rest = getattr(request, "param", "sql") == "rest"
    yield from open_lake(warehouse_dsn, tmp_path, request.getfixturevalue("rest_server").connect() if is_rest else None)


@pytest.fixture(scope="module")
def rest_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator["RestServer"]:
    """A catalog over HTTP."""
    from tests.rest_catalog import serve_rest_catalog

    with serve_rest_catalog(tmp_path_factory.mktemp("rest")) as server:
        yield server


@pytest.fixture(params=["memory", "kafka"])
def source(request: pytest.FixtureRequest) -> Source:
    """A broker with a topic of its own."""
    if request.param == "memory":
        return MemorySource()
    return KafkaSource(request.getfixturevalue("kafka").bootstrap_servers)
