"""The totals of a pipeline are the sums of its history: over the real PostgreSQL, because it is about statements."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import psycopg
import pytest
from psycopg.rows import dict_row

from batchledger.ledger.incidents import PostgresIncidents
from batchledger.ledger.totals import NO_TOTALS, OFFSET_KINDS, PipelineTotals, load_totals
from batchledger.model.batch import Attempt, BatchState, Lane, Step
from batchledger.model.errors import FencedError
from batchledger.model.findings import IncidentKind
from batchledger.model.incidents import Condition, Findings
from batchledger.model.offsets import OffsetRange
from batchledger.planning.live import Plan
from tests.conftest import ROOT
from tests.contract import life
from tests.contract.decided import BY_ANA, give_up, rewind, take_to_blocked
from tests.contract.life import FIRST, ORDERS_0, OTHER, SECOND
from tests.contract.warehouses import PostgresWarehouse, open_postgres

THIRD = OffsetRange(ORDERS_0, 5, 9)
_NUMBERS = ("published", "discarded", *OFFSET_KINDS, "unexplained", "timed")


@pytest.fixture
def warehouse(warehouse_dsn: str) -> Iterator[PostgresWarehouse]:
    """A pipeline of the test's own in the ledger that all tests share."""
    yield from open_postgres(warehouse_dsn)


@pytest.fixture
def other(warehouse_dsn: str) -> Iterator[PostgresWarehouse]:
    """Another pipeline beside it."""
    yield from open_postgres(warehouse_dsn)


def rehearse(warehouse: PostgresWarehouse, part: OffsetRange) -> Attempt:
    """Stage a dry run of a replay."""
    plan = Plan((part,), 0, lane=Lane.REPLAY, is_dry_run=True)
    return life.stage(warehouse, warehouse.ledger.store_replay(warehouse.pipeline, plan, "dry", BY_ANA, "dry"), "dry")


def totals_of(warehouse: PostgresWarehouse) -> PipelineTotals:
    return load_totals(warehouse.dsn, [warehouse.pipeline])[warehouse.pipeline]


def count_again(warehouse: PostgresWarehouse) -> dict[str, float]:
    """The row of the pipeline as the migration makes it of the history, in a transaction that is rolled back."""
    script = (ROOT / "include" / "batchledger" / "ledger" / "migrations" / "0.3.0.sql").read_text(encoding="utf-8")
    insert = script[script.index("insert into batchledger.pipeline_total") :].partition(";")[0]
    with psycopg.connect(warehouse.dsn) as connection:
        connection.execute("delete from batchledger.pipeline_total")
        connection.execute(insert.encode())
        row = _read_row(connection, warehouse.pipeline)
        connection.rollback()
    return row


def count_now(warehouse: PostgresWarehouse) -> dict[str, float]:
    """The row of the pipeline as its transactions have kept it."""
    with psycopg.connect(warehouse.dsn) as connection:
        return _read_row(connection, warehouse.pipeline)


def _read_row(connection: psycopg.Connection, pipeline: str) -> dict[str, float]:
    cursor = connection.cursor(row_factory=dict_row)
    (row,) = cursor.execute("select * from batchledger.pipeline_total where pipeline = %s", [pipeline])
    return {name: round(value, 6) if isinstance(value, float) else value for name, value in row.items()}


def test_totals_are_the_sums_of_a_history_with_everything_in_it(warehouse: PostgresWarehouse) -> None:
    """A publication, a blocked batch that is accepted, one that is given up, a replay, a dry run, a rewind."""
    life.take_to_published(warehouse, FIRST, OTHER)
    blocked = take_to_blocked(warehouse, SECOND, missing=1)
    assert (totals_of(warehouse).unexplained_open, totals_of(warehouse).unexplained_published) == (1, 0)
    warehouse.decisions.accept(blocked, BY_ANA)
    life.publish(warehouse, replace(blocked, batch=warehouse.ledger.load_batch(blocked.batch.batch_id)))
    doomed = life.store(warehouse, THIRD)
    give_up(warehouse, THIRD, discard=doomed.batch_id)
    again = life.stage(warehouse, life.store_replay(warehouse, FIRST, run="again"), "again")
    life.audit(warehouse, again)
    life.publish(warehouse, again)
    dry = rehearse(warehouse, FIRST)
    warehouse.ledger.end_dry_run(dry.batch.batch_id)
    rewind(warehouse, {ORDERS_0: 3})
    row = count_now(warehouse)
    assert row == count_again(warehouse)
    assert {name: row[name] for name in _NUMBERS} == {
        **dict.fromkeys(_NUMBERS, 0),
        "published": 4,
        "discarded": 1,
        "accepted": 5 + 1 + 3,
        "accepted_loss": 1 + 4,
        "timed": 2,
    }
    found = totals_of(warehouse)
    assert found.batches_by_end == {BatchState.PUBLISHED: 4, BatchState.DISCARDED: 1}
    assert (found.unexplained_open, found.unexplained_published, found.open_batches_by_state) == (0, 0, {})
    assert all(seconds > 0 for seconds in found.seconds_by_step.values())


