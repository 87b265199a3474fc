"""The audit of a ledger: each question finds what is wrong and its clean twin does not; what was not asked is named."""

import html
import itertools
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from great_expectations.core import ExpectationSuite
from hypothesis import given
from hypothesis import strategies as st

from batchledger.checks import ledger as ledger_checks
from batchledger.checks.ledger import ExpectFactsWithinLimit, build_expectation, judge
from batchledger.interfaces.data_docs.expectations import render_results
from batchledger.lifecycle.platform import Deadlines
from batchledger.model.balance import TargetCount, TargetCounts
from batchledger.model.batch import Batch, BatchState, Lane, PartitionHealth, Position, TopicIdentity
from batchledger.model.checks import Outcome, Suite
from batchledger.model.findings import IncidentKind, LedgerCheck, PipelineState
from batchledger.model.housekeeping import StagingOwner, StagingTable
from batchledger.model.offsets import OffsetRange, TopicPartition
from batchledger.model.records.rules import SinkMode
from batchledger.model.stored_facts import JudgedBatch, StoredFacts
from batchledger.monitoring.audit_questions import (
    ask_findings,
    ask_open_batches,
    ask_proof,
    ask_staging,
    leave_unproved,
)
from batchledger.monitoring.conditions import find_conditions
from batchledger.monitoring.health import OpenTransaction, PipelineHealth, Threats
from batchledger.monitoring.ledger_audit import (
    FINDINGS_SHOWN,
    AuditLimits,
    Fact,
    LedgerAudit,
    OpenBatch,
    Question,
    find_own,
)
from batchledger.proof.decision_chain import DecisionChain
from batchledger.proof.newest import Coverage, find_untouched, narrow
from batchledger.proof.proving import prove
from batchledger.proof.verification import Finding, PublishedHistory, PublishedRange, TargetKey, Verification

NOW = datetime(2026, 1, 10, 12, tzinfo=UTC)
ORDERS_0, ORDERS_1 = TopicPartition("orders", 0), TopicPartition("orders", 1)
IDENTITY = TopicIdentity("cluster", "topic")
WHOLE, WINDOW = Coverage(), Coverage(NOW - timedelta(days=1), (ORDERS_1,))
DEADLINES = Deadlines(lag=timedelta(minutes=10), blocked=timedelta(hours=1))
LIMITS = AuditLimits()
CALM = Threats(0, (), None, None)
CHECK_BY_INVARIANT = {each.row.invariant: each for each in LedgerCheck if each.row.invariant}


def audit(questions: Iterable[Question], coverage: Coverage = WHOLE) -> LedgerAudit:
    """Judge the questions as an audit does."""
    asked = list(questions)
    checks = judge(asked)
    findings, health = (
        find_own("orders", asked, checks, coverage),
        PipelineHealth("orders", PipelineState.UNREAD, "", None),
    )
    return LedgerAudit("orders", NOW, coverage, tuple(checks), findings, health)


def verify(history: PublishedHistory, target: Mapping[TargetKey, TargetCount]) -> Verification:
    """Prove a history that does not change meanwhile."""
    return prove("orders", lambda: history, lambda: TargetCounts(target), SinkMode.APPEND)


def look(
    state: PipelineState, threats: Threats | None = CALM, deadlines: Deadlines = DEADLINES, detail: str = "why"
) -> list[Question]:
    """Ask what every run looks for, of a pipeline without open batches."""
    health = PipelineHealth("orders", state, detail, threats)
    return list(ask_findings(find_conditions(StoredFacts(), health, deadlines, NOW), health, deadlines, NOW))


def outcomes(audit: LedgerAudit) -> dict[str, Outcome]:
    return {each.name: each.outcome for each in audit.checks}


def proof(*findings: Finding, batches: int = 3) -> Verification:
    return Verification("orders", SinkMode.APPEND, batches, 6, 600, 590, 0, 0, findings)


