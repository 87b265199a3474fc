"""Connections of type ``http``: a POST of the message as JSON. A URL may be a secret, so no error names it."""

import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field

import httpx
from typing_extensions import override

from batchledger.bounds.bounded_http import open_client
from batchledger.model.errors import ChannelError
from batchledger.model.incidents import Message
from batchledger.model.tls_files import TlsFiles
from batchledger.ports import Channel

SECONDS = 8.0


@dataclass(frozen=True)
class WebhookChannel(Channel):
    """Delivers by one request; every answer of the 2xx class counts as delivered, and its content is not read."""

    connection_id: str
    url: str = field(repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    login: tuple[str, str] | None = field(default=None, repr=False)
    tls: TlsFiles = field(default_factory=TlsFiles)

    @override
    def send(self, message: Message) -> None:
        try:
            with open_client(verify=self._trust(), headers=self.headers, auth=self.login) as client:
                answer = client.send("POST", self.url, seconds=SECONDS, most_bytes=0, json=dict(message.document))
        except TimeoutError:
            raise ChannelError(
                f"The endpoint of {self.connection_id} did not answer within {SECONDS:g} s. The message may be there.",
                subject=self.connection_id,
            ) from None
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise ChannelError(
                f"The endpoint of {self.connection_id} could not be used: {type(error).__name__}.",
                subject=self.connection_id,
            ) from error
        if not httpx.codes.is_success(answer.status):
            raise ChannelError(
                f"The endpoint of {self.connection_id} answered {answer.status}.", subject=self.connection_id
            )

    def _trust(self) -> ssl.SSLContext:
        """Return which servers are believed, and the certificate to show. Raises ChannelError if a file is none."""
        try:
            if self.tls.authority is None:
                context = httpx.create_ssl_context()
            else:
                context = ssl.create_default_context(cafile=self.tls.authority)
            if self.tls.certificate is not None:
                # Without any password OpenSSL would ask for one at the terminal.
                context.load_cert_chain(self.tls.certificate, self.tls.key, "")
        except OSError as error:
            raise ChannelError(
                f"The certificates for the endpoint of {self.connection_id} cannot be read: {type(error).__name__}.",
                advice="Correct ssl.ca.location, ssl.certificate.location and ssl.key.location in its extra.",
                subject=self.connection_id,
            ) from None
        return context
