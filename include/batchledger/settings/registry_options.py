"""The connection of a schema registry: which address, logins and options it may have. Pure."""

import difflib
import math
from collections.abc import Iterator, Mapping
from urllib.parse import urlsplit

from batchledger.model.records.registry_settings import DEFAULT_TIMEOUT_SECONDS, RegistrySettings
from batchledger.settings.connections import Connection, require_type
from batchledger.settings.known_settings import refuse_extra
from batchledger.settings.tls_options import find_faults_of_certificates

REGISTRY_OPTIONS = (
    "ssl.ca.location",
    "ssl.ca.pem",
    "ssl.certificate.location",
    "ssl.key.location",
    "ssl.key.password",
    "timeout",
)
"""What the extra may have; Confluent's clients have the same names."""

LONGEST_TIMEOUT_SECONDS = 60.0


def registry_settings(connection: Connection) -> RegistrySettings:
    """Return how to reach a schema registry. Its host may be a whole URL, with a path. Raises ConfigurationError.

    ``login`` and ``password`` log in, a password alone is a bearer token, and the extra has certificates.
    """
    require_type(connection, "http")
    login, password, url = connection.login, connection.password, _url_of(connection)
    options = {option: str(value) for option, value in connection.extra.items()}
    fault = next(_find_faults(connection, url, options), None)
    if fault is not None:
        advice = f"Correct connection {connection.connection_id!r}. The documentation shows one: reference/connections"
        raise refuse_extra(connection.connection_id, fault, advice)
    return RegistrySettings(
        url=url,
        login=login or None,
        password=(password or "") if login else "",
        token=password if password and not login else None,
        authority_file=options.get("ssl.ca.location"),
        authority_text=options.get("ssl.ca.pem"),
        certificate_file=options.get("ssl.certificate.location"),
        key_file=options.get("ssl.key.location"),
        key_password=options.get("ssl.key.password"),
        timeout_seconds=_read_seconds(options) or DEFAULT_TIMEOUT_SECONDS,
    )


def _url_of(connection: Connection) -> str:
    """Return the URL, without a slash at its end; the port stands before the path."""
    host = connection.host or ""
    scheme, _, rest = (host if "://" in host else f"{connection.schema or 'http'}://{host}").partition("://")
    authority, slash, path = rest.partition("/")
    port = f":{connection.port}" if connection.port else ""
    return f"{scheme}://{authority}{port}{slash}{path}".rstrip("/")


def _find_faults(connection: Connection, url: str, options: Mapping[str, str]) -> Iterator[str]:
    """Yield what is wrong; a later fault means something only if there is no earlier one. None names a secret."""
    login, password = connection.login, connection.password
    yield from _find_faults_of_address(url, connection.schema)
    for option in options:
        if option not in REGISTRY_OPTIONS:
            nearest = difflib.get_close_matches(option, REGISTRY_OPTIONS, n=1)
            hint = f"did you mean {nearest[0]}?" if nearest else f"allowed are {', '.join(REGISTRY_OPTIONS)}"
            yield f"{option} is not an allowed option of a schema registry; {hint}"
    is_encrypted = url.startswith("https://")
    yield from find_faults_of_certificates(options, "" if is_encrypted else "an address of http")
    if login and ":" in login:
        yield "Its login has a colon, which HTTP does not allow there"
    if password and not login:
        if not is_encrypted:
            yield "Its password without a login is a token, which needs https, since it would let others in"
        if not (password.isascii() and password.isprintable() and " " not in password):
            yield "Its password without a login is a token, and has a character that HTTP does not allow there"
    if "timeout" in options and _read_seconds(options) is None:
        yield f"Its timeout is not a number of seconds up to {LONGEST_TIMEOUT_SECONDS:.0f}"


def _find_faults_of_address(url: str, scheme: str | None) -> Iterator[str]:
    try:
        parts = urlsplit(url)
        parts.port  # noqa: B018 -- raises if it is none
    except ValueError:
        yield "Its host and port are no address"
        return
    if parts.scheme not in ("http", "https") or not parts.hostname:
        yield "It has no address of a schema registry. Its host is one, such as https://registry.internal:8081"
    if "@" in parts.netloc:
        yield "Its address has a login; give it as login and password"
    if "?" in url or "#" in url or any(each.isspace() or not each.isprintable() for each in url):
        yield "Its address has more than scheme, host, port and path"
    if scheme and scheme != parts.scheme:
        yield f"Its schema is {scheme}, and its host says {parts.scheme}"


def _read_seconds(options: Mapping[str, str]) -> float | None:
    """Return the timeout, None if there is none or it is out of bounds."""
    try:
        seconds = float(options.get("timeout", "nan"))
    except ValueError:
        return None
    return seconds if math.isfinite(seconds) and 0 < seconds <= LONGEST_TIMEOUT_SECONDS else None
