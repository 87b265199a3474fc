"""The verdict follows from what was found and from what the mode allows."""

import json

import pytest

from batchledger.torture.campaign import RoundResult
from batchledger.torture.checker import Differences
from batchledger.torture.records import Guarantee
from batchledger.torture.report import TortureReport, explanations, make_report
from batchledger.torture.schedule import (
    AT_LEAST_ONCE,
    AT_MOST_ONCE,
    EXACTLY_ONCE,
    MODES,
    Chunk,
    Fault,
    FaultKind,
    Round,
)

KINDS = ("lost", "duplicated", "phantom", "out_of_order", "wrong_value")
ALLOWED = {(AT_LEAST_ONCE, "duplicated"), (AT_MOST_ONCE, "lost")}


def report(mode: str, differences: Differences, stuck: str | None = None) -> TortureReport:
    """The report of one round."""
    faults = (Fault(FaultKind.KILL_WORKER, "staged"), Fault(FaultKind.KILL_SPARK, "attempt_opened"))
    round_ = Round(1, mode, (Chunk(Guarantee.ABORT, 5),), (Chunk(Guarantee.COMMIT, 5),), faults)
    result = RoundResult(round_, faults[:1], faults[1:], 2, 4.0, stuck)
    return make_report(3, [result], {mode: differences}, (), 5.0)


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


def test_losses_of_the_broker_are_told_and_break_no_promise() -> None:
    found = report(EXACTLY_ONCE, Differences(10, 10, broker_lost=["one"]))
    assert found.keeps_promises
    assert explanations(found) == ["exactly_once: the broker acknowledged 1 records that its log does not hold"]


def test_faults_that_came_too_late_do_not_count_as_survived() -> None:
    (mode,) = report(EXACTLY_ONCE, Differences(10, 10)).modes
    assert (mode.survived, mode.missed) == ({"worker killed": 1, "transaction aborted": 1}, 1)


def test_report_as_json_holds_the_verdict_and_few_examples() -> None:
    found = report(EXACTLY_ONCE, Differences(1000, 0, lost=[f"id{n}" for n in range(1000)]))
    document = json.loads(json.dumps(found.as_document()))
    (mode,) = document["modes"]
    assert (document["keeps_promises"], mode["keeps_promise"], mode["violations"]) == (False, False, {"lost": 1000})
    assert len(mode["examples"]["lost"]) == 20
