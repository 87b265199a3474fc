"""What only a real PostgreSQL can promise: the version of the schema, its constraints, the rights of a user."""

import re
from collections.abc import Callable, Iterator
from uuid import uuid4

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo

from batchledger.books.history import (
    list_batches,
    list_decisions,
    list_quarantine,
    load_batch_history,
    load_published_history,
)
from batchledger.ledger.decisions import PostgresDecisions
from batchledger.ledger.ledger import PostgresLedger
from batchledger.ledger.looks import list_looks, record_look
from batchledger.ledger.migrate import migrate
from batchledger.ledger.schema import NEWEST_MIGRATION, OLDEST_MIGRATION, RELEASES
from batchledger.model.actors import Actor
from batchledger.model.batch import Decision, Position
from batchledger.model.errors import ConfigurationError
from batchledger.model.offsets import OffsetRange
from batchledger.planning.live import Plan
from batchledger.proof.decision_chain import find_break
from batchledger.sinks.table.target import TargetTable
from tests.conftest import ROOT, as_superuser, lend_database
from tests.contract.life import FIRST, ORDERS_0
from tests.contract.warehouses import IDENTITY

MIGRATIONS = ROOT / "include" / "batchledger" / "ledger" / "migrations"

OPENINGS: dict[str, Callable[[str], object]] = {
    "plan": lambda dsn: PostgresLedger(dsn).load_positions("orders"),
    "run": lambda dsn: PostgresLedger(dsn).find_open_batch("orders"),
    "stage, audit, publish": lambda dsn: PostgresLedger(dsn).load_batch(1),
    "batches": lambda dsn: list_batches(dsn, "orders"),
    "batch": lambda dsn: load_batch_history(dsn, 1),
    "verify": lambda dsn: load_published_history(dsn, "orders"),
    "migrate": migrate,
}


@pytest.fixture
def empty_database(warehouse_dsn: str) -> Iterator[str]:
    """A database of this test's own, without a ledger."""
    with lend_database(warehouse_dsn) as dsn:
        yield dsn


def make_ledger_of_the_oldest_release(dsn: str) -> None:
    """Let the database have the ledger as this version has left it."""
    with psycopg.connect(dsn) as connection:
        connection.execute("create schema batchledger")
        connection.execute("create table batchledger.migration (version_num varchar(32) primary key)")
        connection.execute("insert into batchledger.migration values (%s)", [OLDEST_MIGRATION])
        connection.execute((MIGRATIONS / f"{RELEASES[OLDEST_MIGRATION]}.sql").read_bytes())


def claim_revision(dsn: str, revision: str) -> None:
    """Let the ledger say that it is at another migration."""
    with psycopg.connect(dsn) as connection:
        connection.execute("update batchledger.migration set version_num = %s", [revision])


def test_each_release_has_one_migration_and_their_numbers_grow() -> None:
    assert {path.stem for path in MIGRATIONS.glob("*.sql")} == set(RELEASES.values())
    assert list(RELEASES) == sorted(RELEASES)


@pytest.mark.parametrize("command", OPENINGS)
def test_s19_ledger_of_a_newer_version_is_refused_by_every_command(empty_database: str, command: str) -> None:
    migrate(empty_database)
    claim_revision(empty_database, "9999")
    with pytest.raises(ConfigurationError, match=rf"(?s)at migration 9999, .*up to {NEWEST_MIGRATION};"):
        OPENINGS[command](empty_database)


@pytest.mark.parametrize(
    ("revision", "why", "way"),
    [
        ("0019", "before version 0.2.0", "Install version 0.2.0, migrate with it"),
        ("0027", f"between two releases.*up to {NEWEST_MIGRATION}, and", "last checkout that has migration 0027"),
    ],
    ids=["before the first release", "between two releases"],
)
@pytest.mark.parametrize("command", ["plan", "migrate"])
def test_s19_ledger_of_a_checkout_that_is_no_release_is_refused_with_a_way_on(
    empty_database: str, command: str, revision: str, why: str, way: str
) -> None:
    make_ledger_of_the_oldest_release(empty_database)
    claim_revision(empty_database, revision)
    with pytest.raises(ConfigurationError, match=rf"(?s)at migration {revision}, .*{why}") as refused:
        OPENINGS[command](empty_database)
    assert way in refused.value.advice
    with psycopg.connect(empty_database) as connection:
        assert connection.execute("select version_num from batchledger.migration").fetchall() == [(revision,)]


