"""A stack for torture alone: its services, the proxy before two of them, and ways to kill, crash and restart each.

The stack has its own folders and ports, so it does not touch the stack that people work with. All clients reach Kafka
and PostgreSQL through the proxy, except the services themselves. The checker reaches PostgreSQL directly; but the
broker sends every client to the proxy, so the checker reads Kafka only while the proxy lets everything through.
"""

import dataclasses
import fcntl
import os
import shutil
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import psycopg
import yaml
from confluent_kafka import TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    ResourceType,
)
from psycopg import sql

from batchledger.ledger.grants import set_up_ledger
from batchledger.local.airflow_api import AirflowAccount, AirflowApi, open_airflow
from batchledger.local.samples.admin import KEEP_FOREVER, ensure_topic
from batchledger.local.stack import environment, local_stack, processes
from batchledger.local.stack.airflow_components import ADMIN, airflow_url
from batchledger.local.stack.defaults import DATABASE_SUPERUSER, DATABASE_USER, LEDGER_USER, WAREHOUSE_DATABASE
from batchledger.local.stack.home import Credentials, Home, Ports
from batchledger.local.stack.kafka_broker import client_options
from batchledger.local.stack.machine import choose_free_ports
from batchledger.local.stack.postgres_server import connection_string
from batchledger.local.torture.proxy import Link, run_proxy
from batchledger.local.torture.records import SCHEMA
from batchledger.local.torture.schedule import SinkKind, Way
from batchledger.model.errors import SetupError

_SERVICES = ("kafka", "postgres", "spark")
_STOP_SECONDS = 20.0
# Airflow notices a killed task soon, instead of after five minutes.
_AIRFLOW_NOTICES_DEATHS = {
    "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_SEC": "2",
    "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT": "15",
    "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT_DETECTION_INTERVAL": "5",
}

Say = Callable[[str], None]
"""Takes a few words about what is being done now."""


