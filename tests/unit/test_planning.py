"""The planner: what the next batch takes, for every log and every position, and when it refuses to plan."""

import re
from collections.abc import Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from batchledger.model.batch import LogState, PartitionLog, Position, TopicIdentity
from batchledger.model.errors import LossError, TopicChangedError
from batchledger.model.offsets import OffsetRange, TopicPartition, count_offsets, find_gaps, find_overlaps, merge_ranges
from batchledger.planning.live import (
    Limits,
    Plan,
    StartPolicy,
    check_identity,
    check_source,
    choose_first_positions,
    plan_batch,
    share_fairly,
)

IDENTITY = TopicIdentity("cluster-a", "topic-1")
LARGEST_OFFSET = 2**63 - 1
LONG_AGO_SECONDS = 1e9


def orders(partition: int) -> TopicPartition:
    return TopicPartition("orders", partition)


def log_of(*held: tuple[int, int], identity: TopicIdentity = IDENTITY) -> LogState:
    """A topic ``orders`` whose partitions hold ``(log_start, end)``."""
    return LogState({"orders": identity}, {orders(number): PartitionLog(*each) for number, each in enumerate(held)})


def positions_at(*next_offsets: int) -> tuple[Position, ...]:
    return tuple(Position(orders(number), 0, offset, IDENTITY) for number, offset in enumerate(next_offsets))


def ranges_of(plan: Plan) -> list[tuple[int, int, int]]:
    return [(each.partition.partition, each.start, each.until) for each in plan.ranges]


def plan_next(
    positions: Mapping[TopicPartition, Position],
    log: LogState,
    limit: int,
    start: StartPolicy = StartPolicy.EARLIEST,
) -> Plan:
    """Plan as the plan step does: first positions, the checks, then the ranges."""
    check_source("orders_copy", tuple(positions.values()), log, ["orders"])
    first = choose_first_positions(positions, log, start, {})
    check_source("orders_copy", first, log, ["orders"])
    return plan_batch((*positions.values(), *first), log, Limits(limit), None, first)


def positions_after(positions: Mapping[TopicPartition, Position], plan: Plan) -> dict[TopicPartition, Position]:
    """What the ledger holds when the plan has been published."""
    until = {each.partition: each.until for each in plan.ranges}
    return {
        each.partition: Position(
            each.partition, each.origin_offset, until.get(each.partition, each.next_offset), each.identity
        )
        for each in (*positions.values(), *plan.first_positions)
    }


@pytest.mark.parametrize(("limit", "until"), [(4, 4), (1000, 10)])
def test_s1_from_earliest_takes_what_the_limit_allows(limit: int, until: int) -> None:
    assert ranges_of(plan_next({}, log_of((0, 10)), limit)) == [(0, 0, until)]


def test_s1_from_earliest_starts_at_the_log_start_not_at_zero() -> None:
    plan = plan_next({}, log_of((7, 10)), 100)
    assert ranges_of(plan) == [(0, 7, 10)]
    assert plan.first_positions == (Position(orders(0), 7, 7, IDENTITY),)


def test_s2_from_latest_takes_nothing_but_keeps_a_valid_position() -> None:
    plan = plan_next({}, log_of((0, 10), (3, 3)), 100, StartPolicy.LATEST)
    assert plan.is_empty
    assert [each.next_offset for each in plan.first_positions] == [10, 3]


def test_s2_from_latest_reads_what_arrives_after_the_first_plan() -> None:
    positions = positions_after({}, plan_next({}, log_of((0, 10)), 100, StartPolicy.LATEST))
    assert ranges_of(plan_next(positions, log_of((0, 14)), 100, StartPolicy.LATEST)) == [(0, 10, 14)]


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        pytest.param({}, 10, id="no record after the timestamp: the end, never 0"),
        pytest.param({orders(0): 4}, 4, id="the first record at or after the timestamp"),
        pytest.param({orders(0): 0}, 0, id="zero is a real offset"),
        pytest.param({orders(0): 12}, 10, id="it arrived after the log was read: not beyond the end"),
    ],
)
def test_s14_start_timestamp(found: Mapping[TopicPartition, int], expected: int) -> None:
    log = log_of((0, 10))
    first = choose_first_positions({}, log, StartPolicy.TIMESTAMP, found)
    assert [each.next_offset for each in first] == [expected]
    check_source("orders_copy", first, log, ["orders"])


