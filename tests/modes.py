"""What other users of this machine could read or change."""

import contextlib
import os
import stat
from pathlib import Path

from batchledger.local.stack.defaults import POSTGRES_VERSION

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
