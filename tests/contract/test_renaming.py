"""A renamed pipeline has its whole history, and nothing writes under the name that it has given up."""

from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from datetime import UTC, datetime
from functools import partial
from typing import Any

import psycopg
import pytest
from psycopg import sql

from batchledger.books.history import list_batches, list_decisions, load_published_history
from batchledger.ledger import renaming
from batchledger.ledger.decisions import PostgresDecisions
from batchledger.ledger.requests import list_requests
from batchledger.lifecycle.orders import DropQuarantined
from batchledger.lifecycle.written_orders import write_order
from batchledger.model.batch import Decided, Decision, DecisionKind, DecisionRecord, Position, Target
from batchledger.model.checks import Severity
from batchledger.model.effects import Effect
from batchledger.model.erasure import ErasureKey
from batchledger.model.errors import (
    BatchledgerError,
    ConfigurationError,
    DecisionRefusedError,
    TargetChangedError,
    UnknownPipelineError,
)
from batchledger.model.findings import IncidentKind
from batchledger.model.incidents import Condition, Findings
from batchledger.model.offsets import OffsetRange
from batchledger.planning.live import Plan
from batchledger.proof.decision_chain import find_break
from batchledger.sinks.iceberg import ownership
from tests.contract import life
from tests.contract.decided import BY_ANA, BY_BEN, assert_proved, record_of, rewind
from tests.contract.lake_warehouse import LakeWarehouse
from tests.contract.life import FIRST, ORDERS_0, SECOND
from tests.contract.warehouses import IDENTITY, PostgresWarehouse, let_run
from tests.support import wait_until

WAREHOUSES = ("postgres", "lake", "topic")
THIRD = OffsetRange(ORDERS_0, SECOND.until, SECOND.until + 2)
KEY = ErasureKey.parse(["message_id=orders[0]@1"])
NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
REFUSED = r"(?s){} is renamed: its history belongs to {}\. Nothing was written.*Call the file {}\.yaml"


@pytest.fixture
def new(warehouse: PostgresWarehouse, warehouse_dsn: str) -> Iterator[PostgresWarehouse]:
    """The same ledger and sink, for the pipeline under its new name, whose role has the grants of the old one."""
    renamed = replace(warehouse, pipeline=f"{warehouse.pipeline}_new")
    yield renamed
    with psycopg.connect(warehouse_dsn) as connection:
        connection.execute("delete from batchledger.pipeline_role where pipeline = %s", [renamed.pipeline])


def read_named(dsn: str, pipeline: str) -> dict[str, list[Any]]:
    """Every row of the ledger that has the name, by table, without what names the pipeline."""
    with psycopg.connect(dsn) as connection:
        tables = connection.execute(
            "select table_name::text from information_schema.columns join information_schema.tables "
            "using (table_schema, table_name) "
            "where table_schema = 'batchledger' and column_name = 'pipeline' and table_type = 'BASE TABLE' order by 1"
        ).fetchall()
        query = (
            "select to_jsonb(t) - 'pipeline' - 'recorded_as' from batchledger.{} t where pipeline = %s "
            "order by (to_jsonb(t) - 'pipeline' - 'recorded_as')::text"
        )
        return {
            table: [row for (row,) in connection.execute(sql.SQL(query).format(sql.Identifier(table)), [pipeline])]
            for (table,) in tables
        }


def settle(warehouse: PostgresWarehouse) -> None:
    """Let a look find something."""
    found = Condition(warehouse.pipeline, IncidentKind.BLOCKED, "batch 1", Severity.CRITICAL, "blocked")
    warehouse.incidents.settle(warehouse.pipeline, Findings((found,), frozenset()), ["ops"], NOON)


def live_a_year(warehouse: PostgresWarehouse) -> None:
    """Leave something in each corner: batches, quarantine, a replay, decisions, a request, an incident, an audit."""
    attempt = life.stage(warehouse, life.store(warehouse, FIRST), poison=[(ORDERS_0, FIRST.start)])
    life.audit(warehouse, attempt)
    life.publish(warehouse, attempt)
    life.publish(warehouse, life.take_replay_to_audited(warehouse, OffsetRange(ORDERS_0, 1, FIRST.until)))
    for by in (BY_ANA, BY_BEN):
        warehouse.decisions.pause(warehouse.pipeline, by)
        warehouse.decisions.resume(warehouse.pipeline, by)
    order = write_order(DropQuarantined())
    warehouse.decisions.request(warehouse.pipeline, order, BY_ANA, Effect({"quarantined": 1}, {"quarantined": 0}))
    settle(warehouse)


