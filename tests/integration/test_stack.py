"""The local services, for real: started, used, killed, started again, ended. Airflow's are in the end-to-end tests."""

import json
import os
import re
import shutil
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict, fields
from importlib import metadata
from pathlib import Path

import psutil
import psycopg
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from batchledger import DISTRIBUTION
from batchledger.local.stack import local_stack, processes
from batchledger.local.stack.database_roles import OWNER_BY_DATABASE
from batchledger.local.stack.home import Credentials, Home, Ports, write_private
from batchledger.local.stack.kafka_broker import client_options
from batchledger.local.stack.postgres_server import public_dsn
from batchledger.local.stack.processes import STACK_COOKIE, ServiceRecord
from batchledger.local.stack.status import ServiceState, look_at_stack
from batchledger.model.errors import ServiceUnavailableError, SetupError
from tests.modes import STRANGER, list_open_paths, try_as
from tests.support import wait_until

SERVICES = ("log-keeper", "kafka", "postgres", "spark")


def free_ports() -> Ports:
    probes = [socket.socket() for _ in fields(Ports)]
    for probe in probes:
        probe.bind(("127.0.0.1", 0))
    numbers = [probe.getsockname()[1] for probe in probes]
    for probe in probes:
        probe.close()
    return Ports(*numbers)


def new_home(folder: Path) -> Home:
    (folder / "dags").mkdir()
    return Home(root=folder, local=folder / "local", cache=Home.of_project().cache, pipelines=folder)


def up(home: Home, ports: Ports, *services: str) -> None:
    local_stack.up(home, ports, services=services)


def remove(home: Home) -> None:
    local_stack.down(home)
    shutil.rmtree((home.local / "postgres").resolve(), ignore_errors=True)


def pids(home: Home) -> dict[str, int | None]:
    return {name: record.pid if (record := ServiceRecord.read(home, name)) else None for name in SERVICES}


def processes_of(home: Home) -> list[psutil.Process]:
    return [process for found in processes.find_members(home, local_stack.ALL_SERVICES).values() for process in found]


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Home, Ports]]:
    home, ports = new_home(tmp_path_factory.mktemp("stack")), free_ports()
    try:
        up(home, ports, *SERVICES)
        yield home, ports
    finally:
        remove(home)


@pytest.fixture
def fresh(tmp_path: Path) -> Iterator[tuple[Home, Ports]]:
    home, ports = new_home(tmp_path), free_ports()
    yield home, ports
    remove(home)


def test_every_service_does_its_work(running: tuple[Home, Ports]) -> None:
    home, ports = running
    status = look_at_stack(home, ports)
    with psycopg.connect(status.warehouse["dsn"]) as connection:
        assert connection.execute("SELECT current_setting('fsync'), current_setting('jit')").fetchone() == ("on", "off")
    producer = Producer(client_options(ports, Credentials.of(home)))
    assert producer.list_topics(timeout=10).brokers
    assert run_spark(status.spark["remote"], Credentials.of(home).spark_token) == "10"


def test_spark_refuses_a_wrong_token(running: tuple[Home, Ports]) -> None:
    """S141."""
    home, ports = running
    with pytest.raises(subprocess.CalledProcessError) as told:
        run_spark(look_at_stack(home, ports).spark["remote"], "wrong")
    assert "UNAUTHENTICATED" in told.value.stderr


def run_spark(remote: str, token: str) -> str:
    """Count in Spark's own JVM and in its Python workers, from another process: a session is global to a process."""
    program = (
        "from pyspark.sql import SparkSession\n"
        f"spark = SparkSession.builder.remote('{remote}').getOrCreate()\n"
        "print(spark.range(10).mapInArrow(lambda batches: batches, 'id long').count())\n"
    )
    environment = {**os.environ, "SPARK_CONNECT_AUTHENTICATE_TOKEN": token}
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=120)
    return done.stdout.strip()


def test_services_listen_on_the_loopback_interface_only(running: tuple[Home, Ports]) -> None:
    home, ports = running
    listening = [
        connection.laddr
        for process in processes_of(home)
        for connection in process.net_connections("inet")
        if connection.status == psutil.CONN_LISTEN
    ]
    assert {ports.kafka, ports.kafka_controller, ports.postgres, ports.spark} <= {address.port for address in listening}
    assert {address.ip.removeprefix("::ffff:") for address in listening} == {"127.0.0.1"}


def test_no_secret_is_on_a_command_line_or_in_a_log(running: tuple[Home, Ports]) -> None:
    """S141."""
    home, _ = running
    secrets = asdict(Credentials.of(home))
    assert {"database_password", "database_superuser_password", "kafka_password", "spark_token"} <= secrets.keys()
    seen = [" ".join(process.cmdline()) for process in processes_of(home)]
    seen += [log.read_text() for log in (home.local / "log").iterdir()]
    assert [name for name, secret in secrets.items() if any(secret in text for text in seen)] == []