def test_s19_ledger_of_an_older_version_is_refused_until_it_is_migrated_and_then_readable(empty_database: str) -> None:
    make_ledger_of_the_oldest_release(empty_database)
    with psycopg.connect(empty_database) as connection:
        connection.execute("insert into batchledger.pipeline (name) values ('orders')")
        connection.execute("insert into batchledger.position values ('orders', 'orders', 0, 0, 3, 'cluster', 'topic')")
        connection.execute(
            "insert into batchledger.batch (pipeline, lane, state, lag_left_records, planned_by, published_rows) "
            "values ('orders', 'live', 'published', 0, 'before the upgrade', 3)"
        )
        connection.execute(
            "insert into batchledger.batch_range (batch_id, pipeline, topic, partition, offsets, published_live, "
            "accepted, duplicates, quarantined, tombstones, filtered, holes, accepted_loss) "
            "values (1, 'orders', 'orders', 0, '[0,3)', true, 3, 0, 0, 0, 0, 0, 0)"
        )
    with pytest.raises(ConfigurationError, match=rf"{OLDEST_MIGRATION}, .* needs {NEWEST_MIGRATION}\.") as refused:
        PostgresLedger(empty_database).load_positions("orders")
    assert "batchledger migrate" in str(refused.value)
    assert migrate(empty_database) == (OLDEST_MIGRATION, NEWEST_MIGRATION)
    (summary,) = list_batches(empty_database, "orders")
    assert (summary.planned_by, summary.rows, summary.offsets) == ("before the upgrade", 3, 3)
    assert load_batch_history(empty_database, 1).batch.ranges == (FIRST,)
    history = load_published_history(empty_database, "orders")
    assert [each.next_offset for each in history.positions] == [3]
    plan = Plan((OffsetRange(ORDERS_0, 3, 5),), 0)
    assert PostgresLedger(empty_database).store_plan("orders", plan, "after the upgrade").ranges == plan.ranges


def test_s19_database_without_a_ledger_is_refused_with_the_command_that_makes_one(empty_database: str) -> None:
    with pytest.raises(ConfigurationError, match="tables are not there") as refused:
        PostgresLedger(empty_database).load_positions("orders")
    assert "batchledger migrate" in str(refused.value)
    migrate(empty_database)
    assert PostgresLedger(empty_database).load_positions("orders") == []


def test_user_without_special_rights_can_tell_what_a_table_is(empty_database: str) -> None:
    role = f"plain_{uuid4().hex[:12]}"
    with psycopg.connect(as_superuser(empty_database), autocommit=True) as connection:
        connection.execute(sql.SQL("create role {}").format(sql.Identifier(role)))
        connection.execute("create table public.orders (id int)")
        connection.execute(sql.SQL("set role {}").format(sql.Identifier(role)))
        found = TargetTable(("public", "orders")).read_identity(connection.cursor())
        connection.execute("reset role")
        connection.execute(sql.SQL("drop role {}").format(sql.Identifier(role)))
    assert len(found.split("/")) == 3


def test_s19_migrating_twice_changes_nothing_the_second_time(empty_database: str) -> None:
    assert migrate(empty_database) == (None, NEWEST_MIGRATION)
    assert migrate(empty_database) == (NEWEST_MIGRATION, NEWEST_MIGRATION)


@pytest.mark.parametrize(
    "garbage",
    [
        "update batchledger.position set next_offset = -1",
        "update batchledger.position set next_offset = origin_offset - 1",
        "update batchledger.position set next_offset = null",
        "update batchledger.position set next_offset = 'earliest'",
        "update batchledger.position set origin_offset = -2, next_offset = -2",
        "update batchledger.position set topic_id = null",
        "update batchledger.batch_range set offsets = '[3,3)'",
        "update batchledger.batch_range set offsets = '[5,3)'",
        "update batchledger.batch set state = 'almost'",
        "update batchledger.batch set state = 'discarded', dry_run = '{}'",
        "update batchledger.batch set is_dry_run = true, dry_run = '{}'",
    ],
)
def test_s12_s18_garbage_is_refused_by_the_tables_themselves(warehouse_dsn: str, garbage: str) -> None:
    pipeline = f"pipeline_{uuid4().hex[:12]}"
    plan = Plan((OffsetRange(ORDERS_0, 2, 5),), 0, (Position(ORDERS_0, 2, 2, IDENTITY),))
    stored = PostgresLedger(warehouse_dsn).store_plan(pipeline, plan, "run")
    with psycopg.connect(warehouse_dsn) as connection, pytest.raises(psycopg.Error):
        connection.execute(f"{garbage} where pipeline = '{pipeline}'".encode())
    assert PostgresLedger(warehouse_dsn).find_open_batch(pipeline) == stored


