"""A network of two machines: this one, and a namespace of its own whose loopback leads to Kafka and PostgreSQL here.

`make network` runs these tests. They need root and iproute2 (`ip`, `ss`), and stop at once without.
"""

import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from uuid import uuid4

import pytest

from tests.cluster import Cluster, standalone_cluster
from tests.conftest import Kafka, TestServices
from tests.support import wait_until

HERE, THERE = "10.203.77.1", "10.203.77.2"
NO_WAY = "10.203.78.1"
"""An address of this machine to which the other one knows no way."""

# Hands on each connection to a port of another address; run in the namespace, and here.
FORWARD = """
import asyncio, sys

async def pump(reader, writer):
    try:
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()
    except OSError:
        pass
    finally:
        writer.close()

async def main(listen, target, *ports):
    async def serve(reader, writer, port):
        there = await asyncio.open_connection(target, port)
        await asyncio.gather(pump(reader, there[1]), pump(there[0], writer))

    for port in map(int, ports):
        await asyncio.start_server(lambda r, w, port=port: serve(r, w, port), listen, port)
    await asyncio.Event().wait()

asyncio.run(main(*sys.argv[1:]))
"""


@dataclass(frozen=True)
class Namespace:
    """The other machine."""

    name: str

    @property
    def prefix(self) -> tuple[str, ...]:
        """What begins a command that runs there."""
        return ("ip", "netns", "exec", self.name)

    def cut(self, port: int) -> None:
        """Reset each connection from there to that port here."""
        run(*self.prefix, "ss", "--kill", "--tcp", "--no-header", "dport", "=", f":{port}")


def run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, text=True)


@contextmanager
def open_namespace(*ports: int) -> Iterator[Namespace]:
    """Yield another machine from which these ports of this one's loopback are reached on its own loopback."""
    name = f"bl{uuid4().hex[:6]}"
    here, there = f"{name}a", f"{name}b"
    with ExitStack() as made:
        run("ip", "netns", "add", name)
        made.callback(run, "ip", "netns", "delete", name)
        run("ip", "link", "add", here, "type", "veth", "peer", "name", there, "netns", name)
        run("ip", "address", "add", f"{HERE}/30", "dev", here)
        run("ip", "address", "add", f"{NO_WAY}/32", "dev", here)
        run("ip", "link", "set", here, "up")
        inside = ("ip", "-n", name)
        run(*inside, "address", "add", f"{THERE}/30", "dev", there)
        run(*inside, "link", "set", there, "up")
        run(*inside, "link", "set", "lo", "up")
        namespace = Namespace(name)
        numbers = [str(each) for each in ports]
        for before, listen, target in (((), HERE, "127.0.0.1"), (namespace.prefix, "127.0.0.1", HERE)):
            forwarder = subprocess.Popen([*before, sys.executable, "-c", FORWARD, listen, target, *numbers])
            made.callback(forwarder.wait)
            made.callback(forwarder.kill)
        wait_until(lambda: all(is_open(HERE, each) for each in ports))
        yield namespace


def is_open(host: str, port: int) -> bool:
    with socket.socket() as asked:
        return asked.connect_ex((host, port)) == 0


@pytest.fixture(scope="session", autouse=True)
def tools() -> None:
    """Before anything is started."""
    if os.geteuid() != 0 or not all(map(shutil.which, ("ip", "ss"))):
        pytest.fail("It needs root, and iproute2: apt-get install iproute2", pytrace=False)


@pytest.fixture(scope="session")
def namespace(services: TestServices, kafka: Kafka, warehouse_dsn: str) -> Iterator[Namespace]:
    """The other machine."""
    with open_namespace(services.ports.kafka, services.ports.postgres) as opened:
        yield opened


@pytest.fixture(scope="session")
def cluster(namespace: Namespace) -> Iterator[Cluster]:
    """A Spark cluster whose workers run there."""
    with standalone_cluster(host=HERE, worker_host=THERE, elsewhere=namespace.prefix) as running:
        yield running
