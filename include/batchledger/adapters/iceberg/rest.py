"""The catalog behind Iceberg's REST protocol: PyIceberg's, with bounded waits and its connection's certificates."""

from collections.abc import Mapping
from functools import partial

from pyiceberg.catalog.rest import RestCatalog
from requests import Session
from typing_extensions import override

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


class BoundedRestCatalog(RestCatalog):
    """PyIceberg's own waits for ever for a server that takes a request and does not answer.

    Here every wait for the server ends: after 10 s to connect, and 60 s without a byte of an answer. Every request
    believes the authority and shows the certificate that the properties name, also the request for a token.
    """

    @override
    def _config_headers(self, session: Session) -> None:
        # PyIceberg calls this first with every session, before it asks for the token.
        super()._config_headers(session)
        timeout = self._seconds(CONNECT_PROPERTY, _CONNECT_MS), self._seconds(READ_PROPERTY, _READ_MS)
        # With each request: what a session has gives way to REQUESTS_CA_BUNDLE.
        session.request = partial(  # type: ignore[method-assign]
            session.request,
            timeout=timeout,
            verify=self.properties.get(AUTHORITY_PROPERTY),
            cert=self._client_certificate(),
        )

    def _client_certificate(self) -> tuple[str, str] | None:
        found = (self.properties.get(CERTIFICATE_PROPERTY), self.properties.get(KEY_PROPERTY))
        return (found[0], found[1]) if found[0] and found[1] else None

    def _seconds(self, name: str, default: str) -> float:
        return int(self.properties.get(name, default)) / 1_000


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
