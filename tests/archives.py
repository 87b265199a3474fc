"""The wheel and the sdist, built as ``make dist`` builds them, and an environment that has the wheel alone."""

import os
import re
import shutil
import subprocess
import sys
import sysconfig
from importlib import metadata
from pathlib import Path

from packaging.utils import canonicalize_name

from tests.conftest import ROOT

SOURCES = ("pyproject.toml", "README.md", "LICENSE", "include")
_SDIST = "import sys; from setuptools.build_meta import build_sdist; build_sdist(sys.argv[1])"


def copy_sources(folder: Path) -> Path:
    """Copy what the archives are built from: a build leaves metadata beside it, which Airflow would find too."""
    unwanted = shutil.ignore_patterns("__pycache__", "*.egg-info")
    for name in SOURCES:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, folder / name, symlinks=True, ignore=unwanted)
        else:
            shutil.copy(source, folder / name)
    return folder


def build_archives(sources: Path, folder: Path) -> tuple[Path, Path]:
    """Return the wheel and the sdist that it was built from."""
    folder.mkdir()
    _run([sys.executable, "-c", _SDIST, str(folder)], sources)
    (sdist,) = folder.glob("*.tar.gz")
    offline = ("--quiet", "--no-deps", "--no-index", "--no-build-isolation")
    _run([sys.executable, "-m", "pip", "wheel", *offline, "--wheel-dir", str(folder), str(sdist)], sources)
    (wheel,) = folder.glob("*.whl")
    return wheel, sdist


def install(wheel: Path, folder: Path) -> Path:
    """Install the wheel into a new environment; return the folder of its programs.

    What ``requirements.txt`` locks is linked into it, and pip. A tool for development is not there to be imported.
    """
    _run([sys.executable, "-m", "venv", "--without-pip", str(folder)], folder.parent)
    here = Path(sysconfig.get_path("purelib"))
    there = Path(sysconfig.get_path("purelib", vars={"base": str(folder), "platbase": str(folder)}))
    for name in list_locked():
        (there / name).symlink_to(here / name)
    programs = folder / "bin"
    offline = ("--quiet", "--no-deps", "--no-index", "--disable-pip-version-check")
    _run([str(programs / "python"), "-m", "pip", "install", *offline, str(wheel)], folder)
    return programs


def list_locked() -> set[str]:
    """Return the names in ``site-packages`` that belong to packages of ``requirements.txt``, and to pip."""
    text = (ROOT / "requirements.txt").read_text()
    locked = {canonicalize_name(each) for each in re.findall(r"^([\w.-]+)==", text, re.MULTILINE)} | {"pip"}
    installed = [each for each in metadata.distributions() if canonicalize_name(each.name) in locked]
    return {file.parts[0] for each in installed for file in each.files or ()} - {"..", "__pycache__"}


def outside_of_the_checkout() -> dict[str, str]:
    """The environment of a person who knows nothing of the checkout, or of services that run for other tests."""
    ours = ("AIRFLOW", "BATCHLEDGER", "PYTHON", "PYTEST", "VIRTUAL_ENV")
    return {name: value for name, value in os.environ.items() if not name.startswith(ours)}


def _run(command: list[str], folder: Path) -> None:
    done = subprocess.run(
        command, cwd=folder, env=outside_of_the_checkout(), capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
