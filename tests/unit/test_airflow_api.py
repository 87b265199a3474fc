"""A busy Airflow answers late: a question is asked again, an order is not."""

import threading
from collections.abc import Iterator
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx
import pytest
from typing_extensions import override

from batchledger.local.airflow_api import TRIES, AirflowApi
from batchledger.model.errors import ServiceUnavailableError

RUNS = b'{"dag_runs": []}'


class BusyServer(ThreadingHTTPServer):
    """Leaves the first ``late`` requests without an answer until the test is over."""

    late: int
    is_over = threading.Event()
    asked: list[str]


class _Handler(BaseHTTPRequestHandler):
    server: BusyServer

    def do_GET(self) -> None:
        self.server.asked.append(self.command)
        if len(self.server.asked) <= self.server.late:
            self.server.is_over.wait()
            return
        self.send_response(200)
        self.send_header("Content-Length", str(len(RUNS)))
        self.end_headers()
        self.wfile.write(RUNS)

    def do_POST(self) -> None:
        self.do_GET()

    @override
    def log_message(self, *_: object) -> None:
        """Print nothing."""


@pytest.fixture
def server() -> Iterator[BusyServer]:
    with BusyServer(("127.0.0.1", 0), _Handler) as busy:
        busy.asked, busy.late, busy.is_over = [], 0, threading.Event()
        threading.Thread(target=busy.serve_forever, daemon=True).start()
        yield busy
        busy.is_over.set()
        busy.shutdown()


@pytest.fixture
def api(server: BusyServer) -> Iterator[AirflowApi]:
    url = f"http://127.0.0.1:{server.server_port}"
    with closing(httpx.Client(base_url=url, timeout=0.2, trust_env=False)) as client:
        yield AirflowApi(url, client)


def test_question_that_is_not_answered_in_time_is_asked_again(api: AirflowApi, server: BusyServer) -> None:
    server.late = TRIES - 1
    assert api.list_runs("flights") == []
    assert server.asked == ["GET"] * TRIES


def test_airflow_that_never_answers_in_time_is_said_to_go_on(api: AirflowApi, server: BusyServer) -> None:
    server.late = TRIES
    with pytest.raises(ServiceUnavailableError) as late:
        api.list_runs("flights")
    assert "Run the same command again" in late.value.advice
    assert server.asked == ["GET"] * TRIES


def test_order_is_given_once(api: AirflowApi, server: BusyServer) -> None:
    server.late = 1
    with pytest.raises(ServiceUnavailableError):
        api.trigger("flights")
    assert server.asked == ["POST"]
