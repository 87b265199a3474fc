"""Start processes that outlive their parent, find all their descendants, and end them all.

Three marks show that a process belongs to a service, because each one alone can be lost. The environment cookie: a
program loses it if it overwrites its environment to show a title. The session of the service: a program can start a
session of its own. A living parent that belongs to the service. PostgreSQL's backends do both and may outlive a killed
parent. So a service with a ``private_folder`` has a fourth mark: its executable works in that folder.
"""

import contextlib
import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Self

import psutil

from batchledger.local.stack.home import Home, private_folder, write_private
from batchledger.model.errors import ServiceUnavailableError

STACK_COOKIE = "BATCHLEDGER_STACK"
SERVICE_COOKIE = "BATCHLEDGER_SERVICE"
_POLL_SECONDS = 0.05
_REPEAT_SECONDS = 1.0
_SAME_START_SECONDS = 5.0
_KILL_SECONDS = 20.0
# Also as the end of a Python error's name, but not within names of settings.
_ERROR = re.compile(r"error\b(?![.=_])", re.IGNORECASE)


@dataclass(frozen=True)
class SystemUser:
    """The user that a process runs as, if not the user that starts it."""

    uid: int
    gid: int


@dataclass(frozen=True)
class Launch:
    """How a process is started. ``private_folder``: only this service's executable ever works in there."""

    argv: Sequence[str]
    folder: Path
    environment: Mapping[str, str]
    account: SystemUser | None = None
    private_folder: Path | None = None


@dataclass(frozen=True)
class ServiceRecord:
    """What is written down about a started service. Its ``pid`` is also the id of its session."""

    service: str
    pid: int
    created: float
    private_folder: str | None = None

    @classmethod
    def read(cls, home: Home, service: str) -> Self | None:
        """The record of the latest start, or None."""
        try:
            return cls(**json.loads(_record_file(home, service).read_text()))
        except FileNotFoundError:
            return None

    @property
    def leader(self) -> psutil.Process | None:
        """The process that was started, alive or a zombie; not a later one with the same number."""
        try:
            found = psutil.Process(self.pid)
            return found if abs(found.create_time() - self.created) < _SAME_START_SECONDS else None
        except psutil.NoSuchProcess:
            return None

    @property
    def is_alive(self) -> bool:
        """Whether the process runs; a zombie does not."""
        leader = self.leader
        return leader is not None and is_alive(leader)


def start(home: Home, service: str, launch: Launch) -> ServiceRecord:
    """Start a service in a session of its own, its output in its log file, and write down how to find it.

    Only its owner can read what it writes, unless it says otherwise itself.

    A process that dies between the start and the record is still found by its cookie.
    """
    with _open_log(home, service, fresh=True) as log:
        process = _spawn(home, service, launch, log)
    process.returncode = 0  # It outlives this process on purpose; otherwise the interpreter warns about it.
    private_folder = str(launch.private_folder) if launch.private_folder else None
    record = ServiceRecord(service, process.pid, psutil.Process(process.pid).create_time(), private_folder)
    write_private(_record_file(home, service), json.dumps(asdict(record)))
    return record


def run(home: Home, service: str, launch: Launch, deadline_seconds: float) -> None:
    """Run a command to its end, output in the service's log file. Raises ServiceUnavailableError if it fails."""
    with _open_log(home, service, fresh=False) as log:
        process = _spawn(home, service, launch, log)
    try:
        if process.wait(deadline_seconds) == 0:
            return
        problem = f"failed with exit code {process.returncode}"
    except subprocess.TimeoutExpired:
        problem = f"was not done within {deadline_seconds:.0f} s"
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    raise ServiceUnavailableError(f"Preparing {service} {problem}.", why=f"It said: {tail_log(home, service)}")


def tail_log(home: Home, service: str, lines: int = 3) -> str:
    """The last words of a service and the path of its log, for an error message."""
    return _quote_log(home, service, _read_log(home, service)[-lines:])


def find_error(home: Home, service: str) -> str:
    """The last line of a service's log that says error, and the path of the log; empty if there is none."""
    errors = [line for line in _read_log(home, service) if _ERROR.search(line)]
    return _quote_log(home, service, errors[-1:]) if errors else ""


def measure_log(home: Home, service: str) -> int:
    """The size of a service's log since its latest start, in bytes."""
    file = home.log_file(service)
    return file.stat().st_size if file.exists() else 0


def find_members(home: Home, services: Iterable[str]) -> dict[str, list[psutil.Process]]:
    """Return the living processes of each service, and under ``""`` those with this stack's cookie and another name.

    This process and its ancestors are never among them.
    """
    records = [record for service in services if (record := ServiceRecord.read(home, service))]
    members: dict[str, list[psutil.Process]] = {service: [] for service in [*services, ""]}
    owner_by_pid: dict[int, str] = {}
    spared = {os.getpid(), *(parent.pid for parent in psutil.Process().parents())}
    for process in sorted(psutil.process_iter(), key=_start_order):
        with contextlib.suppress(psutil.NoSuchProcess):
            if process.pid in spared or not _holds_resources(process):
                continue
            owner = owner_by_pid.get(process.ppid()) or _find_owner(home, process, records)
            if owner is not None:
                owner_by_pid[process.pid] = owner
                members[owner if owner in members else ""].append(process)
    return members