def partition(oldest: datetime | None, expires_at: datetime | None) -> PartitionHealth:
    return PartitionHealth(ORDERS_0, 10, 20, 20, oldest, expires_at)


def open_batch(state: BatchState, idle: timedelta, *, is_used: bool = False, is_dry_run: bool = False) -> OpenBatch:
    return OpenBatch(17, Lane.LIVE, state, 2, "manual__1", NOW - idle, is_dry_run, is_used)


def test_retired_pipeline_is_asked_nothing_of_its_source_and_nothing_of_a_target_that_it_gave_up() -> None:
    assert look(PipelineState.RETIRED, None) == []
    # The negative control: a pipeline that has caught up is asked.
    assert look(PipelineState.CAUGHT_UP) != []
    alone = Verification("orders", SinkMode.APPEND, 3, 6, 600, 0, 0, 0, (), not_compared="a person has freed it")
    asked = [each.check for each in ask_proof(alone, WHOLE)]
    assert asked == [each for each in CHECK_BY_INVARIANT.values() if each is not LedgerCheck.TARGET]


def test_consistent_history_passes_every_check_of_the_proof() -> None:
    found = audit(ask_proof(proof(), WHOLE))
    assert outcomes(found) == {check.value: Outcome.PASSED for check in CHECK_BY_INVARIANT.values()}
    assert (found.failed, found.findings.found, found.exit_code) == ((), (), 0)
    assert all("3 batches, 600 offsets, 590 rows" in each.detail for each in found.checks)


@pytest.mark.parametrize(
    ("mode", "said"),
    [
        (SinkMode.APPEND, "The target holds the rows that the ledger has accepted, and no others."),
        (SinkMode.UPSERT, "Not proved: that no row is missing"),
        (SinkMode.PRODUCE, "the target holds what the ledger says; 5 offsets were published again"),
    ],
)
def test_audit_says_of_the_target_what_the_proof_has_shown_of_its_kind(mode: SinkMode, said: str) -> None:
    found = audit(ask_proof(replace(proof(), mode=mode, taken_over=5), WHOLE))
    (of_target,) = [each for each in found.checks if each.name == LedgerCheck.TARGET]
    assert said in of_target.detail
    assert of_target.validation is not None
    assert said in of_target.validation["expectation_config"]["description"]


@pytest.mark.parametrize(("invariant", "check"), CHECK_BY_INVARIANT.items())
def test_each_finding_of_the_proof_fails_its_own_check_only(invariant: str, check: LedgerCheck) -> None:
    found = audit(ask_proof(proof(Finding(invariant, "orders[0] 5..7", "two offsets are wrong")), WHOLE))
    assert [each.name for each in found.failed] == [check.value]
    (condition,) = found.findings.found
    assert (condition.kind, condition.subject) == (IncidentKind.LEDGER_FINDING, f"{check.value}, orders[0] 5..7")
    assert condition.lines == ("orders[0] 5..7: two offsets are wrong",)
    assert (condition.command, found.exit_code) == ("batchledger audit orders --newest 0", 1)


def test_every_invariant_that_the_proof_can_name_has_a_check() -> None:
    """Otherwise a finding would be passed over. The partition is in the ledger three times in contradiction."""
    published = (
        PublishedRange(1, OffsetRange(ORDERS_0, 0, 10), 9, 1, 0, has_rows=False, duplicates=0),
        PublishedRange(2, OffsetRange(ORDERS_0, 5, 12), 7, 0, 3, duplicates=1),
    )
    positions, decisions = (Position(ORDERS_0, 0, 20, IDENTITY),), DecisionChain(counted=1)
    history = PublishedHistory(positions, published, decisions=decisions)
    found = verify(history, {(9, ORDERS_0): TargetCount(1, 1, 0, 0)})
    assert {each.invariant for each in found.findings} == set(CHECK_BY_INVARIANT)
    assert len(audit(ask_proof(found, WHOLE)).failed) == len(CHECK_BY_INVARIANT)


