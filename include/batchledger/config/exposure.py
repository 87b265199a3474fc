"""Which logins travel unencrypted to another machine. Such a connection works, and people hear of it."""

import ipaddress
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from urllib.parse import urlsplit

from psycopg.conninfo import conninfo_to_dict

from batchledger.config.connections import (
    Connection,
    http_request,
    kafka_options,
    lake_catalog,
    load_connection,
    postgres_dsn,
)
from batchledger.config.pipeline_file import PipelineConfig, find_pipeline_files, read_pipeline_file
from batchledger.config.sink_sections import IcebergSinkConfig, KafkaSinkConfig, PostgresSinkConfig
from batchledger.model.errors import BatchledgerError

_UNENCRYPTED_MODES = ("disable", "allow", "prefer")
"""libpq's default is ``prefer``: an attacker between both need only say that the server does not encrypt."""
_SECRET_HEADER = re.compile(r"auth|key|token|secret|cookie|password", re.IGNORECASE)


def warn_of_exposed() -> list[str]:
    """Return what to know of each connection of the folder's pipelines whose login travels unencrypted, once.

    A file or a connection that is refused adds none: the look at its pipeline says why.
    """
    used: dict[str, None] = {}
    for path in find_pipeline_files():
        with suppress(BatchledgerError):
            used |= dict.fromkeys(_list_connections(read_pipeline_file(path)))
    found = []
    for connection_id in used:
        # The use of an address that is none says so.
        with suppress(BatchledgerError, ValueError):
            found.append(find_exposure(load_connection(connection_id)))
    return [each for each in found if each]


def find_exposure(connection: Connection) -> str:
    """Return what to know and to do if a login travels unencrypted, else an empty text. Opens nothing.

    A host that is this machine, or a socket, exposes nothing. Raises ConfigurationError, or ValueError if an address is
    none.
    """
    for host, advice in _list_unencrypted(connection):
        if not _is_here(host):
            return f"Connection {connection.connection_id!r} sends a login to {host} unencrypted. {advice}"
    return ""


def _list_unencrypted(connection: Connection) -> Iterator[tuple[str, str]]:
    """Yield each host that gets a login unencrypted, and what to do."""
    match connection.type:
        case "postgres":
            given = {name: str(value) for name, value in conninfo_to_dict(postgres_dsn(connection)).items()}
            yield from _list_in_database(given)
        case "iceberg":
            yield from _list_in_catalog(lake_catalog(connection)[1])
        case "kafka":
            yield from _list_in_kafka(kafka_options(connection))
        case "http":
            url, headers, _ = http_request(connection)
            yield from _list_in_url(url, bool(connection.password) or any(map(_SECRET_HEADER.search, headers)))
        case "smtp":
            extra = connection.extra
            if connection.password and extra.get("disable_ssl") and extra.get("disable_tls"):
                yield connection.host or "", "Set disable_ssl or disable_tls to false."
        case "spark_connect":
            # The job carries the logins of Kafka and of the warehouse. With a token, Spark's client always encrypts.
            if not connection.password and str(connection.extra.get("use_ssl")).lower() != "true":
                address = (connection.host or "").rpartition("://")[2].partition("/")[0]
                yield _without_port(address), "Set use_ssl to true, or give it the token of the server as password."
        case _:
            # Apprise and spark-submit have settings of their own.
            pass


def _list_in_kafka(options: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    if options.get("security.protocol", "").upper() == "SASL_PLAINTEXT":
        advice = "Set security.protocol to SASL_SSL, and ssl.ca.location to the authority of the brokers."
        for server in options["bootstrap.servers"].split(","):
            yield _without_port(server.strip().rpartition("://")[2]), advice


def _list_in_database(given: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    mode = given.get("sslmode", "prefer")
    if mode in _UNENCRYPTED_MODES and {"password", "passfile"} & given.keys():
        for host in given.get("host", "").split(","):
            yield host, f"Its sslmode is {mode}: set verify-full, and sslrootcert to the authority of the server."


def _list_in_catalog(properties: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    if properties["type"] == "rest":
        headers = [name.removeprefix("header.") for name in properties if name.startswith("header.")]
        has_login = bool({"credential", "token"} & properties.keys()) or any(map(_SECRET_HEADER.search, headers))
        for url in (properties["uri"], properties.get("oauth2-server-uri", "")):
            yield from _list_in_url(url, has_login)
    if properties["type"] == "sql":
        from sqlalchemy import make_url

        address = make_url(properties["uri"])
        if address.get_backend_name() == "postgresql":
            login = {"password": address.password} if address.password else {}
            queried = {name: str(value) for name, value in address.query.items()}
            yield from _list_in_database({"host": address.host or "", **queried, **login})


def _list_in_url(url: str, has_login: bool) -> Iterator[tuple[str, str]]:
    parts = urlsplit(url)
    if parts.scheme == "http" and (has_login or parts.password):
        yield parts.hostname or "", "Give it an address of https."


def _is_here(host: str) -> bool:
    """Return whether a host is this machine, or the folder of a socket; libpq's default is a socket."""
    if host == "" or host.startswith(("/", "@")) or host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def _without_port(address: str) -> str:
    host, colon, port = address.rpartition(":")
    return host if colon and port.isdigit() else address


def _list_connections(pipeline: PipelineConfig) -> Iterator[str]:
    """Yield the ids of the connections that a pipeline uses."""
    yield from (pipeline.source.connection, pipeline.warehouse, pipeline.spark, *pipeline.alerts)
    if pipeline.source.registry is not None:
        yield pipeline.source.registry
    match pipeline.sink:
        case IcebergSinkConfig(catalog=catalog):
            yield catalog
        case KafkaSinkConfig(connection=connection, registry=registry):
            yield connection
            if registry is not None:
                yield registry
        case PostgresSinkConfig():
            # It is where the ledger is.
            pass
