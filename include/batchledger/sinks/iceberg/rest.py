"""The catalog behind Iceberg's REST protocol: PyIceberg's, with bounded calls and its connection's certificates."""

import socket
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from functools import partial
from typing import Any

from pyiceberg.catalog.rest import RestCatalog
from requests import PreparedRequest, RequestException, Response, Session, Timeout
from requests.adapters import HTTPAdapter
from typing_extensions import override
from urllib3 import HTTPConnectionPool
from urllib3.connection import HTTPConnection, HTTPSConnection

from batchledger.bounds.socket_deadline import SocketDeadline
from batchledger.model.errors import ConfigurationError

CONNECT_PROPERTY = "rest.client.connection-timeout-ms"
READ_PROPERTY = "rest.client.socket-timeout-ms"
"""Iceberg's own names, which Spark knows, too."""
_CONNECT_MS, _READ_MS = "10000", "60000"
AUTHORITY_PROPERTY = "ssl.ca.location"
CERTIFICATE_PROPERTY, KEY_PROPERTY = "ssl.certificate.location", "ssl.key.location"
"""Batchledger's own, for PyIceberg alone: paths of PEM files."""
_JAVA_TLS = "rest.client.tls.configurer-impl"
"""Iceberg's name for a Java class that says which certificates its client uses."""


MOST_BYTES = 256 * 2**20
"""The most of an answer, unpacked: it may hold the metadata of a table, with all its snapshots."""

_DEADLINE = ContextVar[SocketDeadline]("deadline")
"""The one of the call that is under way."""


class BoundedRestCatalog(RestCatalog):
    """PyIceberg's own waits for ever for a server that takes a request and does not answer, or goes on answering.

    Here a call has 10 s to connect and 60 s more for its whole answer, which has a bound. Every request believes the
    authority and shows the certificate that the properties name, also the request for a token.
    """

    @override
    def _config_headers(self, session: Session) -> None:
        # PyIceberg calls this first with every session, before it asks for the token.
        super()._config_headers(session)
        _bound_adapters(session)
        timeout = self._seconds(CONNECT_PROPERTY, _CONNECT_MS), self._seconds(READ_PROPERTY, _READ_MS)
        # With each request: what a session has gives way to REQUESTS_CA_BUNDLE.
        ask = partial(
            session.request,
            timeout=timeout,
            verify=self.properties.get(AUTHORITY_PROPERTY),
            cert=self._client_certificate(),
        )
        session.request = partial(_ask_in_time, ask, sum(timeout))  # type: ignore[method-assign]

    @override
    def _init_sigv4(self, session: Session) -> None:
        super()._init_sigv4(session)
        # It has an adapter of its own.
        _bound_adapters(session)

    def _client_certificate(self) -> tuple[str, str] | None:
        found = (self.properties.get(CERTIFICATE_PROPERTY), self.properties.get(KEY_PROPERTY))
        return (found[0], found[1]) if found[0] and found[1] else None

    def _seconds(self, name: str, default: str) -> float:
        return int(self.properties.get(name, default)) / 1_000


def _ask_in_time(ask: Callable[..., Response], seconds: float, *of_request: Any, **settings: Any) -> Response:
    """Return the answer, read to its end. Raises Timeout after the seconds, wherever the call was."""
    deadline = SocketDeadline()
    late = Timeout(f"the catalog's answer was not whole after {seconds:g} s")
    token = _DEADLINE.set(deadline)
    deadline.start(seconds)
    try:
        answer = ask(*of_request, **settings)
    except RequestException:
        if not deadline.is_over:
            raise
        raise late from None
    finally:
        deadline.close()
        _DEADLINE.reset(token)
    if deadline.is_over:
        # A connection that is shut looks like the end of an answer.
        raise late
    return answer


class _BoundedConnection(HTTPConnection):
    """A connection that the deadline of each of its calls shuts."""

    @override
    def _new_conn(self) -> socket.socket:
        opened = super()._new_conn()
        _DEADLINE.get().watch(opened)
        return opened

    @override
    def request(self, *of_request: Any, **settings: Any) -> None:
        # It may have been opened for a call before.
        if self.sock is not None:
            _DEADLINE.get().watch(self.sock)
        super().request(*of_request, **settings)


class _BoundedTlsConnection(_BoundedConnection, HTTPSConnection):
    pass


_BOUNDED: Mapping[Any, Any] = {HTTPConnection: _BoundedConnection, HTTPSConnection: _BoundedTlsConnection}


def _bound_adapters(session: Session) -> None:
    for adapter in session.adapters.values():
        if isinstance(adapter, HTTPAdapter):
            adapter.get_connection_with_tls_context = partial(  # type: ignore[method-assign]
                _watch_pool, adapter.get_connection_with_tls_context
            )
            adapter.build_response = partial(_bound_answer, adapter.build_response)  # type: ignore[method-assign]


def _watch_pool(find: Callable[..., HTTPConnectionPool], *of_request: Any, **settings: Any) -> HTTPConnectionPool:
    pool = find(*of_request, **settings)
    # A proxy that speaks SOCKS has classes of its own, which stay: only each wait is bounded there.
    pool.ConnectionCls = _BOUNDED.get(pool.ConnectionCls, pool.ConnectionCls)
    return pool


def _bound_answer(build: Callable[..., Response], request: PreparedRequest, answer: Any) -> Response:
    response = build(request, answer)
    response.raw = _BoundedBody(answer)
    return response


class _BoundedBody:
    """The body of an answer. It goes around urllib3's: that one keeps its connection open while a cycle holds it."""

    def __init__(self, body: Any) -> None:
        self._body = body

    def __getattr__(self, name: str) -> Any:
        return getattr(self._body, name)

    def stream(self, *sizes: Any, **settings: Any) -> Iterator[bytes]:
        """Yield the parts, unpacked. Raises RequestException beyond the bound."""
        size = 0
        for part in self._body.stream(*sizes, **settings):
            size += len(part)
            if size > MOST_BYTES:
                raise RequestException(f"the catalog's answer has more than {MOST_BYTES / 2**20:.0f} MiB")
            yield part


def check_spark_tls(catalog: str, properties: Mapping[str, str], spark: Mapping[str, str]) -> dict[str, str]:
    """Return the properties without the files for TLS, which Iceberg's client in Java does not know.

    ``spark`` are the properties that differ there. Raises ConfigurationError if there are such files and Spark has no
    class of its own for them: it would believe other authorities, and show no certificate.
    """
    files = {name: properties[name] for name in (AUTHORITY_PROPERTY, CERTIFICATE_PROPERTY) if name in properties}
    if files and _JAVA_TLS not in spark:
        raise ConfigurationError(
            f"Spark cannot connect to catalog {catalog} as its connection says. Nothing was opened.",
            why=f"Iceberg's client in Java reads no {next(iter(files))}.",
            advice="For an authority alone, remove ssl.ca.location from the extra, name the file in the environment "
            "variable REQUESTS_CA_BUNDLE, and put the authority into the trust store of Spark's Java.\n"
            f'Or give Spark a Java class that implements TLSConfigurer: {{"spark": {{"{_JAVA_TLS}": "…"}}}}',
            subject=catalog,
        )
    return {name: value for name, value in properties.items() if name not in (*files, KEY_PROPERTY)}
