"""A PostgreSQL with TLS: what libpq, PyIceberg and Spark's JDBC catalog verify in every ``sslmode``.

The server has a certificate for 127.0.0.1, and takes unencrypted connections as well.
"""

import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pyspark
import pytest
from cryptography.hazmat.primitives import serialization
from psycopg import sql
from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway
from py4j.protocol import Py4JJavaError
from sqlalchemy.exc import OperationalError

from batchledger.database.sessions import connect
from batchledger.local.stack.defaults import DATABASE_USER, WAREHOUSE_DATABASE
from batchledger.local.stack.home import Credentials
from batchledger.local.stack.jars import fetch_jars
from batchledger.local.stack.machine import HOST, find_java
from batchledger.local.stack.postgres_server import HOST_RULES
from batchledger.settings.connections import Connection, postgres_dsn
from batchledger.sinks.iceberg.catalog import LakeCatalog, spark_settings
from batchledger.sinks.iceberg.connection import lake_catalog
from tests.conftest import SERVICES
from tests.second_server import SecondServer, serve_second_postgres
from tests.secured_kafka import Authority
from tests.support import wait_until

CERTIFIED = "certified"
"""A user who is let in by a certificate only."""
RULES = f"hostssl all {CERTIFIED} {HOST}/32 cert\n{HOST_RULES}"
OTHER_NAME = "localhost"


@dataclass(frozen=True)
class SecuredPostgres:
    """The server, its authority, and another one."""

    server: SecondServer
    authority: Authority
    stranger: Authority

    def connection(self, type_: str, host: str = HOST, login: str = DATABASE_USER, **extra: Any) -> Connection:
        """A connection to it; only the owner of the warehouse has a password."""
        password = Credentials.of(self.server.home).database_password if login == DATABASE_USER else None
        return Connection("lake", type_, host, self.server.ports.postgres, login, password, WAREHOUSE_DATABASE, extra)


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredPostgres]:
    authority, stranger = (Authority(tmp_path_factory.mktemp(name)) for name in ("ours", "theirs"))
    with serve_second_postgres("tls") as server:
        with psycopg.connect(server.superuser_dsn, autocommit=True) as connection:
            (data,) = connection.execute("show data_directory").fetchone() or ("",)
            certificate, key = authority.issue("server")
            files = {"ssl_cert_file": certificate, "ssl_key_file": key, "ssl_ca_file": authority.path}
            for setting, source in files.items():
                give_to_server(Path(data), setting, source.read_bytes())
                name = sql.Identifier(setting)
                connection.execute(sql.SQL("alter system set {} = {}").format(name, sql.Literal(setting)))
            connection.execute("alter system set ssl = on")
            (Path(data) / "pg_hba.conf").write_text(RULES)
            roles = map(sql.Identifier, (CERTIFIED, DATABASE_USER))
            connection.execute(sql.SQL("create role {} login in role {}").format(*roles))
            connection.execute("select pg_reload_conf()")
        wait_until(lambda: is_encrypted(server.dsn))
        yield SecuredPostgres(server, authority, stranger)


def give_to_server(folder: Path, name: str, content: bytes) -> None:
    """Write a file that the server, which runs as another user than root, can read alone."""
    path, owner = folder / name, folder.stat()
    path.touch(mode=0o600)
    path.write_bytes(content)
    os.chown(path, owner.st_uid, owner.st_gid)


def is_encrypted(dsn: str) -> bool:
    with psycopg.connect(dsn, sslmode="prefer") as connection:
        return bool(connection.pgconn.ssl_in_use)


@pytest.fixture(scope="module")
def java() -> Iterator[JavaGateway]:
    """A JVM with what the Spark server of the tests has on its class path."""
    jars = Path(pyspark.__file__).parent / "jars"
    classes = [*map(str, fetch_jars(SERVICES.home, "spark")), f"{jars}/*"]
    (py4j,) = jars.glob("py4j-*.jar")
    port, process = launch_gateway(
        jarpath=str(py4j),
        classpath=os.pathsep.join(classes),
        java_path=str(find_java()),
        die_on_exit=True,
        return_proc=True,
        redirect_stdout=subprocess.DEVNULL,
        redirect_stderr=subprocess.DEVNULL,
    )
    gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port))
    try:
        yield gateway
    finally:
        gateway.shutdown()
        process.stdin.close()
        process.wait(30)


def open_by_libpq(secured: SecuredPostgres, **fields: Any) -> bool:
    try:
        with connect(postgres_dsn(secured.connection("postgres", **fields))):
            return True
    except psycopg.OperationalError as error:
        return refuse_certificate(error)


