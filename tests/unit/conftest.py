"""The world that most of these tests begin in."""

import pytest

from tests.fakes.world import ORDERS_0, ORDERS_1, World


@pytest.fixture
def world() -> World:
    """Two partitions with ten and five records, nothing published."""
    world = World()
    world.broker.create_topic("orders", 2)
    world.produce(ORDERS_0, 10)
    world.produce(ORDERS_1, 5)
    return world
