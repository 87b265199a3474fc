"""Housekeeping on a real PostgreSQL: it removes what is left behind, and nothing that an open batch needs.

Every test has a database of its own, because housekeeping looks at everything that a ledger holds.
"""

import threading
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import psycopg
import pytest
from psycopg import sql

from batchledger.interfaces.upkeep import HOUSEKEEPER, tidy
from batchledger.ledger.audits import load_newest_audit, store_audit
from batchledger.ledger.housekeeping import PostgresHousekeeping
from batchledger.ledger.incidents import PostgresIncidents
from batchledger.ledger.migrate import migrate
from batchledger.model import housekeeping
from batchledger.model.batch import Attempt, BatchState, Decision, Lane, RecordOrigin, Step, StepFailure
from batchledger.model.checks import CheckResult, Outcome, Severity
from batchledger.model.findings import IncidentKind
from batchledger.model.housekeeping import BOUNDS, Bounds, Housekeeping, Keeping, Leftover
from batchledger.model.incidents import Condition, Findings
from batchledger.model.offsets import OffsetRange, TopicPartition
from batchledger.planning.live import Plan
from tests.conftest import lend_database
from tests.contract import life
from tests.contract.messages import BY_ID
from tests.contract.warehouses import PostgresWarehouse

ORDERS_0, ORDERS_1 = TopicPartition("orders", 0), TopicPartition("orders", 1)
FIRST, SECOND = OffsetRange(ORDERS_0, 0, 10), OffsetRange(ORDERS_0, 10, 20)
DAY = timedelta(days=1)
VALIDATED = CheckResult("looked_at", Outcome.PASSED, "nothing found", {"rows": 3}, validation={"success": True})


@pytest.fixture
def warehouse(warehouse_dsn: str) -> Iterator[PostgresWarehouse]:
    """A ledger and a sink in a database of this test's own."""
    with lend_database(warehouse_dsn) as dsn:
        migrate(dsn)
        yield PostgresWarehouse(dsn)


def execute(
    warehouse: PostgresWarehouse, statement: str | sql.Composed, *parameters: object
) -> list[tuple[object, ...]]:
    """Change something behind the ledger's back, or ask."""
    text = statement.encode() if isinstance(statement, str) else statement
    with psycopg.connect(warehouse.dsn) as connection:
        cursor = connection.execute(text, parameters)
        return cursor.fetchall() if cursor.description else []


def staging(warehouse: PostgresWarehouse) -> list[str]:
    names = execute(warehouse, "select tablename from pg_tables where schemaname = 'batchledger_staging' order by 1")
    return [str(name) for (name,) in names]


def tables_of(attempt: Attempt, *kinds: str) -> list[str]:
    return [
        f"b{attempt.batch.batch_id}_a{attempt.number}_{kind}" for kind in kinds or ("quarantine", "rows", "visible")
    ]


def let_time_pass(warehouse: PostgresWarehouse, days: int = 1) -> None:
    """Let everything that the ledger knows have happened so many days earlier."""
    for table, column in (
        ("batch", "planned_at"),
        ("batch", "published_at"),
        ("batch", "rows_published_at"),
        ("attempt", "opened_at"),
        ("attempt", "ended_at"),
        ("quarantine", "quarantined_at"),
        ("message_key", "remembered_until"),
    ):
        earlier = sql.SQL("update batchledger.{table} set {column} = {column} - make_interval(days => {days})")
        parts = {"table": sql.Identifier(table), "column": sql.Identifier(column), "days": sql.Literal(days)}
        execute(warehouse, earlier.format(**parts))


def let_audits_pass(warehouse: PostgresWarehouse, days: int) -> None:
    """Let all audits have happened so many days earlier."""
    earlier = "update batchledger.audit_result set audited_at = audited_at - make_interval(days => %s)"
    execute(warehouse, earlier, days)


def keep_house(
    warehouse: PostgresWarehouse,
    *,
    keep: timedelta | None = None,
    is_dry_run: bool = False,
    bounds: dict[Leftover, Bounds] | None = None,
    validations: int = 500,
) -> Housekeeping:
    house = PostgresHousekeeping(warehouse.dsn, is_dry_run, BOUNDS | (bounds or {}))
    keeps = {} if keep is None else {warehouse.pipeline: keep.total_seconds()}
    return tidy(house, [warehouse.pipeline], keeps, Keeping(validations))


def removed(done: Housekeeping) -> dict[Leftover, int]:
    return {
        kind: sum(each.count for each in done.removals if each.kind is kind)
        for kind in Leftover
        if any(each.kind is kind for each in done.removals)
    }


