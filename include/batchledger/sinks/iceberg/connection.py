"""The connection of an Iceberg catalog: which settings it may have, and what it is for PyIceberg and Spark."""

from collections.abc import Iterator, Mapping

from sqlalchemy import URL, make_url
from sqlalchemy.exc import ArgumentError

from batchledger.model.errors import ConfigurationError
from batchledger.settings.connections import KEEPALIVES, Connection, http_request, require_type
from batchledger.settings.exposure import SECRET_HEADER, list_in_database, list_in_url
from batchledger.settings.known_settings import POSTGRES_SETTINGS, read_extra
from batchledger.settings.tls_options import TLS_OPTIONS, read_tls_files

_LAKE_SETTINGS = (
    "type", "catalog", "spark", "uri", "warehouse", "prefix", "credential", "token", "scope", "audience", "resource",
    "oauth2-server-uri", "snapshot-loading-mode", "scan-planning-mode", "view-endpoints-supported", "rest-page-size",
    "namespace-separator", "echo", "pool_pre_ping", "init_catalog_tables", "schema_version", "ugi",
    "lock-check-min-wait-time", "lock-check-max-wait-time", "lock-check-retries", "py-io-impl", "io-impl",
    "downcast-ns-timestamp-to-us-on-write",
)  # fmt: skip
"""PyIceberg's names, and what ``lake_catalog`` reads."""
_LAKE_PREFIXES = ("s3.", "gcs.", "adls.", "hdfs.", "hf.", "client.", "rest.", "header.", "glue.", "hive.")
"""Object stores and services have many settings, some for PyIceberg and some for Spark."""

_NOT_PASSED_ON = ("auth", "ssl")
_GIVE_ADDRESS = "Set its host, or uri in its extra."


def lake_catalog(connection: Connection) -> tuple[str, dict[str, str], dict[str, str]]:
    """Return the name of an Iceberg catalog, the properties by which PyIceberg opens it, and what differs in Spark.

    The extra holds PyIceberg's own properties: ``type`` (``sql`` in a PostgreSQL, ``rest``, ``hive``, ``glue``),
    ``warehouse``, and the properties of object stores. The connection's fields say where the catalog is, and who logs
    in there. The catalog has the name of the connection, unless ``catalog`` in the extra says another one. ``spark``
    there is an object with the properties that differ in Spark's catalog. libpq's own settings, such as ``sslmode``,
    become a part of the address of a catalog in a PostgreSQL. Raises ConfigurationError.
    """
    require_type(connection, "iceberg")
    spark = connection.extra.get("spark", {})
    if not isinstance(spark, dict):
        raise ConfigurationError(
            f"Connection {connection.connection_id!r} has {spark!r} as spark in its extra. Nothing was opened.",
            advice="Write an object there, with the properties of Spark's catalog.",
            subject=connection.connection_id,
        )
    kind = str(connection.extra.get("type") or "sql")
    more = {"sql": POSTGRES_SETTINGS, "rest": (*TLS_OPTIONS, *_NOT_PASSED_ON)}.get(kind, ())
    extra = read_extra(connection.connection_id, connection.extra, (*_LAKE_SETTINGS, *more), _LAKE_PREFIXES)
    properties = {"type": kind, **{name: str(value) for name, value in extra.items() if not isinstance(value, dict)}}
    name = properties.pop("catalog", connection.connection_id)
    match kind:
        case "sql":
            login = {each: properties.pop(each) for each in POSTGRES_SETTINGS if each in properties}
            properties["uri"] = _database_address(connection, properties.get("uri"), login)
        case "rest":
            properties |= _rest_properties(connection, properties)
        case "hive":
            properties.setdefault("uri", f"thrift://{connection.host}:{connection.port or 9083}")
            if not (connection.host or "uri" in connection.extra):
                raise _wrong_catalog(connection, "no address of a Hive metastore", _GIVE_ADDRESS)
        case "glue":
            pass
        case other:
            raise ConfigurationError(
                f"Connection {connection.connection_id!r} has a catalog of type {other!r}. Nothing was opened.",
                advice="Write sql, rest, hive or glue as type in its extra.",
                subject=connection.connection_id,
            )
    return name, properties, {name: str(value) for name, value in spark.items()}


