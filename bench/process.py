"""A program of the bench, seen from the bench: start it, give it orders, kill it."""

import contextlib
import json
import os
import signal
import socket
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from batchledger.local.stack.kafka_broker import java_options
from batchledger.local.stack.processes import STACK_COOKIE
from bench.orders import DSN_VARIABLE, JAVA_KAFKA_VARIABLE, KAFKA_VARIABLE, PORT_VARIABLE, Done, Order
from bench.services import ROOT, Services

START_SECONDS = 180.0
ORDER_SECONDS = 3600.0
_LINES_SHOWN = 12


class ProgramEndedError(Exception):
    """The program is gone, killed or by itself, before its order was carried out."""


@dataclass
class Program:
    """A running program; ``log_file`` holds its output."""

    process: "subprocess.Popen[bytes]"
    connection: socket.socket = field(repr=False)
    lines: IO[str] = field(repr=False)
    log_file: Path

    def begin(self, order: Order) -> None:
        """Give an order and return when the program has begun with it. Raises ProgramEndedError."""
        try:
            self.lines.write(order.to_json() + "\n")
            self.lines.flush()
        except OSError as error:
            raise self._ended() from error
        self._receive("began")

    def finish(self) -> Done:
        """Wait until the order is carried out. Raises ProgramEndedError."""
        answer = self._receive("done")
        return Done(answer["seconds"], answer["seconds_by_step"])

    def carry_out(self, order: Order) -> Done:
        """Give an order and wait for its end. Raises ProgramEndedError."""
        self.begin(order)
        return self.finish()

    def kill(self) -> None:
        """Send SIGKILL to the program and all that it has started."""
        kill_group(self.process)
        self.connection.close()

    def _receive(self, state: str) -> Mapping[str, Any]:
        try:
            line = self.lines.readline()
        except OSError as error:
            raise self._ended() from error
        if not line:
            raise self._ended()
        answer: Mapping[str, Any] = json.loads(line)
        if answer["state"] != state:
            raise RuntimeError(f"expected a program that is {state}, found {answer}")
        return answer

    def _ended(self) -> ProgramEndedError:
        # The folder of the services, with this log, goes at the end of the bench.
        last = "\n".join(self.log_file.read_text(errors="replace").splitlines()[-_LINES_SHOWN:])
        return ProgramEndedError(
            f"{self.log_file.stem} ended before its order was carried out. Its last words:\n{last}"
        )


@contextmanager
def run_program(services: Services, argv: Sequence[str], name: str, **environment: str) -> Iterator[Program]:
    """Start a program and wait until it is ready; kill it at the end of the block if it still runs."""
    log_file = services.home.log_file(name)
    with socket.create_server(("127.0.0.1", 0)) as listener, log_file.open("ab") as log:
        port = listener.getsockname()[1]
        process = spawn(services, argv, log, **{PORT_VARIABLE: str(port), **environment})
        try:
            connection = _accept(listener, process, log_file)
            connection.settimeout(ORDER_SECONDS)
            program = Program(process, connection, connection.makefile("rw", encoding="utf-8"), log_file)
            program._receive("ready")
            try:
                yield program
            finally:
                connection.close()
        finally:
            kill_group(process)


def spawn(services: Services, argv: Sequence[str], log: IO[bytes], **environment: str) -> "subprocess.Popen[bytes]":
    """Start a process in a group of its own, with addresses and logins of the services in its environment."""
    addresses = {
        KAFKA_VARIABLE: json.dumps(services.kafka_options),
        JAVA_KAFKA_VARIABLE: json.dumps(java_options(services.kafka_options)),
        DSN_VARIABLE: services.dsn,
        # So the end of the stack also ends what an interrupted bench has left.
        STACK_COOKIE: str(services.home.local),
        "PYTHONPATH": os.pathsep.join([str(ROOT / "include"), str(ROOT), os.environ.get("PYTHONPATH", "")]),
    }
    return subprocess.Popen(
        argv,
        env={**os.environ, **addresses, **environment},
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )


def kill_group(process: "subprocess.Popen[bytes]") -> None:
    """Send SIGKILL to a process of ``spawn`` and all that it has started; harmless if it is over."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _accept(listener: socket.socket, process: "subprocess.Popen[bytes]", log_file: Path) -> socket.socket:
    listener.settimeout(0.2)
    waited = 0.0
    while process.poll() is None and waited < START_SECONDS:
        with contextlib.suppress(TimeoutError):
            return listener.accept()[0]
        waited += 0.2
    raise RuntimeError(f"{log_file.stem} did not start within {START_SECONDS:.0f} s, or ended; see {log_file}")
