"""The services of one test run: real ones, on free ports, started once and only when a test asks for them.

With several workers each has services of its own, so that a file may kill, fill or stop what it likes; all tests of
the stack's Airflow, whose four components are the most expensive, are one worker's.

Airflow reads its settings when it is first imported, so they are written when this file is loaded.
"""

import json
import os
import shutil
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import astuple, dataclass
from operator import itemgetter
from pathlib import Path
from typing import Any
from uuid import uuid4

import psutil
import psycopg
import pytest
from hypothesis import settings
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from xdist.scheduler import LoadScopeScheduling

from batchledger.local.stack import environment, local_stack, schema_registry
from batchledger.local.stack.airflow_components import configure_airflow
from batchledger.local.stack.defaults import DATABASE_SUPERUSER, LEDGER_USER, WAREHOUSE_DATABASE
from batchledger.local.stack.home import Credentials, Home, Ports
from batchledger.local.stack.kafka_broker import client_options
from batchledger.local.stack.machine import NEVER_EPHEMERAL, choose_free_ports
from batchledger.local.stack.postgres_server import connection_string
from tests.chromium import browser, open_page, pictures  # noqa: F401 -- fixtures
from tests.endpoints import Mailbox, Webhook, connect_mail, connect_webhook, serve_mail, serve_webhook
from tests.runner import create_runner, log_in_as_runner
from tests.support import Workplace

ROOT = Path(__file__).resolve().parents[1]
RUNS = ROOT / ".local" / "test"
IS_WORKER = "PYTEST_XDIST_WORKER" in os.environ
SHORT_RUN_SECONDS = 300
DURATIONS = ROOT / ".local" / "durations"


class FileByFile(LoadScopeScheduling):
    """Gives each worker one file after the other; a free worker gets the next one."""

    def _split_scope(self, nodeid: str) -> str:
        path = nodeid.partition("::")[0]
        return "tests/e2e" if path.startswith("tests/e2e/") else path


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> FileByFile:
    """See xdist."""
    return FileByFile(config, log)


@dataclass(frozen=True)
class TestServices:
    """The stack of this run."""

    __test__ = False

    home: Home
    ports: Ports
    credentials: Credentials

    def up(self, *services: str) -> None:
        """Start what is missing of the services."""
        from batchledger.ledger.grants import set_up_ledger

        local_stack.up(self.home, self.ports, services=services, set_up_ledger=set_up_ledger)
        if "postgres" in services:
            create_runner(
                connection_string(self.ports, self.credentials, WAREHOUSE_DATABASE, LEDGER_USER), self.credentials
            )
        log_in_as_runner(self.home)


def prepare_services() -> TestServices:
    """Write Airflow's settings into a folder of this run, and sweep up what killed runs have left in theirs."""
    for left in find_left():
        end_services(left)
        shutil.rmtree(left)
    # Servers that live for minutes do not earn what the second compiler of Java costs: nearly a third of all CPU.
    os.environ.setdefault("JAVA_TOOL_OPTIONS", "-XX:TieredStopAtLevel=1")
    # As often as a person's scheduler looks, it would take a sixth of a core for as long as Airflow runs.
    os.environ.setdefault("AIRFLOW__SCHEDULER__SCHEDULER_IDLE_SLEEP_TIME", "0.5")
    home = home_in(RUNS / f"run-{os.getpid()}")
    home.pipelines.mkdir(parents=True)
    services = TestServices(home, choose_ports(), Credentials.of(home))
    configure_airflow(home, services.ports, services.credentials)
    log_in_as_runner(home)
    os.environ.update(environment(home))
    return services


def home_in(folder: Path) -> Home:
    """The stack that lives there, with the downloads of all."""
    return Home(root=ROOT, local=folder, cache=ROOT / ".local" / "cache", pipelines=folder / "pipelines")


def find_left() -> list[Path]:
    """The folders of runs that are over; a worker leaves them to the process that has started it."""
    folders = [] if IS_WORKER else RUNS.glob("run-*")
    return [each for each in folders if not psutil.pid_exists(int(each.name.removeprefix("run-")))]


def end_services(folder: Path) -> None:
    """End what runs of the stack of a run, and of those that its tests have made below it."""
    for place in ("lock", "*/lock", "*/*/lock"):
        for lock in folder.glob(place):
            local_stack.down(home_in(lock.parent))


_CHOSEN: set[int] = set()


