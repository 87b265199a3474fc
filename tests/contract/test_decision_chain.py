"""The chain of decisions on a real PostgreSQL: what verify finds if its owner changes the table behind its triggers."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

from batchledger.books.history import load_published_history
from batchledger.proof.decision_chain import DecisionChain, find_break
from tests.contract.decided import BY_ANA, BY_BEN
from tests.contract.warehouses import PostgresWarehouse, open_postgres
from tests.support import wait_until

INSERT = "insert into batchledger.decision (pipeline, kind, decided_by, reason) values (%s, 'pause', %s, 'why')"


@pytest.fixture
def warehouse(warehouse_dsn: str) -> Iterator[PostgresWarehouse]:
    """A warehouse of this test's own, with four decisions about its pipeline."""
    for each in open_postgres(warehouse_dsn):
        for by in (BY_ANA, BY_BEN):
            each.decisions.pause(each.pipeline, by)
            each.decisions.resume(each.pipeline, by)
        yield each


def load_chain(warehouse: PostgresWarehouse) -> DecisionChain:
    return load_published_history(warehouse.dsn, warehouse.pipeline).decisions


def tamper(warehouse: PostgresWarehouse, statement: str, decision_id: int) -> None:
    """Do what the owner of the table can do."""
    with psycopg.connect(warehouse.dsn) as connection:
        connection.execute("alter table batchledger.decision disable trigger user")
        connection.execute(statement.encode(), [decision_id])
        connection.execute("alter table batchledger.decision enable trigger user")


def test_decisions_of_a_pipeline_are_chained_whatever_is_decided_about_others(
    warehouse: PostgresWarehouse, warehouse_dsn: str
) -> None:
    for other in open_postgres(warehouse_dsn):
        other.decisions.pause(other.pipeline, BY_ANA)
        warehouse.decisions.pause(warehouse.pipeline, BY_ANA)
        assert [each.number for each in load_chain(other).decisions] == [1]
    chain = load_chain(warehouse)
    assert ([each.number for each in chain.decisions], chain.counted) == ([1, 2, 3, 4, 5], 5)
    assert find_break(chain) is None
    verification = warehouse.prove()
    assert (verification.findings, verification.decisions, verification.chain_end) == ((), 5, chain.end)


def test_hash_does_not_depend_on_the_session_that_decides(warehouse: PostgresWarehouse) -> None:
    odd = "-c timezone=Asia/Kathmandu -c datestyle=SQL,DMY -c extra_float_digits=-15 -c bytea_output=escape"
    with psycopg.connect(warehouse.dsn, options=odd) as connection:
        connection.execute(INSERT, [warehouse.pipeline, "ana"])
    assert find_break(load_chain(warehouse)) is None


def test_decision_that_is_rehearsed_leaves_no_gap(warehouse: PostgresWarehouse) -> None:
    warehouse.decisions.rehearsal.pause(warehouse.pipeline, BY_ANA)
    warehouse.decisions.pause(warehouse.pipeline, BY_ANA)
    assert load_chain(warehouse).counted == 5
    assert find_break(load_chain(warehouse)) is None


def test_statement_cannot_choose_number_or_hash(warehouse: PostgresWarehouse) -> None:
    with psycopg.connect(warehouse.dsn) as connection:
        connection.execute(
            "insert into batchledger.decision (pipeline, kind, decided_by, reason, chain_number, chain_hash) "
            "values (%s, 'pause', 'ceo', 'why', 1, 'forged')",
            [warehouse.pipeline],
        )
    assert [each.number for each in load_chain(warehouse).decisions] == [1, 2, 3, 4, 5]
    assert find_break(load_chain(warehouse)) is None


@pytest.mark.parametrize(
    ("statement", "at", "broken"),
    [
        ("update batchledger.decision set reason = 'another' where decision_id = %s", 1, 1),
        ("update batchledger.decision set decided_at = decided_at - interval '1 us' where decision_id = %s", 2, 2),
        ("update batchledger.decision set database_role = 'ceo' where decision_id = %s", 3, 3),
        ("update batchledger.decision set after = '{\"is_paused\": null}' where decision_id = %s", 0, 0),
        ("delete from batchledger.decision where decision_id = %s", 1, 2),
        ("delete from batchledger.decision where decision_id = %s", 3, None),
    ],
)
def test_change_behind_the_triggers_is_found_at_its_place(
    warehouse: PostgresWarehouse, statement: str, at: int, broken: int | None
) -> None:
    ids = [each.decision_id for each in load_chain(warehouse).decisions]
    tamper(warehouse, statement, ids[at])
    (finding,) = warehouse.prove().findings
    where = "the newest decisions" if broken is None else f"decision_id {ids[broken]}"
    assert (finding.invariant, finding.where) == ("decision", where)


def test_decisions_at_the_same_moment_get_numbers_one_after_the_other(warehouse: PostgresWarehouse) -> None:
    """Two sessions that have not locked the pipeline: the trigger does it."""
    query = "select count(*) from pg_locks where pid = %s and not granted"
    with (
        ThreadPoolExecutor() as threads,
        psycopg.connect(warehouse.dsn) as second,
        psycopg.connect(warehouse.dsn) as first,
        psycopg.connect(warehouse.dsn, autocommit=True) as observer,
    ):
        first.execute(INSERT, [warehouse.pipeline, "first"])
        waiting = threads.submit(second.execute, INSERT, [warehouse.pipeline, "second"])
        wait_until(lambda: observer.execute(query, [second.info.backend_pid]).fetchall() == [(1,)])
        first.commit()
        waiting.result()
    chain = load_chain(warehouse)
    assert ([each.number for each in chain.decisions], find_break(chain)) == ([1, 2, 3, 4, 5, 6], None)
