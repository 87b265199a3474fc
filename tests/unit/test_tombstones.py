"""Records without a value through whole runs, by each policy but deletion."""

import pyarrow as pa
import pytest

from batchledger.model.balance import Balance
from batchledger.model.offsets import TopicPartition
from batchledger.model.records.rules import TombstonePolicy
from batchledger.planning.live import Limits
from tests.fakes.crash import SINKS
from tests.fakes.foreign_sink import store_of
from tests.fakes.work import ROW_SCHEMA
from tests.fakes.world import World, catch_up

ORDERS_0, ORDERS_1 = TopicPartition("orders", 0), TopicPartition("orders", 1)


@pytest.fixture(params=SINKS)
def world(request: pytest.FixtureRequest) -> World:
    """Updates and deletions of four keys, each in one partition; batches of at most three records."""
    world = World(
        foreign=store_of(request.param),
        limits=Limits(max_records=3),
        schema=ROW_SCHEMA.append(pa.field("amount", pa.int32())),
    )
    world.broker.create_topic("orders", 2)
    send(world, ORDERS_0, d=4, a=1, b=1)
    send(world, ORDERS_0, a=2, b=None)
    send(world, ORDERS_1, c=1)
    send(world, ORDERS_1, c=None)
    send(world, ORDERS_0, a=None)
    send(world, ORDERS_1, c=3)
    return world


def send(world: World, partition: TopicPartition, **amount_by_key: int | None) -> None:
    for key, amount in amount_by_key.items():
        value = None if amount is None else f'{{"message_id": "{key}", "amount": {amount}}}'.encode()
        world.broker.append_keyed(partition, (key.encode(), value))


def balances(world: World) -> list[Balance]:
    return [line for each in world.database.committed.batches.values() for line in each.balances]


def count(world: World, line: str) -> int:
    return sum(getattr(each, line) for each in balances(world))


def test_tombstones_are_quarantined_by_default(world: World) -> None:
    catch_up(world)
    assert (count(world, "accepted"), count(world, "quarantined")) == (6, 3)
    assert len(world.database.committed.quarantine) == 3


def test_skipped_tombstones_have_a_line_of_their_own_in_the_balance(world: World) -> None:
    world.tombstones = TombstonePolicy.SKIP
    catch_up(world)
    lines = ("accepted", "tombstones", "quarantined", "unexplained")
    assert [count(world, line) for line in lines] == [6, 3, 0, 0]
    assert len(world.read_target()) == 6


def test_kept_tombstones_are_rows_without_values(world: World) -> None:
    world.tombstones = TombstonePolicy.KEEP
    catch_up(world)
    rows = world.read_target()
    empty = [(row["_partition"], row["_offset"]) for row in rows if row["message_id"] is None]
    assert sorted(empty) == [(0, 4), (0, 5), (1, 1)]
    assert (count(world, "accepted"), count(world, "unexplained")) == (9, 0)