def rename(dsn: str, pipeline: str, to: str, decision: Decision) -> Decided:
    return PostgresDecisions(dsn).rename(pipeline, to, decision)


def rename_to(warehouse_dsn: str, old: PostgresWarehouse, new: PostgresWarehouse) -> DecisionRecord:
    return record_of(rename(warehouse_dsn, old.pipeline, new.pipeline, BY_ANA))


def answers(warehouse: PostgresWarehouse) -> Mapping[str, Any]:
    """What the pipeline is asked in the product, as text without its name."""
    dsn, name = warehouse.dsn, warehouse.pipeline
    history = load_published_history(dsn, name)
    asked = {
        "verify": asdict(warehouse.prove()),
        "break": find_break(history.decisions),
        "batches": list_batches(dsn, name),
        "positions": life.next_offsets(warehouse),
        "quarantine": warehouse.read_quarantine(),
        "held": warehouse.decisions.load_held(name),
        "target": warehouse.ledger.list_targets()[name],
        "rows": life.target_coordinates(warehouse),
        "requests": list_requests(dsn, name),
        "pause": warehouse.decisions.find_pause(name),
    }
    return {what: repr(answer).replace(repr(name), "NAME") for what, answer in asked.items()}


def test_renamed_pipeline_answers_as_before_and_no_row_of_the_ledger_has_the_old_name(
    warehouse: PostgresWarehouse, new: PostgresWarehouse, warehouse_dsn: str
) -> None:
    live_a_year(warehouse)
    before, named, decided = answers(warehouse), read_named(warehouse_dsn, warehouse.pipeline), chain_of(warehouse)
    record = rename_to(warehouse_dsn, warehouse, new)
    effect = ({"name": warehouse.pipeline}, {"name": new.pipeline})
    assert (record.kind, record.pipeline, record.before, record.after) == ("rename", new.pipeline, *effect)
    after, moved = answers(new), read_named(warehouse_dsn, new.pipeline)
    assert {what for what in before if before[what] != after[what]} == {"verify"}
    assert {each for each in named if named[each]} >= {"batch_range", "decision", "incident", "pipeline_role"}
    assert max(each["decision_id"] for each in moved.pop("decision")) == record.decision_id
    del named["decision"]
    assert moved == named
    assert not any(read_named(warehouse_dsn, warehouse.pipeline).values())
    # Every decision has the hash that it had: the chain has one link more.
    assert chain_of(new)[:-1] == decided
    assert_proved(new)


def chain_of(warehouse: PostgresWarehouse) -> list[tuple[int, bytes]]:
    """The decisions with the hashes that the ledger has of them. The chain is whole."""
    chain = load_published_history(warehouse.dsn, warehouse.pipeline).decisions
    assert find_break(chain) is None
    return [(each.decision_id, each.hash) for each in chain.decisions]


@pytest.mark.table
@pytest.mark.rules
def test_negative_control_a_decision_that_loses_the_name_it_was_made_under_breaks_the_chain(
    warehouse: PostgresWarehouse, new: PostgresWarehouse, warehouse_dsn: str
) -> None:
    live_a_year(warehouse)
    rename_to(warehouse_dsn, warehouse, new)
    with psycopg.connect(warehouse_dsn) as connection:
        connection.execute("alter table batchledger.decision disable trigger user")
        connection.execute("update batchledger.decision set recorded_as = null where pipeline = %s", [new.pipeline])
        connection.execute("alter table batchledger.decision enable trigger user")
    assert find_break(load_published_history(new.dsn, new.pipeline).decisions) is not None


def test_new_name_goes_on_exactly_where_the_old_one_ended(
    warehouse: PostgresWarehouse, new: PostgresWarehouse, warehouse_dsn: str
) -> None:
    life.take_to_published(warehouse, FIRST)
    rename_to(warehouse_dsn, warehouse, new)
    assert life.next_offsets(new) == {ORDERS_0: FIRST.until}
    life.take_to_published(new, SECOND, run="run-2")
    life.take_to_published(new, THIRD, run="run-3")
    assert life.target_coordinates(new) == life.rows_of([FIRST, SECOND, THIRD])
    assert_proved(new)


