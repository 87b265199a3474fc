"""Every contract test runs over each real implementation that it is about, and over the one in memory if that has it.

The real ones log in as a role that was granted no more than the runs of its pipeline need.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
import pytest
from psycopg import sql

from batchledger.database.sessions import keep_connections
from batchledger.ledger.grants import list_grants
from tests.contract.lake_warehouse import LakeWarehouse, catalog_in, open_lake
from tests.contract.sources import KafkaSource, MemorySource, Source
from tests.contract.topic_warehouse import open_topic
from tests.contract.warehouses import (
    MemoryWarehouse,
    PostgresWarehouse,
    Warehouse,
    create_role,
    let_run,
    open_postgres,
    role_of,
)

if TYPE_CHECKING:
    from tests.rest_catalog import RestServer

TABLES = ("memory", "postgres")
EVERY_TABLE = (*TABLES, "lake")
ELSEWHERE = ("lake", "topic")
"""The sinks that commit by themselves."""
EVERY_SINK = (*TABLES, *ELSEWHERE)
JUDGED_IN_DATABASE = (*TABLES, "topic")
"""For what topic and lake do by the same code; over the lake run those marked so, and ``test_replayed_messages``."""


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        "table: about a sink whose rows become visible with the ledger's commit, and can be taken away again; or about "
        "the ledger alone",
    )
    config.addinivalue_line("markers", "rules: about a rule of a pipeline file, which only the database follows")
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
        sinks = TABLES if is_about_tables else sinks
        is_about_rules = metafunc.definition.get_closest_marker("rules") is not None
        chosen = [each for each in sinks if not (is_about_rules and each == "memory")]
        metafunc.parametrize("warehouse", chosen, indirect=True)


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
            yield from _as_team(request, open_postgres(request.getfixturevalue("team_dsn")))
        case "lake":
            folder = request.getfixturevalue("tmp_path")
            catalog = catalog_in(request.getfixturevalue("warehouse_dsn"), folder)
            yield from _as_team(request, open_lake(request.getfixturevalue("team_dsn"), folder, catalog))
        case "topic":
            kafka = request.getfixturevalue("kafka")
            yield from _as_team(request, open_topic(request.getfixturevalue("team_dsn"), kafka.options))


@pytest.fixture(scope="package")
def team_dsn(warehouse_dsn: str) -> Iterator[str]:
    """A role that has what ``batchledger grant`` gives, and may create targets. A table names its pipelines."""
    with create_role(warehouse_dsn) as dsn, psycopg.connect(warehouse_dsn) as connection:
        for each in list_grants("", role_of(dsn), connection.info.dbname, target=None)[1:]:
            connection.execute(each)
        database, role = sql.Identifier(connection.info.dbname), sql.Identifier(role_of(dsn))
        connection.execute(sql.SQL("grant create on database {} to {}").format(database, role))
        connection.commit()
        yield dsn


def _as_team(request: pytest.FixtureRequest, opened: Iterator[PostgresWarehouse]) -> Iterator[PostgresWarehouse]:
    for warehouse in opened:
        with let_run(request.getfixturevalue("warehouse_dsn"), warehouse):
            yield warehouse


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
    return KafkaSource(request.getfixturevalue("kafka").options)
