"""What a role or a database sets changes no session: neither the text of a value nor the meaning of a statement.

A way to open a session is a function of a connection string. Spark's JDBC driver is none of them: it sets encoding,
dates and time zone itself, and sends values apart from the statement.
"""

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pytest
from psycopg import sql

from batchledger.database.sessions import PINNED, connect, keep_connections, use_connection
from batchledger.ledger.migrate import migrate
from batchledger.ledger.presence import PostgresPresences
from batchledger.local.torture.changed_database import FOREIGN_SETTINGS
from batchledger.model.errors import BatchledgerError, ConfigurationError
from batchledger.model.presence import NO_PATIENCE
from batchledger.settings.connections import Connection
from batchledger.sinks.iceberg.connection import lake_catalog
from batchledger.sinks.iceberg.sql_catalog import PinnedSqlCatalog
from tests.conftest import as_superuser, lend_database
from tests.contract import life
from tests.contract.life import FIRST, ORDERS_0
from tests.contract.warehouses import PostgresWarehouse, create_role, read_key_secret, role_of
from tests.pooler import serve_strict_pooler

LEVELS = {
    "role": "alter role {role} set",
    "database": "alter database {database} set",
    "both": "alter role {role} in database {database} set",
}


@dataclass(frozen=True)
class Login:
    """A login that owns a database of its own, and how to set something for it."""

    dsn: str
    level: str

    def set(self, name: str, *values: str) -> None:
        """Set something for the sessions that begin later."""
        names = {"role": sql.Identifier(role_of(self.dsn)), "database": sql.Identifier(database_of(self.dsn))}
        alter = sql.SQL(LEVELS[self.level]).format(**names)  # type: ignore[arg-type]
        with psycopg.connect(as_superuser(self.dsn), autocommit=True) as connection:
            values_ = sql.SQL(", ").join(map(sql.Literal, values))
            connection.execute(sql.SQL("{} {} = {}").format(alter, sql.Identifier(name), values_))


def database_of(dsn: str) -> str:
    return str(psycopg.conninfo.conninfo_to_dict(dsn)["dbname"])


@contextmanager
def log_in(warehouse_dsn: str, level: str) -> Iterator[Login]:
    with create_role(warehouse_dsn) as role_dsn, lend_database(warehouse_dsn) as dsn:
        own = psycopg.conninfo.make_conninfo(role_dsn, dbname=database_of(dsn))
        with psycopg.connect(as_superuser(dsn), autocommit=True) as connection:
            names = map(sql.Identifier, (database_of(dsn), role_of(own)))
            connection.execute(sql.SQL("alter database {} owner to {}").format(*names))
            connection.execute(sql.SQL("grant all on schema public to {}").format(sql.Identifier(role_of(own))))
        yield Login(own, level)


@pytest.fixture(params=LEVELS)
def login(request: pytest.FixtureRequest, warehouse_dsn: str) -> Iterator[Login]:
    """A login without settings yet."""
    with log_in(warehouse_dsn, request.param) as found:
        yield found


def read_settings(connection: Any) -> dict[str, str]:
    with closing(connection.cursor()) as cursor:
        query = "select lower(name), current_setting(name) from pg_settings where lower(name) = any(%s)"
        cursor.execute(query, [[*FOREIGN_SETTINGS]])
        return dict(cursor.fetchall())


def by_connect(dsn: str, _: Path) -> dict[str, str]:
    with connect(dsn) as connection:
        return read_settings(connection)


def by_a_kept_connection(dsn: str, _: Path) -> dict[str, str]:
    with keep_connections():
        with use_connection(dsn) as connection:
            connection.execute("set datestyle = 'SQL'")
            connection.commit()
        with use_connection(dsn) as again:
            assert again is connection
            return read_settings(again)


def by_the_catalog_of_a_lake(dsn: str, folder: Path) -> dict[str, str]:
    with opened_catalog(dsn, folder) as catalog, catalog.engine.connect() as connection:
        return read_settings(connection.connection)


@contextmanager
def opened_catalog(dsn: str, folder: Path) -> Iterator[PinnedSqlCatalog]:
    parts = psycopg.conninfo.conninfo_to_dict(dsn)
    fields = {"host": parts["host"], "port": int(str(parts["port"])), "schema": parts["dbname"]}
    login = {"login": parts["user"], "password": parts["password"]}
    connection = Connection("lake", "iceberg", **fields, **login, extra={"warehouse": folder.as_uri()})  # type: ignore[arg-type]
    name, properties, _ = lake_catalog(connection)
    catalog = PinnedSqlCatalog(name, **properties)
    try:
        yield catalog
    finally:
        catalog.engine.dispose()