@pytest.mark.parametrize("start", list(StartPolicy))
def test_s7_partition_added_to_a_known_topic_is_read_from_its_beginning(start: StartPolicy) -> None:
    known = {each.partition: each for each in positions_at(10)}
    first = choose_first_positions(known, log_of((0, 10), (0, 3)), start, {})
    assert first == (Position(orders(1), 0, 0, IDENTITY),)


def test_s7_added_partition_that_lost_records_before_it_was_noticed_is_a_loss() -> None:
    known = {each.partition: each for each in positions_at(10)}
    with pytest.raises(LossError, match=r"2 offsets .* orders\[1\] 0\.\.2"):
        plan_next(known, log_of((0, 10), (2, 3)), 100)


def test_partition_that_has_a_position_gets_no_first_position() -> None:
    """S28, S90."""
    known = {each.partition: each for each in positions_at(0)}
    assert choose_first_positions(known, log_of((0, 10)), StartPolicy.LATEST, {}) == ()


@pytest.mark.parametrize(
    ("lags", "limit", "shares"),
    [
        pytest.param([500], 500, [500], id="S3 the whole lag"),
        pytest.param([2, 50, 100], 60, [2, 29, 29], id="what the short one leaves goes to the longer ones"),
        pytest.param([0, 10, 0], 4, [0, 4, 0], id="idle partitions take nothing"),
        pytest.param([5, 5, 5], 7, [3, 2, 2], id="the indivisible rest goes one by one"),
        pytest.param([1, 1, 1], 2, [1, 1, 0], id="a limit below the number of partitions"),
        pytest.param([2, 2, 9], 8, [2, 2, 4], id="a long one takes all that lags of exactly the even share leave"),
        pytest.param([3, 4], 0, [0, 0], id="no room"),
        pytest.param([], 10, [], id="no partition"),
        pytest.param([LARGEST_OFFSET, 1], LARGEST_OFFSET, [LARGEST_OFFSET - 1, 1], id="S6 no overflow"),
    ],
)
def test_share_is_fair(lags: list[int], limit: int, shares: list[int]) -> None:
    assert share_fairly(lags, limit) == shares


lag_lists = st.lists(st.one_of(st.just(0), st.integers(0, 5), st.integers(0, LARGEST_OFFSET)), max_size=12)


@given(lag_lists, st.integers(0, 2**64), st.integers(0, 20))
def test_limit_is_met_exactly_when_the_lag_allows_it(lags: list[int], limit: int, rotation: int) -> None:
    shares = share_fairly(lags, limit, rotation)
    assert sum(shares) == min(limit, sum(lags))
    assert all(0 <= share <= lag for share, lag in zip(shares, lags, strict=True))


@given(lag_lists, st.integers(0, 2**64), st.integers(0, 20))
def test_share_is_max_min_fair(lags: list[int], limit: int, rotation: int) -> None:
    """No partition that still waits has two offsets less than another: no share could grow without a smaller one."""
    shares = share_fairly(lags, limit, rotation)
    still_waiting = [share for share, lag in zip(shares, lags, strict=True) if share < lag]
    assert not still_waiting or max(shares) <= min(still_waiting) + 1


@given(st.data())
def test_no_partition_is_starved_even_by_a_limit_below_their_number(data: st.DataObject) -> None:
    """Every partition that lags is served within as many batches as there are partitions, whatever the others do."""
    count = data.draw(st.integers(1, 8), label="partitions")
    limit = data.draw(st.integers(1, count + 2), label="limit")
    next_offsets = data.draw(st.lists(st.integers(0, 50), min_size=count, max_size=count), label="positions")
    ends = list(next_offsets)
    victim = data.draw(st.integers(0, count - 1), label="victim")
    ends[victim] += 1
    grow = st.lists(st.integers(0, 5), min_size=count, max_size=count)
    for _ in range(count):
        growth = data.draw(grow, label="growth")
        ends = [end + more for end, more in zip(ends, growth, strict=True)]
        plan = plan_batch(positions_at(*next_offsets), log_of(*((0, end) for end in ends)), Limits(limit), None)
        for each in plan.ranges:
            next_offsets[each.partition.partition] = each.until
        if orders(victim) in {each.partition for each in plan.ranges}:
            return
    pytest.fail(f"orders[{victim}] was not served in {count} batches of {limit}")