def test_whatever_is_ordered_afterwards_does_what_it_does_without_the_rename(
    warehouse: PostgresWarehouse, new: PostgresWarehouse, warehouse_dsn: str
) -> None:
    twin = replace(warehouse, pipeline=f"{warehouse.pipeline}_other", schema=f"{warehouse.schema}_other")
    seen = []
    for one, is_renamed in ((twin, False), (warehouse, True)):
        life.take_to_published(one, FIRST)
        life.take_to_published(one, SECOND, run="run-2")
        after = new if is_renamed else one
        if is_renamed:
            rename_to(warehouse_dsn, one, new)
        decided = [rewind(after, {ORDERS_0: 1})]
        life.take_to_published(after, OffsetRange(ORDERS_0, 1, SECOND.until), run="run-3")
        if after.sink.capabilities.shares_transaction:
            decided.append(rewind(after, {ORDERS_0: 0}, truncate=True))
            life.take_to_published(after, OffsetRange(ORDERS_0, 0, SECOND.until), run="run-4")
            empty = partial(after.sink.erase, key=KEY)
            decided.append(after.decisions.erase(after.pipeline, KEY, BY_ANA, empty))
            life.publish(after, life.take_replay_to_audited(after, FIRST))
        effects = [(each.is_new, record_of(each).before, record_of(each).after) for each in decided]
        proved = after.prove()
        assert proved.holds, proved.findings
        seen.append((effects, life.target_coordinates(after), life.next_offsets(after), proved.rows, proved.offsets))
        after.drop()
    assert seen[0] == seen[1]


def test_file_that_still_has_the_old_name_is_refused_at_each_step_and_told_what_happened(
    warehouse: PostgresWarehouse, new: PostgresWarehouse, warehouse_dsn: str
) -> None:
    life.take_to_published(warehouse, FIRST)
    rename_to(warehouse_dsn, warehouse, new)
    refused = REFUSED.format(warehouse.pipeline, new.pipeline, new.pipeline)
    # Without grants, a role would be held by the policies already.
    old = replace(warehouse, dsn=warehouse_dsn)
    for write in (
        lambda: life.store(old, FIRST),
        lambda: old.ledger.store_plan(old.pipeline, life_plan(), "run-9"),
        lambda: life.store_replay(old, FIRST),
        lambda: old.ledger.store_first_positions(old.pipeline, life_plan().first_positions),
        lambda: old.decisions.pause(old.pipeline, BY_BEN),
        lambda: old.decisions.adopt_target(old.pipeline, Target("t", "i"), BY_BEN, Effect({}, {})),
        lambda: load_published_history(old.dsn, old.pipeline),
        lambda: rename(old.dsn, old.pipeline, f"{old.pipeline}_third", BY_BEN),
    ):
        with pytest.raises(ConfigurationError, match=refused):
            write()
    # Nor may a program of another version, whatever it asks before.
    with psycopg.connect(warehouse_dsn) as connection, pytest.raises(psycopg.errors.UniqueViolation):
        connection.execute("insert into batchledger.pipeline (name) values (%s)", [old.pipeline])
    assert not any(read_named(warehouse_dsn, old.pipeline).values())
    assert life.target_coordinates(new) == life.rows_of([FIRST])
    # A role that policies keep to the pipeline hears the same.
    for of_team in (lambda: life.store(warehouse, FIRST), lambda: warehouse.decisions.pause(old.pipeline, BY_BEN)):
        with pytest.raises(ConfigurationError, match=refused):
            of_team()


def life_plan() -> Plan:
    return Plan((FIRST,), 0, (Position(ORDERS_0, 0, 0, IDENTITY),))


@pytest.mark.table
@pytest.mark.rules
def test_negative_control_without_the_former_name_a_second_history_begins(
    warehouse: PostgresWarehouse, new: PostgresWarehouse, warehouse_dsn: str
) -> None:
    life.take_to_published(warehouse, FIRST)
    rename_to(warehouse_dsn, warehouse, new)
    with psycopg.connect(warehouse_dsn) as connection:
        connection.execute("update batchledger.pipeline set former_names = '{}' where name = %s", [new.pipeline])
    assert life.store(replace(warehouse, dsn=warehouse_dsn), FIRST).pipeline == warehouse.pipeline