def test_pipeline_that_has_published_nothing_has_proved_nothing() -> None:
    found = audit(ask_proof(proof(batches=0), WHOLE))
    assert set(outcomes(found).values()) == {Outcome.EMPTY}
    assert found.exit_code == 0


def test_history_that_could_not_be_proved_has_not_passed_and_ends_no_incident() -> None:
    found = audit(leave_unproved("replays did not let it come to an end"))
    assert set(outcomes(found).values()) == {Outcome.NOT_RUN}
    assert "replays did not let it" in found.checks[0].detail
    assert (found.findings.looked_for, found.findings.found, found.exit_code) == (frozenset(), (), 1)


def test_proof_of_a_window_says_what_it_has_not_proved_and_ends_no_finding_of_before() -> None:
    found = audit(ask_proof(proof(), WINDOW), WINDOW)
    assert all("590 rows since 2026-01-09 12:00:00 UTC: " in each.detail for each in found.checks)
    older, outside, untouched = WINDOW.describe_unproved()
    assert "published before 2026-01-09 12:00:00 UTC were not looked at" in older
    assert "outside of the offsets that these batches hold were not counted" in outside
    assert untouched == "nothing was published of orders[1] in this time"
    assert IncidentKind.LEDGER_FINDING not in found.findings.looked_for
    assert IncidentKind.LEDGER_FINDING in audit(ask_proof(proof(), WHOLE)).findings.looked_for
    assert WHOLE.describe_unproved() == []


def test_many_findings_are_told_by_the_first_of_them_and_their_number() -> None:
    many = [Finding("target", f"batch {number}", "wrong") for number in range(FINDINGS_SHOWN + 5)]
    found = audit(ask_proof(proof(*many), WHOLE))
    *first, rest = found.findings.found
    assert [each.lines for each in first] == [(f"batch {number}: wrong",) for number in range(FINDINGS_SHOWN)]
    assert (rest.subject, rest.lines) == (f"{LedgerCheck.TARGET}, more places", ("and 5 more places",))
    assert found.failed[0].observed["findings"] == FINDINGS_SHOWN + 5
    assert found.failed[0].detail.endswith("and 5 more")


def test_second_wrong_batch_is_told_although_the_first_one_was() -> None:
    """What a window has found stays open, so one incident for all places would be reported once and never again."""
    first, second = Finding("target", "batch 2", "2 rows repeat an offset"), Finding("target", "batch 9", "wrong")
    found = audit(ask_proof(proof(first, replace(first, detail="outside"), second), WINDOW), WINDOW).findings.found
    assert [(each.subject, each.lines) for each in found] == [
        (f"{LedgerCheck.TARGET}, batch 2", ("batch 2: 2 rows repeat an offset", "batch 2: outside")),
        (f"{LedgerCheck.TARGET}, batch 9", ("batch 9: wrong",)),
    ]


@pytest.mark.parametrize("state", [BatchState.PLANNED, BatchState.STAGED, BatchState.AUDITED])
def test_open_batch_that_nobody_works_on_is_stale(state: BatchState) -> None:
    found = audit([ask_open_batches([open_batch(state, timedelta(minutes=61))], NOW, LIMITS)])
    assert outcomes(found) == {LedgerCheck.STALE_ATTEMPT: Outcome.FAILED}
    (condition,) = found.findings.found
    assert (condition.kind, condition.subject, condition.batch_id) == (IncidentKind.STALE_ATTEMPT, "batch 17", 17)
    assert "attempt 2 of run manual__1 has ended no step for 1 h 1 min" in condition.lines[0]
    assert condition.command == "batchledger run orders --batch 17"


@pytest.mark.parametrize(
    "at_work",
    [
        open_batch(BatchState.PLANNED, timedelta(minutes=59)),
        open_batch(BatchState.PLANNED, timedelta(hours=9), is_used=True),
    ],
    ids=["the step has not taken long", "its tasks write"],
)
def test_batch_that_somebody_works_on_is_not_stale(at_work: OpenBatch) -> None:
    found = audit([ask_open_batches([at_work], NOW, LIMITS)])
    assert outcomes(found) == {LedgerCheck.STALE_ATTEMPT: Outcome.PASSED}


