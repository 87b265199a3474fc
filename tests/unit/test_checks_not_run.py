"""Great Expectations breaks: that is no pass and no bad data, it is stored, and the batch waits for another audit."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from great_expectations import expectations as gxe

from batchledger.checks import integrity, judging
from batchledger.checks import ledger as ledger_checks
from batchledger.checks.integrity import IntegrityAuditor
from batchledger.checks.rows import PipelineChecks
from batchledger.checks.statistics import StatisticalChecks
from batchledger.lifecycle import run_batch
from batchledger.model.batch import BatchState
from batchledger.model.checks import CheckResult, IntegrityCheck, OnFailure, Outcome, RequestedCheck, Severity
from batchledger.model.errors import CheckNotRunError
from batchledger.model.findings import LedgerCheck
from batchledger.model.offsets import TopicPartition
from batchledger.monitoring.ledger_audit import Fact, Question
from batchledger.ports import CheckedBatch, RowsToCheck
from tests.fakes.world import World
from tests.unit.test_integrity_suite import CLEAN
from tests.unit.test_statistical_checks import BATCH

SECRET = "a secret value"  # noqa: S105 -- stands for what a record holds


@pytest.fixture
def broken_library(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """No context can be opened."""

    def refuse(**_: Any) -> None:
        raise RuntimeError(f"no context today, and {SECRET}")

    monkeypatch.setattr(judging.gx, "get_context", refuse)
    monkeypatch.setattr(integrity, "_judged", {})
    return monkeypatch


@pytest.mark.usefixtures("broken_library")
def test_integrity_checks_have_not_run() -> None:
    warned = replace(CLEAN, severity_of_numbers=Severity.WARNING, severity_of_unknown_fields=Severity.WARNING)
    results = IntegrityAuditor().judge(warned)
    assert {each.outcome for each in results} == {Outcome.NOT_RUN}
    assert {each.detail.partition(",")[0] for each in results} == {"could not run: RuntimeError: no context today"}
    assert [each.name for each in results if not each.blocks] == [
        IntegrityCheck.NO_UNKNOWN_FIELDS,
        IntegrityCheck.DELETIONS_FIND_ROWS,
        IntegrityCheck.NO_MISSING_NUMBERS,
        IntegrityCheck.NO_REPEATED_NUMBERS,
    ]


def test_integrity_check_that_breaks_takes_no_other_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    build = integrity.build_facts_table
    check = IntegrityCheck.NO_ROWS_OUTSIDE_RANGES
    monkeypatch.setattr(integrity, "build_facts_table", lambda facts: build(facts).drop(columns=check))
    results = {each.name: each for each in IntegrityAuditor().judge(CLEAN)}
    broken = results.pop(check)
    assert (broken.outcome, broken.blocks) == (Outcome.NOT_RUN, True)
    assert {each.outcome for each in results.values()} == {Outcome.PASSED}


def test_batch_stays_staged_with_the_stored_results_until_it_is_audited_again(
    broken_library: pytest.MonkeyPatch,
) -> None:
    world = World()
    world.broker.create_topic("orders", 1)
    world.produce(TopicPartition("orders", 0), 3)
    platform = replace(world.process(), make_auditor=IntegrityAuditor)
    with pytest.raises(CheckNotRunError, match="This says nothing about the data") as told:
        run_batch.run_once(platform, "run")
    assert "clear the audit task of this run in Airflow" in str(told.value)
    assert "stage and judge it anew: batchledger run orders_copy --batch 1" in str(told.value)
    assert platform.ledger.load_batch(1).state is BatchState.STAGED
    assert {each.outcome for each in platform.ledger.load_checks(1)} == {Outcome.NOT_RUN}
    broken_library.undo()
    judged = run_batch.audit(platform, 1, "run")
    assert (judged.state, judged.attempt) == (BatchState.AUDITED, 1)


def test_batch_that_is_taken_again_is_staged_anew(broken_library: pytest.MonkeyPatch) -> None:
    world = World()
    world.broker.create_topic("orders", 1)
    world.produce(TopicPartition("orders", 0), 3)
    platform = replace(world.process(), make_auditor=IntegrityAuditor)
    with pytest.raises(CheckNotRunError):
        run_batch.run_once(platform, "run")
    broken_library.undo()
    batch = run_batch.run_once(platform, "by hand", batch_id=1)
    assert batch is not None
    assert (batch.state, batch.attempt) == (BatchState.PUBLISHED, 2)


@pytest.mark.usefixtures("broken_library")
def test_checks_of_a_pipeline_file_have_not_run_and_tell_no_value() -> None:
    not_null = RequestedCheck("null", "expect_column_values_to_not_be_null", {"column": "a"})
    checks = (not_null, replace(not_null, name="aside", on_failure=OnFailure.QUARANTINE))
    judged = PipelineChecks(checks, Path()).judge(RowsToCheck(None, "rows", 9, 9), CheckedBatch(BATCH, 9, 0))
    assert [told(each.result) for each in judged] == [
        ("null", Outcome.NOT_RUN, "could not run: it ended with RuntimeError", OnFailure.BLOCK),
        ("aside", Outcome.NOT_RUN, "could not run: it ended with RuntimeError", OnFailure.QUARANTINE),
    ]


def told(result: CheckResult) -> tuple[str, Outcome, str, OnFailure]:
    return result.name, result.outcome, result.detail, result.on_failure


@pytest.mark.usefixtures("broken_library")
def test_checks_that_compare_batches_have_not_run() -> None:
    check = RequestedCheck("share", "expect_share_quarantined_to_be_at_most", {"max_share": 0.1})
    (judged,) = StatisticalChecks((check,)).judge(RowsToCheck(None, "rows", 9, 9), CheckedBatch(BATCH, 9, 9))
    assert (judged.result.outcome, judged.result.blocks) == (Outcome.NOT_RUN, True)


@pytest.mark.usefixtures("broken_library")
def test_audit_of_the_ledger_has_not_run() -> None:
    (result,) = ledger_checks.judge([Question(LedgerCheck.LAG, "9 records", (Fact("orders[0]", 1),))])
    assert result.outcome is Outcome.NOT_RUN


def test_judging_writes_nothing_to_a_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A context of the library's own making leaves a folder for pages behind, or at least makes one."""
    made: list[str] = []
    monkeypatch.setattr("tempfile.mkdtemp", lambda *_, **__: made.append("folder") or str(tmp_path))
    results = judging.judge_table(
        judging.pd.DataFrame({"a": [0]}),
        {"a": gxe.ExpectColumnValuesToBeInSet(column="a", value_set=[0], meta={"check": "a"})},
        {"result_format": "BASIC"},
    )
    assert not isinstance(results["a"], str)
    assert results["a"].success
    assert made == []
