"""Connections of type ``http``: a POST of the message as JSON. A URL may be a secret, so no error names it."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field

import httpx
from typing_extensions import override

from batchledger.model.errors import ChannelError
from batchledger.model.incidents import Message
from batchledger.ports import Channel

SECONDS = 8.0


@dataclass(frozen=True)
class WebhookChannel(Channel):
    """Delivers by one request; every answer of the 2xx class counts as delivered. Follows no redirection."""

    connection_id: str
    url: str = field(repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    login: tuple[str, str] | None = field(default=None, repr=False)

    @override
    def send(self, message: Message) -> None:
        # httpx logs the whole URL of every request.
        logging.getLogger("httpx").setLevel(logging.WARNING)
        try:
            answer = httpx.post(
                self.url, json=dict(message.document), headers=self.headers, auth=self.login, timeout=SECONDS
            )
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise ChannelError(
                f"The endpoint of {self.connection_id} could not be used: {type(error).__name__}.",
                subject=self.connection_id,
            ) from error
        if not answer.is_success:
            raise ChannelError(
                f"The endpoint of {self.connection_id} answered {answer.status_code}.", subject=self.connection_id
            )
