"""The database goes away in the middle of a batch: killed, so that it has to recover, or restarted by its operator."""

import json
import os
import signal
from collections.abc import Iterator
from dataclasses import dataclass, replace

import psutil
import pytest

from batchledger import run_batch
from batchledger.errors import BatchledgerError
from batchledger.ledger.migrate import migrate
from batchledger.stack import local_stack
from batchledger.stack.defaults import DATABASE_USER, WAREHOUSE_DATABASE
from batchledger.stack.home import Credentials, Home, Ports
from batchledger.stack.postgres_server import connection_string
from batchledger.stack.processes import Record
from tests.conftest import SERVICES, choose_free_ports
from tests.fakes.crash import Interrupt
from tests.support import TestPipeline, Workplace, wait_until

CONNECTION = "warehouse_of_faults"


@dataclass(frozen=True)
class Server:
    """A PostgreSQL of this module's own, so that nobody else's work is disturbed."""

    home: Home
    ports: Ports

    def up(self) -> None:
        """Start it."""
        local_stack.up(self.home, self.ports, services=["postgres"], migrate=migrate)

    def kill(self) -> None:
        """Crash it: the postmaster dies by SIGKILL and takes its backends with it; then it is started again."""
        leader = psutil.Process(self._pid)
        members = [leader, *leader.children(recursive=True)]
        leader.kill()
        psutil.wait_procs(members, timeout=30)
        self.up()

    def restart(self) -> None:
        """Restart it in the fast way, which ends every session."""
        leader = psutil.Process(self._pid)
        os.kill(leader.pid, signal.SIGINT)
        leader.wait(30)
        self.up()

    @property
    def _pid(self) -> int:
        record = Record.read(self.home, "postgres")
        assert record is not None
        return record.pid


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    local = SERVICES.home.local / "faulty"
    server = Server(replace(SERVICES.home, local=local), choose_free_ports())
    server.up()
    yield server
    local_stack.down(server.home)


@pytest.fixture
def pipeline(workplace: Workplace, server: Server, monkeypatch: pytest.MonkeyPatch) -> TestPipeline:
    """Thirty records wait to be published into the database of this module."""
    credentials = Credentials.of(server.home)
    connection = {
        "conn_type": "postgres", "host": "127.0.0.1", "port": server.ports.postgres, "login": DATABASE_USER,
        "password": credentials.database_password, "schema": WAREHOUSE_DATABASE,
    }  # fmt: skip
    monkeypatch.setenv(f"AIRFLOW_CONN_{CONNECTION.upper()}", json.dumps(connection))
    dsn = connection_string(server.ports, credentials, WAREHOUSE_DATABASE)
    pipeline = replace(workplace, dsn=dsn).create(sink={"connection": CONNECTION})
    pipeline.send(30)
    return pipeline


POINTS = ["plan_stored", "attempt_opened", "staging_sealed", "staged", "audited", "rows_moved", "before_commit"]


@pytest.mark.parametrize("fault", ["kill", "restart"])
@pytest.mark.parametrize("point", POINTS)
def test_database_that_goes_away_leaves_the_batch_resumable(
    pipeline: TestPipeline, server: Server, fault: str, point: str
) -> None:
    """S109, S113: the run goes on, or ends with a typed error; whatever it left, the next run publishes it once."""
    crash = Interrupt(point, getattr(server, fault))
    try:
        run_batch.run_once(pipeline.platform(crash=crash), "disturbed")
    except BatchledgerError:
        assert pipeline.count_target_rows() == 0
    assert crash.has_acted
    run_batch.run_once(pipeline.platform(), "next")
    assert pipeline.query("select state from batchledger.batch where pipeline = %s", pipeline.name) == [("published",)]
    assert run_batch.run_once(pipeline.platform(), "after") is None
    pipeline.assert_exact()


def test_database_that_is_down_is_a_retryable_error_of_every_step(pipeline: TestPipeline, server: Server) -> None:
    batch = run_batch.plan(pipeline.platform(), "run")
    assert batch is not None
    record = Record.read(server.home, "postgres")
    assert record is not None
    leader = psutil.Process(record.pid)
    os.kill(leader.pid, signal.SIGINT)
    leader.wait(30)
    wait_until(lambda: not leader.is_running())
    try:
        for step in (run_batch.stage, run_batch.audit, run_batch.publish):
            with pytest.raises(BatchledgerError) as caught:
                step(pipeline.platform(), batch.batch_id, "run")
            assert caught.value.retryable, caught.value
            assert "warehouse database says" in str(caught.value)
    finally:
        server.up()
    run_batch.run_once(pipeline.platform(), "run")
    pipeline.assert_exact()
