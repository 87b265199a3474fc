"""The roles of the local PostgreSQL: what each may reach, and what becomes of a folder that had one superuser."""

import json
import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from uuid import uuid4

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo

from batchledger.ledger import grants
from batchledger.ledger.grants import set_up_ledger
from batchledger.ledger.migrate import migrate
from batchledger.local.stack import local_stack, postgres_server, processes
from batchledger.local.stack.database_roles import (
    COMPOSE_VARIABLE_BY_ROLE,
    OWNER_BY_DATABASE,
    DatabaseServer,
    create_compose_databases,
    create_databases,
)
from batchledger.local.stack.defaults import (
    AIRFLOW_DATABASE,
    AIRFLOW_DATABASE_USER,
    DATABASE_SUPERUSER,
    DATABASE_USER,
    LEDGER_USER,
    WAREHOUSE_DATABASE,
)
from batchledger.local.stack.home import Credentials, Home, Ports, write_private
from batchledger.local.stack.machine import HOST
from batchledger.local.stack.postgres_server import HOST_RULES, database_server, postgres_service
from batchledger.model.errors import SetupError
from tests.conftest import SERVICES, choose_ports, home_in
from tests.fakes.crash import SimulatedCrashError
from tests.second_server import SecondServer, serve_second_postgres
from tests.support import wait_until