def test_staging_that_a_killed_process_has_left_goes_and_that_of_the_live_batch_stays_and_is_published(
    warehouse: PostgresWarehouse,
) -> None:
    left = life.take_to_published(warehouse, FIRST)
    at_work = life.take_to_audited(warehouse, SECOND, run="run-2")
    let_time_pass(warehouse)
    done = keep_house(warehouse)
    assert removed(done) == {Leftover.STAGING: 3}
    assert {each.subject for each in done.removals} == set(tables_of(left))
    assert all(each.size_bytes is not None and each.size_bytes > 0 for each in done.removals if "rows" in each.subject)
    assert staging(warehouse) == tables_of(at_work)
    assert life.publish(warehouse, at_work) == len(SECOND)
    assert warehouse.prove().holds
    assert removed(keep_house(warehouse)) == {}, "what was over just now is its own run's to remove"


@pytest.mark.parametrize("state", [BatchState.PLANNED, BatchState.STAGED, BatchState.AUDITED, BatchState.BLOCKED])
def test_staging_of_an_open_attempt_stays_in_every_state_and_for_however_long(
    warehouse: PostgresWarehouse, state: BatchState
) -> None:
    batch = life.store(warehouse, FIRST)
    if state is BatchState.PLANNED:
        attempt = warehouse.ledger.open_attempt(batch.batch_id, "run-1")
        warehouse.evidence.open(attempt)
        warehouse.sink.open_staging(attempt, life.batch_of_rows([]).schema)
    else:
        attempt = life.stage(warehouse, batch)
    if state in (BatchState.AUDITED, BatchState.BLOCKED):
        life.audit(warehouse, attempt, life.FAILED if state is BatchState.BLOCKED else life.PASSED)
    assert warehouse.ledger.load_batch(batch.batch_id).state is state
    before = staging(warehouse)
    let_time_pass(warehouse, days=1000)
    assert removed(keep_house(warehouse)) == {}
    assert (staging(warehouse), len(before)) == (before, 3)


def test_staging_of_attempts_that_were_superseded_or_discarded_goes(warehouse: PostgresWarehouse) -> None:
    batch = life.store(warehouse, FIRST)
    superseded = life.stage(warehouse, batch, "run-1")
    at_work = life.stage(warehouse, batch, "run-2")
    replay = life.stage(warehouse, life.store_replay(warehouse, FIRST), "again")
    warehouse.decisions.discard(replay.batch.batch_id, Decision("ana", "not needed"))
    let_time_pass(warehouse)
    done = keep_house(warehouse)
    assert {each.subject for each in done.removals} == {*tables_of(superseded), *tables_of(replay)}
    assert staging(warehouse) == tables_of(at_work)


def test_table_that_a_task_still_writes_to_is_left_and_taken_by_the_next_run(warehouse: PostgresWarehouse) -> None:
    """A zombie of a superseded attempt; housekeeping waits for it no longer than a moment."""
    batch = life.store(warehouse, FIRST)
    zombie = warehouse.ledger.open_attempt(batch.batch_id, "run-1")
    warehouse.sink.open_staging(zombie, life.batch_of_rows([]).schema)
    life.stage(warehouse, batch, "run-2")
    let_time_pass(warehouse)
    (name,) = tables_of(zombie, "open")
    with psycopg.connect(warehouse.dsn) as writing:
        writing.execute(f"lock table batchledger_staging.{name} in row exclusive mode".encode())
        done = keep_house(warehouse)
        assert [(each.subject, each.count, each.is_complete) for each in done.removals] == [(name, 0, False)]
    assert keep_house(warehouse).is_complete
    assert name not in staging(warehouse)


def test_table_that_this_ledger_knows_nothing_of_is_named_and_left_alone(warehouse: PostgresWarehouse) -> None:
    for name in ("b999_a1_rows", "somebody_elses"):
        execute(warehouse, f"create table batchledger_staging.{name} (a int)")
    done = keep_house(warehouse)
    assert (done.unknown, removed(done)) == (("b999_a1_rows",), {})
    assert staging(warehouse) == ["b999_a1_rows", "somebody_elses"]


