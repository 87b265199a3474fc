"""The services of one bench: real ones on free ports, in a folder that is emptied before and after."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from batchledger.ledger.migrate import migrate
from batchledger.stack import environment, local_stack
from batchledger.stack.defaults import WAREHOUSE_DATABASE
from batchledger.stack.home import Credentials, Home
from batchledger.stack.kafka_broker import bootstrap_servers
from batchledger.stack.machine import choose_free_ports
from batchledger.stack.postgres_server import connection_string

ROOT = Path(__file__).resolve().parents[1]


@dataclass(frozen=True)
class Services:
    """Where they are."""

    home: Home
    kafka_options: dict[str, str]
    dsn: str = field(repr=False)


@contextmanager
def run_services() -> Iterator[Services]:
    """Start Kafka, PostgreSQL and Spark for the length of the block; the environment of this process is theirs."""
    local = ROOT / ".local" / "bench"
    home = Home(root=ROOT, local=local, cache=ROOT / ".local" / "cache", pipelines=local / "pipelines")
    local_stack.down(home)
    shutil.rmtree(local, ignore_errors=True)
    home.pipelines.mkdir(parents=True)
    ports, credentials = choose_free_ports(), Credentials.of(home)
    os.environ.update(environment(home))
    try:
        local_stack.up(home, ports, services=("kafka", "postgres", "spark"), migrate=migrate)
        dsn = connection_string(ports, credentials, WAREHOUSE_DATABASE)
        yield Services(home, {"bootstrap.servers": bootstrap_servers(ports)}, dsn)
    finally:
        local_stack.down(home)
        shutil.rmtree(local, ignore_errors=True)
