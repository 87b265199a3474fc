"""The proxy does to real connections what torture counts on."""

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import pytest

from batchledger.local.stack.machine import HOST
from batchledger.local.torture.proxy import Link, run_proxy
from tests.conftest import choose_ports
from tests.support import wait_until


@dataclass
class Echo:
    """A service that answers every message with itself, and remembers it."""

    server: socket.socket
    received: list[bytes] = field(default_factory=list)

    @property
    def port(self) -> int:
        return int(self.server.getsockname()[1])

    def serve(self) -> None:
        while True:
            try:
                connection, _ = self.server.accept()
            except OSError:
                return
            threading.Thread(target=self._answer, args=(connection,), daemon=True).start()

    def _answer(self, connection: socket.socket) -> None:
        with connection:
            while message := _receive(connection):
                self.received.append(message)
                connection.sendall(message)


def _receive(connection: socket.socket) -> bytes:
    """What came, empty when the connection is over."""
    try:
        return connection.recv(1024)
    except ConnectionError:
        return b""


@pytest.fixture
def echo() -> Iterator[Echo]:
    with socket.create_server((HOST, 0)) as server:
        service = Echo(server)
        threading.Thread(target=service.serve, daemon=True).start()
        yield service
        server.shutdown(socket.SHUT_RDWR)


@pytest.fixture
def link(echo: Echo) -> Iterator[Link]:
    with run_proxy({choose_ports().kafka: echo.port}) as (link,):
        yield link


@contextmanager
def client(link: Link) -> Iterator[socket.socket]:
    with socket.create_connection((HOST, link.port), timeout=20) as connection:
        yield connection


def ask(connection: socket.socket, message: bytes) -> bytes:
    connection.sendall(message)
    return _receive(connection)


def test_messages_pass_both_ways(link: Link) -> None:
    with client(link) as one, client(link) as other:
        assert (ask(one, b"one"), ask(other, b"other"), ask(one, b"again")) == (b"one", b"other", b"again")


def test_cut_resets_what_is_open_and_lets_new_connections_through(link: Link) -> None:
    with client(link) as old:
        assert ask(old, b"before") == b"before"
        assert link.cut() == 1
        with pytest.raises(ConnectionResetError):
            old.recv(1)
    with client(link) as new:
        assert ask(new, b"after") == b"after"


def test_cut_and_black_hole_say_so_when_there_is_nothing_to_hit(link: Link) -> None:
    assert (link.cut(), link.black_hole(), link.heal(), link.heal()) == (0, 0, 0, 0)


def test_delay_holds_every_message_back_until_healed(link: Link) -> None:
    with client(link) as connection:
        link.delay(0.1)
        started = time.monotonic()
        assert ask(connection, b"slow") == b"slow"
        assert time.monotonic() - started >= 0.2
        link.delay(3600)
        link.heal()
        assert ask(connection, b"fast") == b"fast"


def test_black_hole_takes_everything_and_answers_nothing_until_it_is_healed_by_a_reset(link: Link, echo: Echo) -> None:
    with client(link) as old:
        assert ask(old, b"before") == b"before"
        assert link.black_hole() == 1
        old.sendall(b"into the hole")
        with client(link) as new:
            new.sendall(b"into the hole too")
            new.settimeout(0.2)
            with pytest.raises(TimeoutError):
                new.recv(1)
            assert link.heal() == 2
            for held_up in (new, old):
                with pytest.raises(ConnectionResetError):
                    held_up.recv(1)
    with client(link) as fresh:
        assert ask(fresh, b"after") == b"after"
    assert echo.received == [b"before", b"after"]


def test_commit_arrives_and_its_reply_is_lost_once(link: Link, echo: Echo) -> None:
    has_lost_reply = link.lose_next_commit_reply()
    with client(link) as connection:
        assert ask(connection, b"SELECT\0") == b"SELECT\0"
        assert not has_lost_reply.is_set()
        assert ask(connection, b"COMMIT\0") == b""
    assert has_lost_reply.is_set()
    assert echo.received == [b"SELECT\0", b"COMMIT\0"]
    with client(link) as connection:
        assert ask(connection, b"COMMIT\0") == b"COMMIT\0"


def test_service_that_is_down_looks_like_a_lost_connection() -> None:
    ports = choose_ports()
    with run_proxy({ports.kafka: ports.postgres}) as (link,), client(link) as connection:
        assert _receive(connection) == b""


def test_last_words_of_a_service_arrive_before_the_end(link: Link, echo: Echo) -> None:
    with client(link) as connection:
        connection.sendall(b"last words")
        connection.shutdown(socket.SHUT_WR)
        assert _receive(connection) == b"last words"
        assert _receive(connection) == b""


def test_nothing_is_left_listening_afterwards(echo: Echo) -> None:
    port = choose_ports().kafka
    with run_proxy({port: echo.port}) as (link,), client(link) as connection:
        assert ask(connection, b"there") == b"there"

    def is_refused() -> bool:
        with socket.socket() as probe:
            return probe.connect_ex((HOST, port)) != 0

    wait_until(is_refused, 5)