WAYS: list[Callable[[str, Path], dict[str, str]]] = [by_connect, by_a_kept_connection, by_the_catalog_of_a_lake]


def test_settings_of_role_and_database_reach_no_session(login: Login, tmp_path: Path) -> None:
    wanted = by_connect(login.dsn, tmp_path)
    assert wanted.keys() == FOREIGN_SETTINGS.keys() == PINNED.keys() | {"synchronous_commit"}
    for name, value in FOREIGN_SETTINGS.items():
        login.set(name, value)
    with psycopg.connect(login.dsn) as connection:
        # The negative control: each of them reaches a session that pins nothing.
        untouched = {name for name, value in read_settings(connection).items() if value == wanted[name]}
    assert untouched == set()
    for way in WAYS:
        assert (way.__name__, way(login.dsn, tmp_path)) == (way.__name__, wanted)


def test_life_of_a_batch_is_the_same_under_settings_of_role_and_database(login: Login) -> None:
    """From the migration on; a text that LATIN1 lacks is written by a task."""
    for name, value in FOREIGN_SETTINGS.items():
        login.set(name, value)
    migrate(login.dsn, read_key_secret())
    warehouse = PostgresWarehouse(login.dsn)
    rows = life.batch_of_rows(life.rows_of([FIRST]))
    place = rows.schema.get_field_index("message_id")
    texts = pa.array(["Łódź", "Zürich ☃", "back\\slash"], rows.schema.field(place).type)
    attempt = life.stage(warehouse, life.store(warehouse, FIRST), rows=rows.set_column(place, "message_id", texts))
    life.audit(warehouse, attempt)
    life.publish(warehouse, attempt)
    assert sorted(row["message_id"] for row in warehouse.read_target()) == sorted(texts.to_pylist())
    life.publish(warehouse, life.take_replay_to_audited(warehouse, FIRST))
    assert warehouse.prove().findings == ()
    assert life.next_offsets(warehouse) == {ORDERS_0: 3}


def test_function_of_a_schema_of_the_path_never_comes_before_postgresqls_own(login: Login) -> None:
    with psycopg.connect(login.dsn, autocommit=True) as connection:
        connection.execute('create schema "My own"')
        connection.execute("""create function "My own".version() returns text language sql return 'mine'""")
        connection.execute("""create function "My own".only_here() returns int language sql return 1""")
    login.set("search_path", "My own", "pg_catalog", "pg_temp")
    query = "select version() = 'mine', only_here(), current_schemas(true)::text[]"
    with psycopg.connect(login.dsn) as connection:
        assert connection.execute(query).fetchone() == (True, 1, ["My own", "pg_catalog"])
    with connect(login.dsn) as connection:
        assert connection.execute(query).fetchone() == (False, 1, ["pg_catalog", "My own"])


def test_sessions_without_triggers_are_refused_with_what_to_reset(login: Login) -> None:
    login.set("session_replication_role", "replica")
    with pytest.raises(ConfigurationError, match=r"(?s)no trigger fires.*reset session_replication_role"):
        connect(login.dsn)


def test_read_only_login_stays_one(login: Login) -> None:
    """People fence a database so. The error says what it is."""
    migrate(login.dsn, read_key_secret())
    login.set("default_transaction_read_only", "on")
    # Another address: connections are kept by it, and a session that is there already does not change.
    later = psycopg.conninfo.make_conninfo(login.dsn, application_name="later")
    with pytest.raises(BatchledgerError, match="read-only transaction"):
        life.store(PostgresWarehouse(later), FIRST)


def test_pooler_that_refuses_options_of_a_session_serves_every_part(warehouse_dsn: str, tmp_path: Path) -> None:
    with log_in(warehouse_dsn, "role") as found, serve_strict_pooler(found.dsn) as dsn:
        with pytest.raises(psycopg.OperationalError, match="unsupported startup parameter: options"):
            psycopg.connect(dsn, options="-c timezone=UTC")
        migrate(dsn, read_key_secret())
        warehouse = PostgresWarehouse(dsn)
        life.take_to_published(warehouse, FIRST)
        with PostgresPresences(dsn).hold(1, "run-1", NO_PATIENCE) as other:
            assert (other, warehouse.prove().findings) == (None, ())
        with opened_catalog(dsn, tmp_path) as catalog:
            assert catalog.list_namespaces() == []
