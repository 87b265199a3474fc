"""Several who go for the same commit of a sink that commits by itself, and a ledger that is lost meanwhile."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any

import psycopg
import pytest

from batchledger.lifecycle.delivery import deliver
from batchledger.lifecycle.outcome import ask_sink
from batchledger.model.batch import Attempt, BatchState
from batchledger.model.errors import OutcomeUnknownError, ServiceUnavailableError
from batchledger.ports import committing, no_crash
from tests.contract import life
from tests.contract.conftest import ELSEWHERE
from tests.contract.decided import assert_proved
from tests.contract.decided import give_up as give_up_offsets
from tests.contract.life import FIRST, SECOND
from tests.contract.messages import BY_ID, Messages
from tests.contract.topic_warehouse import TopicWarehouse
from tests.contract.warehouses import Warehouse
from tests.fakes.crash import CrashOnce, Interrupt, SimulatedCrashError

WAREHOUSES = ELSEWHERE
LIST_STAGING = """select relname, relpersistence::text from pg_class
    where relkind = 'r' and relnamespace = 'batchledger_staging'::regnamespace and relname like %s"""


@dataclass(frozen=True)
class Meddled:
    """Another object, of which one method does something more."""

    inner: Any
    method: str
    do: Callable[..., Any]

    def __getattr__(self, name: str) -> Any:
        if name != self.method:
            return getattr(self.inner, name)
        return lambda *values, **named: self.do(getattr(self.inner, name), *values, **named)


def with_target(warehouse: Warehouse, do: Callable[..., Any]) -> Any:
    """The sink over the part of it that talks to the other system, whose ``commit`` does something more."""
    sink: Any = warehouse.sink
    (part,) = (each.name for each in fields(sink) if hasattr(getattr(sink, each.name), "commit"))
    return replace(sink, **{part: Meddled(getattr(sink, part), "commit", do)})


def resume(warehouse: Warehouse, attempt: Attempt, crash: Callable[[str], None] = no_crash) -> None:
    """Go on as another run."""
    resumed = warehouse.ledger.resume_commit(attempt.batch.batch_id, "run-2")
    deliver(life.platform(warehouse, crash=crash), resumed)


def commit_and_die(warehouse: Warehouse, attempt: Attempt) -> None:
    with pytest.raises(SimulatedCrashError):
        resume(warehouse, attempt, CrashOnce("sink_committed"))


def assert_once(warehouse: Warehouse, attempt: Attempt) -> None:
    """The batch is published, each of its rows is there once, and the proof holds."""
    assert warehouse.ledger.load_batch(attempt.batch.batch_id).state is BatchState.PUBLISHED
    assert set(Counter(life.target_coordinates(warehouse)).values()) == {1}
    assert_proved(warehouse)


def end_publication(warehouse: Warehouse, attempt: Attempt) -> None:
    """Let the server end the session in which the batch is being published."""
    with psycopg.connect(warehouse.dsn, autocommit=True) as other:  # type: ignore[attr-defined]
        ended = other.execute(
            "select pg_terminate_backend(pid, 5000) from pg_stat_activity, batchledger.batch "
            "where pg_stat_activity.state = 'idle in transaction' and batch_id = %s and pid in "
            "(select pid from pg_locks where locktype = 'advisory' and objid::bigint = "
            " hashtextextended('batchledger publication of ' || pipeline, 0) & 4294967295)",
            [attempt.batch.batch_id],
        ).fetchall()
    assert ended == [(True,)]


def test_ledger_that_is_lost_in_the_middle_of_the_sinks_commit_commits_nothing_again(warehouse: Warehouse) -> None:
    attempt = life.take_to_audited(warehouse, FIRST)

    def lose_the_ledger(commit: Callable[..., Any], *values: Any, **named: Any) -> None:
        commit(*values, **named)
        end_publication(warehouse, attempt)

    with pytest.raises(OutcomeUnknownError):
        deliver(life.platform(warehouse, sink=with_target(warehouse, lose_the_ledger)), attempt)
    assert warehouse.ledger.load_batch(attempt.batch.batch_id).state is BatchState.COMMITTING
    resume(warehouse, attempt)
    assert_once(warehouse, attempt)


def test_i4_sleeper_finds_what_a_run_has_committed_that_died_before_it_confirmed(warehouse: Warehouse) -> None:
    """S80."""
    attempt = life.take_to_audited(warehouse, FIRST)
    asleep = Interrupt("announced", lambda: commit_and_die(warehouse, attempt))
    with pytest.raises(OutcomeUnknownError, match="committed"):
        deliver(life.platform(warehouse, crash=asleep), attempt)
    resume(warehouse, attempt)
    assert_once(warehouse, attempt)


def give_up(warehouse: Warehouse, attempt: Attempt) -> None:
    """Take the ledger from the run that is about to begin the sink's commit; another run hears "no", and goes on."""
    end_publication(warehouse, attempt)
    resumed = warehouse.ledger.resume_commit(attempt.batch.batch_id, "run-2")
    with ask_sink(life.platform(warehouse), resumed) as (publication, has_committed):
        assert not has_committed
        publication.revoke()


