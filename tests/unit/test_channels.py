"""Every kind of channel delivers to a real endpoint, and says in a sentence without secrets when it does not."""

import logging
import socket
import threading
from base64 import b64encode
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from time import monotonic
from typing import Any

import pytest

from batchledger.channels.smtp_clients import BoundedSmtp, BoundedSmtpOverTls
from batchledger.model.checks import Severity
from batchledger.model.errors import ChannelError, ConfigurationError
from batchledger.model.findings import IncidentKind
from batchledger.model.incidents import Condition, Event, Incident, Message
from batchledger.monitoring.alerting import try_channel
from batchledger.monitoring.messages import Links, compose, compose_trial
from batchledger.ports import Channel
from batchledger.wiring import open_channel
from tests.endpoints import (
    HOST,
    Mailbox,
    Webhook,
    connect_apprise,
    connect_mail,
    connect_webhook,
    free_port,
    serve_bytes,
    serve_mail,
    serve_webhook,
)
from tests.support import wait_until

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
PASSWORD = "s3cret"  # noqa: S105 -- what no alert may name
MESSAGE = Message(
    "[batchledger] orders: blocked — no_unexplained_holes",
    "batch 17 of orders <stays> invisible\norders[3]@1200",
    Severity.CRITICAL,
    document={"title": "[batchledger] orders: blocked — no_unexplained_holes", "batch_id": 17},
)


@pytest.fixture
def webhook() -> Iterator[Webhook]:
    with serve_webhook() as endpoint:
        yield endpoint


@pytest.fixture
def mailbox() -> Iterator[Mailbox]:
    with serve_mail() as endpoint:
        yield endpoint


