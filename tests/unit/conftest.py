"""The world that most of these tests begin in."""

import pytest

from tests.fakes.crash import SINKS
from tests.fakes.foreign_sink import store_of
from tests.fakes.world import ORDERS_0, ORDERS_1, World


@pytest.fixture(params=SINKS)
def world(request: pytest.FixtureRequest) -> World:
    """Two partitions with ten and five records, nothing published; the sink may be one that commits by itself."""
    world = World(foreign=store_of(request.param))
    world.broker.create_topic("orders", 2)
    world.produce(ORDERS_0, 10)
    world.produce(ORDERS_1, 5)
    return world
