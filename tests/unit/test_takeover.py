"""What a pipeline takes over of rows that others wrote: each offset is accounted for, or nothing is taken."""

from collections.abc import Sequence

import pytest

from batchledger.model.balance import Balance, HoleEvidence, HolePolicy
from batchledger.model.batch import Position, TopicIdentity
from batchledger.model.errors import DecisionRefusedError
from batchledger.model.offsets import OffsetRange, TopicPartition
from batchledger.proof.takeover import History, account, begin, find_unread, lay_history
from batchledger.proof.watching import TableCount, WatchedPartition

PARTITION = TopicPartition("payments", 1)
POLICY = HolePolicy.TRANSACTIONAL


def part(start: int, until: int) -> OffsetRange:
    return OffsetRange(PARTITION, start, until)


def lay(rows: Sequence[OffsetRange], *, proved: Sequence[OffsetRange] = ()) -> History:
    """The history of a partition whose watch begins at 100, and whose rows are known if something is proved."""
    known = WatchedPartition(PARTITION, "here", 100, tuple(proved), tuple(rows) if proved else ())
    spans = [part(rows[0].start, rows[-1].until)] if rows else []
    return lay_history([known], spans, {PARTITION: 160})


def see(committed: Sequence[OffsetRange], *, log_start: int = 100, aborted: Sequence[OffsetRange] = ()) -> HoleEvidence:
    """What Kafka has."""
    return HoleEvidence(tuple(committed), (*committed, *aborted), {PARTITION: log_start}, frozenset())


def test_worked_example() -> None:
    rows = [part(40, 60), part(100, 120), part(121, 150)]
    history = lay(rows)
    counted = TableCount(tuple(rows))
    assert find_unread(history, counted, POLICY) == [part(60, 150)]
    (balance,) = account("orders", history, counted, see([part(100, 120), part(121, 160)]), POLICY)
    assert balance == Balance(part(40, 150), accepted=69, markers=1, accepted_loss=40)
    assert balance.is_closed
    identity = TopicIdentity("cluster", "topic")
    assert begin(history, {"payments": identity}) == (Position(PARTITION, 40, 40, identity),)


def test_record_from_before_the_watch_that_kafka_still_has_is_missing_and_not_given_up() -> None:
    rows = [part(40, 60), part(100, 150)]
    history = lay(rows)
    with pytest.raises(DecisionRefusedError, match=r"missing: payments\[1\] 60\.\.100"):
        account("orders", history, TableCount(tuple(rows)), see([part(0, 160)], log_start=0), POLICY)


def test_holes_of_what_was_proved_before_are_read_again_for_their_class() -> None:
    rows = [part(100, 120), part(123, 150)]
    history = lay(rows, proved=[part(100, 150)])
    counted = TableCount(tuple(rows))
    assert find_unread(history, counted, POLICY) == [part(120, 123)]
    (balance,) = account("orders", history, counted, see([], aborted=[part(120, 122)]), POLICY)
    assert (balance.accepted, balance.aborted, balance.markers, balance.accepted_loss) == (47, 2, 1, 0)
    # Without records that Kafka has there, a record that is there is missing.
    with pytest.raises(DecisionRefusedError, match="missing"):
        account("orders", history, counted, see([part(121, 122)]), POLICY)


def test_what_was_proved_and_has_expired_is_given_up_and_what_was_not_proved_is_refused() -> None:
    rows = [part(100, 120), part(121, 150)]
    counted = TableCount(tuple(rows))
    evidence = see([part(130, 160)], log_start=130)
    (balance,) = account("orders", lay(rows, proved=[part(100, 150)]), counted, evidence, POLICY)
    assert (balance.accepted, balance.accepted_loss) == (49, 1)
    with pytest.raises(DecisionRefusedError, match=r"expired: payments\[1\] 100\.\.130"):
        account("orders", lay(rows), counted, evidence, POLICY)


def test_rows_behind_the_readable_end_are_refused() -> None:
    """Records of an open transaction: the pipeline would read them once more when it commits."""
    rows = [part(100, 163)]
    history = lay(rows)
    assert history.ranges == (part(100, 160),)
    with pytest.raises(DecisionRefusedError, match=r"unknown: payments\[1\] 160\.\.163"):
        account("orders", history, TableCount((part(100, 163),)), see([part(100, 160)]), POLICY)


def test_partition_without_rows_begins_where_the_watch_does_and_has_no_range() -> None:
    history = lay([])
    assert account("orders", history, TableCount(()), see([]), POLICY) == ()
    assert [each.next_offset for each in begin(history, {"payments": TopicIdentity("c", "t")})] == [100]


@pytest.mark.parametrize(
    ("counted", "fault"),
    [
        (TableCount((part(100, 150),), repeated=(part(105, 106),)), "twice"),
        (TableCount((part(100, 150),), stray=2), "without coordinates: 2"),
        (TableCount((part(100, 150),), foreign=2), "foreign: 2"),
        (TableCount((part(100, 130), part(131, 150))), "missing"),
    ],
)
def test_whatever_a_look_would_say_is_refused(counted: TableCount, fault: str) -> None:
    with pytest.raises(DecisionRefusedError, match=fault):
        account("orders", lay([part(100, 150)]), counted, see([part(100, 160)]), POLICY)
    proved = TableCount((part(100, 150),))
    assert account("orders", lay([part(100, 150)]), proved, see([part(100, 160)]), POLICY)