def test_dry_run_counts_what_would_go_and_removes_nothing(warehouse: PostgresWarehouse) -> None:
    poisoned = life.stage(warehouse, life.store(warehouse, FIRST), poison=[(ORDERS_0, 3)])
    warehouse.ledger.record_audit(poisoned, life.balance(warehouse, poisoned), [VALIDATED])
    life.publish(warehouse, poisoned)
    warehouse.remember_key("a", (ORDERS_0, 1), datetime(2020, 1, 1, tzinfo=UTC))
    let_time_pass(warehouse)
    asked = {"keep": timedelta(hours=1), "validations": 0}
    expected = {
        Leftover.STAGING: 3,
        Leftover.MESSAGE_KEY: 1,
        Leftover.QUARANTINE: 1,
        Leftover.VALIDATION: 1,
    }
    for is_dry_run in (True, True, False):
        done = keep_house(warehouse, is_dry_run=is_dry_run, **asked)  # type: ignore[arg-type]
        assert removed(done) == expected
    assert removed(keep_house(warehouse, **asked)) == {}  # type: ignore[arg-type]


def test_message_keys_that_expired_go_and_those_that_an_open_batch_knows_stay(warehouse: PostgresWarehouse) -> None:
    """A batch that was planned before a key expired drops its duplicates, however late it is published."""
    store = warehouse.with_rules(BY_ID)
    now = datetime.now(UTC)
    life.take_to_published(store, OffsetRange(ORDERS_0, 0, 1))
    open_batch = life.store(store, OffsetRange(ORDERS_0, 1, 3), run="run-2")
    execute(
        warehouse,
        "update batchledger.batch set planned_at = %s where batch_id = %s",
        now - 5 * DAY,
        open_batch.batch_id,
    )
    for index, age in enumerate((7, 6, 4, 1, -1)):
        warehouse.remember_key(f"key-{age}", (ORDERS_1, index), now - age * DAY)
    assert removed(keep_house(warehouse)) == {Leftover.MESSAGE_KEY: 2}
    known = [offset for (partition, offset), _ in warehouse.read_message_keys() if partition == ORDERS_1]
    assert known == [2, 3, 4]
    warehouse.decisions.discard(open_batch.batch_id, Decision("ana", "not needed"))
    assert removed(keep_house(warehouse)) == {Leftover.MESSAGE_KEY: 2}
    assert [offset for (partition, offset), _ in warehouse.read_message_keys() if partition == ORDERS_1] == [4]


def test_run_and_transaction_are_bounded_and_the_next_run_goes_on(warehouse: PostgresWarehouse) -> None:
    life.take_to_published(warehouse, OffsetRange(ORDERS_0, 0, 1))
    for number in range(25):
        warehouse.remember_key(f"key-{number}", (ORDERS_1, number), datetime(2020, 1, 1, tzinfo=UTC))
    small = {Leftover.MESSAGE_KEY: Bounds(per_run=10, per_transaction=4)}
    counts = []
    for _ in range(4):
        done = keep_house(warehouse, bounds=small)
        counts.append((removed(done).get(Leftover.MESSAGE_KEY, 0), done.is_complete))
    assert counts == [(10, False), (10, False), (5, True), (0, True)]


def test_tables_beyond_the_bound_of_a_run_are_left_to_the_next_one(warehouse: PostgresWarehouse) -> None:
    life.take_to_published(warehouse, FIRST)
    let_time_pass(warehouse)
    few = {Leftover.STAGING: Bounds(per_run=2, per_transaction=1)}
    done = keep_house(warehouse, bounds=few)
    assert (removed(done), done.is_complete, len(staging(warehouse))) == ({Leftover.STAGING: 2}, False, 1)
    assert keep_house(warehouse, bounds=few).is_complete
    assert staging(warehouse) == []


def test_key_that_a_publication_has_locked_is_left_without_waiting(warehouse: PostgresWarehouse) -> None:
    life.take_to_published(warehouse, OffsetRange(ORDERS_0, 0, 1))
    for number in range(3):
        warehouse.remember_key(f"key-{number}", (ORDERS_1, number), datetime(2020, 1, 1, tzinfo=UTC))
    with psycopg.connect(warehouse.dsn) as publishing:
        publishing.execute('delete from batchledger.message_key where "offset" = 1')
        assert removed(keep_house(warehouse)) == {Leftover.MESSAGE_KEY: 2}


@pytest.fixture
def poisoned(warehouse: PostgresWarehouse) -> PostgresWarehouse:
    """Two records that were set aside three days ago, and one today."""
    for run, range_, poison in (("old", FIRST, [3, 4]), ("new", SECOND, [12])):
        batch = life.store(warehouse, range_, run=run)
        attempt = life.stage(warehouse, batch, run, poison=[(ORDERS_0, offset) for offset in poison])
        life.audit(warehouse, attempt)
        life.publish(warehouse, attempt)
        if run == "old":
            let_time_pass(warehouse, days=3)
    return warehouse


