"""Start, stop and find all local services. Their order and dependencies are written here only."""

import contextlib
import dataclasses
import functools
import json
import signal
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed

import psutil

from batchledger.local.stack import log_keeper, processes
from batchledger.local.stack.airflow_components import airflow_services, configure_airflow, migrate_airflow
from batchledger.local.stack.database_roles import create_databases
from batchledger.local.stack.defaults import DATABASE_USER, LEDGER_USER, WAREHOUSE_DATABASE
from batchledger.local.stack.home import (
    Credentials,
    Home,
    Ports,
    locked,
    private_folder,
    read_settings,
    settings,
    write_private,
)
from batchledger.local.stack.kafka_broker import kafka_service
from batchledger.local.stack.machine import check_disk, check_ports
from batchledger.local.stack.patience import StartPatience
from batchledger.local.stack.postgres_server import connection_string, database_server, postgres_service
from batchledger.local.stack.processes import Launch, ServiceRecord, find_error, measure_log, tail_log
from batchledger.local.stack.schema_registry import registry_service
from batchledger.local.stack.service import Service
from batchledger.local.stack.spark_connect import spark_service
from batchledger.model.errors import ServiceUnavailableError, SetupError

AIRFLOW_SERVICES = ("api-server", "scheduler", "dag-processor", "triggerer")
LOG_KEEPER = "log-keeper"
USUAL_SERVICES = (LOG_KEEPER, "kafka", "postgres", "spark", *AIRFLOW_SERVICES)
REGISTRY_SERVICE = "registry"
ALL_SERVICES = (*USUAL_SERVICES, REGISTRY_SERVICE)
"""The registry starts only when asked for: it costs memory, and a download of 106 MB."""

# In the order of starting. A step runs as soon as the steps that it needs are done, if these run at all.
_NEEDS: Mapping[str, tuple[str, ...]] = {
    LOG_KEEPER: (),
    "kafka": (),
    "postgres": (),
    "spark": (),
    REGISTRY_SERVICE: (),
    "databases": ("postgres",),
    "airflow-database": ("databases",),
    **dict.fromkeys(AIRFLOW_SERVICES, ("airflow-database",)),
}
_POLL_SECONDS = 0.2

Step = Callable[[threading.Event], None]
SetUpLedger = Callable[[str, bytes, str], object]
Progress = Callable[[str, str], None]
"""Takes the name of a step and its state: ``starting``, ``ready``, or a sentence about what it waits for.

Several threads call it.
"""


def list_services(home: Home, ports: Ports, credentials: Credentials, advertised: Ports | None = None) -> list[Service]:
    """Every service of the stack, started or not; nothing is written or asked. See ``up`` for ``advertised``."""
    return [
        kafka_service(home, ports, credentials, advertised),
        postgres_service(home, ports, credentials),
        spark_service(home, ports, credentials),
        *airflow_services(home, ports),
        registry_service(home, ports),
        Service(LOG_KEEPER, (), lambda: _keep_logs(home), lambda record: record.is_alive),
    ]


def up(
    home: Home,
    ports: Ports,
    *,
    services: Collection[str] = USUAL_SERVICES,
    set_up_ledger: SetUpLedger = lambda _dsn, _secret, _role: None,
    progress: Progress = lambda _name, _state: None,
    advertised: Ports | None = None,
) -> None:
    """Start the services that do not run, and return when all are healthy; harmless to repeat.

    ``advertised`` are the ports for clients, if something stands between them and the services.
    ``set_up_ledger`` gets the connection string of the ledger's owner, the secret of keys, and the role of pipelines,
    as soon as the warehouse answers. Raises SetupError if the machine lacks something, and ServiceUnavailableError if a
    service ends, or is silent long before it is healthy. What has been started by then keeps running until ``down``.
    """
    with _alone(home):
        _refuse_other_settings(home, ports)
        credentials = Credentials.of(home)
        chosen = [
            service for service in list_services(home, ports, credentials, advertised) if service.name in services
        ]
        missing = [service for service in chosen if not _is_running(home, service.name)]
        if missing:
            names = [service.name for service in missing]
            processes.stop(lambda: _members(home, names), deadline_seconds=2)
            check_disk(home)
            check_ports([port for service in missing for port in service.ports], dataclasses.asdict(ports))
        write_private(home.settings_file, json.dumps(settings(home, ports), indent=2))
        configure_airflow(home, ports, credentials, advertised)
        steps: dict[str, Step] = {
            service.name: functools.partial(_start, home, service, progress) for service in chosen
        }
        if "postgres" in services:
            steps["databases"] = lambda _: _prepare_databases(ports, credentials, set_up_ledger)
        if not set(services).isdisjoint(AIRFLOW_SERVICES):
            steps["airflow-database"] = lambda _: migrate_airflow(home, ports, credentials)
        _run_steps({name: steps[name] for name in _NEEDS if name in steps}, progress)


