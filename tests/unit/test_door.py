"""The door for the rows of a stream: what comes through, what is refused, and what breaks the stream."""

import hashlib
import os
import select
import socket
import ssl
import struct
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import partial
from threading import Thread
from time import monotonic
from typing import Any

import pyarrow as pa
import pytest

from batchledger.model.errors import StagingError
from batchledger.model.stream_address import StreamAddress
from batchledger.sinks.staging.tables import CopyEncoder
from batchledger.sinks.streaming import door as door_module
from batchledger.sinks.streaming.door import Door, StreamWriter, _knock
from batchledger.sinks.streaming.one_certificate import make_client_context, make_server_context
from batchledger.sinks.table.copy_rows import CopyRows
from tests.support import wait_until

TLS_ALERT = b"\x15"
ROWS = pa.record_batch({"n": pa.array(range(50_000), pa.int64())})


class Receiver:
    """What PostgreSQL would have got."""

    def __init__(self, host: str) -> None:
        self.taken: list[bytes] = []
        self.door = Door(lambda view: self.taken.append(bytes(view)), StreamAddress(host))

    def writer(self, **other: Any) -> StreamWriter:
        return replace(self.door.writer(partial(CopyRows, 7)), **other)

    def connect(self) -> socket.socket:
        """A connection of its own, encrypted if the door asks for it, that knows no secret."""
        writer = self.writer()
        plain = socket.create_connection((writer.host, writer.port))
        return make_client_context(writer.certificate).wrap_socket(plain) if writer.certificate else plain


# The second one stands for an address in a network.
@pytest.fixture(params=["127.0.0.1", "127.0.0.2"])
def receiver(request: pytest.FixtureRequest) -> Iterator[Receiver]:
    found = Receiver(request.param)
    yield found
    found.door.close()


def expected(*batches: pa.RecordBatch) -> bytes:
    marked = [each.append_column("_batch_id", pa.repeat(pa.scalar(7, pa.int64()), each.num_rows)) for each in batches]
    encoder = CopyEncoder(marked[0].schema)
    return b"".join([*(encoder.encode(each) for each in marked), encoder.finish()])


def send_for_ever(writer: StreamWriter, meanwhile: Callable[[], None] = lambda: None) -> None:
    """Send rows, and more once something has happened."""
    with writer.open(2) as write:
        write(ROWS)
        meanwhile()
        for _ in range(1_000):
            write(ROWS)


def test_rows_of_a_task_come_through_whole_and_in_order_and_the_end_says_how_many(receiver: Receiver) -> None:
    with receiver.writer().open(3) as write:
        write(ROWS)
        write(ROWS.slice(0, 10))
    assert b"".join(receiver.taken) == expected(ROWS, ROWS.slice(0, 10))
    assert receiver.door.close() == {3: 50_010}
    assert receiver.door.arriving == 0


def test_rows_that_arrive_are_counted_until_their_task_has_ended(receiver: Receiver) -> None:
    with receiver.writer().open(3) as write:
        write(ROWS)
        wait_until(lambda: receiver.door.arriving == 50_000)
    assert receiver.door.arriving == 0


def test_task_without_rows_tells_so(receiver: Receiver) -> None:
    with receiver.writer().open(4):
        pass
    assert receiver.door.close() == {4: 0}


def test_several_shares_of_a_task_add_up(receiver: Receiver) -> None:
    for _ in range(2):
        with receiver.writer().open(3) as write:
            write(ROWS)
    assert receiver.door.close() == {3: 100_000}


def test_who_does_not_know_the_secret_is_hung_up_on_and_breaks_nothing(receiver: Receiver) -> None:
    with pytest.raises(StagingError, match="closed early"), receiver.writer(secret=os.urandom(32)).open(1):
        pass
    with receiver.connect() as stranger:
        stranger.recv(32)
        stranger.sendall(os.urandom(72))
        assert stranger.recv(1) == b""
    with receiver.writer().open(3) as write:
        write(ROWS)
    assert receiver.door.close() == {3: 50_000}
    assert b"".join(receiver.taken) == expected(ROWS)


def test_task_sends_nothing_to_another_process_that_listens_there() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        writer = StreamWriter("127.0.0.1", other.getsockname()[1], b"secret" * 6, 7)
        heard: list[bytes] = []

        def listen() -> None:
            connection, _ = other.accept()
            with connection:
                connection.sendall(bytes(32))
                heard.append(connection.recv(4096))
                connection.sendall(hashlib.sha256(heard[0]).digest())
                heard.append(connection.recv(4096))

        thread = Thread(target=listen)
        thread.start()
        with pytest.raises(StagingError, match="another process listens there"), writer.open(1):
            pass
        thread.join()
    assert heard[1:] == [b""]
    assert b"secret" not in heard[0]