def test_quarantine_is_kept_as_long_as_the_file_says_and_the_ledger_keeps_that_it_was_removed(
    poisoned: PostgresWarehouse,
) -> None:
    assert removed(keep_house(poisoned)).get(Leftover.QUARANTINE) is None, "without quarantine.keep it stays for good"
    assert removed(keep_house(poisoned, keep=4 * DAY)).get(Leftover.QUARANTINE) is None
    assert removed(keep_house(poisoned, keep=2 * DAY))[Leftover.QUARANTINE] == 2
    assert [offset for _, offset, _ in poisoned.read_quarantine()] == [12]
    assert poisoned.ledger.summarise_quarantine(poisoned.pipeline).records == 1
    assert poisoned.prove().holds
    (decision,) = poisoned.read_pipeline_decisions()
    assert (decision.kind, decision.decided_by, decision.reason) == (
        "quarantine-drop",
        HOUSEKEEPER,
        "quarantine.keep: 2 d",
    )
    assert decision.before == {"quarantined": {"orders[0] 3..5": 2}}


def test_record_that_an_open_quarantine_replay_has_read_stays_until_that_is_over(poisoned: PostgresWarehouse) -> None:
    plan = Plan((OffsetRange(ORDERS_0, 3, 4),), 0, lane=Lane.REPLAY, origin=RecordOrigin.QUARANTINE)
    by_ana = Decision("ana", "the schema is right now")
    replay = poisoned.ledger.store_replay(poisoned.pipeline, plan, "again", by_ana, "key")
    assert removed(keep_house(poisoned, keep=2 * DAY))[Leftover.QUARANTINE] == 1
    assert [offset for _, offset, _ in poisoned.read_quarantine()] == [3, 12]
    attempt = life.stage(poisoned, replay, "again")
    life.audit(poisoned, attempt)
    life.publish(poisoned, attempt)
    assert [offset for _, offset, _ in poisoned.read_quarantine()] == [12]
    assert poisoned.prove().holds


def test_quarantine_of_a_pipeline_that_is_publishing_is_left_to_the_next_run(poisoned: PostgresWarehouse) -> None:
    with psycopg.connect(poisoned.dsn) as publishing:
        publishing.execute("select 1 from batchledger.pipeline where name = %s for update", [poisoned.pipeline])
        done = keep_house(poisoned, keep=2 * DAY)
    assert (removed(done)[Leftover.QUARANTINE], done.is_complete) == (0, False)
    assert removed(keep_house(poisoned, keep=2 * DAY))[Leftover.QUARANTINE] == 2


def test_quarantine_stays_while_a_batch_is_committing(poisoned: PostgresWarehouse) -> None:
    """Its sink may show already what was made of these records, and the ledger would not confirm it any more."""
    attempt = life.announce(poisoned, life.take_replay_to_audited(poisoned, FIRST))
    done = keep_house(poisoned, keep=2 * DAY)
    assert (removed(done)[Leftover.QUARANTINE], done.is_complete) == (0, False)
    with poisoned.ledger.publication(attempt, BatchState.COMMITTING) as publication:
        publication.revoke()
    assert removed(keep_house(poisoned, keep=2 * DAY))[Leftover.QUARANTINE] == 2


def test_validations_of_the_newest_batches_stay_and_what_the_checks_found_stays_for_good(
    warehouse: PostgresWarehouse,
) -> None:
    batches = []
    for start in range(0, 50, 10):
        batch = life.store(warehouse, OffsetRange(ORDERS_0, start, start + 10), run=f"live-{start}")
        attempt = life.stage(warehouse, batch, f"live-{start}")
        warehouse.ledger.record_audit(attempt, life.balance(warehouse, attempt), [VALIDATED])
        life.publish(warehouse, attempt)
        batches.append(batch.batch_id)
    assert removed(keep_house(warehouse, validations=2)) == {Leftover.VALIDATION: 3}
    stripped = replace(VALIDATED, validation=None)
    assert [list(warehouse.ledger.load_checks(each)) for each in batches] == [[stripped]] * 3 + [[VALIDATED]] * 2
    assert removed(keep_house(warehouse, validations=2)) == {}


def test_results_of_audits_go_after_a_month_and_after_a_day_where_they_passed_apart_from_the_newest_audit(
    warehouse: PostgresWarehouse,
) -> None:
    """A pipeline that has never planned a batch is included."""
    now, failed = datetime.now(UTC), replace(VALIDATED, name="wrong", outcome=Outcome.FAILED)
    for age in (40, 20, 2, 0.5):
        store_audit(warehouse.dsn, warehouse.pipeline, now - age * DAY, [VALIDATED, failed])
    assert removed(keep_house(warehouse)) == {Leftover.AUDIT: 4}
    left = execute(warehouse, "select name from batchledger.audit_result order by audited_at, name")
    assert left == [("wrong",), ("wrong",), ("looked_at",), ("wrong",)]
    let_audits_pass(warehouse, days=60)
    assert removed(keep_house(warehouse)) == {Leftover.AUDIT: 2}
    newest = load_newest_audit(warehouse.dsn, warehouse.pipeline)
    assert newest is not None
    assert newest.audited_at == now - 60.5 * DAY
    assert ([each.name for each in newest.checks], newest.failing) == (["looked_at", "wrong"], ["wrong"])


