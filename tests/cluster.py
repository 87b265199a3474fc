"""A Spark standalone cluster of a test module's own: a master, two workers, a Spark Connect server that runs on them.

Each is a process of its own, as on machines of their own. An executor and its Python workers belong to the worker that
has started them. What Spark did is read from its event log.
"""

import json
import secrets
import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import psutil

from batchledger.local.stack import local_stack, processes
from batchledger.local.stack.connections import list_connections
from batchledger.local.stack.defaults import SPARK_CONNECTION
from batchledger.local.stack.home import Credentials, Home, Ports, write_private
from batchledger.local.stack.jars import pyspark_folder
from batchledger.local.stack.machine import HOST
from batchledger.local.stack.processes import Launch
from batchledger.local.stack.service import base_environment
from batchledger.local.stack.spark_connect import spark_service
from tests.conftest import SERVICES, choose_ports
from tests.support import wait_until

WORKERS = ("worker-1", "worker-2")
START_SECONDS = 90
JAVA_OPTIONS = "-XX:-UsePerfData -XX:+UseSerialGC -XX:TieredStopAtLevel=1"
"""For processes that live for a minute: half the processor time to start, of which there is little."""


@dataclass(frozen=True)
class TaskRun:
    """One attempt of a task: ``reason`` says how it ended, in Spark's word."""

    attempt_id: int
    partition: int
    executor: str
    reason: str

    @property
    def has_succeeded(self) -> bool:
        """Whether Spark accepted its result."""
        return self.reason == "Success"