def test_s73_user_without_rights_fails_visibly_and_works_once_they_are_granted(empty_database: str) -> None:
    migrate(empty_database)
    plan = Plan((OffsetRange(ORDERS_0, 2, 5),), 0, (Position(ORDERS_0, 2, 2, IDENTITY),))
    batch = PostgresLedger(empty_database).store_plan("orders", plan, "run")
    user = f"user_{uuid4().hex[:12]}"
    ledger = PostgresLedger(make_conninfo(empty_database, user=user, password=user))
    with psycopg.connect(as_superuser(empty_database), autocommit=True) as connection:
        connection.execute(sql.SQL("create role {0} login password {1}").format(sql.Identifier(user), user))
        try:
            with pytest.raises(ConfigurationError, match=r"(?s)permission denied .*Grant the right"):
                ledger.open_attempt(batch.batch_id, "run")
            grant = "grant usage on schema batchledger to {0}; grant all on all tables in schema batchledger to {0}"
            connection.execute(sql.SQL(grant).format(sql.Identifier(user)))
            assert ledger.open_attempt(batch.batch_id, "run").number == 1
        finally:
            connection.execute(sql.SQL("drop owned by {0}; drop role {0}").format(sql.Identifier(user)))


@pytest.fixture
def reader(empty_database: str) -> Iterator[tuple[str, psycopg.Connection]]:
    """A login with the rights that the page on security gives a reader, and a session of the superuser."""
    migrate(empty_database)
    user = f"reader_{uuid4().hex[:12]}"
    name = sql.Identifier(user)
    with psycopg.connect(as_superuser(empty_database), autocommit=True) as owner:
        owner.execute(sql.SQL("create role {0} login password {1}").format(name, user))
        page = (ROOT / "docs" / "guides" / "security.md").read_text()
        (rights,) = re.findall(r"```sql\n(grant usage .*?)```", page, re.DOTALL)
        owner.execute(re.sub(r"(to|from) reader;", rf"\1 {user};", rights).encode())
        yield user, owner
        owner.execute(sql.SQL("drop owned by {0}; drop role {0}").format(name))


def test_database_writes_the_role_of_a_decision_itself(
    empty_database: str, reader: tuple[str, psycopg.Connection]
) -> None:
    """Neither a statement nor "set role" can choose another one."""
    user, owner = reader
    owner.execute("insert into batchledger.pipeline (name) values ('orders')")
    give = "create role {boss}; grant {boss} to {user}; grant usage on schema batchledger to {boss}; "
    names = {"boss": sql.Identifier(f"boss_of_{user}"), "user": sql.Identifier(user)}
    give += "grant insert on batchledger.decision to {boss}; grant select on batchledger.batch to {boss}"
    owner.execute(sql.SQL(give).format(**names))
    with psycopg.connect(empty_database, user=user, password=user) as connection:
        connection.execute(sql.SQL("set role {boss}").format(**names))
        connection.execute(
            "insert into batchledger.decision (pipeline, kind, decided_by, reason, database_role) "
            "values ('orders', 'pause', 'ceo', 'why', current_user)"
        )
    (decision,) = list_decisions(empty_database, "orders")
    owner.execute(sql.SQL("drop owned by {boss}; drop role {boss}").format(**names))
    assert (decision.database_role, str(decision.actor)) == (user, f"ceo (role {user})")


def test_reader_who_cannot_leave_a_trace_is_refused_the_payloads(
    empty_database: str, reader: tuple[str, psycopg.Connection]
) -> None:
    user, owner = reader
    dsn = make_conninfo(empty_database, user=user, password=user)
    places = [(ORDERS_0, 3), (ORDERS_0, 9)]
    with pytest.raises(ConfigurationError, match="permission denied"):
        list_quarantine(dsn, "orders", 20)
    with pytest.raises(ConfigurationError, match=r"(?s)payloads of orders are not shown.*denied.*grant insert on"):
        record_look(dsn, "orders", Actor("ana"), places)
    owner.execute(sql.SQL("grant insert on batchledger.payload_look to {}").format(sql.Identifier(user)))
    owner.execute(sql.SQL("alter role {} set default_transaction_read_only = on").format(sql.Identifier(user)))
    with pytest.raises(ConfigurationError, match=r"(?s)payloads of orders are not shown.*read-only.*the primary"):
        record_look(dsn, "orders", Actor("ana"), places)
    owner.execute(sql.SQL("alter role {} reset all").format(sql.Identifier(user)))
    record_look(dsn, "orders", Actor("ana", 1000, "host"), places)
    record_look(dsn, "orders", Actor("ana"), [])
    (look,) = list_looks(dsn, "orders", 20)
    assert (look.records, look.ranges, look.errors, look.batch_id) == (2, ["orders[0] 3..10"], 0, None)
    assert str(look.actor) == f"ana (uid 1000 @host, role {user})"