def test_dry_run_that_was_killed_is_to_be_discarded() -> None:
    left = open_batch(BatchState.STAGED, timedelta(hours=9), is_dry_run=True)
    (condition,) = audit([ask_open_batches([left], NOW, LIMITS)]).findings.found
    assert condition.command == "batchledger discard 17 --reason WHY"


def test_blocked_batch_waits_for_a_person_and_is_not_stale() -> None:
    blocked = open_batch(BatchState.BLOCKED, timedelta(days=9))
    assert outcomes(audit([ask_open_batches([blocked], NOW, LIMITS)])) == {LedgerCheck.STALE_ATTEMPT: Outcome.EMPTY}


@pytest.mark.parametrize(("minutes", "code"), [(61, 3), (59, 0)])
def test_batch_that_is_blocked_beyond_the_deadline_is_found_and_waits_for_a_person(minutes: int, code: int) -> None:
    batch = Batch(17, "orders", Lane.LIVE, BatchState.BLOCKED, 2, "run", (OffsetRange(ORDERS_0, 0, 5),), 0, NOW)
    stored = StoredFacts((JudgedBatch(batch, blocked_since=NOW - timedelta(minutes=minutes)),))
    health = PipelineHealth("orders", PipelineState.BLOCKED, "why", CALM)
    for deadlines in (DEADLINES, Deadlines()):
        found = audit(ask_findings(find_conditions(stored, health, deadlines, NOW), health, deadlines, NOW))
        is_asked = deadlines.blocked is not None
        assert (LedgerCheck.BLOCKED in outcomes(found)) == is_asked
        assert found.exit_code == (code if is_asked else 0)


def staging_table(age: timedelta | None, state: BatchState = BatchState.PUBLISHED) -> StagingTable:
    published_at = None if age is None else NOW - age
    return StagingTable("b17_a1_rows", 17, 1, StagingOwner("orders", state, 1, None, None, published_at))


def test_staging_that_housekeeping_should_have_removed_is_found() -> None:
    found = audit([ask_staging([staging_table(timedelta(hours=27))], NOW, LIMITS)])
    (condition,) = found.findings.found
    assert (condition.kind, condition.command) == (IncidentKind.ORPHANED_STAGING, "batchledger housekeeping")
    assert condition.lines == ("b17_a1_rows of an attempt that was over 1 d 3 h ago",)
    unwritten = audit([ask_staging([staging_table(None)], NOW, LIMITS)])
    assert [each.name for each in unwritten.failed] == [LedgerCheck.STAGING]


@pytest.mark.parametrize(
    "table",
    [staging_table(timedelta(hours=25)), staging_table(None, BatchState.STAGED)],
    ids=["housekeeping has a day", "its batch is open"],
)
def test_staging_that_may_be_there_is_no_finding(table: StagingTable) -> None:
    assert audit([ask_staging([table], NOW, LIMITS)]).failed == ()


def test_lost_records_and_another_source_wait_for_a_person() -> None:
    loss = audit(look(PipelineState.LOSS, None, detail="5 offsets were removed"))
    assert outcomes(loss) == {
        LedgerCheck.BLOCKED: Outcome.PASSED,
        LedgerCheck.SOURCE: Outcome.PASSED,
        LedgerCheck.LOSS: Outcome.FAILED,
    }
    changed = audit(look(PipelineState.SOURCE_CHANGED, None, detail="another topic"))
    assert outcomes(changed) == {LedgerCheck.BLOCKED: Outcome.PASSED, LedgerCheck.SOURCE: Outcome.FAILED}
    details = [each.detail for each in (*loss.failed, *changed.failed)]
    assert details == ["5 offsets were removed", "another topic"]
    assert (loss.exit_code, changed.exit_code) == (3, 3)


