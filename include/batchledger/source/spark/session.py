"""Spark sessions with bounded waits: over Spark Connect to a warm server, or classic inside spark-submit.

A Connect session keeps its id from batch to batch, and all pipelines of one connection share it, so that the Python
workers of the server stay warm (a new session costs 3.3 s before its first row). A session that was closed can never
be opened again under its id; then the next generation of the id is used.
"""

import logging
import os
import re
import socket
import sys
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import cast
from urllib.parse import urlsplit

import grpc
from pyspark.errors import PySparkException
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession
from pyspark.sql.connect.client import SparkConnectClient
from pyspark.sql.connect.client.retries import DefaultPolicy
from pyspark.sql.connect.logging import logger as client_logger
from pyspark.sql.connect.session import SparkSession as ConnectSession

from batchledger.model.errors import ServiceUnavailableError
from batchledger.model.tls_files import TlsFiles
from batchledger.source.spark import LOG_SETTINGS
from batchledger.source.spark.call_deadline import CALL_TIMEOUT_SECONDS, CallDeadline
from batchledger.source.spark.channel import CertifiedChannelBuilder, explain_refusal
from batchledger.source.spark.starvation import STARVED_SECONDS, StarvationWatch

logger = logging.getLogger(__name__)

CONNECT_TIMEOUT_SECONDS = 5.0
SESSION_GENERATIONS = 8

_NAMESPACE = uuid.UUID("6ba7b812-9dad-11d1-80b4-00c04fd430c8")  # RFC 9562, name space OID


@contextmanager
def open_connect_session(
    url: str,
    name: str,
    call_timeout_seconds: float = CALL_TIMEOUT_SECONDS,
    starved_seconds: float = STARVED_SECONDS,
    tls: TlsFiles | None = None,
) -> Iterator[SparkSession]:
    """Open the session that ``name`` keeps on the server at ``url``; leave it open on the server afterwards.

    Every call to the server ends within ``call_timeout_seconds``; a job may take longer, unless none of its tasks has
    run for ``starved_seconds``. Raises ServiceUnavailableError when the server does not answer, AccessRefusedError when
    one side does not believe the other, ConfigurationError when a file of ``tls`` cannot be used; a later call then
    raises PySparkException.
    """
    _require_listener(url)
    _keep_answers_out_of_logs()
    session = _open_kept_session(url, name, CallDeadline(call_timeout_seconds), tls or TlsFiles())
    session.registerProgressHandler(StarvationWatch(starved_seconds))
    try:
        yield session
    finally:
        _leave(session)


@contextmanager
def open_submitted_session(name: str, settings: Mapping[str, str] = MappingProxyType({})) -> Iterator[SparkSession]:
    """Open the session of the spark-submit process that this code runs in; stop it afterwards.

    Its workers keep values of records out of their errors (``jobs.python_workers``).
    """
    # A parent process that has used Spark Connect marks its environment so, and a child would wait for a remote.
    os.environ.pop("SPARK_CONNECT_MODE_ENABLED", None)
    _keep_answers_out_of_logs()
    workers = "batchledger.jobs.python_workers"
    builder = SparkSession.builder.appName(name).config(map=dict(settings))
    session = builder.config("spark.python.daemon.module", workers).getOrCreate()
    try:
        yield session
    finally:
        session.stop()


