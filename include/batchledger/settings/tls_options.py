"""Certificates in the extra of a connection, under the names that Kafka's clients have. Pure."""

from collections.abc import Iterator, Mapping

from batchledger.model.tls_files import TlsFiles
from batchledger.settings.known_settings import refuse_extra

TLS_OPTIONS = ("ssl.ca.location", "ssl.certificate.location", "ssl.key.location")


def read_tls_files(connection: str, extra: Mapping[str, object], unencrypted: str) -> TlsFiles:
    """Return the files that an extra names. Raises ConfigurationError.

    ``unencrypted`` says with what the connection does not encrypt, such as "an address of http"; empty if it does.
    """
    options = {name: str(extra[name]) for name in TLS_OPTIONS if name in extra}
    fault = next(find_faults_of_certificates(options, unencrypted), None)
    if fault is not None:
        raise refuse_extra(connection, fault)
    return TlsFiles(*(options.get(name) for name in TLS_OPTIONS))


def find_faults_of_certificates(options: Mapping[str, str], unencrypted: str) -> Iterator[str]:
    """Yield what is wrong with the options of TLS, a sentence without its full stop each."""
    unused = [option for option in options if option.startswith("ssl.")]
    if unused and unencrypted:
        yield f"{unused[0]} has no effect with {unencrypted}, which does not encrypt"
    if "ssl.ca.location" in options and "ssl.ca.pem" in options:
        yield "ssl.ca.location and ssl.ca.pem say the same thing twice"
    if ("ssl.certificate.location" in options) != ("ssl.key.location" in options):
        yield "A client certificate needs ssl.certificate.location and ssl.key.location"
    if "ssl.key.password" in options and "ssl.key.location" not in options:
        yield "ssl.key.password has no effect without ssl.key.location"
