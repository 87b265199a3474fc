"""Producers' own numbering through whole lives of batches: what blocks, what is accepted, what a crash leaves."""

import json
from dataclasses import replace

import pyarrow as pa
import pytest

from batchledger.lifecycle import decisions, run_batch
from batchledger.lifecycle.requirement import remember_numbers
from batchledger.model.batch import Decision, DeliveryMode
from batchledger.model.checks import CheckResult, Outcome, Severity
from batchledger.model.claims import PreparedRows
from batchledger.model.errors import BatchBlockedError
from batchledger.model.offsets import TopicPartition
from batchledger.model.records.rules import SequenceRule
from batchledger.ports import RowsToPublish
from batchledger.sinks.table.sink import PostgresSink
from tests.contract.lives.world import StoredWorld
from tests.fakes.crash import CrashOnce, SimulatedCrashError
from tests.fakes.work import ROW_SCHEMA
from tests.fakes.world import catch_up

ORDERS_0 = TopicPartition("orders", 0)
RULES = SequenceRule(("device",), "seq", starts_at=1)
SCHEMA = ROW_SCHEMA.append(pa.field("device", pa.string())).append(pa.field("seq", pa.int64()))
ANA = Decision("ana", "device a was broken")


def world_of(
    records: str, rules: SequenceRule = RULES, delivery: DeliveryMode = DeliveryMode.EXACTLY_ONCE
) -> StoredWorld:
    world = StoredWorld(sequence=rules, schema=SCHEMA, delivery=delivery)
    world.broker.create_topic("orders", 1)
    send(world, records)
    return world


def send(world: StoredWorld, records: str) -> None:
    """Write records: ``a1`` has the number 1 of device a."""
    values = [{"message_id": each, "device": each[0], "seq": int(each[1:])} for each in records.split()]
    world.broker.append(ORDERS_0, *(json.dumps(each).encode() for each in values))


def run(world: StoredWorld, name: str = "run") -> dict[str, CheckResult]:
    """Publish the next batch; return its checks by name."""
    platform = world.process()
    batch = run_batch.run_once(platform, name)
    assert batch is not None
    return {each.name: each for each in platform.ledger.load_checks(batch.batch_id)}


def blocked(world: StoredWorld, check: str) -> BatchBlockedError:
    with pytest.raises(BatchBlockedError, match=check) as error:
        run_batch.run_once(world.process(), "run")
    return error.value


def test_record_that_never_reached_the_broker_blocks_the_batch_behind_it() -> None:
    world = world_of("a1 a2 b1")
    run(world)
    send(world, "a4 b2")
    error = blocked(world, "no_missing_numbers")
    assert "orders[0]@3 (3 missing before 4)" in str(error)
    assert f'batchledger records {world.pipeline} "orders[0] 3..4"' in str(error)
    assert len(world.times_published()) == 3


def test_clean_twin_passes() -> None:
    world = world_of("a1 a2 b1")
    run(world)
    send(world, "a3 a4 b2")
    assert all(each.passed for each in run(world).values())


def test_accepted_gap_is_remembered_and_not_told_again() -> None:
    world = world_of("a1 a3")
    decisions.accept(world.process(), blocked(world, "no_missing_numbers").batch_id, ANA)
    send(world, "a4")
    assert all(each.passed for each in run(world).values())


def test_repeated_number_blocks_its_batch() -> None:
    world = world_of("a1 a2 a3")
    run(world)
    send(world, "a2 a4")
    assert "orders[0]@3 (2 came again)" in str(blocked(world, "no_repeated_numbers"))


def test_sequence_that_only_warns_publishes_and_tells() -> None:
    world = world_of("a1 a3", replace(RULES, severity=Severity.WARNING))
    check = run(world)["no_missing_numbers"]
    assert check.outcome is Outcome.FAILED
    assert len(world.times_published()) == 2


def test_discarded_batch_leaves_no_numbers_behind() -> None:
    world = world_of("a1 a3")
    error = blocked(world, "no_missing_numbers")
    decisions.discard(world.process(), error.batch_id, ANA)
    assert world.warehouse.read_series() == {}


# With a start, numbers that seem to come again could pass for a restart.
WITHOUT_START = SequenceRule(("device",), "seq")
POINTS = ("rows_moved", "positions_moved", "before_commit", "committed")


@pytest.mark.parametrize(
    ("delivery", "point"),
    [
        *((DeliveryMode.EXACTLY_ONCE, point) for point in POINTS),
        *((DeliveryMode.AT_LEAST_ONCE, point) for point in (*POINTS, "between_commits")),
    ],
)
def test_batch_that_is_killed_anywhere_finds_its_numbers_new_when_it_is_taken_again(
    delivery: DeliveryMode, point: str
) -> None:
    """Were they remembered before the position is visible, the next attempt would find all of them repeated."""
    world = world_of("a1 a2 a3", WITHOUT_START, delivery)
    with pytest.raises(SimulatedCrashError):
        run_batch.run_once(world.process(CrashOnce(point)), "dies")
    send(world, "a4")
    catch_up(world, "again")
    assert world.warehouse.read_series() == {'["a"]': (1, [1, 2, 3, 4])}


def test_negative_control_numbers_that_are_remembered_with_the_rows_block_the_next_attempt(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    publish = PostgresSink.publish

    def too_early(sink: PostgresSink, rows: RowsToPublish) -> PreparedRows:
        prepared = publish(sink, rows)
        remember_numbers(sink, rows)
        return prepared

    monkeypatch.setattr(PostgresSink, "publish", too_early)
    world = world_of("a1 a2 a3", WITHOUT_START, DeliveryMode.AT_LEAST_ONCE)
    with pytest.raises(SimulatedCrashError):
        run_batch.run_once(world.process(CrashOnce("between_commits")), "dies")
    blocked(world, "no_repeated_numbers")


def test_rows_that_at_most_once_has_lost_are_missing_numbers() -> None:
    """Which is the truth: these records never reached the target."""
    world = world_of("a1 a2", delivery=DeliveryMode.AT_MOST_ONCE)
    run(world)
    send(world, "a3 a4")
    with pytest.raises(SimulatedCrashError):
        run_batch.run_once(world.process(CrashOnce("between_commits")), "dies")
    send(world, "a5")
    assert "3..4 missing before 5" in str(blocked(world, "no_missing_numbers"))


def test_negative_control_without_a_sequence_nothing_tells_of_the_lost_record() -> None:
    world = world_of("a1 a3")
    world.sequence = None
    run(world)
    assert len(world.times_published()) == 2
