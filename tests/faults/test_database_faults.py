"""The database goes away in the middle of a batch: killed, so that it has to recover, or restarted by its operator."""

import json
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import psycopg
import pytest

from batchledger.database import sessions
from batchledger.lifecycle import plans, run_batch
from batchledger.local.stack.defaults import DATABASE_USER, WAREHOUSE_DATABASE
from batchledger.local.stack.home import Credentials
from batchledger.local.stack.postgres_server import connection_string
from batchledger.model.errors import BatchledgerError
from batchledger.settings.connections import KEYS
from tests.conftest import as_superuser
from tests.fakes.crash import Interrupt
from tests.faults.servers import Server, server_of_its_own
from tests.key_secret import use_key_secret
from tests.support import TestPipeline, Workplace, staging

CONNECTION = "warehouse_of_faults"


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with server_of_its_own("postgres", signal.SIGINT) as server:
        yield server


@pytest.fixture
def connection(server: Server, monkeypatch: pytest.MonkeyPatch) -> str:
    """How the database of this module is reached; pipelines know it by the name ``CONNECTION``."""
    credentials = Credentials.of(server.home)
    connection = {
        "conn_type": "postgres", "host": "127.0.0.1", "port": server.ports.postgres, "login": DATABASE_USER,
        "password": credentials.database_password, "schema": WAREHOUSE_DATABASE,
    }  # fmt: skip
    monkeypatch.setenv(f"AIRFLOW_CONN_{CONNECTION.upper()}", json.dumps(connection))
    return connection_string(server.ports, credentials, WAREHOUSE_DATABASE)


@pytest.fixture
def pipeline(workplace: Workplace, connection: str) -> TestPipeline:
    """Thirty records wait to be published into the database of this module."""
    pipeline = replace(workplace, dsn=connection).create(sink={"connection": CONNECTION})
    pipeline.send(30)
    return pipeline


# A kill empties unlogged staging; either one ends an open transaction. Between transactions a restart changes nothing.
FAULTS = [
    ("kill", "staged"),
    ("kill", "audited"),
    ("kill", "rows_moved"),
    ("kill", "before_commit"),
    ("restart", "rows_moved"),
    ("restart", "before_commit"),
]


@pytest.mark.parametrize(("fault", "point"), FAULTS)
def test_database_that_goes_away_leaves_the_batch_resumable(
    pipeline: TestPipeline, server: Server, fault: str, point: str
) -> None:
    """S98, S109, S113: the run goes on or ends with a typed error; whatever it left, the next one publishes once."""
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


@pytest.mark.parametrize("way", ["streamed", "staged", "with keys"])
def test_s113_database_that_crashes_after_a_topic_was_written_to_confirms_it(
    workplace: Workplace, server: Server, connection: str, way: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """What the ledger needs for that must be there after a crash: of keys the rows, else the audit alone."""
    use_key_secret(monkeypatch, tmp_path, json.loads(server.home.connections_file.read_text())[KEYS]["password"])
    rules = {"dedupe": {"key": ["message_id"], "remember": "30d"}} if way == "with keys" else {}
    pipeline = replace(workplace, dsn=connection).create(into="topic", ledger=CONNECTION, **rules)
    pipeline.send(30)
    crash = Interrupt("sink_committed", server.kill)
    platform = pipeline.platform(crash=crash)
    with suppress(BatchledgerError):
        run_batch.run_once(staging(platform) if way == "staged" else platform, "disturbed")
    assert crash.has_acted
    with suppress(BatchledgerError):
        run_batch.run_once(pipeline.platform(), "next")
    assert pipeline.query("select state from batchledger.batch where pipeline = %s", pipeline.name) == [("published",)]
    pipeline.assert_exact()


def test_s113_evidence_outlives_a_crash_of_the_database(pipeline: TestPipeline, server: Server) -> None:
    """The run goes on with what its attempt has witnessed: records that could not be decoded are no holes."""
    run_batch.run_once(pipeline.platform(), "before")
    pipeline.send_raw([(0, b"no json"), (1, b"no json")])
    batch = plans.plan(pipeline.platform(), "run")
    assert batch is not None
    run_batch.stage(pipeline.platform(), batch.batch_id, "run")
    server.kill()
    run_batch.audit(pipeline.platform(), batch.batch_id, "run")
    assert run_batch.publish(pipeline.platform(), batch.batch_id, "run").attempt == 1
    assert pipeline.query("select count(*) from batchledger.quarantine where pipeline = %s", pipeline.name) == [(2,)]
    pipeline.assert_exact()


def test_database_that_is_down_is_a_retryable_error_of_every_step(pipeline: TestPipeline, server: Server) -> None:
    """S109."""
    batch = plans.plan(pipeline.platform(), "run")
    assert batch is not None
    server.stop()
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


def pause_writers(server: Server) -> None:
    """Let no process write to disk what a commit has not waited for; a page may only follow the log of its change."""
    writers = [
        each
        for each in server.find_processes()
        if any(name in " ".join(each.cmdline()) for name in ("walwriter", "background writer"))
    ]
    assert len(writers) == 2
    for writer in writers:
        writer.suspend()


@contextmanager
def without_waiting_for_the_disk(dsn: str, server: Server) -> Iterator[None]:
    """A server whose commits are acknowledged before they are written."""
    superuser = as_superuser(dsn, Credentials.of(server.home))
    with psycopg.connect(superuser, autocommit=True) as connection:
        connection.execute("alter system set synchronous_commit = off")
        connection.execute("alter system set autovacuum = off")
        connection.execute("select pg_reload_conf()")
    try:
        yield
    finally:
        with psycopg.connect(superuser, autocommit=True) as connection:
            connection.execute("alter system reset all")
            connection.execute("select pg_reload_conf()")


def crash_after_commit(pipeline: TestPipeline, server: Server) -> tuple[int, set[int]]:
    """Publish a batch; at its commit the server crashes. Return the target's rows and the positions afterwards."""
    pause_writers(server)
    crash = Interrupt("committed", server.kill)
    with suppress(BatchledgerError):
        run_batch.run_once(pipeline.platform(crash=crash), "lost")
    assert crash.has_acted
    positions = pipeline.platform().ledger.load_positions(pipeline.name)
    return pipeline.count_target_rows(), {each.next_offset for each in positions}


def test_s114_acknowledged_commit_outlives_a_crash_and_negative_control_without_the_pin_it_is_lost_whole(
    pipeline: TestPipeline, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Although the server says ``synchronous_commit = off``. Rows and position go together; the next run heals it."""
    run_batch.run_once(pipeline.platform(), "first")
    with without_waiting_for_the_disk(pipeline.workplace.dsn, server):
        pipeline.send(30)
        assert crash_after_commit(pipeline, server) == (60, {30})
        pipeline.send(30)
        with monkeypatch.context() as unpinned:
            unpinned.setattr(sessions, "_COMMITTED", "'off'")
            assert crash_after_commit(pipeline, server) == (60, {30})
    run_batch.run_once(pipeline.platform(), "next")
    assert run_batch.run_once(pipeline.platform(), "after") is None
    pipeline.assert_exact()