ROLES = (DATABASE_USER, LEDGER_USER, AIRFLOW_DATABASE_USER, DATABASE_SUPERUSER)
DATABASES = (WAREHOUSE_DATABASE, AIRFLOW_DATABASE, "postgres", "template1")
REACHED = {
    *((role, WAREHOUSE_DATABASE) for role in (DATABASE_USER, LEDGER_USER)),
    (AIRFLOW_DATABASE_USER, AIRFLOW_DATABASE),
    *((DATABASE_SUPERUSER, database) for database in DATABASES),
}
RULES_OF_AN_EARLIER_VERSION = f"host all all {HOST}/32 scram-sha-256\n"
SUPERUSERS_RIGHTS = [
    "create role more",
    "create database more",
    "alter system set work_mem = '1MB'",
    "alter role postgres password 'mine'",
    "set role postgres",
    "set session_replication_role = replica",
    "checkpoint",
    "select pg_read_file('postgresql.conf')",
    "copy (select 1) to program 'true'",
    "select rolpassword from pg_authid",
    "update pg_authid set rolsuper = true",
]
OWNERS_RIGHTS = [
    "alter table batchledger.decision disable trigger user",
    "alter table batchledger.quarantine disable row level security",
    "create function batchledger.mine() returns int language sql return 1",
    "create or replace function batchledger.pipelines_of(who name) returns text[] language sql return null::text[]",
    "create table batchledger.mine (n int)",
    "delete from batchledger.batch",
    "drop schema batchledger cascade",
    "drop table batchledger.decision cascade",
    "insert into batchledger.pipeline_role (role, pipeline) values ('batchledger', 'orders')",
    "truncate batchledger.incident cascade",
    "update batchledger.migration set version_num = '0001'",
    "update batchledger.pipeline set decision_count = 0",
]
DROP_EXTENSION = "drop extension btree_gist cascade"
"""It takes constraints of the ledger with it. A superuser made it in the earliest version, and keeps it."""
CHANGES = ("create role", "alter schema", "alter table", "alter database")
SECRET = b"s" * 32
TRAP = """
create table public.caught (who text);
create function public.spring(oid, regnamespace) returns boolean language plpgsql as $$
begin
    insert into public.caught values (current_user);
    return true;
end $$;
create function public.spring(oid, regrole) returns boolean language plpgsql as $$
begin
    insert into public.caught values (current_user);
    return true;
end $$;
create operator public.= (leftarg = oid, rightarg = regnamespace, function = public.spring);
create operator public.<> (leftarg = oid, rightarg = regrole, function = public.spring);
"""
"""PostgreSQL prefers an operator in the path for the very types of an expression to its own for similar ones."""
TEAM = "insert into batchledger.pipeline_role (role, pipeline) values ('team', 'orders')"
MEMBERS = {("batchledger", "member"), ("batchledger", "ledger")}
"""By role, as pairs."""
PEOPLE = """
create role reader login password 'reader';
create role member login password 'member' in role batchledger;
create role team role batchledger;
create role analysts role batchledger;
"""
CONTENT_BY_DATABASE = {
    WAREHOUSE_DATABASE: """
create schema "My shop";
create type "My shop".state as enum ('open', 'shipped');
create type "My shop".place as (street text, town text);
create domain "My shop".positive as int check (value > 0);
create type "My shop".span as range (subtype = int);
create table "My shop"."Orders, new" (
    id serial primary key, number int generated always as identity, state "My shop".state, n "My shop".positive
);
insert into "My shop"."Orders, new" (state, n) values ('open', 1);
create table "My shop".parted (n int) partition by range (n);
create table "My shop".part partition of "My shop".parted for values from (0) to (9);
create sequence "My shop".numbers;
create view "My shop".opened as select * from "My shop"."Orders, new" where state = 'open';
create materialized view "My shop".counted as select count(*) from "My shop"."Orders, new";
create function "My shop".twice(n int, text default 'a') returns int language sql return 2 * n;
create procedure "My shop".act(inout n int) language sql as 'select 1';
create aggregate "My shop".total(int) (sfunc = int4pl, stype = int);
grant usage on schema "My shop" to reader;
grant select on "My shop"."Orders, new" to reader;
create table iceberg_tables (n int primary key);
insert into iceberg_tables values (1);
""",
    AIRFLOW_DATABASE: """
create type kind as enum ('a');
create table dag (id serial primary key, kind kind);
insert into dag (kind) values ('a');
""",
}
USER_BY_DATABASE = {WAREHOUSE_DATABASE: DATABASE_USER, AIRFLOW_DATABASE: AIRFLOW_DATABASE_USER}
OWNERS = """
select 'schema ' || nspname, nspowner::regrole::text from pg_namespace where nspname !~ '^pg_'
union all
select 'relation ' || oid::regclass, relowner::regrole::text
from pg_class where relnamespace::regnamespace::text !~ '^pg_'
union all
select 'routine ' || oid::regprocedure, proowner::regrole::text from pg_proc
union all
select 'type ' || oid::regtype, typowner::regrole::text from pg_type where typnamespace::regnamespace::text !~ '^pg_'
union all
select 'extension ' || extname, extowner::regrole::text from pg_extension where extname <> 'plpgsql'
union all
select 'database', datdba::regrole::text from pg_database where datname = current_database()
"""
"""The name and the owner of everything that a database holds, of parts of extensions and of initdb's, too."""


def can_connect(dsn: str) -> bool:
    try:
        psycopg.connect(dsn).close()
    except psycopg.OperationalError:
        return False
    return True


def find_reached(server: DatabaseServer) -> set[tuple[str, str]]:
    """Every role with every database that it may connect to."""
    return {(role, name) for role in ROLES for name in DATABASES if can_connect(server.dsn(role, name))}


def read_owners(server: DatabaseServer) -> dict[str, dict[str, str]]:
    """The owner by name, by database."""
    found = {}
    for database, owner in OWNER_BY_DATABASE.items():
        with psycopg.connect(server.dsn(owner, database)) as connection:
            owners = connection.execute(OWNERS).fetchall()
            # Earlier versions had the catalog in the schema that had the name of their role. A superuser's extension is
            # as safe as the owner's.
            found[database] = {
                re.sub(r"(public|batchledger)\.(?=iceberg)", "", name): LEDGER_USER if "extension" in name else role
                for name, role in owners
                if (name, role) != ("extension btree_gist", DATABASE_USER)
            }
    return found