@pytest.mark.table
@pytest.mark.rules
def test_run_that_waits_to_plan_while_a_person_renames_begins_no_history(
    warehouse: PostgresWarehouse, new: PostgresWarehouse, warehouse_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has looked at its position before, and waits for the row that the rename takes away."""
    life.take_to_published(warehouse, FIRST)
    old = replace(warehouse, dsn=warehouse_dsn)
    moved, waits = renaming._move, []

    def move(cursor: Any, pipeline: str, to: str) -> None:
        moved(cursor, pipeline, to)
        waits.append(pool.submit(old.ledger.store_plan, old.pipeline, Plan((SECOND,), 0, ()), "run-2"))
        wait_until(lambda: waits[0].done() or old.count_kept_waiting(cursor.connection.info.backend_pid))
        assert not waits[0].done()

    monkeypatch.setattr(renaming, "_move", move)
    with ThreadPoolExecutor(1) as pool:
        rename_to(warehouse_dsn, old, new)
    with pytest.raises(ConfigurationError, match=f"its history belongs to {new.pipeline}"):
        waits[0].result()
    assert not any(read_named(warehouse_dsn, old.pipeline).values())


def test_run_that_has_a_batch_keeps_its_pipeline_from_being_renamed_until_it_is_over(
    warehouse: PostgresWarehouse, new: PostgresWarehouse, warehouse_dsn: str
) -> None:
    life.take_to_published(warehouse, FIRST)
    attempt = life.take_to_audited(warehouse, SECOND, run="run-2")
    with pytest.raises(DecisionRefusedError, match=r"1 batch is open. Nothing was changed") as refused:
        rename_to(warehouse_dsn, warehouse, new)
    told, batch_id = str(refused.value), attempt.batch.batch_id
    assert f"batch {batch_id} (audited)" in told
    assert f"batchledger discard {batch_id} --reason WHY" in told
    assert warehouse.ledger.load_batch(batch_id).pipeline == warehouse.pipeline
    warehouse.decisions.discard(batch_id, BY_BEN)
    rename_to(warehouse_dsn, warehouse, new)
    # Its process sleeps, and wakes up after the rename.
    for asleep in (warehouse, replace(warehouse, dsn=warehouse_dsn)):
        with pytest.raises(BatchledgerError):
            life.publish(asleep, attempt)
    assert life.target_coordinates(new) == life.rows_of([FIRST])
    life.take_to_published(new, SECOND, run="run-3")
    assert life.target_coordinates(new) == life.rows_of([FIRST, SECOND])
    assert_proved(new)


@pytest.mark.table
@pytest.mark.rules
def test_name_that_has_a_history_or_had_one_and_a_pipeline_that_there_is_not_are_refused(
    warehouse: PostgresWarehouse, new: PostgresWarehouse, warehouse_dsn: str
) -> None:
    other = replace(warehouse, pipeline=f"{warehouse.pipeline}_other", schema=f"{warehouse.schema}_other")
    life.take_to_published(warehouse, FIRST)
    life.take_to_published(other, FIRST, run="run-2")
    before = [read_named(warehouse_dsn, each.pipeline) for each in (warehouse, other)]
    for to in (other.pipeline, warehouse.pipeline):
        with pytest.raises(DecisionRefusedError, match=f"the ledger has a pipeline {to}. Nothing was changed"):
            rename(warehouse_dsn, warehouse.pipeline, to, BY_ANA)
    with pytest.raises(UnknownPipelineError, match="has nothing of there_is_none"):
        rename(warehouse_dsn, "there_is_none", new.pipeline, BY_ANA)
    assert [read_named(warehouse_dsn, each.pipeline) for each in (warehouse, other)] == before
    rename_to(warehouse_dsn, warehouse, new)
    with pytest.raises(DecisionRefusedError, match=f"{new.pipeline} was called {warehouse.pipeline} before"):
        rename(warehouse_dsn, other.pipeline, warehouse.pipeline, BY_ANA)
    other.drop()


@pytest.mark.table
@pytest.mark.rules
def test_rehearsal_and_a_crash_in_the_middle_leave_everything_as_it_was(
    warehouse: PostgresWarehouse, new: PostgresWarehouse, warehouse_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    live_a_year(warehouse)
    before = answers(warehouse), read_named(warehouse_dsn, warehouse.pipeline)
    rehearsed = record_of(PostgresDecisions(warehouse_dsn).rehearsal.rename(warehouse.pipeline, new.pipeline, BY_ANA))
    assert rehearsed.after == {"name": new.pipeline}
    assert (answers(warehouse), read_named(warehouse_dsn, warehouse.pipeline)) == before

    def die(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(renaming, "insert_decision", die)
    with pytest.raises(KeyboardInterrupt):
        rename_to(warehouse_dsn, warehouse, new)
    assert (answers(warehouse), read_named(warehouse_dsn, warehouse.pipeline)) == before
    assert not any(read_named(warehouse_dsn, new.pipeline).values())
    with psycopg.connect(warehouse_dsn) as connection, pytest.raises(psycopg.errors.InsufficientPrivilege):
        connection.execute("delete from batchledger.decision where pipeline = %s", [warehouse.pipeline])


def test_name_is_taken_back_and_given_again_and_each_order_may_be_repeated(
    warehouse: PostgresWarehouse, new: PostgresWarehouse, warehouse_dsn: str
) -> None:
    live_a_year(warehouse)
    renamed = rename_to(warehouse_dsn, warehouse, new)
    again = rename(warehouse_dsn, warehouse.pipeline, new.pipeline, BY_BEN)
    assert (again.is_new, record_of(again)) == (False, renamed)
    back = rename_to(warehouse_dsn, new, warehouse)
    life.take_to_published(warehouse, SECOND, run="run-2")
    with pytest.raises(ConfigurationError, match=f"{new.pipeline} is renamed"):
        life.store(replace(new, dsn=warehouse_dsn), THIRD)
    rename_to(warehouse_dsn, warehouse, new)
    life.take_to_published(new, THIRD, run="run-3")
    assert life.target_coordinates(new)[-1] == life.rows_of([THIRD])[-1]
    chain = chain_of(new)
    assert [back.decision_id in [each for each, _ in chain], len(chain)] == [True, 9]
    kinds = [each.kind for each in list_decisions(new.dsn, new.pipeline)]
    assert kinds.count(DecisionKind.RENAME) == 3
    assert_proved(new)


@pytest.mark.table
@pytest.mark.rules
def test_role_that_was_granted_the_new_name_before_and_incidents_that_a_look_found_under_it_are_no_obstacle(
    warehouse: PostgresWarehouse, new: PostgresWarehouse, warehouse_dsn: str
) -> None:
    live_a_year(warehouse)
    with let_run(warehouse_dsn, replace(new, pipeline=new.pipeline)):
        settle(new)
        rename_to(warehouse_dsn, warehouse, new)
        assert [each.condition.pipeline for each in new.incidents.list_open(new.pipeline)] == [new.pipeline]
        life.take_to_published(new, SECOND, run="run-2")
        assert_proved(new)


@pytest.mark.table
@pytest.mark.rules
def test_only_the_owner_of_the_ledger_may_rename(warehouse: PostgresWarehouse, new: PostgresWarehouse) -> None:
    life.take_to_published(warehouse, FIRST)
    with pytest.raises(ConfigurationError, match="Log in as the owner of the ledger"):
        rename(warehouse.dsn, warehouse.pipeline, new.pipeline, BY_ANA)
    assert life.next_offsets(warehouse) == {ORDERS_0: FIRST.until}


@pytest.mark.parametrize("is_known", [True, False], ids=["known", "negative control"])
def test_iceberg_table_knows_its_pipeline_by_the_batches_that_it_holds(
    lake: LakeWarehouse, warehouse_dsn: str, monkeypatch: pytest.MonkeyPatch, is_known: bool
) -> None:
    life.take_to_published(lake, FIRST)
    renamed = replace(lake, pipeline=f"{lake.pipeline}_new")
    rename_to(warehouse_dsn, lake, renamed)
    if is_known:
        life.take_to_published(renamed, SECOND, run="run-2")
        assert life.target_coordinates(renamed) == life.rows_of([FIRST, SECOND])
        return
    monkeypatch.setattr(ownership, "_is_known", lambda *_: False)
    with pytest.raises(TargetChangedError, match=f"belongs to another pipeline, {lake.pipeline}"):
        life.take_to_published(renamed, SECOND, run="run-2")
