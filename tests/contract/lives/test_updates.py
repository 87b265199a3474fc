"""Updates and deletions by key through whole runs: crashes at every point, replays, rewinds, a restored target."""

import re
from collections import Counter
from collections.abc import Mapping

import psycopg
import pyarrow as pa
import pytest
from psycopg import sql

from batchledger.lifecycle import decisions, plans, run_batch
from batchledger.model.batch import Batch, Decision, DeliveryMode
from batchledger.model.checks import ACCEPTED_BY_TARGET, Outcome, Severity
from batchledger.model.errors import BatchBlockedError, DecisionRefusedError
from batchledger.model.offsets import OffsetRange, TopicPartition
from batchledger.model.records.rules import TombstonePolicy, Upsert
from batchledger.planning.live import Limits, StartPolicy
from batchledger.planning.replay import Replay
from batchledger.planning.rewind import Rewind
from batchledger.ports import CrashHook, no_crash
from tests.contract.lives.world import StoredWorld
from tests.fakes.crash import (
    BEFORE_PUBLISHING,
    CrashOnce,
    SimulatedCrashError,
    copies_after_crash,
    crash_points,
    replay_crash_points,
)
from tests.fakes.work import ROW_SCHEMA
from tests.fakes.world import assert_exactly_once, catch_up

ORDERS_0, ORDERS_1 = TopicPartition("orders", 0), TopicPartition("orders", 1)
BY_ID = Upsert(("message_id",))
BY_ANA = Decision("ana@host", "because")


@pytest.fixture
def world() -> StoredWorld:
    """Updates and deletions of four keys, each in one partition; batches of at most three records."""
    world = StoredWorld(limits=Limits(max_records=3), schema=ROW_SCHEMA.append(pa.field("amount", pa.int32())))
    world.broker.create_topic("orders", 2)
    send(world, ORDERS_0, d=4, a=1, b=1)
    send(world, ORDERS_0, a=2, b=None)
    send(world, ORDERS_1, c=1)
    send(world, ORDERS_1, c=None)
    send(world, ORDERS_0, a=None)
    send(world, ORDERS_1, c=3)
    return world


def send(world: StoredWorld, partition: TopicPartition, **amount_by_key: int | None) -> None:
    for key, amount in amount_by_key.items():
        value = None if amount is None else f'{{"message_id": "{key}", "amount": {amount}}}'.encode()
        world.broker.append_keyed(partition, (key.encode(), value))


def state(world: StoredWorld) -> Mapping[str, int]:
    return {row["message_id"]: row["amount"] for row in world.read_target()}


def count(world: StoredWorld, line: str) -> int:
    return sum(getattr(each, line) for each in world.balances())


@pytest.mark.parametrize("delivery", DeliveryMode)
def test_kept_tombstone_cannot_be_an_update_and_blocks_the_batch_in_every_mode(
    world: StoredWorld, delivery: DeliveryMode
) -> None:
    """A record that can never be applied costs no mode any rows: the position stays before its batch."""
    world.delivery, world.tombstones, world.upsert = delivery, TombstonePolicy.KEEP, BY_ID
    with pytest.raises(BatchBlockedError, match=r"without a value in sink\.key") as refused:
        catch_up(world)
    assert refused.value.failed == (ACCEPTED_BY_TARGET,)
    before = world.warehouse.ledger.load_positions(world.pipeline)
    with pytest.raises(BatchBlockedError, match="accepted_by_target"):
        run_batch.run_once(world.process(), "the next run")
    (blocked,) = (each for each in world.batches() if not each.state.is_final)
    assert blocked.attempt == 1
    assert world.warehouse.ledger.load_positions(world.pipeline) == before
    world.tombstones = TombstonePolicy.SKIP
    run_batch.run_once(world.process(), "by a person", blocked.batch_id)
    catch_up(world)
    world.assert_proved()


@pytest.mark.parametrize(
    ("delivery", "point"),
    [(mode, point) for mode in DeliveryMode for point in crash_points(mode) if point not in BEFORE_PUBLISHING],
)
def test_crash_while_updates_and_deletions_are_published_then_a_retry(
    world: StoredWorld, delivery: DeliveryMode, point: str
) -> None:
    """Updates by key make at_least_once as good as exactly_once: what is brought twice changes nothing."""
    world.delivery, world.tombstones, world.upsert = delivery, TombstonePolicy.DELETE, BY_ID
    with pytest.raises(SimulatedCrashError):
        run_batch.run_once(world.process(crash=CrashOnce(point)), "run-1")
    catch_up(world, "run-2")
    is_lost = copies_after_crash(delivery, point) == 0
    assert state(world) == ({"c": 3} if is_lost else {"c": 3, "d": 4})
    assert (count(world, "accepted"), count(world, "unexplained")) == (9, 0)
    if not is_lost:
        world.assert_proved()


