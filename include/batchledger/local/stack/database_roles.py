"""The roles of the PostgreSQL server: a superuser for the stack alone, an owner for each database, one for pipelines.

No owner is a superuser, and none may connect to the other's database: ``host_rules`` refuse it. ``ledger`` owns the
warehouse and the ledger's tables, and logs in to migrate and to grant. Pipelines log in as ``batchledger``, which owns
what they create, and has on the ledger what ``batchledger grant --all`` gives.

Earlier versions had fewer roles. At first the superuser ``batchledger`` was all of them. Later it was no superuser, and
owned the ledger. ``create_databases`` renames that superuser to ``postgres``, makes the roles that are missing, and
gives away each database with all it holds. The names change in one transaction, and each database changes hands in one,
so a crash at any moment leaves work that the next start does.

The Compose file has the same roles and rules, and does its part by ``create_compose_databases``.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field

import psycopg
from psycopg import sql
from psycopg.conninfo import make_conninfo

from batchledger.local.stack.defaults import (
    AIRFLOW_DATABASE,
    AIRFLOW_DATABASE_USER,
    DATABASE_SUPERUSER,
    DATABASE_USER,
    LEDGER_USER,
    WAREHOUSE_DATABASE,
)
from batchledger.model.errors import SetupError

OWNER_BY_DATABASE = {WAREHOUSE_DATABASE: LEDGER_USER, AIRFLOW_DATABASE: AIRFLOW_DATABASE_USER}
_USER_BY_DATABASE = {WAREHOUSE_DATABASE: DATABASE_USER, AIRFLOW_DATABASE: AIRFLOW_DATABASE_USER}
"""Who owns what is no part of the ledger."""
COMPOSE_VARIABLE_BY_ROLE = {
    LEDGER_USER: "LEDGER_PASSWORD",
    DATABASE_USER: "POSTGRES_PASSWORD",
    AIRFLOW_DATABASE_USER: "AIRFLOW_DATABASE_PASSWORD",
    DATABASE_SUPERUSER: "POSTGRES_SUPERUSER_PASSWORD",
}
"""Where containers find the passwords. A server made by an earlier version may know ``POSTGRES_PASSWORD`` alone."""
_MAINTENANCE_DATABASE = "postgres"

# The first superuser has the number 10 whatever its name is, and what initdb makes has numbers below 16384. PostgreSQL
# refuses "reassign owned" for this role. Parts of an extension, row types and the sequence of a column have no owner of
# their own. Earlier versions let pipelines make the tables of PyIceberg's catalog beside the ledger's: by the name of
# their role, its schema was the first one that they looked in.
_GIVE_AWAY = """
select 'alter ' || kind || ' ' || (pg_identify_object(catalog, oid, 0)).identity || ' owner to ' || quote_ident(wanted)
from (
    select *, case when space = 'batchledger' or kind = 'schema' and space = 'batchledger_staging' then %(owner)s
        else %(user)s end as wanted
    from (
        select 'schema' as kind, 'pg_namespace'::regclass as catalog, oid, nspname as space, nspowner as owner,
            false as is_sequence
        from pg_namespace where nspname !~ '^pg_'
        union all
        select 'table', 'pg_class', oid,
            case when relname !~ '^iceberg_' then relnamespace::regnamespace::text end, relowner, relkind = 'S'
        from pg_class where relkind in ('r', 'p', 'v', 'm', 'f', 'S') and relpersistence <> 't'
        union all
        select 'routine', 'pg_proc', oid, pronamespace::regnamespace::text, proowner, false from pg_proc
        union all
        select 'type', 'pg_type', oid, typnamespace::regnamespace::text, typowner, false from pg_type
    ) as thing
) as thing
where owner in (10, to_regrole(%(earlier)s)) and owner <> to_regrole(wanted) and oid >= 16384 and not exists (
    select from pg_depend d
    where d.classid = catalog and d.objid = oid and d.objsubid = 0
        and (d.deptype in ('e', 'i') or d.deptype = 'a' and is_sequence)
)
union all
select 'alter database ' || quote_ident(current_database()) || ' owner to ' || quote_ident(%(owner)s)
"""
# There is no statement for it. Its owner can drop it, and with it the constraints of the ledger that need it.
_GIVE_EXTENSION = """
with given as (
    update pg_extension set extowner = to_regrole(%(owner)s)
    where extname = 'btree_gist' and extowner = to_regrole(%(earlier)s)
    returning oid
)
update pg_shdepend set refobjid = to_regrole(%(owner)s)
from given
where classid = 'pg_extension'::regclass and objid = given.oid and deptype = 'o'
    and dbid = (select oid from pg_database where datname = current_database())
