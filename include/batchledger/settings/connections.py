"""Airflow connections as frozen values: the same ones for Airflow's tasks and for the command line.

They are found as Airflow finds them: secrets backends, environment variables, and Airflow's database. A task asks the
API server for the last one, and the command line opens it. So a secret has one home. ``repr`` shows no password.
"""

import difflib
import os
import re
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from psycopg.conninfo import make_conninfo

from batchledger.model.errors import BatchledgerError, ConfigurationError, ConnectionMissingError
from batchledger.model.stream_address import StreamAddress
from batchledger.model.tls_files import TlsFiles
from batchledger.settings.kafka_options import ALLOWED_ENDPOINTS, check_connection_options
from batchledger.settings.known_settings import (
    MAIL_SETTINGS,
    POSTGRES_SETTINGS,
    SPARK_SETTINGS_BY_TYPE,
    read_extra,
    read_headers,
    refuse_extra,
)
from batchledger.settings.lookup import PREFIX, describe_search, find_place, plain_type
from batchledger.settings.plain_lookup import find_plainly
from batchledger.settings.tls_options import TLS_OPTIONS, read_tls_files

LOCAL_REGISTRY = "registry_default"
KEYS = "batchledger_keys"
"""Has the secret of the deployment."""

LOCAL_CONNECTIONS = frozenset(
    {"kafka_default", "warehouse", "ledger_owner", "lake", "spark_default", KEYS, LOCAL_REGISTRY}
)
"""``batchledger up`` defines these connections. Their names are the defaults of a pipeline file."""

SPARK_TYPES = ("spark-connect", "spark")
ALERT_TYPES = ("apprise", "smtp", "http")
KEEPALIVES = {
    "connect_timeout": 10,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 25_000,
}
"""How long libpq waits for a server that does not answer, in seconds; the last one in milliseconds."""
_PAGE_BY_TYPE = {"iceberg": "guides/iceberg", ALERT_TYPES[0]: "guides/alerts"}
"""By the first type that fits: a registry has type http as well, which is the last one of alerts."""
_OTHER_PAGE = "reference/connections"
_FIELDS_BY_TYPE = {
    "kafka": '"extra": {"bootstrap.servers": "HOST:9092"}',
    "postgres": '"host": "HOST", "schema": "DATABASE", "login": "ROLE", "password": "PASSWORD"',
    "generic": '"password": "SECRET"',
    ALERT_TYPES[0]: '"extra": {"config": {"path": "URL"}}',
}
_OTHER_FIELDS = '"host": "HOST"'
_FEWEST_BYTES = 32
_PORTS = re.compile(r"(\d{1,5})(?:-(\d{1,5}))?", re.ASCII)
_LAST_PORT = 65_535
_SPARK_PORT = 15_002
AUTOMATIC = "auto"
_HOST = re.compile(r"[\w.:\[\]-]+")


@dataclass(frozen=True, slots=True)
class Connection:
    """One Airflow connection.

    Its ``extra`` has the settings with a value: a form of Airflow's stores one that is left empty as null, or as an
    empty text.
    """

    connection_id: str
    type: str
    host: str | None = None
    port: int | None = None
    login: str | None = None
    password: str | None = field(default=None, repr=False)
    schema: str | None = None
    extra: Mapping[str, Any] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        given = {name: value for name, value in self.extra.items() if value not in (None, "")}
        object.__setattr__(self, "extra", given)


def load_connection(connection_id: str, types: Sequence[str] = (), asked_by: str = "") -> Connection:
    """Return a connection. Raises ConnectionMissingError when Airflow knows none of that id.

    ``types`` are the types that fit, as Airflow writes them. ``asked_by`` says where the id stands, such as
    ``/etc/pipelines/orders.yaml: sink.catalog``. Both serve the message only: nothing is compared with them.
    """
    found = find_plainly(connection_id)
    if found is not None:
        return Connection(
            connection_id=connection_id,
            type=plain_type(found["conn_type"]),
            **{each: found.get(each) for each in ("host", "port", "login", "password", "schema")},
            extra=found["extra"],
        )
    from airflow.sdk import BaseHook
    from airflow.sdk.exceptions import AirflowNotFoundException, AirflowRuntimeError

    try:
        asked = BaseHook.get_connection(connection_id)
    except (AirflowNotFoundException, AirflowRuntimeError) as error:
        raise _missing(connection_id, types, asked_by) from error
    return Connection(
        connection_id=connection_id,
        type=plain_type(asked.conn_type or ""),
        host=asked.host,
        port=asked.port,
        login=asked.login,
        password=asked.password,
        schema=asked.schema,
        extra=asked.extra_dejson,
    )