def fill(server: DatabaseServer, user_by_database: dict[str, str]) -> None:
    """Write what people and programs may have in both databases, as the users that are named."""
    for database, user in user_by_database.items():
        with psycopg.connect(server.dsn(user, database)) as connection:
            connection.execute(CONTENT_BY_DATABASE[database].encode())


def admit_people(superuser_dsn: str) -> None:
    """Make the roles of people."""
    with psycopg.connect(superuser_dsn) as connection:
        connection.execute(PEOPLE.encode())


@pytest.fixture(scope="module")
def server() -> Iterator[DatabaseServer]:
    """A server that this version has made, with the content in both databases."""
    with serve_second_postgres("roles") as second:
        server = server_of(second)
        admit_people(second.superuser_dsn)
        set_up_ledger(server.dsn(LEDGER_USER, WAREHOUSE_DATABASE), SECRET, DATABASE_USER)
        fill(server, USER_BY_DATABASE)
        yield server


def server_of(place: SecondServer) -> DatabaseServer:
    return database_server(place.ports, Credentials.of(place.home))


def test_owner_of_a_database_reaches_no_other_one(server: DatabaseServer) -> None:
    assert find_reached(server) == REACHED


def test_with_the_rules_of_an_earlier_version_each_role_reaches_each_database(server: DatabaseServer) -> None:
    """Negative control."""
    with psycopg.connect(server.dsn(DATABASE_SUPERUSER, "postgres"), autocommit=True) as connection:
        (file,) = connection.execute("show hba_file").fetchone() or ("",)
        try:
            Path(file).write_text(RULES_OF_AN_EARLIER_VERSION)
            connection.execute("grant connect on database postgres, template1 to public")
            connection.execute("select pg_reload_conf()")
            wait_until(lambda: len(find_reached(server)) == len(ROLES) * len(DATABASES))
        finally:
            connection.execute("revoke connect on database postgres, template1 from public")
            Path(file).write_text(HOST_RULES)
            connection.execute("select pg_reload_conf()")
    wait_until(lambda: find_reached(server) == REACHED)


@pytest.mark.parametrize("role", ROLES)
def test_no_role_is_let_in_without_its_own_password(server: DatabaseServer, role: str) -> None:
    others = [password for name, password in server.password_by_role.items() if name != role]
    for password in ("guess", *others):
        passwords = {**dict.fromkeys(ROLES, "guess"), role: password}
        assert find_reached(replace(server, password_by_role=passwords)) == set()


def assert_pipelines_cannot_be_the_owner(server: DatabaseServer) -> None:
    """The login of pipelines reads the ledger and adds a batch, and does nothing that takes the owner of its tables."""
    with psycopg.connect(server.dsn(DATABASE_USER, WAREHOUSE_DATABASE), autocommit=True) as connection:
        assert connection.execute("select count(*) from batchledger.pipeline").fetchone() == (0,)
        for statement in (*OWNERS_RIGHTS, DROP_EXTENSION):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                connection.execute(statement.encode())
    with psycopg.connect(server.dsn(LEDGER_USER, WAREHOUSE_DATABASE)) as connection:
        # Negative control: none of them is refused for what it says.
        for statement in OWNERS_RIGHTS:
            with connection.transaction(force_rollback=True):
                connection.execute(statement.encode())


def test_login_of_pipelines_cannot_do_what_the_owner_of_the_ledger_can(server: DatabaseServer) -> None:
    assert_pipelines_cannot_be_the_owner(server)
    with psycopg.connect(server.dsn(LEDGER_USER, WAREHOUSE_DATABASE)) as connection:
        connection.execute(DROP_EXTENSION)
        connection.rollback()


