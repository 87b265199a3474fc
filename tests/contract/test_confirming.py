"""What ledger and sink know of one another's batches: one that is committed is confirmed, or says why it cannot be."""

from collections import Counter
from dataclasses import replace
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import psycopg
import pytest

from batchledger.lifecycle.delivery import deliver
from batchledger.lifecycle.tracing import trace_nothing
from batchledger.model.batch import Attempt, BatchState
from batchledger.model.errors import ConfigurationError, StagingLostError, TargetChangedError, TargetRefusedError
from tests.contract import life
from tests.contract.life import FIRST, SECOND
from tests.contract.messages import BY_ID, Messages
from tests.contract.topic_warehouse import TopicWarehouse
from tests.contract.warehouses import PostgresWarehouse, Warehouse
from tests.fakes.crash import CrashOnce, SimulatedCrashError

WAREHOUSES = ("topic",)


def platform(warehouse: Warehouse, crash: Any = lambda _: None) -> Any:
    return SimpleNamespace(ledger=warehouse.ledger, sink=warehouse.sink, crash=crash, trace=trace_nothing)


def test_batch_is_not_staged_for_a_topic_that_has_one_that_the_ledger_does_not_know(warehouse: TopicWarehouse) -> None:
    """As after a restore from a backup, behind which the numbers of batches have jumped."""
    batch = life.store(warehouse, FIRST)
    lost = Attempt(replace(batch, batch_id=0, planned_at=life.NOW), 1, "before the restore")
    warehouse.sink.topic.require_usable(lost)
    warehouse.sink.topic.commit(lost, [], 0)
    with pytest.raises(TargetRefusedError, match=r"(?s)batch=0 .*restored from a backup"):
        life.stage(warehouse, batch)


def test_batch_that_was_planned_while_the_clock_was_ahead_stops_no_later_one(warehouse: TopicWarehouse) -> None:
    ahead = life.store(warehouse, FIRST)
    warehouse.plan_at(ahead.batch_id, ahead.planned_at + timedelta(hours=10))
    for batch in (warehouse.ledger.load_batch(ahead.batch_id), None):
        staged = life.stage(warehouse, batch or life.store(warehouse, SECOND))
        life.audit(warehouse, staged)
        life.publish(warehouse, staged)
    assert warehouse.prove().findings == ()


@pytest.fixture
def attempt(warehouse: Warehouse) -> Attempt:
    """The attempt of a batch with a duplicate that the sink has committed and the ledger has not confirmed."""
    ruled = warehouse.with_rules(deduplication=BY_ID)
    attempt = Messages(ruled).stage_live(p0="aab")
    with pytest.raises(SimulatedCrashError):
        deliver(platform(ruled, CrashOnce("sink_committed")), attempt)
    assert visible(warehouse) == Counter("ab")
    resumed = warehouse.ledger.resume_commit(attempt.batch.batch_id, "run-2")
    # The sink has another day of planning than the ledger.
    return replace(resumed, batch=replace(resumed.batch, planned_at=attempt.batch.planned_at))


def visible(warehouse: Warehouse) -> Counter[str]:
    return Counter(row["message_id"] for row in warehouse.read_target())


@pytest.mark.lake
def test_rules_that_were_changed_since_the_commit_have_to_be_restored_until_it_is_confirmed(
    warehouse: Warehouse, attempt: Attempt
) -> None:
    without = warehouse.with_rules()
    for _ in range(2):
        with pytest.raises(ConfigurationError, match=r"Its rules \(dedupe, sequence,") as refused:
            deliver(platform(without), attempt)
        assert refused.value.batch_id == attempt.batch.batch_id
        assert "Nothing was published" not in str(refused.value)
        assert warehouse.ledger.load_batch(attempt.batch.batch_id).state is BatchState.COMMITTING
    deliver(platform(warehouse.with_rules(deduplication=BY_ID)), attempt)
    assert warehouse.ledger.load_batch(attempt.batch.batch_id).state is BatchState.PUBLISHED
    assert visible(warehouse) == Counter("ab")


@pytest.mark.lake
@pytest.mark.parametrize("is_there", [False, True], ids=["table is not there", "table is there"])
def test_pipeline_that_names_a_table_now_cannot_tell_what_was_committed_and_publishes_nothing(
    warehouse: PostgresWarehouse, attempt: Attempt, is_there: bool
) -> None:
    """Otherwise the rows that one target shows already would come to another one too."""
    table = PostgresWarehouse(warehouse.dsn, warehouse.pipeline, warehouse.schema, BY_ID)
    if is_there:
        columns = (
            "_topic text, _partition int, _offset bigint, _timestamp timestamptz, message_id text, _batch_id bigint"
        )
        with psycopg.connect(warehouse.dsn) as connection:
            connection.execute(f"create schema if not exists {warehouse.schema}".encode())
            connection.execute(f"create table {warehouse.schema}.orders ({columns})".encode())
    for _ in range(2):
        with pytest.raises(TargetChangedError, match="Only the target of its announcement knows"):
            deliver(platform(table), attempt)
        assert warehouse.ledger.load_batch(attempt.batch.batch_id).state is BatchState.COMMITTING
    assert list(table.read_target()) == []
    deliver(platform(warehouse.with_rules(deduplication=BY_ID)), attempt)
    assert warehouse.ledger.load_batch(attempt.batch.batch_id).state is BatchState.PUBLISHED
    assert visible(warehouse) == Counter("ab")


@pytest.mark.parametrize("change", ["delete from {}", "drop table {}"])
def test_staging_that_was_lost_since_the_commit_does_not_say_that_nothing_is_visible(
    warehouse: TopicWarehouse, attempt: Attempt, change: str
) -> None:
    rows = f"batchledger_staging.b{attempt.batch.batch_id}_a{attempt.number}_rows"
    with psycopg.connect(warehouse.dsn) as connection:
        connection.execute(change.format(rows).encode())
    with pytest.raises(
        StagingLostError, match=rf"(?s)shows the rows .* attempt {attempt.number} has staged was changed by hand"
    ) as refused:
        deliver(platform(warehouse.with_rules(deduplication=BY_ID)), attempt)
    assert "Nothing was published" not in str(refused.value)