def stop(
    find: Callable[[], Sequence[psutil.Process]], deadline_seconds: float, first_signal: int = signal.SIGTERM
) -> None:
    """Ask every process that ``find`` returns to end, wait, then kill what is left; return when none is left.

    ``find`` is asked again and again, so a process that appears meanwhile is ended too. The signal is repeated, because
    Python drops a signal that arrives inside a finaliser (Airflow's scheduler then never ends). Raises
    ServiceUnavailableError if a process survives SIGKILL.
    """
    start = time.monotonic()
    next_signal = start
    while left := find():
        now = time.monotonic()
        if now > start + deadline_seconds + _KILL_SECONDS:
            raise ServiceUnavailableError(
                f"These processes cannot be ended: {', '.join(map(str, left))}.", why="They survived SIGKILL."
            )
        is_late = now > start + deadline_seconds
        if is_late or now >= next_signal:
            next_signal = now + _REPEAT_SECONDS
            for process in left:
                _send(process, signal.SIGKILL if is_late else first_signal)
        psutil.wait_procs(left, timeout=_POLL_SECONDS)


def is_alive(process: psutil.Process) -> bool:
    """Whether the process runs. A zombie does not: it only waits for its parent to notice."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def forget(home: Home, service: str) -> None:
    """Drop the record of a service that has no process left."""
    _record_file(home, service).unlink(missing_ok=True)


def _spawn(home: Home, service: str, launch: Launch, log: IO[bytes]) -> "subprocess.Popen[bytes]":
    account = launch.account
    return subprocess.Popen(
        launch.argv,
        cwd=launch.folder,
        env={**launch.environment, STACK_COOKIE: str(home.local), SERVICE_COOKIE: service},
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        user=account.uid if account else None,
        group=account.gid if account else None,
        extra_groups=[] if account else None,
        umask=0o077,
    )


def _open_log(home: Home, service: str, *, fresh: bool) -> IO[bytes]:
    file = home.log_file(service)
    private_folder(file.parent)
    if fresh and file.exists():
        file.replace(file.with_suffix(".log.1"))
    return open(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "ab")


def _read_log(home: Home, service: str) -> list[str]:
    file = home.log_file(service)
    lines = file.read_text(errors="replace").split("\n") if file.exists() else []
    return [line.strip() for line in lines if line.strip()]


def _quote_log(home: Home, service: str, lines: Sequence[str]) -> str:
    return f"{' | '.join(lines)[-800:] or 'it said nothing'} (log: {home.log_file(service)})"


def _record_file(home: Home, service: str) -> Path:
    return home.local / "run" / f"{service}.json"


def _find_owner(home: Home, process: psutil.Process, records: Sequence[ServiceRecord]) -> str | None:
    environment = _environment(process)
    if environment.get(STACK_COOKIE) == str(home.local):
        return environment.get(SERVICE_COOKIE, "")
    for record in records:
        leader = record.leader
        if leader is not None and _session(process) == record.pid:
            return record.service
        # If the leader is gone, another process may have its number; that one shows an environment without the cookie.
        if not environment and (_is_orphan(process, record) or _works_in(process, record.private_folder)):
            return record.service
    return None


def _is_orphan(process: psutil.Process, record: ServiceRecord) -> bool:
    """Whether the process is left over in the session of a leader that is gone."""
    return (
        not psutil.pid_exists(record.pid)
        and _session(process) == record.pid
        and process.create_time() > record.created - _SAME_START_SECONDS
    )


def _session(process: psutil.Process) -> int | None:
    """The id of the process's session; None if it is not visible from here, which the system shows as 0."""
    try:
        return os.getsid(process.pid) or None
    except (ProcessLookupError, PermissionError):
        return None


def _works_in(process: psutil.Process, folder: str | None) -> bool:
    try:
        return folder is not None and process.cwd() == folder
    except (psutil.AccessDenied, psutil.ZombieProcess):
        return False


def _holds_resources(process: psutil.Process) -> bool:
    """Whether the process runs, or is a zombie whose threads still end: until then its ports stay taken."""
    return is_alive(process) or process.num_threads() > 1


def _environment(process: psutil.Process) -> Mapping[str, str]:
    """The environment that the process was started with; empty if it has overwritten it, or if we may not read it.

    It is also empty while the process is being killed, because its memory goes first.
    """
    try:
        return process.environ()
    except (psutil.Error, OSError):
        return {}


def _start_order(process: psutil.Process) -> float:
    """Sort parents before their children, whatever their numbers are."""
    try:
        return process.create_time()
    except psutil.NoSuchProcess:
        return 0.0


def _send(process: psutil.Process, number: int) -> None:
    with contextlib.suppress(psutil.NoSuchProcess):
        process.send_signal(number)
