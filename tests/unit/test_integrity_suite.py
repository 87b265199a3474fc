"""The integrity suite in Great Expectations: each expectation finds its fault, alone, and says it in its own words."""

import logging
from collections.abc import Callable
from dataclasses import replace

import pytest
from great_expectations.core import ExpectationSuiteValidationResult, ExpectationValidationResult
from great_expectations.expectations.expectation_configuration import ExpectationConfiguration
from great_expectations.expectations.registry import get_expectation_impl
from great_expectations.render.renderer import ValidationResultsPageRenderer
from great_expectations.render.view import DefaultJinjaPageView

from batchledger.checks import integrity
from batchledger.checks.integrity import ExpectFactToBeZero, IntegrityAuditor, build_expectation, choose_checks
from batchledger.model.attempt_facts import AttemptFacts, UnmatchedDeletions
from batchledger.model.balance import HoleCounts, HolePolicy, RangeFacts, balance_batch
from batchledger.model.batch import HeldRange, Position, TopicIdentity
from batchledger.model.checks import CHECKS_OF_NUMBERS, CheckResult, IntegrityCheck, Offender, Outcome, Severity
from batchledger.model.offsets import OffsetRange, TopicPartition, single_offset
from batchledger.model.records.numbering import NumberFacts
from batchledger.model.records.quarantine import ErrorKind, QuarantineLimit, summarise
from batchledger.model.records.unknown_fields import Sighting, UnknownFields

ORDERS = [OffsetRange(TopicPartition("orders", number), 100, 200) for number in range(3)]


def facts_of(*ranges: RangeFacts, holes: HolePolicy = HolePolicy.NONE) -> AttemptFacts:
    """A live batch over these ranges, which start at the position."""
    positions = tuple(Position(each, 0, 100, TopicIdentity("cluster", "topic")) for each in partitions_of(ranges))
    reported = sum(each.staged for each in ranges)
    balances = balance_batch(ranges, holes, has_transform=False)
    return AttemptFacts(
        ranges,
        balances,
        reported,
        positions,
        is_blocked_by_duplicates=True,
        numbers=NumberFacts(series=3),
        quarantine_limit=QuarantineLimit(),
        unknown_fields=UnknownFields(),
        unmatched=UnmatchedDeletions(0, Severity.WARNING),
    )


def partitions_of(ranges: tuple[RangeFacts, ...]) -> list[TopicPartition]:
    return [each.range.partition for each in ranges]


def clean(each: OffsetRange) -> RangeFacts:
    return RangeFacts(each, visible=100, quarantined=0, staged=100, distinct=100, outside=0)


CLEAN = facts_of(*map(clean, ORDERS))


