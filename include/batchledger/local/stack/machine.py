"""What a service needs of the machine: Java, free ports, disk space. Whatever is missing is a SetupError."""

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
    advice = f"Install Java {OLDEST_JAVA} or newer, and put it on the PATH or name it in JAVA_HOME."
    if found is None:
        raise SetupError("Java is missing.", advice=advice)
    try:
        told = subprocess.run([found, "-version"], check=False, capture_output=True, text=True, timeout=60).stderr
    except OSError as error:
        raise SetupError("Java does not start.", why=f"{found}: {error.strerror}", advice=advice) from error
    version = re.search(r'version "(?:1\.)?(\d+)', told)
    if version is None or int(version[1]) < OLDEST_JAVA:
        said = version[0] if version else told.strip() or "no version"
        raise SetupError(
            "Java is too old.", why=f"Expected {OLDEST_JAVA} or newer, found {said} at {found}.", advice=advice
        )
    return Path(found)


def check_ports(services: Iterable[str], port_by_service: Mapping[str, int]) -> None:
    """Raise SetupError with every taken port, its service and the variable that sets another one."""
    taken = [name for name in services if not _is_free(port_by_service[name])]
    if taken:
        ports = ", ".join(f"port {port_by_service[name]} for {name}" for name in taken)
        variables = " and ".join(map(port_variable, taken))
        raise SetupError(
            f"Another program listens where a service should: {ports}.",
            advice=f"End it, or set {variables} to another port.",
        )


def choose_free_ports(among: Sequence[int] = NEVER_EPHEMERAL) -> Ports:
    """Return free ports outside the range of outgoing connections, which could take one while a service is down."""
    names = [each.name for each in dataclasses.fields(Ports)]
    candidates = secrets.SystemRandom().sample(among, 100 * len(names))
    free = (port for port in candidates if _is_free(port))
    return Ports(**{name: next(free) for name in names})


def check_disk(home: Home) -> None:
    """Raise SetupError if less than 3 GiB are free where the services write."""
    free_bytes = shutil.disk_usage(home.local).free
    if free_bytes < NEEDED_BYTES:
        raise SetupError(
            "The disk is nearly full. Nothing was started.",
            why=f"The services need {NEEDED_BYTES / 2**30:.0f} GiB below {home.local}, found "
            f"{free_bytes / 2**30:.1f} GiB.",
            advice="Make room, or set BATCHLEDGER_LOCAL to a folder on another disk.",
        )


def _is_free(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True