def test_kafka_that_does_not_answer_is_told_and_nothing_has_passed_that_only_it_knows() -> None:
    found = audit(look(PipelineState.UNKNOWN, None, detail="no broker answered"))
    assert outcomes(found).pop(LedgerCheck.BLOCKED) is Outcome.PASSED
    not_run = {each.name for each in found.checks if each.outcome is Outcome.NOT_RUN}
    assert not_run == {
        LedgerCheck.SOURCE, LedgerCheck.LOSS, LedgerCheck.STUCK, LedgerCheck.EXPIRY, LedgerCheck.LAG
    }  # fmt: skip
    assert {each.detail for each in found.failed} == {"could not be asked: no broker answered"}
    assert found.exit_code == 1


def test_stuck_transaction_is_found_and_one_that_is_young_is_not() -> None:
    stuck = OpenTransaction(ORDERS_0, 12, 8, NOW - timedelta(minutes=16), is_stuck=True)
    young = OpenTransaction(ORDERS_1, 3, 1, None, is_stuck=False)
    found = audit(look(PipelineState.STUCK, replace(CALM, transactions=(stuck, young))))
    assert [each.name for each in found.failed] == [LedgerCheck.STUCK]
    assert "holds back 8 offsets" in found.failed[0].detail
    assert audit(look(PipelineState.CAUGHT_UP, replace(CALM, transactions=(young,)))).failed == ()


@pytest.mark.parametrize(("left", "is_found"), [(timedelta(minutes=59), True), (timedelta(minutes=61), False)])
def test_oldest_unread_record_expires_soon_in_the_last_quarter_of_its_retention(
    left: timedelta, is_found: bool
) -> None:
    expiring = partition(NOW + left - timedelta(hours=4), NOW + left)
    threats = replace(CALM, unread_records=10, oldest_unread=expiring, first_to_expire=expiring)
    found = audit(look(PipelineState.UNREAD, threats, Deadlines()))
    assert [each.name for each in found.failed] == [LedgerCheck.EXPIRY] * is_found
    (expiry,) = [each for each in found.checks if each.name == LedgerCheck.EXPIRY]
    assert "may expire in " in expiry.detail


def test_lag_beyond_its_deadline_is_found_and_nobody_asks_without_one() -> None:
    late, early = (partition(NOW - timedelta(minutes=minutes), None) for minutes in (11, 9))
    for oldest, names in ((late, [LedgerCheck.LAG]), (early, []), (None, [])):
        threats = replace(CALM, unread_records=10, oldest_unread=oldest)
        assert [each.name for each in audit(look(PipelineState.UNREAD, threats)).failed] == names
    undated = look(PipelineState.UNREAD, replace(CALM, oldest_unread=late), Deadlines())
    assert LedgerCheck.LAG not in {each.check for each in undated}


def test_what_every_run_finds_too_is_told_by_the_run_in_the_same_words() -> None:
    """Otherwise a run would end what an audit has begun."""
    found = audit(look(PipelineState.LOSS, None))
    assert (found.findings.found, found.findings.looked_for) == ((), frozenset())


