"""A role that runs one pipeline: it can do all that the runs do, and neither sees nor changes another pipeline's."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import psycopg
import pytest
from psycopg import sql

from batchledger.books.history import list_decisions, load_published_history
from batchledger.database.transactions import STAGING_SCHEMA
from batchledger.ledger.fingerprints import require_fingerprint
from batchledger.ledger.grants import grant_all, grant_role
from batchledger.ledger.housekeeping import PostgresHousekeeping
from batchledger.lifecycle.orders import DropQuarantined
from batchledger.lifecycle.written_orders import write_order
from batchledger.model.batch import Decision, DecisionRecord
from batchledger.model.effects import Effect
from batchledger.model.erasure import ErasureKey
from batchledger.model.errors import BatchledgerError, ConfigurationError
from batchledger.model.offsets import OffsetRange, single_offset
from batchledger.proof.decision_chain import find_break
from batchledger.sinks.staging.tables import table_prefix
from tests.conftest import as_superuser
from tests.contract import life
from tests.contract.decided import BY_ANA, BY_BEN, record_of, rewind
from tests.contract.life import ORDERS_0
from tests.contract.warehouses import PostgresWarehouse, create_role, role_of

FIRST, SECOND = OffsetRange(ORDERS_0, 0, 4), OffsetRange(ORDERS_0, 4, 8)
REFUSED = r"(?s)permission denied for .*Grant the right"


@dataclass
class Teams:
    """Two pipelines with a history each, and the first one as a role sees it that was granted no more."""

    owner: PostgresWarehouse
    other: PostgresWarehouse
    mine: PostgresWarehouse
    role: str

    def ask(self, query: str, *parameters: object) -> list[tuple[Any, ...]]:
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


def drop(warehouse: PostgresWarehouse, range_: OffsetRange, by: Decision) -> DecisionRecord:
    return record_of(warehouse.decisions.drop_quarantined(warehouse.pipeline, [range_], by))


def ask_to_drop(warehouse: PostgresWarehouse, range_: OffsetRange, by: Decision) -> DecisionRecord:
    """Ask for what a rehearsal shows."""
    shown = record_of(warehouse.decisions.rehearsal.drop_quarantined(warehouse.pipeline, [range_], by))
    effect = Effect(shown.before or {}, shown.after or {})
    order = write_order(DropQuarantined((range_,)))
    return record_of(warehouse.decisions.request(warehouse.pipeline, order, by, effect))


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


def test_role_creates_its_target_if_it_may_create_tables_in_the_schema_alone(warehouse_dsn: str) -> None:
    owner = PostgresWarehouse(warehouse_dsn)
    with create_role(warehouse_dsn) as dsn:
        grant_role(warehouse_dsn, owner.pipeline, role_of(dsn), None, is_applied=True)
        mine = replace(owner, dsn=dsn)
        with psycopg.connect(warehouse_dsn) as connection:
            connection.execute(sql.SQL("create schema {}").format(sql.Identifier(owner.schema)))
        attempt = life.stage(mine, life.store(mine, FIRST, run="run-1"), "run-1")
        life.audit(mine, attempt)
        with pytest.raises(ConfigurationError, match=REFUSED):
            life.publish(mine, attempt)
        with psycopg.connect(warehouse_dsn) as connection:
            may_create = sql.SQL("grant usage, create on schema {} to {}")
            connection.execute(may_create.format(*map(sql.Identifier, (owner.schema, role_of(dsn)))))
        life.publish(mine, attempt)
    owner.drop()


def test_missing_right_on_the_target_blocks_no_batch_and_goes_with_the_grant(teams: Teams) -> None:
    table, role = sql.Identifier(teams.owner.schema, "orders"), sql.Identifier(teams.role)

    def change(right: str) -> None:
        with psycopg.connect(teams.owner.dsn) as connection:
            connection.execute(sql.SQL(right).format(table, role))  # type: ignore[arg-type]

    batch = life.store(teams.mine, SECOND, run="run-2")
    change("revoke insert on {} from {}")
    with pytest.raises(ConfigurationError, match=REFUSED):
        life.stage(teams.mine, batch, "run-2")
    change("grant insert on {} to {}")
    attempt = life.stage(teams.mine, batch, "run-2")
    life.audit(teams.mine, attempt)
    change("revoke insert on {} from {}")
    with pytest.raises(ConfigurationError, match=REFUSED):
        life.publish(teams.mine, attempt)
    change("grant insert on {} to {}")
    life.publish(teams.mine, attempt)
    assert teams.mine.prove().findings == ()


def test_role_empties_a_target_of_another_owner_with_the_right_to_truncate_it_alone(teams: Teams) -> None:
    with pytest.raises(ConfigurationError, match=REFUSED):
        rewind(teams.mine, {ORDERS_0: 0}, truncate=True)
    with psycopg.connect(teams.owner.dsn) as connection:
        table, role = sql.Identifier(teams.owner.schema, "orders"), sql.Identifier(teams.role)
        connection.execute(sql.SQL("grant truncate on {} to {}").format(table, role))
    assert rewind(teams.mine, {ORDERS_0: 0}, truncate=True).is_new
    assert life.target_coordinates(teams.owner) == []


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


def test_role_asks_for_an_order_and_confirms_what_another_login_has_asked_for(teams: Teams) -> None:
    at_host = [replace(each, uid=number, host="host7") for number, each in enumerate((BY_ANA, BY_BEN), start=1000)]
    for asking, confirming, range_ in ((teams.mine, teams.owner, FIRST), (teams.owner, teams.mine, SECOND)):
        if range_ is SECOND:
            publish(teams.owner, SECOND, "run-2")
        request = ask_to_drop(asking, range_, at_host[0])
        done = drop(confirming, range_, replace(at_host[1], request_id=request.decision_id))
        assert (done.requested_by, done.before) == (BY_ANA.decided_by, request.before)
    assert teams.mine.prove().findings == ()


def test_role_confirms_no_request_of_another_pipeline(teams: Teams) -> None:
    request = ask_to_drop(teams.other, FIRST, BY_ANA)
    statement = (
        "insert into batchledger.decision (pipeline, kind, decided_by, reason, request_id) "
        "values (%s, 'withdraw', 'ben', 'why', %s)"
    )
    for pipeline in (teams.mine.pipeline, teams.other.pipeline):
        with pytest.raises(psycopg.errors.CheckViolation, match="there is no such request"):
            teams.change(statement, pipeline, request.decision_id)
    assert teams.other.decisions.find_end(request.decision_id) is None


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
        (
            """insert into batchledger.decision (pipeline, kind, decided_by, reason, before, after, requested_order)
            values (%s, 'request', 'ceo', 'why', '{}', '{}', '{"kind": "erase"}')""",
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


NEXT_ID = "select coalesce(max(batch_id), 0) + 1 from batchledger.batch"
CHOOSE_ID = (
    "insert into batchledger.batch (batch_id, pipeline, lane, lag_left_records, planned_by) "
    f"overriding system value select ({NEXT_ID}), %s, 'live', 0, 'me' returning batch_id"
)


def test_role_takes_no_id_of_another_pipelines_next_plan(teams: Teams) -> None:
    with pytest.raises(psycopg.errors.InsufficientPrivilege, match="permission denied for table batch"):
        teams.change(CHOOSE_ID, teams.mine.pipeline)
    assert life.store(teams.other, SECOND, run="run-2").ranges == (SECOND,)


def test_with_a_right_on_the_whole_table_the_same_statement_takes_the_id(teams: Teams) -> None:
    """The negative control. Rolled back, so that the next plan gets its id."""
    with psycopg.connect(teams.owner.dsn) as connection:
        connection.execute(f"grant insert on batchledger.batch to {teams.role}".encode())
    with psycopg.connect(teams.mine.dsn) as connection, connection.transaction(force_rollback=True):
        ((following,),) = connection.execute(NEXT_ID.encode()).fetchall()
        assert connection.execute(CHOOSE_ID.encode(), [teams.mine.pipeline]).fetchall() == [(following,)]


def test_role_writes_no_id_that_the_ledger_counts_and_no_moment_of_what_is_only_added(teams: Teams) -> None:
    """Columns that a later migration adds are missed here."""
    columns = (
        "select a.attrelid::regclass::text, a.attname::text, has_column_privilege(%s, a.attrelid, a.attnum, 'insert') "
        "from pg_attribute a join pg_class c on c.oid = a.attrelid "
        "where c.relnamespace = 'batchledger'::regnamespace and c.relkind in ('r', 'p') and not a.attisdropped "
        "and (a.attidentity <> '' or a.atttypid = 'timestamptz'::regtype and a.atthasdef "
        "and c.relname in ('added_column', 'decision', 'payload_look'))"
    )
    counters = (
        "select c.relname from pg_class c where c.relnamespace = 'batchledger'::regnamespace and c.relkind = 'S' "
        "and case when c.relkind = 'S' then has_sequence_privilege(%s, c.oid, 'usage, update') end"
    )
    found = teams.ask(columns, teams.role)
    assert {("batchledger.batch", "batch_id"), ("batchledger.decision", "decided_at")} <= {row[:2] for row in found}
    assert [row for row in found if row[2]] == []
    assert teams.ask(counters, teams.role) == []


# A batch's own row names itself.
NAMED_BATCHES = (
    "select c.relname, array_agg(a.attname::text) filter (where a.attname like '%batch\\_id'), "
    "bool_or(a.attname = 'pipeline') from pg_class c join pg_attribute a on a.attrelid = c.oid and not a.attisdropped "
    "where c.relnamespace = 'batchledger'::regnamespace and c.relkind = 'r' and c.relname <> 'batch' "
    "group by c.relname having bool_or(a.attname like '%batch\\_id') order by c.relname"
)


def test_role_writes_no_row_that_names_a_batch_of_another_pipeline(teams: Teams) -> None:
    """PostgreSQL asks policies before constraints: a row of the role's own batch fails, if at all, by what it lacks."""
    batches = "select batch_id, pipeline = %s from batchledger.batch where pipeline in (%s, %s) order by 2"
    ((others, _), (own, _)) = teams.ask(batches, teams.mine.pipeline, teams.mine.pipeline, teams.other.pipeline)
    with psycopg.connect(teams.owner.dsn) as connection:
        tables = connection.execute(NAMED_BATCHES.encode()).fetchall()
    places = [(table, place) for table, columns, _ in tables for place in columns]
    assert {("batch_range", "batch_id"), ("decision", "batch_id"), ("replacement", "replaced_batch_id")} <= {*places}

    def write(table: str, values: dict[str, object]) -> str:
        columns, places = ", ".join(values), ", ".join(["%s"] * len(values))
        try:
            # Rolled back, so that no row is in the way of the next one.
            with psycopg.connect(teams.mine.dsn) as connection, connection.transaction(force_rollback=True):
                statement = f"insert into batchledger.{table} ({columns}) values ({places})"  # noqa: S608
                connection.execute(statement.encode(), [*values.values()])
        except psycopg.errors.InsufficientPrivilege as refused:
            return str(refused).partition(" for table")[0]
        except psycopg.IntegrityError:
            pass
        return "not by a policy"

    by_policy = "new row violates row-level security policy"
    for table, columns, has_pipeline in tables:
        right = {**dict.fromkeys(columns, own), **({"pipeline": teams.mine.pipeline} if has_pipeline else {})}
        assert (table, write(table, right)) == (table, "not by a policy")
        for place in columns:
            assert (table, place, write(table, {**right, place: others})) == (table, place, by_policy)


