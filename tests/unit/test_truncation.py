"""Emptying the table of a rewind: which rows may go, on the values alone."""

import pytest

from batchledger.model.batch import LogState, PartitionLog, TopicIdentity
from batchledger.model.errors import DecisionRefusedError, ExpiredError, PositionConflictError
from batchledger.model.offsets import OffsetRange, TopicPartition
from batchledger.planning.live import StartPolicy
from batchledger.planning.rewind import (
    ResolvedRewind,
    Rewind,
    check_truncation,
    require_checked,
    require_present,
)
from tests.fakes.world import PIPELINE

ORDERS_0, ORDERS_1, BILLS_0 = TopicPartition("orders", 0), TopicPartition("orders", 1), TopicPartition("bills", 0)


def log_from(start: int) -> LogState:
    """Both partitions of orders, from the same offset on."""
    held = PartitionLog(start, 2000)
    return LogState({"orders": TopicIdentity("cluster", "topic")}, {ORDERS_0: held, ORDERS_1: held})


def empty(*, allow_expired: bool = False) -> Rewind:
    return Rewind(StartPolicy.EARLIEST, truncate=True, allow_expired=allow_expired)


def test_rows_that_are_all_read_again_may_go_and_nothing_is_given_up() -> None:
    held = [OffsetRange(ORDERS_0, 1200, 1800)]
    assert check_truncation(PIPELINE, empty(), {ORDERS_0: 1200}, held, log_from(1200)) == ()


def test_rows_before_what_is_read_again_keep_the_table_from_being_emptied() -> None:
    held = [OffsetRange(ORDERS_0, 1300, 1800)]
    with pytest.raises(DecisionRefusedError) as refused:
        check_truncation(PIPELINE, empty(), {ORDERS_0: 1500}, held, log_from(1200))
    assert refused.value.ranges == (OffsetRange(ORDERS_0, 1300, 1500),)


def test_rows_of_a_topic_that_is_read_no_more_keep_the_table_from_being_emptied() -> None:
    held = [OffsetRange(BILLS_0, 0, 5), OffsetRange(ORDERS_0, 1200, 1800)]
    with pytest.raises(DecisionRefusedError) as refused:
        check_truncation(PIPELINE, empty(allow_expired=True), {ORDERS_0: 1200}, held, log_from(1200))
    assert refused.value.ranges == (OffsetRange(BILLS_0, 0, 5),)


def test_rows_that_kafka_has_removed_are_given_up_only_where_the_person_allows_it() -> None:
    held = [OffsetRange(ORDERS_0, 0, 1800), OffsetRange(ORDERS_1, 1100, 1201)]
    offsets = {ORDERS_0: 1200, ORDERS_1: 1200}
    gone = (OffsetRange(ORDERS_0, 0, 1200), OffsetRange(ORDERS_1, 1100, 1200))
    with pytest.raises(ExpiredError) as refused:
        check_truncation(PIPELINE, empty(), offsets, held, log_from(1200))
    assert refused.value.ranges == gone
    assert check_truncation(PIPELINE, empty(allow_expired=True), offsets, held, log_from(1200)) == gone


def test_table_whose_lost_rows_were_all_given_up_may_be_emptied() -> None:
    given_up = (OffsetRange(ORDERS_0, 0, 1200), OffsetRange(BILLS_0, 0, 5))
    held = [OffsetRange(ORDERS_0, 0, 1800), OffsetRange(BILLS_0, 0, 5)]
    require_checked(PIPELINE, ResolvedRewind(1, {ORDERS_0: 1200}, given_up), held)


@pytest.mark.parametrize(
    ("come", "unseen"),
    [
        (OffsetRange(ORDERS_0, 1100, 1300), OffsetRange(ORDERS_0, 1100, 1200)),
        (OffsetRange(BILLS_0, 0, 5), OffsetRange(BILLS_0, 0, 5)),
        (OffsetRange(ORDERS_1, 0, 2), OffsetRange(ORDERS_1, 0, 1)),
    ],
)
def test_rows_that_came_into_the_table_after_the_check_keep_it_from_being_emptied(
    come: OffsetRange, unseen: OffsetRange
) -> None:
    checked = ResolvedRewind(1, {ORDERS_0: 1200, ORDERS_1: 1}, given_up=(OffsetRange(ORDERS_0, 0, 1100),))
    held = [OffsetRange(ORDERS_0, 0, 1100), OffsetRange(ORDERS_0, 1200, 1800), come]
    with pytest.raises(PositionConflictError) as refused:
        require_checked(PIPELINE, checked, held)
    assert refused.value.ranges == (unseen,)


def test_rewind_fits_only_the_epoch_that_it_was_resolved_in() -> None:
    require_present(PIPELINE, ResolvedRewind(3, {ORDERS_0: 5}), 3, {ORDERS_0: 5})
    for epoch in (2, 4):
        with pytest.raises(PositionConflictError, match="in the meantime"):
            require_present(PIPELINE, ResolvedRewind(3, {ORDERS_0: 5}), epoch, {ORDERS_0: 5})


@pytest.mark.parametrize("stored", [{ORDERS_0: 4}, {}])
def test_rewind_is_refused_where_the_stored_position_lies_before_it(stored: dict[TopicPartition, int]) -> None:
    with pytest.raises(PositionConflictError, match="forwards"):
        require_present(PIPELINE, ResolvedRewind(3, {ORDERS_0: 5}), 3, stored)
    with pytest.raises(PositionConflictError, match="forwards"):
        require_present(PIPELINE, ResolvedRewind(3, {ORDERS_0: 0}), 3, {})