def test_owner_and_superuser_run_nothing_that_pipelines_have_put_in_their_way(server: DatabaseServer) -> None:
    ledger, pipelines = (server.dsn(role, WAREHOUSE_DATABASE) for role in (LEDGER_USER, DATABASE_USER))
    with psycopg.connect(pipelines) as connection:
        connection.execute(TRAP.encode())
    try:
        create_databases(server)
        set_up_ledger(ledger, SECRET, DATABASE_USER)
        with psycopg.connect(ledger) as connection:
            assert connection.execute("select who from public.caught").fetchall() == []
            # Negative control.
            connection.execute("set search_path = public")
            connection.execute(grants._FIND_UNHELD, [DATABASE_USER])
            caught = connection.execute("select distinct who from public.caught").fetchall()
            assert caught == [(LEDGER_USER,)]
    finally:
        with psycopg.connect(pipelines) as connection:
            connection.execute("drop table public.caught; drop function public.spring(oid, regnamespace) cascade")
            connection.execute("drop function public.spring(oid, regrole) cascade")


def test_role_of_that_name_that_a_person_has_made_is_given_nothing(server: DatabaseServer) -> None:
    others = replace(server, password_by_role={**server.password_by_role, LEDGER_USER: "another"})
    with pytest.raises(SetupError, match=f"a role {LEDGER_USER} that does not log in by its password here"):
        create_databases(others)


@pytest.mark.parametrize("statement", SUPERUSERS_RIGHTS)
@pytest.mark.parametrize(("database", "owner"), OWNER_BY_DATABASE.items())
def test_owner_of_a_database_has_no_right_of_a_superuser(
    server: DatabaseServer, database: str, owner: str, statement: str
) -> None:
    with (
        psycopg.connect(server.dsn(owner, database), autocommit=True) as connection,
        pytest.raises(psycopg.errors.InsufficientPrivilege),
    ):
        connection.execute(statement.encode())


def test_passwords_are_stored_as_hashes_that_cost_a_connection_little(server: DatabaseServer) -> None:
    """The client makes the hash, too, and the server says how often to hash."""
    query = "select rolname from pg_authid where rolcanlogin and rolpassword like 'SCRAM-SHA-256$1:%'"
    with psycopg.connect(server.dsn(DATABASE_SUPERUSER, "postgres")) as connection:
        assert {name for (name,) in connection.execute(query)} >= set(ROLES)


@dataclass(frozen=True)
class Earlier:
    """A data folder as an earlier version has left it, and what that version did not have yet."""

    home: Home
    ports: Ports
    changes: tuple[str, ...]
    members: frozenset[tuple[str, str]]


@pytest.fixture
def place() -> Iterator[tuple[Home, Ports]]:
    """A folder and ports of this test's own."""
    home, ports = home_in(SERVICES.home.local / f"earlier-{uuid4().hex[:8]}"), choose_ports()
    home.pipelines.mkdir(parents=True)
    try:
        yield home, ports
    finally:
        local_stack.down(home)


def leave(home: Home, server: DatabaseServer, users: dict[str, str], credentials: Credentials, *lacking: str) -> None:
    """Make databases that the users own, with what people and programs have; keep no password that was lacking."""
    superuser = server.dsn(
        DATABASE_SUPERUSER if DATABASE_SUPERUSER in server.password_by_role else DATABASE_USER, "postgres"
    )
    with psycopg.connect(superuser, autocommit=True) as connection:
        for database, user in users.items():
            names = map(sql.Identifier, (database, user))
            connection.execute(sql.SQL("create database {} owner {}").format(*names))
    admit_people(superuser)
    migrate(server.dsn(users[WAREHOUSE_DATABASE], WAREHOUSE_DATABASE))
    fill(server, users)
    with psycopg.connect(make_conninfo(superuser, dbname=WAREHOUSE_DATABASE)) as connection:
        connection.execute(TEAM)
    local_stack.down(home)
    known = {name: value for name, value in asdict(credentials).items() if name not in lacking}
    write_private(home.local / "credentials.json", json.dumps(known))


