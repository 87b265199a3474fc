"""A rewind goes backwards, to what Kafka still holds; the table is then rebuilt as it was."""

import logging
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchledger.lifecycle import plans, run_batch
from batchledger.lifecycle.decisions import accept_loss, rehearse, rewind
from batchledger.lifecycle.platform import Platform
from batchledger.model.batch import Decided, Decision, DecisionRecord, LogState, PartitionLog, Position, TopicIdentity
from batchledger.model.errors import (
    DecisionRefusedError,
    ExpiredError,
    FencedError,
    OutcomeUnknownError,
    TopicChangedError,
)
from batchledger.model.offsets import OffsetRange, TopicPartition
from batchledger.model.records.rules import SinkMode
from batchledger.planning.live import Limits, StartPolicy
from batchledger.planning.replay import Replay
from batchledger.planning.rewind import ResolvedRewind, Rewind, resolve_rewind
from batchledger.ports import Truncate
from batchledger.sinks.topic.capabilities import CAPABILITIES as TOPIC
from tests.fakes.crash import CrashOnce, SimulatedCrashError
from tests.fakes.decisions import MemoryDecisions
from tests.fakes.history import prove
from tests.fakes.sink import MemorySink
from tests.fakes.world import PIPELINE, World, assert_exactly_once, catch_up, stage_and_audit

ORDERS_0, ORDERS_1 = TopicPartition("orders", 0), TopicPartition("orders", 1)
IDENTITY = TopicIdentity("cluster", "topic")
BY_ANA = Decision("ana@host", "the transform was wrong")
EARLIEST = Rewind(StartPolicy.EARLIEST)


@pytest.fixture
def world() -> World:
    """Two partitions with ten and five records, published six at a time."""
    world = World(limits=Limits(max_records=6))
    world.broker.create_topic("orders", 2)
    world.produce(ORDERS_0, 10)
    world.produce(ORDERS_1, 5)
    catch_up(world)
    return world


def record_of(decided: Decided) -> DecisionRecord:
    assert decided.record is not None
    return decided.record


def rows(world: World) -> Counter[str]:
    """What readers see, of every writer."""
    target = world.sink.read_target()
    return Counter(str({name: value for name, value in row.items() if name != "_batch_id"}) for row in target)


def assert_proved(world: World) -> None:
    verification = prove(world.sink, PIPELINE)
    assert verification.holds, verification.findings


def next_offsets(world: World) -> list[int]:
    return [each.next_offset for each in world.process().ledger.load_positions(PIPELINE)]


# Where a rewind goes.


def positions(*next_offsets: int) -> list[Position]:
    return [Position(TopicPartition("orders", n), 0, offset, IDENTITY) for n, offset in enumerate(next_offsets)]


def log(*starts: int, end: int = 1000) -> LogState:
    held = {TopicPartition("orders", number): PartitionLog(start, end) for number, start in enumerate(starts)}
    return LogState({"orders": IDENTITY}, held)


def test_rewind_to_the_earliest_offset_goes_to_the_start_of_each_log() -> None:
    assert resolve_rewind("p", EARLIEST, positions(10, 5), log(4, 0), {}) == {ORDERS_0: 4, ORDERS_1: 0}


def test_rewind_to_a_moment_goes_to_the_first_record_at_or_after_it_and_never_forwards() -> None:
    moment = Rewind(datetime(2026, 1, 1, tzinfo=UTC))
    found_at = {ORDERS_0: 7}
    assert resolve_rewind("p", moment, positions(10, 5), log(4, 0), found_at) == {ORDERS_0: 7, ORDERS_1: 5}
    assert resolve_rewind("p", moment, positions(6, 5), log(4, 0), found_at) == {ORDERS_0: 6, ORDERS_1: 5}


@pytest.mark.parametrize(
    ("to", "message"),
    [
        ({ORDERS_0: 11}, r"(?s)orders\[0\]@11 lies ahead.* of p is 10\..*batchledger skip p"),
        ({ORDERS_0: 3}, r"Kafka holds orders\[0\] from 4 on"),
        ({TopicPartition("other", 0): 0}, r"no position in other\[0\]\.\nIt has read orders\[0\], orders\[1\]"),
    ],
    ids=["forwards", "expired", "unknown"],
)
def test_named_offset_that_is_ahead_or_gone_is_refused_with_what_is_there(
    to: dict[TopicPartition, int], message: str
) -> None:
    with pytest.raises(DecisionRefusedError, match=message):
        resolve_rewind("p", Rewind(to), positions(10, 5), log(4, 0), {})


