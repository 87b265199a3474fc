"""Connections of type ``apprise``: Slack, Teams, PagerDuty, e-mail and whatever else Apprise delivers to.

The connection is the one of Airflow's Apprise provider: ``{"config": {"path": "slack://…", "tag": "alerts"}}``, or a
list of these. The provider's own ``notify`` does not say whether anything was delivered, so the library does it.
"""

import logging
from dataclasses import dataclass

from airflow.providers.apprise.hooks.apprise import AppriseHook
from apprise import Apprise, NotifyFormat, NotifyType
from typing_extensions import override

from batchledger.model.checks import Severity
from batchledger.model.errors import ChannelError
from batchledger.model.incidents import Message
from batchledger.ports import Channel

_TYPE_BY_SEVERITY = {
    Severity.CRITICAL: NotifyType.FAILURE,
    Severity.WARNING: NotifyType.WARNING,
    Severity.INFO: NotifyType.INFO,
}


@dataclass(frozen=True)
class AppriseChannel(Channel):
    """Delivers to every service of the connection. If one fails, the next run tries all of them again."""

    connection_id: str

    @override
    def send(self, message: Message) -> None:
        # Apprise logs URLs that it does not understand, with their secrets.
        logging.getLogger("apprise").setLevel(logging.CRITICAL)
        hook, services = AppriseHook(self.connection_id), Apprise()
        try:
            hook.set_config_from_conn(hook.get_connection(self.connection_id), services)
        except (KeyError, TypeError, ValueError) as error:
            raise ChannelError(
                f"Connection {self.connection_id} is not an Apprise connection.",
                advice='Give its extra config: an object, or a list of objects, with "path": the URL of a service.',
                subject=self.connection_id,
            ) from error
        names = ", ".join(dict.fromkeys(str(each.service_name) for each in services))
        if not names:
            raise ChannelError(
                f"Connection {self.connection_id} names no service whose URL Apprise understands.",
                subject=self.connection_id,
            )
        kind = NotifyType.SUCCESS if message.is_good else _TYPE_BY_SEVERITY[message.severity]
        if not services.notify(message.text, message.title, notify_type=kind, body_format=NotifyFormat.TEXT):
            raise ChannelError(f"Not everything was delivered to {names}.", subject=self.connection_id)