def open_by_pyiceberg(secured: SecuredPostgres, **fields: Any) -> bool:
    catalog = LakeCatalog(*lake_catalog(secured.connection("iceberg", warehouse="file:///lake", **fields)))
    try:
        catalog.opened.list_namespaces()
    except OperationalError as error:
        return refuse_certificate(error)
    finally:
        catalog.rest()
    return True


def open_by_jdbc(java: JavaGateway, secured: SecuredPostgres, **fields: Any) -> bool:
    connection = secured.connection("iceberg", warehouse="file:///lake", **fields)
    told = spark_settings(LakeCatalog(*lake_catalog(connection)))
    prefix = "spark.sql.catalog.lake."
    properties = java.jvm.java.util.HashMap()
    for name, value in told.items():
        if name.startswith(prefix):
            properties[name.removeprefix(prefix)] = value
    # Spark gives it Hadoop's settings.
    catalog = java.jvm.org.apache.iceberg.jdbc.JdbcCatalog()
    catalog.setConf(java.jvm.org.apache.hadoop.conf.Configuration())
    try:
        with closing(catalog):
            catalog.initialize("lake", properties)
            catalog.listNamespaces()
    except Py4JJavaError as error:
        return refuse_certificate(error)
    return True


REFUSALS = (
    "SSL error",
    "does not match host name",
    "SSLHandshakeException",
    "could not be verified by hostnameverifier",
    "requires a valid client certificate",
    "Broken pipe",
    "Connection reset",
)
"""How libpq, the driver and the server say that they do not trust a certificate.

With TLS 1.3 a client has ended its handshake when the server refuses its certificate. Its next write may then break
before it reads why.
"""


def refuse_certificate(error: Exception) -> bool:
    """Return False; another error is none that a test expects."""
    if any(each in str(error) for each in REFUSALS):
        return False
    raise error


@pytest.fixture(params=["libpq", "PyIceberg", "JDBC"])
def can_open(request: pytest.FixtureRequest, secured: SecuredPostgres) -> Callable[..., bool]:
    """What says whether a connection with these fields is made."""
    match request.param:
        case "libpq":
            return lambda **fields: open_by_libpq(secured, **fields)
        case "PyIceberg":
            return lambda **fields: open_by_pyiceberg(secured, **fields)
    java = request.getfixturevalue("java")
    return lambda **fields: open_by_jdbc(java, secured, **fields)


YES, NO = True, False
CONNECTS = {
    # sslmode: with the right authority, another authority, another name than the certificate's
    "disable": (YES, YES, YES),
    "allow": (YES, YES, YES),
    "prefer": (YES, YES, YES),
    "require": (YES, NO, YES),
    "verify-ca": (YES, NO, YES),
    "verify-full": (YES, NO, NO),
}


@pytest.mark.parametrize("mode", CONNECTS)
def test_each_mode_refuses_exactly_the_server_that_it_does_not_trust(
    mode: str, can_open: Callable[..., bool], secured: SecuredPostgres
) -> None:
    right, wrong = str(secured.authority.path), str(secured.stranger.path)
    found = (
        can_open(sslmode=mode, sslrootcert=right),
        can_open(sslmode=mode, sslrootcert=wrong),
        can_open(sslmode=mode, sslrootcert=right, host=OTHER_NAME),
    )
    assert found == CONNECTS[mode]


def test_without_an_authority_encryption_is_all_that_is_asked_for(can_open: Callable[..., bool]) -> None:
    assert can_open(sslmode="require", host=OTHER_NAME)
    assert can_open()


def issue_for_client(authority: Authority) -> dict[str, str]:
    """Issue a client certificate, with a key in the form that libpq and Spark's driver can both read."""
    path, key = authority.issue(CERTIFIED)
    private = serialization.load_pem_private_key(key.read_bytes(), None)
    der = key.with_suffix(".pk8")
    der.touch(mode=0o600)
    form = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    der.write_bytes(private.private_bytes(serialization.Encoding.DER, *form))
    return {"sslcert": str(path), "sslkey": str(der)}


def test_client_is_let_in_by_its_certificate_alone(can_open: Callable[..., bool], secured: SecuredPostgres) -> None:
    verified = {"login": CERTIFIED, "sslmode": "verify-full", "sslrootcert": str(secured.authority.path)}
    assert can_open(**verified, **issue_for_client(secured.authority))
    assert not can_open(**verified, **issue_for_client(secured.stranger))
    assert not can_open(**verified)
