"""The role that pipelines of tests log in as: it has what ``batchledger grant`` gives, and does not own the ledger."""

import json

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from batchledger.ledger.grants import list_grants
from batchledger.local.stack.defaults import DATABASE_SUPERUSER, WAREHOUSE_CONNECTION
from batchledger.local.stack.home import Credentials, Home, write_private

RUNNER = "runner"


def create_runner(dsn: str, credentials: Credentials) -> None:
    """Make the role, unless it is there.

    Targets that it creates are its own; on those that the owner of the database creates it has a sink's rights.
    """
    role, owner = sql.Identifier(RUNNER), sql.Identifier(str(conninfo_to_dict(dsn)["user"]))
    superuser = make_conninfo(dsn, user=DATABASE_SUPERUSER, password=credentials.database_superuser_password)
    with psycopg.connect(superuser, autocommit=True) as connection:
        if connection.execute("select 1 from pg_roles where rolname = %s", [RUNNER]).fetchone():
            return
        connection.execute(sql.SQL("create role {} login password {}").format(role, sql.Literal(RUNNER)))
        connection.execute(sql.SQL("grant usage, create on schema public to {}").format(role))
        later = (
            "alter default privileges for role {} in schema public grant select, insert, update, delete on tables to {}"
        )
        connection.execute(sql.SQL(later).format(owner, role))
        # The owner of the database cleans up after all.
        connection.execute(sql.SQL("grant {} to {}").format(role, owner))


def let_run(dsn: str, pipeline: str) -> None:
    with psycopg.connect(dsn) as connection:
        if not connection.execute("select 1 from pg_roles where rolname = %s", [RUNNER]).fetchone():
            return
        (named, *rights) = list_grants(pipeline, RUNNER, connection.info.dbname, None)
        connection.execute(named)
        usable = "select has_schema_privilege(%s, 'batchledger', 'usage')"
        if connection.execute(usable, [RUNNER]).fetchone() == (False,):
            for each in rights:
                connection.execute(each)


def log_in_as_runner(home: Home) -> None:
    """Let the connection of the warehouse, which the stack has just written, log in as the role."""
    connections = json.loads(home.connections_file.read_text())
    known = connections[WAREHOUSE_CONNECTION]
    connections[WAREHOUSE_CONNECTION] = known | {"login": RUNNER, "password": RUNNER, "extra": {}}
    write_private(home.connections_file, json.dumps(connections))