"""
# The owner may be a member of the roles of single pipelines, to drop what they have left in staging. Policies would
# keep the login of all pipelines to these.
_GIVE_MEMBERSHIPS = """
select format('grant %%1$I to %%2$I; revoke %%1$I from %%3$I', r.rolname, %(owner)s::text, %(earlier)s::text)
from pg_auth_members m join pg_roles r on r.oid = m.roleid
where m.member = to_regrole(%(earlier)s) and r.rolname in (select role from batchledger.pipeline_role)
"""
_PATH = "public, batchledger"
"""Pipelines find the catalog of an earlier version in the second schema."""
_HAS_PATH = """
select from pg_db_role_setting, unnest(setconfig) as setting
where setrole = to_regrole(%s) and setting like 'search\\_path=%%'
"""
_MEMBERS = "select rolname from pg_auth_members join pg_roles on pg_roles.oid = member where roleid = 10"


@dataclass(frozen=True)
class DatabaseServer:
    """Where the server listens, and the password of each of its roles."""

    host: str
    port: int
    password_by_role: Mapping[str, str] = field(repr=False)

    def dsn(self, role: str, database: str) -> str:
        """Return a connection string for this process only: it holds the password.

        The superuser finds nothing by its name alone in schemas that others may create in: an operator for the very
        types of an expression would run with its rights.
        """
        options = "-c search_path=pg_catalog" if role == DATABASE_SUPERUSER else ""
        return make_conninfo(
            host=self.host,
            port=self.port,
            user=role,
            password=self.password_by_role[role],
            dbname=database,
            connect_timeout=5,
            options=options,
        )


def host_rules(address: str) -> str:
    """Return the lines of pg_hba.conf for clients with this address: who may connect to what, with a password.

    ``revoke connect`` would also refuse the readers of a target: they have this right only because all roles have it.
    """
    rules = (
        (AIRFLOW_DATABASE, f"{AIRFLOW_DATABASE_USER},{DATABASE_SUPERUSER}", "scram-sha-256"),
        (AIRFLOW_DATABASE, "all", "reject"),
        ("all", AIRFLOW_DATABASE_USER, "reject"),
        ("all", "all", "scram-sha-256"),
    )
    return "".join(f"host {database} {role} {address} {method}\n" for database, role, method in rules)


def create_databases(server: DatabaseServer) -> None:
    """Create the roles and databases that are missing, and give away what an earlier version has left the superuser.

    It may be repeated, also after a crash. Raises psycopg.Error if the server refuses it or cannot be reached.
    """
    _rename_superuser(server)
    with psycopg.connect(server.dsn(DATABASE_SUPERUSER, _MAINTENANCE_DATABASE), autocommit=True) as connection:
        roles = {name for (name,) in connection.execute("select rolname from pg_roles")}
        for role in server.password_by_role:
            if role not in roles:
                _create_role(connection, server, role)
        owners = connection.execute("select datname, datdba::regrole::text from pg_database").fetchall()
        found: dict[str, str] = dict(owners)
        _require_ours(server, WAREHOUSE_DATABASE if WAREHOUSE_DATABASE in found else _MAINTENANCE_DATABASE)
        for database, owner in OWNER_BY_DATABASE.items():
            if database not in found:
                names = map(sql.Identifier, (database, owner))
                connection.execute(sql.SQL("create database {} owner {}").format(*names))
        # No role needs them. What it left there, the superuser would meet, or every new database would have.
        connection.execute(f"revoke connect on database {_MAINTENANCE_DATABASE}, template1 from public")
    for database, owner in OWNER_BY_DATABASE.items():
        if found.get(database, owner) != owner:
            _give_away(server, database, owner)
    _let_create(server)


def _require_ours(server: DatabaseServer, database: str) -> None:
    """Give nothing away to a role of that name that a person has made."""
    try:
        psycopg.connect(server.dsn(LEDGER_USER, database)).close()
    except psycopg.OperationalError as error:
        raise SetupError(
            f"PostgreSQL has a role {LEDGER_USER} that does not log in by its password here. No database was changed.",
            why=f"PostgreSQL says: {str(error).strip()}",
            advice="If you have changed its password here, set the earlier one. "
            f"If the role is yours, give it another name: alter role {LEDGER_USER} rename to …",
        ) from error


def create_compose_databases(host: str, port: int, environ: Mapping[str, str] = os.environ) -> None:
    """Do the same on the server of Compose; ``environ`` has the passwords. Raises KeyError if one is missing."""
    password_by_role = {role: environ[variable] for role, variable in COMPOSE_VARIABLE_BY_ROLE.items()}
    create_databases(DatabaseServer(host, port, password_by_role))


def _rename_superuser(server: DatabaseServer) -> None:
    """Let the superuser of an earlier version have its new name and password; its old ones are an ordinary role's.

    PostgreSQL does not rename the role of the session, so a role of this transaction alone does it.
    """
    try:
        psycopg.connect(server.dsn(DATABASE_SUPERUSER, _MAINTENANCE_DATABASE)).close()
    except psycopg.OperationalError:
        with psycopg.connect(server.dsn(DATABASE_USER, _MAINTENANCE_DATABASE)) as connection:
            if connection.info.parameter_status("is_superuser") != "on":
                raise
            names = {
                "old": sql.Identifier(DATABASE_USER),
                "new": sql.Identifier(DATABASE_SUPERUSER),
                "renamer": sql.Identifier("batchledger_renamer"),
            }
            for statement in (
                sql.SQL("create role {renamer} superuser"),
                sql.SQL("set session authorization {renamer}"),
                sql.SQL("alter role {old} rename to {new}"),
                sql.SQL("set session authorization {new}"),
                sql.SQL("drop role {renamer}"),
            ):
                connection.execute(statement.format(**names))
            password = _hash_password(connection, server, DATABASE_SUPERUSER)
            connection.execute(sql.SQL("alter role {} password {}").format(names["new"], password))
            _create_role(connection, server, DATABASE_USER)
            for (member,) in connection.execute(_MEMBERS).fetchall():
                change = sql.SQL("revoke {new} from {member}; grant {old} to {member}")
                connection.execute(change.format(**names, member=sql.Identifier(member)))


def _create_role(connection: psycopg.Connection, server: DatabaseServer, role: str) -> None:
    password = _hash_password(connection, server, role)
    connection.execute(sql.SQL("create role {} login password {}").format(sql.Identifier(role), password))


def _hash_password(connection: psycopg.Connection, server: DatabaseServer, role: str) -> sql.Literal:
    """Return what the server stores of the password. The server would log a statement that fails, password and all."""
    password = server.password_by_role[role].encode()
    return sql.Literal(connection.pgconn.encrypt_password(password, role.encode(), b"scram-sha-256").decode())


def _give_away(server: DatabaseServer, database: str, owner: str) -> None:
    """Let what earlier versions have made in a database have the owner that it has today; all of it, or nothing."""
    roles = {"owner": owner, "user": _USER_BY_DATABASE[database], "earlier": DATABASE_USER}
    with psycopg.connect(server.dsn(DATABASE_SUPERUSER, database)) as connection:
        for (statement,) in connection.execute(_GIVE_AWAY, roles).fetchall():
            connection.execute(statement.encode())
        connection.execute(_GIVE_EXTENSION, roles)
        if connection.execute("select to_regclass('batchledger.pipeline_role') is not null").fetchone() == (True,):
            for (statement,) in connection.execute(_GIVE_MEMBERSHIPS, roles).fetchall():
                connection.execute(statement.encode())


def _let_create(server: DatabaseServer) -> None:
    """Let pipelines create targets, schemas and a catalog, and the ledger's owner drop what they have left."""
    names = {"database": WAREHOUSE_DATABASE, "owner": LEDGER_USER, "user": DATABASE_USER}
    with psycopg.connect(server.dsn(DATABASE_SUPERUSER, WAREHOUSE_DATABASE)) as connection:
        for statement in (
            "grant create on schema public to {user}",
            "grant create, temporary on database {database} to {user}",
            "grant {user} to {owner}",
        ):
            connection.execute(sql.SQL(statement).format(**{key: sql.Identifier(name) for key, name in names.items()}))
        if connection.execute(_HAS_PATH, [DATABASE_USER]).fetchone() is None:
            setting = sql.SQL("alter role {} in database {} set search_path = {}")
            role_and_database = map(sql.Identifier, (DATABASE_USER, WAREHOUSE_DATABASE))
            connection.execute(setting.format(*role_and_database, sql.SQL(_PATH)))
