"""A request over HTTP ends, whatever the server does: one deadline over all of it, and a bound on the answer."""

import asyncio
import gzip
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, closing, suppress
from pathlib import Path
from socketserver import BaseRequestHandler, ThreadingTCPServer
from tempfile import mkdtemp

import httpx
import pytest
from requests import Timeout

from batchledger.bounds.bounded_http import Answer, AnswerTooLargeError, open_client
from batchledger.formats.registry.client import Registry
from batchledger.formats.registry.requests import LARGEST_ANSWER_BYTES
from batchledger.model.errors import CertificateUntrustedError, SchemaRefusedError, ServiceUnavailableError
from batchledger.model.records.registry_settings import RegistrySettings
from batchledger.sinks.iceberg.catalog import LakeCatalog
from batchledger.sinks.iceberg.rest import CONNECT_PROPERTY, READ_PROPERTY
from batchledger.sinks.iceberg.table import IcebergTable
from batchledger.source.kafka.clients import LARGEST_TOKEN_ANSWER_BYTES, fetch_token
from tests.endpoints import HOST, free_port, serve_bytes, serve_webhook, serving
from tests.registry_gate import open_gate
from tests.secured_kafka import Authority
from tests.support import wait_until

HEAD = b"HTTP/1.1 200 OK\r\n"
DRIPS = {
    "silence": (b"", b""),
    "drip of the status": (b"", b"H"),
    "drip of headers": (HEAD, b"x"),
    "drip of the answer": (HEAD + b"\r\n", b" "),
    "interim answers without end": (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
}
MIB = b" " * 2**20


def serve(name: str) -> AbstractContextManager[int]:
    return serve_bytes(*DRIPS[name], pause_seconds=0.02)


@pytest.mark.parametrize("name", DRIPS)
def test_server_that_drips_is_given_up_at_the_deadline(name: str) -> None:
    with serve(name) as port, open_client() as client, pytest.raises((TimeoutError, httpx.RemoteProtocolError)) as told:
        client.send("GET", f"http://{HOST}:{port}/", seconds=0.3, most_bytes=1000)
    assert isinstance(told.value, TimeoutError) or name == "drip of the status"


def test_answer_without_end_is_given_up_at_its_bound() -> None:
    with serve_bytes(HEAD + b"\r\n", MIB) as port, open_client() as client:
        with pytest.raises(AnswerTooLargeError) as told:
            client.send("GET", f"http://{HOST}:{port}/", seconds=60, most_bytes=3 * 2**20)
        assert told.value.status == 200
        # The status is there at once, and nothing of the rest is read.
        assert client.send("GET", f"http://{HOST}:{port}/", seconds=60, most_bytes=0) == Answer(200, b"")


def test_headers_without_end_are_given_up() -> None:
    lines = b"x: y\r\n" * 10_000
    with serve_bytes(HEAD, lines) as port, open_client() as client, pytest.raises(httpx.RemoteProtocolError):
        client.send("GET", f"http://{HOST}:{port}/", seconds=60, most_bytes=1000)


def test_compressed_answer_is_not_unpacked() -> None:
    """A few bytes of it could become any number."""
    head = HEAD + b"Content-Encoding: gzip\r\nContent-Length: 3\r\n\r\n"
    with serve_bytes(head + b"abc", b"") as port, open_client() as client:
        assert client.send("GET", f"http://{HOST}:{port}/", seconds=60, most_bytes=3) == Answer(200, b"abc")


def test_client_is_used_within_a_loop_of_events() -> None:
    async def ask() -> Answer:
        with open_client() as client:
            return client.send("GET", f"http://{HOST}:{free_port()}/", seconds=60, most_bytes=0)

    with pytest.raises(httpx.ConnectError):
        asyncio.run(ask())


@pytest.fixture
def flood() -> Iterator[int]:
    with serve_bytes(HEAD + b"\r\n", MIB) as port:
        yield port


def test_registry_that_floods_or_drips_ends_in_a_typed_error(flood: int) -> None:
    with pytest.raises(SchemaRefusedError) as told:
        Registry(RegistrySettings(f"http://{HOST}:{flood}", timeout_seconds=60)).fetch(1)
    assert f"sends more than {LARGEST_ANSWER_BYTES / 2**20:.0f} MiB" in told.value.why
    with serve("drip of headers") as port, pytest.raises(ServiceUnavailableError) as late:
        Registry(RegistrySettings(f"http://{HOST}:{port}", timeout_seconds=0.3)).fetch(1)
    assert "did not answer within 0.3 s" in late.value.why


def test_server_that_does_not_accept_the_certificate_of_a_client_is_told_as_one(tmp_path: Path) -> None:
    """TLS 1.3 says it after the handshake."""
    own, other = (Authority(Path(mkdtemp(dir=tmp_path))) for _ in range(2))
    place = str(own.path)
    with open_gate("http://127.0.0.1:1", certificate=own.issue("registry"), clients=place) as gate:
        certificate, key = map(str, other.issue("etl"))
        for shown in ({}, {"certificate_file": certificate, "key_file": key}):
            settings = RegistrySettings(gate.url, authority_file=place, timeout_seconds=60, **shown)
            with pytest.raises(CertificateUntrustedError, match="does not accept the certificate of this client"):
                Registry(settings).fetch(1)


def token_options(port: int) -> dict[str, str]:
    return {
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.token.endpoint.url": f"http://{HOST}:{port}/token",
        "sasl.oauthbearer.client.id": "ana",
        "sasl.oauthbearer.client.secret": "s3cret",
    }


def test_token_endpoint_that_floods_or_drips_ends_in_a_typed_error(flood: int, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ServiceUnavailableError) as told:
        fetch_token(token_options(flood))
    assert told.value.why == f"It sends more than {LARGEST_TOKEN_ANSWER_BYTES / 2**20:.0f} MiB."
    monkeypatch.setattr("batchledger.source.kafka.clients.REQUEST_TIMEOUT_SECONDS", 0.3)
    with serve("drip of headers") as port, pytest.raises(ServiceUnavailableError) as late:
        fetch_token(token_options(port))
    assert late.value.why == "It did not answer within 0.3 s."
    nested = HEAD + b"Connection: close\r\nContent-Length: 200000\r\n\r\n" + b"[" * 200_000
    with serve_bytes(nested, b"") as port, pytest.raises(ServiceUnavailableError, match="could not get a token"):
        fetch_token(token_options(port))


def test_token_is_taken_from_an_endpoint_and_not_from_where_it_redirects() -> None:
    body = b'{"access_token": "t0ken"}'
    with serve_bytes(HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body, b"") as port:
        assert fetch_token(token_options(port)) == "t0ken"
    with serve_webhook() as elsewhere:
        elsewhere.status = 302
        with pytest.raises(ServiceUnavailableError, match="could not get a token"):
            fetch_token(token_options(elsewhere.port))


def connect_catalog(port: int, milliseconds: str) -> LakeCatalog:
    """A REST catalog, each of whose calls has twice the time."""
    waits = dict.fromkeys((CONNECT_PROPERTY, READ_PROPERTY), milliseconds)
    return LakeCatalog("lake", {"type": "rest", "uri": f"http://{HOST}:{port}", "token": "t0ken", **waits})


def fail_to_look(catalog: LakeCatalog) -> str:
    """Ask for a table that the catalog does not give."""
    with pytest.raises(ServiceUnavailableError) as told:
        IcebergTable(catalog, ("shop", "orders")).identify()
    return told.value.why


@pytest.mark.parametrize("name", [name for name in DRIPS if name != "silence"])
def test_catalog_that_drips_is_given_up_at_the_deadline(name: str) -> None:
    with serve(name) as port:
        why = fail_to_look(connect_catalog(port, "150"))
    assert "was not whole after 0.3 s" in why or name == "drip of the status"


def test_catalog_that_drips_on_a_kept_connection_is_given_up_at_the_deadline_and_closed() -> None:
    closed: list[bool] = []
    ends, body = threading.Event(), b'{"defaults": {}, "overrides": {}, "namespaces": []}'

    class Handler(BaseRequestHandler):
        """Answers the first request of each connection."""

        def handle(self) -> None:
            self.request.recv(2**16)
            self.request.sendall(HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body)
            is_asked_again = self.request.recv(2**16)
            with suppress(OSError):
                while is_asked_again and not ends.wait(0.02):
                    self.request.sendall(b"x")
            closed.append(not ends.is_set())

    server = ThreadingTCPServer((HOST, 0), Handler)
    server.daemon_threads = True
    with serving(server), closing(connect_catalog(server.server_address[1], "500").opened) as catalog:
        try:
            assert catalog.list_namespaces() == []
            with pytest.raises(Timeout, match="was not whole after 1 s"):
                catalog.list_namespaces()
            wait_until(lambda: closed == [True, True])
        finally:
            ends.set()


def test_catalog_that_floods_is_given_up_at_its_bound(flood: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("batchledger.sinks.iceberg.rest.MOST_BYTES", 3 * 2**20)
    assert "has more than 3 MiB" in fail_to_look(connect_catalog(flood, "60000"))


def test_catalog_that_floods_with_what_is_compressed_is_given_up_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("batchledger.sinks.iceberg.rest.MOST_BYTES", 3 * 2**20)
    body = gzip.compress(b" " * 2**24)
    head = HEAD + b"Content-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(body)
    with serve_bytes(head + body, b"") as port:
        assert "has more than 3 MiB" in fail_to_look(connect_catalog(port, "60000"))
