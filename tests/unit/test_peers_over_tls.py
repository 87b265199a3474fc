"""A REST catalog, a webhook and a mail server over TLS: the right authority is taken, every other one is refused."""

import ssl
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from batchledger.model.checks import Severity
from batchledger.model.errors import ChannelError, ServiceUnavailableError
from batchledger.model.incidents import Message
from batchledger.settings.connections import Connection
from batchledger.sinks.iceberg.catalog import LakeCatalog, translate_errors
from batchledger.sinks.iceberg.connection import lake_catalog
from batchledger.wiring import open_channel
from tests.endpoints import HOST, Mailbox, Webhook, connect_mail, connect_webhook, serve_mail, serve_webhook
from tests.rest_catalog import LOGIN, PASSWORD, RestServer, serve_rest_catalog
from tests.secured_kafka import Authority

MESSAGE = Message("orders: blocked", "batch 17", Severity.CRITICAL, document={"title": "orders: blocked"})


@dataclass(frozen=True)
class Peers:
    """Servers with certificates of one authority, for 127.0.0.1, and the authority of others.

    The strict ones let a client in by a certificate of the same authority alone.
    """

    authority: Path
    stranger: Path
    catalog: RestServer
    webhook: Webhook
    strict_catalog: RestServer
    strict_webhook: Webhook
    files_by_issuer: dict[str, dict[str, str]]
    mail_by_way: dict[str, Mailbox]


@pytest.fixture(scope="module")
def peers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Peers]:
    ours, theirs = (Authority(tmp_path_factory.mktemp(name)) for name in ("ours", "theirs"))
    certificate = ours.issue("server")
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(*certificate)
    strict = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=ours.path)
    strict.load_cert_chain(*certificate)
    strict.verify_mode = ssl.CERT_REQUIRED
    names = ("ssl.certificate.location", "ssl.key.location")
    issued = {"ours": ours.issue("client"), "another's": theirs.issue("client")}
    with ExitStack() as stack:
        yield Peers(
            ours.path,
            theirs.path,
            stack.enter_context(serve_rest_catalog(tmp_path_factory.mktemp("lake"), certificate)),
            stack.enter_context(serve_webhook(tls=tls)),
            stack.enter_context(serve_rest_catalog(tmp_path_factory.mktemp("strict"), certificate, ours.path)),
            stack.enter_context(serve_webhook(tls=strict)),
            {issuer: dict(zip(names, map(str, files), strict=True)) for issuer, files in issued.items()} | {"none": {}},
            {
                "from the start": stack.enter_context(serve_mail(ssl_context=tls)),
                "STARTTLS": stack.enter_context(serve_mail(tls_context=tls, require_starttls=True)),
            },
        )


AUTHORITIES = ["the machine's", "another's"]


