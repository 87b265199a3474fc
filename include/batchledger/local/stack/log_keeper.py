"""Keeps the logs of the local services within bounds, as a process of its own beside them. It imports nothing else.

A service appends to a file that it never opens again, so a log that has grown too long is copied and then emptied, as
logrotate's ``copytruncate`` does. The few lines that a service writes in between are lost. Airflow has a file for each
try of each task, and removes none: the oldest ones go first.
"""

import contextlib
import os
import sys
import time
from pathlib import Path

MOST_BYTES_OF_A_LOG = 20 * 2**20
MOST_BYTES_OF_TASKS = 256 * 2**20
_LOOK_SECONDS = 15.0
_LOOKS_UNTIL_TASKS = 40


def shorten_log(log: Path, most_bytes: int = MOST_BYTES_OF_A_LOG) -> bool:
    """Move what a log has beyond ``most_bytes`` to the file ``.log.1`` beside it, which holds at most as much.

    The log goes on from its beginning, and keeps its owner and its rights. Return whether it was too long.
    """
    with log.open("r+b") as written:
        size = os.fstat(written.fileno()).st_size
        if size <= most_bytes:
            return False
        written.seek(size - most_bytes)
        draft = log.with_suffix(".log.1.draft")
        with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as earlier:
            left = most_bytes
            while left and (piece := written.read(min(left, 2**20))):
                earlier.write(piece)
                left -= len(piece)
        # By the open file: a service that starts anew may have another one under this name by now.
        written.truncate(0)
    draft.replace(log.with_suffix(".log.1"))
    return True


def thin_out(folder: Path, most_bytes: int = MOST_BYTES_OF_TASKS) -> int:
    """Remove the oldest files below a folder until the others hold at most ``most_bytes``; return how many.

    Half of the room is free afterwards, so that the next files do not remove one each. A file that disappears meanwhile
    counts as nothing.
    """
    found = []
    for place, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                path = Path(place, name)
                state = path.lstat()
                found.append((state.st_mtime_ns, state.st_size, path))
    total, removed = sum(size for _, size, _ in found), 0
    if total <= most_bytes:
        return 0
    for _, size, path in sorted(found):
        if total <= most_bytes // 2:
            break
        path.unlink(missing_ok=True)
        total, removed = total - size, removed + 1
        for parent in path.parents:
            if parent == folder or next(parent.iterdir(), None) is not None:
                break
            parent.rmdir()
    return removed


def keep(logs: Path, tasks: Path) -> None:
    """Look again and again, until the process is ended. What cannot be shortened now is tried at the next look."""
    look = 0
    while True:
        for log in sorted(logs.glob("*.log")):
            with contextlib.suppress(OSError):
                shorten_log(log)
        if look % _LOOKS_UNTIL_TASKS == 0:
            with contextlib.suppress(OSError):
                thin_out(tasks)
        look += 1
        time.sleep(_LOOK_SECONDS)


if __name__ == "__main__":
    keep(*map(Path, sys.argv[1:3]))
