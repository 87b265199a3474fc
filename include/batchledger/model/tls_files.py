"""Which files a client of TLS uses. All three are paths of PEM files on the machine of the client."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """The authority whose servers are believed, and the certificate that the client shows, with its key.

    Without an authority the client believes those that it knows by itself.
    """

    authority: str | None = None
    certificate: str | None = None
    key: str | None = None
