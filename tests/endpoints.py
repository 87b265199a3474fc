"""Real endpoints on 127.0.0.1 that alerts are delivered to: a mail server and a web server."""

import json
import ssl
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email import message_from_bytes, policy
from email.message import EmailMessage
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socket import create_server
from socketserver import BaseRequestHandler, TCPServer, ThreadingTCPServer
from typing import Any, cast

import pytest
from aiosmtpd.controller import Controller
from aiosmtpd.smtp import SMTP, Envelope, Session

HOST = "127.0.0.1"


@dataclass
class Webhook:
    """What a web server has received. ``status`` is its answer, which waits for ``may_answer``.

    ``arrived`` has everything with the moment of its arrival, also what is not answered yet or never.
    """

    port: int
    scheme: str = "http"
    status: int = 200
    received: list[dict[str, Any]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    arrived: list[tuple[datetime, dict[str, Any]]] = field(default_factory=list)
    may_answer: threading.Event = field(default_factory=threading.Event)

    @property
    def url(self) -> str:
        """Where it listens; the path is as secret as a real one."""
        return f"{self.scheme}://{HOST}:{self.port}/hooks/s3cret-path"

    @property
    def titles(self) -> list[str]:
        """The titles of what arrived, in order."""
        return [str(each["title"]) for each in self.received]


@contextmanager
def serving(server: TCPServer) -> Iterator[None]:
    """Serve in a thread of its own for the duration of the block."""
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@contextmanager
def serve_webhook(port: int = 0, tls: ssl.SSLContext | None = None) -> Iterator[Webhook]:
    """Serve until the test leaves; a request that is held back then is let go."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            endpoint.arrived.append((datetime.now(UTC), json.loads(body)))
            endpoint.may_answer.wait()
            if endpoint.status < 300:
                endpoint.received.append(json.loads(body))
                endpoint.headers.append(dict(self.headers))
            self.send_response(endpoint.status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 -- the name of the base class
            pass

    server = ThreadingHTTPServer((HOST, port), Handler)
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    endpoint = Webhook(server.server_address[1], "https" if tls else "http")
    endpoint.may_answer.set()
    with serving(server):
        try:
            yield endpoint
        finally:
            endpoint.may_answer.set()


@dataclass
class Mailbox:
    """What a mail server has received; ``refusal`` is its answer to every message instead."""

    port: int = 0
    refusal: str | None = None
    received: list[EmailMessage] = field(default_factory=list)

    async def handle_DATA(self, server: SMTP, session: Session, envelope: Envelope) -> str:  # noqa: N802 -- aiosmtpd's
        """Keep the message."""
        if self.refusal is not None:
            return self.refusal
        content = cast("bytes", envelope.content)
        self.received.append(message_from_bytes(content, policy=policy.default))
        return "250 OK"

    @property
    def titles(self) -> list[str]:
        """The subjects of what arrived, in order."""
        return [str(each["Subject"]) for each in self.received]

    @property
    def pages(self) -> list[str]:
        """Their texts, decoded."""
        bodies = [each.get_body() for each in self.received]
        return [str(body.get_content()) for body in bodies if body is not None]


@contextmanager
def serve_mail(**options: Any) -> Iterator[Mailbox]:
    """Serve until the test leaves. ``options`` are aiosmtpd's: ``ssl_context``, or ``tls_context`` for STARTTLS."""
    with closing(create_server((HOST, 0))) as probe:
        mailbox = Mailbox(probe.getsockname()[1])
    controller = Controller(mailbox, hostname=HOST, port=mailbox.port, **options)
    controller.start()
    try:
        yield mailbox
    finally:
        controller.stop()


@contextmanager
def serve_bytes(first: bytes, again: bytes, pause_seconds: float = 0.0) -> Iterator[int]:
    """Serve on the port that is yielded: after a request come the first bytes, and then the others without end.

    Nothing is sent again until the test leaves, if ``again`` is empty.
    """
    ends = threading.Event()

    class Handler(BaseRequestHandler):
        def handle(self) -> None:
            with suppress(OSError):
                self.request.sendall(first)
                while not ends.wait(pause_seconds):
                    self.request.sendall(again)

    server = ThreadingTCPServer((HOST, 0), Handler)
    server.daemon_threads = True
    with serving(server):
        try:
            yield server.server_address[1]
        finally:
            ends.set()


def free_port() -> int:
    """Return a port on which no server listens."""
    with closing(create_server((HOST, 0))) as probe:
        return int(probe.getsockname()[1])


def connect_webhook(environment: pytest.MonkeyPatch, connection_id: str, url: str, **fields: Any) -> None:
    """Define an Airflow connection of type http."""
    _define(environment, connection_id, {"conn_type": "http", "host": url, **fields})


def connect_mail(
    environment: pytest.MonkeyPatch, connection_id: str, port: int, host: str = HOST, *, login: str = "", **extra: Any
) -> None:
    """Define an Airflow connection of type smtp; ``login`` is its user and its password."""
    plain = {"disable_ssl": True, "disable_tls": True, "from_email": "batchledger@example.com"}
    user = {"login": login, "password": login} if login else {}
    settings = {**plain, "to_email": "ops@example.com, oncall@example.com", **extra}
    _define(environment, connection_id, {"conn_type": "smtp", "host": host, "port": port, "extra": settings, **user})


def connect_apprise(environment: pytest.MonkeyPatch, connection_id: str, *urls: str) -> None:
    """Define an Airflow connection of type apprise."""
    services = [{"path": url, "tag": "alerts"} for url in urls]
    _define(environment, connection_id, {"conn_type": "apprise", "extra": {"config": services}})


def _define(environment: pytest.MonkeyPatch, connection_id: str, content: dict[str, Any]) -> None:
    environment.setenv(f"AIRFLOW_CONN_{connection_id.upper()}", json.dumps(content))