def test_role_from_before_column_grants_chooses_no_id_after_the_migration(empty_database: str) -> None:
    """Also a role that got its right from another role, and everyone, if the owner has granted it to everyone."""
    make_ledger_of_the_oldest_release(empty_database)
    team, lead = (f"{name}_{uuid4().hex[:12]}" for name in ("team", "lead"))
    as_lead = f"set role {lead}; grant insert on batchledger.incident to {team}; reset role"
    columns, values = "pipeline, lane, lag_left_records, planned_by", "'orders', 'live', 0, 'run'"
    plan = f"insert into batchledger.batch ({columns}) values ({values})"  # noqa: S608
    chosen = f"insert into batchledger.batch (batch_id, {columns}) overriding system value values (7, {values})"  # noqa: S608
    may = "select has_table_privilege(%s, 'batchledger.incident', 'insert'), has_any_column_privilege(%s, %s, 'insert')"
    with psycopg.connect(as_superuser(empty_database), autocommit=True) as connection:
        connection.execute(f"create role {team}; create role {lead}".encode())
        try:
            connection.execute("insert into batchledger.pipeline (name) values ('orders')")
            connection.execute(f"grant usage on schema batchledger to {team}, {lead}".encode())
            connection.execute(f"grant insert, select on batchledger.batch to {team}".encode())
            connection.execute(f"grant insert on batchledger.incident to {lead} with grant option".encode())
            connection.execute(as_lead.encode())
            connection.execute("grant insert on batchledger.notification to public")
            assert connection.execute(may, [team, team, "batchledger.incident"]).fetchone() == (True, True)
            assert migrate(empty_database) == (OLDEST_MIGRATION, NEWEST_MIGRATION)
            for table in ("batchledger.incident", "batchledger.notification"):
                assert connection.execute(may, [team, team, table]).fetchone() == (False, True)
            connection.execute(f"set role {team}".encode())
            with pytest.raises(psycopg.errors.InsufficientPrivilege, match="permission denied for table batch"):
                connection.execute(chosen.encode())
            connection.execute(plan.encode())
        finally:
            connection.execute("reset role")
            for role in (team, lead):
                connection.execute(f"drop owned by {role}; drop role {role}".encode())


def test_decisions_from_before_the_chain_are_numbered_by_their_ids_and_chained(empty_database: str) -> None:
    make_ledger_of_the_oldest_release(empty_database)
    with psycopg.connect(empty_database) as connection:
        connection.execute("insert into batchledger.pipeline (name) values ('clicks'), ('orders'), ('views')")
        connection.execute(
            "insert into batchledger.decision (pipeline, kind, decided_by, reason, after) values "
            "('orders', 'pause', 'ana', 'a', '{\"is_paused\": true}'), ('clicks', 'pause', 'ana', 'b', null), "
            "('orders', 'resume', 'ben', 'c', null)"
        )
    migrate(empty_database)
    chains = {name: load_published_history(empty_database, name).decisions for name in ("clicks", "orders", "views")}
    assert {name: [each.decision_id for each in chain.decisions] for name, chain in chains.items()} == {
        "clicks": [2],
        "orders": [1, 3],
        "views": [],
    }
    assert [find_break(each) for each in chains.values()] == [None] * 3


@pytest.mark.parametrize(
    "change",
    [
        "update batchledger.decision set decided_by = 'ben'",
        "delete from batchledger.decision",
        "truncate batchledger.decision cascade",
    ],
)
def test_decision_stays_as_it_was_recorded(empty_database: str, change: str) -> None:
    """Even for the owner of the ledger."""
    migrate(empty_database)
    PostgresDecisions(empty_database).pause("orders", Decision("ana", "why"))
    with psycopg.connect(empty_database) as connection, pytest.raises(psycopg.Error, match="only added"):
        connection.execute(change.encode())
    assert [each.decided_by for each in list_decisions(empty_database, "orders")] == ["ana"]


@pytest.mark.parametrize(
    "change",
    [
        "update batchledger.payload_look set looked_by = 'ben'",
        "delete from batchledger.payload_look",
        "truncate batchledger.payload_look",
    ],
)
def test_look_at_payloads_stays_as_it_was_recorded(empty_database: str, change: str) -> None:
    """Even for the owner of the ledger."""
    migrate(empty_database)
    record_look(empty_database, "orders", Actor("ana"), [(ORDERS_0, 3)])
    with psycopg.connect(empty_database) as connection, pytest.raises(psycopg.Error, match="only added"):
        connection.execute(change.encode())
    assert [each.actor.name for each in list_looks(empty_database, "orders", 20)] == ["ana"]


def test_page_on_growth_names_every_table_of_the_ledger(warehouse_dsn: str) -> None:
    """The catalog of the tests' lake keeps its own tables beside them: PostgreSQL's default for their common login."""
    with psycopg.connect(warehouse_dsn) as connection:
        named = "select tablename from pg_tables where schemaname = 'batchledger' and tablename not like 'iceberg%'"
        tables = connection.execute(named).fetchall()
    page = (ROOT / "docs" / "reference" / "ledger.md").read_text()
    assert sorted(re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE)) == sorted(name for (name,) in tables)
