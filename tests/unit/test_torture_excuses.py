"""A weaker mode may differ only if something struck between its commits: otherwise nothing would be unsound."""

import pytest

from batchledger.local.torture.checker import Differences
from batchledger.local.torture.excuses import can_interrupt_publication, find_unexplained
from batchledger.local.torture.schedule import (
    ANOMALY_FAULT,
    AT_LEAST_ONCE,
    AT_MOST_ONCE,
    EXACTLY_ONCE,
    Fault,
    FaultKind,
    SinkKind,
    Way,
)

NOTHING = Differences(0, 0)
LOST = Differences(3, 0, lost=["one", "two", "three"])
HARMLESS = (
    Fault(FaultKind.KILL_WORKER, "audited"),
    Fault(FaultKind.KILL_WORKER, "committed"),
    Fault(FaultKind.KILL_SPARK, "attempt_opened", 0.5),
    Fault(FaultKind.KILL_BROKER, "plan_stored"),
    Fault(FaultKind.CRASH_POSTGRES, "audited"),
    Fault(FaultKind.PAUSE_WORKER, "staged", successor_point="audited"),
    Fault(FaultKind.BLACK_HOLE, "attempt_opened", 0.5, Way.KAFKA),
    Fault(FaultKind.TWO_WORKERS, "staged"),
    Fault(FaultKind.EXPIRE_RECORDS),
    Fault(FaultKind.DEADLY_RECORDS),
    Fault(FaultKind.CHANGE_SETTINGS, "before_commit"),
    Fault(FaultKind.CLOCK_AHEAD, "between_commits"),
)
INTERRUPTING = (
    ANOMALY_FAULT,
    Fault(FaultKind.KILL_WORKER, "before_commit"),
    Fault(FaultKind.KILL_WORKER_AT_RANDOM, seconds=0.0),
    Fault(FaultKind.PAUSE_WORKER, "staged", successor_point="rows_moved"),
    Fault(FaultKind.CRASH_POSTGRES, "attempt_opened", 0.5),
    Fault(FaultKind.LOSE_COMMIT_REPLY, "before_commit"),
    Fault(FaultKind.CUT, "rows_moved", way=Way.WAREHOUSE),
    Fault(FaultKind.KILL_AIRFLOW_TASK, "audited", 0.1),
)


@pytest.mark.parametrize("fault", HARMLESS, ids=str)
def test_fault_that_cannot_fall_between_the_commits_explains_nothing(fault: Fault) -> None:
    assert not can_interrupt_publication(fault)
    assert find_unexplained(AT_MOST_ONCE, NOTHING, LOST, [fault]) == {"lost": ["one", "three", "two"]}


@pytest.mark.parametrize("fault", INTERRUPTING, ids=str)
def test_fault_that_can_fall_between_the_commits_explains_a_difference(fault: Fault) -> None:
    assert find_unexplained(AT_MOST_ONCE, NOTHING, LOST, [HARMLESS[0], fault]) == {}


@pytest.mark.parametrize(
    "fault",
    [
        Fault(FaultKind.KILL_BROKER, "rows_moved"),
        Fault(FaultKind.CUT, "before_commit", way=Way.KAFKA),
        Fault(FaultKind.KILL_WORKER, "sink_committed"),
    ],
    ids=str,
)
def test_what_happens_to_the_broker_explains_a_difference_of_a_topic_only(fault: Fault) -> None:
    assert find_unexplained(AT_MOST_ONCE, NOTHING, LOST, [fault], SinkKind.KAFKA) == {}
    if fault.kind is not FaultKind.KILL_WORKER:
        assert find_unexplained(AT_MOST_ONCE, NOTHING, LOST, [fault]) == {"lost": ["one", "three", "two"]}


def test_at_most_once_only_a_process_that_slept_between_its_commits_explains_that_rows_came_late() -> None:
    late = Differences(2, 2, out_of_order=["one"])
    asleep = Fault(FaultKind.PAUSE_WORKER, "between_commits")
    assert find_unexplained(AT_MOST_ONCE, NOTHING, late, [asleep]) == {}
    assert find_unexplained(AT_MOST_ONCE, NOTHING, late, INTERRUPTING) == {"out_of_order": ["one"]}


def test_at_most_once_that_never_writes_anything_is_found_in_the_first_quiet_round() -> None:
    assert find_unexplained(AT_MOST_ONCE, NOTHING, LOST, []) == {"lost": ["one", "three", "two"]}


def test_at_least_once_that_repeats_a_batch_without_being_interrupted_is_found() -> None:
    repeated = Differences(2, 4, duplicated=["one", "two"])
    assert find_unexplained(AT_LEAST_ONCE, NOTHING, repeated, []) == {"duplicated": ["one", "two"]}


def test_what_an_earlier_round_explains_is_not_asked_about_again() -> None:
    more = Differences(4, 0, lost=[*LOST.lost, "four"])
    assert find_unexplained(AT_MOST_ONCE, LOST, LOST, []) == {}
    assert find_unexplained(AT_MOST_ONCE, LOST, more, []) == {"lost": ["four"]}


def test_kinds_that_a_mode_never_allows_are_left_to_the_verdict() -> None:
    assert find_unexplained(EXACTLY_ONCE, NOTHING, LOST, []) == {}
    assert find_unexplained(AT_LEAST_ONCE, NOTHING, LOST, []) == {}