def load_with_place(connection_id: str, types: Sequence[str] = (), asked_by: str = "") -> tuple[Connection, str]:
    """Return a connection as ``load_connection`` does, and in words where it was found."""
    plain = find_plainly(connection_id)
    connection = load_connection(connection_id, types, asked_by)
    return connection, plain["place"] if plain else find_place(connection_id)


def check_extra(connection: Connection) -> Connection:
    """Return a connection whose extra Airflow's own code reads: of Spark, or of mail. Raises ConfigurationError."""
    allowed = {**SPARK_SETTINGS_BY_TYPE, "smtp": MAIL_SETTINGS}.get(connection.type)
    if allowed is not None:
        read_extra(connection.connection_id, connection.extra, allowed)
    return connection


def find_missing_service(error: BatchledgerError) -> str:
    """Return the id of the missing connection if the local services would define it, else an empty text."""
    is_missing = isinstance(error, ConnectionMissingError) and error.subject in LOCAL_CONNECTIONS
    return error.subject or "" if is_missing else ""


def _missing(connection_id: str, types: Sequence[str], asked_by: str) -> ConnectionMissingError:
    search = describe_search(connection_id)
    place = f"{asked_by}: " if asked_by else ""
    if search.unreadable:
        return ConnectionMissingError(
            f"{place}{search.unreadable} has a connection {connection_id!r}, and this process cannot decrypt it.",
            why="The Fernet key of this process is not the one of Airflow.",
            advice="Give this process the settings of Airflow: its AIRFLOW_HOME, or AIRFLOW__CORE__FERNET_KEY.",
            subject=connection_id,
        )
    wanted = {plain_type(each) for each in types}
    fitting = sorted(name for name, type_ in search.known.items() if not types or plain_type(type_) in wanted)
    close = difflib.get_close_matches(connection_id, fitting, n=1)
    defined = f"\nDefined there: {', '.join(fitting)}." if fitting else ""
    needed = f" of type {' or '.join(types)}" if types else ""
    command = f"batchledger up{' --registry' if connection_id == LOCAL_REGISTRY else ''}"
    local = f"\nOr start the local services: {command}" if connection_id in LOCAL_CONNECTIONS else ""
    return ConnectionMissingError(
        f"{place}Airflow knows no connection {connection_id!r}.",
        why=f"Airflow looked in {'; '.join(search.places)}." + (f"\nDid you mean {close[0]!r}?" if close else defined),
        advice=f"Define one{needed}: {_command_for(connection_id, types)}\n"
        f"Or set the environment variable {PREFIX}{connection_id.upper()}. "
        f"The documentation shows one: {_page_of(*types)}{local}",
        subject=connection_id,
    )


def _command_for(connection_id: str, types: Sequence[str]) -> str:
    """Return the command of Airflow that makes such a connection; capitals are for the person to replace.

    By JSON: Airflow's option ``--conn-type`` makes a type that no installed provider has into ``generic``.
    """
    type_ = plain_type(types[0]) if types else "generic"
    fields = _FIELDS_BY_TYPE.get(type_, _OTHER_FIELDS)
    return f'airflow connections add {connection_id} --conn-json \'{{"conn_type": "{type_}", {fields}}}\''


def _page_of(*types: str) -> str:
    """Return the page of the documentation that shows a connection of these types."""
    return _PAGE_BY_TYPE.get(types[0], _OTHER_PAGE) if types else _OTHER_PAGE


def kafka_options(connection: Connection) -> dict[str, str]:
    """Return the checked librdkafka options of a Kafka connection. Raises ConfigurationError."""
    require_type(connection, "kafka")
    allowed = [each.strip() for each in os.environ.get(ALLOWED_ENDPOINTS, "").split(",")]
    return check_connection_options(connection.connection_id, connection.extra, allowed)


def postgres_dsn(connection: Connection) -> str:
    """Return the libpq connection string, with bounded waits for a server that does not answer.

    Raises ConfigurationError.
    """
    require_type(connection, "postgres")
    parameters = {
        "host": connection.host,
        "port": connection.port,
        "user": connection.login,
        "password": connection.password,
        "dbname": connection.schema,
        **KEEPALIVES,
        **read_extra(connection.connection_id, connection.extra, POSTGRES_SETTINGS),
    }
    return make_conninfo(**{key: value for key, value in parameters.items() if value is not None})


