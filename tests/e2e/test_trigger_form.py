"""The trigger form as people fill it in, on a real Airflow: every choice, and who asked for it."""

import json
from typing import Any

import pytest

from batchledger.books.history import load_batch_history
from batchledger.local.airflow_api import AirflowApi
from batchledger.looking import ledger_dsn
from batchledger.model.batch import BatchState
from batchledger.model.errors import SetupError
from tests.conftest import TestServices
from tests.e2e.runs import (
    DAY,
    FIRST_DAY,
    KEEP_FOREVER,
    PATIENT,
    batches_of,
    decision_on,
    plan_of,
    read_logs,
    read_target,
    send_history,
    spoil_target,
    switch_on,
    task_states,
    trigger,
)
from tests.support import Workplace

pytestmark = PATIENT


def describe_difference(found: list[tuple[Any, ...]], expected: list[tuple[Any, ...]]) -> str:
    """What a dry run of the first four offsets of each partition has to say, counted by the test itself."""
    now, then = ({row[1:3]: row for row in rows if row[2] < 4} for rows in (found, expected))
    changed = sum(now[each] != row for each, row in then.items() if each in now)
    counts = {"added": len(then) - len(now), "removed": 0, "changed": changed, "unchanged": len(now) - changed}
    assert counts["added"]
    assert changed
    return "the rows would differ: " + ", ".join(f"{count} {name}" for name, count in counts.items())


def test_form_replays_offsets_and_times_and_the_ledger_knows_who_and_why(
    airflow: AirflowApi, workplace: Workplace, services: TestServices
) -> None:
    pipeline = workplace.create(topic_config=KEEP_FOREVER)
    send_history(pipeline, days=4)
    switch_on(airflow, pipeline)
    trigger(airflow, pipeline, action="catch_up")
    before = read_target(pipeline)
    spoil_target(pipeline, days=(0, 2))
    ranges = [f"{pipeline.name}[0] 0..4", f"{pipeline.name}[1] 0..4", ""]
    spoilt = read_target(pipeline)
    shown = trigger(airflow, pipeline, action="replay_ranges", ranges=ranges, dry_run=True)
    assert describe_difference(spoilt, before) in read_logs(services.home.local, pipeline.name, shown)
    assert {name for name, state in task_states(airflow, pipeline, shown).items() if state != "skipped"} == {"report"}
    assert read_target(pipeline) == spoilt
    kept = load_batch_history(ledger_dsn(pipeline.config), batches_of(pipeline)[-1].batch_id).dry_run
    assert str(kept and kept.comparison) == describe_difference(spoilt, before)
    by_offsets = trigger(airflow, pipeline, action="replay_ranges", ranges=ranges, reason="wrong rate")
    until = FIRST_DAY + 9 * DAY
    window = {"window_since": (FIRST_DAY + 2 * DAY).isoformat(), "window_until": until.isoformat()}
    by_time = trigger(airflow, pipeline, action="replay_window", **window, reason="wrong rate, second part")
    assert read_target(pipeline) == before
    pipeline.assert_exact()
    assert [(each.lane, each.state) for each in batches_of(pipeline)] == [
        ("live", "published"), ("replay", "discarded"), ("replay", "published"), ("replay", "published")
    ]  # fmt: skip
    for run, reason in ((by_offsets, "wrong rate"), (by_time, "wrong rate, second part")):
        decision = decision_on(pipeline, run.run_id)
        assert (run.state, decision.decided_by, decision.reason) == ("success", "admin", reason)
        tasks = task_states(airflow, pipeline, run)
        assert (tasks["publish"], tasks["catch_up"]) == ("success", "skipped")


def test_wrong_input_is_refused_in_the_form_or_by_the_first_task_which_names_the_field(
    airflow: AirflowApi, workplace: Workplace
) -> None:
    pipeline = workplace.create()
    switch_on(airflow, pipeline)
    with pytest.raises(SetupError, match="Invalid input for param ranges"):
        airflow.trigger(pipeline.name, {"action": "replay_ranges", "ranges": ["0..5"], "reason": "x"})
    run = trigger(airflow, pipeline, action="replay_ranges", ranges=["elsewhere[0] 0..5"], reason="x")
    state, tries, error = plan_of(airflow, pipeline, run)
    assert (state, tries) == ("failed", 1)
    assert "ranges: elsewhere[0] 0..5: the pipeline does not read this topic" in error
    with pytest.raises(SetupError, match="Invalid input for param allow_expired"):
        airflow.trigger(pipeline.name, {"action": "replay_ranges", "allow_expired": "false", "reason": "x"})
    # JSON schema takes it for an integer, Airflow hands it on as it was written.
    run = trigger(airflow, pipeline, action="one_batch", max_records=5.0, reason="x")
    state, tries, error = plan_of(airflow, pipeline, run)
    assert (state, tries) == ("failed", 1)
    assert "max_records: has to be a whole number from 1" in error
    assert batches_of(pipeline) == []


def test_form_takes_one_batch_tries_a_blocked_one_again_and_empties_its_quarantine(
    airflow: AirflowApi, workplace: Workplace
) -> None:
    """A commit marker blocks what one batch has left; the file is corrected, and the form takes the batch again.

    One record of it does not decode; with another schema it does, and the form publishes it from quarantine.
    """
    pipeline = workplace.create(partitions=1)
    pipeline.send(10, partitions=1)
    poison = {"message_id": f"{pipeline.name}-poison", "number": 7, "amount": "much"}
    pipeline.send_raw([(0, json.dumps(poison).encode())])
    switch_on(airflow, pipeline)
    one = trigger(airflow, pipeline, action="one_batch", max_records=4, reason="a look at the first")
    assert (pipeline.count_target_rows(), len(airflow.list_runs(pipeline.name))) == (4, 1)
    decision = decision_on(pipeline, one.run_id)
    assert (one.state, decision.decided_by, decision.reason) == ("success", "admin", "a look at the first")
    value = {"message_id": f"{pipeline.name}-committed", "number": 1, "amount": 1.5}
    pipeline.send_in_transaction([json.dumps(value).encode()], partition=0, commit=True)
    pipeline.sent.append(str(value["message_id"]))
    assert trigger(airflow, pipeline, action="catch_up").state == "failed"
    blocked = pipeline.platform().ledger.find_open_batch(pipeline.name)
    assert blocked is not None
    assert blocked.state is BatchState.BLOCKED
    pipeline.path.write_text(pipeline.path.read_text().replace("source:\n", "source:\n  holes: transactional\n"))
    again = trigger(airflow, pipeline, action="retry_batch", batch_id=blocked.batch_id, reason="markers are declared")
    assert again.state == "success"
    pipeline.assert_exact()
    decision = load_batch_history(ledger_dsn(pipeline.config), blocked.batch_id).decisions[-1]
    assert (decision.kind, decision.decided_by, decision.reason) == ("retry", "admin", "markers are declared")
    pipeline.sent.append(str(poison["message_id"]))
    pipeline.path.write_text(pipeline.path.read_text().replace(", amount double", ""))
    asked = {"ranges": [f"{pipeline.name}[0] 0..100"], "reason": "amounts are not needed"}
    mended = trigger(airflow, pipeline, action="replay_quarantine", **asked)
    decision = decision_on(pipeline, mended.run_id)
    assert (mended.state, decision.kind, decision.decided_by) == ("success", "quarantine-replay", "admin")
    pipeline.assert_exact()
