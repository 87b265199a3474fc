"""The roles of the PostgreSQL server: a superuser for the stack alone, and an owner for each database.

No owner is a superuser, and none may connect to the other's database: ``host_rules`` refuse it. An earlier version had
one role for everything, the superuser ``batchledger``. ``create_databases`` renames that role to ``postgres``, makes a
new role ``batchledger``, and gives away each database with all it holds. The names change in one transaction, and each
database changes hands in one, so a crash at any moment leaves work that the next start does.

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
    WAREHOUSE_DATABASE,
)

OWNER_BY_DATABASE = {WAREHOUSE_DATABASE: DATABASE_USER, AIRFLOW_DATABASE: AIRFLOW_DATABASE_USER}
COMPOSE_VARIABLE_BY_ROLE = {
    DATABASE_USER: "POSTGRES_PASSWORD",
    AIRFLOW_DATABASE_USER: "AIRFLOW_DATABASE_PASSWORD",
    DATABASE_SUPERUSER: "POSTGRES_SUPERUSER_PASSWORD",
}
"""Where containers find the passwords. A server made by an earlier version knows the first one."""
_MAINTENANCE_DATABASE = "postgres"

# The first superuser has the number 10 whatever its name is, and what initdb makes has numbers below 16384. PostgreSQL
# refuses "reassign owned" for this role. Parts of an extension, row types and the sequence of a column have no owner of
# their own.
_GIVE_AWAY = """
select 'alter ' || kind || ' ' || (pg_identify_object(catalog, oid, 0)).identity
    || ' owner to ' || quote_ident(%(owner)s)
from (
    select 'schema' as kind, 'pg_namespace'::regclass as catalog, oid, nspowner as owner, false as is_sequence
    from pg_namespace where nspname !~ '^pg_'
    union all
    select 'table', 'pg_class', oid, relowner, relkind = 'S'
    from pg_class where relkind in ('r', 'p', 'v', 'm', 'f', 'S') and relpersistence <> 't'
    union all
    select 'routine', 'pg_proc', oid, proowner, false from pg_proc
    union all
    select 'type', 'pg_type', oid, typowner, false from pg_type
) as thing
where owner = 10 and oid >= 16384 and not exists (
    select from pg_depend d
    where d.classid = catalog and d.objid = oid and d.objsubid = 0
        and (d.deptype in ('e', 'i') or d.deptype = 'a' and is_sequence)
)
union all
select 'alter database ' || quote_ident(current_database()) || ' owner to ' || quote_ident(%(owner)s)
"""
_MEMBERS = "select rolname from pg_auth_members join pg_roles on pg_roles.oid = member where roleid = 10"


@dataclass(frozen=True)
class DatabaseServer:
    """Where the server listens, and the password of each of its three roles."""

    host: str
    port: int
    password_by_role: Mapping[str, str] = field(repr=False)

    def dsn(self, role: str, database: str) -> str:
        """Return a connection string for this process only: it holds the password."""
        return make_conninfo(
            host=self.host,
            port=self.port,
            user=role,
            password=self.password_by_role[role],
            dbname=database,
            connect_timeout=5,
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
        for role in OWNER_BY_DATABASE.values():
            if role not in roles:
                _create_role(connection, server, role)
        databases = connection.execute("select datname, datdba = 10 from pg_database").fetchall()
        is_superusers_by_database: dict[str, bool] = dict(databases)
        for database, owner in OWNER_BY_DATABASE.items():
            if database not in is_superusers_by_database:
                names = map(sql.Identifier, (database, owner))
                connection.execute(sql.SQL("create database {} owner {}").format(*names))
    for database, owner in OWNER_BY_DATABASE.items():
        if is_superusers_by_database.get(database):
            _give_away(server, database, owner)


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
    """Make a role the owner of a database of the superuser, and of all that the superuser owns in it, or of nothing."""
    with psycopg.connect(server.dsn(DATABASE_SUPERUSER, database)) as connection:
        for (statement,) in connection.execute(_GIVE_AWAY, {"owner": owner}).fetchall():
            connection.execute(statement.encode())