def test_i4_run_that_has_lost_the_ledger_commits_nothing_any_more_once_another_run_has_asked(
    warehouse: Warehouse,
) -> None:
    attempt = life.take_to_audited(warehouse, FIRST)

    def commit_late(commit: Callable[..., Any], *values: Any, **named: Any) -> None:
        give_up(warehouse, attempt)
        commit(*values, **named)

    with pytest.raises(ServiceUnavailableError):
        deliver(life.platform(warehouse, sink=with_target(warehouse, commit_late)), attempt)
    assert warehouse.ledger.load_batch(attempt.batch.batch_id).state is BatchState.AUDITED
    assert not warehouse.sink.find_commit(attempt)
    assert life.target_coordinates(warehouse) == []


def test_loss_that_is_accepted_between_the_commit_of_a_replay_and_its_confirmation_holds_no_row(
    warehouse: Warehouse,
) -> None:
    """The replay has published offsets that no live batch ever will: they are its own, and no longer lost."""
    life.take_to_published(warehouse, FIRST)
    attempt = life.announce(warehouse, life.take_replay_to_audited(warehouse, SECOND))
    with warehouse.ledger.publication(attempt, BatchState.COMMITTING) as publication:
        committing(warehouse.sink).commit(life.apply(warehouse, publication))
        publication.connection.rollback()
    give_up_offsets(warehouse, SECOND)
    resume(warehouse, attempt)
    assert_once(warehouse, attempt)
    assert life.target_coordinates(warehouse) == life.rows_of([FIRST, SECOND])


def test_failure_does_not_take_back_what_another_run_has_committed_meanwhile(warehouse: Warehouse) -> None:
    attempt = life.take_to_audited(warehouse, FIRST)
    opened: list[BatchState] = []

    def fail(*_: Any, **__: Any) -> None:
        raise ServiceUnavailableError("no answer before the commit was asked for")

    def publication(inner: Callable[..., Any], *values: Any) -> Any:
        opened.append(BatchState.AUDITED)
        if len(opened) == len(("announce", "commit", "revoke")):
            commit_and_die(warehouse, attempt)
        return inner(*values)

    ledger = Meddled(warehouse.ledger, "publication", publication)
    with pytest.raises(OutcomeUnknownError, match="commits nothing twice"):
        deliver(life.platform(warehouse, sink=with_target(warehouse, fail), ledger=ledger), attempt)
    resume(warehouse, attempt)
    assert_once(warehouse, attempt)


@pytest.mark.parametrize("has_keys", [True, False])
def test_everything_that_a_confirmation_needs_is_logged(warehouse: Any, has_keys: bool) -> None:
    """ADR 0023: a crash of the database must not empty what the ledger has to confirm a commit from.

    Without keys to remember it confirms what a topic has by the audit alone (ADR 0074).
    """
    found = warehouse.with_rules(deduplication=BY_ID) if has_keys else warehouse
    attempt = Messages(found).stage_live(p0="aab")
    with psycopg.connect(warehouse.dsn) as connection:
        tables = dict(connection.execute(LIST_STAGING, [f"b{attempt.batch.batch_id}\\_%"]).fetchall())
    assert f"b{attempt.batch.batch_id}_a1_rows" in tables
    unlogged = {name.rpartition("_")[2] for name, kind in tables.items() if kind != "p"}
    is_confirmed_without = isinstance(warehouse, TopicWarehouse) and not has_keys
    assert unlogged == ({"rows", "records"} if is_confirmed_without else set())
