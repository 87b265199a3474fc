"""When a run begins because records are there."""

from dataclasses import replace

import pytest

from batchledger.model.batch import BatchState
from batchledger.model.offsets import TopicPartition
from batchledger.monitoring.starting import (
    FIRST_PATIENCE_SECONDS,
    LONGEST_PATIENCE_SECONDS,
    AwaitedRun,
    StartFacts,
    await_run,
    count_unread,
    expect_run,
    is_patient,
    may_start,
)
from batchledger.planning.live import Limits

FIRST, SECOND = TopicPartition("orders", 0), TopicPartition("orders", 1)
READ = StartFacts({FIRST: 10, SECOND: 5}, seconds_since_published=1.0)
ENDS = {FIRST: 10, SECOND: 5}
LIMITS = Limits(max_records=100)


def test_nothing_unread_starts_nothing() -> None:
    assert not may_start(READ, ENDS, LIMITS)


def test_one_record_is_enough() -> None:
    ends = {**ENDS, SECOND: 6}
    assert may_start(READ, ends, LIMITS)
    assert count_unread(READ, ends) == 1


@pytest.mark.parametrize(("unread", "seconds", "starts"), [(3, 299.0, False), (3, 300.0, True), (4, 0.0, True)])
def test_few_records_wait_as_long_as_the_plan_would_let_them(unread: int, seconds: float, starts: bool) -> None:
    facts = replace(READ, seconds_since_published=seconds)
    assert may_start(facts, {**ENDS, FIRST: 10 + unread}, replace(LIMITS, min_records=4)) is starts


@pytest.mark.parametrize("state", list(BatchState))
def test_open_batch_goes_on_unless_it_waits_for_a_person(state: BatchState) -> None:
    if not state.is_final:
        assert may_start(replace(READ, open_batch=(17, state)), ENDS, LIMITS) is (state is not BatchState.BLOCKED)


def test_blocked_or_paused_pipeline_starts_nothing_however_much_waits() -> None:
    ends = {FIRST: 10**6, SECOND: 10**6}
    assert not may_start(replace(READ, open_batch=(17, BatchState.BLOCKED)), ends, LIMITS)
    assert not may_start(replace(READ, is_paused=True), ends, LIMITS)


def test_partition_without_a_position_starts_a_run_which_notes_where_it_begins() -> None:
    assert may_start(READ, {**ENDS, TopicPartition("orders", 2): 0}, LIMITS)
    assert may_start(StartFacts({}), ENDS, LIMITS)


def test_position_that_the_log_does_not_have_starts_a_run_which_says_what_is_wrong() -> None:
    assert may_start(READ, {**ENDS, SECOND: 4}, LIMITS), "truncated"
    assert may_start(READ, {FIRST: 10}, LIMITS), "fewer partitions"
    assert may_start(READ, {}, LIMITS), "no topic"


def test_topic_that_never_was_there_starts_nothing() -> None:
    assert not may_start(StartFacts({}), {}, LIMITS)


def test_position_behind_the_end_does_not_hide_what_waits_elsewhere() -> None:
    assert count_unread(READ, {FIRST: 4, SECOND: 7}) == 2


def test_run_that_was_asked_for_gets_time_and_more_of_it_while_it_achieves_nothing() -> None:
    patience: AwaitedRun | None = None
    now, waits = 0.0, []
    for _ in range(8):
        patience = expect_run(patience, READ, now)
        waits.append(patience.until - now)
        assert is_patient(patience, READ, patience.until - 0.1)
        assert not is_patient(patience, READ, patience.until)
        now = patience.until
    assert waits == [5, 10, 20, 40, 80, 160, 300, 300]
    assert (waits[0], waits[-1]) == (FIRST_PATIENCE_SECONDS, LONGEST_PATIENCE_SECONDS)


@pytest.mark.parametrize(
    "after",
    [
        replace(READ, next_offset_by_partition={FIRST: 11, SECOND: 5}),
        replace(READ, next_offset_by_partition={FIRST: 0, SECOND: 5}),
        replace(READ, open_batch=(17, BatchState.PLANNED)),
    ],
    ids=["published", "rewound", "planned"],
)
def test_progress_ends_the_patience(after: StartFacts) -> None:
    patience = expect_run(expect_run(None, READ, 0.0), READ, 5.0)
    assert not is_patient(patience, after, 5.1)
    assert expect_run(patience, after, 5.1).until == 5.1 + FIRST_PATIENCE_SECONDS


def test_end_of_a_run_is_noticed_a_quarter_of_its_time_later_at_most() -> None:
    patience = await_run(None, READ, 0.0)
    assert not is_patient(patience, READ, 0.0)
    asked = []
    now = 1.0
    while now < 3600:
        patience = await_run(patience, READ, now)
        asked.append(now)
        assert patience.until <= now * 1.25
        now = max(now + 1.0, patience.until)
    assert len(asked) < 40, "an hour in a queue costs few questions"
