"""Every call to Spark Connect ends in bounded time, and a job may take longer than a call."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from typing import Any

import grpc
import pytest
from pyspark.errors import PySparkException

from batchledger.local.stack import local_stack, processes
from batchledger.local.stack.home import Credentials, Home
from batchledger.local.stack.spark_connect import remote, spark_service
from batchledger.model.errors import ServiceUnavailableError
from batchledger.source.spark.session import open_connect_session
from batchledger.source.spark.stager import summarise
from tests.conftest import ROOT, SERVICES, choose_ports
from tests.support import wait_until

STREAM_SECONDS = 3
JOB_SECONDS = 8


class SilentService(grpc.GenericRpcHandler):  # type: ignore[misc]
    """Takes every call and answers none until the test is over."""

    def __init__(self, is_over: Event) -> None:
        self._is_over = is_over

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Any:
        """Take whatever is called."""
        return grpc.unary_unary_rpc_method_handler(lambda _request, _context: self._is_over.wait())


@pytest.fixture
def silent_spark_url() -> Iterator[str]:
    """A gRPC server to which one can connect and which never answers a call."""
    is_over = Event()
    server = grpc.server(ThreadPoolExecutor(4), handlers=[SilentService(is_over)])
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield f"sc://localhost:{port}/"
    is_over.set()
    server.stop(grace=None).wait()


@pytest.fixture(scope="module")
def brisk_spark_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A real server of this file's own that ends each response stream after ``STREAM_SECONDS`` instead of 120."""
    local: Path = tmp_path_factory.mktemp("brisk")
    home = Home(root=ROOT, local=local, cache=SERVICES.home.cache, pipelines=local)
    ports, credentials = choose_ports(), Credentials.of(home)
    service = spark_service(home, ports, credentials)
    setting = f"-Dspark.connect.execute.reattachable.senderMaxStreamDuration={STREAM_SECONDS}s"
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("SPARK_SUBMIT_OPTS", setting)
        record = processes.start(home, service.name, service.prepare())
    try:
        wait_until(lambda: service.is_healthy(record), service.silence_seconds)
        yield f"{remote(ports)}/;token={credentials.spark_token}"
    finally:
        local_stack.down(home)


def run_job(url: str, seconds: int, call_timeout_seconds: float) -> int:
    """Run a Spark job that takes so long, return the number of its rows."""
    with open_connect_session(url, "any", call_timeout_seconds) as spark:
        job = spark.range(1).selectExpr(f"java_method('java.lang.Thread', 'sleep', {seconds * 1000}L)")
        return len(job.collect())


def test_server_that_takes_calls_and_never_answers_is_a_retryable_error(silent_spark_url: str) -> None:
    """As a server that is paused or deadlocked: one can still connect to it."""
    with (
        pytest.raises(ServiceUnavailableError, match="did not answer a call in time") as caught,
        open_connect_session(silent_spark_url, "any", call_timeout_seconds=1),
    ):
        pass
    assert caught.value.retryable


def test_job_that_takes_longer_than_a_call_may_ends_well(brisk_spark_url: str) -> None:
    """The server ends each stream before its deadline, and the client attaches again."""
    run_job(brisk_spark_url, 0, call_timeout_seconds=60)
    assert run_job(brisk_spark_url, JOB_SECONDS, call_timeout_seconds=JOB_SECONDS - 2) == 1


def test_stream_that_outlives_its_call_ends_with_an_error_that_names_the_setting(brisk_spark_url: str) -> None:
    """What a server does that is configured to keep streams for longer than a call may take."""
    run_job(brisk_spark_url, 0, call_timeout_seconds=60)
    with pytest.raises(PySparkException) as caught:
        run_job(brisk_spark_url, JOB_SECONDS, call_timeout_seconds=STREAM_SECONDS - 1)
    assert "senderMaxStreamDuration is longer" in summarise(caught.value)