@dataclass(frozen=True)
class Rig:
    """The running stack. ``ports`` are the ports of the services, ``advertised`` the ports for clients."""

    home: Home
    ports: Ports
    advertised: Ports
    credentials: Credentials
    link_by_way: Mapping[Way, Link] = field(repr=False)
    say: Say = field(repr=False)

    @property
    def kafka_options(self) -> dict[str, str]:
        """For clients: through the proxy."""
        return client_options(self.advertised, self.credentials)

    @property
    def dsn(self) -> str:
        """The warehouse, not through the proxy: for the checker, and to plan a fault."""
        return connection_string(self.ports, self.credentials, WAREHOUSE_DATABASE)

    @property
    def owner_dsn(self) -> str:
        """The same for the owner of the ledger: to switch a protection off."""
        return connection_string(self.ports, self.credentials, WAREHOUSE_DATABASE, LEDGER_USER)

    @property
    def superuser_dsn(self) -> str:
        """The same for who may change the database."""
        return connection_string(self.ports, self.credentials, WAREHOUSE_DATABASE, DATABASE_SUPERUSER)

    @property
    def lake_properties(self) -> dict[str, str]:
        """PyIceberg's settings for the catalog of Iceberg tables, not through the proxy: for the checker."""
        host = f"127.0.0.1:{self.ports.postgres}/{WAREHOUSE_DATABASE}"
        user = f"{DATABASE_USER}:{self.credentials.database_password}"
        return {
            "type": "sql",
            "uri": f"postgresql+psycopg://{user}@{host}",
            "warehouse": self.home.lake.as_uri(),
        }

    def start(self, *services: str) -> None:
        """Start the services that do not run, and wait until they answer."""
        self.say(f"starting {', '.join(services)}")
        local_stack.up(
            self.home, self.ports, services=services, set_up_ledger=set_up_ledger, advertised=self.advertised
        )

    def start_missing(self) -> None:
        """Start the services that have ended, and that every batch needs."""
        records = {name: processes.ServiceRecord.read(self.home, name) for name in _SERVICES}
        missing = [name for name, record in records.items() if record is None or not record.is_alive]
        if missing:
            self.start(*missing)

    def kill(self, service: str) -> None:
        """Send SIGKILL to every process of a service at once."""
        self.say(f"killing {service}")
        for process in self.members(service):
            send_signal(process, signal.SIGKILL)
        processes.stop(lambda: self.members(service), deadline_seconds=0)

    def pause(self, service: str, seconds: float) -> bool:
        """Send SIGSTOP to every process of a service, and SIGCONT so many seconds later; whether there was one."""
        self.say(f"pausing {service}")
        stopped = self.members(service)
        for process in stopped:
            send_signal(process, signal.SIGSTOP)
        time.sleep(seconds)
        for process in stopped:
            send_signal(process, signal.SIGCONT)
        return bool(stopped)

    def restart(self, service: str) -> bool:
        """Shut a service down in order, then start it; whether it ended in time.

        PostgreSQL's fast shutdown breaks every connection and needs no recovery.
        """
        self.say(f"restarting {service}")
        record = processes.ServiceRecord.read(self.home, service)
        leader = record.leader if record else None
        has_stopped = False
        if leader is not None:
            send_signal(leader, signal.SIGINT if service == "postgres" else signal.SIGTERM)
            gone, _ = psutil.wait_procs([leader], timeout=_STOP_SECONDS)
            has_stopped = bool(gone)
        processes.stop(lambda: self.members(service), deadline_seconds=2)
        self.start(service)
        return has_stopped

    def track_commits(self) -> None:
        """Let PostgreSQL note when each transaction became visible, for the checker."""
        with psycopg.connect(self.superuser_dsn, autocommit=True) as connection:
            connection.execute("alter system set track_commit_timestamp = on")
        self.restart("postgres")

    def members(self, service: str) -> list[psutil.Process]:
        """The living processes of a service."""
        return processes.find_members(self.home, local_stack.ALL_SERVICES)[service]

    def descendants(self, service: str) -> list[psutil.Process]:
        """The descendants of a service's first process: quicker to find than all members."""
        record = processes.ServiceRecord.read(self.home, service)
        leader = record.leader if record else None
        return leader.children(recursive=True) if leader else []

    def heal_network(self) -> None:
        """Let everything through again."""
        for link in self.link_by_way.values():
            link.heal()

    @contextmanager
    def airflow(self) -> Iterator[AirflowApi]:
        """Start Airflow and log in; stop it afterwards, because it needs a good part of a small machine."""
        self.start(*local_stack.AIRFLOW_SERVICES)
        account = AirflowAccount(airflow_url(self.ports), ADMIN, self.home.airflow_password_file)
        try:
            with open_airflow(account) as api:
                yield api
        finally:
            self.say("stopping Airflow")
            processes.stop(self._airflow_members, deadline_seconds=4)

    def _airflow_members(self) -> list[psutil.Process]:
        found = processes.find_members(self.home, local_stack.ALL_SERVICES)
        return [process for name in local_stack.AIRFLOW_SERVICES for process in found[name]]

    def create_pipeline(self, name: str, mode: str, partitions: int, sink: SinkKind) -> None:
        """Create a topic and write the pipeline file that reads it, both of that name."""
        # By default, brokers refuse timestamps that are far from now.
        bounds = ("message.timestamp.before.max.ms", "message.timestamp.after.max.ms")
        any_time = dict.fromkeys(bounds, str(2**63 - 1))
        ensure_topic(self.kafka_options, name, partitions, {**KEEP_FOREVER, **any_time})
        content: dict[str, Any] = {
            "name": name,
            "source": {"topics": [name], "schema": SCHEMA, "holes": "transactional"},
            "sink": _describe_sink(name, sink),
            "delivery": mode,
            "limits": {"max_records": 150},
            # Poison may be most of a batch.
            "quarantine": {"max_share": 1},
        }
        (self.home.pipelines / f"{name}.yaml").write_text(yaml.safe_dump(content))

    def add_partition(self, topic: str, total: int) -> None:
        """Grow a topic to ``total`` partitions."""
        client = AdminClient({**self.kafka_options})
        client.create_partitions([NewPartitions(topic, total)])[topic].result(30)
        ensure_topic(self.kafka_options, topic, total, {})

    def expire(self, topic: str, first_kept_by_partition: Mapping[int, int]) -> None:
        """Remove the beginning of partitions, as retention does."""
        client = AdminClient({**self.kafka_options})
        doomed = [TopicPartition(topic, partition, offset) for partition, offset in first_kept_by_partition.items()]
        for future in client.delete_records(doomed).values():
            future.result(30)

    def refuse_large_keys(self, pipeline: str, sink: SinkKind, *, is_refused: bool) -> None:
        """Let the target refuse keys of 700 kB from now on, or take them; an Iceberg table always takes them."""
        match sink:
            case SinkKind.POSTGRES:
                index = sql.Identifier(f"{pipeline}_key")
                table = sql.Identifier(pipeline)
                with psycopg.connect(self.dsn, autocommit=True) as connection:
                    if not is_refused:
                        connection.execute(sql.SQL("drop index {}").format(index))
                        return
                    # An earlier poison is there already.
                    ((newest,),) = connection.execute(sql.SQL("select max(_batch_id) from {}").format(table)).fetchall()
                    create = sql.SQL("create index {} on {} (record_key) where _batch_id > {}")
                    connection.execute(create.format(index, table, sql.Literal(newest)))
            case SinkKind.KAFKA:
                size = 2**20 if is_refused else 2**23
                change = ConfigEntry("max.message.bytes", str(size), incremental_operation=AlterConfigOpType.SET)
                resource = ConfigResource(ResourceType.TOPIC, output_topic(pipeline), incremental_configs=[change])
                client = AdminClient({**self.kafka_options})
                client.incremental_alter_configs([resource])[resource].result(30)
            case SinkKind.ICEBERG:
                pass

    def count_deaths(self, pipeline: str) -> int:
        """How many of the pipeline's records lie in quarantine because they have ended their decoder."""
        with psycopg.connect(self.dsn) as connection:
            query = "select count(*) from batchledger.quarantine where pipeline = %s and error like '%%by SIGSEGV%%'"
            return int(connection.execute(query, [pipeline]).fetchall()[0][0])

    def find_blocked(self, pipeline: str) -> tuple[int, int] | None:
        """The pipeline's batch that waits for a person, and the number of its attempts, from the ledger."""
        with psycopg.connect(self.dsn) as connection:
            query = "select batch_id, attempt from batchledger.batch where pipeline = %s and state = 'blocked'"
            return connection.execute(query, [pipeline]).fetchone()

    def count_batches(self, pipeline: str) -> int:
        """How many batches the pipeline has published, from the ledger."""
        with psycopg.connect(self.dsn) as connection:
            query = "select count(*) from batchledger.batch where pipeline = %s and state = 'published'"
            return int(connection.execute(query, [pipeline]).fetchall()[0][0])

    def attempted_state(self, pipeline: str) -> str | None:
        """The state of the newest batch with an attempt, from the ledger."""
        with psycopg.connect(self.dsn) as connection:
            query = (
                "select state from batchledger.batch where pipeline = %s and attempt > 0 order by batch_id desc limit 1"
            )
            found = connection.execute(query, [pipeline]).fetchone()
            return found[0] if found else None

    def published_offsets(self, pipeline: str) -> dict[int, int]:
        """The next offset of each partition, from the ledger; only to plan what may expire."""
        with psycopg.connect(self.dsn) as connection:
            query = "select partition, next_offset from batchledger.position where pipeline = %s"
            return dict(connection.execute(query, [pipeline]).fetchall())


