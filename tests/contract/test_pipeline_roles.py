"""A role that runs one pipeline: it can do all that the runs do, and neither sees nor changes another pipeline's."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import psycopg
import pytest
from psycopg import sql

from batchledger.adapters.postgres.database import STAGING_SCHEMA
from batchledger.adapters.postgres.ledger.grants import grant_role
from batchledger.adapters.postgres.ledger.history import list_decisions, load_published_history
from batchledger.adapters.postgres.ledger.housekeeping import PostgresHousekeeping
from batchledger.adapters.postgres.staging.tables import table_prefix
from batchledger.model.erasure import ErasureKey
from batchledger.model.errors import BatchledgerError, ConfigurationError
from batchledger.model.offsets import OffsetRange, single_offset
from batchledger.proof.decision_chain import find_break
from tests.contract import life
from tests.contract.decided import BY_ANA, record_of
from tests.contract.life import ORDERS_0
from tests.contract.warehouses import PostgresWarehouse, create_role, role_of

FIRST, SECOND = OffsetRange(ORDERS_0, 0, 4), OffsetRange(ORDERS_0, 4, 8)


@dataclass
class Teams:
    """Two pipelines with a history each, and the first one as a role sees it that was granted no more."""

    owner: PostgresWarehouse
    other: PostgresWarehouse
    mine: PostgresWarehouse
    role: str

    def ask(self, query: str, *parameters: object) -> list[tuple[Any, ...]]:
        """Ask as the role."""
        with psycopg.connect(self.mine.dsn) as connection:
            return connection.execute(query.encode(), parameters).fetchall()

    def change(self, statement: str, *parameters: object) -> int:
        """Change something as the role; return how many rows that was."""
        with psycopg.connect(self.mine.dsn) as connection:
            return connection.execute(statement.encode(), parameters).rowcount


def publish(warehouse: PostgresWarehouse, range_: OffsetRange, run: str) -> None:
    """Publish a batch with one record in quarantine."""
    attempt = life.stage(warehouse, life.store(warehouse, range_, run=run), run, poison=[(ORDERS_0, range_.start)])
    life.audit(warehouse, attempt)
    life.publish(warehouse, attempt)


@pytest.fixture
def teams(warehouse_dsn: str) -> Iterator[Teams]:
    """Pipelines and a role of this test's own."""
    owner, other = PostgresWarehouse(warehouse_dsn), PostgresWarehouse(warehouse_dsn)
    for each in (owner, other):
        publish(each, FIRST, "run-1")
        each.decisions.pause(each.pipeline, BY_ANA)
        each.decisions.resume(each.pipeline, BY_ANA)
    with create_role(warehouse_dsn) as dsn:
        role = role_of(dsn)
        grant_role(warehouse_dsn, owner.pipeline, role, (owner.schema, "orders"), is_applied=True)
        yield Teams(owner, other, replace(owner, dsn=dsn), role)
    owner.drop()
    other.drop()


def test_role_runs_and_replays_its_pipeline_decides_and_proves_it(teams: Teams) -> None:
    publish(teams.mine, SECOND, "run-2")
    life.publish(teams.mine, life.take_replay_to_audited(teams.mine, FIRST))
    assert record_of(teams.mine.decisions.pause(teams.mine.pipeline, BY_ANA)).database_role == teams.role
    verification = teams.mine.prove()
    assert (verification.findings, verification.decisions) == (
        (),
        len(list_decisions(teams.owner.dsn, teams.mine.pipeline)),
    )
    assert teams.owner.prove() == verification


def test_role_erases_rows_of_its_pipeline_and_its_replays_keep_them_away(teams: Teams) -> None:
    key = ErasureKey.parse([f"message_id={ORDERS_0}@1"])
    pipeline, sink = teams.mine.pipeline, teams.mine.sink
    record_of(teams.mine.decisions.erase(pipeline, key, BY_ANA, lambda access: sink.erase(access, key)))
    life.publish(teams.mine, life.take_replay_to_audited(teams.mine, FIRST))
    assert (teams.mine.prove().findings, teams.mine.prove().rows_erased) == ((), 1)
    query = "select count(*) from batchledger.erased_key where pipeline = %s"
    assert teams.ask(query, pipeline) == [(1,)]
    with psycopg.connect(teams.owner.dsn) as connection:
        move = "update batchledger.erased_key set pipeline = %s where pipeline = %s"
        connection.execute(move, [teams.other.pipeline, pipeline])
    assert teams.ask(query, teams.other.pipeline) == [(0,)]


@pytest.mark.parametrize(
    "table",
    ["attempt", "decision", "pipeline_total", "position", "quarantine", "quarantine_kind"],
)
def test_role_sees_rows_of_its_own_pipeline_alone(teams: Teams, table: str) -> None:
    """The owner, who sees all, is the negative control."""
    by_batch = "select b.pipeline from batchledger.attempt a join batchledger.batch b using (batch_id)"
    query = by_batch if table == "attempt" else f"select pipeline from batchledger.{table}"  # noqa: S608
    with psycopg.connect(teams.owner.dsn) as connection:
        everything = {name for (name,) in connection.execute(query.encode())}
    assert {teams.mine.pipeline, teams.other.pipeline} <= everything
    assert {name for (name,) in teams.ask(query)} == {teams.mine.pipeline}


