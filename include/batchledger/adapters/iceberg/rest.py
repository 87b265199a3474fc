"""The catalog behind Iceberg's REST protocol: PyIceberg's, with bounded waits."""

from functools import partial

from pyiceberg.catalog.rest import RestCatalog
from requests import Session
from typing_extensions import override

CONNECT_PROPERTY = "rest.client.connection-timeout-ms"
READ_PROPERTY = "rest.client.socket-timeout-ms"
"""Iceberg's own names, which Spark knows, too."""
_CONNECT_MS, _READ_MS = "10000", "60000"


class BoundedRestCatalog(RestCatalog):
    """PyIceberg's own waits for ever for a server that takes a request and does not answer.

    Here every wait for the server ends: after 10 s to connect, and 60 s without a byte of an answer.
    """

    @override
    def _config_headers(self, session: Session) -> None:
        # PyIceberg calls this first with every session, before it asks for the token.
        super()._config_headers(session)
        timeout = self._seconds(CONNECT_PROPERTY, _CONNECT_MS), self._seconds(READ_PROPERTY, _READ_MS)
        session.request = partial(session.request, timeout=timeout)  # type: ignore[method-assign]

    def _seconds(self, name: str, default: str) -> float:
        return int(self.properties.get(name, default)) / 1_000