@contextmanager
def open_local_session(name: str, folder: str) -> Iterator[SparkSession]:
    """Open a session of one core in this process, which listens on no other address than its own machine's."""
    os.environ |= {
        "LOG4J_CONFIGURATION_FILE": str(LOG_SETTINGS),
        "PYSPARK_PYTHON": sys.executable,
        # Its workers find what this process finds, such as the module of a transform.
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    settings = {
        # It does not live long enough to earn what the second compiler of Java costs: 3 s of 16 s.
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
        "spark.master": "local[1]",
        "spark.sql.shuffle.partitions": "1",
        "spark.sql.warehouse.dir": folder,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    logger.info("Spark starts in this process for the transform. That takes some seconds.")
    with open_submitted_session(name, settings) as session:
        yield session


def count_slots(session: SparkSession) -> int:
    """Return how many tasks Spark means to run side by side: one a core, unless ``leafNodeDefaultParallelism`` is set.

    Spark Connect shows that in a plan only: ``Range (0, 1, step=1, splits=8)``. Returns 1 if the plan does not say.
    """
    ((plan,),) = session.sql("explain select id from range(1)").collect()
    found = re.search(r"splits=(\d+)", plan)
    return int(found[1]) if found else 1


def _open_kept_session(url: str, name: str, deadline: CallDeadline, tls: TlsFiles) -> SparkSession:
    for generation in range(SESSION_GENERATIONS):
        session = _connect(url, uuid.uuid5(_NAMESPACE, f"batchledger/{name}/{generation}"), deadline, tls)
        try:
            # The first request tells whether the server still knows the id as open.
            _ = session.version
        except (PySparkException, grpc.RpcError) as error:
            _leave(session)
            if "INVALID_HANDLE" not in str(error):
                raise explain_refusal(error, _address(url)) from error
        else:
            return session
    return _connect(url, uuid.uuid4(), deadline, tls)


def _connect(url: str, session_id: uuid.UUID, deadline: CallDeadline, tls: TlsFiles) -> SparkSession:
    channel = CertifiedChannelBuilder(f"{url};session_id={session_id}", tls)
    channel.add_interceptor(deadline)
    # The builder without a channel does the same; otherwise pyspark.sql.functions would look for a classic session.
    os.environ["SPARK_CONNECT_MODE_ENABLED"] = "1"
    session = cast("SparkSession", ConnectSession.builder.channelBuilder(channel).create())
    # Spark's default waits for ten minutes; Airflow's own retries are the better place to wait.
    _client(session).set_retry_policies([DefaultPolicy(max_retries=2, initial_backoff=100, max_backoff=2000)])
    return session


def _leave(session: SparkSession) -> None:
    """Close the connection; the session stays open on the server, warm for the next batch."""
    session.release_session_on_close = False  # type: ignore[attr-defined]
    session.stop()
    # Its finaliser would close the client once more, in any thread in which the garbage collector runs, and has waited
    # there for ever for a thread that waited for it.
    session._client = None  # type: ignore[attr-defined]


def _client(session: SparkSession) -> SparkConnectClient:
    """Return the client, which the class that both kinds of session share does not declare."""
    return cast("SparkConnectClient", session.client)  # type: ignore[operator]


def _keep_answers_out_of_logs() -> None:
    """Let no logger of Spark's client print an error of the server, which may quote a value.

    ``pyspark.errors`` prints each error of an expression. Its own kind of logger takes more than Python's would.
    """
    printers = map(PySparkLogger.getLogger, ("DataFrameQueryContextLogger", "SQLQueryContextLogger"))
    for logger in (client_logger, *printers):
        logger.addFilter(_holds_no_answer)


def _holds_no_answer(record: logging.LogRecord) -> bool:
    """Whether Spark's client logs something else than an error of the server."""
    return record.exc_info is None


def _require_listener(url: str) -> None:
    parts = urlsplit(url)
    try:
        socket.create_connection((parts.hostname or "", parts.port or 15002), CONNECT_TIMEOUT_SECONDS).close()
    except OSError as error:
        raise ServiceUnavailableError(
            f"Spark Connect at {_address(url)} does not answer. Nothing was done.",
            why=f"{error}.",
            advice="Run it again when the server is up; batchledger status shows the local one.",
            subject=_address(url),
        ) from error


def _address(url: str) -> str:
    """Host and port only: the rest of the URL carries the token."""
    parts = urlsplit(url)
    return f"{parts.hostname}:{parts.port or 15002}"
