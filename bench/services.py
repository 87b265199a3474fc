"""The services of one bench: real ones on free ports, in a folder that is emptied before and after."""

import os
import shutil
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from batchledger.ledger.grants import set_up_ledger
from batchledger.local.airflow_api import AirflowAccount, AirflowApi, open_airflow
from batchledger.local.stack import environment, local_stack
from batchledger.local.stack.airflow_components import ADMIN, airflow_url
from batchledger.local.stack.defaults import DATABASE_SUPERUSER, WAREHOUSE_DATABASE
from batchledger.local.stack.home import Credentials, Home, Ports
from batchledger.local.stack.kafka_broker import client_options
from batchledger.local.stack.machine import choose_free_ports
from batchledger.local.stack.postgres_server import connection_string
from batchledger.local.stack.schema_registry import registry_url

ROOT = Path(__file__).resolve().parents[1]
DATA_PATH = ("kafka", "postgres", "spark")


@dataclass(frozen=True)
class Services:
    """Where they are."""

    home: Home
    ports: Ports
    kafka_options: dict[str, str] = field(repr=False)
    dsn: str = field(repr=False)
    superuser_dsn: str = field(repr=False)
    """The same database, for checkpoints, for databases of one part alone, and for made-up histories."""

    @contextmanager
    def airflow(self) -> Iterator[AirflowApi]:
        """Lend Airflow, which runs during the block only, because it takes a part of a core."""
        with self._beside(local_stack.AIRFLOW_SERVICES):
            account = AirflowAccount(airflow_url(self.ports), ADMIN, self.home.airflow_password_file)
            with open_airflow(account) as api:
                yield api

    @contextmanager
    def registry(self) -> Iterator[str]:
        """Lend a schema registry by its address. It runs during the block only, because it takes memory."""
        with self._beside([local_stack.REGISTRY_SERVICE]):
            yield registry_url(self.ports)

    @contextmanager
    def _beside(self, names: Collection[str]) -> Iterator[None]:
        """Run more services during the block."""
        local_stack.up(self.home, self.ports, services=names)
        try:
            yield
        finally:
            local_stack.down(self.home)
            local_stack.up(self.home, self.ports, services=DATA_PATH)


@contextmanager
def run_services() -> Iterator[Services]:
    """Start Kafka, PostgreSQL and Spark for the length of the block; this process gets their environment."""
    local = ROOT / ".local" / "bench"
    home = Home(root=ROOT, local=local, cache=ROOT / ".local" / "cache", pipelines=local / "pipelines")
    local_stack.down(home)
    shutil.rmtree(local, ignore_errors=True)
    home.pipelines.mkdir(parents=True)
    ports, credentials = choose_free_ports(), Credentials.of(home)
    os.environ.update(environment(home))
    try:
        local_stack.up(home, ports, services=DATA_PATH, set_up_ledger=set_up_ledger)
        dsn = connection_string(ports, credentials, WAREHOUSE_DATABASE)
        superuser_dsn = connection_string(ports, credentials, WAREHOUSE_DATABASE, DATABASE_SUPERUSER)
        yield Services(home, ports, client_options(ports, credentials), dsn, superuser_dsn)
    finally:
        local_stack.down(home)
        shutil.rmtree(local, ignore_errors=True)
