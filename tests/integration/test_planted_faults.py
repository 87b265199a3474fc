"""Faults that a producer outside of the platform plants in a real topic: found, named exactly, and nothing published.

Each fault has a clean twin that passes, and a control: with its protection taken out of the file it goes unnoticed.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from batchledger.lifecycle import run_batch
from batchledger.lifecycle.ownership import load_batch
from batchledger.model.batch import Batch
from batchledger.model.checks import IntegrityCheck
from batchledger.model.errors import BatchBlockedError
from batchledger.wiring import verify_pipeline
from tests.fakes.crash import CrashOnce, SimulatedCrashError
from tests.integration.test_cli import ask, batchledger
from tests.support import TestPipeline, Workplace

SCHEMA = "message_id string, device_id int, seq bigint"
ONCE = {"dedupe": {"key": ["message_id"], "remember": "30d", "duplicates": "block"}}
DROPPED = {"dedupe": {"key": ["message_id"], "remember": "30d", "duplicates": "drop"}}
NUMBERED = {"sequence": {"key": ["device_id"], "number": "seq"}}
FROM_ONE = {"sequence": {"key": ["device_id"], "number": "seq", "starts_at": 1}}
POISON = b'{"message_id": '


@dataclass(frozen=True)
class Fault:
    """Records of one partition: ``7.1`` is number 1 of device 7, and its own message id.

    ``before`` are published, ``planted`` come next and are found by ``check`` at ``found``, ``twin`` come instead.
    """

    file: Mapping[str, Any]
    unprotected: Mapping[str, Any]
    before: str
    planted: str
    twin: str
    check: str
    found: Sequence[str]


FAULTS = {
    "message id twice in one batch": Fault(
        ONCE, DROPPED, "", "7.1 7.2 7.1", "7.1 7.2 7.3", "no_duplicate_messages", ["2 (repeats 0)"]
    ),
    "message id across batches": Fault(
        ONCE, DROPPED, "7.1 7.2", "7.3 7.2 7.1", "7.3 7.4", "no_duplicate_messages", ["3 (repeats 1)", "4 (repeats 0)"]
    ),
    "record that never reached the broker": Fault(
        NUMBERED,
        {},
        "7.1 8.1",
        "8.2 7.5 8.3",
        "8.2 7.2 8.3",
        "no_missing_numbers",
        ["3 (2..4 missing before 5)"],
    ),
    "record lost within a batch": Fault(
        NUMBERED, {}, "", "7.4 7.5 7.7", "7.4 7.5 7.6", "no_missing_numbers", ["2 (6 missing before 7)"]
    ),
    "number that comes again": Fault(
        NUMBERED, {}, "7.1 7.2", "7.2 7.3", "7.3 7.4", "no_repeated_numbers", ["2 (2 came again)"]
    ),
    "restart of a numbering that has no start": Fault(
        NUMBERED,
        FROM_ONE,
        "7.1 7.2",
        "7.3 7.1 7.2",
        "7.3 7.4",
        "no_repeated_numbers",
        ["3 (1 came again)", "4 (2 came again)"],
    ),
}


def send(pipeline: TestPipeline, records: str) -> None:
    """Write records as any other program would."""
    pipeline.send_raw(
        (0, json.dumps({"message_id": each, "device_id": int(each[0]), "seq": int(each[2:])}).encode())
        for each in records.split()
    )


def create(workplace: Workplace, file: Mapping[str, Any], before: str = "") -> TestPipeline:
    """A pipeline that has published ``before``."""
    pipeline = workplace.create(partitions=1, source={"schema": SCHEMA}, **file)
    if before:
        send(pipeline, before)
        take(pipeline)
    return pipeline


def take(pipeline: TestPipeline) -> Batch:
    """Publish the next batch."""
    batch = run_batch.run_once(pipeline.platform(), "run")
    assert batch is not None
    return batch


def checks_of(batch_id: int) -> dict[str, Any]:
    """What the ledger has of the checks of a batch, by name."""
    return {each["name"]: each for each in ask("batch", str(batch_id))["checks"]}


def assert_found(pipeline: TestPipeline, fault: Fault) -> int:
    """The next batch is blocked by the fault alone, which is named exactly and can be looked at; return its id."""
    rows = pipeline.count_target_rows()
    with pytest.raises(BatchBlockedError) as blocked:
        run_batch.run_once(pipeline.platform(), "run")
    batch_id = blocked.value.batch_id
    checks = checks_of(batch_id)
    assert [name for name, each in checks.items() if each["outcome"] != "passed"] == [fault.check]
    named = [each.replace(f"{pipeline.name}[0]@", "") for each in checks[fault.check]["observed"]["coordinates"]]
    assert named == fault.found
    arguments = checks[fault.check]["observed"]["command"].split('"')[1::2]
    shown = ask("records", pipeline.name, *arguments)["records"]
    assert [str(each["offset"]) for each in shown] == [each.split()[0] for each in fault.found]
    assert pipeline.count_target_rows() == rows
    return batch_id


@pytest.mark.parametrize("name", FAULTS)
def test_planted_fault_blocks_its_batch_and_is_named_exactly(workplace: Workplace, name: str) -> None:
    fault = FAULTS[name]
    pipeline = create(workplace, fault.file, fault.before)
    send(pipeline, fault.planted)
    assert_found(pipeline, fault)


@pytest.mark.parametrize("name", FAULTS)
def test_clean_twin_passes(workplace: Workplace, name: str) -> None:
    fault = FAULTS[name]
    pipeline = create(workplace, fault.file, fault.before)
    send(pipeline, fault.twin)
    checks = checks_of(take(pipeline).batch_id)
    assert {each["outcome"] for each in checks.values()} == {"passed"}
    assert fault.check in checks
    assert pipeline.count_target_rows() == len(fault.before.split() + fault.twin.split())


@pytest.mark.parametrize("name", FAULTS)
def test_control_without_its_protection_the_fault_is_not_found(workplace: Workplace, name: str) -> None:
    fault = FAULTS[name]
    pipeline = create(workplace, fault.unprotected, fault.before)
    send(pipeline, fault.planted)
    with pytest.raises(pytest.fail.Exception, match="DID NOT RAISE"):
        assert_found(pipeline, fault)


RESTART = Fault(ONCE, DROPPED, "7.1 7.2", "7.3 7.2", "7.3 7.4", "no_duplicate_messages", ["3 (repeats 1)"])


def create_and_crash(workplace: Workplace, file: Mapping[str, Any]) -> TestPipeline:
    """A pipeline whose process died when it had committed ``before``."""
    pipeline = create(workplace, file)
    send(pipeline, RESTART.before)
    with pytest.raises(SimulatedCrashError):
        run_batch.run_once(pipeline.platform(CrashOnce("committed")), "dies")
    return pipeline


def test_message_that_a_restarted_producer_sends_again_after_a_crash_of_the_platform_is_found(
    workplace: Workplace,
) -> None:
    """Both forget what they were about, and the ledger does not."""
    pipeline = create_and_crash(workplace, RESTART.file)
    send(pipeline, RESTART.planted)
    batch_id = assert_found(pipeline, RESTART)
    done = batchledger("accept", str(batch_id), "--reason", "the producer was restarted")
    assert done.returncode == 0, done.stderr
    assert pipeline.count_target_rows() == 3
    assert verify_pipeline(pipeline.config).holds


def test_clean_twin_of_a_restarted_producer_passes_after_a_crash_of_the_platform(workplace: Workplace) -> None:
    pipeline = create_and_crash(workplace, RESTART.file)
    send(pipeline, RESTART.twin)
    assert {each["outcome"] for each in checks_of(take(pipeline).batch_id).values()} == {"passed"}
    assert pipeline.count_target_rows() == 4


def test_control_without_its_protection_the_restarted_producer_is_not_found(workplace: Workplace) -> None:
    pipeline = create_and_crash(workplace, RESTART.unprotected)
    send(pipeline, RESTART.planted)
    with pytest.raises(pytest.fail.Exception, match="DID NOT RAISE"):
        assert_found(pipeline, RESTART)


@pytest.mark.parametrize(
    ("rules", "before", "records", "late"),
    [(NUMBERED, "7.1 7.3", "7.2 7.4", 1), (NUMBERED, "7.1 7.2", "7.3 7.4", 0), ({}, "7.1 7.3", "7.2 7.4", None)],
    ids=["late", "clean twin", "negative control"],
)
def test_record_that_is_late_is_told_with_the_gap_that_it_fills(
    workplace: Workplace, rules: Mapping[str, Any], before: str, records: str, late: int | None
) -> None:
    file = {"sequence": {**rules["sequence"], "severity": "warning"}} if rules else {}
    pipeline = create(workplace, file, before)
    send(pipeline, records)
    check = checks_of(take(pipeline).batch_id).get("no_missing_numbers")
    assert (check and check["observed"]["late"]) == late
    assert ("late: 1" in check["detail"] if check else False) is bool(late)
    assert pipeline.count_target_rows() == 4


def test_restart_and_late_records_are_told_and_pass(workplace: Workplace) -> None:
    pipeline = create(workplace, FROM_ONE, "7.1 7.2 8.1 8.2")
    send(pipeline, "8.3 8.5")
    with pytest.raises(BatchBlockedError, match="4 missing before 5") as blocked:
        take(pipeline)
    batchledger("accept", str(blocked.value.batch_id), "--reason", "one record is late")
    send(pipeline, "7.3 7.1 7.2 8.4 8.6")
    check = checks_of(take(pipeline).batch_id)["no_missing_numbers"]
    assert check["outcome"] == "passed"
    assert (check["observed"]["late"], check["observed"]["restarts"], check["observed"]["gaps"]) == (1, 1, 0)
    assert "late: 1, restarts: 1" in check["detail"]
    found = pipeline.query("select run, seen::text from batchledger.sequence where pipeline = %s", pipeline.name)
    assert sorted(found) == [(1, "{[1,7)}"), (2, "{[1,3)}")]


@pytest.mark.parametrize("rules", [NUMBERED, {}], ids=["found", "negative control"])
def test_numbers_that_turned_null_block_their_batch(workplace: Workplace, rules: Mapping[str, Any]) -> None:
    pipeline = create(workplace, rules, "7.1 7.2")
    pipeline.send_raw((0, json.dumps({"message_id": each, "device_id": 7, "sequence": 3}).encode()) for each in "abc")
    if not rules:
        take(pipeline)
        return
    with pytest.raises(BatchBlockedError) as blocked:
        take(pipeline)
    checks = checks_of(blocked.value.batch_id)
    assert checks["no_missing_numbers"]["observed"]["coordinates"] == [
        f"{pipeline.name}[0] 2..5 (no record has a number)"
    ]
    assert checks["no_repeated_numbers"]["outcome"] == "empty"
    assert pipeline.count_target_rows() == 2


def test_numbers_go_on_after_a_crash_at_every_end_of_a_publication(workplace: Workplace) -> None:
    """At least once: rows are visible, the position is not. The next attempt finds no number repeated."""
    pipeline = create(workplace, {**NUMBERED, "delivery": "at_least_once"}, "7.1")
    send(pipeline, "7.2 7.3")
    with pytest.raises(SimulatedCrashError):
        run_batch.run_once(pipeline.platform(CrashOnce("between_commits")), "dies")
    take(pipeline)
    send(pipeline, "7.4")
    take(pipeline)
    query = "select seen::text from batchledger.sequence where pipeline = %s"
    assert pipeline.query(query, pipeline.name) == [("{[1,5)}",)]


def test_sequence_that_only_warns_publishes_what_has_a_gap(workplace: Workplace) -> None:
    rules = {"sequence": {**NUMBERED["sequence"], "severity": "warning"}}
    pipeline = create(workplace, rules)
    send(pipeline, "7.1 7.3")
    check = checks_of(take(pipeline).batch_id)["no_missing_numbers"]
    assert (check["outcome"], check["severity"]) == ("failed", "warning")
    assert pipeline.count_target_rows() == 2


@pytest.mark.parametrize("is_poison", [True, False], ids=["poison", "clean twin"])
def test_poison_record_is_set_aside_at_its_coordinates_and_the_others_pass(
    workplace: Workplace, is_poison: bool
) -> None:
    value = POISON if is_poison else b'{"message_id": "fine"}'
    pipeline = create(workplace, {})
    send(pipeline, "7.1")
    pipeline.send_raw([(0, value)])
    send(pipeline, "7.2")
    shown = ask("batch", str(take(pipeline).batch_id))
    (balance,) = shown["ranges"]
    assert (balance["accepted"], balance["quarantined"], balance["unexplained"]) == (3 - is_poison, is_poison, 0)
    assert {each["outcome"] for each in shown["checks"]} == {"passed"}
    (record,) = ask("records", pipeline.name, f"{pipeline.name}[0]@1")["records"]
    assert (record["value"], record["offset"]) == (value.decode(), 1)
    assert bool(record["quarantined"]) is is_poison


def test_control_poison_record_that_vanishes_on_its_way_to_quarantine_leaves_the_balance_open(
    workplace: Workplace,
) -> None:
    """Without the line in quarantine the offset is unaccounted for, and nothing is published."""
    pipeline = create(workplace, {})
    send(pipeline, "7.1")
    pipeline.send_raw([(0, POISON)])

    def lose(point: str) -> None:
        if point == "staged":
            (table,) = [each for each in pipeline.list_staging() if each.endswith("_quarantine")]
            pipeline.query(f"delete from batchledger_staging.{table} returning 1")  # noqa: S608 -- a name of ours

    with pytest.raises(BatchBlockedError, match=r"offsets unaccounted for: \+1 ") as blocked:
        run_batch.run_once(pipeline.platform(lose), "run")
    assert blocked.value.failed == (IntegrityCheck.BALANCE_CLOSES,)
    batch = load_batch(pipeline.platform(), blocked.value.batch_id)
    assert checks_of(batch.batch_id)["balance_closes"]["observed"]["coordinates"] == [
        str(each) for each in batch.ranges
    ]
    assert pipeline.count_target_rows() == 0