def down(home: Home) -> list[str]:
    """End every process of this stack, the users of a service before it; return what was running.

    Raises ServiceUnavailableError if a process survives even SIGKILL.
    """
    with _alone(home):
        found = processes.find_members(home, ALL_SERVICES)
        _end(home, [*AIRFLOW_SERVICES, ""], signal.SIGTERM, 4)
        _end(home, ["kafka", "spark", REGISTRY_SERVICE, LOG_KEEPER], signal.SIGTERM, 15)
        _end(home, ["postgres"], signal.SIGINT, 60)  # SIGINT is its fast shutdown: no wait for clients, no recovery.
        home.settings_file.unlink(missing_ok=True)
        return [name for name in ALL_SERVICES if found[name]]


def _start(home: Home, service: Service, progress: Progress, stopping: threading.Event) -> None:
    record = ServiceRecord.read(home, service.name)
    if record is None or not record.is_alive:
        record = processes.start(home, service.name, service.prepare())
    patience = StartPatience.begin(service.silence_seconds, time.monotonic(), measure_log(home, service.name))
    while not service.is_healthy(record):
        if not record.is_alive:
            raise ServiceUnavailableError(
                f"{service.name} ended while it started.", why=f"It said: {tail_log(home, service.name)}"
            )
        now = time.monotonic()
        patience = patience.listen(now, measure_log(home, service.name))
        waited = f"{service.name} has not answered for {now - patience.began:.0f} s"
        if patience.is_over(now):
            raise ServiceUnavailableError(
                f"{waited}, and its log has not gone on for {now - patience.heard_at:.0f} s.",
                why=f"Its last words: {tail_log(home, service.name)}",
                advice="Start again: batchledger down && batchledger up",
            )
        if patience.should_tell(now):
            patience = patience.tell(now)
            last, error = tail_log(home, service.name, lines=1), find_error(home, service.name)
            progress(service.name, patience.describe(service.name, now, error, last))
        if stopping.wait(_POLL_SECONDS):
            return


def _keep_logs(home: Home) -> Launch:
    """Return how the keeper of the logs is started. It is a script that imports nothing of this package."""
    tasks = home.local / "airflow" / "logs"
    argv = (sys.executable, "-I", "-S", log_keeper.__file__, str(home.local / "log"), str(tasks))
    return Launch(argv=argv, folder=private_folder(home.local / "log"), environment={})


def _prepare_databases(ports: Ports, credentials: Credentials, set_up_ledger: SetUpLedger) -> None:
    create_databases(database_server(ports, credentials))
    dsn = connection_string(ports, credentials, WAREHOUSE_DATABASE, LEDGER_USER)
    set_up_ledger(dsn, credentials.key_secret.encode(), DATABASE_USER)


def _run_steps(steps: Mapping[str, Step], progress: Progress) -> None:
    """Run each step as soon as the steps that it needs are done, side by side; the first failure stops the rest."""
    stopping = threading.Event()
    futures: dict[str, Future[None]] = {}

    def run(name: str) -> None:
        for need in _NEEDS[name]:
            if need in futures:
                futures[need].result()
        if not stopping.is_set():
            progress(name, "starting")
            steps[name](stopping)
            progress(name, "ready")

    with ThreadPoolExecutor(max_workers=len(_NEEDS)) as pool:
        try:
            for name in steps:
                futures[name] = pool.submit(run, name)
            for future in as_completed(futures.values()):
                future.result()
        finally:
            stopping.set()


def _end(home: Home, names: Sequence[str], first_signal: int, seconds: float) -> None:
    """End the services: first their leaders, which end their own children, then what is left."""
    processes.stop(lambda: _leaders(home, names), seconds, first_signal)
    processes.stop(lambda: _members(home, names), deadline_seconds=2)
    for name in names:
        processes.forget(home, name)


def _leaders(home: Home, names: Sequence[str]) -> list[psutil.Process]:
    records = [record for name in names if (record := ServiceRecord.read(home, name)) and record.is_alive]
    return [leader for record in records if (leader := record.leader)]


def _members(home: Home, names: Sequence[str]) -> list[psutil.Process]:
    found = processes.find_members(home, ALL_SERVICES)
    return [process for name in names for process in found[name]]


def _is_running(home: Home, name: str) -> bool:
    record = ServiceRecord.read(home, name)
    return record is not None and record.is_alive


def _refuse_other_settings(home: Home, ports: Ports) -> None:
    running = [name for name in ALL_SERVICES if _is_running(home, name)]
    wanted, remembered = settings(home, ports), read_settings(home.local)
    if remembered:
        # It was the only version that did not write its number down.
        remembered.setdefault("version", "0.1.0")
    differing = [f"{key} {remembered[key]}, now {wanted[key]}" for key in remembered if remembered[key] != wanted[key]]
    if running and differing:
        raise SetupError(
            f"{', '.join(running)} already run with other settings. Nothing was started.",
            why="\n".join(differing),
            advice="Stop them first: batchledger down\n"
            "Or, if variables BATCHLEDGER_... make the difference, unset them.",
        )


@contextlib.contextmanager
def _alone(home: Home) -> Iterator[None]:
    """Hold the stack's lock, so that two commands at once take turns."""
    home.local.mkdir(parents=True, exist_ok=True)
    with locked(home.local / "lock"):
        yield
