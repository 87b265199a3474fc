"""What a failed check names: exactly what fails it, and nothing is looked through for checks that passed."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import fields, replace

import pytest

from batchledger.lifecycle import run_batch
from batchledger.lifecycle.platform import Platform
from batchledger.lifecycle.row_audit import OFFENDERS_SHOWN
from batchledger.model.balance import HolePolicy
from batchledger.model.batch import Attempt
from batchledger.model.checks import IntegrityCheck, Offender
from batchledger.model.errors import BatchBlockedError
from batchledger.model.offsets import OffsetRange, TopicPartition
from tests.fakes.sink import MemorySink
from tests.fakes.source import MemoryBroker, Record
from tests.fakes.work import MemoryStager, Rows, keep_all
from tests.fakes.world import World, staged_twice

ORDERS_0 = TopicPartition("orders", 0)


@pytest.fixture
def world() -> World:
    """One partition with ten records."""
    world = World()
    world.broker.create_topic("orders", 1)
    world.produce(ORDERS_0, 10)
    return world


def lose(world: World, offset: int) -> Platform:
    """A process whose reader does not return one committed record of ``orders[0]``."""

    class LossyBroker(MemoryBroker):
        def read(self, range_: OffsetRange) -> Iterator[tuple[int, Record]]:
            return (each for each in super().read(range_) if (range_.partition, each[0]) != (ORDERS_0, offset))

    platform = world.process()
    lossy = LossyBroker(**{each.name: getattr(world.broker, each.name) for each in fields(world.broker)})
    return replace(platform, make_stager=lambda: MemoryStager(lossy, platform.evidence, platform.sink))


def test_only_the_hole_that_nothing_explains_is_named_after_any_number_of_explained_ones(world: World) -> None:
    world.holes = HolePolicy.TRANSACTIONAL
    for _ in range(OFFENDERS_SHOWN + 5):
        world.produce(ORDERS_0, 1)
        world.broker.append_aborted(ORDERS_0, b"{}")
    world.produce(ORDERS_0, 3)
    lost = world.broker.partitions[ORDERS_0].end - 2
    with pytest.raises(BatchBlockedError) as blocked:
        run_batch.run_once(lose(world, lost), "run-1")
    checks = {each.name: each for each in world.process().ledger.load_checks(blocked.value.batch_id)}
    hole = checks[IntegrityCheck.NO_UNEXPLAINED_HOLES].observed
    assert hole["coordinates"] == [f"orders[0]@{lost}"]
    assert hole["command"] == f'batchledger records orders_copy "orders[0] {lost}..{lost + 1}"'


def test_rows_are_looked_through_only_for_the_checks_that_failed(world: World) -> None:
    """Naming what repeats a message costs as much as judging it."""
    asked: list[Collection[IntegrityCheck]] = []

    class WatchedSink(MemorySink):
        def find_offenders(
            self, attempt: Attempt, checks: Collection[IntegrityCheck], limit: int
        ) -> Mapping[IntegrityCheck, Sequence[Offender]]:
            asked.append(checks)
            return super().find_offenders(attempt, checks, limit)

    def run(alter: Callable[[Rows], Rows], name: str) -> None:
        platform = world.process(alter=alter)
        sink = platform.sink
        assert isinstance(sink, MemorySink)
        watched = WatchedSink(sink.database, sink.table)
        run_batch.run_once(replace(platform, sink=watched), name)

    run(keep_all, "clean")
    assert asked == []
    world.produce(ORDERS_0, 3)
    with pytest.raises(BatchBlockedError):
        run(staged_twice, "repeats")
    assert asked == [{IntegrityCheck.NO_DUPLICATE_OFFSETS}]
