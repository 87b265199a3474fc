"""The logs of the local services stay within their bounds while the services go on writing."""

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from batchledger.local.stack import log_keeper
from batchledger.local.stack.home import Home
from batchledger.local.stack.log_keeper import shorten_log, thin_out
from batchledger.local.stack.processes import _open_log
from tests.support import wait_until


def test_log_that_is_too_long_keeps_its_newest_part_beside_it_and_goes_on_from_its_beginning(tmp_path: Path) -> None:
    home = Home(root=tmp_path, local=tmp_path / "local", cache=tmp_path, pipelines=tmp_path)
    log, earlier = home.log_file("kafka"), tmp_path / "local" / "log" / "kafka.log.1"
    with _open_log(home, "kafka", fresh=True) as service:
        service.write(b"old " * 100 + b"new " * 25)
        service.flush()
        assert shorten_log(log, most_bytes=100)
        assert (log.stat().st_size, earlier.read_bytes()) == (0, b"new " * 25)
        service.write(b"later")
        service.flush()
        assert not shorten_log(log, most_bytes=100)
    assert (log.read_bytes(), earlier.read_bytes()) == (b"later", b"new " * 25)
    assert {stat.S_IMODE(each.stat().st_mode) for each in (log, earlier)} == {0o600}
    assert sorted(each.name for each in log.parent.iterdir()) == ["kafka.log", "kafka.log.1"]


def test_log_of_any_length_takes_no_more_than_two_bounds(tmp_path: Path) -> None:
    log = tmp_path / "spark.log"
    for _ in range(50):
        with log.open("ab") as service:
            service.write(os.urandom(1000))
        shorten_log(log, most_bytes=4096)
        assert sum(each.stat().st_size for each in tmp_path.iterdir()) <= 2 * 4096


@pytest.fixture
def tasks(tmp_path: Path) -> Path:
    """Ten runs with a log of 100 bytes each, the oldest first."""
    folder = tmp_path / "logs"
    for number in range(10):
        log = folder / "dag_id=orders" / f"run_id={number}" / "task_id=plan" / "attempt=1.log"
        log.parent.mkdir(parents=True)
        log.write_bytes(b"x" * 100)
        os.utime(log, ns=(number, number))
    return folder


def test_oldest_logs_of_tasks_go_with_their_folders_until_half_of_the_room_is_free(tasks: Path) -> None:
    assert thin_out(tasks, most_bytes=1000) == 0
    assert thin_out(tasks, most_bytes=999) == 6
    assert sorted(each.name for each in (tasks / "dag_id=orders").iterdir()) == [f"run_id={at}" for at in range(6, 10)]
    assert thin_out(tasks, most_bytes=0) == 4
    assert list(tasks.iterdir()) == []
    assert thin_out(tasks / "missing", most_bytes=0) == 0


def test_keeper_that_runs_shortens_what_a_service_writes(tmp_path: Path) -> None:
    """As a process, without anything of the environment: so it starts in a moment and takes little memory."""
    log = tmp_path / "postgres.log"
    with log.open("wb") as service:
        service.truncate(log_keeper.MOST_BYTES_OF_A_LOG + 1)
    command = [sys.executable, "-I", "-S", log_keeper.__file__, str(tmp_path), str(tmp_path / "logs")]
    keeper = subprocess.Popen(command, env={})
    try:
        wait_until(lambda: log.stat().st_size == 0)
        wait_until((tmp_path / "postgres.log.1").exists)
    finally:
        keeper.kill()
        keeper.wait()