def test_s46_tombstone_without_a_key_is_quarantined(world: StoredWorld) -> None:
    world.tombstones, world.upsert = TombstonePolicy.DELETE, BY_ID
    world.broker.append_keyed(ORDERS_0, (None, None))
    catch_up(world)
    assert count(world, "quarantined") == 1
    assert state(world) == {"c": 3, "d": 4}


@pytest.mark.parametrize("severity", Severity)
def test_deletion_of_an_unknown_key_matters_as_much_as_the_pipeline_says(severity: Severity) -> None:
    world = StoredWorld(schema=ROW_SCHEMA.append(pa.field("amount", pa.int32())))
    world.tombstones, world.upsert = TombstonePolicy.DELETE, Upsert(("message_id",), unmatched_deletions=severity)
    world.broker.create_topic("orders", 1)
    send(world, ORDERS_0, a=1, b=None)
    if severity is Severity.CRITICAL:
        with pytest.raises(BatchBlockedError, match=r"deletions_find_rows: .*orders\[0\]@1"):
            catch_up(world)
        return
    catch_up(world)
    (batch,) = world.batches()
    found = {each.name: each for each in world.process().ledger.load_checks(batch.batch_id)}
    check = found["deletions_find_rows"]
    assert (check.outcome, check.severity, check.blocks) == (Outcome.FAILED, severity, False)
    assert check.observed["coordinates"] == ["orders[0]@1"]


def published_world() -> StoredWorld:
    """Records of as many keys, six at a time."""
    world = StoredWorld(limits=Limits(max_records=6), upsert=BY_ID)
    world.broker.create_topic("orders", 2)
    world.produce(ORDERS_0, 6)
    world.produce(ORDERS_1, 3)
    catch_up(world)
    return world


def publish_again(world: StoredWorld, crash: CrashHook = no_crash) -> Batch:
    asked = Replay((OffsetRange(ORDERS_0, 0, 6), OffsetRange(ORDERS_1, 0, 3)))
    batch = plans.plan_replay(world.process(), asked, "again", BY_ANA, "again")
    assert batch is not None
    return run_batch.take_through(world.process(crash), batch.batch_id, "again")


@pytest.mark.parametrize("point", [each for each in replay_crash_points() if each not in BEFORE_PUBLISHING])
def test_crash_at_any_point_of_a_replay_leaves_old_rows_or_new_ones_of_each_key(point: str) -> None:
    world = published_world()
    before = {row["_batch_id"] for row in world.read_target()}
    with pytest.raises(SimulatedCrashError):
        publish_again(world, CrashOnce(point))
    (replay,) = (each for each in world.batches() if each.batch_id not in before)
    assert {row["_batch_id"] for row in world.read_target()} in (before, {replay.batch_id})
    assert_exactly_once(world)
    assert publish_again(world).batch_id == replay.batch_id, "the retry found the replay that was stored"
    assert {row["_batch_id"] for row in world.read_target()} == {replay.batch_id}
    assert_exactly_once(world)
    world.assert_proved()


@pytest.mark.parametrize("truncate", [False, True], ids=["kept", "truncated"])
def test_rewind_then_running_again_gives_the_identical_rows_of_each_key(truncate: bool) -> None:
    world = published_world()
    before, batches = world.times_published(), len(world.batches())
    decisions.rewind(world.process(), Rewind(StartPolicy.EARLIEST, truncate), BY_ANA)
    assert world.times_published() == (Counter() if truncate else before)
    world.assert_proved()
    catch_up(world)
    assert world.times_published() == before
    world.assert_proved()
    anew = {each.batch_id for each in world.batches()[batches:]}
    assert {row["_batch_id"] for row in world.read_target()} <= anew


def restore(world: StoredWorld, kept: int) -> None:
    """Put another table in the place of the target, with as many of the rows, the oldest ones."""
    world.warehouse.replace_target()
    names = [sql.Identifier(world.warehouse.schema, name) for name in ("orders", "orders_before")]
    copy = sql.SQL("insert into {} select * from {} order by _batch_id, _topic, _partition, _offset limit %s")
    with psycopg.connect(world.dsn) as connection:
        connection.execute(copy.format(*names), [kept])


def test_target_by_key_is_refused_when_it_is_empty_and_adopted_with_a_warning_otherwise() -> None:
    empty, whole = published_world(), published_world()
    restore(empty, 0)
    with pytest.raises(DecisionRefusedError, match="holds no row of the 9 that") as refused:
        decisions.adopt_target(empty.process(), BY_ANA)
    assert refused.value.pipeline == empty.pipeline
    restore(whole, 9)
    adopted = decisions.adopt_target(whole.process(), BY_ANA)
    assert re.search(r"the proof does not show that \S+ lacks no row: it holds 9 of the 9", adopted.warning)


def test_target_by_key_that_is_older_than_the_ledger_is_told_by_its_newest_batch() -> None:
    world = published_world()
    first, second = (each.batch_id for each in world.batches())
    restore(world, 6)
    told = decisions.adopt_target(world.process(), BY_ANA).warning
    assert f"The newest batch with a row there is {first}, the newest with rows in the ledger is {second}" in told