def test_role_keeps_the_fingerprint_of_its_own_pipeline_alone(teams: Teams) -> None:
    require_fingerprint(teams.mine.dsn, teams.mine.pipeline, b"mine")
    with pytest.raises(ConfigurationError, match="another secret"):
        require_fingerprint(teams.mine.dsn, teams.mine.pipeline, b"another")
    claim = "update batchledger.pipeline set secret_fingerprint = %s where name = %s"
    assert teams.change(claim, b"mine", teams.other.pipeline) == 0


def test_role_moves_no_range_into_a_batch_of_another_pipeline(teams: Teams) -> None:
    (batch,) = teams.ask("select batch_id from batchledger.batch where pipeline = %s", teams.other.pipeline)
    move = "update batchledger.batch_range set batch_id = %s where pipeline = %s"
    with pytest.raises(psycopg.errors.InsufficientPrivilege, match="row-level security"):
        teams.change(move, *batch, teams.mine.pipeline)
    assert teams.other.prove().findings == ()


def test_dropped_record_that_names_a_batch_of_another_pipeline_is_not_counted_there(teams: Teams) -> None:
    """A ledger may have such a row from before the policies, which do not hold its owner either."""
    names = (
        "update batchledger.quarantine set batch_id = (select batch_id from batchledger.batch where pipeline = %s) "
        "where pipeline = %s"
    )
    with psycopg.connect(teams.owner.dsn) as connection:
        assert connection.execute(names, [teams.other.pipeline, teams.owner.pipeline]).rowcount == 1
    record_of(teams.owner.decisions.drop_quarantined(teams.owner.pipeline, [FIRST], BY_ANA))
    assert teams.other.prove().findings == ()


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
    everything = {each.batch_id for each in PostgresHousekeeping(as_superuser(teams.owner.dsn)).look().tables}
    assert {attempt.batch.batch_id, others.batch.batch_id} <= everything