def test_great_expectations_writes_nothing_of_its_own_into_the_log_of_a_task(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        IntegrityAuditor().judge(facts_of(clean(OffsetRange(TopicPartition("orders", 0), 0, 10))))
    assert [each.name for each in caplog.records if each.name.startswith("great_expectations")] == []


def second(change: Callable[[RangeFacts], RangeFacts]) -> AttemptFacts:
    """The clean batch with a fault in its second range."""
    return facts_of(clean(ORDERS[0]), change(clean(ORDERS[1])), clean(ORDERS[2]))


def failed(facts: AttemptFacts) -> dict[str, CheckResult]:
    return {each.name: each for each in IntegrityAuditor().judge(facts) if not each.passed}


FAULTS = {
    IntegrityCheck.NO_DUPLICATE_OFFSETS: (
        replace(second(lambda one: replace(one, distinct=98, visible=98)), balances=CLEAN.balances),
        "rows that repeat an offset staged already: 2 (in orders[1] 100..200)",
    ),
    IntegrityCheck.NO_ROWS_OUTSIDE_RANGES: (
        replace(second(lambda one: replace(one, outside=3)), reported=303),
        "rows outside of the batch's ranges: 3 (in orders[1] 100..200)",
    ),
    IntegrityCheck.BALANCE_CLOSES: (
        second(lambda one: replace(one, staged=96, distinct=96)),
        "the balance does not close; offsets unaccounted for: +4 (in orders[1] 100..200)",
    ),
    IntegrityCheck.STAGED_AS_REPORTED: (
        replace(CLEAN, reported=305),
        "rows that the writing tasks reported and rows staged differ by +5 (in orders[0] 100..200)",
    ),
    IntegrityCheck.RANGES_MEET_POSITION: (
        replace(CLEAN, positions=tuple(replace(each, next_offset=90) for each in CLEAN.positions or ())),
        f"ranges do not start at the stored position; offsets apart: +30 (in {', '.join(map(str, ORDERS))})",
    ),
    IntegrityCheck.NO_DUPLICATE_MESSAGES: (
        second(lambda one: replace(one, duplicates=5, known_duplicates=2)),
        "records that repeat a message, while dedupe.duplicates is block: 3 (in orders[1] 100..200)",
    ),
    IntegrityCheck.NO_MISSING_NUMBERS: (
        replace(CLEAN, numbers=NumberFacts(series=3, missing=6, gaps=2, late=1, restarts=4)),
        "numbers missing in what the producers have numbered: 6; gaps: 2, late: 1, restarts: 4",
    ),
    IntegrityCheck.NO_REPEATED_NUMBERS: (
        replace(CLEAN, numbers=NumberFacts(series=3, repeated=2)),
        "records whose number was seen before: 2",
    ),
    IntegrityCheck.DELETIONS_FIND_ROWS: (
        replace(CLEAN, unmatched=UnmatchedDeletions(4, Severity.WARNING)),
        (
            "records that delete a key which the table does not have: 4; their keys may be written in another way than "
            "the keys of the rows, or their rows are older than the first record that was read"
        ),
    ),
    IntegrityCheck.QUARANTINE_WITHIN_LIMIT: (
        replace(
            facts_of(*(replace(clean(each), staged=40, distinct=40, quarantined=60) for each in ORDERS)),
            quarantine=summarise([ErrorKind("no JSON", 170, single_offset("orders", 1, 107))]),
        ),
        (
            "too many of the records would be quarantined: 180; 60.0% of 300, while quarantine.max_share is 0.5. "
            "Correct source.schema, or the producer; if so many are to be expected, raise that share. Kinds of "
            "error: 1"
        ),
    ),
    IntegrityCheck.NO_UNKNOWN_FIELDS: (
        replace(
            CLEAN,
            unknown_fields=UnknownFields(
                124,
                {"discount": Sighting(120, ("orders", 2, 177)), "tax": Sighting(4, ("orders", 0, 101))},
                has_more=True,
            ),
        ),
        (
            "records with fields that source.schema does not declare: 124; of 300 rows: discount in 120, tax in 4, and "
            "others. Their values are not in the rows. Declare them in source.schema, or say with "
            "source.unknown_fields what becomes of such records"
        ),
    ),
    IntegrityCheck.NO_PUBLISHED_OFFSETS: (
        replace(CLEAN, published=(HeldRange(7, OffsetRange(TopicPartition("orders", 2), 90, 105)),)),
        "offsets published already: 5 (in orders[2] 100..200)",
    ),
}


def test_checks_that_set_records_aside_are_named_among_the_causes_of_too_much_quarantine() -> None:
    facts, _ = FAULTS[IntegrityCheck.QUARANTINE_WITHIN_LIMIT]
    results = {each.name: each.detail for each in IntegrityAuditor().judge(replace(facts, set_aside=7))}
    said = (
        "Checks with on_failure: quarantine set 7 of them aside. Correct these checks, source.schema, or the producer"
    )
    assert said in results[IntegrityCheck.QUARANTINE_WITHIN_LIMIT]


def test_field_without_a_name_is_not_to_be_declared() -> None:
    unknown = UnknownFields(2, {"customer.field number 7": Sighting(2, ("orders", 2, 177))})
    results = {each.name: each.detail for each in IntegrityAuditor().judge(replace(CLEAN, unknown_fields=unknown))}
    said = results[IntegrityCheck.NO_UNKNOWN_FIELDS]
    assert "A field number has none: let the producer write with a schema that defines it" in said
    assert "Declare them" not in said


def test_clean_batch_passes_every_check() -> None:
    results = IntegrityAuditor().judge(CLEAN)
    assert [each.outcome for each in results] == [Outcome.PASSED] * len(results)
    assert len({each.name for each in results}) == len(results) == len(FAULTS) + 1


@pytest.mark.parametrize("check", FAULTS)
def test_each_fault_is_found_by_its_check_alone_with_numbers_and_ranges(check: IntegrityCheck) -> None:
    facts, detail = FAULTS[check]
    found = failed(facts)
    if check is IntegrityCheck.NO_DUPLICATE_OFFSETS:
        found.pop(IntegrityCheck.NO_UNEXPLAINED_HOLES)
    assert {name: each.detail for name, each in found.items()} == {check: detail}


def test_duplicates_of_a_pipeline_that_drops_them_are_no_failure() -> None:
    facts = second(lambda one: replace(one, duplicates=5))
    assert set(failed(facts)) == {IntegrityCheck.NO_DUPLICATE_MESSAGES}
    assert failed(replace(facts, is_blocked_by_duplicates=False)) == {}


def test_numbers_matter_as_much_as_the_pipeline_says() -> None:
    facts = replace(FAULTS[IntegrityCheck.NO_MISSING_NUMBERS][0], severity_of_numbers=Severity.WARNING)
    (found,) = failed(facts).values()
    assert (found.severity, found.blocks) == (Severity.WARNING, False)
    assert found.validation is not None
    assert found.validation["expectation_config"]["severity"] == "warning"
    assert (found.observed["missing"], found.observed["restarts"]) == (6, 4)


def test_quarantined_records_are_told_beside_missing_numbers() -> None:
    facts = second(lambda one: replace(one, staged=98, distinct=98, quarantined=2))
    (found,) = failed(replace(facts, numbers=NumberFacts(series=1, missing=2, gaps=1))).values()
    assert "records that cannot be read, whose numbers may be among the missing: 2" in found.detail


def test_numbers_that_turned_null_are_all_missing_and_nothing_is_said_of_repeats() -> None:
    facts = replace(CLEAN, numbers=NumberFacts(unnumbered=300))
    found = failed(facts)
    missing, repeated = found[IntegrityCheck.NO_MISSING_NUMBERS], found[IntegrityCheck.NO_REPEATED_NUMBERS]
    assert (missing.outcome, missing.blocks) == (Outcome.FAILED, True)
    assert missing.detail == "numbers missing in what the producers have numbered: 300; unnumbered: 300"
    assert (repeated.outcome, repeated.detail) == (Outcome.EMPTY, "nothing to judge: no record has a number")
    assert list(map(str, facts.name_offenders()[IntegrityCheck.NO_MISSING_NUMBERS])) == [
        f"{each} (no record has a number)" for each in ORDERS
    ]


def test_some_records_without_a_number_are_told_and_pass() -> None:
    results = {
        each.name: each for each in IntegrityAuditor().judge(replace(CLEAN, numbers=NumberFacts(3, unnumbered=299)))
    }
    missing = results[IntegrityCheck.NO_MISSING_NUMBERS]
    assert missing.passed
    assert missing.detail.endswith("; unnumbered: 299")


def test_numbers_of_a_batch_without_a_row_do_not_pass_by_accident() -> None:
    unread = facts_of(replace(clean(ORDERS[0]), staged=0, distinct=0, quarantined=100))
    found = failed(replace(unread, numbers=NumberFacts(), quarantine_limit=QuarantineLimit(1)))
    assert {name: each.outcome for name, each in found.items()} == dict.fromkeys(CHECKS_OF_NUMBERS, Outcome.EMPTY)
    assert not any(each.blocks for each in found.values())


def test_too_much_quarantine_names_a_record_of_each_kind_and_every_result_tells_the_numbers() -> None:
    facts = FAULTS[IntegrityCheck.QUARANTINE_WITHIN_LIMIT][0]
    named = facts.name_offenders()[IntegrityCheck.QUARANTINE_WITHIN_LIMIT]
    assert list(map(str, named)) == ["orders[1]@107 (170 records: no JSON)"]
    (found,) = failed(facts).values()
    assert (found.observed["records"], found.observed["quarantined"], found.observed["max_share"]) == (300, 180, 0.5)
    assert (found.observed["kinds"], found.observed["most_frequent"]) == (1, {"no JSON": 170})
    (passed,) = [each for each in IntegrityAuditor().judge(CLEAN) if each.name == found.name]
    assert (passed.observed["records"], passed.observed["quarantined"]) == (300, 0)
    of_quarantine = IntegrityAuditor().judge(replace(facts, quarantine_limit=None))
    assert found.name not in {each.name for each in of_quarantine}


def test_pipeline_without_a_sequence_judges_no_numbers() -> None:
    names = {each.name for each in IntegrityAuditor().judge(replace(CLEAN, numbers=None))}
    assert names.isdisjoint({IntegrityCheck.NO_MISSING_NUMBERS, IntegrityCheck.NO_REPEATED_NUMBERS})


def test_hole_is_found_and_named_by_its_class() -> None:
    def lose(one: RangeFacts) -> RangeFacts:
        return replace(one, visible=97, staged=97, distinct=97, holes=HoleCounts(aborted=2, markers=1))

    found = failed(second(lose))
    assert set(found) == {IntegrityCheck.NO_UNEXPLAINED_HOLES, IntegrityCheck.BALANCE_CLOSES}
    hole = found[IntegrityCheck.NO_UNEXPLAINED_HOLES]
    assert "offsets without a visible record, which source.holes does not allow for: 3" in hole.detail
    assert "holes: aborted 2, markers 1" in hole.detail
    assert hole.observed["holes"] == {"aborted": 2, "markers": 1}
    declared = facts_of(*second(lose).ranges, holes=HolePolicy.TRANSACTIONAL)
    assert failed(declared) == {}


def test_same_facts_are_judged_once_a_process_whatever_their_ranges_and_other_facts_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Severities count as facts. What is kept is no more than a few."""
    asked, judge = [], integrity.judge_table
    monkeypatch.setattr(integrity, "_judged", {})
    monkeypatch.setattr(integrity, "judge_table", lambda *table: asked.append(table) or judge(*table))
    later = [clean(OffsetRange(each.partition, 200, 300)) for each in ORDERS]
    positions = [replace(each, next_offset=200) for each in CLEAN.positions or ()]
    moved = replace(facts_of(*later), positions=tuple(positions))
    assert [*IntegrityAuditor().judge(CLEAN)] == [*IntegrityAuditor().judge(moved)]
    assert len(asked) == 1
    warned = IntegrityAuditor().judge(replace(CLEAN, severity_of_numbers=Severity.WARNING))
    assert [each.severity for each in warned if each.name in CHECKS_OF_NUMBERS] == [Severity.WARNING] * 2
    assert len(asked) == 2
    for check, (facts, _) in FAULTS.items():
        assert check in failed(facts)
        assert failed(CLEAN) == {}
    monkeypatch.setattr(integrity, "FACTS_KEPT", 1)
    IntegrityAuditor().judge(facts_of(clean(ORDERS[0])))
    assert len(integrity._judged) == 1


def test_replay_is_not_compared_with_the_position_nor_with_what_others_hold() -> None:
    results = IntegrityAuditor().judge(replace(CLEAN, positions=None))
    names = {each.name for each in results}
    of_live = {IntegrityCheck.RANGES_MEET_POSITION, IntegrityCheck.NO_PUBLISHED_OFFSETS}
    assert names == ({*FAULTS, IntegrityCheck.NO_UNEXPLAINED_HOLES} - of_live)


@pytest.mark.parametrize("check", IntegrityCheck)
def test_each_check_is_an_expectation_by_its_own_name_and_promise(check: IntegrityCheck) -> None:
    assert check in choose_checks(CLEAN)
    assert get_expectation_impl("expect_fact_to_be_zero") is ExpectFactToBeZero
    assert check.promise.endswith(".")
    assert "{total" in check.failure
    expectation = build_expectation(check)
    assert (expectation.column, expectation.description) == (check.value, check.promise)
    assert expectation.meta == {"check": check.value}


def test_control_expectation_that_looks_at_another_fact_does_not_find_the_fault(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without the fact that it is about, each expectation would let its fault pass."""
    table, build = integrity.build_facts_table, integrity.build_expectation
    monkeypatch.setattr(integrity, "build_facts_table", lambda facts: table(facts).assign(nothing=0))
    monkeypatch.setattr(integrity, "build_expectation", lambda *asked: build(*asked).copy(update={"column": "nothing"}))
    for facts, _ in FAULTS.values():
        assert failed(facts) == {}


def test_stored_validation_renders_as_data_docs_in_the_words_of_the_checks() -> None:
    """What is stored is enough for a page, and the page needs no value of a record."""
    facts, detail = FAULTS[IntegrityCheck.NO_ROWS_OUTSIDE_RANGES]
    stored = [each.validation for each in IntegrityAuditor().judge(facts)]
    results = [restore(dict(each)) for each in stored if each is not None]
    assert len(results) == len(stored)
    suite = ExpectationSuiteValidationResult(success=False, results=results, suite_name="integrity", meta={})
    html = DefaultJinjaPageView().render(ValidationResultsPageRenderer().render(suite))
    assert "ranges only." in html
    assert detail.partition(" (in")[0].partition("'")[0] in html


def restore(stored: dict[str, object]) -> ExpectationValidationResult:
    config = stored.pop("expectation_config")
    assert isinstance(config, dict)
    return ExpectationValidationResult(**stored, expectation_config=ExpectationConfiguration(**config))  # type: ignore[arg-type]


def test_failed_check_names_its_records_and_the_command_that_shows_them() -> None:
    found = failed(FAULTS[IntegrityCheck.NO_DUPLICATE_OFFSETS][0])[IntegrityCheck.NO_DUPLICATE_OFFSETS]
    offenders = [Offender(single_offset("orders", 1, offset)) for offset in (120, 121, 150)]
    named = found.with_offenders("copies", offenders)
    command = 'batchledger records copies "orders[1] 120..122" "orders[1] 150..151"'
    assert named.detail.endswith(
        f"for example orders[1]@120, orders[1]@121, orders[1]@150. See the records with: {command}"
    )
    assert named.observed["coordinates"] == ["orders[1]@120", "orders[1]@121", "orders[1]@150"]
    assert (named.observed["command"], named.observed["total"]) == (command, 2)


def test_check_without_offenders_has_no_command() -> None:
    assert CheckResult("x", Outcome.FAILED, "wrong").with_offenders("copies", []).observed == {}


@pytest.mark.parametrize(
    ("offender", "text"),
    [
        (Offender(single_offset("orders", 3, 1200)), "orders[3]@1200"),
        (Offender(OffsetRange(TopicPartition("orders", 3), 5, 9)), "orders[3] 5..9"),
        (Offender(single_offset("orders", 3, 7), "repeats orders[0]@1"), "orders[3]@7 (repeats orders[0]@1)"),
    ],
)
def test_offender_is_named_by_coordinates(offender: Offender, text: str) -> None:
    assert str(offender) == text