@pytest.fixture
def earliest(place: tuple[Home, Ports], monkeypatch: pytest.MonkeyPatch) -> Earlier:
    """The superuser ``batchledger`` owns both databases."""
    home, ports = place
    current = Credentials.of(home)
    credentials = replace(current, database_superuser_password=current.database_password)
    with monkeypatch.context() as patched:
        patched.setattr(postgres_server, "DATABASE_SUPERUSER", DATABASE_USER)
        patched.setattr(postgres_server, "HOST_RULES", RULES_OF_AN_EARLIER_VERSION)
        start(home, ports, credentials)
    server = DatabaseServer(HOST, ports.postgres, {DATABASE_USER: credentials.database_password})
    lacking = ("airflow_database_password", "database_superuser_password", "ledger_password")
    leave(home, server, dict.fromkeys(OWNER_BY_DATABASE, DATABASE_USER), credentials, *lacking)
    # A superuser needs to be no member.
    members = frozenset({("team", "postgres"), ("analysts", "postgres")})
    return Earlier(home, ports, (*CHANGES, "rename to"), members)


@pytest.fixture
def later(place: tuple[Home, Ports]) -> Earlier:
    """``batchledger`` is no superuser, and owns the ledger."""
    home, ports = place
    credentials = Credentials.of(home)
    start(home, ports, credentials)
    server = database_server(ports, credentials)
    with psycopg.connect(server.dsn(DATABASE_SUPERUSER, "postgres"), autocommit=True) as connection:
        for role in USER_BY_DATABASE.values():
            made = sql.SQL("create role {} login password {}")
            connection.execute(made.format(sql.Identifier(role), sql.Literal(server.password_by_role[role])))
    leave(home, server, USER_BY_DATABASE, credentials, "ledger_password")
    return Earlier(home, ports, CHANGES, frozenset({("team", "ledger"), ("analysts", "batchledger")}))


@pytest.fixture(params=["earliest", "later"])
def earlier(request: pytest.FixtureRequest) -> Earlier:
    """Each version that had fewer roles."""
    found: Earlier = request.getfixturevalue(request.param)
    return found


def start(home: Home, ports: Ports, credentials: Credentials) -> None:
    """Start the server alone, without what ``up`` then does in it."""
    service = postgres_service(home, ports, credentials)
    record = processes.start(home, service.name, service.prepare())
    wait_until(lambda: service.is_healthy(record))


