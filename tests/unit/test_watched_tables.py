"""What people hear of a look at a watched table, and what Great Expectations says of it; each with its twin."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from batchledger.checks.ledger import judge
from batchledger.interfaces.airflow.watches import read_form
from batchledger.interfaces.metrics.watches import build_watch_families
from batchledger.ledger.watches import read_look, write_look
from batchledger.model.checks import Outcome
from batchledger.model.errors import ConfigurationError, ServiceUnavailableError
from batchledger.model.findings import IncidentKind, WatchCheck
from batchledger.model.incidents import Findings, Incident, settle
from batchledger.model.offsets import OffsetRange, TopicPartition, count_offsets
from batchledger.monitoring.watched_tables import (
    ask_look,
    describe_look,
    find_conditions,
    find_unreachable,
    tell_failure,
)
from batchledger.proof.watching import Discrepancy, Found, PartitionStanding, TableLook, WatchOutcome, name_outcome
from batchledger.watching.history import summarise

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
PAYMENTS_0, PAYMENTS_1 = TopicPartition("payments", 0), TopicPartition("payments", 1)
ALL = PartitionStanding(PAYMENTS_0, 0, 10, 12, 10, 9)
PROVED = TableLook("payments", NOON, WatchOutcome.PROVED, (ALL,), (), {"markers": 1})


def find(*differences: Discrepancy, standing: PartitionStanding = ALL) -> TableLook:
    """A look that has found one offset of each of these."""
    ranges = (OffsetRange(PAYMENTS_0, 3, 4),)
    found = tuple(Found(each, count_offsets(ranges), ranges) for each in differences)
    return replace(PROVED, outcome=name_outcome(found), found=found, partitions=(standing,))


def open_incidents(*told: Findings) -> list[Incident]:
    """The open incidents after these looks, an hour apart."""
    found: list[Incident] = []
    for number, findings in enumerate(told):
        now = NOON + timedelta(hours=number)
        changed = settle(found, findings, now)
        ended = {each.incident_id for each in changed.ended}
        kept = {each.incident_id: each for each in (*found, *changed.continued) if each.incident_id not in ended}
        opened = [
            Incident(len(kept) + number * 10 + index, each, now, now) for index, each in enumerate(changed.opened)
        ]
        found = [*kept.values(), *opened]
    return found


def kinds_of(*told: Findings) -> list[str]:
    return [each.condition.kind for each in open_incidents(*told)]


def test_wrong_table_is_one_incident_until_a_look_proves_it() -> None:
    missing, twice = find_conditions(find(Discrepancy.MISSING)), find_conditions(find(Discrepancy.TWICE))
    (incident,) = open_incidents(missing, twice)
    assert (incident.opened_at, incident.seen_at) == (NOON, NOON + timedelta(hours=1))
    assert incident.condition.title == "the table is wrong — twice"
    assert incident.condition.command == "batchledger watch payments"
    assert kinds_of(missing, find_conditions(PROVED)) == []


def test_look_that_cannot_say_does_not_end_what_was_wrong_and_one_that_proves_ends_both() -> None:
    wrong, unsaid = find_conditions(find(Discrepancy.MISSING)), find_conditions(find(Discrepancy.EXPIRED))
    assert kinds_of(wrong, unsaid) == [IncidentKind.TABLE_WRONG, IncidentKind.TABLE_UNPROVED]
    both = find_conditions(find(Discrepancy.MISSING, Discrepancy.EXPIRED))
    assert sorted(kinds_of(both)) == [IncidentKind.TABLE_UNPROVED, IncidentKind.TABLE_WRONG]
    assert kinds_of(both, wrong) == [IncidentKind.TABLE_WRONG]
    assert kinds_of(wrong, unsaid, find_conditions(PROVED)) == []


def test_look_that_was_not_possible_is_told_and_ends_nothing_and_the_next_look_ends_it() -> None:
    error = ServiceUnavailableError("The table does not answer.", advice="See the server.")
    silent = find_unreachable("payments", error, "run-1")
    wrong = find_conditions(find(Discrepancy.MISSING))
    assert kinds_of(wrong, silent) == [IncidentKind.TABLE_WRONG, IncidentKind.UNREACHABLE]
    assert kinds_of(silent, wrong) == [IncidentKind.TABLE_WRONG]
    (told,) = silent.found
    assert (told.lines[0], told.command) == ("The table does not answer.", "batchledger watch payments")


def test_failed_task_says_in_words_what_was_found_where() -> None:
    said = tell_failure(find(Discrepancy.MISSING, Discrepancy.STRAY))
    assert said.splitlines() == [
        "payments: the table is wrong — missing",
        "missing 1: payments[0] 3..4, Kafka has records there, read just now or earlier",
        "10 of 10 offsets are proved",
        "payments: the table cannot be proved — without coordinates",
        "without coordinates 1: payments[0] 3..4, rows whose coordinates are missing or no numbers",
        "10 of 10 offsets are proved",
    ]
    assert tell_failure(PROVED) == ""


def outcomes_of(look: TableLook) -> dict[str, str]:
    return {each.name: each.outcome for each in judge(ask_look(look)) if each.outcome is not Outcome.PASSED}


CHECKS = {
    Discrepancy.MISSING: WatchCheck.GAPS,
    Discrepancy.DELETED: WatchCheck.GAPS,
    Discrepancy.TWICE: WatchCheck.DUPLICATES,
}


@pytest.mark.parametrize("difference", [*Discrepancy])
def test_each_difference_fails_its_check_alone(difference: Discrepancy) -> None:
    is_wrong = difference.outcome is WatchOutcome.WRONG
    check = CHECKS.get(difference, WatchCheck.WRONG_ROWS if is_wrong else WatchCheck.VOLUME)
    assert outcomes_of(find(difference)) == {check: Outcome.FAILED}


def test_table_that_is_proved_passes_each_check() -> None:
    checks = judge(ask_look(PROVED))
    assert [each.name for each in checks] == [*WatchCheck]
    assert outcomes_of(PROVED) == {}


def test_records_behind_the_newest_row_are_not_fresh_and_offsets_that_are_not_proved_are_missing_in_the_volume() -> (
    None
):
    behind = replace(ALL, proved=7, behind=3)
    assert outcomes_of(find(standing=behind)) == {"freshness": Outcome.FAILED, "volume": Outcome.FAILED}
    told = {each.name: each.detail for each in judge(ask_look(find(standing=behind)))}
    assert told["freshness"] == "payments[0]: its newest 3 records have no row"
    assert told["volume"] == "payments[0]: 3 of 10 offsets not proved"


def test_topic_without_partitions_has_nothing_to_judge_and_passes_neither_freshness_nor_volume_of_offsets() -> None:
    assert outcomes_of(replace(PROVED, partitions=()))["freshness"] == Outcome.EMPTY


def test_stored_look_is_judged_as_the_look_itself() -> None:
    look = find(Discrepancy.MISSING, standing=replace(ALL, proved=7, behind=3))
    assert judge(ask_look(read_look(write_look(look)))) == judge(ask_look(look))


def test_each_number_of_a_look_is_a_metric_and_no_offset_is_in_a_label() -> None:
    found = {
        (sample.name, *sample.labels.values()): sample.value
        for family in build_watch_families({"payments": summarise(find(Discrepancy.MISSING))})
        for sample in family.samples
    }
    assert found == {
        ("batchledger_watch_outcome", "payments", "wrong"): 1,
        ("batchledger_watch_offsets", "payments"): 10,
        ("batchledger_watch_proved_offsets", "payments"): 10,
        ("batchledger_watch_found", "payments", "missing"): 1,
        ("batchledger_watch_look_timestamp_seconds", "payments"): NOON.timestamp(),
    }


def test_xcom_of_a_look_is_small_whatever_it_has_found() -> None:
    ranges = tuple(OffsetRange(PAYMENTS_1, 2 * each, 2 * each + 1) for each in range(1000))
    look = replace(PROVED, outcome=WatchOutcome.WRONG, found=(Found(Discrepancy.MISSING, 1_000_000, ranges),))
    assert describe_look(look) == {
        "watch": "payments", "outcome": "wrong", "looked_at": NOON.isoformat(), "offsets": 10, "rows": 9, "proved": 10,
        "late": 2, "found": {"missing": 1_000_000},
    }  # fmt: skip


@pytest.mark.parametrize(
    ("configuration", "everything"),
    [({}, False), ({"everything": None}, False), ({"everything": True, "from": "another tool"}, True)],
)
def test_run_proves_all_again_if_its_configuration_says_so(configuration: dict[str, object], everything: bool) -> None:
    assert read_form(configuration) is everything


@pytest.mark.parametrize("configuration", [{"everything": "yes"}, {"evrything": True}, {"Everything": True}])
def test_order_that_would_be_ignored_is_refused(configuration: dict[str, object]) -> None:
    with pytest.raises(ConfigurationError, match="asks for nothing"):
        read_form(configuration)
