"""What torture does is decided by its seed alone, and in a long run nothing is left out."""

import subprocess
import sys
from collections import Counter

import pytest

from batchledger.local.torture.records import WriteKind
from batchledger.local.torture.schedule import (
    AT_LEAST_ONCE,
    AT_MOST_ONCE,
    BETWEEN_COMMITS,
    EXACTLY_ONCE,
    FIRST_PARTITIONS,
    MODES,
    MOST_PARTITIONS,
    FaultKind,
    Protection,
    Round,
    SinkKind,
    plan_control,
    plan_rounds,
)
from batchledger.model.batch import DeliveryMode
from tests.conftest import ROOT
from tests.fakes.crash import crash_points

LONG = plan_rounds(seed=7, rounds=200, modes=MODES)


def killed_at(rounds: list[Round], mode: str) -> set[str]:
    """Where workers of a mode are killed."""
    return {
        fault.point
        for each in rounds
        if each.mode == mode
        for fault in each.faults
        if fault.kind is FaultKind.KILL_WORKER
    }


def test_the_same_seed_gives_the_same_rounds_in_another_process() -> None:
    program = "from batchledger.local.torture.schedule import *; print(plan_rounds(7, 200, MODES))"
    told = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT / "include", capture_output=True, text=True, check=True, timeout=60
    )
    assert told.stdout.strip() == str(LONG)


def test_another_seed_gives_other_rounds() -> None:
    assert plan_rounds(8, 200, MODES) != LONG


def test_modes_are_those_of_the_platform() -> None:
    assert set(MODES) == set(DeliveryMode)


def test_modes_take_turns() -> None:
    assert Counter(each.mode for each in LONG) == {EXACTLY_ONCE: 67, AT_LEAST_ONCE: 67, AT_MOST_ONCE: 66}


def test_about_a_quarter_of_the_rounds_is_quiet() -> None:
    quiet = sum(not each.faults for each in LONG)
    assert 0.15 <= quiet / len(LONG) <= 0.35


def test_a_long_run_meets_every_kind_of_fault_in_every_mode() -> None:
    for mode in MODES:
        met = {fault.kind for each in LONG if each.mode == mode for fault in each.faults}
        # Which way a transaction ends is drawn by lot in each deck. The weaker modes have no stream.
        missing = {FaultKind.COMMIT_LATE, FaultKind.ABORT_LATE}
        assert set(FaultKind) - met <= missing | (set() if mode == EXACTLY_ONCE else {FaultKind.CUT_STREAM})


@pytest.mark.parametrize("sink", SinkKind)
def test_a_long_run_kills_a_worker_at_every_crash_point_of_every_mode(sink: SinkKind) -> None:
    rounds = plan_rounds(11, 1000, MODES, sink)
    for mode in DeliveryMode:
        assert killed_at(rounds, mode) == set(crash_points(mode, is_foreign=sink is not SinkKind.POSTGRES))


@pytest.mark.parametrize("mode", [AT_LEAST_ONCE, AT_MOST_ONCE])
def test_the_first_fault_of_a_weaker_mode_is_the_one_that_shows_its_anomaly(mode: str) -> None:
    (first,) = next(each.faults for each in plan_rounds(3, 2, [mode]))
    assert (first.kind, first.point) == (FaultKind.KILL_WORKER, BETWEEN_COMMITS)


@pytest.mark.parametrize("mode", MODES)
def test_a_short_run_writes_poison_in_every_mode(mode: str) -> None:
    faults = {fault.kind for each in plan_rounds(3, 20, MODES) if each.mode == mode for fault in each.faults}
    assert FaultKind.POISON in faults


def test_exactly_once_has_no_point_between_commits() -> None:
    points = {fault.point for each in plan_rounds(3, 200, [EXACTLY_ONCE]) for fault in each.faults}
    assert BETWEEN_COMMITS not in points


def test_partitions_are_never_added_beyond_the_limit() -> None:
    faults = [fault.kind for each in plan_rounds(3, 600, [EXACTLY_ONCE]) for fault in each.faults]
    assert faults.count(FaultKind.ADD_PARTITION) == MOST_PARTITIONS - FIRST_PARTITIONS


def test_every_round_writes_records_that_are_not_aborted_before_anything_strikes() -> None:
    assert all(each.before[0].guarantee is not WriteKind.ABORT for each in LONG)


def test_airflow_takes_part_in_a_long_run_once_for_each_mode_side_by_side() -> None:
    with_airflow = [each.number for each in LONG if each.needs_airflow]
    assert with_airflow == list(range(with_airflow[0], with_airflow[0] + 3))
    assert not any(each.needs_airflow for each in plan_rounds(7, 99, MODES))


@pytest.mark.parametrize("without", Protection)
def test_every_round_of_a_control_claims_exactly_once_and_holds_aborted_records(without: Protection) -> None:
    for each in plan_control(1, 3, without):
        assert each.mode == EXACTLY_ONCE
        assert WriteKind.ABORT in {chunk.guarantee for chunk in each.before}
