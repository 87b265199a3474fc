"""What a replay that cannot be carried out says, and what the plan of one that can holds."""

from datetime import UTC, datetime, timedelta

import pytest

from batchledger.model.batch import LogState, PartitionLog, Position, TopicIdentity
from batchledger.model.errors import ExpiredError, ReplayRefusedError
from batchledger.model.offsets import OffsetRange, TopicPartition
from batchledger.planning.live import Limits, Plan, describe_idle
from batchledger.planning.replay import Replay, ResolvedReplay, Window, plan_ranges, resolve_ranges

FIRST = TopicPartition("orders", 0)
IDENTITY = TopicIdentity("cluster", "topic")
NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)


def test_ranges_beyond_the_end_of_the_log_are_refused_by_name() -> None:
    log = LogState({"orders": IDENTITY}, {FIRST: PartitionLog(0, 10)})
    with pytest.raises(ReplayRefusedError) as refused:
        resolve_ranges("flights", [OffsetRange(FIRST, 5, 11), OffsetRange(FIRST, 0, 2)], log)
    assert refused.value.ranges == (OffsetRange(FIRST, 5, 11),)


def test_plan_of_a_replay_keeps_the_first_positions_and_leaves_no_lag() -> None:
    first = (Position(FIRST, 0, 0, IDENTITY),)
    plan = plan_ranges(
        "flights", Replay((OffsetRange(FIRST, 0, 5),)), ResolvedReplay((OffsetRange(FIRST, 0, 5),)), first
    )
    assert (plan.first_positions, plan.lag_left_records) == (first, 0)


def test_refusal_for_lost_offsets_says_no_more_than_it_knows() -> None:
    lost = ResolvedReplay((), expired=(OffsetRange(FIRST, 0, 5),))
    with pytest.raises(ExpiredError) as refused:
        plan_ranges("flights", Replay((OffsetRange(FIRST, 0, 5),)), lost)
    assert refused.value.why == "Kafka has removed 5 offsets of these: orders[0] 0..5."
    with pytest.raises(ExpiredError) as refused:
        plan_ranges("flights", Replay(Window(NOON, NOON + timedelta(hours=1))), lost)
    assert refused.value.why == "Kafka has removed 5 offsets that may belong to the window: orders[0] 0..5."


def test_idle_plan_says_that_everything_is_published() -> None:
    assert describe_idle(Plan((), 0), Limits(100)) == "every readable record is published"


@pytest.mark.parametrize(("lag", "waiting"), [(1, "1 record waits: "), (2, "2 records wait: ")])
def test_idle_plan_says_how_many_records_wait_and_for_what(lag: int, waiting: str) -> None:
    told = describe_idle(Plan((), lag), Limits(100, min_records=5))
    assert told.startswith(f"{waiting}limits.min_records is 5, and limits.max_delay, 300 s, has not passed")
    assert "open transactions" not in told


def test_idle_plan_names_in_order_where_open_transactions_hold_records_back() -> None:
    held_back = {TopicPartition("orders", 1): 7, FIRST: 5}
    told = describe_idle(Plan((), 0, stable_offset_by_held_back=held_back), Limits(100))
    assert told == (
        "every readable record is published; open transactions hold records back from orders[0]@5, orders[1]@7 on"
    )
