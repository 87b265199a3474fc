"""The Spark Connect server: one local JVM, so that each batch finds a warm session and warm Python workers."""

import os
import socket
import sys
from collections.abc import Sequence
from pathlib import Path

from batchledger.local.stack.home import Credentials, Home, Ports, private_folder, write_private
from batchledger.local.stack.jars import fetch_jars, pyspark_folder
from batchledger.local.stack.machine import HOST, find_java
from batchledger.local.stack.processes import Launch
from batchledger.local.stack.service import Service, base_environment
from batchledger.source.spark import LOG_SETTINGS

_SERVER_CLASS = "org.apache.spark.sql.connect.service.SparkConnectServer"
_SETTINGS_FRAME = b"\4"
_HTTP2_GREETING = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0" + _SETTINGS_FRAME + b"\0\0\0\0\0"
_REDACTED_WORDS = "secret|password|passwd|token|access[.]?key"

_KEPT_BYTES = 128 << 20

JAVA_OPTIONS = "-XX:-UsePerfData -XX:G1PeriodicGCInterval=30000"


def spark_service(home: Home, ports: Ports, credentials: Credentials) -> Service:
    """The server; it is healthy when it speaks HTTP/2, which it does once its Spark context is up."""
    return Service(
        name="spark",
        ports=("spark",),
        prepare=lambda: _prepare(home, ports, credentials),
        is_healthy=lambda _: _answers(ports),
        silence_seconds=90,
    )


def remote(ports: Ports) -> str:
    """The address without the token. pyspark sends a token in the clear only to a host that is literally localhost."""
    return f"sc://localhost:{ports.spark}"


def spark_defaults(home: Home, ports: Ports, jars: Sequence[Path]) -> str:
    """The server's configuration: one JVM for all cores of this machine, reachable from here only, secrets redacted."""
    folder = home.local / "spark"
    settings = {
        # Two tasks a core: at one moment a task works in Python or in the database.
        "spark.master": f"local[{2 * (os.cpu_count() or 1)}]",
        "spark.app.name": "batchledger",
        "spark.driver.memory": "1g",
        "spark.driver.bindAddress": HOST,
        "spark.driver.host": HOST,
        "spark.driver.extraClassPath": os.pathsep.join(map(str, jars)),
        "spark.driver.extraJavaOptions": JAVA_OPTIONS,
        "spark.connect.grpc.binding.address": HOST,
        "spark.connect.grpc.binding.port": ports.spark,
        # Tasks carry passwords. Spark makes the secret anew at each start, and keeps it in its memory.
        "spark.authenticate": "true",
        "spark.ui.enabled": "false",
        "spark.local.dir": folder / "tmp",
        "spark.sql.warehouse.dir": folder / "warehouse",
        "spark.sql.session.timeZone": "UTC",
        "spark.python.worker.reuse": "true",
        "spark.python.daemon.module": "batchledger.jobs.python_workers",
        # On a port, each connection makes it fork a worker. The server's umask keeps the socket to its own account.
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.redaction.regex": f"(?i){_REDACTED_WORDS}",
        "spark.sql.redaction.options.regex": f"(?i)url|{_REDACTED_WORDS}",
    }
    return "".join(f"{key} {value}\n" for key, value in settings.items())


def _prepare(home: Home, ports: Ports, credentials: Credentials) -> Launch:
    folder = private_folder(home.local / "spark")
    write_private(folder / "spark-defaults.conf", spark_defaults(home, ports, fetch_jars(home, "spark")))
    write_private(folder / "log4j2.properties", LOG_SETTINGS.read_text())
    spark_home = _link_home(folder / "home")
    find_java()
    environment = base_environment() | {
        "SPARK_HOME": str(spark_home),
        "SPARK_CONF_DIR": str(folder),
        "SPARK_LOCAL_IP": HOST,
        "SPARK_CONNECT_AUTHENTICATE_TOKEN": credentials.spark_token,
        "PYSPARK_PYTHON": sys.executable,
        # In each of many threads, the allocators of C and of pyarrow would keep what was freed. What two arenas keep
        # spares page faults, a fifth of a worker's time.
        "MALLOC_ARENA_MAX": "2",
        "MALLOC_MMAP_THRESHOLD_": str(_KEPT_BYTES),
        "MALLOC_TRIM_THRESHOLD_": str(_KEPT_BYTES),
        "MALLOC_TOP_PAD_": str(_KEPT_BYTES),
        "MIMALLOC_PURGE_DELAY": "10000",
    }
    argv = (str(spark_home / "bin" / "spark-submit"), "--class", _SERVER_CLASS)
    return Launch(argv=argv, folder=folder, environment=environment)


def _link_home(folder: Path) -> Path:
    """Return a home of Spark without ``python/lib/pyspark.zip``, so that Python workers import the installed pyspark.

    Before each task a worker clears Python's caches of folders. Python then reads the zip file again for each of its
    packages: 0.1 s of CPU a task.
    """
    private_folder(folder)
    for name in ("bin", "jars"):
        link = folder / name
        link.unlink(missing_ok=True)
        link.symlink_to(pyspark_folder() / name)
    return folder


def _answers(ports: Ports) -> bool:
    """Whether an HTTP/2 server answers, as gRPC needs. The gRPC library itself does not work well with forks."""
    try:
        with socket.create_connection((HOST, ports.spark), timeout=1.0) as connection:
            connection.sendall(_HTTP2_GREETING)
            return connection.recv(9)[3:4] == _SETTINGS_FRAME
    except OSError:
        return False