def spark_server(connection: Connection) -> tuple[str, TlsFiles]:
    """Return the URL of a Spark Connect server, which holds its token, and the files for TLS.

    The host may have the scheme ``sc`` and a port. Raises ConfigurationError.
    """
    extra = check_extra(connection).extra
    is_encrypted = str(extra.get("use_ssl")).lower() == "true"
    tls = read_tls_files(connection.connection_id, extra, "" if is_encrypted else "use_ssl false")
    given = {"user_id": connection.login, "token": connection.password, "use_ssl": "true" if is_encrypted else ""}
    # Spark takes a parameter apart at its signs, and would quote the token in its error.
    parameters = "".join(f";{name}={quote(value, safe='')}" for name, value in given.items() if value)
    host = _bare_host(connection)
    if _HOST.fullmatch(host) is None:
        raise ConfigurationError(
            f"Connection {connection.connection_id!r} has no address of a Spark Connect server. Nothing was opened.",
            advice="Write its name as host, such as sc://spark.internal, and its token as password.",
            subject=connection.connection_id,
        )
    return f"sc://{host}{f':{connection.port}' if connection.port else ''}/{parameters}", tls


def stream_address(connection: Connection) -> StreamAddress | None:
    """Return where Spark's tasks reach this process to send it rows; None if the connection does not say it.

    Without ``stream_host`` that is loopback, if the server is reached there: its workers are most likely here, too.
    ``auto`` is the address by which this machine reaches the server. Raises ConfigurationError.
    """
    if connection.type != "spark_connect":
        return None
    given = _PORTS.fullmatch(str(connection.extra.get("stream_ports", "0")))
    first, last = (int(given[1]), int(given[2] or given[1])) if given else (1, 0)
    if not first <= last <= _LAST_PORT or (first == 0 and last):
        raise refuse_extra(
            connection.connection_id, "Its stream_ports are no ports. Write them as in 40000-40100, or leave them out."
        )
    server = _bare_host(connection).partition(":")[0]
    host = str(connection.extra.get("stream_host", ""))
    if not host:
        return StreamAddress(ports=(first, last)) if server in ("localhost", "127.0.0.1") else None
    if host == AUTOMATIC:
        try:
            # Nothing is sent: the system only chooses a way.
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as way:
                way.connect((server, connection.port or _SPARK_PORT))
                host = way.getsockname()[0]
        except OSError:
            return None
    if ":" in host or host == "0.0.0.0":  # noqa: S104 -- It is refused.
        raise refuse_extra(
            connection.connection_id,
            f"Its stream_host is {host}. Write a name or an IPv4 address that Spark reaches, or {AUTOMATIC}.",
        )
    return StreamAddress(host, (first, last))


def _bare_host(connection: Connection) -> str:
    return (connection.host or "").removeprefix("sc://").rstrip("/")


def hashing_secret(connection: Connection) -> bytes:
    """Return the secret that columns and keys are hashed with: the password of a connection of any type, in UTF-8.

    Raises ConfigurationError if it has less than 32 bytes.
    """
    secret = (connection.password or "").encode()
    if len(secret) < _FEWEST_BYTES:
        raise ConfigurationError(
            f"Connection {connection.connection_id!r} has {'a short' if secret else 'no'} password. Nothing was read.",
            why=f"Hashes are made with it, and a secret of less than {_FEWEST_BYTES} bytes can be found by trying.",
            advice="Make a secret, and keep it as long as the hashes: openssl rand -hex 32",
            subject=connection.connection_id,
        )
    return secret


def http_request(connection: Connection) -> tuple[str, dict[str, str], tuple[str, str] | None]:
    """Return URL, headers and basic authentication of an HTTP connection, as Airflow's HTTP provider reads one.

    The host may be a whole URL, as it usually is for a webhook. Every key of the extra is a header, apart from files
    for TLS. Raises ConfigurationError.
    """
    host = connection.host or ""
    port = f":{connection.port}" if connection.port else ""
    url = host if "://" in host else f"{connection.schema or 'http'}://{host}{port}"
    login = (connection.login, connection.password or "") if connection.login else None
    headers = {name: value for name, value in connection.extra.items() if name not in TLS_OPTIONS}
    return url, read_headers(connection.connection_id, headers), login


def webhook_tls(connection: Connection) -> TlsFiles:
    """Return the files for TLS of a webhook. Raises ConfigurationError."""
    is_encrypted = http_request(connection)[0].startswith("https:")
    return read_tls_files(connection.connection_id, connection.extra, "" if is_encrypted else "an address of http")


def require_type(connection: Connection, *expected: str, asked_by: str = "") -> None:
    """Raise ConfigurationError for a connection of another type than these. ``asked_by`` says where its id stands."""
    place = f"{asked_by}: " if asked_by else ""
    if connection.type not in map(plain_type, expected):
        raise ConfigurationError(
            f"{place}Connection {connection.connection_id!r} has type {connection.type!r}. Nothing was opened.",
            why=f"A connection of type {' or '.join(map(repr, expected))} is needed here.",
            advice=f"Change its type, or name another connection. The documentation shows one: {_page_of(*expected)}",
            subject=connection.connection_id,
        )
