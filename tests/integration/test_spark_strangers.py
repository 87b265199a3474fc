"""Jobs carry the password of the warehouse to Spark's tasks: no stranger gets it from the ports of the server.

Nor does a stranger make the server start Python workers.
"""

import os
import secrets
import socket
import stat
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import psutil
import pyarrow as pa
import pytest

from batchledger.local.stack import local_stack, processes
from batchledger.local.stack.home import Credentials, Home, Ports
from batchledger.local.stack.machine import HOST
from batchledger.local.stack.processes import ServiceRecord
from batchledger.local.stack.spark_connect import remote, spark_service
from batchledger.source.spark.session import open_connect_session
from tests.conftest import ROOT, SERVICES, TestServices, choose_ports
from tests.strangers import fetch_block, is_open
from tests.support import wait_until


def list_inner_ports(home: Home, ports: Ports) -> set[int]:
    """The ports of the server apart from the one for clients, which asks for a token."""
    record = ServiceRecord.read(home, "spark")
    assert record is not None
    connections = psutil.Process(record.pid).net_connections("inet")
    inner = {each.laddr.port for each in connections if each.status == psutil.CONN_LISTEN} - {ports.spark}
    assert len(inner) >= 2  # The driver's and the block manager's.
    return inner


def find_daemons(home: Home) -> list[psutil.Process]:
    """The processes of the server that Python workers are forked from."""
    record = ServiceRecord.read(home, "spark")
    assert record is not None
    return list(filter(is_daemon, psutil.Process(record.pid).children()))


def is_daemon(process: psutil.Process) -> bool:
    """Whether workers are forked from it; a process that has just ended has no command line any more."""
    with suppress(psutil.NoSuchProcess):
        return "batchledger.jobs.python_workers" in process.cmdline()
    return False


@pytest.mark.usefixtures("spark")
def test_stranger_may_ask_no_port_of_the_spark_server_for_blocks(services: TestServices) -> None:
    """S141."""
    assert not any(map(is_open, list_inner_ports(services.home, services.ports)))


@pytest.fixture(scope="module")
def open_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Home, Ports]]:
    """A server like the stack's own with two protections less: no secret, and workers start from a port."""
    local, ports = tmp_path_factory.mktemp("open"), choose_ports()
    home = Home(root=ROOT, local=local, cache=SERVICES.home.cache, pipelines=local)
    service = spark_service(home, ports, Credentials.of(home))
    launch = service.prepare()
    with (launch.folder / "spark-defaults.conf").open("a") as settings:
        settings.write("spark.authenticate false\nspark.python.unix.domain.socket.enabled false\n")
    record = processes.start(home, service.name, launch)
    try:
        wait_until(lambda: service.is_healthy(record), service.silence_seconds)
        yield home, ports
    finally:
        local_stack.down(home)


def test_server_that_asks_for_no_secret_hands_out_the_password_of_a_running_job(
    open_server: tuple[Home, Ports], tmp_path: Path
) -> None:
    """Negative control."""
    home, ports = open_server
    password, gate = secrets.token_urlsafe(), tmp_path / "gate"
    os.mkfifo(gate)

    def wait(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        assert password
        with gate.open():
            yield from batches

    url = f"{remote(ports)}/;token={Credentials.of(home).spark_token}"
    with open_connect_session(url, "any") as session, ThreadPoolExecutor(1) as pool:
        job = pool.submit(session.range(0, 1, 1, 1).mapInArrow(wait, "id long").count)
        with gate.open("w"):  # Opens when the task runs, and lets it go on when the block ends.
            (port,) = filter(is_open, list_inner_ports(home, ports))
            blocks = [fetch_block(port, f"broadcast_{number}_piece0") for number in range(20)]
        assert job.result(60) == 1
    # Blocks are compressed, which may cut the password where a few of its characters stand elsewhere, too.
    parts = [password[start : start + 10].encode() for start in range(0, 40, 10)]
    assert any(part in each for part in parts for each in blocks)


@pytest.mark.usefixtures("spark")
def test_stranger_cannot_connect_to_what_python_workers_are_forked_from(services: TestServices) -> None:
    url = f"{remote(services.ports)}/;token={Credentials.of(services.home).spark_token}"
    with open_connect_session(url, "any") as session:
        assert session.range(1).mapInArrow(lambda batches: batches, "id long").count() == 1
    daemons = find_daemons(services.home)
    assert daemons
    for daemon in daemons:
        assert not daemon.net_connections("inet")
        (file,) = {each.laddr for each in daemon.net_connections("unix") if each.laddr}
        assert not Path(file).stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO)


def test_negative_control_on_a_port_each_connection_forks_a_worker(open_server: tuple[Home, Ports]) -> None:
    home, ports = open_server
    url = f"{remote(ports)}/;token={Credentials.of(home).spark_token}"
    with open_connect_session(url, "any") as session:
        assert session.range(1).mapInArrow(lambda batches: batches, "id long").count() == 1
    daemon, *_ = find_daemons(home)
    (port,) = {each.laddr.port for each in daemon.net_connections("inet") if each.status == psutil.CONN_LISTEN}
    before = len(daemon.children())
    with socket.create_connection((HOST, port)), socket.create_connection((HOST, port)):
        wait_until(lambda: len(daemon.children()) == before + 2, 30)