@pytest.mark.parametrize(
    "statement",
    [
        "update batchledger.position set next_offset = 0, origin_offset = 0 where pipeline = %s",
        "update batchledger.pipeline set epoch = epoch + 1 where name = %s",
        "update batchledger.batch set state = 'discarded' where pipeline = %s",
        "update batchledger.batch_range set held = '{}' where pipeline = %s",
        "delete from batchledger.quarantine where pipeline = %s",
    ],
)
def test_role_changes_nothing_of_another_pipeline(teams: Teams, statement: str) -> None:
    assert teams.change(statement, teams.other.pipeline) == 0
    assert teams.other.prove().findings == ()


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        (
            "insert into batchledger.decision (pipeline, kind, decided_by, reason) values (%s, 'pause', 'ceo', 'why')",
            "row-level security",
        ),
        ("insert into batchledger.pipeline_role (role, pipeline) values (current_user, %s)", "permission denied"),
        ("delete from batchledger.decision where pipeline = %s", "permission denied"),
        ("update batchledger.decision set reason = 'another' where pipeline = %s", "permission denied"),
        ("update batchledger.pipeline set decision_count = 0 where name = %s", "permission denied"),
    ],
)
def test_role_is_refused_to_forge(teams: Teams, statement: str, said: str) -> None:
    with pytest.raises(psycopg.errors.InsufficientPrivilege, match=said):
        teams.change(statement, teams.other.pipeline)
    chain = load_published_history(teams.owner.dsn, teams.other.pipeline).decisions
    assert (chain.counted, find_break(chain)) == (2, None)


def test_without_its_row_the_same_role_sees_the_other_pipeline(teams: Teams) -> None:
    """The negative control: its other grants are the same, and the policies do not hold it."""
    query = "select count(*) from batchledger.quarantine where pipeline = %s"
    assert teams.ask(query, teams.other.pipeline) == [(0,)]
    with psycopg.connect(teams.owner.dsn) as connection:
        connection.execute("delete from batchledger.pipeline_role where role = %s", [teams.role])
    assert teams.ask(query, teams.other.pipeline) == [(1,)]


def test_role_tidies_the_staging_of_its_own_attempts_alone(teams: Teams) -> None:
    """The other pipeline's staging is another login's, and PostgreSQL would refuse to drop it."""
    attempt = life.stage(teams.mine, life.store(teams.mine, SECOND, run="run-2"), "run-2")
    others = life.stage(teams.other, life.store(teams.other, SECOND, run="run-2"), "run-2")
    found = {each.batch_id for each in PostgresHousekeeping(teams.mine.dsn).look().tables}
    assert found == {attempt.batch.batch_id}
    everything = {each.batch_id for each in PostgresHousekeeping(teams.owner.dsn).look().tables}
    assert {attempt.batch.batch_id, others.batch.batch_id} <= everything


def test_table_that_another_role_has_put_in_the_place_of_set_aside_rows_is_not_written_to(teams: Teams) -> None:
    """Every role may create tables in the schema of the staging, and can foresee their names."""
    attempt = life.stage(teams.mine, life.store(teams.mine, SECOND, run="run-2"), "run-2")
    trap = sql.Identifier(STAGING_SCHEMA, f"{table_prefix(attempt)}_aside")
    with create_role(teams.owner.dsn) as dsn, psycopg.connect(teams.owner.dsn) as connection:
        rows = sql.Identifier(STAGING_SCHEMA, f"{table_prefix(attempt)}_rows")
        connection.execute(sql.SQL("create table {} (like {})").format(trap, rows))
        connection.execute(sql.SQL("alter table {} owner to {}").format(trap, sql.Identifier(role_of(dsn))))
        connection.execute(sql.SQL("grant all on {} to public").format(trap))
        connection.commit()
        with pytest.raises(BatchledgerError, match="already exists"):
            teams.mine.sink.remove_staged(attempt, [single_offset("orders", 0, 5)])
        assert connection.execute(sql.SQL("select from {}").format(trap)).fetchall() == []


def test_every_table_with_a_pipeline_has_a_policy(warehouse_dsn: str) -> None:
    """Tables that a later migration adds are missed here."""
    query = (
        "select c.relname from pg_class c join pg_attribute a on a.attrelid = c.oid and not a.attisdropped "
        "where c.relnamespace = 'batchledger'::regnamespace and c.relkind = 'r' "
        "and a.attname in ('pipeline', 'batch_id', 'incident_id') and not c.relrowsecurity"
    )
    with psycopg.connect(warehouse_dsn) as connection:
        assert {name for (name,) in connection.execute(query)} == {"pipeline_role"}


def test_statements_are_shown_and_nothing_is_granted_unless_asked(teams: Teams) -> None:
    statements = grant_role(
        teams.owner.dsn, teams.other.pipeline, teams.role, (teams.other.schema, "orders"), is_applied=False
    )
    assert f"('{teams.role}', '{teams.other.pipeline}')" in statements[0]
    with psycopg.connect(teams.owner.dsn) as connection:
        query = "select pipeline from batchledger.pipeline_role where role = %s"
        assert connection.execute(query, [teams.role]).fetchall() == [(teams.mine.pipeline,)]


def test_rights_on_a_table_that_is_not_there_are_refused_with_what_to_do(teams: Teams) -> None:
    with pytest.raises(ConfigurationError, match=r"is not there\. Nothing was granted"):
        grant_role(teams.owner.dsn, teams.mine.pipeline, teams.role, ("public", "no_such_table"), is_applied=True)