def test_webhook_receives_the_document_with_headers_and_login_of_the_connection(
    webhook: Webhook, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect_webhook(monkeypatch, "ops", webhook.url, login="ana", password=PASSWORD, extra={"X-Team": "data"})
    open_channel("ops").send(MESSAGE)
    assert webhook.received == [MESSAGE.document]
    assert webhook.headers[0]["X-Team"] == "data"
    assert webhook.headers[0]["Authorization"] == f"Basic {b64encode(f'ana:{PASSWORD}'.encode()).decode()}"


@pytest.mark.parametrize("status", [500, 404, 302])
def test_webhook_counts_every_other_answer_as_not_delivered(
    webhook: Webhook, monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    webhook.status = status
    connect_webhook(monkeypatch, "ops", webhook.url)
    with pytest.raises(ChannelError, match=f"The endpoint of ops answered {status}"):
        open_channel("ops").send(MESSAGE)


def test_webhook_that_is_down_or_misspelt_is_told_without_its_url(monkeypatch: pytest.MonkeyPatch) -> None:
    for url in (f"http://{HOST}:{free_port()}/hooks/s3cret", "http://[s3cret/"):
        connect_webhook(monkeypatch, "ops", url)
        with pytest.raises(ChannelError, match="The endpoint of ops could not be used") as refused:
            open_channel("ops").send(MESSAGE)
        assert "s3cret" not in str(refused.value)


def test_mail_arrives_at_every_address_with_title_and_text(mailbox: Mailbox, monkeypatch: pytest.MonkeyPatch) -> None:
    connect_mail(monkeypatch, "mail", mailbox.port)
    open_channel("mail").send(MESSAGE)
    (received,) = mailbox.received
    assert received["Subject"] == MESSAGE.title
    assert (received["From"], received["To"]) == ("batchledger@example.com", "ops@example.com, oncall@example.com")
    (page,) = mailbox.pages
    assert "batch 17 of orders &lt;stays&gt; invisible" in page
    assert "orders[3]@1200" in page


def test_mail_has_a_text_part_and_the_end_of_an_incident_answers_its_beginning(
    mailbox: Mailbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect_mail(monkeypatch, "mail", mailbox.port)
    begun = Incident(5, Condition.of(IncidentKind.FRESHNESS, "orders", lines=("2 records wait",)), NOON, NOON)
    over = replace(begun, ended_at=NOON + timedelta(minutes=4))
    for incident, event in ((begun, Event.OPENED), (begun, Event.OPENED), (over, Event.ENDED)):
        open_channel("mail").send(compose(incident, event, Links()))
    open_channel("mail").send(compose_trial("mail"))
    first, again, end, trial = mailbox.received
    assert first.get_content_type() == "multipart/alternative"
    text = first.get_body(("plain",))
    assert text is not None
    assert "2 records wait" in text.get_content().splitlines()
    assert first["Message-ID"] == "<batchledger.orders.5.202611211200000000.opened@example.com>"
    assert again["Message-ID"] == first["Message-ID"] != end["Message-ID"]
    assert (end["In-Reply-To"], end["References"]) == (first["Message-ID"], first["Message-ID"])
    assert first["In-Reply-To"] is None
    assert trial["Message-ID"].endswith("@example.com>")
    assert first["Date"].datetime.tzinfo is not None


def test_mail_that_is_refused_or_cannot_be_sent_is_told_by_its_code(
    mailbox: Mailbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    mailbox.refusal = "554 the words of the server"
    connect_mail(monkeypatch, "mail", mailbox.port)
    with pytest.raises(ChannelError, match=r"server of mail answered 554\.$"):
        open_channel("mail").send(MESSAGE)
    connect_mail(monkeypatch, "mail", free_port())
    with pytest.raises(ChannelError, match=r"used: ConnectionRefusedError\.$"):
        open_channel("mail").send(MESSAGE)


def test_mail_needs_to_know_who_writes_and_to_whom(mailbox: Mailbox, monkeypatch: pytest.MonkeyPatch) -> None:
    connect_mail(monkeypatch, "mail", mailbox.port, to_email="")
    with pytest.raises(ConfigurationError, match="lacks from_email or to_email"):
        open_channel("mail").send(MESSAGE)


def test_apprise_delivers_to_its_services(webhook: Webhook, monkeypatch: pytest.MonkeyPatch) -> None:
    connect_apprise(monkeypatch, "slack", f"json://{HOST}:{webhook.port}/hook")
    open_channel("slack").send(MESSAGE)
    assert [(each["title"], each["type"]) for each in webhook.received] == [(MESSAGE.title, "failure")]
    assert "orders[3]@1200" in webhook.received[0]["message"]


def test_apprise_tells_when_a_service_has_not_delivered(webhook: Webhook, monkeypatch: pytest.MonkeyPatch) -> None:
    """The provider's hook does not."""
    webhook.status = 500
    connect_apprise(monkeypatch, "slack", f"json://ana:s3cret@{HOST}:{webhook.port}/s3cret")
    with pytest.raises(ChannelError, match=r"Not everything .* to JSON\.$"):
        open_channel("slack").send(MESSAGE)


@pytest.mark.parametrize("urls", [(), ("nonsense://s3cret",)], ids=["no service", "unknown service"])
def test_apprise_without_a_service_is_refused(urls: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    connect_apprise(monkeypatch, "slack", *urls)
    with pytest.raises(ChannelError, match="names no service") as refused:
        open_channel("slack").send(MESSAGE)
    assert "s3cret" not in str(refused.value)


def test_connection_of_another_type_is_no_channel() -> None:
    with pytest.raises(ConfigurationError, match="Alerts go through connections of") as refused:
        open_channel("warehouse")
    assert refused.value.subject == "warehouse"


def test_nothing_that_a_library_logs_names_a_secret(
    webhook: Webhook, mailbox: Mailbox, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Without our silencing httpx logs every URL, and Apprise those that it does not understand."""
    connect_webhook(monkeypatch, "ops", webhook.url, login="ana", password=PASSWORD)
    connect_apprise(monkeypatch, "slack", f"json://ana:s3cret@{HOST}:{webhook.port}/s3cret", "nonsense://s3cret")
    connect_mail(monkeypatch, "mail", mailbox.port)
    channels = [open_channel(each) for each in ("ops", "slack", "mail")]
    # Airflow configures logging anew when it is imported, and silences httpx, which need not stay so.
    for name in ("httpx", "apprise"):
        caplog.set_level(logging.INFO, name)
        monkeypatch.setattr(logging.getLogger(name), "handlers", [caplog.handler])
    for channel in channels:
        channel.send(MESSAGE)
    assert (len(webhook.received), len(mailbox.received)) == (2, 1)
    assert "s3cret" not in caplog.text


def test_trial_message_says_whether_it_arrived(webhook: Webhook, monkeypatch: pytest.MonkeyPatch) -> None:
    connect_webhook(monkeypatch, "ops", webhook.url)
    try_channel(open_channel, "ops")
    assert webhook.titles == ["[batchledger] a trial message through ops"]
    webhook.status = 500
    with pytest.raises(ChannelError, match="answered 500"):
        try_channel(open_channel, "ops")


DRIP, FLOOD = (b"HTTP/1.1 200 OK\r\n", b"x", 0.02), (b"HTTP/1.1 200 OK\r\n\r\n", b" " * 2**20, 0.0)


def test_webhook_that_drips_or_floods_has_a_deadline_and_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("batchledger.channels.webhook.SECONDS", 0.5)
    with serve_bytes(*DRIP) as port:
        connect_webhook(monkeypatch, "ops", f"http://{HOST}:{port}/s3cret")
        with pytest.raises(ChannelError, match=r"of ops did not answer within 0\.5 s\. The message may be there"):
            open_channel("ops").send(MESSAGE)
    with serve_bytes(*FLOOD) as port:
        connect_webhook(monkeypatch, "ops", f"http://{HOST}:{port}/s3cret")
        # Its answer was the first line: nothing of the rest is read.
        open_channel("ops").send(MESSAGE)


def test_apprise_that_drips_or_floods_has_a_deadline_and_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """Apprise itself waits for ever, and keeps whatever comes."""
    monkeypatch.setattr("batchledger.channels.apprise.SECONDS", 1)
    for answer in (DRIP, FLOOD):
        with serve_bytes(*answer) as port:
            connect_apprise(monkeypatch, "slack", f"json://{HOST}:{port}/s3cret")
            with pytest.raises(ChannelError, match=r"JSON did not answer within 1 s\.|Not everything|ended with code"):
                open_channel("slack").send(MESSAGE)


MAIL_DRIP, MAIL_FLOOD = (b"220", b"-", 0.02), (b"", b"220-go on\r\n" * 10_000, 0.0)


def test_mail_server_that_drips_or_floods_has_a_deadline_and_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("batchledger.channels.mail._PromptHook.timeout", 0.5)
    with serve_bytes(*MAIL_DRIP) as port:
        connect_mail(monkeypatch, "mail", port)
        with pytest.raises(ChannelError, match=r"The mail server of mail was not done after"):
            open_channel("mail").send(MESSAGE)
    monkeypatch.setattr("batchledger.channels.mail._PromptHook.timeout", 60)
    with serve_bytes(*MAIL_FLOOD) as port:
        connect_mail(monkeypatch, "mail", port)
        with pytest.raises(ChannelError, match=r"could not be used: ConnectionError\.$"):
            open_channel("mail").send(MESSAGE)


def count_timers() -> int:
    return sum(isinstance(each, threading.Timer) for each in threading.enumerate())


def test_mail_client_is_closed_if_the_login_or_encryption_fails(
    mailbox: Mailbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its timer would go on, and end with an error in its thread."""
    monkeypatch.setattr("batchledger.channels.mail._PromptHook.timeout", 600)
    opened: list[BoundedSmtp] = []
    connect = BoundedSmtp.connect

    def note(client: BoundedSmtp, *address: Any) -> tuple[int, bytes]:
        opened.append(client)
        return connect(client, *address)

    monkeypatch.setattr(BoundedSmtp, "connect", note)
    monkeypatch.setattr(BoundedSmtpOverTls, "connect", note)
    connect_mail(monkeypatch, "login", mailbox.port, login="ana")
    connect_mail(monkeypatch, "starttls", mailbox.port, disable_tls=False)
    connect_mail(monkeypatch, "tls", mailbox.port, disable_ssl=False)
    for connection in ("login", "starttls", "tls"):
        with pytest.raises(ChannelError):
            open_channel(connection).send(MESSAGE)
        assert opened.pop().sock is None
        wait_until(lambda: not count_timers())


def test_mail_server_that_has_gone_before_the_deadline_disturbs_no_thread(
    mailbox: Mailbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    failures: list[Any] = []
    monkeypatch.setattr(threading, "excepthook", failures.append)
    client = BoundedSmtp(HOST, mailbox.port, timeout=0.5)
    assert client.sock is not None
    client.sock.shutdown(socket.SHUT_RDWR)
    wait_until(lambda: not count_timers())
    client.close()
    assert failures == []


def test_apprise_that_does_not_end_leaves_open_whether_the_message_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("batchledger.channels.apprise._MOST_SECONDS", 0.01)
    connect_apprise(monkeypatch, "slack", f"json://{HOST}:{free_port()}/hook")
    with pytest.raises(ChannelError, match=r"to JSON was not done after 0\.01 s\. The message may be there\.$"):
        open_channel("slack").send(MESSAGE)


def test_trial_says_what_was_done_and_what_was_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """The time of imports is not the time of the server."""
    ends, sent, begun = threading.Event(), [], monotonic()

    class Quick(Channel):
        def send(self, message: Message) -> None:
            sent.append(message)

    def open_late(_: str) -> Channel:
        wait_until(lambda: monotonic() > begun + 1)
        return Quick()

    try_channel(open_late, "ops", seconds=0.9)
    assert len(sent) == 1

    def open_never(_: str) -> Channel:
        ends.wait()
        return Quick()

    with pytest.raises(ChannelError, match=r"ops was not open after 0\.1 s\. Nothing was sent\."):
        try_channel(open_never, "ops", seconds=0.1, opening_seconds=0.1)
    ends.set()


def test_trial_message_is_given_up_in_time(webhook: Webhook, monkeypatch: pytest.MonkeyPatch) -> None:
    webhook.may_answer.clear()
    connect_webhook(monkeypatch, "ops", webhook.url)
    with pytest.raises(ChannelError, match=r"did not answer within 0\.2 s"):
        try_channel(open_channel, "ops", seconds=0.2)
