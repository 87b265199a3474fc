"""Every contract test runs once over the in-memory implementation and once over the real one."""

from collections.abc import Iterator

import pytest

from tests.contract.sources import KafkaSource, MemorySource, Source
from tests.contract.warehouses import MemoryWarehouse, Warehouse, open_postgres


@pytest.fixture(params=["memory", "postgres"])
def warehouse(request: pytest.FixtureRequest) -> Iterator[Warehouse]:
    """An empty ledger and sink. The real service is asked for only where it is needed."""
    if request.param == "memory":
        yield MemoryWarehouse()
    else:
        yield from open_postgres(request.getfixturevalue("warehouse_dsn"))


@pytest.fixture(params=["memory", "kafka"])
def source(request: pytest.FixtureRequest) -> Source:
    """A broker with a topic of its own."""
    if request.param == "memory":
        return MemorySource()
    return KafkaSource(request.getfixturevalue("kafka").bootstrap_servers)
