"""A batch that was killed after its announcement, on a topic to which others write more than can be read in a while."""

import logging
from collections.abc import Callable
from dataclasses import fields

import pytest
from confluent_kafka.admin import AdminClient

from batchledger.database import sessions
from batchledger.ledger.schema import transaction
from batchledger.lifecycle.delivery import deliver
from batchledger.model.batch import Attempt, BatchState
from batchledger.model.errors import ServiceUnavailableError
from batchledger.sinks.topic import commits
from batchledger.sinks.topic import search as output_search
from batchledger.sinks.topic.sink import TopicSink
from tests.contract import life
from tests.contract.decided import assert_proved
from tests.contract.life import FIRST
from tests.contract.topic_warehouse import TopicWarehouse
from tests.fakes.crash import CrashOnce, SimulatedCrashError
from tests.topics import write_foreign

WAREHOUSES = ("topic",)

FOREIGN = 500_000
"""Reading them takes longer than the limit that the tests set, however fast the machine is."""
FEW = 5_000
IDLE_LIMIT = "1s"
TRIES = 5


def die_committing(warehouse: TopicWarehouse, point: str, foreign: int = FEW) -> Attempt:
    """Let the first batch die at a point of its publication; others go on writing, so many records."""
    attempt = life.take_to_audited(warehouse, FIRST)
    with pytest.raises(SimulatedCrashError):
        deliver(life.platform(warehouse, crash=CrashOnce(point)), attempt)
    write_foreign(warehouse.options, warehouse.topic, foreign)
    return attempt


def forget_offsets(warehouse: TopicWarehouse, attempt: Attempt) -> None:
    """Delete the group, as Kafka does after a long time without commits in it."""
    group = commits.group_of(attempt.batch)
    # The answer dies with its client.
    client = AdminClient(dict(warehouse.options))
    client.delete_consumer_groups([group])[group].result(30)


def settle(warehouse: TopicWarehouse, attempt: Attempt, monkeypatch: pytest.MonkeyPatch) -> None:
    """Go on as other runs, of a database that is less patient than reading the topic takes.

    On a machine that is busy an answer of the broker may take a second, too, but not each time.
    """
    monkeypatch.setitem(sessions.PINNED, "idle_in_transaction_session_timeout", IDLE_LIMIT)
    for tries_left in reversed(range(TRIES)):
        try:
            resumed = warehouse.ledger.resume_commit(attempt.batch.batch_id, "run-2")
            deliver(life.platform(warehouse), resumed)
        except ServiceUnavailableError:
            if not tries_left:
                raise
        else:
            return


def assert_once(warehouse: TopicWarehouse, attempt: Attempt) -> None:
    """Each row of the batch is in the topic once, and the ledger proves it."""
    assert warehouse.ledger.load_batch(attempt.batch.batch_id).state is BatchState.PUBLISHED
    expected = sorted(
        (each.partition, offset) for each in attempt.batch.ranges for offset in range(each.start, each.until)
    )
    assert life.target_coordinates(warehouse) == expected
    assert_proved(warehouse)


@pytest.mark.parametrize("point", ["announced", "sink_committed"])
def test_first_batch_that_died_is_settled_without_looking_at_the_records_of_others(
    warehouse: TopicWarehouse, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, point: str
) -> None:
    attempt = die_committing(warehouse, point)
    settle(warehouse, attempt, monkeypatch)
    assert "is searched for" not in caplog.text
    assert_once(warehouse, attempt)


@pytest.mark.proof
@pytest.mark.parametrize("point", ["announced", "sink_committed"])
def test_batch_whose_group_was_forgotten_is_searched_for_longer_than_the_ledger_lets_a_transaction_be_idle(
    warehouse: TopicWarehouse, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, point: str
) -> None:
    caplog.set_level(logging.INFO)
    attempt = die_committing(warehouse, point, FOREIGN)
    forget_offsets(warehouse, attempt)
    monkeypatch.setattr(output_search, "TELL_EACH_SECONDS", 0.1)
    settle(warehouse, attempt, monkeypatch)
    assert "is searched for in 500," in caplog.text
    assert any(" records read (" in each for each in caplog.messages) or point == "sink_committed"
    assert_once(warehouse, attempt)


def test_batch_that_an_older_version_has_announced_is_searched_for_since_it_was_planned(
    warehouse: TopicWarehouse, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    attempt = die_committing(warehouse, "announced")
    forget_offsets(warehouse, attempt)
    with transaction(warehouse.dsn, "be an older version") as cursor:
        cursor.execute(
            "update batchledger.batch set announced_ends = null where batch_id = %s", [attempt.batch.batch_id]
        )
    settle(warehouse, attempt, monkeypatch)
    assert "is searched for in 5,000 offsets" in caplog.text
    assert_once(warehouse, attempt)


def test_no_transaction_of_the_ledger_is_open_while_the_topic_is_searched(
    warehouse: TopicWarehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So no limit of the database matters, and no other run waits."""
    attempt = life.take_to_audited(warehouse, FIRST)
    with pytest.raises(SimulatedCrashError):
        deliver(life.platform(warehouse, crash=CrashOnce("announced")), attempt)
    forget_offsets(warehouse, attempt)
    locked: list[bool] = []
    search = output_search.search

    def look(*values: object) -> bool:
        with transaction(warehouse.dsn, "look whether somebody holds the lock of the pipeline") as cursor:
            name = f"batchledger publication of {warehouse.pipeline}"
            cursor.execute("select pg_try_advisory_xact_lock(hashtextextended(%s, 0))", [name])
            locked.append(not cursor.fetchall()[0][0])
        return search(*values)  # type: ignore[arg-type]

    monkeypatch.setattr("batchledger.sinks.topic.transaction.search", look)
    settle(warehouse, attempt, monkeypatch)
    assert locked == [False]
    assert_once(warehouse, attempt)


def commit_and_die(warehouse: TopicWarehouse, attempt: Attempt) -> None:
    resumed = warehouse.ledger.load_batch(attempt.batch.batch_id)
    twin = Attempt(resumed, resumed.attempt, str(resumed.attempt_run))
    with pytest.raises(SimulatedCrashError):
        deliver(life.platform(warehouse, crash=CrashOnce("sink_committed")), twin)


def overtaken(sink: TopicSink, act: Callable[[], None]) -> TopicSink:
    """The sink, which lets a twin act after each of its searches."""

    class Overtaken(TopicSink):
        def search_commit(self, attempt: Attempt) -> None:
            super().search_commit(attempt)
            act()

    return Overtaken(**{each.name: getattr(sink, each.name) for each in fields(sink)})


def test_commit_of_a_twin_between_the_search_and_the_transaction_is_confirmed_and_not_made_again(
    warehouse: TopicWarehouse,
) -> None:
    attempt = life.take_to_audited(warehouse, FIRST)
    with pytest.raises(SimulatedCrashError):
        deliver(life.platform(warehouse, crash=CrashOnce("announced")), attempt)
    forget_offsets(warehouse, attempt)
    resumed = warehouse.ledger.resume_commit(attempt.batch.batch_id, "run-2")
    sink = overtaken(warehouse.sink, lambda: commit_and_die(warehouse, attempt))
    deliver(life.platform(warehouse, sink=sink), resumed)
    assert_once(warehouse, attempt)
