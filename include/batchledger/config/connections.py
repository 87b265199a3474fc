"""Airflow connections as frozen values: the same ones for Airflow's tasks and for the command line.

They are read through Airflow's own lookup (environment variables, secrets backends, inside a task the API server), so
that a secret has one home. ``repr`` shows no password.
"""

import difflib
import json
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from psycopg.conninfo import make_conninfo
from sqlalchemy import URL, make_url
from sqlalchemy.exc import ArgumentError

from batchledger.config.kafka_options import check_connection_options
from batchledger.model.errors import BatchledgerError, ConfigurationError, ConnectionMissingError

LOCAL_CONNECTIONS = frozenset({"kafka_default", "warehouse", "lake", "spark_default"})
"""Those that ``batchledger up`` defines, by the names that pipeline files have as their defaults."""

SPARK_TYPES = ("spark-connect", "spark")
ALERT_TYPES = ("apprise", "smtp", "http")
_KEEPALIVES = {
    "connect_timeout": 10,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 25_000,
}
"""How long libpq waits for a server that does not answer; the last one in milliseconds."""
_SECTION_BY_TYPE = {"iceberg": "Into an Iceberg table", **dict.fromkeys(ALERT_TYPES, "Alerts")}
_OTHER_SECTION = "Connections"
_PREFIX = "AIRFLOW_CONN_"


@dataclass(frozen=True, slots=True)
class Connection:
    """One Airflow connection."""

    connection_id: str
    type: str
    host: str | None = None
    port: int | None = None
    login: str | None = None
    password: str | None = field(default=None, repr=False)
    schema: str | None = None
    extra: Mapping[str, Any] = field(default_factory=dict, repr=False)


def load_connection(connection_id: str, types: Sequence[str] = (), asked_by: str = "") -> Connection:
    """Return a connection. Raises ConnectionMissingError when Airflow knows none of that id.

    ``types`` are those that would do, as Airflow writes them, and ``asked_by`` says where the id stands, such as
    ``/etc/pipelines/orders.yaml: sink.catalog``: both are for that message, and nothing is compared with them.
    """
    from airflow.sdk import BaseHook
    from airflow.sdk.exceptions import AirflowNotFoundException, AirflowRuntimeError

    try:
        found = BaseHook.get_connection(connection_id)
    except (AirflowNotFoundException, AirflowRuntimeError) as error:
        raise _missing(connection_id, types, asked_by) from error
    return Connection(
        connection_id=connection_id,
        type=_plain(found.conn_type or ""),
        host=found.host,
        port=found.port,
        login=found.login,
        password=found.password,
        schema=found.schema,
        extra=found.extra_dejson,
    )


def find_missing_service(error: BatchledgerError) -> str:
    """Return the connection that the error misses, if the local services would define it; else an empty text."""
    is_missing = isinstance(error, ConnectionMissingError) and error.subject in LOCAL_CONNECTIONS
    return error.subject or "" if is_missing else ""


def _missing(connection_id: str, types: Sequence[str], asked_by: str) -> ConnectionMissingError:
    place = f"{asked_by}: " if asked_by else ""
    wanted = {_plain(each) for each in types}
    fitting = sorted(name for name, type_ in _list_known().items() if not types or _plain(type_) in wanted)
    close = difflib.get_close_matches(connection_id, fitting, n=1)
    defined = f"; defined here: {', '.join(fitting)}." if fitting else "."
    instead = f"; did you mean {close[0]!r}?" if close else defined
    needed = f" of type {' or '.join(types)}" if types else ""
    section = _SECTION_BY_TYPE.get(types[0], _OTHER_SECTION) if types else _OTHER_SECTION
    local = ", or start the local services with: batchledger up" if connection_id in LOCAL_CONNECTIONS else ""
    return ConnectionMissingError(
        f"{place}Airflow knows no connection {connection_id!r}{instead} Define one{needed}, for example as the "
        f'environment variable {_PREFIX}{connection_id.upper()} (README, "{section}"){local}.',
        subject=connection_id,
    )


def _list_known() -> dict[str, str]:
    """Return the type by id of what variables of this process and Airflow's local file define; others list nothing."""
    from airflow.exceptions import AirflowException
    from airflow.sdk.configuration import conf
    from airflow.secrets.local_filesystem import load_connections_dict

    variables = {name: text for name, text in os.environ.items() if name.startswith(_PREFIX)}
    known = {name.removeprefix(_PREFIX).lower(): _read_type(text) for name, text in variables.items()}
    # What is wrong with others is not what is to be told here.
    with suppress(AirflowException, OSError, ValueError):
        settings = json.loads(conf.get("secrets", "backend_kwargs", fallback="") or "{}")
        if "connections_file_path" in settings:
            found = load_connections_dict(settings["connections_file_path"])
            known |= {name: each.conn_type or "" for name, each in found.items()}
    return known


def _read_type(text: str) -> str:
    """Return the type of a connection that is written as JSON or as a URI; empty where it is neither."""
    with suppress(ValueError):
        return str(json.loads(text).get("conn_type", "")) if text.startswith("{") else text.partition("://")[0]
    return ""


def _plain(type_: str) -> str:
    """As in a URI, where a scheme has no underscore, a type may be written spark-connect."""
    return type_.replace("-", "_")


def kafka_options(connection: Connection) -> dict[str, str]:
    """Return the checked librdkafka options of a Kafka connection. Raises ConfigurationError."""
    _require_type(connection, "kafka")
    return check_connection_options(connection.connection_id, connection.extra)


