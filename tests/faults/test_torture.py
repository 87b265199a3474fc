"""Torture as people start it, and its controls: each protection taken out of the platform must be found."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psutil
import pytest

from batchledger.local.stack.processes import STACK_COOKIE
from batchledger.local.torture.schedule import SinkKind
from tests.conftest import ROOT, SERVICES
from tests.faults.torture_controls import FAULTS_BY_SINK, QUICK_FAULTS

KIND_BY_PROTECTION = {
    "fencing": "duplicated",
    "compare_and_swap": "duplicated",
    "read_committed": "phantom",
    "one_transaction": "duplicated",
}
COMMAND = ("-c", "from batchledger.cli import main; main()", "torture")

pytestmark = pytest.mark.timeout(1_800)


def run_python(local: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a program whose stack lives in a folder of its own."""
    environment = {**os.environ, "BATCHLEDGER_LOCAL": str(local)}
    # The settings of this test run's stack are not for torture's.
    for name in ("AIRFLOW_HOME", "AIRFLOW_CONFIG", "BATCHLEDGER_PIPELINES"):
        environment.pop(name, None)
    command = [sys.executable, *arguments]
    return subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=1_500, check=False
    )


def find_processes(local: Path) -> list[psutil.Process]:
    """What is left of torture's stack."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get(STACK_COOKIE) == str(local / "torture"):
                found.append(process)
        except (psutil.Error, OSError):
            continue
    return found


@pytest.fixture(scope="module")
def told() -> Mapping[str, Any]:
    """What came of the controls and of the short campaign, all of one stack."""
    done = run_python(SERVICES.home.local / "controls", "-m", "tests.faults.torture_controls")
    assert done.returncode == 0, done.stderr[-3000:]
    reports: Mapping[str, Any] = json.loads(done.stdout)
    return reports


@pytest.mark.parametrize(("protection", "kind"), KIND_BY_PROTECTION.items())
def test_without_a_protection_torture_finds_the_promise_broken(
    told: Mapping[str, Any], protection: str, kind: str
) -> None:
    """S35, S57: the negative controls."""
    report = told["controls"][protection]
    (mode,) = report["modes"]
    assert mode["missed"] == 0, "the fault that this protection stands against came too late: nothing was tried"
    assert (report["keeps_promises"], mode["mode"]) == (False, "exactly_once")
    assert set(mode["violations"]) == {kind}
    assert mode["examples"][kind]


def test_every_protection_has_its_control(told: Mapping[str, Any]) -> None:
    assert set(told["controls"]) == set(KIND_BY_PROTECTION)


def test_exactly_once_survives_every_quick_fault_one_after_the_other_under_load(told: Mapping[str, Any]) -> None:
    """S83, S84, S85, S102, S106: each of them strikes, the clean stops of worker, broker and database among them."""
    report = told["campaign"]
    (mode,) = report["modes"]
    assert mode["missed"] == 0, mode["survived"]
    assert set(mode["survived"]) == {*(fault.kind for fault in QUICK_FAULTS), "transaction aborted"}
    assert report["faults_struck"] == len(QUICK_FAULTS)
    assert mode["records"] > 0
    assert (mode["violations"], mode["stuck"], report["surprises"]) == ({}, None, [])
    assert report["keeps_promises"]


@pytest.mark.parametrize("sink", FAULTS_BY_SINK)
def test_foreign_sink_holds_each_record_once_whatever_strikes_around_its_commit(
    told: Mapping[str, Any], sink: SinkKind
) -> None:
    """S71, S93, S104: also when the database crashes between the two commits."""
    report = told[str(sink)]
    (mode,) = report["modes"]
    assert mode["missed"] == 0, mode["survived"]
    assert report["faults_struck"] == len(FAULTS_BY_SINK[sink])
    assert mode["records"] > 0
    assert (mode["violations"], mode["stuck"], report["surprises"]) == ({}, None, [])
    assert report["keeps_promises"]


def test_rows_that_were_shown_too_late_are_out_of_order_although_batch_and_transaction_have_lower_numbers(
    told: Mapping[str, Any],
) -> None:
    """S107: what counts is the order of commits, in the words of the database."""
    assert told["late"] == ["id0"]


def test_torture_tells_what_each_mode_did_and_leaves_nothing_running() -> None:
    """S83, S85: three rounds, one a mode; in the weaker ones a worker is killed between the two commits."""
    local = SERVICES.home.local / "torture-command"
    file = local.with_suffix(".json")
    done = run_python(local, *COMMAND, "--rounds", "3", "--seed", "5", "--json", "--report", str(file))
    assert done.returncode == 0, done.stderr[-3000:]
    report = json.loads(done.stdout)
    assert json.loads(file.read_text()) == report
    assert "batchledger torture --rounds 3 --mode all --seed 5" in done.stderr
    found = {mode["mode"]: (mode["keeps_promise"], mode["anomaly_seen"]) for mode in report["modes"]}
    assert found == {"exactly_once": (True, None), "at_least_once": (True, True), "at_most_once": (True, True)}
    assert report["surprises"] == []
    assert find_processes(local) == []


def test_unknown_mode_is_a_matter_of_usage() -> None:
    done = run_python(SERVICES.home.local / "usage", *COMMAND, "--mode", "maybe_once")
    assert done.returncode == 2
    assert "maybe_once" in done.stderr
