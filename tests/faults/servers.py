"""A service of a test module's own, to be killed and restarted without disturbing anybody else's work."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import psutil

from batchledger.ledger.grants import set_up_ledger
from batchledger.local.stack import local_stack, processes
from batchledger.local.stack.home import Home, Ports
from batchledger.local.stack.processes import ServiceRecord
from tests.conftest import SERVICES, choose_ports


@dataclass(frozen=True)
class Server:
    """One service; ``gentle`` is the signal by which its operator ends it."""

    home: Home
    ports: Ports
    service: str
    gentle: signal.Signals

    def up(self) -> None:
        """Start it if it is down."""
        local_stack.up(self.home, self.ports, services=[self.service], set_up_ledger=set_up_ledger)

    def stop(self) -> None:
        """End it in the way of its operator; every session ends."""
        leader = self._leader
        os.kill(leader.pid, self.gentle)
        leader.wait(30)

    def crash(self) -> None:
        """End every process of it by SIGKILL; none is left afterwards."""
        processes.stop(self.find_processes, deadline_seconds=30, first_signal=signal.SIGKILL)

    def kill(self) -> None:
        """Crash it, so that it has to recover; then start it again."""
        self.crash()
        self.up()

    def find_processes(self) -> list[psutil.Process]:
        """Its living processes, parents first."""
        return processes.find_members(self.home, [self.service])[self.service]

    def restart(self) -> None:
        """Stop it, then start it again."""
        self.stop()
        self.up()

    @property
    def _leader(self) -> psutil.Process:
        record = ServiceRecord.read(self.home, self.service)
        assert record is not None
        return psutil.Process(record.pid)


@contextmanager
def server_of_its_own(service: str, gentle: signal.Signals) -> Iterator[Server]:
    """A running service on ports and in a folder of its own; ended with the block."""
    home = replace(SERVICES.home, local=SERVICES.home.local / f"faulty-{service}")
    server = Server(home, choose_ports(), service, gentle)
    server.up()
    try:
        yield server
    finally:
        local_stack.down(home)