def test_table_that_another_role_has_put_in_the_place_of_set_aside_rows_is_not_written_to(teams: Teams) -> None:
    """Every role may create tables in the schema of the staging, and can foresee their names."""
    attempt = life.stage(teams.mine, life.store(teams.mine, SECOND, run="run-2"), "run-2")
    trap = sql.Identifier(STAGING_SCHEMA, f"{table_prefix(attempt)}_aside")
    with create_role(teams.owner.dsn) as dsn, psycopg.connect(as_superuser(teams.owner.dsn)) as connection:
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


def test_role_runs_all_pipelines_if_all_are_granted(teams: Teams) -> None:
    """The owner of a target grants it, as here."""
    with create_role(teams.owner.dsn) as dsn:
        role = role_of(dsn)
        statements = grant_all(teams.owner.dsn, role, is_applied=True)
        assert not [each for each in statements if "pipeline_role" in each]
        for warehouse in (teams.owner, teams.other):
            with psycopg.connect(teams.owner.dsn) as connection:
                for right in ("usage on schema {}", "select, insert, update, delete on {}.orders"):
                    grant = sql.SQL(f"grant {right} to {{}}").format(*map(sql.Identifier, (warehouse.schema, role)))  # type: ignore[arg-type]
                    connection.execute(grant)
            mine = replace(warehouse, dsn=dsn)
            publish(mine, SECOND, "run-2")
            assert mine.prove().findings == ()


