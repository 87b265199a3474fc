"""The size of the next batch follows what the real ledger says that the newest ones took; catching up has an end."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread

import pytest

from batchledger.lifecycle import run_batch
from batchledger.model.batch import DeliveryMode
from batchledger.model.offsets import TopicPartition, count_offsets
from batchledger.planning.live import Limits
from tests.contract.warehouses import PostgresWarehouse
from tests.forked import start_command
from tests.machine.worlds import PostgresWorld
from tests.support import TestPipeline, Workplace, wait_until


@pytest.fixture
def world(warehouse_dsn: str) -> Iterator[PostgresWorld]:
    """A topic in memory, everything else in PostgreSQL; batches are to take four seconds."""
    limits = Limits(max_records=100_000, target_duration_seconds=4.0)
    world = PostgresWorld(warehouse_dsn, DeliveryMode.EXACTLY_ONCE, limits)
    world.broker.create_topic("orders", 2)
    yield world
    world.close()


def take_batch(world: PostgresWorld, records_a_second: int) -> int:
    """Take one batch, as if it had run at that speed; return how many records it took."""
    platform = world.platform()
    batch = run_batch.run_once(platform, "run")
    assert batch is not None
    offsets = count_offsets(batch.ranges)
    PostgresWarehouse(world.dsn, platform.rules.name).stretch(batch.batch_id, offsets / records_a_second)
    return offsets


def test_s131_batches_of_a_backlog_grow_and_shrink_towards_the_target_duration(world: PostgresWorld) -> None:
    """When everything becomes slower, one slow batch changes nothing, two do."""
    for number in range(2):
        world.broker.append(TopicPartition("orders", number), *[b'{"message_id": "m"}'] * 42_000)
    assert [take_batch(world, records_a_second=5_000) for _ in range(2)] == [10_000, 20_000]
    assert [take_batch(world, records_a_second=2_500) for _ in range(3)] == [20_000, 20_000, 10_000]
    assert [take_batch(world, records_a_second=2_500)] == [4_000]
    assert run_batch.run_once(world.platform(), "run") is None
    assert world.verify().holds


@contextmanager
def producing(pipeline: TestPipeline) -> Iterator[None]:
    """Let a producer write without a rest beside the block."""
    over = Event()

    def produce() -> None:
        while not over.wait(0.05):
            pipeline.send(20)

    producer = Thread(target=produce, daemon=True)
    producer.start()
    try:
        yield
    finally:
        over.set()
        producer.join(60)


def test_until_caught_up_ends_beside_a_producer_that_never_rests(workplace: Workplace, tmp_path: Path) -> None:
    """Both end: it at the log ends of its first moment, a chain of Airflow's runs when a plan left nothing behind."""
    pipeline = workplace.create()
    pipeline.send(200)
    out, err = tmp_path / "out", tmp_path / "err"
    with producing(pipeline):
        process = start_command(("run", pipeline.name, "--until-caught-up", "--json"), os.environ, out, err)
        try:
            wait_until(lambda: not process.is_alive(), seconds=90)
        finally:
            process.kill()
        ((batches, left),) = pipeline.query(
            "select count(*), min(lag_left_records) from batchledger.batch where pipeline = %s", pipeline.name
        )
        positions = pipeline.platform().ledger.load_positions(pipeline.name)
    assert process.exitcode == 0, err.read_text()
    assert all(each.next_offset >= 100 for each in positions)
    assert (batches, left) == (1, 0)
    assert run_batch.run_once(pipeline.platform(), "what came meanwhile") is not None
    pipeline.assert_exact()
