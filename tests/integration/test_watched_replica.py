"""A watch of a replica that lags: rows that it does not have yet are late, and not missing."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psutil
import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from batchledger.local.stack.machine import HOST
from batchledger.proof.watching import Discrepancy, WatchOutcome
from batchledger.watching.look import look
from batchledger.watching.postgres import PostgresTable
from tests.conftest import Kafka, as_superuser, choose_ports
from tests.second_server import run_program
from tests.support import wait_until
from tests.watched import WatchedTopic, offsets_of


@pytest.fixture
def replica_dsn(warehouse_dsn: str) -> Iterator[str]:
    """A standby of the server of this run, for the same roles."""
    primary = as_superuser(warehouse_dsn)
    with psycopg.connect(primary, autocommit=True) as connection:
        ((data, process),) = connection.execute("select current_setting('data_directory'), pg_backend_pid()").fetchall()
        rules = Path(data, "pg_hba.conf")
        before = rules.read_text()
        rules.write_text(f"{before}\nhost replication all {HOST}/32 scram-sha-256\n")
        connection.execute("select pg_reload_conf()")
        programs = Path(psutil.Process(process).exe()).parent
    owner, folder = rules.stat(), Path(tempfile.mkdtemp())
    os.chown(folder, owner.st_uid, owner.st_gid)
    account = {"user": owner.st_uid, "group": owner.st_gid, "cwd": "/"}
    port = choose_ports().postgres
    copied = folder / "data"
    run_program("pg_basebackup", "-D", str(copied), "-R", "-X", "stream", "--checkpoint=fast", "-d", primary)
    for each in (copied, *copied.rglob("*")):
        os.chown(each, owner.st_uid, owner.st_gid)
    server = subprocess.Popen(  # type: ignore[call-overload]
        [programs / "postgres", "-D", copied, "-p", str(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        **account,
    )
    dsn = make_conninfo(warehouse_dsn, port=port)
    try:
        wait_until(lambda: can_connect(dsn))
        yield dsn
    finally:
        server.terminate()
        server.wait()
        shutil.rmtree(folder)
        rules.write_text(before)


def can_connect(dsn: str) -> bool:
    try:
        psycopg.connect(dsn).close()
    except psycopg.OperationalError:
        return False
    return True


def test_rows_that_a_replica_does_not_have_yet_are_late(
    kafka: Kafka, warehouse_dsn: str, replica_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = WatchedTopic(kafka.options, warehouse_dsn)
    shop.produce(5)
    shop.insert(range(5))
    watch = shop.watch(dsn=replica_dsn)
    with psycopg.connect(as_superuser(replica_dsn), autocommit=True) as standby:
        wait_until(lambda: standby.execute("select to_regclass(%s)", [shop.name]).fetchone() != (None,))
        last = "select pg_last_wal_replay_lsn() >= %s::pg_lsn"
        with psycopg.connect(as_superuser(warehouse_dsn)) as primary:
            (place,) = primary.execute("select pg_current_wal_lsn()::text").fetchone() or ("",)
        wait_until(lambda: standby.execute(last, [place]).fetchone() == (True,))
        standby.execute("select pg_wal_replay_pause()")
        try:
            # Timestamps of Kafka count milliseconds.
            after = datetime.now(UTC) + timedelta(seconds=2)
            wait_until(lambda: datetime.now(UTC) > after)
            shop.produce(3)
            shop.insert(range(5, 8))
            late = look(watch, datetime.now(UTC) + timedelta(seconds=5))
            assert (late.outcome, late.late) == (WatchOutcome.PROVED, 3)
            monkeypatch.setattr(PostgresTable, "find_moment", lambda _: None)
            wrong = look(watch, datetime.now(UTC) + timedelta(seconds=5))
            assert offsets_of(wrong, Discrepancy.MISSING) == ["0: 5..8"]
        finally:
            standby.execute("select pg_wal_replay_resume()")
