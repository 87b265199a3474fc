"""What people learn of a pipeline: every kind of condition from what is stored, and none from what is not known."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from batchledger.lifecycle import run_batch
from batchledger.lifecycle.platform import Deadlines
from batchledger.model.balance import HolePolicy
from batchledger.model.batch import Batch, BatchState, Lane, PartitionHealth
from batchledger.model.checks import ACCEPTED_BY_TARGET, CheckResult, Offender, Outcome, Severity, Suite
from batchledger.model.errors import BatchBlockedError, ConfigurationError, StagingError
from batchledger.model.findings import IncidentKind, PipelineState, Place, list_kinds
from batchledger.model.incidents import Condition, Findings, Incident, settle
from batchledger.model.offsets import OffsetRange, TopicPartition
from batchledger.model.records.quarantine import ErrorKind, summarise
from batchledger.model.stored_facts import JudgedBatch, OpenIncident, StoredFacts
from batchledger.monitoring.conditions import find_conditions
from batchledger.monitoring.health import OpenTransaction, PipelineHealth, Threats, survey
from tests.fakes.incidents import MemoryIncidents
from tests.fakes.row_checks import RowTest
from tests.fakes.world import PIPELINE, World, catch_up, staged_twice

ORDERS_0 = TopicPartition("orders", 0)
NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
CALM = Threats(0, (), None, None)
CAUGHT_UP = PipelineHealth("orders", PipelineState.CAUGHT_UP, "", CALM)
BATCH = Batch(
    17, "orders", Lane.LIVE, BatchState.PUBLISHED, 2, "scheduled__1", (OffsetRange(ORDERS_0, 1200, 1500),), 0, NOW
)
NO_NULLS = CheckResult(
    "carrier_not_null", Outcome.FAILED, "7 of 300 rows", severity=Severity.WARNING, suite=Suite.PIPELINE
)
NO_HOLES = CheckResult("no_unexplained_holes", Outcome.FAILED, "2 offsets, for example orders[0]@1201")


def find(
    stored: StoredFacts = StoredFacts(),  # noqa: B008 -- frozen
    health: PipelineHealth = CAUGHT_UP,
    deadlines: Deadlines = Deadlines(),  # noqa: B008 -- frozen
) -> Findings:
    return find_conditions(stored, health, deadlines, NOW)


def only(findings: Findings) -> Condition:
    (condition,) = findings.found
    return condition


def state(batch_state: BatchState) -> Batch:
    return replace(BATCH, state=batch_state)


def test_nothing_is_told_of_a_pipeline_that_has_caught_up() -> None:
    assert find(StoredFacts((), (JudgedBatch(BATCH),), NOW)).found == ()


def test_blocked_batch_is_told_with_checks_numbers_coordinates_and_command() -> None:
    blocked = JudgedBatch(state(BatchState.BLOCKED), (NO_HOLES, NO_NULLS), blocked_since=NOW)
    told = only(find(StoredFacts((blocked,))))
    assert (told.kind, told.subject, told.severity) == (IncidentKind.BLOCKED, "batch 17", Severity.CRITICAL)
    assert told.title == "blocked — no_unexplained_holes"
    assert told.lines == (
        "batch 17 of orders stays invisible: 300 offsets in orders[0] 1200..1500",
        "no_unexplained_holes: 2 offsets, for example orders[0]@1201",
        "",
        "Remove the cause, then take it again: batchledger run orders --batch 17",
        "Or publish what is staged: batchledger accept 17 --reason WHY",
        "Or let the next run plan its offsets again: batchledger discard 17 --reason WHY",
    )
    assert (told.command, told.batch_id, told.run) == ("batchledger batch 17", 17, "scheduled__1")


WAITING = Threats(
    1234,
    (),
    PartitionHealth(ORDERS_0, 1200, 2434, 2434, NOW - 2 * HOUR, NOW + 30 * HOUR),
    PartitionHealth(ORDERS_0, 1200, 2434, 2434, NOW - 2 * HOUR, NOW + 30 * HOUR),
)
BLOCKED = PipelineHealth("orders", PipelineState.BLOCKED, "batch 17 of orders: batchledger batch 17", WAITING)


def test_alert_of_a_blocked_batch_says_how_many_records_wait_and_when_the_oldest_may_expire() -> None:
    blocked = JudgedBatch(state(BatchState.BLOCKED), (NO_HOLES,), blocked_since=NOW)
    assert "1,234 records wait, the oldest may expire in 1 d 6 h" in only(find(StoredFacts((blocked,)), BLOCKED)).lines
    # A replay holds nothing back.
    replay = replace(blocked, batch=replace(blocked.batch, lane=Lane.REPLAY))
    assert "1,234" not in repr(only(find(StoredFacts((replay,)), BLOCKED)).lines)


def test_alert_has_each_range_and_each_example_on_a_line_of_its_own() -> None:
    ranges = tuple(OffsetRange(TopicPartition("orders", number), 0, 10) for number in range(7))
    offenders = [Offender(OffsetRange(ORDERS_0, at, at + 1)) for at in range(7)]
    check = replace(NO_HOLES, detail="7 offsets").with_note("holes: markers 7").with_offenders("orders", offenders)
    batch = replace(state(BatchState.BLOCKED), ranges=ranges)
    lines = only(find(StoredFacts((JudgedBatch(batch, (check,), blocked_since=NOW),)))).facts
    assert lines == (
        "batch 17 of orders stays invisible: 70 offsets in 7 ranges",
        *(f"    {each}" for each in ranges[:5]),
        "    and 2 more",
        "no_unexplained_holes: 7 offsets",
        "  holes: markers 7",
        "  for example",
        *(f"    orders[0]@{at}" for at in range(5)),
        "    and 2 more",
        '  See the records with: batchledger records orders "orders[0] 0..7"',
    )
    assert check.public_detail not in lines


BOTH = Deadlines(lag=HOUR, freshness=HOUR)
SYMPTOMS = {IncidentKind.LAG, IncidentKind.FRESHNESS}


@pytest.mark.parametrize("is_blocked", [True, False])
def test_one_cause_is_one_message_lag_and_freshness_neither_begin_nor_end_beside_a_blocked_batch(
    is_blocked: bool,
) -> None:
    """The negative control is a pipeline without a cause: it has both."""
    blocked = JudgedBatch(state(BatchState.BLOCKED), (NO_HOLES,), blocked_since=NOW)
    health = BLOCKED if is_blocked else replace(BLOCKED, state=PipelineState.UNREAD)
    stored = StoredFacts((blocked,) if is_blocked else (), published_at=NOW - 2 * HOUR)
    found = find(stored, health, BOTH)
    assert {each.kind for each in found.found} == ({IncidentKind.BLOCKED} if is_blocked else SYMPTOMS)
    opened = [
        Incident(number, Condition.of(kind, "orders"), NOW - HOUR, NOW - HOUR)
        for number, kind in enumerate(SYMPTOMS, start=1)
    ]
    settled = settle(opened, found, NOW)
    assert settled.ended == ()
    assert len(settled.continued) == (0 if is_blocked else 2)


def test_blocked_replay_is_no_cause_of_a_lag() -> None:
    replay = replace(state(BatchState.BLOCKED), lane=Lane.REPLAY)
    stored = StoredFacts((JudgedBatch(replay, (NO_HOLES,), blocked_since=NOW),), published_at=NOW - 2 * HOUR)
    found = find(stored, replace(BLOCKED, state=PipelineState.UNREAD), BOTH).found
    assert {each.kind for each in found} == {IncidentKind.BLOCKED, *SYMPTOMS}


@pytest.mark.parametrize(("waited", "is_told"), [(timedelta(seconds=1), False), (HOUR + timedelta(seconds=1), True)])
def test_first_record_after_an_idle_day_is_not_late(waited: timedelta, is_told: bool) -> None:
    first = PartitionHealth(ORDERS_0, 5, 6, 6, NOW - waited, None)
    health = PipelineHealth("orders", PipelineState.UNREAD, "", Threats(1, (), first, None))
    found = find(StoredFacts(published_at=NOW - 24 * HOUR), health, Deadlines(freshness=HOUR)).found
    assert [each.kind for each in found] == [IncidentKind.FRESHNESS] * is_told


def test_idle_topic_is_told_as_one_whose_producers_may_have_stopped() -> None:
    told = only(find(StoredFacts(published_at=NOW - 24 * HOUR), deadlines=Deadlines(freshness=HOUR)))
    assert told.lines[-1] == "nothing is unread: see whether the producers still write"


def test_two_failed_checks_are_named_in_the_title_and_more_are_counted() -> None:
    checks = tuple(replace(NO_HOLES, name=name) for name in ("balance_closes", "no_unexplained_holes", "a", "b"))
    two = only(find(StoredFacts((JudgedBatch(state(BatchState.BLOCKED), checks[:2]),))))
    assert two.title == "blocked — no_unexplained_holes, balance_closes"
    four = only(find(StoredFacts((JudgedBatch(state(BatchState.BLOCKED), checks),))))
    assert four.title == "blocked — no_unexplained_holes, a and 2 more"


def test_words_of_the_table_are_not_passed_on_because_they_may_quote_a_record() -> None:
    refusal = CheckResult(ACCEPTED_BY_TARGET, Outcome.FAILED, 'invalid input syntax: "a secret value"')
    told = only(find(StoredFacts((JudgedBatch(state(BatchState.BLOCKED), (refusal,)),))))
    assert "a secret value" not in repr(told)
    assert told.lines[1].startswith("accepted_by_target: the table refuses the rows")


@pytest.mark.parametrize(("age", "is_told"), [(HOUR, False), (HOUR + timedelta(seconds=1), True)])
def test_batch_that_waits_too_long_for_a_person_is_told_besides(age: timedelta, is_told: bool) -> None:
    blocked = JudgedBatch(state(BatchState.BLOCKED), (NO_HOLES,), blocked_since=NOW - age)
    kinds = [each.kind for each in find(StoredFacts((blocked,)), deadlines=Deadlines(blocked=HOUR)).found]
    assert (IncidentKind.BLOCKED_TOO_LONG in kinds) is is_told


def test_warning_of_a_published_batch_is_told_under_the_name_of_the_check() -> None:
    told = only(find(StoredFacts((), (JudgedBatch(BATCH, (NO_NULLS,)),), NOW)))
    assert (told.kind, told.subject, told.severity) == (IncidentKind.CHECK_FAILED, NO_NULLS.name, Severity.WARNING)
    assert told.title == "check failed — carrier_not_null"
    assert told.lines == ("batch 17 of orders is published", "carrier_not_null: 7 of 300 rows")


def test_records_in_quarantine_are_one_warning_with_the_most_frequent_errors() -> None:
    content = summarise([ErrorKind(f"column c{number} is no int", 9 - number) for number in range(7)])
    told = only(find(StoredFacts(quarantine=content)))
    assert (told.kind, told.subject, told.severity) == (IncidentKind.QUARANTINED, "", Severity.WARNING)
    assert (told.title, told.command) == ("42 records in quarantine", "batchledger quarantine list orders")
    assert told.lines[0] == "9 records: column c0 is no int"
    assert told.lines[-1] == "and 2 more kinds of error"
    assert told.batch_id is None


def test_records_in_quarantine_are_told_again_when_there_are_a_hundred_times_as_many() -> None:
    opened = [OpenIncident(("orders", IncidentKind.QUARANTINED, subject)) for subject in ("", "100 or more")]
    for records, subjects in ((99, [""]), (100, ["", "100 or more"]), (10_000, ["", "100 or more", "10,000 or more"])):
        found = find(StoredFacts(quarantine=summarise([ErrorKind("no int", records)]), open_incidents=tuple(opened)))
        assert [each.subject for each in found.found] == subjects
    fewer = find(StoredFacts(quarantine=summarise([ErrorKind("no int", 7)]), open_incidents=tuple(opened)))
    assert fewer.endings[opened[1].key] == "7 are left"


def test_quarantine_is_looked_at_although_kafka_is_silent_and_its_incident_is_over_when_it_is_empty() -> None:
    silent = PipelineHealth("orders", PipelineState.UNKNOWN, "no answer", None)
    key = ("orders", IncidentKind.QUARANTINED, "")
    found = find(StoredFacts(open_incidents=(OpenIncident(key),)), silent)
    assert IncidentKind.QUARANTINED in found.looked_for
    assert key not in found.unknown
    assert found.endings[key] == "nothing is in quarantine any more"


@pytest.mark.parametrize(
    "check",
    [
        replace(NO_NULLS, severity=Severity.INFO),
        replace(NO_NULLS, outcome=Outcome.PASSED),
        replace(NO_NULLS, outcome=Outcome.EMPTY),
    ],
    ids=["info", "passed", "empty"],
)
def test_what_is_only_recorded_is_not_told(check: CheckResult) -> None:
    assert find(StoredFacts((), (JudgedBatch(BATCH, (check,)),), NOW)).found == ()


def test_critical_check_of_a_published_batch_is_told_unless_a_person_has_accepted_it() -> None:
    published = JudgedBatch(BATCH, (NO_HOLES,))
    assert only(find(StoredFacts((), (published,), NOW))).severity is Severity.CRITICAL
    assert find(StoredFacts((), (replace(published, is_accepted=True),), NOW)).found == ()


def test_check_that_could_not_run_is_told_as_that_and_not_as_bad_data() -> None:
    broken = replace(NO_HOLES, outcome=Outcome.NOT_RUN, detail="column carrier does not exist")
    staged = JudgedBatch(state(BatchState.STAGED), (broken,))
    assert only(find(StoredFacts((staged,)))).title == "check could not run — no_unexplained_holes"


def test_check_that_had_nothing_to_judge_ends_nothing() -> None:
    """The batch with the fault was published; of the next one no row was there to judge."""
    key = ("orders", IncidentKind.CHECK_FAILED, NO_NULLS.name)
    incident = OpenIncident(key, 17, BatchState.PUBLISHED)
    for outcome, is_unknown, ending in (
        (Outcome.EMPTY, True, "only recorded now"),
        (Outcome.PASSED, False, "passed in batch 17"),
    ):
        newest = JudgedBatch(BATCH, (replace(NO_NULLS, outcome=outcome),))
        found = find(StoredFacts((), (newest,), NOW, open_incidents=(incident,)))
        assert (key in found.unknown, found.endings[key]) == (is_unknown, ending)
    gone = find(
        StoredFacts((), (JudgedBatch(BATCH, (replace(NO_HOLES, outcome=Outcome.PASSED),)),), NOW, NOW, (incident,))
    )
    assert (gone.unknown, gone.endings) == (frozenset(), {key: "not asked for any more"})


def test_failed_check_of_a_replay_is_told_as_one_of_its_own() -> None:
    """It says nothing of the live batches, and they nothing of it."""
    replay = JudgedBatch(replace(BATCH, batch_id=18, lane=Lane.REPLAY), (NO_NULLS,))
    live = JudgedBatch(BATCH, (replace(NO_NULLS, outcome=Outcome.PASSED),))
    told = only(find(StoredFacts((), (live, replay), NOW)))
    assert (told.subject, told.batch_id) == (f"{NO_NULLS.name}, batch 18", 18)


def test_batch_that_was_taken_again_stays_blocked_until_it_is_judged() -> None:
    blocked = JudgedBatch(replace(state(BatchState.STAGED), attempt=3), (NO_HOLES,), 2, blocked_since=NOW - 2 * HOUR)
    found = find(StoredFacts((blocked,)), deadlines=Deadlines(blocked=HOUR)).found
    assert [each.kind for each in found] == [IncidentKind.BLOCKED, IncidentKind.BLOCKED_TOO_LONG]
    assert all("attempt 3 has taken it again and is not judged yet" in each.lines for each in found)
    assert find(StoredFacts((replace(blocked, is_accepted=True),))).found == ()
    assert find(StoredFacts((replace(blocked, judged_attempt=3),))).found == (), "judged, and not blocked"


def test_check_that_could_not_run_is_told_until_an_attempt_is_judged() -> None:
    broken = replace(NO_HOLES, outcome=Outcome.NOT_RUN, detail="column carrier does not exist")
    taken_again = JudgedBatch(replace(state(BatchState.PLANNED), attempt=3), (broken,), 2)
    assert only(find(StoredFacts((taken_again,)))).title == "check could not run — no_unexplained_holes"


@pytest.mark.parametrize(("failures", "is_told"), [(1, False), (2, True), (5, True)])
def test_repeated_failure_is_told_from_the_second_attempt_on(failures: int, is_told: bool) -> None:
    planned = JudgedBatch(state(BatchState.PLANNED), failures_in_a_row=failures)
    found = find(StoredFacts((planned,))).found
    assert [each.title for each in found] == ([f"failing — {failures} attempts in a row"] if is_told else [])


@pytest.mark.parametrize(("age", "is_told"), [(HOUR, False), (HOUR + timedelta(seconds=1), True)])
def test_freshness_is_the_time_since_the_last_publication(age: timedelta, is_told: bool) -> None:
    stored = StoredFacts((), (JudgedBatch(BATCH),), NOW - age)
    assert [each.kind for each in find(stored, deadlines=Deadlines(freshness=HOUR)).found] == (
        [IncidentKind.FRESHNESS] if is_told else []
    )
    assert find(StoredFacts(), deadlines=Deadlines(freshness=HOUR)).found == ()


@pytest.mark.parametrize(("age", "is_told"), [(HOUR, False), (HOUR + timedelta(seconds=1), True)])
def test_pipeline_that_has_never_published_is_stale_since_its_first_plan(age: timedelta, is_told: bool) -> None:
    found = find(StoredFacts(known_since=NOW - age), deadlines=Deadlines(freshness=HOUR)).found
    assert [each.kind for each in found] == [IncidentKind.FRESHNESS] * is_told
    assert all("nothing was published since the first plan" in each.lines[0] for each in found)


@pytest.mark.parametrize(("age", "is_told"), [(HOUR, False), (HOUR + timedelta(seconds=1), True)])
def test_lag_is_the_age_of_the_oldest_unread_record(age: timedelta, is_told: bool) -> None:
    oldest = PartitionHealth(ORDERS_0, 1200, 1500, 1500, NOW - age, None)
    health = replace(CAUGHT_UP, state=PipelineState.UNREAD, threats=Threats(300, (), oldest, None))
    found = find(health=health, deadlines=Deadlines(lag=HOUR)).found
    assert [each.lines for each in found] == (
        [("300 unread offsets; the oldest record, orders[0]@1200, is 1 h 1 s old",)] if is_told else []
    )
    assert find(health=health).found == ()


@pytest.mark.parametrize(("left_hours", "is_told"), [(43, False), (42, True), (-1, True)])
def test_unread_records_in_the_last_quarter_of_their_retention_are_told(left_hours: int, is_told: bool) -> None:
    expires_at = NOW + timedelta(hours=left_hours)
    expiring = PartitionHealth(ORDERS_0, 1200, 1500, 1500, expires_at - timedelta(days=7), expires_at)
    found = find(health=replace(CAUGHT_UP, threats=Threats(300, (), None, expiring))).found
    assert [each.kind for each in found] == ([IncidentKind.EXPIRY_NEAR] if is_told else [])


def test_stuck_transaction_is_told_with_how_to_end_it_and_another_one_is_not() -> None:
    stuck = OpenTransaction(ORDERS_0, 1200, 300, NOW - HOUR, is_stuck=True)
    alive = OpenTransaction(TopicPartition("orders", 1), 5, 1, NOW, is_stuck=False)
    told = only(find(health=replace(CAUGHT_UP, threats=replace(CALM, transactions=(stuck, alive)))))
    assert (told.kind, told.subject) == (IncidentKind.STUCK_TRANSACTION, "orders[0]")
    assert "kafka-transactions.sh abort --topic orders --partition 0 --start-offset 1200" in told.lines[-1]


@pytest.mark.parametrize(
    ("pipeline_state", "kind"),
    [
        (PipelineState.LOSS, IncidentKind.LOSS),
        (PipelineState.SOURCE_CHANGED, IncidentKind.SOURCE_CHANGED),
        (PipelineState.UNKNOWN, IncidentKind.UNREACHABLE),
        (PipelineState.AWAITING, IncidentKind.TOPIC_AWAITED),
    ],
)
def test_what_the_survey_says_is_told_in_its_words(pipeline_state: PipelineState, kind: IncidentKind) -> None:
    told = only(find(health=PipelineHealth("orders", pipeline_state, "orders[0] 3..5 are gone", None)))
    assert (told.kind, told.lines) == (kind, ("orders[0] 3..5 are gone",))


def test_what_could_not_be_asked_was_not_looked_for() -> None:
    """Otherwise a loss would be over as soon as Kafka does not answer."""
    threats = {IncidentKind.LAG, IncidentKind.EXPIRY_NEAR, IncidentKind.STUCK_TRANSACTION}
    source = {IncidentKind.LOSS, IncidentKind.SOURCE_CHANGED, IncidentKind.TOPIC_AWAITED}
    unknown = find(health=PipelineHealth("orders", PipelineState.UNKNOWN, "no broker answers", None)).looked_for
    lost = find(health=PipelineHealth("orders", PipelineState.LOSS, "gone", None)).looked_for
    assert not unknown & (threats | source)
    assert source <= lost
    assert not lost & threats
    changed = find(health=PipelineHealth("orders", PipelineState.SOURCE_CHANGED, "another topic", None)).looked_for
    assert changed & (source | threats) == source - {IncidentKind.LOSS}, "nobody knows what the old topic has lost"
    assert find().looked_for == unknown | source | threats
    assert {IncidentKind.BLOCKED, IncidentKind.UNREACHABLE} <= unknown


@pytest.fixture
def world() -> World:
    world = World(holes=HolePolicy.TRANSACTIONAL)
    world.broker.create_topic("orders", 1)
    world.produce(ORDERS_0, 3)
    return world


def look(world: World) -> list[str]:
    stored = MemoryIncidents(world.database).load_facts(PIPELINE)
    found = find_conditions(stored, survey(world.process(), NOW), Deadlines(), NOW).found
    return [each.title for each in found]


def test_conditions_of_a_real_life_come_and_go_with_what_is_stored(world: World) -> None:
    with pytest.raises(BatchBlockedError):
        run_batch.run_once(world.process(alter=staged_twice), "run-1")
    assert look(world) == ["blocked — no_duplicate_offsets, balance_closes"]
    run_batch.run_once(world.process(), "run-2", 1)
    assert look(world) == []
    world.produce(ORDERS_0, 3)
    world.broker.expire(ORDERS_0, before=5)
    assert look(world) == ["unread records are lost"]


def test_failures_of_a_real_life_are_counted_until_an_attempt_comes_to_a_result(world: World) -> None:
    def break_down(rows: object) -> None:
        raise StagingError("a record's value")

    for run in ("run-1", "run-2"):
        with pytest.raises(StagingError):
            run_batch.run_once(world.process(alter=break_down), run)  # type: ignore[arg-type]
    assert look(world) == ["failing — 2 attempts in a row"]
    catch_up(world)
    assert look(world) == []


def test_run_that_fails_before_it_can_read_is_a_failure_that_is_told(world: World) -> None:
    """The module of a check was deleted: every run is red."""
    world.row_tests = (RowTest("good", bool, is_usable=False),)
    for run in ("run-1", "run-2"):
        with pytest.raises(ConfigurationError):
            run_batch.run_once(world.process(), run)
    assert look(world) == ["failing — 2 attempts in a row"]


def test_people_need_to_know_nothing_of_a_retired_pipeline() -> None:
    retired = PipelineHealth("orders", PipelineState.RETIRED, "by ana since 2026-01-01 10:00 UTC: moved", None)
    found = find(StoredFacts(published_at=NOW - timedelta(days=9)), retired, Deadlines(freshness=timedelta(hours=1)))
    assert found.found == ()
    assert found.looked_for == list_kinds(Place.LEDGER, Place.SURVEY, Place.THREATS)