def choose_ports() -> Ports:
    """Free ports that no other test chooses, although services that start late leave theirs free for long.

    Only a torture in a process of its own does not know of them.
    """
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    of_worker = NEVER_EPHEMERAL[worker :: int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))]
    ports = choose_free_ports([port for port in of_worker if port not in _CHOSEN])
    _CHOSEN.update(astuple(ports))
    return ports


SERVICES = prepare_services()

# How long an example takes says how busy the machine is, and nothing of the code.
settings.register_profile("no stopwatch", deadline=None)
settings.load_profile("no stopwatch")


PROOF = ("browser", "e2e", "faults", "integration")
"""Folders that `make test` leaves to `make proof`, apart from tests that are marked ``always``."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark what belongs to the proof: these folders, and the state machine if it needs a server.

    Other tests may carry the mark themselves. ``BATCHLEDGER_PROOF_PART=1/2``: every second file, from the first on.
    """
    for item in items:
        folder = item.path.relative_to(ROOT / "tests").parts[0]
        on_server = folder == "machine" and "warehouse_dsn" in getattr(item, "fixturenames", ())
        if (folder in PROOF or on_server) and item.get_closest_marker("always") is None:
            item.add_marker("proof")
    if part := os.environ.get("BATCHLEDGER_PROOF_PART"):
        number, parts = map(int, part.split("/"))
        files = [*dict.fromkeys(item.path for item in items if item.get_closest_marker("proof"))]
        chosen = {*files[number - 1 :: parts]}
        config.hook.pytest_deselected(items=[item for item in items if item.path not in chosen])
        items[:] = [item for item in items if item.path in chosen]


@pytest.fixture(autouse=True)
def process_of_airflow() -> Iterator[None]:
    """Forget how a command that ran within a test has called this process to Airflow: the next test is no command."""
    yield
    os.environ.pop("_AIRFLOW_PROCESS_CONTEXT", None)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """End what runs, also of a worker that was killed or could not do it itself. Logs stay if a test failed."""
    for folder in (SERVICES.home.local, *find_left()):
        end_services(folder)
    if session.testsfailed == 0:
        shutil.rmtree(SERVICES.home.local)


@dataclass(frozen=True)
class FailuresAtOnce:
    """Names each failure when it happens: a run of an hour that is ended early would not come to its summary."""

    terminal: pytest.TerminalReporter

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """See pytest."""
        if report.failed:
            crash = getattr(report.longrepr, "reprcrash", None)
            said = f"FAILED {report.nodeid} ({report.when}) - {crash and crash.message}"[:500]
            self.terminal.write(f"\n{said}\n", red=True)


def pytest_sessionstart(session: pytest.Session) -> None:
    """Add what tells of failures to the process that shows them."""
    if not IS_WORKER:
        reporter = session.config.pluginmanager.getplugin("terminalreporter")
        session.config.pluginmanager.register(FailuresAtOnce(reporter))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Keep how long each file and test took: seconds of its worker, with the services that it was first to ask for.

    A run of a part keeps nothing. `.ci/run` prints the head of the two lists.
    """
    half = {"proof": "proof.txt", "not proof": "test.txt"}.get(config.option.markexpr)
    by_file, by_test = defaultdict[str, float](float), defaultdict[str, float](float)
    for reports in terminalreporter.stats.values():
        for report in reports:
            if isinstance(report, pytest.TestReport):
                by_file[report.nodeid.partition("::")[0]] += report.duration
                by_test[report.nodeid] += report.duration
    if half is not None and sum(by_file.values()) > SHORT_RUN_SECONDS:
        lines = [
            f"{taken:6.0f} s {name}"
            for seconds in (by_file, by_test)
            for name, taken in sorted(seconds.items(), key=itemgetter(1), reverse=True)
        ]
        DURATIONS.mkdir(parents=True, exist_ok=True)
        (DURATIONS / half).write_text("\n".join(lines))
        terminalreporter.section("slowest files")
        terminalreporter.write_line("\n".join(lines[: min(20, len(by_file))]))


@pytest.fixture(scope="session")
def services() -> TestServices:
    """The stack; nothing of it runs until a fixture below asks for it."""
    return SERVICES


@dataclass(frozen=True)
class Kafka:
    """A real broker."""

    ports: Ports
    credentials: Credentials

    @property
    def options(self) -> dict[str, str]:
        """What a librdkafka client needs."""
        return client_options(self.ports, self.credentials)


@pytest.fixture(scope="session")
def kafka(services: TestServices) -> Kafka:
    """A real broker."""
    services.up("kafka")
    return Kafka(services.ports, services.credentials)


@pytest.fixture(scope="session")
def warehouse_dsn(services: TestServices) -> str:
    """A real PostgreSQL with the ledger migrated, for the ledger's owner."""
    services.up("postgres")
    return connection_string(services.ports, services.credentials, WAREHOUSE_DATABASE, LEDGER_USER)


