"""Processes are started detached, found again by more than one mark, and ended without exception."""

import json
import os
import signal
import stat
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from batchledger.local.stack import processes
from batchledger.local.stack.home import Home
from batchledger.local.stack.processes import SERVICE_COOKIE, STACK_COOKIE, Launch, ServiceRecord
from batchledger.model.errors import ServiceUnavailableError
from tests.support import wait_until

SERVICE = "toy"

# Each program makes a file "ready" when its cast is complete.
PLAIN = "pathlib.Path('ready').touch(); signal.pause()"
IGNORES_TERM = f"signal.signal(signal.SIGTERM, signal.SIG_IGN); {PLAIN}"
LOSES_FIRST_TERM = f"""
def end(*_):
    pathlib.Path('ended by the signal').touch()
    sys.exit()

signal.signal(signal.SIGTERM, lambda *_: signal.signal(signal.SIGTERM, end))
{PLAIN}
signal.pause()
"""
WITH_CHILD = f"os.fork() or signal.pause(); {PLAIN}"
WITH_DAEMON = f"""
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        {PLAIN}
    os._exit(0)
os.wait()
signal.pause()
"""
HALF_DEAD = """
import ctypes, threading
threading.Thread(target=signal.pause).start()
pathlib.Path('ready').touch()
ctypes.CDLL(None).pthread_exit(None)
"""
WITH_BARE_CHILD = f"""
subprocess.Popen([sys.executable, '-c', "import pathlib, signal; {PLAIN}"], env={{}})
signal.pause()
"""


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    made = Home(root=tmp_path, local=tmp_path / "local", cache=tmp_path / "cache", pipelines=tmp_path)
    yield made
    processes.stop(lambda: members(made), deadline_seconds=0)


def launch(home: Home, program: str) -> Launch:
    text = f"import os, pathlib, signal, subprocess, sys\n{program}"
    return Launch((sys.executable, "-c", text), home.root, {"PATH": os.environ["PATH"]})


def start(home: Home, program: str) -> ServiceRecord:
    record = processes.start(home, SERVICE, launch(home, program))
    wait_until((home.root / "ready").exists)
    return record


def members(home: Home) -> list[psutil.Process]:
    return processes.find_members(home, [SERVICE])[SERVICE]


def write_record(home: Home, pid: int) -> None:
    """Write a record of a start long ago, whose number ``pid`` has been given to another process since."""
    old = {"service": SERVICE, "pid": pid, "created": 1}
    processes.write_private(home.local / "run" / f"{SERVICE}.json", json.dumps(old))


def kill_leader(record: ServiceRecord) -> None:
    leader = psutil.Process(record.pid)
    leader.kill()
    leader.wait(10)


def test_a_service_has_a_session_of_its_own_and_a_private_log(home: Home) -> None:
    record = start(home, f"print('first words', flush=True); {PLAIN}")
    assert record.is_alive
    assert os.getsid(record.pid) == record.pid != os.getsid(0)
    assert home.log_file(SERVICE).read_text() == "first words\n"
    assert stat.S_IMODE(home.log_file(SERVICE).stat().st_mode) == 0o600
    assert ServiceRecord.read(home, SERVICE) == record


def test_what_a_service_writes_is_its_owners(home: Home) -> None:
    start(home, f"pathlib.Path('folder').mkdir(); {PLAIN}")
    assert [stat.S_IMODE((home.root / name).stat().st_mode) for name in ("folder", "ready")] == [0o700, 0o600]


def test_a_process_is_found_until_it_has_ended(home: Home) -> None:
    """While a killed process gives its memory back, the system no longer shows its environment."""
    for _ in range(8):
        record = start(home, f"memory = bytearray(os.urandom(1)) * (200 << 20); {PLAIN}")
        leader = psutil.Process(record.pid)
        leader.kill()
        while processes.is_alive(leader):
            found = members(home)
            assert leader in found or not processes.is_alive(leader)
        leader.wait(10)
        (home.root / "ready").unlink()


def test_a_new_start_keeps_the_log_of_the_one_before(home: Home) -> None:
    kill_leader(start(home, f"print('one', flush=True); {PLAIN}"))
    (home.root / "ready").unlink()
    start(home, f"print('two', flush=True); {PLAIN}")
    log = home.log_file(SERVICE)
    assert (log.with_suffix(".log.1").read_text(), log.read_text()) == ("one\n", "two\n")