def postgres_dsn(connection: Connection) -> str:
    """Return the libpq connection string, with bounded waits for a server that does not answer."""
    _require_type(connection, "postgres")
    parameters = {
        "host": connection.host,
        "port": connection.port,
        "user": connection.login,
        "password": connection.password,
        "dbname": connection.schema,
        **_KEEPALIVES,
        **{key: value for key, value in connection.extra.items() if key.startswith("ssl")},
    }
    return make_conninfo(**{key: value for key, value in parameters.items() if value is not None})


def lake_catalog(connection: Connection, session: str) -> tuple[str, dict[str, str], dict[str, str]]:
    """Return the name of an Iceberg catalog, the properties by which PyIceberg opens it, and what differs in Spark.

    The extra holds PyIceberg's own properties: ``type`` (``sql`` in a PostgreSQL, ``rest``, ``hive``, ``glue``),
    ``warehouse``, those of object stores. Where the catalog is, and who logs in there, the connection's fields say. The
    catalog has the name of the connection, unless ``catalog`` in the extra says another one; ``spark`` there is an
    object with the properties of Spark's catalog that are not the same. ``session`` are libpq's ``options`` of the
    sessions of a catalog in a PostgreSQL.
    """
    _require_type(connection, "iceberg")
    spark = connection.extra.get("spark", {})
    if not isinstance(spark, dict):
        raise ConfigurationError(
            f"connection {connection.connection_id} has {spark!r} as spark in its extra; an object with properties of "
            "Spark's catalog is needed there.",
            subject=connection.connection_id,
        )
    properties = {name: str(value) for name, value in connection.extra.items() if not isinstance(value, dict)}
    name = properties.pop("catalog", connection.connection_id)
    match properties.setdefault("type", "sql"):
        case "sql":
            properties["uri"] = _database_address(connection, properties.get("uri"), session)
        case "rest":
            properties |= _rest_properties(connection, properties)
        case "hive":
            properties.setdefault("uri", f"thrift://{connection.host}:{connection.port or 9083}")
            if not (connection.host or "uri" in connection.extra):
                raise _wrong_catalog(connection, "no address of a Hive metastore: a host, or uri in its extra")
        case "glue":
            pass
        case other:
            raise ConfigurationError(
                f"connection {connection.connection_id} has a catalog of type {other!r}; allowed are sql, rest, hive "
                "and glue.",
                subject=connection.connection_id,
            )
    return name, properties, {name: str(value) for name, value in spark.items()}


def _database_address(connection: Connection, uri: str | None, session: str) -> str:
    """Return where a catalog in a database is, with the password; waits for a PostgreSQL end as those of the ledger do.

    Otherwise a process that is paused between its UPDATE and its COMMIT would hold every batch of its table.
    """
    fields = (connection.login, connection.password, connection.host, connection.port, connection.schema)
    try:
        address = make_url(uri) if uri else URL.create("postgresql+psycopg", *fields)
    except ArgumentError:
        # What it says may hold the password.
        raise _wrong_catalog(connection, "no address of a database as uri in its extra") from None
    if address.get_backend_name() == "postgresql":
        bounds = {name: str(value) for name, value in _KEEPALIVES.items()} | {"options": session}
        address = address.update_query_dict({**bounds, **address.query})
    return address.render_as_string(hide_password=False)


def _rest_properties(connection: Connection, properties: Mapping[str, str]) -> dict[str, str]:
    """Return where a REST catalog is and who logs in, unless the properties say it; the host may be a whole URL."""
    uri = properties.get("uri") or (http_request(connection)[0] if connection.host else "")
    if not uri.startswith(("http://", "https://")):
        raise _wrong_catalog(connection, "no address of a REST catalog: a host, or uri in its extra")
    if "@" in uri.split("/")[2]:
        raise _wrong_catalog(connection, "a login in the address of its catalog; give it as login and password")
    refused = sorted({"auth", "ssl"} & connection.extra.keys())
    if refused:
        raise _wrong_catalog(
            connection,
            f"{refused[0]} in its extra, which is not passed on. Log in by login and password or by token, with "
            "oauth2-server-uri where the catalog itself gives no tokens; the environment variable REQUESTS_CA_BUNDLE "
            "names certificates",
        )
    login = {"credential": f"{connection.login}:{connection.password or ''}"} if connection.login else {}
    return {**login, **properties, "uri": uri}


def _wrong_catalog(connection: Connection, what: str) -> ConfigurationError:
    return ConfigurationError(f"connection {connection.connection_id} has {what}.", subject=connection.connection_id)


def http_request(connection: Connection) -> tuple[str, dict[str, str], tuple[str, str] | None]:
    """Return URL, headers and basic authentication of an HTTP connection, as Airflow's HTTP provider reads one.

    The host may be a whole URL, which a webhook usually is; every key of the extra is a header.
    """
    host = connection.host or ""
    port = f":{connection.port}" if connection.port else ""
    url = host if "://" in host else f"{connection.schema or 'http'}://{host}{port}"
    login = (connection.login, connection.password or "") if connection.login else None
    return url, {str(name): str(value) for name, value in connection.extra.items()}, login


def _require_type(connection: Connection, expected: str) -> None:
    if connection.type != expected:
        raise ConfigurationError(
            f"connection {connection.connection_id} has type {connection.type!r}; a connection of type {expected!r} "
            "is needed here.",
            subject=connection.connection_id,
        )
