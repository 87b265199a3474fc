"""The contract of the Incidents port: one open incident of a key, and an outbox from which nothing is lost."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from batchledger.model.batch import BatchState, Decision, DecisionKind, Step, StepFailure
from batchledger.model.checks import Severity
from batchledger.model.findings import IncidentKind
from batchledger.model.incidents import Condition, Event, Findings, Notification, wait_after
from batchledger.model.offsets import OffsetRange, TopicPartition
from batchledger.model.stored_facts import StoredFacts
from tests.contract import life
from tests.contract.warehouses import Warehouse

ORDERS_0 = TopicPartition("orders", 0)
FIRST, SECOND = OffsetRange(ORDERS_0, 0, 3), OffsetRange(ORDERS_0, 3, 5)
NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
ALL_KINDS = frozenset(IncidentKind)
NOTHING = Findings((), ALL_KINDS)
ANA = Decision("ana@host", "seen")


@pytest.fixture
def blocked(warehouse: Warehouse) -> Condition:
    lines = ("2 offsets, for example orders[0]@1", "more: %s and 'quotes'")
    title = "blocked — no_unexplained_holes"
    kind = IncidentKind.BLOCKED
    return Condition(warehouse.pipeline, kind, "batch 1", Severity.CRITICAL, title, lines, "batchledger batch 1")


def settle(warehouse: Warehouse, *found: Condition, now: datetime = NOON, channels: tuple[str, ...] = ("ops",)) -> None:
    warehouse.incidents.settle(warehouse.pipeline, Findings(found, ALL_KINDS), channels, now)


def claim_all(warehouse: Warehouse, channel: str = "ops", now: datetime = NOON) -> Iterator[Notification]:
    while (claimed := warehouse.incidents.claim(warehouse.pipeline, channel, now)) is not None:
        yield claimed


def test_incident_is_kept_as_it_was_found_and_ends_once(warehouse: Warehouse, blocked: Condition) -> None:
    settle(warehouse, blocked)
    newer = replace(blocked, lines=("3 offsets",), run="scheduled__2")
    settle(warehouse, newer, now=NOON + MINUTE)
    (incident,) = warehouse.incidents.list_open(warehouse.pipeline)
    assert (incident.condition, incident.opened_at, incident.seen_at) == (newer, NOON, NOON + MINUTE)
    settled = warehouse.incidents.settle(warehouse.pipeline, NOTHING, ["ops"], NOON + 2 * MINUTE)
    assert [each.ended_at for each in settled.ended] == [NOON + 2 * MINUTE]
    assert list(warehouse.incidents.list_open(warehouse.pipeline)) == []
    assert not warehouse.incidents.settle(warehouse.pipeline, NOTHING, ["ops"], NOON + 3 * MINUTE).ended


def test_incident_of_a_kind_that_was_not_looked_for_stays(warehouse: Warehouse, blocked: Condition) -> None:
    settle(warehouse, blocked)
    warehouse.incidents.settle(warehouse.pipeline, Findings((), frozenset({IncidentKind.LAG})), ["ops"], NOON + MINUTE)
    assert [each.condition for each in warehouse.incidents.list_open(warehouse.pipeline)] == [blocked]


def test_what_has_ended_may_begin_again_as_another_incident(warehouse: Warehouse, blocked: Condition) -> None:
    for number, found in enumerate([[blocked], [], [blocked]]):
        settle(warehouse, *found, now=NOON + number * MINUTE)
    (incident,) = warehouse.incidents.list_open(warehouse.pipeline)
    assert incident.opened_at == NOON + 2 * MINUTE


def test_looks_that_race_open_one_incident_and_store_one_message(warehouse: Warehouse, blocked: Condition) -> None:
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: settle(warehouse, blocked), range(8)))
    assert len(warehouse.incidents.list_open(warehouse.pipeline)) == 1
    assert len(list(claim_all(warehouse))) == 1


def test_each_channel_is_told_of_beginning_and_end_in_this_order(warehouse: Warehouse, blocked: Condition) -> None:
    settle(warehouse, blocked, channels=("ops", "pager"))
    settle(warehouse, now=NOON + MINUTE, channels=("ops", "pager"))
    for channel in ("ops", "pager"):
        opened = next(claim_all(warehouse, channel, NOON + MINUTE))
        assert (opened.event, opened.channel, opened.tries) == (Event.OPENED, channel, 1)
        assert opened.incident.condition == blocked
        assert list(claim_all(warehouse, channel, NOON + MINUTE)) == []
        warehouse.incidents.mark_sent(opened, NOON + MINUTE)
        (ended,) = claim_all(warehouse, channel, NOON + MINUTE)
        assert (ended.event, ended.incident.ended_at) == (Event.ENDED, NOON + MINUTE)
        warehouse.incidents.mark_sent(ended, NOON + MINUTE)
        assert list(claim_all(warehouse, channel, NOON + timedelta(days=1))) == []


def test_two_processes_never_claim_the_same_message(warehouse: Warehouse, blocked: Condition) -> None:
    settle(warehouse, *(replace(blocked, subject=f"batch {number}") for number in range(6)))
    with ThreadPoolExecutor(4) as pool:
        claimed = list(pool.map(lambda _: warehouse.incidents.claim(warehouse.pipeline, "ops", NOON), range(12)))
    numbers = [each.notification_id for each in claimed if each is not None]
    assert len(set(numbers)) == len(numbers)
    rest = [each.notification_id for each in claim_all(warehouse)]
    assert len({*numbers, *rest}) == len(numbers) + len(rest) == 6


def test_message_that_was_not_sent_is_tried_again_later_and_later(warehouse: Warehouse, blocked: Condition) -> None:
    """The process that has claimed it may also die, and leave unsaid what came of it."""
    settle(warehouse, blocked)
    now = NOON
    for tries in range(1, 7):
        (claimed,) = claim_all(warehouse, now=now)
        assert claimed.tries == tries
        if tries % 2:
            warehouse.incidents.mark_failed(claimed, "answered 500", NOON)
        assert list(claim_all(warehouse, now=now + wait_after(tries) - timedelta(seconds=1))) == []
        now += wait_after(tries)
    assert wait_after(6) == timedelta(minutes=15)


def test_channel_that_works_again_gets_everything_at_once(warehouse: Warehouse, blocked: Condition) -> None:
    settle(warehouse, blocked, replace(blocked, subject="batch 2"))
    first, second = claim_all(warehouse)
    for each in (first, second):
        warehouse.incidents.mark_failed(each, "answered 500", NOON)
    assert list(claim_all(warehouse)) == []
    warehouse.incidents.mark_sent(first, NOON)
    assert [each.notification_id for each in claim_all(warehouse)] == [second.notification_id]


def test_failures_of_channels_are_known_until_they_deliver(warehouse: Warehouse, blocked: Condition) -> None:
    settle(warehouse, blocked, channels=("ops", "pager"))
    (claimed,) = claim_all(warehouse)
    assert list(warehouse.incidents.find_failures(warehouse.pipeline, ["ops", "pager"])) == []
    warehouse.incidents.mark_failed(claimed, "answered 500", NOON)
    (failure,) = warehouse.incidents.find_failures(warehouse.pipeline, ["ops", "pager"])
    assert (failure.channel, failure.tries, failure.unsent, failure.error) == ("ops", 1, 1, "answered 500")
    assert list(warehouse.incidents.find_failures(warehouse.pipeline, ["pager"])) == []
    warehouse.incidents.mark_sent(claimed, NOON)
    # A process that has given up does not call a failure what was delivered after all.
    warehouse.incidents.mark_failed(claimed, "no answer within 10 s", NOON)
    assert list(warehouse.incidents.find_failures(warehouse.pipeline, ["ops"])) == []


def test_channel_that_fails_is_not_told_of_itself(warehouse: Warehouse) -> None:
    kind = IncidentKind.CHANNEL_FAILING
    failing = Condition(warehouse.pipeline, kind, "ops", Severity.WARNING, "ops does not deliver")
    settle(warehouse, failing, channels=("ops", "pager"))
    assert list(claim_all(warehouse, "ops")) == []
    assert len(list(claim_all(warehouse, "pager"))) == 1


def test_facts_of_an_unknown_pipeline_are_empty(warehouse: Warehouse) -> None:
    assert warehouse.incidents.load_facts(warehouse.pipeline) == StoredFacts()


def test_facts_follow_the_life_of_a_batch(warehouse: Warehouse) -> None:
    batch = life.store(warehouse, FIRST)
    life.audit(warehouse, life.stage(warehouse, batch), life.FAILED)
    (facts,) = warehouse.incidents.load_facts(warehouse.pipeline).open_batches
    assert (facts.batch.state, facts.checks, facts.failures_in_a_row) == (BatchState.BLOCKED, (life.FAILED,), 0)
    assert facts.blocked_since is not None
    assert abs(datetime.now(UTC) - facts.blocked_since) < MINUTE
    attempt = life.stage(warehouse, batch, "run-2")
    (facts,) = warehouse.incidents.load_facts(warehouse.pipeline).open_batches
    assert (facts.batch.attempt, facts.judged_attempt, facts.checks) == (2, 1, (life.FAILED,))
    assert facts.is_blocked
    life.audit(warehouse, attempt)
    (facts,) = warehouse.incidents.load_facts(warehouse.pipeline).open_batches
    assert (facts.judged_attempt, facts.checks, facts.is_blocked) == (2, (life.PASSED,), False)
    life.publish(warehouse, attempt)
    stored = warehouse.incidents.load_facts(warehouse.pipeline)
    assert stored.open_batches == ()
    (newest,) = stored.newest_published
    assert (newest.batch.batch_id, newest.checks, newest.is_accepted) == (batch.batch_id, (life.PASSED,), False)
    assert stored.published_at is not None
    assert abs(datetime.now(UTC) - stored.published_at) < MINUTE


def test_failures_are_counted_back_to_the_newest_attempt_that_came_to_a_result(warehouse: Warehouse) -> None:
    batch = life.store(warehouse, FIRST)

    def failures() -> int:
        (facts,) = warehouse.incidents.load_facts(warehouse.pipeline).open_batches
        return facts.failures_in_a_row

    def fail(run: str) -> None:
        attempt = warehouse.ledger.open_attempt(batch.batch_id, run)
        warehouse.ledger.mark_failed(attempt, StepFailure(Step.STAGE, "no broker answers"))

    fail("run-1")
    fail("run-2")
    assert failures() == 2
    life.audit(warehouse, life.stage(warehouse, batch, "run-3"), life.FAILED)
    assert failures() == 0
    # One that was killed is known to have failed when the next one has taken over.
    warehouse.ledger.open_attempt(batch.batch_id, "run-4")
    assert failures() == 0
    fail("run-5")
    assert failures() == 2


@pytest.mark.parametrize("step", [Step.AUDIT, Step.PUBLISH])
def test_attempt_of_which_a_later_step_fails_counts_as_failed_until_the_step_succeeds(
    warehouse: Warehouse, step: Step
) -> None:
    def look() -> tuple[int, Step | None]:
        (facts,) = warehouse.incidents.load_facts(warehouse.pipeline).open_batches
        return facts.failures_in_a_row, facts.failed_step

    attempt = life.stage(warehouse, life.store(warehouse, FIRST))
    assert look() == (0, None)
    warehouse.ledger.mark_failed(attempt, StepFailure(step, "no broker answers"))
    assert look() == (1, step)
    second = life.stage(warehouse, attempt.batch, "run-2")
    assert look() == (1, step)
    warehouse.ledger.mark_failed(second, StepFailure(step, "no broker answers"))
    assert look() == (2, step)
    life.audit(warehouse, second)
    assert look() == (1, step)


def test_batch_that_a_person_has_accepted_says_so(warehouse: Warehouse) -> None:
    batch = life.store(warehouse, FIRST)
    attempt = life.stage(warehouse, batch)
    life.audit(warehouse, attempt, life.FAILED)
    warehouse.decisions.accept(attempt, ANA)
    life.publish(warehouse, attempt)
    (newest,) = warehouse.incidents.load_facts(warehouse.pipeline).newest_published
    assert (newest.is_accepted, newest.checks) == (True, (life.FAILED,))


def test_newest_published_batch_is_one_that_somebody_executed(warehouse: Warehouse) -> None:
    attempt = life.take_to_published(warehouse, FIRST)
    warehouse.decisions.give_up(warehouse.pipeline, [SECOND], DecisionKind.SKIP, ANA)
    (newest,) = warehouse.incidents.load_facts(warehouse.pipeline).newest_published
    assert newest.batch.batch_id == attempt.batch.batch_id


def test_newest_batch_of_each_lane_is_known_and_only_the_live_one_makes_the_pipeline_fresher(
    warehouse: Warehouse,
) -> None:
    live = life.take_to_published(warehouse, FIRST)
    published_at = warehouse.incidents.load_facts(warehouse.pipeline).published_at
    again = life.take_replay_to_audited(warehouse, FIRST)
    life.publish(warehouse, again)
    stored = warehouse.incidents.load_facts(warehouse.pipeline)
    assert [each.batch.batch_id for each in stored.newest_published] == [live.batch.batch_id, again.batch.batch_id]
    assert stored.published_at == published_at is not None


def test_pipeline_that_has_published_nothing_is_known_since_its_first_plan(warehouse: Warehouse) -> None:
    batch = life.store(warehouse, FIRST)
    stored = warehouse.incidents.load_facts(warehouse.pipeline)
    assert (stored.newest_published, stored.published_at) == ((), None)
    assert stored.known_since is not None
    assert abs(batch.planned_at - stored.known_since) < MINUTE


def test_open_incident_comes_with_what_has_become_of_its_batch(warehouse: Warehouse, blocked: Condition) -> None:
    batch = life.store(warehouse, FIRST)
    attempt = life.stage(warehouse, batch)
    life.audit(warehouse, attempt, life.FAILED)
    lost = Condition(warehouse.pipeline, IncidentKind.LOSS, "", Severity.CRITICAL, "lost")
    settle(warehouse, replace(blocked, batch_id=batch.batch_id), lost)

    def states() -> list[tuple[str, BatchState | None, bool]]:
        tracked = warehouse.incidents.load_facts(warehouse.pipeline).open_incidents
        return [(each.key[1], each.batch_state, each.is_accepted) for each in tracked]

    assert states() == [("blocked", BatchState.BLOCKED, False), ("loss", None, False)]
    warehouse.decisions.accept(attempt, ANA)
    assert states() == [("blocked", BatchState.AUDITED, True), ("loss", None, False)]
    settle(warehouse)
    assert states() == []


def test_channel_that_is_named_later_is_told_of_what_goes_on_once(warehouse: Warehouse, blocked: Condition) -> None:
    """A mistyped channel would otherwise have swallowed the incident."""
    settle(warehouse, blocked, channels=("opps",))
    for number in (1, 2):
        settle(warehouse, blocked, now=NOON + number * MINUTE, channels=("ops",))
    (claimed,) = claim_all(warehouse, "ops", NOON + 2 * MINUTE)
    assert (claimed.event, claimed.incident.opened_at) == (Event.OPENED, NOON)
    warehouse.incidents.mark_sent(claimed, NOON + 2 * MINUTE)
    settle(warehouse, now=NOON + 3 * MINUTE, channels=("ops",))
    assert [each.event for each in claim_all(warehouse, "ops", NOON + 3 * MINUTE)] == [Event.ENDED]


def test_ending_is_kept_and_told(warehouse: Warehouse, blocked: Condition) -> None:
    settle(warehouse, blocked)
    (opened,) = claim_all(warehouse)
    warehouse.incidents.mark_sent(opened, NOON)
    over = replace(NOTHING, endings={blocked.key: "discarded"})
    (ended,) = warehouse.incidents.settle(warehouse.pipeline, over, ["ops"], NOON + MINUTE).ended
    assert ended.ending == "discarded"
    (claimed,) = claim_all(warehouse, now=NOON + MINUTE)
    assert claimed.incident == ended


def test_blip_of_the_source_is_told_to_nobody(warehouse: Warehouse) -> None:
    unreachable = Condition(warehouse.pipeline, IncidentKind.UNREACHABLE, "", Severity.WARNING, "no broker answers")
    settle(warehouse, unreachable)
    assert list(claim_all(warehouse)) == []
    settle(warehouse, now=NOON + 5 * MINUTE)
    assert list(claim_all(warehouse, now=NOON + 5 * MINUTE)) == []


def test_source_that_two_looks_a_minute_apart_could_not_ask_is_told_and_so_is_its_end(warehouse: Warehouse) -> None:
    unreachable = Condition(warehouse.pipeline, IncidentKind.UNREACHABLE, "", Severity.WARNING, "no broker answers")
    told = []
    for seconds, found in ((0, [unreachable]), (59, [unreachable]), (60, [unreachable]), (61, [])):
        now = NOON + timedelta(seconds=seconds)
        settle(warehouse, *found, now=now)
        for claimed in claim_all(warehouse, now=now):
            told.append((seconds, claimed.event))
            warehouse.incidents.mark_sent(claimed, now)
    assert told == [(60, Event.OPENED), (61, Event.ENDED)]


def test_message_that_a_working_channel_never_takes_is_given_up_after_a_day(
    warehouse: Warehouse, blocked: Condition
) -> None:
    """Its end is tried all the same, and the channel does not fail any more."""
    settle(warehouse, blocked)
    day = timedelta(days=1)

    def refuse(now: datetime) -> None:
        (refused,) = claim_all(warehouse, now=now)
        warehouse.incidents.mark_failed(refused, "answered 400", now)

    for now in (NOON, NOON + day):
        refuse(now)
    assert [each.last_sent_at for each in warehouse.incidents.find_failures(warehouse.pipeline, ["ops"])] == [None]
    other = replace(blocked, subject="batch 2")
    settle(warehouse, blocked, other, now=NOON + day)
    (taken,) = claim_all(warehouse, now=NOON + day)
    warehouse.incidents.mark_sent(taken, NOON + day)
    (failure,) = warehouse.incidents.find_failures(warehouse.pipeline, ["ops"])
    assert failure.last_sent_at == NOON + day
    refuse(NOON + day)
    assert list(claim_all(warehouse, now=NOON + 9 * day)) == []
    assert list(warehouse.incidents.find_failures(warehouse.pipeline, ["ops"])) == []
    settle(warehouse, other, now=NOON + 9 * day)
    assert [each.event for each in claim_all(warehouse, now=NOON + 9 * day)] == [Event.ENDED]


def test_message_is_kept_for_a_channel_that_was_down_for_days(warehouse: Warehouse, blocked: Condition) -> None:
    settle(warehouse, blocked)
    for days in range(5):
        now = NOON + timedelta(days=days)
        (claimed,) = claim_all(warehouse, now=now)
        warehouse.incidents.mark_failed(claimed, "no answer within 10 s", now)
    assert len(list(claim_all(warehouse, now=NOON + timedelta(days=5)))) == 1