LAKE_NAMESPACE = "torture"
"""The namespace of the Iceberg tables that rows go to."""


def output_topic(pipeline: str) -> str:
    """The topic that a pipeline with a topic sink writes to."""
    return f"{pipeline}-out"


def _describe_sink(name: str, sink: SinkKind) -> dict[str, Any]:
    match sink:
        case SinkKind.POSTGRES:
            return {"table": name}
        case SinkKind.KAFKA:
            return {"type": "kafka", "topic": output_topic(name), "key": ["record_key"]}
        case SinkKind.ICEBERG:
            return {"type": "iceberg", "table": f"{LAKE_NAMESPACE}.{name}"}


@contextmanager
def build_rig(home: Home, say: Say) -> Iterator[Rig]:
    """Start a stack in an emptied folder for the length of the block, and end every process of it afterwards.

    The environment of this process then belongs to that stack. Raises SetupError if another torture uses the folder.
    """
    with _alone(home):
        say("ending what an earlier run has left")
        local_stack.down(home)
        _empty(home.local)
        home.pipelines.mkdir(parents=True)
        ports, advertised = choose_free_ports(), choose_free_ports()
        advertised = dataclasses.replace(ports, kafka=advertised.kafka, postgres=advertised.postgres)
        temporary = home.local / "tmp"
        temporary.mkdir()
        # A killed process cannot clean up after itself.
        os.environ.update(environment(home) | _AIRFLOW_NOTICES_DEATHS | {"TMPDIR": str(temporary)})
        target_by_port = {advertised.kafka: ports.kafka, advertised.postgres: ports.postgres}
        try:
            with run_proxy(target_by_port) as (kafka, warehouse):
                links = {Way.KAFKA: kafka, Way.WAREHOUSE: warehouse}
                rig = Rig(home, ports, advertised, Credentials.of(home), links, say)
                rig.start("postgres")
                rig.track_commits()
                rig.start(*_SERVICES)
                yield rig
        finally:
            say("ending the services")
            local_stack.down(home)


@contextmanager
def _alone(home: Home) -> Iterator[None]:
    """Hold the folder's lock; it ends with the process that holds it."""
    home.local.mkdir(parents=True, exist_ok=True)
    with (home.local / "torture.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise SetupError(
                f"Another torture is at work in {home.local}. Nothing was started.",
                advice="Wait for it, or set BATCHLEDGER_LOCAL to another folder.",
            ) from None
        yield


def _empty(folder: Path) -> None:
    """Remove everything but the locks and the programs of PostgreSQL, which take a while to unpack."""
    for each in folder.iterdir():
        if each.name in ("torture.lock", "lock"):
            continue
        if each.is_symlink() or each.is_file():
            each.unlink()
        else:
            shutil.rmtree(each)


def send_signal(process: psutil.Process, number: int) -> None:
    """Send a signal to a process that may be gone."""
    try:
        process.send_signal(number)
    except psutil.NoSuchProcess:
        return
