"""What the machine has to offer before a service can start: Java, free ports, disk space. Each lack is one sentence."""

import dataclasses
import os
import re
import secrets
import shutil
import socket
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from batchledger.local.stack.home import Home, Ports, port_variable
from batchledger.model.errors import SetupError

HOST = "127.0.0.1"
OLDEST_JAVA = 17
NEEDED_BYTES = 3 * 2**30
NEVER_EPHEMERAL = range(20_000, 32_000)


def find_java(environ: Mapping[str, str] = os.environ) -> Path:
    """The ``java`` that ``JAVA_HOME`` names, or the first on the path. Raises SetupError if none is new enough."""
    home = environ.get("JAVA_HOME")
    found = f"{home}/bin/java" if home else shutil.which("java", path=environ.get("PATH"))
    advice = f"install Java {OLDEST_JAVA} or newer, put it on the PATH or name it in JAVA_HOME"
    if found is None:
        raise SetupError(f"Java is missing: {advice}.")
    try:
        told = subprocess.run([found, "-version"], check=False, capture_output=True, text=True, timeout=60).stderr
    except OSError as error:
        raise SetupError(f"Java does not start, {found}: {error.strerror}; {advice}.") from error
    version = re.search(r'version "(?:1\.)?(\d+)', told)
    if version is None or int(version[1]) < OLDEST_JAVA:
        said = version[0] if version else told.strip() or "no version"
        raise SetupError(f"Java is too old: expected {OLDEST_JAVA} or newer, found {said} at {found}; {advice}.")
    return Path(found)


def check_ports(services: Iterable[str], port_by_service: Mapping[str, int]) -> None:
    """Raise SetupError that names every taken port, its service and the variable that chooses another one."""
    taken = [name for name in services if not _is_free(port_by_service[name])]
    if taken:
        ports = "; ".join(f"port {port_by_service[name]} for {name}, set {port_variable(name)}" for name in taken)
        raise SetupError(f"Another program listens where a service should: {ports} to use another port, or end it.")


def choose_free_ports(among: Sequence[int] = NEVER_EPHEMERAL) -> Ports:
    """Ports that nobody listens on now, and that no outgoing connection is given while a service is down."""
    names = [each.name for each in dataclasses.fields(Ports)]
    candidates = secrets.SystemRandom().sample(among, 100 * len(names))
    free = (port for port in candidates if _is_free(port))
    return Ports(**{name: next(free) for name in names})


def check_disk(home: Home) -> None:
    """Raise SetupError when less than 3 GiB are free where the services write."""
    free_bytes = shutil.disk_usage(home.local).free
    if free_bytes < NEEDED_BYTES:
        raise SetupError(
            f"The disk is nearly full: the services need {NEEDED_BYTES / 2**30:.0f} GiB below {home.local}, "
            f"found {free_bytes / 2**30:.1f} GiB; make room, or set BATCHLEDGER_LOCAL to a folder on another disk."
        )


def _is_free(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True