@dataclass(frozen=True)
class Cluster:
    """The processes, and what Spark tells of them. ``ports.kafka`` is the master's: no broker is in this stack.

    ``host`` is where master and driver listen. ``elsewhere`` begins the command of a worker that is on another machine,
    and ``worker_host`` is where it is then.
    """

    home: Home
    ports: Ports
    host: str = HOST
    worker_host: str = HOST
    elsewhere: tuple[str, ...] = ()
    secret: str = field(default_factory=secrets.token_urlsafe, repr=False)

    @contextmanager
    def connected(self, **extra: str) -> Iterator[None]:
        """Let the Airflow connection of the tests' own stack lead to this Spark Connect server for the block."""
        file = SERVICES.home.connections_file
        before = file.read_text()
        server = list_connections(self.home, self.ports, Credentials.of(self.home))[SPARK_CONNECTION]
        server = {**server, "extra": {**server.get("extra", {}), **extra}}
        write_private(file, json.dumps(json.loads(before) | {SPARK_CONNECTION: server}))
        try:
            yield
        finally:
            write_private(file, before)

    def up(self) -> None:
        """Start everything; return when the server answers and each worker has an executor."""
        local_stack.up(self.home, self.ports, services=())
        server = spark_service(self.home, self.ports, Credentials.of(self.home))
        launch = server.prepare()
        self._configure()
        master = ("--host", self.host, "--port", str(self.ports.kafka), "--webui-port", "0")
        processes.start(self.home, "master", self._launch("master.Master", *master))
        record = processes.start(self.home, server.name, launch)
        self.start(*WORKERS)
        wait_until(lambda: server.is_healthy(record), START_SECONDS)

    def start(self, *workers: str) -> None:
        """Start these workers if they are down; return when every worker that is up has an executor."""
        for worker in workers:
            if not self._find_processes(worker):
                options = ("--host", self.worker_host, "--webui-port", "0", "--cores", "1", "--memory", "600m")
                folder = str(self.home.local / worker)
                launch = self._launch("worker.Worker", *options, "--work-dir", folder, self._master, elsewhere=True)
                processes.start(self.home, worker, launch)
        self._wait_for_executors()

    def kill(self, *workers: str) -> None:
        """End workers with their executors and Python processes by SIGKILL; return when Spark has noticed."""

        def find() -> list[psutil.Process]:
            return [each for worker in workers for each in self._find_processes(worker)]

        processes.stop(find, deadline_seconds=30, first_signal=signal.SIGKILL)
        self._wait_for_executors()

    def list_executors(self) -> set[str]:
        """The executors that Spark knows of, by id."""
        events = self._read_events()
        added = {each["Executor ID"] for each in events if each["Event"] == "SparkListenerExecutorAdded"}
        return added - {each["Executor ID"] for each in events if each["Event"] == "SparkListenerExecutorRemoved"}

    def find_executor(self, worker: str) -> str:
        """The id of the executor that the worker has started."""
        (command,) = (line for each in self._find_processes(worker) if "--executor-id" in (line := each.cmdline()))
        return command[command.index("--executor-id") + 1]

    def list_task_runs(self, since: int) -> list[TaskRun]:
        """Every attempt of every task of job number ``since`` and of those after it; returns when they are over."""
        wait_until(lambda: self._count("JobEnd") == self._count("JobStart") > since)
        events = self._read_events()
        jobs = [each for each in events if each["Event"] == "SparkListenerJobStart" and each["Job ID"] >= since]
        stages = {stage for each in jobs for stage in each["Stage IDs"]}
        return [
            TaskRun(info["Task ID"], info["Index"], info["Executor ID"], each["Task End Reason"]["Reason"])
            for each in events
            if each["Event"] == "SparkListenerTaskEnd" and each["Stage ID"] in stages
            for info in [each["Task Info"]]
        ]

    def count_jobs(self) -> int:
        """How many jobs Spark has started; the next one has this number."""
        return self._count("JobStart")

    def _wait_for_executors(self) -> None:
        """Return when Spark has an executor for each worker that is up, and no other."""
        running = sum(bool(self._find_processes(worker)) for worker in WORKERS)
        wait_until(lambda: len(self.list_executors()) == running, START_SECONDS)

    @property
    def _master(self) -> str:
        return f"spark://{self.host}:{self.ports.kafka}"

    @property
    def _folder(self) -> Path:
        """Where the stack keeps the configuration of its Spark server."""
        return self.home.local / "spark"

    def _configure(self) -> None:
        """Add the cluster to the configuration that the stack has written for a server without one.

        Master and workers read the same file. It holds their common secret.
        """
        events = self._folder / "events"
        events.mkdir(parents=True)
        settings = {
            "spark.master": self._master,
            "spark.driver.host": self.host,
            "spark.driver.bindAddress": self.host,
            "spark.master.rest.enabled": "false",
            "spark.authenticate": "true",
            "spark.authenticate.secret": self.secret,
            "spark.network.crypto.enabled": "true",
            "spark.executor.cores": 1,
            "spark.executor.memory": "512m",
            "spark.driver.extraJavaOptions": JAVA_OPTIONS,
            "spark.executor.extraJavaOptions": JAVA_OPTIONS,
            "spark.eventLog.enabled": "true",
            "spark.eventLog.compress": "false",
            "spark.eventLog.rolling.enabled": "false",
            "spark.eventLog.dir": events.as_uri(),
        }
        file = self._folder / "spark-defaults.conf"
        write_private(file, file.read_text() + "".join(f"{key} {value}\n" for key, value in settings.items()))

    def _launch(self, name: str, *arguments: str, elsewhere: bool = False) -> Launch:
        spark_home = pyspark_folder()
        environment = base_environment() | {
            "SPARK_HOME": str(spark_home),
            "SPARK_CONF_DIR": str(self._folder),
            "SPARK_LOCAL_IP": self.worker_host if elsewhere else self.host,
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": JAVA_OPTIONS,
        }
        before = self.elsewhere if elsewhere else ()
        argv = (*before, str(spark_home / "bin" / "spark-class"), f"org.apache.spark.deploy.{name}", *arguments)
        return Launch(argv=argv, folder=self._folder, environment=environment)

    def _find_processes(self, service: str) -> list[psutil.Process]:
        return processes.find_members(self.home, [service])[service]

    def _count(self, event: str) -> int:
        return sum(each["Event"] == f"SparkListener{event}" for each in self._read_events())

    def read_events(self) -> bytes:
        """All that Spark has logged of its events."""
        return b"".join(file.read_bytes() for file in (self._folder / "events").iterdir())

    def _read_events(self) -> list[Mapping[str, Any]]:
        """What Spark has written so far; a line that it is still writing is left out."""
        texts = [file.read_text() for file in (self._folder / "events").iterdir()]
        return [json.loads(line) for text in texts for line in text.splitlines(keepends=True) if line.endswith("\n")]


@contextmanager
def standalone_cluster(**places: Any) -> Iterator[Cluster]:
    """A running cluster on ports and in a folder of its own; ended with the block. ``places`` as for ``Cluster``."""
    home = replace(SERVICES.home, local=SERVICES.home.local / "cluster")
    cluster = Cluster(home, choose_ports(), **places)
    try:
        cluster.up()
        yield cluster
    finally:
        local_stack.down(home)