def _database_address(connection: Connection, uri: str | None, settings: Mapping[str, str]) -> str:
    """Return where a catalog in a database is, with the password and the ``settings`` of its PostgreSQL.

    Waits for a server that does not answer are bounded as for the ledger.
    """
    fields = (connection.login, connection.password, connection.host, connection.port, connection.schema)
    try:
        address = make_url(uri) if uri else URL.create("postgresql+psycopg", *fields)
    except ArgumentError:
        # Its words may hold the password.
        raise _wrong_catalog(
            connection, "no address of a database as uri in its extra", "Write postgresql+psycopg://host/database."
        ) from None
    is_postgres = address.get_backend_name() == "postgresql"
    for name in settings:
        if not is_postgres:
            raise _wrong_catalog(connection, f"{name} in its extra, and no PostgreSQL as uri", f"Remove {name}.")
        if name in address.query:
            raise _wrong_catalog(connection, f"{name} in its extra and in its uri", "Write it once.")
    if is_postgres:
        bounds = {name: str(value) for name, value in KEEPALIVES.items()}
        address = address.update_query_dict({**bounds, **settings, **address.query})
    return address.render_as_string(hide_password=False)


def _rest_properties(connection: Connection, properties: Mapping[str, str]) -> dict[str, str]:
    """Return where a REST catalog is and who logs in, unless the properties say so. The host may be a whole URL."""
    uri = properties.get("uri") or (http_request(connection)[0] if connection.host else "")
    if not uri.startswith(("http://", "https://")):
        raise _wrong_catalog(connection, "no address of a REST catalog", _GIVE_ADDRESS)
    if "@" in uri.split("/")[2]:
        raise _wrong_catalog(connection, "a login in the address of its catalog", "Give it as login and password.")
    refused = sorted({*_NOT_PASSED_ON} & connection.extra.keys())
    if refused:
        raise _wrong_catalog(
            connection,
            f"{refused[0]} in its extra, which Batchledger does not pass on",
            "Log in by login and password, or by token. If the catalog itself gives no tokens, set oauth2-server-uri.\n"
            f"Name certificates as {', '.join(TLS_OPTIONS)}.",
        )
    read_tls_files(connection.connection_id, connection.extra, "" if uri.startswith("https:") else "an address of http")
    login = {"credential": f"{connection.login}:{connection.password or ''}"} if connection.login else {}
    return {**login, **properties, "uri": uri}


def _wrong_catalog(connection: Connection, what: str, advice: str) -> ConfigurationError:
    name = connection.connection_id
    return ConfigurationError(f"Connection {name!r} has {what}. Nothing was opened.", advice=advice, subject=name)


def list_unencrypted(connection: Connection) -> Iterator[tuple[str, str]]:
    """Yield each host that gets the login of a catalog unencrypted, and what to do. Raises ConfigurationError."""
    properties = lake_catalog(connection)[1]
    if properties["type"] == "rest":
        headers = [name.removeprefix("header.") for name in properties if name.startswith("header.")]
        has_login = bool({"credential", "token"} & properties.keys()) or any(map(SECRET_HEADER.search, headers))
        for url in (properties["uri"], properties.get("oauth2-server-uri", "")):
            yield from list_in_url(url, has_login)
    if properties["type"] == "sql":
        address = make_url(properties["uri"])
        if address.get_backend_name() == "postgresql":
            login = {"password": address.password} if address.password else {}
            queried = {name: str(value) for name, value in address.query.items()}
            yield from list_in_database({"host": address.host or "", **queried, **login})