def test_stop_lets_a_process_end_by_itself(home: Home) -> None:
    record = start(home, PLAIN)
    leader = psutil.Process(record.pid)
    processes.stop(lambda: members(home), deadline_seconds=30)
    assert not processes.is_alive(leader)
    assert members(home) == []


def test_stop_kills_a_process_that_ignores_the_signal(home: Home) -> None:
    start(home, IGNORES_TERM)
    processes.stop(lambda: members(home), deadline_seconds=0.2)
    assert members(home) == []


def test_stop_repeats_a_signal_that_got_lost(home: Home) -> None:
    start(home, LOSES_FIRST_TERM)
    processes.stop(lambda: members(home), deadline_seconds=60)
    assert (home.root / "ended by the signal").exists(), "it was killed at the deadline"


@pytest.mark.parametrize("program", [WITH_CHILD, WITH_DAEMON, WITH_BARE_CHILD], ids=["child", "daemon", "bare"])
@pytest.mark.parametrize("leader_is_killed", [False, True])
def test_every_descendant_is_found_and_ended(home: Home, program: str, leader_is_killed: bool) -> None:
    record = start(home, program)
    if leader_is_killed:
        kill_leader(record)
    descendants = [process for process in members(home) if process.pid != record.pid]
    assert len(descendants) == 1
    processes.stop(lambda: members(home), deadline_seconds=5)
    assert not processes.is_alive(descendants[0])


def test_a_process_is_not_gone_before_its_last_thread(home: Home) -> None:
    record = start(home, HALF_DEAD)
    wait_until(lambda: not record.is_alive)
    assert [process.pid for process in members(home)] == [record.pid]
    processes.stop(lambda: members(home), deadline_seconds=5)
    assert members(home) == []


def test_a_process_that_was_never_recorded_is_found(home: Home) -> None:
    record = start(home, PLAIN)
    processes.forget(home, SERVICE)
    assert [process.pid for process in members(home)] == [record.pid]


def test_another_stack_is_left_alone(home: Home, tmp_path: Path) -> None:
    start(home, PLAIN)
    other = Home(root=tmp_path, local=tmp_path / "other", cache=tmp_path, pipelines=tmp_path)
    assert members(other) == []


def test_a_process_that_has_got_the_recorded_number_is_left_alone(home: Home) -> None:
    record = start(home, PLAIN)
    with subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"], start_new_session=True) as later:
        try:
            write_record(home, later.pid)
            assert [process.pid for process in members(home)] == [record.pid]
        finally:
            later.kill()


def test_a_process_whose_session_is_not_visible_belongs_to_nobody(home: Home) -> None:
    """Kernel threads, and processes whose session began outside their container, have session 0."""
    write_record(home, 0)
    assert members(home) == []


def test_who_looks_for_members_is_not_among_them(home: Home) -> None:
    program = textwrap.dedent(f"""
        from pathlib import Path
        from batchledger.local.stack import processes
        from batchledger.local.stack.home import Home
        home = Home(*[Path({str(home.root)!r})] * 4)
        print(processes.find_members(home, ["{SERVICE}"])["{SERVICE}"])
    """)
    environment = {
        **os.environ,
        STACK_COOKIE: str(home.root),
        SERVICE_COOKIE: SERVICE,
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    found = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True, timeout=60
    )
    assert found.stdout == "[]\n"


def test_a_command_that_fails_tells_its_last_words(home: Home) -> None:
    with pytest.raises(ServiceUnavailableError, match=r"3\.\nIt said: no luck today \(log: .*/toy\.log\)"):
        processes.run(home, SERVICE, launch(home, "print('no luck today', flush=True); sys.exit(3)"), 20)


def test_a_command_that_hangs_is_ended(home: Home) -> None:
    with pytest.raises(ServiceUnavailableError, match="not done within 0 s"):
        processes.run(home, SERVICE, launch(home, "signal.pause()"), 0.2)
    assert members(home) == []


def test_a_signal_reaches_a_leader_by_its_record(home: Home) -> None:
    record = start(home, PLAIN)
    leader = record.leader
    assert leader is not None
    leader.send_signal(signal.SIGKILL)
    wait_until(lambda: not record.is_alive)
