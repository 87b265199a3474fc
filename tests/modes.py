"""What other users of this machine could read or change."""

import contextlib
import os
import stat
from collections.abc import Sequence
from multiprocessing.connection import Connection
from pathlib import Path

import psycopg

from batchledger.local.stack.defaults import POSTGRES_VERSION
from tests.forked import fork_server

STRANGER = 60_000
"""The number of a user who owns nothing, and is not the one that PostgreSQL runs as."""

# A group may pass through a folder: PostgreSQL's account does.
_OPEN = stat.S_IRGRP | stat.S_IWGRP | stat.S_IRWXO
_PROGRAMS = f"postgresql-{POSTGRES_VERSION}"


def list_open_paths(*folders: Path) -> list[Path]:
    """Every folder and file below that another user could read or change, apart from PostgreSQL's programs."""
    found = []
    for folder in folders:
        for place, below, files in os.walk(folder.resolve()):
            with contextlib.suppress(ValueError):
                below.remove(_PROGRAMS)
            for path in (Path(place, name) for name in (*below, *files)):
                with contextlib.suppress(FileNotFoundError):  # A service has removed it meanwhile.
                    mode = path.lstat().st_mode
                    if mode & _OPEN and not stat.S_ISLNK(mode):
                        found.append(path)
    return found


def try_as(user: int, folder: Path, dsns: Sequence[str]) -> tuple[list[str], list[str]]:
    """What a process of this user, which starts in the folder, can read or change below it; where it can log in.

    So folders above protect nothing. Only root can become another user.
    """
    ours, theirs = fork_server().Pipe()
    process = fork_server().Process(target=_try_as, args=(user, folder, dsns, theirs), daemon=True)
    process.start()
    theirs.close()
    with ours:
        found: tuple[list[str], list[str]] = ours.recv()
    process.join()
    return found


def _try_as(user: int, folder: Path, dsns: Sequence[str], answer: Connection) -> None:
    os.chdir(folder)
    paths = [os.path.join(place, name) for place, below, files in os.walk(".") for name in (*below, *files)]  # noqa: PTH118
    if user != os.getuid():
        os.setgroups([])
        os.setgid(user)
        os.setuid(user)
    reached = [path for path in paths if os.access(path, os.R_OK) or os.access(path, os.W_OK)]
    answer.send((reached, [dsn for dsn in dsns if _can_log_in(dsn)]))


def _can_log_in(dsn: str) -> bool:
    try:
        psycopg.connect(dsn).close()
    except psycopg.OperationalError:
        return False
    return True