def test_totals_that_a_transaction_does_not_keep_differ_from_the_history(warehouse: PostgresWarehouse) -> None:
    """The negative control of the comparison above."""
    life.take_to_published(warehouse, FIRST, OTHER)
    with psycopg.connect(warehouse.dsn) as connection:
        connection.execute("delete from batchledger.pipeline_total where pipeline = %s", [warehouse.pipeline])
    life.take_to_published(warehouse, SECOND)
    assert count_now(warehouse)["accepted"] == 2
    assert count_again(warehouse)["accepted"] == 7


def test_publication_that_is_refused_counts_nothing(warehouse: PostgresWarehouse) -> None:
    attempt = life.take_to_published(warehouse, FIRST, OTHER)
    before = count_now(warehouse)
    with pytest.raises(FencedError):
        life.publish(warehouse, attempt)
    assert count_now(warehouse) == before


def test_steps_are_timed_from_mark_to_mark(warehouse: PostgresWarehouse) -> None:
    attempt = life.take_to_audited(warehouse, FIRST, OTHER)
    with psycopg.connect(warehouse.dsn) as connection:
        connection.execute(
            "update batchledger.attempt set opened_at = now() - interval '60 s', staged_at = now() - interval '35 s', "
            "audited_at = now() - interval '15 s' where batch_id = %s",
            [attempt.batch.batch_id],
        )
    life.publish(warehouse, attempt)
    found = totals_of(warehouse)
    seconds = {step: round(found.seconds_by_step[step]) for step in (Step.STAGE, Step.AUDIT)}
    assert (found.timed, seconds) == (1, {Step.STAGE: 25, Step.AUDIT: 20})
    assert found.seconds_by_step[Step.PUBLISH] >= 15


def test_open_batches_of_both_lanes_are_counted_by_state_without_dry_runs(
    warehouse: PostgresWarehouse, other: PostgresWarehouse
) -> None:
    life.take_to_published(warehouse, FIRST, OTHER)
    take_to_blocked(warehouse, SECOND, missing=2)
    life.stage(warehouse, life.store_replay(warehouse, OTHER, run="again"), "again")
    rehearse(warehouse, FIRST)
    life.store(other, FIRST)
    found = load_totals(warehouse.dsn, [warehouse.pipeline, other.pipeline])
    assert found[warehouse.pipeline].open_batches_by_state == {BatchState.BLOCKED: 1, BatchState.STAGED: 1}
    assert found[warehouse.pipeline].unexplained_open == 2
    assert found[other.pipeline].open_batches_by_state == {BatchState.PLANNED: 1}


def test_pipeline_is_fresh_since_its_last_live_publication_and_known_since_its_first_plan(
    warehouse: PostgresWarehouse, other: PostgresWarehouse
) -> None:
    published = life.take_to_published(warehouse, FIRST, OTHER)
    facts = PostgresIncidents(warehouse.dsn).load_facts(warehouse.pipeline)
    assert totals_of(warehouse).published_at == facts.published_at is not None
    give_up(warehouse, SECOND)
    assert totals_of(warehouse).published_at == facts.published_at, "an accepted loss brings nothing new"
    life.store(other, FIRST)
    assert totals_of(other).published_at is None
    assert totals_of(other).known_since == PostgresIncidents(other.dsn).load_facts(other.pipeline).known_since
    assert published.batch.pipeline == warehouse.pipeline


def test_open_incidents_are_counted_by_kind_until_they_end(warehouse: PostgresWarehouse) -> None:
    incidents, now = PostgresIncidents(warehouse.dsn), datetime.now(UTC)
    kinds = frozenset({IncidentKind.CHECK_FAILED, IncidentKind.LAG})
    found = [
        Condition.of(IncidentKind.CHECK_FAILED, warehouse.pipeline, subject="one"),
        Condition.of(IncidentKind.CHECK_FAILED, warehouse.pipeline, subject="two"),
        Condition.of(IncidentKind.LAG, warehouse.pipeline),
    ]
    incidents.settle(warehouse.pipeline, Findings(tuple(found), kinds), (), now)
    assert totals_of(warehouse).incidents_by_kind == {"check_failed": 2, "lag": 1}
    incidents.settle(warehouse.pipeline, Findings(tuple(found[2:]), kinds), (), now + timedelta(minutes=1))
    assert totals_of(warehouse).incidents_by_kind == {"lag": 1}


def test_pipeline_that_the_ledger_does_not_know_has_no_totals(warehouse_dsn: str) -> None:
    assert load_totals(warehouse_dsn, ["there_is_no_such_pipeline"]) == {"there_is_no_such_pipeline": NO_TOTALS}
