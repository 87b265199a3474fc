"""Connections of type ``apprise``: Slack, Teams, PagerDuty, e-mail and whatever else Apprise delivers to.

The connection is the one of Airflow's Apprise provider: ``{"config": {"path": "slack://…", "tag": "alerts"}}``, or a
list of these. The provider's own ``notify`` does not say whether anything was delivered, so the library does it, in a
process that is bounded (``apprise_process``).
"""

import json
import logging
import os
import signal
import subprocess
import sys
from dataclasses import dataclass

from airflow.providers.apprise.hooks.apprise import AppriseHook
from apprise import Apprise, NotifyType
from typing_extensions import override

from batchledger.channels import apprise_process
from batchledger.model.checks import Severity
from batchledger.model.errors import ChannelError
from batchledger.model.incidents import Message
from batchledger.ports import Channel

SECONDS = 8
_MOST_SECONDS = 60
"""Until the process has ended: a slow machine needs a while to begin."""

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
            connection = hook.get_connection(self.connection_id)
            hook.set_config_from_conn(connection, services)
            config = hook.get_config_from_conn(connection)
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
        urls = [each["path"] for each in (config if isinstance(config, list) else [config])]
        order = {"urls": urls, "title": message.title, "text": message.text, "type": kind.value, "seconds": SECONDS}
        failure = _deliver(json.dumps(order).encode())
        if failure is not None:
            raise ChannelError(failure.format(names), subject=self.connection_id)


def _deliver(order: bytes) -> str | None:
    """Return why a process has not delivered everything; None if it has."""
    # It imports from wherever this process does.
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(each for each in sys.path if each)}
    command = [sys.executable, "-P", "-m", apprise_process.__name__]
    try:
        done = subprocess.run(
            command, input=order, capture_output=True, timeout=_MOST_SECONDS, check=False, env=environment
        )
    except subprocess.TimeoutExpired:
        return f"The process that delivers to {{}} was not done after {_MOST_SECONDS} s. The message may be there."
    match done.returncode:
        case 0:
            return None
        case code if code == -signal.SIGALRM:
            return f"{{}} did not answer within {SECONDS} s. The message may be there."
        case apprise_process.NOT_DELIVERED:
            return "Not everything was delivered to {}."
        case code:
            return f"The process that delivers to {{}} ended with code {code}. The message may be there."