def test_incidents_go_three_months_after_they_ended_with_what_was_sent_and_open_ones_stay(
    warehouse: PostgresWarehouse,
) -> None:
    """A pipeline without any batch is included: its topic may be gone, or Kafka refuse it, from the start."""
    now, kinds = datetime.now(UTC), frozenset(IncidentKind)
    incidents = PostgresIncidents(warehouse.dsn)
    for subject, ages in (("old", (200, 91)), ("young", (200, 89)), ("open", (200, None))):
        found = Condition(warehouse.pipeline, IncidentKind.LEDGER_FINDING, subject, Severity.CRITICAL, "wrong")
        began, ended = ages
        incidents.settle(warehouse.pipeline, Findings((found,)), ["mail"], now - began * DAY)
        if ended is not None:
            incidents.settle(warehouse.pipeline, Findings((), kinds), ["mail"], now - ended * DAY)
    assert removed(keep_house(warehouse)) == {Leftover.INCIDENT: 1}
    assert execute(warehouse, "select subject from batchledger.incident order by 1") == [("open",), ("young",)]
    assert execute(warehouse, "select count(*) from batchledger.notification") == [(3,)]


def test_whole_texts_of_errors_go_after_a_week_and_the_errors_stay(warehouse: PostgresWarehouse) -> None:
    batch = life.store(warehouse, FIRST)
    for age, run in ((8, "old"), (6, "young")):
        attempt = warehouse.ledger.open_attempt(batch.batch_id, run)
        warehouse.ledger.mark_failed(attempt, StepFailure(Step.STAGE, "refused", f"{run}\0 value"))
        at = "update batchledger.attempt set quoted_at = now() - %s * interval '1 day' where run = %s"
        execute(warehouse, at, age, run)
    kept = "select run, quoted from batchledger.attempt where error = 'refused' order by run"
    assert execute(warehouse, kept) == [("old", "old\\0 value"), ("young", "young\\0 value")]
    assert removed(keep_house(warehouse)) == {Leftover.TEXT: 1}
    assert execute(warehouse, kept) == [("old", None), ("young", "young\\0 value")]


@pytest.mark.proof
def test_housekeeping_without_a_break_beside_runs_that_supersede_each_other_takes_nothing_from_them(
    warehouse: PostgresWarehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also without the hour that everything is left to its own run, and with keys to forget all the time."""
    monkeypatch.setattr(housekeeping, "OVER_FOR", timedelta())
    store = warehouse.with_rules(BY_ID)
    is_over, passes, errors = threading.Event(), [0], []

    def tidy_up() -> None:
        try:
            while not is_over.is_set():
                tidy(PostgresHousekeeping(warehouse.dsn), [warehouse.pipeline], {warehouse.pipeline: 0.0}, Keeping(0))
                passes[0] += 1
        except Exception as error:  # noqa: BLE001 (told by the test)
            errors.append(error)

    worker = threading.Thread(target=tidy_up)
    worker.start()
    try:
        for start in range(0, 120, 10):
            batch = life.store(store, OffsetRange(ORDERS_0, start, start + 10), run=f"live-{start}")
            life.stage(store, batch, f"killed-{start}")
            store.remember_key(f"old-{start}", (ORDERS_1, start), datetime(2020, 1, 1, tzinfo=UTC))
            attempt = life.stage(store, batch, f"live-{start}", poison=[(ORDERS_0, start + 1)])
            life.audit(store, attempt)
            assert life.publish(store, attempt) == 9
            replay = life.take_replay_to_audited(store, OffsetRange(ORDERS_0, start, start + 5), run=f"again-{start}")
            assert life.publish(store, replay) == 5
    finally:
        is_over.set()
        worker.join(60)
    assert errors == []
    assert passes[0] > 3
    assert store.prove().holds
    tidy(PostgresHousekeeping(warehouse.dsn), [warehouse.pipeline], {warehouse.pipeline: 0.0}, Keeping(0))
    assert staging(warehouse) == []
    assert [partition for (partition, _), _ in store.read_message_keys() if partition == ORDERS_1] == []