def assert_given_away(server: DatabaseServer, new: DatabaseServer, members: frozenset[tuple[str, str]]) -> None:
    """Each thing has the owner that it has on a new server; its owner can use and change it; people can use it."""
    assert find_reached(server) == REACHED
    found, wanted = read_owners(server), read_owners(new)
    for database in OWNER_BY_DATABASE:
        assert found[database].items() ^ wanted[database].items() == set()
    with psycopg.connect(server.dsn(DATABASE_SUPERUSER, "postgres")) as connection:
        roles = connection.execute("select rolname, rolsuper from pg_roles where rolname !~ '^pg_'").fetchall()
        assert dict(roles) == {
            **dict.fromkeys((*ROLES, "reader", "member", "team", "analysts"), False),
            DATABASE_SUPERUSER: True,
        }
        query = "select pg_has_role('member', 'batchledger', 'member'), pg_has_role('member', 'postgres', 'member')"
        assert connection.execute(query).fetchone() == (True, False)
        query = "select roleid::regrole::text, member::regrole::text from pg_auth_members where roleid >= 16384"
        assert set(connection.execute(query).fetchall()) == MEMBERS | members
    with psycopg.connect(server.dsn(DATABASE_USER, WAREHOUSE_DATABASE)) as connection:
        connection.execute("""insert into "My shop"."Orders, new" (state, n) values ('shipped', 2)""")
        connection.execute("""alter table "My shop"."Orders, new" add column note text""")
        connection.execute("""insert into "My shop".parted values (3)""")
        connection.execute("""refresh materialized view "My shop".counted""")
        query = """select nextval('"My shop".numbers') > 0, "My shop".twice(2), (table "My shop".counted)"""
        assert connection.execute(query).fetchone() == (True, 4, 2)
        assert connection.execute("""select id, number from "My shop".opened""").fetchall() == [(1, 1)]
        connection.execute("""alter type "My shop".state add value 'lost'""")
        connection.execute("insert into iceberg_tables values (2)")
        connection.execute("create table unqualified (n int)")
        assert connection.execute("select 'unqualified'::regclass = 'public.unqualified'::regclass").fetchone() == (
            True,
        )
        connection.execute("""drop schema "My shop" cascade""")
        connection.rollback()
    with psycopg.connect(server.dsn(LEDGER_USER, WAREHOUSE_DATABASE)) as connection:
        connection.execute("drop schema batchledger, batchledger_staging cascade")
        connection.rollback()
    with psycopg.connect(server.dsn(AIRFLOW_DATABASE_USER, AIRFLOW_DATABASE)) as connection:
        connection.execute("insert into dag (kind) values ('a')")
        connection.execute("alter table dag add column more text")
        assert connection.execute("select count(*) from dag").fetchone() == (2,)
        connection.rollback()
    for role in ("reader", "member"):
        reading = replace(server, password_by_role={role: role})
        with psycopg.connect(reading.dsn(role, WAREHOUSE_DATABASE)) as connection:
            assert connection.execute("""select id, state from "My shop"."Orders, new" """).fetchall() == [(1, "open")]


def test_folder_of_an_earlier_version_is_used_on_without_a_superuser(earlier: Earlier, server: DatabaseServer) -> None:
    home, ports = earlier.home, earlier.ports
    moved: list[tuple[str | None, str | None]] = []

    def set_up_and_note(dsn: str, secret: bytes, role: str) -> None:
        moved.append(set_up_ledger(dsn, secret, role))

    for _ in range(2):
        local_stack.up(home, ports, services=["postgres"], set_up_ledger=set_up_and_note)
        changed = database_server(ports, Credentials.of(home))
        assert_given_away(changed, server, earlier.members)
        assert_pipelines_cannot_be_the_owner(changed)
        local_stack.down(home)
    assert [before for before, _ in moved] == [after for _, after in moved]


def test_change_of_the_roles_goes_on_wherever_it_was_interrupted(
    earlier: Earlier, server: DatabaseServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each statement fails once, and takes its transaction with it. The call is the one of the Compose file."""
    home, ports = earlier.home, earlier.ports
    credentials = Credentials.of(home)
    start(home, ports, credentials)
    changed, execute = database_server(ports, credentials), psycopg.Connection.execute
    environ = {COMPOSE_VARIABLE_BY_ROLE[role]: password for role, password in changed.password_by_role.items()}
    failed: set[str] = set()

    def fail_once(connection: psycopg.Connection, query: str | bytes | sql.Composed, *arguments: object) -> object:
        text = query.as_string(connection) if isinstance(query, sql.Composed) else str(query)
        text = re.sub(r"SCRAM-SHA-256[^']*", "", text)  # It is salted anew each time.
        if text not in failed:
            failed.add(text)
            raise SimulatedCrashError(text)
        return execute(connection, query, *arguments)  # type: ignore[arg-type]

    def is_done() -> bool:
        try:
            create_compose_databases(changed.host, changed.port, environ)
        except SimulatedCrashError:
            return False
        return True

    with monkeypatch.context() as patched:
        patched.setattr(psycopg.Connection, "execute", fail_once)
        while not is_done():
            pass
    for part in earlier.changes:
        assert [text for text in failed if part in text]
    set_up_ledger(changed.dsn(LEDGER_USER, WAREHOUSE_DATABASE), SECRET, DATABASE_USER)
    assert_given_away(changed, server, earlier.members)
