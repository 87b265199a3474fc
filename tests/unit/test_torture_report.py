"""The verdict follows from what was found and from what the mode allows."""

import json
from typing import Any

import pytest

from batchledger.local.torture.campaign import RoundResult
from batchledger.local.torture.checker import Differences
from batchledger.local.torture.records import WriteKind
from batchledger.local.torture.report import TortureReport, explanations, make_report
from batchledger.local.torture.schedule import (
    ANOMALY_FAULT,
    AT_LEAST_ONCE,
    AT_MOST_ONCE,
    EXACTLY_ONCE,
    MODES,
    Chunk,
    Fault,
    FaultKind,
    Round,
)

KINDS = ("lost", "duplicated", "phantom", "out_of_order", "wrong_value", "broker_lost", "not_set_aside")
ALLOWED = {(AT_LEAST_ONCE, "duplicated"), (AT_MOST_ONCE, "lost"), (AT_MOST_ONCE, "out_of_order")}


def report(mode: str, differences: Differences, stuck: str | None = None) -> TortureReport:
    faults = (Fault(FaultKind.KILL_WORKER, "staged"), Fault(FaultKind.KILL_SPARK, "attempt_opened"))
    return torture(result(mode, faults, faults[:1], stuck=stuck), differences)


def result(mode: str, planned: tuple[Fault, ...], struck: tuple[Fault, ...], **more: Any) -> RoundResult:
    """What came of a round whose other faults came too late."""
    round_ = Round(1, mode, (Chunk(WriteKind.ABORT, 5),), (Chunk(WriteKind.COMMIT, 5),), planned)
    missed = tuple(each for each in planned if each not in struck)
    return RoundResult(round_, struck, missed, 2, 4.0, **more)


def torture(only: RoundResult, differences: Differences) -> TortureReport:
    return make_report(3, [only], {only.round.mode: differences}, (), 5.0)


@pytest.mark.parametrize("mode", MODES)
def test_no_difference_keeps_every_promise(mode: str) -> None:
    assert report(mode, Differences(10, 10)).keeps_promises


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", KINDS)
def test_a_difference_breaks_the_promise_unless_the_mode_allows_it(mode: str, kind: str) -> None:
    found = report(mode, Differences(10, 10, **{kind: ["one"]}))
    assert found.keeps_promises is ((mode, kind) in ALLOWED)


@pytest.mark.parametrize("mode", MODES)
def test_a_pipeline_that_is_stuck_breaks_its_promise(mode: str) -> None:
    found = report(mode, Differences(10, 10), stuck="PositionConflictError")
    assert not found.keeps_promises
    assert explanations(found) == [f"{mode} is stuck: PositionConflictError"]


def test_weaker_modes_say_whether_their_anomaly_was_seen() -> None:
    seen = [
        report(EXACTLY_ONCE, Differences(1, 1)).modes[0].anomaly_seen,
        report(AT_LEAST_ONCE, Differences(1, 1)).modes[0].anomaly_seen,
        report(AT_LEAST_ONCE, Differences(1, 2, duplicated=["one"])).modes[0].anomaly_seen,
        report(AT_MOST_ONCE, Differences(1, 0, lost=["one"])).modes[0].anomaly_seen,
    ]
    assert seen == [None, False, True, True]


@pytest.mark.parametrize("mode", MODES)
def test_loss_of_the_broker_breaks_the_promise_and_is_told(mode: str) -> None:
    """A killed broker leaves what it has acknowledged in the memory of the machine, so it may lose nothing."""
    found = report(mode, Differences(10, 10, broker_lost=["one"]))
    assert not found.keeps_promises
    assert explanations(found) == [f"{mode}: 1 broker lost, for example one"]


@pytest.mark.parametrize("mode", MODES)
def test_run_that_wrote_nothing_shows_nothing(mode: str) -> None:
    found = report(mode, Differences(0, 0))
    assert not found.keeps_promises
    assert explanations(found) == [f"{mode}: nothing was written, so nothing was shown"]


@pytest.mark.parametrize("mode", MODES)
def test_run_whose_every_fault_came_too_late_shows_nothing(mode: str) -> None:
    fault = Fault(FaultKind.KILL_SPARK, "attempt_opened")
    found = torture(result(mode, planned=(fault,), struck=()), Differences(10, 10))
    assert not found.keeps_promises
    assert explanations(found) == ["every fault came too late, so nothing was put to the test"]


def test_quiet_run_keeps_its_promise() -> None:
    assert torture(result(AT_MOST_ONCE, planned=(), struck=()), Differences(10, 10)).keeps_promises


@pytest.mark.parametrize("mode", [AT_LEAST_ONCE, AT_MOST_ONCE])
def test_weaker_mode_that_is_exact_although_it_was_killed_between_its_commits_is_doubted(mode: str) -> None:
    found = torture(result(mode, planned=(ANOMALY_FAULT,), struck=(ANOMALY_FAULT,)), Differences(10, 10))
    assert not found.keeps_promises
    assert "killed between the two commits" in explanations(found)[0]


@pytest.mark.parametrize("mode", [AT_LEAST_ONCE, AT_MOST_ONCE])
def test_weaker_mode_need_not_show_its_anomaly_when_the_kill_between_its_commits_came_too_late(mode: str) -> None:
    other = Fault(FaultKind.KILL_WORKER, "staged")
    found = torture(result(mode, planned=(ANOMALY_FAULT, other), struck=(other,)), Differences(10, 10))
    assert found.keeps_promises


def test_allowed_difference_that_nothing_explains_breaks_the_promise() -> None:
    unexplained = {"lost": ["one", "two"]}
    found = torture(result(AT_MOST_ONCE, (), (), unexplained=unexplained), Differences(10, 8, lost=["one", "two"]))
    assert (found.keeps_promises, found.modes[0].violations) == (False, {"lost": 2})
    assert explanations(found) == ["at_most_once: 2 lost, for example one, two"]


def test_errors_of_a_drain_are_told_and_break_nothing() -> None:
    found = torture(result(EXACTLY_ONCE, (), (), drain_errors=("StagingError: gone",)), Differences(10, 10))
    assert found.keeps_promises
    assert explanations(found) == ["exactly_once: drained all the same after round 1: StagingError: gone"]


def test_faults_that_came_too_late_do_not_count_as_survived() -> None:
    (mode,) = report(EXACTLY_ONCE, Differences(10, 10)).modes
    assert (mode.survived, mode.missed) == ({"worker killed": 1, "transaction aborted": 1}, 1)


def test_report_as_json_holds_the_verdict_and_few_examples() -> None:
    found = report(EXACTLY_ONCE, Differences(1000, 0, lost=[f"id{n}" for n in range(1000)]))
    document = json.loads(json.dumps(found.as_document()))
    (mode,) = document["modes"]
    assert (document["keeps_promises"], mode["keeps_promise"], mode["violations"]) == (False, False, {"lost": 1000})
    assert len(mode["examples"]["lost"]) == 20
