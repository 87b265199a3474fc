"""What runs, its addresses and its memory. Asks, changes nothing."""

import dataclasses
import enum
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import psutil

from batchledger.local.stack import processes
from batchledger.local.stack.airflow_components import ADMIN, airflow_url
from batchledger.local.stack.defaults import KAFKA_USER, WAREHOUSE_DATABASE
from batchledger.local.stack.home import Credentials, Home, Ports
from batchledger.local.stack.kafka_broker import bootstrap_servers
from batchledger.local.stack.local_stack import REGISTRY_SERVICE, list_services
from batchledger.local.stack.postgres_server import public_dsn
from batchledger.local.stack.processes import ServiceRecord
from batchledger.local.stack.schema_registry import registry_url
from batchledger.local.stack.service import Service
from batchledger.local.stack.spark_connect import remote


class ServiceState(enum.StrEnum):
    """RUNNING: it answers. SILENT: its process lives and does not answer (yet). STOPPED: its process is gone."""

    RUNNING = "running"
    SILENT = "silent"
    STOPPED = "stopped"


@dataclass(frozen=True)
class ServiceStatus:
    """One service as found. ``memory_bytes`` is the proportional share (PSS) of all its processes."""

    name: str
    state: ServiceState
    pid: int | None
    port: int | None
    processes: int
    memory_bytes: int


@dataclass(frozen=True)
class StackStatus:
    """The services and how to reach them."""

    services: tuple[ServiceStatus, ...]
    kafka: dict[str, str]
    warehouse: dict[str, str]
    spark: dict[str, str]
    airflow: dict[str, str]
    registry: dict[str, str]
    """Empty if it was not started."""


def look_at_stack(home: Home, ports: Ports) -> StackStatus:
    """Look at every service, started or not. No password is in the result, only the files that hold them."""
    credentials = Credentials.of(home) if home.settings_file.exists() else Credentials()
    services = [each for each in list_services(home, ports, credentials) if _is_wanted(home, each.name)]
    members = processes.find_members(home, [service.name for service in services])
    with ThreadPoolExecutor(len(services)) as pool:
        found = pool.map(lambda service: _look_at(home, ports, service, members[service.name]), services)
    return StackStatus(
        services=tuple(found),
        kafka={
            "bootstrap_servers": bootstrap_servers(ports),
            "user": KAFKA_USER,
            "login_file": str(home.kafka_login_file),
        },
        warehouse={
            "dsn": public_dsn(home, ports, WAREHOUSE_DATABASE),
            "password_file": str(home.database_password_file),
        },
        spark={"remote": remote(ports)},
        airflow={"url": airflow_url(ports), "user": ADMIN, "password_file": str(home.airflow_password_file)},
        registry={"url": registry_url(ports)} if _is_wanted(home, REGISTRY_SERVICE) else {},
    )


def _is_wanted(home: Home, service: str) -> bool:
    """Whether a service belongs to this stack: the registry does from its start until ``down``."""
    return service != REGISTRY_SERVICE or ServiceRecord.read(home, service) is not None


def _look_at(home: Home, ports: Ports, service: Service, members: list[psutil.Process]) -> ServiceStatus:
    record = ServiceRecord.read(home, service.name)
    if record is None or not record.is_alive:
        record, state = None, ServiceState.STOPPED
    else:
        state = ServiceState.RUNNING if service.is_healthy(record) else ServiceState.SILENT
    return ServiceStatus(
        name=service.name,
        state=state,
        pid=record.pid if record else None,
        port=dataclasses.asdict(ports)[service.ports[0]] if service.ports else None,
        processes=len(members),
        memory_bytes=sum(map(_memory_bytes, members)),
    )


def _memory_bytes(process: psutil.Process) -> int:
    """Count shared pages by their share if the system gives it (Linux); otherwise count unique pages only."""
    try:
        memory = process.memory_full_info()
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        return 0
    return int(getattr(memory, "pss", memory.uss))