def trust(name: str, peers: Peers, variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    path = {"ours": peers.authority, "another's": peers.stranger}.get(name)
    monkeypatch.delenv(variable, raising=False)
    if path is not None:
        monkeypatch.setenv(variable, str(path))


def open_rest(server: RestServer, host: str = HOST, **files: str) -> LakeCatalog:
    url = f"https://{host}:{server.port}"
    extra = {"type": "rest", "warehouse": "shop", "oauth2-server-uri": f"{url}/v1/oauth/tokens", **files}
    catalog = LakeCatalog(
        *lake_catalog(Connection("lake", "iceberg", url, login=LOGIN, password=PASSWORD, extra=extra))
    )
    with translate_errors("look", "shop.orders"):
        catalog.opened.create_namespace_if_not_exists("shop")
    return catalog


def test_rest_catalog_gives_its_token_to_a_client_that_knows_its_authority(
    peers: Peers, monkeypatch: pytest.MonkeyPatch
) -> None:
    trust("ours", peers, "REQUESTS_CA_BUNDLE", monkeypatch)
    open_rest(peers.catalog).rest()


@pytest.mark.parametrize("authority", AUTHORITIES)
def test_rest_catalog_of_an_unknown_authority_gets_no_login(
    authority: str, peers: Peers, monkeypatch: pytest.MonkeyPatch
) -> None:
    trust(authority, peers, "REQUESTS_CA_BUNDLE", monkeypatch)
    with pytest.raises(ServiceUnavailableError, match="CERTIFICATE_VERIFY_FAILED"):
        open_rest(peers.catalog)


def test_rest_catalog_under_another_name_than_its_certificates_gets_no_login(
    peers: Peers, monkeypatch: pytest.MonkeyPatch
) -> None:
    trust("ours", peers, "REQUESTS_CA_BUNDLE", monkeypatch)
    with pytest.raises(ServiceUnavailableError, match="Hostname mismatch"):
        open_rest(peers.catalog, "localhost")


def authority_of(peers: Peers, name: str) -> dict[str, str]:
    return {"ssl.ca.location": str({"ours": peers.authority, "another's": peers.stranger}[name])}


def test_authority_in_the_connection_counts_whatever_the_environment_says(
    peers: Peers, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in ("REQUESTS_CA_BUNDLE", "SSL_CERT_FILE"):
        trust("ours", peers, variable, monkeypatch)
    with pytest.raises(ServiceUnavailableError, match="CERTIFICATE_VERIFY_FAILED"):
        open_rest(peers.catalog, **authority_of(peers, "another's"))
    connect_webhook(monkeypatch, "ops", peers.webhook.url, extra=authority_of(peers, "another's"))
    with pytest.raises(ChannelError, match="could not be used: ConnectError"):
        open_channel("ops").send(MESSAGE)
    assert peers.webhook.arrived == []
    for variable in ("REQUESTS_CA_BUNDLE", "SSL_CERT_FILE"):
        trust("another's", peers, variable, monkeypatch)
    open_rest(peers.catalog, **authority_of(peers, "ours")).rest()
    connect_webhook(monkeypatch, "ops", peers.webhook.url, extra={"X-Team": "data"} | authority_of(peers, "ours"))
    open_channel("ops").send(MESSAGE)
    (headers,) = (dict(each) for each in peers.webhook.headers)
    assert headers["X-Team"] == "data"
    assert not [name for name in headers if name.startswith("ssl")]
    for seen in (peers.webhook.arrived, peers.webhook.received, peers.webhook.headers):
        seen.clear()


@pytest.mark.parametrize(("issuer", "is_let_in"), [("ours", True), ("another's", False), ("none", False)])
def test_server_that_asks_for_a_client_certificate_lets_in_the_one_of_its_authority(
    issuer: str, is_let_in: bool, peers: Peers, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = authority_of(peers, "ours") | peers.files_by_issuer[issuer]
    connect_webhook(monkeypatch, "ops", peers.strict_webhook.url, extra=files)
    if is_let_in:
        open_rest(peers.strict_catalog, **files).rest()
        open_channel("ops").send(MESSAGE)
    else:
        with pytest.raises(ServiceUnavailableError, match=r"SSL|Connection"):
            open_rest(peers.strict_catalog, **files)
        with pytest.raises(ChannelError, match="could not be used: "):
            open_channel("ops").send(MESSAGE)
    assert peers.strict_webhook.received == ([MESSAGE.document] if is_let_in else [])
    peers.strict_webhook.received.clear()


def test_webhook_without_the_file_that_its_connection_names_gets_no_message(
    peers: Peers, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect_webhook(monkeypatch, "ops", peers.webhook.url, extra={"ssl.ca.location": "/nowhere.pem"})
    with pytest.raises(ChannelError, match="cannot be read: FileNotFoundError") as refused:
        open_channel("ops").send(MESSAGE)
    assert "Correct ssl.ca.location" in refused.value.advice


def test_webhook_takes_a_message_if_its_authority_is_known(peers: Peers, monkeypatch: pytest.MonkeyPatch) -> None:
    trust("ours", peers, "SSL_CERT_FILE", monkeypatch)
    connect_webhook(monkeypatch, "ops", peers.webhook.url)
    open_channel("ops").send(MESSAGE)
    assert peers.webhook.received == [MESSAGE.document]
    peers.webhook.arrived.clear()


@pytest.mark.parametrize("authority", AUTHORITIES)
def test_webhook_of_an_unknown_authority_gets_no_message(
    authority: str, peers: Peers, monkeypatch: pytest.MonkeyPatch
) -> None:
    trust(authority, peers, "SSL_CERT_FILE", monkeypatch)
    connect_webhook(monkeypatch, "ops", peers.webhook.url)
    with pytest.raises(ChannelError, match="could not be used: ConnectError"):
        open_channel("ops").send(MESSAGE)
    assert peers.webhook.arrived == []


def connect_to_mail(way: str, peers: Peers, monkeypatch: pytest.MonkeyPatch, host: str = HOST) -> Mailbox:
    mailbox = peers.mail_by_way[way]
    switched_off = "disable_tls" if way == "from the start" else "disable_ssl"
    switched_on = "disable_ssl" if way == "from the start" else "disable_tls"
    connect_mail(monkeypatch, "mail", mailbox.port, host=host, **{switched_off: True, switched_on: False})
    return mailbox


@pytest.mark.parametrize("way", ["from the start", "STARTTLS"])
def test_mail_server_takes_a_message_if_its_authority_is_known(
    way: str, peers: Peers, monkeypatch: pytest.MonkeyPatch
) -> None:
    trust("ours", peers, "SSL_CERT_FILE", monkeypatch)
    mailbox = connect_to_mail(way, peers, monkeypatch)
    open_channel("mail").send(MESSAGE)
    assert mailbox.titles == [MESSAGE.title]
    mailbox.received.clear()


@pytest.mark.parametrize("way", ["from the start", "STARTTLS"])
@pytest.mark.parametrize("authority", AUTHORITIES)
def test_mail_server_of_an_unknown_authority_gets_no_message(
    way: str, authority: str, peers: Peers, monkeypatch: pytest.MonkeyPatch
) -> None:
    trust(authority, peers, "SSL_CERT_FILE", monkeypatch)
    mailbox = connect_to_mail(way, peers, monkeypatch)
    with pytest.raises(ChannelError, match="could not be used: SSLCertVerificationError"):
        open_channel("mail").send(MESSAGE)
    assert mailbox.received == []


@pytest.mark.parametrize("way", ["from the start", "STARTTLS"])
def test_mail_server_under_another_name_than_its_certificates_gets_no_message(
    way: str, peers: Peers, monkeypatch: pytest.MonkeyPatch
) -> None:
    trust("ours", peers, "SSL_CERT_FILE", monkeypatch)
    mailbox = connect_to_mail(way, peers, monkeypatch, "localhost")
    with pytest.raises(ChannelError, match="could not be used: SSLCertVerificationError"):
        open_channel("mail").send(MESSAGE)
    assert mailbox.received == []
