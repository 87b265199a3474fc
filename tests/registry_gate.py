"""What may stand before a schema registry: a gate that asks for a login or a certificate, and a gateway that fails.

It passes everything else on to the real registry behind it. It knows GET only: nothing is registered through it.
"""

import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

import httpx

from batchledger.local.stack.machine import HOST
from tests.endpoints import serving


@dataclass(frozen=True)
class Answer:
    """What the gate answers by itself."""

    status: int
    body: str = ""
    headers: tuple[tuple[str, str], ...] = ()


class Silence:
    """The gate takes the request and does not answer."""


class Drip:
    """The gate sends a byte of its answer now and then, and never ends."""


@dataclass
class Gate:
    """A gate that is open. ``answers`` meet the next requests, in order; None passes one on."""

    port: int
    scheme: str
    registry: str
    authorization: str | None = None
    answers: list[Answer | type[Silence] | type[Drip] | None] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    ends: threading.Event = field(default_factory=threading.Event)

    @property
    def url(self) -> str:
        """The way to the registry through this gate."""
        return f"{self.scheme}://{HOST}:{self.port}{urlsplit(self.registry).path}"


class _Server(ThreadingHTTPServer):
    gate: Gate


class _Handler(BaseHTTPRequestHandler):
    server: _Server

    def do_GET(self) -> None:
        gate = self.server.gate
        gate.asked.append(f"{self.command} {self.path}")
        given = self.headers.get("Authorization")
        if gate.authorization is not None and given != gate.authorization:
            # As careless servers do.
            self._send(Answer(401, f'{{"error_code": 401, "message": "who is {given}?"}}'))
            return
        match gate.answers.pop(0) if gate.answers else None:
            case Answer() as answer:
                self._send(answer)
            case None:
                self._pass_on(gate.registry.removesuffix(urlsplit(gate.registry).path))
            case kind:
                self._keep_waiting(gate.ends, drips=kind is Drip)

    def _pass_on(self, origin: str) -> None:
        told = httpx.get(f"{origin}{self.path}", trust_env=False)
        self._send(Answer(told.status_code, told.text))

    def _keep_waiting(self, ends: threading.Event, drips: bool) -> None:
        if drips:
            self.send_response(200)
            self.end_headers()
        while not ends.wait(0.05):
            if drips:
                try:
                    self.wfile.write(b" ")
                except OSError:
                    return

    def _send(self, answer: Answer) -> None:
        body = answer.body.encode()
        self.send_response(answer.status)
        for header in (*answer.headers, ("Content-Length", str(len(body)))):
            self.send_header(*header)
        self.end_headers()
        with suppress(OSError):
            self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@contextmanager
def open_gate(registry: str, certificate: tuple[Path, Path] | None = None, clients: str = "") -> Iterator[Gate]:
    """Open a gate until the test leaves: with TLS by a certificate, for clients of the authority in ``clients``."""
    server = _Server((HOST, 0), _Handler)
    if certificate is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*certificate)
        if clients:
            context.load_verify_locations(clients)
            context.verify_mode = ssl.CERT_REQUIRED
        server.socket = context.wrap_socket(server.socket, server_side=True)
    server.gate = gate = Gate(server.server_port, "https" if certificate else "http", registry)
    with serving(server):
        try:
            yield gate
        finally:
            gate.ends.set()
