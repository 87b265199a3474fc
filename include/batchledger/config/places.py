"""Where files lie if no variable names a place: in the checkout, or, without a checkout, in the working directory.

Standard library only, because Airflow's API server reads folders too.
"""

import os
from collections.abc import Mapping
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1]
PIPELINES_VARIABLE = "BATCHLEDGER_PIPELINES"
"""The environment variable that names the folder of pipeline files."""


def find_checkout() -> Path | None:
    """Return the checkout that this package runs from; None if the package was installed from an archive."""
    root = PACKAGE.parents[1]
    return root if (root / "include" / PACKAGE.name) == PACKAGE and (root / "pyproject.toml").is_file() else None


def pipelines_folder() -> Path:
    """The folder that holds the pipeline files."""
    return Path(os.environ.get(PIPELINES_VARIABLE) or default_pipelines_folder())


def default_pipelines_folder() -> Path:
    """Return ``include/pipelines`` of the checkout; an installed package has the files of the demo."""
    checkout = find_checkout()
    return checkout / "include" / "pipelines" if checkout else PACKAGE / "pipelines"


def default_local_folder() -> Path:
    """Return ``.local`` of the checkout, else ``.batchledger`` of the working directory.

    Not ``.local`` there: a person's home has a folder of this name that belongs to other programs.
    """
    checkout = find_checkout()
    return checkout / ".local" if checkout else Path.cwd() / ".batchledger"


def default_cache_folder(environ: Mapping[str, str] = os.environ) -> Path:
    """Return the folder of downloads: below ``.local`` of the checkout, else the user's folder of caches."""
    checkout = find_checkout()
    if checkout:
        return checkout / ".local" / "cache"
    return Path(environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "batchledger"


def make_private_folder(folder: Path) -> None:
    """Create a folder and its missing parents; only their owner can enter them. One that exists keeps its mode."""
    if not folder.is_dir():
        make_private_folder(folder.parent)
        folder.mkdir(mode=0o700, exist_ok=True)