def test_other_users_can_read_nothing_that_the_services_write(running: tuple[Home, Ports]) -> None:
    """S141."""
    home, ports = running
    run_spark(look_at_stack(home, ports).spark["remote"], Credentials.of(home).spark_token)
    assert list_open_paths(home.local, home.local / "postgres") == []


@pytest.mark.parametrize("place", ["kafka/data", "postgres/data"])
def test_file_that_other_users_can_read_is_found(running: tuple[Home, Ports], place: str) -> None:
    """Negative control."""
    home, _ = running
    leak = (home.local / place / "leak").resolve()
    leak.touch()
    try:
        for mode in (0o644, 0o640, 0o602):
            leak.chmod(mode)
            assert list_open_paths(home.local, home.local / "postgres") == [leak]
    finally:
        leak.unlink()


if os.geteuid() == 0:  # Other users cannot become a stranger. Modes are looked at for everyone above.

    def test_stranger_on_the_machine_gets_nothing_from_files_and_databases(running: tuple[Home, Ports]) -> None:
        """Two controls: a file that is open to all, and the user of the stack."""
        home, ports = running
        dsns = [public_dsn(home, ports, database, role=owner) for database, owner in OWNER_BY_DATABASE.items()]
        home.local.chmod(0o755)
        leak = home.local / "leak"
        leak.touch(0o644)
        try:
            assert try_as(STRANGER, home.local, dsns) == (["./leak"], [])
            files, logins = try_as(os.getuid(), home.local, dsns)
        finally:
            leak.unlink()
        assert {"./pgpass", "./credentials.json", "./connections.json"} <= {*files}
        assert logins == dsns
        assert try_as(STRANGER, (home.local / "postgres").resolve(), []) == ([], [])


def test_status_tells_where_everything_is(running: tuple[Home, Ports]) -> None:
    home, ports = running
    status = look_at_stack(home, ports)
    by_name = {one.name: one for one in status.services}
    assert {name: by_name[name].pid for name in SERVICES} == pids(home)
    assert {name: by_name[name].state for name in SERVICES} == dict.fromkeys(SERVICES, ServiceState.RUNNING)
    assert by_name["scheduler"].state is ServiceState.STOPPED
    assert by_name["kafka"].port == ports.kafka
    assert all(by_name[name].memory_bytes > 2**20 for name in SERVICES)
    for file in (status.warehouse["password_file"], status.kafka["login_file"]):
        assert stat.S_IMODE(Path(file).stat().st_mode) == 0o600
    assert status.kafka["bootstrap_servers"] == f"127.0.0.1:{ports.kafka}"


def test_a_second_up_changes_nothing(running: tuple[Home, Ports]) -> None:
    home, ports = running
    before = pids(home)
    up(home, ports, *SERVICES)
    assert pids(home) == before


def test_other_ports_are_refused_while_services_run(running: tuple[Home, Ports]) -> None:
    home, ports = running
    with pytest.raises(SetupError, match="already run with other settings") as refused:
        up(home, free_ports(), *SERVICES)
    assert "batchledger down" in refused.value.advice
    assert Ports.choose(home, {}) == ports


def test_services_of_another_version_are_refused_while_they_run(running: tuple[Home, Ports]) -> None:
    home, ports = running
    written = home.settings_file.read_text()
    earlier = {name: value for name, value in json.loads(written).items() if name != "version"}
    write_private(home.settings_file, json.dumps(earlier))
    try:
        with pytest.raises(SetupError, match=f"version 0.1.0, now {metadata.version(DISTRIBUTION)}") as refused:
            up(home, ports, *SERVICES)
    finally:
        write_private(home.settings_file, written)
    assert "batchledger down" in refused.value.advice


@pytest.mark.parametrize("service", SERVICES)
def test_up_starts_again_what_was_killed_and_only_that(running: tuple[Home, Ports], service: str) -> None:
    home, ports = running
    before = pids(home)
    record = ServiceRecord.read(home, service)
    assert record is not None
    os.kill(record.pid, signal.SIGKILL)
    wait_until(lambda: not record.is_alive)
    up(home, ports, *SERVICES)
    after = pids(home)
    assert {name for name in SERVICES if after[name] != before[name]} == {service}
    assert next(one for one in look_at_stack(home, ports).services if one.name == service).state is ServiceState.RUNNING