def test_rewind_to_the_position_itself_is_possible() -> None:
    assert resolve_rewind("p", Rewind({ORDERS_0: 10}), positions(10, 5), log(4, 0), {}) == {ORDERS_0: 10}


def test_truncation_needs_every_partition() -> None:
    with pytest.raises(DecisionRefusedError, match=r"would not be read again: orders\[1\]"):
        resolve_rewind("p", Rewind({ORDERS_0: 5}, truncate=True), positions(10, 5), log(4, 0), {})


def test_pipeline_that_has_read_nothing_has_nothing_to_rewind() -> None:
    with pytest.raises(DecisionRefusedError, match="has read nothing yet"):
        resolve_rewind("p", EARLIEST, [], log(0), {})


OFFSETS = st.integers(0, 50)


@given(st.lists(st.tuples(OFFSETS, OFFSETS, OFFSETS), min_size=1, max_size=4), st.booleans())
def test_rewind_never_goes_forwards_nor_below_both_position_and_log(
    partitions: list[tuple[int, int, int]], is_moment: bool
) -> None:
    """For any position, log start and offset at the moment; a log that begins behind the position is a loss."""
    to = Rewind(datetime(2026, 1, 1, tzinfo=UTC)) if is_moment else EARLIEST
    stands = positions(*(position for position, _, _ in partitions))
    state = log(*(start for _, start, _ in partitions))
    found_at = {TopicPartition("orders", n): max(start, at) for n, (_, start, at) in enumerate(partitions)}
    for position, (_, start, _) in zip(stands, partitions, strict=True):
        offset = resolve_rewind("p", to, stands, state, found_at)[position.partition]
        assert min(position.next_offset, start) <= offset <= position.next_offset


# What a rewind leads to.


@pytest.mark.parametrize("truncate", [False, True], ids=["kept", "truncated"])
def test_rewind_then_running_again_gives_the_identical_table(world: World, truncate: bool) -> None:
    before, batches = rows(world), max(world.database.committed.batches)
    decided = rewind(world.process(), Rewind(StartPolicy.EARLIEST, truncate), BY_ANA)
    assert decided.is_new
    assert next_offsets(world) == [0, 0]
    assert rows(world) == (Counter() if truncate else before)
    assert_proved(world)
    run_batch.run_once(world.process(), "half-way")
    assert_proved(world)
    catch_up(world)
    assert rows(world) == before
    assert_exactly_once(world)
    assert_proved(world)
    owners = {row["_batch_id"] for row in world.sink.read_target()}
    assert min(owners) > batches, "every row was written anew"


def test_rewind_of_some_partitions_leaves_the_others_alone(world: World) -> None:
    rewind(world.process(), Rewind({ORDERS_0: 4}), BY_ANA)
    batch = run_batch.run_once(world.process(), "again")
    assert batch is not None
    assert batch.ranges == (OffsetRange(ORDERS_0, 4, 10),)
    assert_exactly_once(world)
    assert_proved(world)


def test_rewind_can_be_followed_by_another_one(world: World) -> None:
    for offset in (7, 2, 0, 9):
        rewind(world.process(), Rewind({ORDERS_0: offset}), BY_ANA)
        run_batch.run_once(world.process(), f"after {offset}")
        assert_proved(world)
        catch_up(world)
        assert_exactly_once(world)
        assert_proved(world)


def test_rewind_to_a_moment_reads_from_its_first_record_on() -> None:
    world = World()
    (orders,) = world.broker.create_topic("orders", 1)
    moments = [datetime(2026, 1, day, tzinfo=UTC) for day in (1, 3, 2, 5)]
    for offset, moment in enumerate(moments):
        world.broker.append(orders, f'{{"message_id": "{offset}"}}'.encode(), timestamp=moment)
    catch_up(world)
    rewind(world.process(), Rewind(datetime(2026, 1, 2, tzinfo=UTC)), BY_ANA)
    assert next_offsets(world) == [1]
    catch_up(world)
    assert_exactly_once(world)
    assert_proved(world)


def test_rewind_discards_the_open_batch_and_its_staging(world: World) -> None:
    world.produce(ORDERS_0, 3)
    batch = stage_and_audit(world.process(), "first")
    rewind(world.process(), EARLIEST, BY_ANA)
    assert (world.database.committed.staging, world.database.committed.evidence) == ({}, {})
    with pytest.raises(FencedError, match="discarded by a person's decision"):
        run_batch.publish(world.process(), batch.batch_id, "first")
    catch_up(world)
    assert_exactly_once(world)
    assert_proved(world)


def test_repeated_rewind_changes_nothing(world: World) -> None:
    assert rewind(world.process(), EARLIEST, BY_ANA).is_new
    assert rewind(world.process(), EARLIEST, BY_ANA) == Decided(None, is_new=False)
    assert world.process().decisions.load_epoch(PIPELINE) == 1