def test_s3_batch_continues_at_the_position() -> None:
    plan = plan_batch(positions_at(250), log_of((0, 1000)), Limits(500), None)
    assert ranges_of(plan) == [(0, 250, 750)]
    assert plan.lag_left_records == 250


def test_s4_drained_partition_keeps_its_position_and_needs_no_range() -> None:
    drained, lagging = positions_at(10, 0)
    plan = plan_batch((drained, lagging), log_of((0, 10), (0, 5)), Limits(100), None)
    assert ranges_of(plan) == [(1, 0, 5)]
    after = positions_after({each.partition: each for each in (drained, lagging)}, plan)
    assert after[orders(0)] == drained


def test_s6_the_largest_limit_and_the_largest_offset_do_not_overflow() -> None:
    log = log_of((0, LARGEST_OFFSET), (0, LARGEST_OFFSET))
    plan = plan_batch(positions_at(0, 0), log, Limits(LARGEST_OFFSET), None)
    assert count_offsets(plan.ranges) == LARGEST_OFFSET


def test_s17_planning_the_same_facts_twice_gives_the_same_plan() -> None:
    facts = (positions_at(3, 9, 0), log_of((0, 50), (0, 9), (0, 7)), Limits(20), None)
    assert plan_batch(*facts) == plan_batch(*facts)


def test_order_of_the_positions_does_not_matter() -> None:
    positions, log = positions_at(3, 9, 0), log_of((0, 50), (0, 12), (0, 7))
    assert plan_batch(positions[::-1], log, Limits(4), None) == plan_batch(positions, log, Limits(4), None)


@pytest.mark.parametrize(
    ("lag", "waited_seconds", "is_planned"),
    [
        pytest.param(9, 10.0, False, id="too little, not waited long enough"),
        pytest.param(10, 10.0, True, id="enough"),
        pytest.param(9, 60.0, True, id="too little, but waited the whole delay"),
        pytest.param(9, None, True, id="nothing was ever published: no reason to wait"),
        pytest.param(9, -3600.0, True, id="published while the clock was ahead: nothing is known of the wait"),
        pytest.param(0, LONG_AGO_SECONDS, False, id="nothing at all stays nothing"),
    ],
)
def test_s27_too_little_waits_for_the_minimum_or_the_delay(
    lag: int, waited_seconds: float | None, is_planned: bool
) -> None:
    limits = Limits(max_records=100, min_records=10, max_delay_seconds=60.0)
    plan = plan_batch(positions_at(0), log_of((0, lag)), limits, waited_seconds)
    assert plan.is_empty is not is_planned
    assert plan.lag_left_records == (0 if is_planned else lag)


def test_s131_backlog_is_cut_into_bounded_batches() -> None:
    positions, log, sizes = {}, log_of((0, 15)), []
    while not (plan := plan_next(positions, log, 5)).is_empty:
        sizes.append(count_offsets(plan.ranges))
        positions = positions_after(positions, plan)
    assert sizes == [5, 5, 5]


def test_nothing_known_is_nothing_to_do() -> None:
    assert plan_batch((), LogState({}, {}), Limits(10), None).is_empty


def test_s24_recreated_topic_is_refused_with_both_ids_and_the_choices() -> None:
    recreated = log_of((0, 100), identity=TopicIdentity("cluster-a", "topic-2"))
    with pytest.raises(TopicChangedError) as refusal:
        check_source("orders_copy", positions_at(50), recreated, ["orders"])
    message = str(refusal.value)
    assert "Topic orders is not the one that this pipeline was reading" in message
    assert "Expected id topic-1 on cluster cluster-a, found id topic-2 on cluster cluster-a" in message
    assert "Point the connection back.\nOr read the topic again under a new pipeline name" in message
    assert (refusal.value.subject, refusal.value.expected, refusal.value.found) == (
        "orders",
        TopicIdentity("cluster-a", "topic-1"),
        TopicIdentity("cluster-a", "topic-2"),
    )