def test_broker_that_was_killed_says_in_its_log_how_far_it_is_with_its_records(fresh: tuple[Home, Ports]) -> None:
    """It answers only after it has read them all again, and what it says meanwhile is what `up` waits by."""
    home, ports = fresh
    up(home, ports, "kafka")
    options = client_options(ports, Credentials.of(home))
    admin = AdminClient(options)
    admin.create_topics([NewTopic("orders", 3, 1)])["orders"].result()
    producer = Producer(options)
    for number in range(3000):
        producer.produce("orders", str(number).encode(), partition=number % 3)
    assert producer.flush(30) == 0
    record = ServiceRecord.read(home, "kafka")
    assert record is not None
    os.kill(record.pid, signal.SIGKILL)
    wait_until(lambda: not record.is_alive)
    up(home, ports, "kafka")
    told = home.log_file("kafka").read_text()
    assert re.search(r"LogManager: Recovering \d+ logs", told)
    assert len(re.findall(r"LogLoader: .*Recovering unflushed segment", told)) >= 3
    assert len(re.findall(r"LogManager: Completed load of", told)) >= 3


def test_down_leaves_no_process_and_keeps_the_rows(fresh: tuple[Home, Ports]) -> None:
    home, ports = fresh
    up(home, ports, "postgres")
    with psycopg.connect(look_at_stack(home, ports).warehouse["dsn"]) as connection:
        connection.execute("CREATE TABLE kept AS SELECT 1")
        connection.commit()
        assert local_stack.down(home) == ["postgres"]  # A client that stays connected does not hold it up.
    assert processes_of(home) == []
    assert not any(process for process in psutil.process_iter() if carries_cookie(process, home))
    assert "database system is shut down" in home.log_file("postgres").read_text()
    assert local_stack.down(home) == []
    up(home, ports, "postgres")
    with psycopg.connect(look_at_stack(home, ports).warehouse["dsn"]) as connection:
        assert connection.execute("SELECT * FROM kept").fetchone() == (1,)


def carries_cookie(process: psutil.Process, home: Home) -> bool:
    try:
        return processes.is_alive(process) and process.environ().get(STACK_COOKIE) == str(home.local)
    except (psutil.AccessDenied, psutil.NoSuchProcess):
        return False


def test_down_ends_what_a_killed_up_and_a_killed_postmaster_left(fresh: tuple[Home, Ports]) -> None:
    home, ports = fresh
    program = (
        "from pathlib import Path\n"
        "from batchledger.local.stack import local_stack\n"
        "from batchledger.local.stack.home import Home, Ports\n"
        f"home = Home(*map(Path, {[str(home.root), str(home.local), str(home.cache), str(home.pipelines)]}))\n"
        f"local_stack.up(home, {ports}, services={SERVICES})\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    starter = subprocess.Popen([sys.executable, "-c", program], env=environment, stderr=subprocess.DEVNULL)
    wait_until(
        lambda: (record := ServiceRecord.read(home, "postgres")) and record.is_alive and len(processes_of(home)) > 4
    )
    starter.kill()
    starter.wait()
    record = ServiceRecord.read(home, "postgres")
    assert record is not None
    os.kill(record.pid, signal.SIGKILL)
    local_stack.down(home)
    assert processes_of(home) == []


def test_a_taken_port_starts_nothing(fresh: tuple[Home, Ports]) -> None:
    home, ports = fresh
    with socket.create_server(("127.0.0.1", ports.kafka)):
        with pytest.raises(SetupError, match=f"port {ports.kafka} for kafka") as refused:
            up(home, ports, *SERVICES)
        assert "set BATCHLEDGER_KAFKA_PORT" in str(refused.value)
        assert processes_of(home) == []


def test_a_service_that_ends_while_it_starts_tells_its_last_words(fresh: tuple[Home, Ports]) -> None:
    home, ports = fresh
    (home.local / "kafka" / "data").mkdir(parents=True)
    (home.local / "kafka" / "data" / "meta.properties").write_text("version=no number\n")
    with pytest.raises(ServiceUnavailableError, match=r"it started\.\nIt said: .+ \(log: .*/kafka\.log\)"):
        up(home, ports, "kafka")


def test_the_ledgers_migration_is_handed_a_warehouse_that_answers(fresh: tuple[Home, Ports]) -> None:
    home, ports = fresh
    seen = []

    def set_up_ledger(dsn: str, secret: bytes, role: str) -> None:
        assert role == "batchledger"
        assert secret.decode() == Credentials.of(home).key_secret
        with psycopg.connect(dsn) as connection:
            seen.append(connection.execute("SELECT current_database(), current_user").fetchone())

    local_stack.up(home, ports, services=["postgres"], set_up_ledger=set_up_ledger)
    assert seen == [("warehouse", "ledger")]
    assert json.loads(home.connections_file.read_text())["warehouse"]["schema"] == "warehouse"
