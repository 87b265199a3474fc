"""Connections of type ``smtp``: e-mail by Airflow's SMTP provider, with one more key in ``extra``: ``to_email``."""

import html
import re
import smtplib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from email.message import EmailMessage
from email.utils import format_datetime, localtime, make_msgid
from typing import cast

from airflow.providers.smtp.hooks.smtp import SmtpHook
from typing_extensions import override

from batchledger.channels.smtp_clients import BoundedSmtp, BoundedSmtpOverTls
from batchledger.model.errors import ChannelError, ConfigurationError
from batchledger.model.incidents import Event, Message
from batchledger.ports import Channel

SECONDS = 8


class _PromptHook(SmtpHook):
    """Tries once, and is done within seconds: the next run tries a failed alert again."""

    # Once, or the first of two times, which is the only one: the hook repeats after an error that is another one here.
    smtp_retry_limit = 1
    timeout = SECONDS

    @override
    def _build_client(self) -> BoundedSmtp:
        kind = BoundedSmtpOverTls if self.use_ssl else BoundedSmtp
        try:
            return kind(**self._build_client_kwargs(is_async=False))
        except smtplib.SMTPServerDisconnected as error:
            # The hook would try again, or make an error of Airflow of it.
            raise ConnectionError(str(error)) from error

    @override
    def get_conn(self) -> SmtpHook:
        try:
            return super().get_conn()
        except BaseException:
            # Encryption or the login has failed: the block that closes the client was not entered.
            if self._smtp_client is not None:
                cast("smtplib.SMTP", self._smtp_client).close()
            raise

    def deliver(self, mail: EmailMessage) -> None:
        """Send a mail as it is: the provider's own have no text part. Needs an open connection."""
        cast("smtplib.SMTP", self._smtp_client).send_message(mail)


@dataclass(frozen=True)
class MailChannel(Channel):
    """Delivers one e-mail to the addresses in ``to_email`` (a list, or text with commas), from ``from_email``."""

    connection_id: str

    @override
    def send(self, message: Message) -> None:
        with _translate_errors(self.connection_id, " The message may be there."):
            hook = _PromptHook(self.connection_id)
            with hook:
                hook.deliver(write_mail(message, str(hook.from_email), _addressees(hook)))


def greet(connection_id: str) -> str:
    """Log in to the mail server, and send nothing. Return in words what it has taken. Raises ChannelError."""
    with _translate_errors(connection_id), _PromptHook(connection_id) as hook:
        return f"Mail server {hook.host}" + (", with the login" if hook.smtp_user else "")


@contextmanager
def _translate_errors(connection_id: str, if_late: str = "") -> Iterator[None]:
    try:
        yield
    except smtplib.SMTPResponseException as error:
        raise ChannelError(
            f"The mail server of {connection_id} answered {error.smtp_code}.", subject=connection_id
        ) from error
    except TimeoutError:
        raise ChannelError(
            f"The mail server of {connection_id} was not done after {SECONDS} s.{if_late}",
            subject=connection_id,
        ) from None
    except (smtplib.SMTPException, OSError) as error:
        raise ChannelError(
            f"The mail server of {connection_id} could not be used: {type(error).__name__}.", subject=connection_id
        ) from error


def write_mail(message: Message, sender: str, addressees: Sequence[str]) -> EmailMessage:
    """Return the message as a mail: its text, and the same as a page.

    A message that is sent twice has the same id, so a mailbox may show it once. The end of an incident answers its
    beginning, so both stand together.
    """
    mail = EmailMessage()
    mail["Subject"], mail["From"], mail["To"] = message.title, sender, ", ".join(addressees)
    mail["Date"] = format_datetime(localtime())
    host = sender.rpartition("@")[2].strip(" >") or "localhost"
    event = str(message.document.get("event"))
    if "incident_id" in message.document:
        mail["Message-ID"] = _name(message, event, host)
        if message.is_good:
            mail["In-Reply-To"] = mail["References"] = _name(message, str(Event.OPENED), host)
    else:
        mail["Message-ID"] = make_msgid(domain=host)
    mail.set_content(message.text)
    mail.add_alternative(render_page(message), subtype="html")
    return mail


def _name(message: Message, event: str, host: str) -> str:
    """Return the id of an event of an incident. Incidents of two ledgers may have one number, not one beginning."""
    pipeline, number, begun = (str(message.document[each]) for each in ("pipeline", "incident_id", "opened_at"))
    words = (pipeline, number, re.sub(r"\D", "", begun), event)
    return f"<batchledger.{'.'.join(words)}@{host}>"


def render_page(message: Message) -> str:
    """Return the message, as it was written, as a small page that a mail program shows in any width."""
    text = html.escape(message.text)
    colour = "#1a7f37" if message.is_good else "#b42318"
    return (
        f'<h3 style="color:{colour};font-family:sans-serif">{html.escape(message.title)}</h3>'
        f'<pre style="white-space:pre-wrap;font-size:14px">{text}</pre>'
    )


def _addressees(hook: SmtpHook) -> list[str]:
    named = hook.conn.extra_dejson.get("to_email") or []
    addresses = [each.strip() for each in (named.split(",") if isinstance(named, str) else named)]
    if not addresses or not hook.from_email:
        raise ConfigurationError(
            f"Connection {hook.smtp_conn_id} lacks from_email or to_email in its extra.",
            advice="Name who writes, and to whom.",
        )
    return addresses