def test_same_topic_id_on_another_cluster_is_refused() -> None:
    moved = log_of((0, 100), identity=TopicIdentity("cluster-b", "topic-1"))
    with pytest.raises(TopicChangedError) as refusal:
        check_source("orders_copy", positions_at(50), moved, ["orders"])
    assert refusal.value.found == TopicIdentity("cluster-b", "topic-1")


@pytest.mark.parametrize(
    ("positions", "said"),
    [
        ((), "(?s)Create the topic.*batchledger produce orders_copy"),
        (positions_at(50), r"(?s)up to orders\[0\]@50\. .* created anew is another"),
    ],
    ids=["never read", "read before"],
)
def test_s22_s23_missing_topic_is_refused_and_named(positions: tuple[Position, ...], said: str) -> None:
    with pytest.raises(TopicChangedError, match="Topic orders does not exist") as refusal:
        check_source("orders_copy", positions, LogState({}, {}), ["orders"])
    assert refusal.value.subject == "orders"
    assert re.search(said, str(refusal.value))
    # Records for a trial do not belong into a topic that others have filled.
    assert ("batchledger produce" in str(refusal.value)) is not bool(positions)


def test_records_for_a_trial_are_not_offered_to_a_pipeline_that_reads_no_json() -> None:
    with pytest.raises(TopicChangedError) as refusal:
        check_source("orders_copy", (), LogState({}, {}), ["orders"], is_json=False)
    assert "Create the topic" in str(refusal.value)
    assert "batchledger produce" not in str(refusal.value)


def test_all_topics_that_are_missing_are_named() -> None:
    with pytest.raises(TopicChangedError, match="Topic orders, returns does not exist"):
        check_source("orders_copy", (), LogState({}, {}), ["orders", "returns"])


def test_position_in_a_topic_that_is_missing_fits_no_identity() -> None:
    with pytest.raises(TopicChangedError) as refusal:
        check_identity(positions_at(50), LogState({}, {}))
    assert refusal.value.found == TopicIdentity("unknown", "none: the topic is missing")


@pytest.mark.parametrize("end", [3, 2], ids=["with a range", "with nothing to read"])
def test_plan_names_where_open_transactions_hold_records_back(end: int) -> None:
    log = LogState({"orders": IDENTITY}, {orders(0): PartitionLog(0, end, held_back=4)})
    assert plan_batch(positions_at(2), log, Limits(10), None).stable_offset_by_held_back == {orders(0): end}


def test_s25_vanished_partition_is_refused_and_named() -> None:
    with pytest.raises(TopicChangedError, match=r"(?s)no longer exists.* is 7 there") as refusal:
        check_source("orders_copy", positions_at(5, 7), log_of((0, 10)), ["orders"])
    assert refusal.value.subject == "orders[1]"


def test_s50_every_position_beyond_the_log_end_is_named_with_the_choices() -> None:
    with pytest.raises(TopicChangedError) as refusal:
        check_source("orders_copy", positions_at(11, 5, 12), log_of((0, 10), (0, 10), (0, 10)), ["orders"])
    message = str(refusal.value)
    assert (
        "orders[0]: the position is 11, the readable end is 10.\norders[2]: the position is 12, the readable end is 10."
        in message
    )
    assert "orders[1]" not in message
    assert "Bring the records back.\nOr read the topic again under a new pipeline name" in message


def test_s37_every_lost_range_is_named_with_the_choices() -> None:
    with pytest.raises(LossError) as refusal:
        check_source("orders_copy", positions_at(2, 5, 0), log_of((4, 10), (5, 10), (1, 1)), ["orders"])
    message = str(refusal.value)
    assert "3 offsets were removed from Kafka before they were read: orders[0] 2..4, orders[2] 0..1" in message
    assert "Restore the records.\nOr go on without them" in message
    assert 'accept-loss orders_copy "orders[0] 2..4" "orders[2] 0..1" --reason WHY' in message
    assert [str(each) for each in refusal.value.ranges] == ["orders[0] 2..4", "orders[2] 0..1"]
    assert not refusal.value.retryable


def test_one_lost_offset_is_one() -> None:
    with pytest.raises(LossError, match="1 offset was removed from Kafka"):
        check_source("orders_copy", positions_at(2), log_of((3, 10)), ["orders"])