def test_dry_run_of_a_truncating_rewind_counts_the_rows_and_keeps_them(world: World) -> None:
    told = record_of(rewind(rehearse(world.process()), Rewind(StartPolicy.EARLIEST, truncate=True), BY_ANA))
    assert told.before == {"epoch": 0, "next_offset": {"orders[0]": 10, "orders[1]": 5}, "rows": 15}
    assert told.after == {"epoch": 1, "next_offset": {"orders[0]": 0, "orders[1]": 0}, "rows": 0}
    assert next_offsets(world) == [10, 5]
    assert_exactly_once(world)


def test_truncation_that_nobody_could_make_up_for_is_refused_unless_the_loss_is_allowed(world: World) -> None:
    world.broker.expire(ORDERS_0, before=3)
    with pytest.raises(ExpiredError, match="3 offsets that Kafka has removed") as expired:
        rewind(world.process(), Rewind(StartPolicy.EARLIEST, truncate=True), BY_ANA)
    assert expired.value.ranges == (OffsetRange(ORDERS_0, 0, 3),)
    assert "--allow-expired" in str(expired.value)
    assert len(rows(world)) == 15
    allowed = Rewind(StartPolicy.EARLIEST, truncate=True, allow_expired=True)
    recorded = record_of(rewind(world.process(), allowed, BY_ANA)).after
    assert recorded is not None
    assert recorded["given_up"] == ["orders[0] 0..3"]
    catch_up(world)
    assert sorted(offset for partition, offset in world.times_published() if partition == ORDERS_0) == [*range(3, 10)]
    assert_proved(world)


@pytest.mark.parametrize("allow_expired", [False, True])
def test_truncation_keeps_no_promise_for_what_is_not_read_again_and_is_refused(
    world: World, allow_expired: bool
) -> None:
    """--allow-expired is about what Kafka has removed, not about what would be left out."""
    world.broker.expire(ORDERS_0, before=3)
    later = Rewind({ORDERS_0: 7, ORDERS_1: 0}, truncate=True, allow_expired=allow_expired)
    with pytest.raises(DecisionRefusedError, match="4 offsets before") as refused:
        rewind(world.process(), later, BY_ANA)
    assert refused.value.ranges == (OffsetRange(ORDERS_0, 3, 7),)
    assert "Rewind to earliest" in str(refused.value)
    assert len(rows(world)) == 15
    assert next_offsets(world) == [10, 5]


@pytest.mark.parametrize("allow_expired", [False, True])
def test_truncation_is_refused_while_the_table_holds_a_topic_that_the_pipeline_reads_no_more(
    world: World, allow_expired: bool
) -> None:
    (payments,) = world.broker.create_topic("payments", 1)
    world.produce(payments, 4)
    both = world.process()
    both = replace(both, rules=replace(both.rules, topics=("orders", "payments")))
    run_batch.run_once(both, "both")
    asked = Rewind(StartPolicy.EARLIEST, truncate=True, allow_expired=allow_expired)
    with pytest.raises(DecisionRefusedError, match="4 offsets of payments, which") as refused:
        rewind(world.process(), asked, BY_ANA)
    assert refused.value.ranges == (OffsetRange(payments, 0, 4),)
    assert len(rows(world)) == 19
    assert rewind(both, asked, BY_ANA).is_new


@dataclass(frozen=True)
class UnaskedDecisions(MemoryDecisions):
    """All that batches hold is much to read in a long history."""

    def load_held(self, pipeline: str) -> Sequence[OffsetRange]:
        """Fail every reader."""
        raise AssertionError(f"what {pipeline} holds was read")


def test_rewind_that_keeps_the_rows_does_not_read_what_is_held(world: World) -> None:
    assert rewind(replace(world.process(), decisions=UnaskedDecisions(world.database)), EARLIEST, BY_ANA).is_new


@dataclass(frozen=True)
class SilentDecisions(MemoryDecisions):
    """The reply to COMMIT is lost."""

    def rewind(
        self, pipeline: str, rewind: ResolvedRewind, decision: Decision, truncate: Truncate | None = None
    ) -> Decided:
        """Rewind, and say nothing of it."""
        super().rewind(pipeline, rewind, decision, truncate)
        raise OutcomeUnknownError("the connection was lost.")