def test_task_that_dies_breaks_the_stream_and_no_other_gets_through_any_more(receiver: Receiver) -> None:
    def die() -> None:
        with receiver.writer().open(1) as write:
            write(ROWS)
            raise ZeroDivisionError

    def be_there() -> None:
        with pytest.raises(ZeroDivisionError):
            die()
        wait_until(lambda: receiver.door.error is not None)

    with pytest.raises(StagingError):
        send_for_ever(receiver.writer(), be_there)
    with pytest.raises(StagingError), receiver.writer().open(5):
        pass
    assert receiver.door.close() == {}


def test_error_of_the_receiver_reaches_every_task() -> None:
    def refuse(_: memoryview) -> None:
        raise RuntimeError("the database has gone")

    door = Door(refuse, StreamAddress())
    with pytest.raises(StagingError):
        send_for_ever(door.writer(partial(CopyRows, 7)))
    assert str(door.error) == "the database has gone"
    door.close()


@pytest.mark.parametrize("frame", [struct.pack("!QQ", 1 << 40, 1), struct.pack("!QQ", 0, 5)], ids=["long", "short"])
def test_frame_that_cannot_be_breaks_the_stream(receiver: Receiver, frame: bytes) -> None:
    with receiver.connect() as connection:
        _knock(connection, receiver.door.secret, 1)
        connection.sendall(frame)
        with suppress(ConnectionResetError):
            assert connection.recv(5) == b""
    assert receiver.door.error is not None
    assert receiver.door.close() == {}


def test_stream_that_is_broken_off_ends_its_tasks(receiver: Receiver) -> None:
    with pytest.raises(StagingError):
        send_for_ever(receiver.writer(), lambda: receiver.door.break_off(TimeoutError("too old")))
    assert str(receiver.door.error) == "too old"


def test_rows_for_another_machine_are_encrypted_and_a_task_believes_one_certificate_alone() -> None:
    receiver = Receiver("127.0.0.2")
    writer, (_, of_another) = receiver.writer(), make_server_context()
    with pytest.raises(StagingError, match="certificate verify failed"):
        send_for_ever(replace(writer, certificate=of_another))
    # A task that speaks in the clear is a stranger.
    with pytest.raises(StagingError):
        send_for_ever(replace(writer, certificate=""))
    with socket.create_connection((writer.host, writer.port)) as plain, suppress(ConnectionResetError):
        plain.sendall(bytes(100))
        assert plain.recv(4096)[:1] == TLS_ALERT
    with writer.open(1) as write:
        write(ROWS)
    assert receiver.door.close() == {1: 50_000}


def test_negative_control_on_loopback_a_task_hears_the_door_in_the_clear() -> None:
    receiver = Receiver("127.0.0.1")
    with receiver.connect() as plain:
        assert not isinstance(plain, ssl.SSLSocket)
        assert len(plain.recv(32)) == 32
    receiver.door.close()


def test_door_takes_the_next_port_of_its_range_and_says_if_none_is_free() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        taken = other.getsockname()[1]
        with pytest.raises(OSError, match="in use"):
            Door(print, StreamAddress(ports=(taken, taken)))
        door = Door(print, StreamAddress(ports=(taken, min(taken + 50, 65_535))))
        assert taken < door.writer(partial(CopyRows, 7)).port <= taken + 50
        door.close()


def test_stranger_who_sends_a_byte_now_and_then_is_hung_up_on_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(door_module, "_KNOCK_SECONDS", 1.0)
    receiver = Receiver("127.0.0.1")
    with receiver.connect() as stranger, suppress(ConnectionError):
        stranger.recv(32)
        began_at, sent = monotonic(), 0
        while select.select([stranger], [], [], 0.2) == ([], [], []) and sent < 70:
            stranger.sendall(b"x")
            sent += 1
        assert stranger.recv(1) == b""
        assert sent < 70, monotonic() - began_at
    receiver.door.close()


def test_tasks_that_have_proved_the_secret_take_no_place_of_those_that_have_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(door_module, "_MOST_STRANGERS", 1)
    receiver = Receiver("127.0.0.1")
    with ExitStack() as tasks:
        for number in range(3):
            tasks.enter_context(receiver.writer().open(number))
    assert receiver.door.close() == {0: 0, 1: 0, 2: 0}