def test_position_at_the_log_start_or_at_the_end_is_fine() -> None:
    check_source("orders_copy", positions_at(4, 10), log_of((4, 10), (4, 10)), ["orders"])


class PlansOverAGrowingLog(RuleBasedStateMachine):
    """S11: whatever the log does, published ranges are contiguous (I1) and disjoint (I2) and end at the position."""

    @initialize(held=st.lists(st.tuples(st.integers(0, 9), st.integers(0, 30)), min_size=1, max_size=4))
    def create_topic(self, held: list[tuple[int, int]]) -> None:
        self.held = [(log_start, log_start + length) for log_start, length in held]
        self.positions: dict[TopicPartition, Position] = {}
        self.published: list[OffsetRange] = []
        self.log_start_when_first_read = {number: log_start for number, (log_start, _) in enumerate(self.held)}

    def _position(self, number: int) -> int | None:
        position = self.positions.get(orders(number))
        return None if position is None else position.next_offset

    @rule(data=st.data(), records=st.integers(1, 40))
    def append_records(self, data: st.DataObject, records: int) -> None:
        number = data.draw(st.integers(0, len(self.held) - 1))
        log_start, end = self.held[number]
        self.held[number] = (log_start, end + records)

    @precondition(lambda self: self.positions)
    @rule(records=st.integers(0, 10))
    def add_partition(self, records: int) -> None:
        self.log_start_when_first_read[len(self.held)] = 0
        self.held.append((0, records))

    @rule(data=st.data())
    def expire_records_that_were_read(self, data: st.DataObject) -> None:
        number = data.draw(st.integers(0, len(self.held) - 1))
        log_start, end = self.held[number]
        position = self._position(number)
        if position is not None:
            self.held[number] = (data.draw(st.integers(log_start, max(log_start, position))), end)

    @rule(limit=st.integers(1, 60))
    def plan_and_publish(self, limit: int) -> None:
        log = log_of(*self.held)
        lag = sum(
            end - (log_start if (at := self._position(number)) is None else at)
            for number, (log_start, end) in enumerate(self.held)
        )
        plan = plan_next(self.positions, log, limit)
        assert count_offsets(plan.ranges) == min(limit, lag)
        assert plan.lag_left_records == lag - count_offsets(plan.ranges)
        assert all(len(each) > 0 for each in plan.ranges)
        assert all(each.until <= log.log_by_partition[each.partition].end for each in plan.ranges)
        self.positions = positions_after(self.positions, plan)
        self.published.extend(plan.ranges)

    @precondition(lambda self: any(self._lagging()))
    @rule(data=st.data())
    def lose_unread_records(self, data: st.DataObject) -> None:
        """A plan over a lost range is refused and names it; the records come back and planning goes on."""
        number = data.draw(st.sampled_from(self._lagging()))
        position, (_, end) = self._position(number), self.held[number]
        assert position is not None
        log_start = data.draw(st.integers(position + 1, end))
        lossy = [*self.held[:number], (log_start, end), *self.held[number + 1 :]]
        with pytest.raises(LossError) as refusal:
            plan_next(self.positions, log_of(*lossy), 10)
        assert refusal.value.ranges == (OffsetRange(TopicPartition("orders", number), position, log_start),)

    def _lagging(self) -> list[int]:
        at = {number: self._position(number) for number in range(len(self.held))}
        return [number for number, offset in at.items() if offset is not None and offset < self.held[number][1]]

    @invariant()
    def published_ranges_are_contiguous_and_disjoint(self) -> None:
        if not hasattr(self, "published"):
            return
        assert find_overlaps(self.published) == []
        assert find_gaps(self.published) == []
        accounted = [
            OffsetRange(each.partition, each.origin_offset, each.next_offset) for each in self.positions.values()
        ]
        assert merge_ranges(self.published) == merge_ranges(accounted)

    @invariant()
    def every_partition_is_read_from_its_beginning(self) -> None:
        for partition, position in getattr(self, "positions", {}).items():
            assert position.origin_offset == self.log_start_when_first_read[partition.partition]


PlansOverAGrowingLog.TestCase.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
TestPlansOverAGrowingLog = PlansOverAGrowingLog.TestCase