@pytest.mark.parametrize("truncate", [False, True])
def test_whoever_got_no_reply_to_an_emptying_rewind_is_told_to_look_before_repeating_it(
    world: World, truncate: bool
) -> None:
    silent = replace(world.process(), decisions=SilentDecisions(world.database))
    with pytest.raises(OutcomeUnknownError) as told:
        rewind(silent, Rewind(StartPolicy.EARLIEST, truncate), BY_ANA)
    assert ("Before you repeat it" in str(told.value)) == truncate


# A topic replaces nothing.


class ProducingSink(MemorySink):
    capabilities = replace(TOPIC, shares_transaction=True)


def into_topic(world: World) -> Platform:
    """A process of the same pipeline, whose target cannot replace."""
    process = world.process()
    rules, sink = replace(process.rules, mode=SinkMode.PRODUCE), ProducingSink(world.database, world.sink.table)
    return replace(process, rules=rules, sink=sink)


ONCE_MORE = "its readers would see once more what was produced of 7 offsets"


def test_dry_run_of_a_rewind_says_how_much_the_readers_of_a_topic_would_see_once_more(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    asked = Rewind({ORDERS_0: 6, ORDERS_1: 2})
    assert ONCE_MORE in rewind(rehearse(into_topic(world)), asked, BY_ANA).warning
    assert rewind(rehearse(world.process()), asked, BY_ANA).warning == ""
    assert "once more" not in caplog.text


def test_rewind_plan_and_run_say_what_a_topic_gets_once_more_before_they_do_it(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "batchledger"):
        rewind(into_topic(world), Rewind({ORDERS_0: 6, ORDERS_1: 2}), BY_ANA)
        assert [ONCE_MORE in each.getMessage() for each in caplog.records] == [True, False]
        caplog.clear()
        world.produce(ORDERS_0, 3)
        planned = plans.preview(into_topic(world))
        assert "of 6 offsets" in plans.find_once_more(into_topic(world), planned.ranges)
        assert plans.find_once_more(world.process(), planned.ranges) == ""
        for offsets in ("of 6 offsets", "of 1 offset", None):
            run_batch.run_once(into_topic(world), "run")
            assert [each.getMessage().rpartition("produced ")[2] for each in caplog.records] == (
                [offsets] * bool(offsets)
            )
            caplog.clear()


def test_replay_of_what_nobody_holds_lets_no_reader_of_a_topic_see_anything_once_more(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.produce(ORDERS_0, 3)
    for until, is_said in ((13, False), (10, True)):
        ranges = (OffsetRange(ORDERS_0, until - 3, until),)
        plans.plan_replay(into_topic(world), Replay(ranges), f"run {until}", BY_ANA, f"key {until}")
        assert ("what was produced of 3 offsets" in caplog.text) == is_said


@pytest.mark.parametrize("to", [StartPolicy.EARLIEST, {ORDERS_0: 5}])
def test_nobody_is_advised_to_replace_the_rows_of_a_topic(world: World, to: Any) -> None:
    with pytest.raises(DecisionRefusedError, match="its readers have seen the records") as told:
        rewind(into_topic(world), Rewind(to, truncate=True), BY_ANA)
    assert "replaced" not in str(told.value)


def test_rewind_without_truncation_keeps_the_rows_that_nobody_can_read_again(world: World) -> None:
    world.broker.expire(ORDERS_0, before=3)
    rewind(world.process(), EARLIEST, BY_ANA)
    assert next_offsets(world) == [3, 0]
    catch_up(world)
    assert sum(world.times_published().values()) == 15
    assert_proved(world)


def test_loss_in_the_new_epoch_can_be_accepted_and_the_old_rows_stay(world: World) -> None:
    rewind(world.process(), EARLIEST, BY_ANA)
    world.broker.expire(ORDERS_0, before=4)
    accept_loss(world.process(), [OffsetRange(ORDERS_0, 0, 4)], BY_ANA)
    catch_up(world)
    assert sum(world.times_published().values()) == 15
    assert_proved(world)


def test_rewind_over_another_topic_of_the_same_name_is_refused(world: World) -> None:
    world.broker.delete_topic("orders")
    world.broker.create_topic("orders", 2)
    with pytest.raises(TopicChangedError):
        rewind(world.process(), EARLIEST, BY_ANA)


@pytest.mark.parametrize("point", ["rows_withdrawn", "positions_moved", "rows_moved", "before_commit", "committed"])
def test_crash_while_the_new_epoch_is_published_leaves_old_rows_or_new_ones(world: World, point: str) -> None:
    before = rows(world)
    rewind(world.process(), EARLIEST, BY_ANA)
    with pytest.raises(SimulatedCrashError):
        run_batch.run_once(world.process(CrashOnce(point)), "again")
    assert rows(world) == before
    assert_proved(world)
    catch_up(world)
    assert rows(world) == before
    assert_proved(world)