def test_role_that_policies_keep_to_a_pipeline_is_not_granted_all(teams: Teams) -> None:
    """It would be kept to it nevertheless."""
    with pytest.raises(ConfigurationError, match=f"it runs {teams.mine.pipeline} alone. Nothing was granted"):
        grant_all(teams.owner.dsn, teams.role, is_applied=True)
    with create_role(teams.owner.dsn) as dsn, psycopg.connect(as_superuser(teams.owner.dsn)) as connection:
        member = role_of(dsn)
        connection.execute(f"grant {teams.role} to {member}".encode())
        connection.commit()
        with pytest.raises(ConfigurationError, match=f"{teams.role}, which runs {teams.mine.pipeline}") as refused:
            grant_all(teams.owner.dsn, member, is_applied=True)
        assert f"revoke {teams.role} from {member}" in str(refused.value)


def test_owner_of_the_ledger_needs_no_grant_and_gets_none(teams: Teams) -> None:
    with pytest.raises(ConfigurationError, match="it is the owner of the ledger"):
        grant_all(teams.owner.dsn, role_of(teams.owner.dsn), is_applied=True)


@pytest.mark.parametrize("is_applied", [True, False])
@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("alter role {role} superuser", "it is a superuser. Nothing"),
        ("alter role {role} bypassrls", "it is exempt by BYPASSRLS. Nothing"),
        ("create role {other} nologin bypassrls; grant {other} to {role}", "it is a member of {other}, which is"),
        ("alter role {role} noinherit; grant {owner} to {role}", "it is a member of {owner}, which is"),
    ],
)
def test_role_that_no_policy_would_hold_is_refused(teams: Teams, given: str, said: str, *, is_applied: bool) -> None:
    names = {"role": teams.role, "other": f"other_of_{teams.role}", "owner": role_of(teams.owner.dsn)}
    with psycopg.connect(as_superuser(teams.owner.dsn), autocommit=True) as connection:
        connection.execute(given.format(**names).encode())
        try:
            with pytest.raises(ConfigurationError, match=said.format(**names)) as refused:
                grant_role(teams.owner.dsn, teams.other.pipeline, teams.role, None, is_applied=is_applied)
        finally:
            connection.execute("drop role if exists {other}".format(**names).encode())
        query = "select pipeline from batchledger.pipeline_role where role = %s"
        assert connection.execute(query, [teams.role]).fetchall() == [(teams.mine.pipeline,)]
    assert "Nothing was granted" in str(refused.value)


@pytest.mark.parametrize("name", ["public", "no_such_role"])
def test_what_is_no_role_is_granted_nothing(teams: Teams, name: str) -> None:
    """PostgreSQL would grant everyone what "public" is granted, also in quotes."""
    with pytest.raises(ConfigurationError, match=f"PostgreSQL has no role {name}. Nothing was granted"):
        grant_role(teams.owner.dsn, teams.mine.pipeline, name, None, is_applied=True)


def test_owner_of_the_ledger_that_is_no_superuser_is_refused(teams: Teams) -> None:
    with psycopg.connect(as_superuser(teams.owner.dsn), autocommit=True) as connection:
        connection.execute(f"alter table batchledger.key_type owner to {teams.role}".encode())
        try:
            with pytest.raises(ConfigurationError, match="it is the owner of the ledger"):
                grant_role(teams.owner.dsn, teams.mine.pipeline, teams.role, None, is_applied=True)
        finally:
            connection.execute(f"alter table batchledger.key_type owner to {role_of(teams.owner.dsn)}".encode())


def test_rights_on_a_table_that_is_not_there_are_refused_with_what_to_do(teams: Teams) -> None:
    with pytest.raises(ConfigurationError, match=r"is not there\. Nothing was granted"):
        grant_role(teams.owner.dsn, teams.mine.pipeline, teams.role, ("public", "no_such_table"), is_applied=True)
