"""Records without a value through whole runs: each policy, and deletion under crashes at every point of every mode."""

from collections.abc import Mapping
from functools import partial

import pyarrow as pa
import pytest

from batchledger.lifecycle import run_batch
from batchledger.model.balance import Balance
from batchledger.model.batch import DeliveryMode
from batchledger.model.checks import ACCEPTED_BY_TARGET, Outcome, Severity
from batchledger.model.errors import BatchBlockedError
from batchledger.model.offsets import TopicPartition
from batchledger.model.records.rules import SinkMode, TombstonePolicy, Upsert
from batchledger.planning.live import Limits
from batchledger.proof.proving import prove
from batchledger.proof.verification import PublishedHistory, PublishedRange
from tests.fakes.crash import SINKS, CrashOnce, SimulatedCrashError, copies_after_crash, sinks_and_crashes
from tests.fakes.foreign_sink import store_of
from tests.fakes.work import ROW_SCHEMA
from tests.fakes.world import PIPELINE, World, catch_up

ORDERS_0, ORDERS_1 = TopicPartition("orders", 0), TopicPartition("orders", 1)
BY_ID = Upsert(("message_id",))


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


def state(world: World) -> Mapping[str, int]:
    rows = world.sink.read_target()
    return {row["message_id"]: row["amount"] for row in rows}


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
    assert len(world.sink.read_target()) == 6


def test_kept_tombstones_are_rows_without_values(world: World) -> None:
    world.tombstones = TombstonePolicy.KEEP
    catch_up(world)
    rows = world.sink.read_target()
    empty = [(row["_partition"], row["_offset"]) for row in rows if row["message_id"] is None]
    assert sorted(empty) == [(0, 4), (0, 5), (1, 1)]
    assert (count(world, "accepted"), count(world, "unexplained")) == (9, 0)


@pytest.mark.parametrize("delivery", DeliveryMode)
def test_kept_tombstone_cannot_be_an_update_and_blocks_the_batch_in_every_mode(
    world: World, delivery: DeliveryMode
) -> None:
    """A record that can never be applied costs no mode any rows: the position stays before its batch."""
    world.delivery, world.tombstones, world.upsert = delivery, TombstonePolicy.KEEP, BY_ID
    with pytest.raises(BatchBlockedError, match=r"no value in sink\.key") as refused:
        catch_up(world)
    assert refused.value.failed == (ACCEPTED_BY_TARGET,)
    before = dict(world.database.committed.positions)
    with pytest.raises(BatchBlockedError, match="accepted_by_target"):
        run_batch.run_once(world.process(), "the next run")
    (blocked,) = (each.batch for each in world.database.committed.batches.values() if not each.batch.state.is_final)
    assert blocked.attempt == 1
    assert all(before[PIPELINE, each.partition].next_offset == each.start for each in blocked.ranges)
    world.tombstones = TombstonePolicy.SKIP
    run_batch.run_once(world.process(), "by a person", blocked.batch_id)
    catch_up(world)
    assert_proved(world)


@pytest.mark.parametrize(("world", "delivery", "point"), sinks_and_crashes(), indirect=["world"])
def test_crash_while_updates_and_deletions_are_published_then_a_retry(
    world: World, delivery: DeliveryMode, point: str
) -> None:
    """Updates by key make at_least_once as good as exactly_once: what is brought twice changes nothing."""
    world.delivery, world.tombstones, world.upsert = delivery, TombstonePolicy.DELETE, BY_ID
    with pytest.raises(SimulatedCrashError):
        run_batch.run_once(world.process(crash=CrashOnce(point)), "run-1")
    catch_up(world, "run-2")
    is_lost = copies_after_crash(delivery, point, is_foreign=world.foreign is not None) == 0
    assert state(world) == ({"c": 3} if is_lost else {"c": 3, "d": 4})
    assert (count(world, "accepted"), count(world, "unexplained")) == (9, 0)
    assert_proved(world)


def assert_proved(world: World) -> None:
    stored = world.database.committed.batches.values()
    published = [
        PublishedRange(each.batch.batch_id, line.range, line.accepted, line.quarantined, line.unexplained)
        for each in stored
        for line in each.balances
    ]
    history = PublishedHistory(world.process().ledger.load_positions(PIPELINE), published)
    sink = world.sink
    verification = prove(PIPELINE, lambda: history, partial(sink.count_target, PIPELINE), SinkMode.UPSERT)
    assert verification.holds, verification.findings


def test_s46_tombstone_without_a_key_is_quarantined(world: World) -> None:
    world.tombstones, world.upsert = TombstonePolicy.DELETE, BY_ID
    world.broker.append_keyed(ORDERS_0, (None, None))
    catch_up(world)
    assert count(world, "quarantined") == 1
    assert state(world) == {"c": 3, "d": 4}


@pytest.mark.parametrize("severity", Severity)
def test_deletion_of_an_unknown_key_matters_as_much_as_the_pipeline_says(severity: Severity) -> None:
    world = World(schema=ROW_SCHEMA.append(pa.field("amount", pa.int32())))
    world.tombstones, world.upsert = TombstonePolicy.DELETE, Upsert(("message_id",), unmatched_deletions=severity)
    world.broker.create_topic("orders", 1)
    send(world, ORDERS_0, a=1, b=None)
    if severity is Severity.CRITICAL:
        with pytest.raises(BatchBlockedError, match=r"deletions_find_rows: .*orders\[0\]@1"):
            catch_up(world)
        return
    catch_up(world)
    (stored,) = world.database.committed.batches.values()
    found = {each.name: each for each in world.process().ledger.load_checks(stored.batch.batch_id)}
    check = found["deletions_find_rows"]
    assert (check.outcome, check.severity, check.blocks) == (Outcome.FAILED, severity, False)
    assert check.observed["coordinates"] == ["orders[0]@1"]