@pytest.fixture
def open_lake(kafka: Kafka, warehouse_dsn: str, tmp_path: Path) -> Iterator[Callable[..., Any]]:
    """See ``lend_lakes``."""
    from tests.watched_lake import lend_lakes

    yield from lend_lakes(kafka, warehouse_dsn, tmp_path)


def as_superuser(dsn: str, credentials: Credentials = SERVICES.credentials) -> str:
    """The same database for what its owner may not do: make roles and databases, change settings of the server."""
    return make_conninfo(dsn, user=DATABASE_SUPERUSER, password=credentials.database_superuser_password)


@contextmanager
def lend_database(dsn: str) -> Iterator[str]:
    """Lend the connection string of an empty database, which the role of ``dsn`` owns; it goes afterwards."""
    name, owner = f"ledger_{uuid4().hex[:12]}", str(conninfo_to_dict(dsn)["user"])
    with psycopg.connect(as_superuser(dsn), autocommit=True) as connection:
        database = sql.Identifier(name)
        connection.execute(sql.SQL("create database {} owner {}").format(database, sql.Identifier(owner)))
        try:
            yield make_conninfo(dsn, dbname=name)
        finally:
            connection.execute(sql.SQL("drop database {} with (force)").format(database))


@pytest.fixture(scope="session")
def spark(services: TestServices) -> None:
    """A real Spark Connect server, reached by the connection ``spark_default``."""
    services.up("spark")


@pytest.fixture(scope="session")
def registry_url(services: TestServices) -> str:
    """A real schema registry, reached by the connection ``registry_default``: where clients of its protocol ask."""
    services.up("registry")
    return schema_registry.registry_url(services.ports)


@contextmanager
def open_workplace(kafka_options: Mapping[str, str], dsn: str = "") -> Iterator[Workplace]:
    """A workplace without a database unless ``dsn`` says one; a later test finds no pipeline file of it."""
    of_others = {*SERVICES.home.pipelines.glob("*.yaml")}
    try:
        yield Workplace(kafka_options, dsn, SERVICES.home.pipelines)
    finally:
        for path in {*SERVICES.home.pipelines.glob("*.yaml")} - of_others:
            path.unlink()


@pytest.fixture
def workplace(kafka: Kafka, warehouse_dsn: str, spark: None) -> Iterator[Workplace]:
    """Everything that a pipeline needs, apart from Airflow, which shall not have the files of all tests to read."""
    with open_workplace(kafka.options, warehouse_dsn) as opened:
        yield opened


@pytest.fixture
def webhook(monkeypatch: pytest.MonkeyPatch) -> Iterator[Webhook]:
    """A real endpoint behind connection ``ops``."""
    with serve_webhook() as endpoint:
        connect_webhook(monkeypatch, "ops", endpoint.url)
        yield endpoint


@pytest.fixture
def mailbox(monkeypatch: pytest.MonkeyPatch) -> Iterator[Mailbox]:
    """A real mail server behind connection ``mail``."""
    with serve_mail() as endpoint:
        connect_mail(monkeypatch, "mail", endpoint.port)
        yield endpoint


@pytest.fixture
def spark_local(services: TestServices, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    """A connection of type ``spark``. The job needs no jars."""
    settings = {"spark.driver.host": "127.0.0.1", "spark.ui.enabled": "false"}
    (tmp_path / "spark-defaults.conf").write_text("".join(f"{key} {value}\n" for key, value in settings.items()))
    monkeypatch.setenv("TZ", "America/New_York")  # A timestamp without a zone means UTC, whatever the machine's is.
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    monkeypatch.setenv("SPARK_CONNECT_MODE_ENABLED", "1")  # As in a process that has used Spark Connect before.
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_LOCAL", json.dumps({"conn_type": "spark", "host": "local[2]"}))
    return "spark_local"
