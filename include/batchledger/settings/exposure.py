"""Where a connection sends a login unencrypted. Opens nothing."""

import ipaddress
import re
from collections.abc import Iterator, Mapping
from urllib.parse import urlsplit

from psycopg.conninfo import conninfo_to_dict

from batchledger.settings.connections import Connection, http_request, kafka_options, postgres_dsn

_UNENCRYPTED_MODES = ("disable", "allow", "prefer")
"""libpq's default is ``prefer``: an attacker between both need only say that the server does not encrypt."""
SECRET_HEADER = re.compile(r"auth|key|token|secret|cookie|password", re.IGNORECASE)


def list_unencrypted(connection: Connection) -> Iterator[tuple[str, str]]:
    """Yield each host that gets a login unencrypted, and what to do."""
    match connection.type:
        case "postgres":
            given = {name: str(value) for name, value in conninfo_to_dict(postgres_dsn(connection)).items()}
            yield from list_in_database(given)
        case "kafka":
            yield from _list_in_kafka(kafka_options(connection))
        case "http":
            url, headers, _ = http_request(connection)
            yield from list_in_url(url, bool(connection.password) or any(map(SECRET_HEADER.search, headers)))
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


def list_in_database(given: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield the hosts of libpq's settings."""
    mode = given.get("sslmode", "prefer")
    if mode in _UNENCRYPTED_MODES and {"password", "passfile"} & given.keys():
        for host in given.get("host", "").split(","):
            yield host, f"Its sslmode is {mode}: set verify-full, and sslrootcert to the authority of the server."


def list_in_url(url: str, has_login: bool) -> Iterator[tuple[str, str]]:
    """Yield the host of a URL that a login is sent to, beside one in the URL itself."""
    parts = urlsplit(url)
    if parts.scheme == "http" and (has_login or parts.password):
        yield parts.hostname or "", "Give it an address of https."


def is_here(host: str) -> bool:
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