@pytest.mark.parametrize("check", LedgerCheck)
def test_what_is_beyond_the_limit_fails_and_passes_only_without_its_expectation(
    check: LedgerCheck, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = Question(check, "3 things", (Fact("good", 60.0, "good"), Fact("bad", 61.0, "bad: 61")), 60.0)
    (found,) = judge([asked])
    assert (found.outcome, found.detail, found.observed["subjects"]) == (Outcome.FAILED, "bad: 61", ["bad"])
    (clean,) = judge([replace(asked, facts=asked.facts[:1])])
    assert clean.passed
    anything = build_expectation(replace(asked, limit=1e9))
    monkeypatch.setattr(ledger_checks, "build_expectation", lambda _: anything)
    (control,) = judge([asked])
    assert control.passed, "the negative control"


@pytest.mark.parametrize("check", LedgerCheck)
def test_every_check_is_an_expectation_with_its_name_and_a_promise_that_people_read(check: LedgerCheck) -> None:
    (found,) = judge([Question(check, "1 thing", (Fact("good", 0.0),))])
    assert found.validation is not None
    told = found.validation["expectation_config"]
    assert (told["description"], told["meta"]["check"]) == (check.row.promise, check.value)
    assert found.detail == f"1 thing: {check.row.promise}"
    table = render_results([found], "one")
    assert table is not None
    assert html.escape(check.row.promise) in table


def test_result_is_kept_as_great_expectations_serialises_it_and_can_be_loaded_again() -> None:
    (check,) = judge([Question(LedgerCheck.LAG, "5 unread", (Fact("", 12.0),), 60.0)])
    assert check.validation is not None
    configuration = check.validation["expectation_config"]
    suite = ExpectationSuite("again", expectations=[configuration])
    assert isinstance(suite.expectations[0], ExpectFactsWithinLimit)
    assert (check.suite, check.passed, configuration["kwargs"]["max_value"]) == (Suite.LEDGER, True, 60.0)


def test_check_that_breaks_in_great_expectations_has_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its facts are gone; the others are judged all the same."""
    build = ledger_checks.build_table
    monkeypatch.setattr(ledger_checks, "build_table", lambda asked: build(asked).drop(columns=LedgerCheck.LAG.value))
    broken = Question(LedgerCheck.LAG, "5 unread", (Fact("", 12.0),), 60.0)
    found = audit([broken, Question(LedgerCheck.STUCK, "1 transaction", (Fact("orders[0]", 1.0, "stuck"),))])
    assert outcomes(found) == {LedgerCheck.LAG: Outcome.NOT_RUN, LedgerCheck.STUCK: Outcome.FAILED}


def published(*cuts: int) -> PublishedHistory:
    """Batches 1, 2, … of one partition that meet at the cuts, and a position at the last one."""
    ranges = [
        PublishedRange(number, OffsetRange(ORDERS_0, start, until), until - start, 0, 0)
        for number, (start, until) in enumerate(itertools.pairwise(cuts), start=1)
    ]
    positions = (Position(ORDERS_0, 0, cuts[-1], IDENTITY), Position(ORDERS_1, 0, 50, IDENTITY))
    return PublishedHistory(positions, ranges)


def count(history: PublishedHistory) -> dict[tuple[int, TopicPartition], TargetCount]:
    return {
        (each.batch_id, each.range.partition): TargetCount(
            len(each.range), len(each.range), each.range.start, each.range.until - 1
        )
        for each in history.ranges
    }


@given(st.integers(0, 2), st.integers(0, 3))
def test_window_proves_what_it_holds_and_finds_a_batch_that_is_missing_in_it(older: int, missing: int) -> None:
    whole = published(0, 10, 25, 31, 40, 60, 70)
    window = replace(whole, ranges=whole.ranges[older:])
    history = narrow(window)
    assert verify(history, count(history)).holds
    assert not verify(window, count(window)).holds, "the negative control"
    torn = narrow(replace(window, ranges=[each for at, each in enumerate(window.ranges) if at != missing]))
    assert verify(torn, count(torn)).holds == (missing == 0)
    assert find_untouched(whole.positions, history) == (ORDERS_1,)


def test_window_leaves_out_epochs_of_before_and_replays_when_it_asks_what_meets() -> None:
    whole = published(0, 10, 20, 30)
    ranges = [
        replace(whole.ranges[0], epoch=0),
        replace(whole.ranges[1], lane=Lane.REPLAY),
        replace(whole.ranges[2], epoch=1),
    ]
    history = narrow(replace(whole, ranges=ranges, epoch=1))
    assert [(each.origin_offset, each.next_offset) for each in history.positions] == [(20, 30)]


def test_exit_code_is_1_as_soon_as_something_does_not_only_wait_for_a_person() -> None:
    wrong = ask_proof(proof(Finding("I1", "orders[0] 5..7", "wrong")), WHOLE)
    assert audit([*wrong, *look(PipelineState.LOSS, None)]).exit_code == 1
