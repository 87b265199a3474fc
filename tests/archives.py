"""The wheel and the sdist, built as ``make dist`` builds them, and an environment that has the wheel alone."""

import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from batchledger import DISTRIBUTION
from tests.conftest import ROOT

SOURCES = ("pyproject.toml", "README.md", "LICENSE", "include")
_SDIST = "import sys; from setuptools.build_meta import build_sdist; build_sdist(sys.argv[1])"


@dataclass(frozen=True)
class Person:
    """Someone who has installed the wheel, in an empty working directory."""

    programs: Path
    folder: Path
    environment: dict[str, str]

    def run(self, program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run an installed program to its end."""
        command = [str(self.programs / program), *arguments]
        return subprocess.run(
            command, cwd=self.folder, env=self.environment, capture_output=True, text=True, timeout=600, check=False
        )

    def succeed(self, program: str, *arguments: str) -> str:
        """Run a program that has to succeed; return its output."""
        done = self.run(program, *arguments)
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
        return done.stdout


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
    run([sys.executable, "-c", _SDIST, str(folder)], sources)
    (sdist,) = folder.glob("*.tar.gz")
    offline = ("--quiet", "--no-deps", "--no-index", "--no-build-isolation")
    run([sys.executable, "-m", "pip", "wheel", *offline, "--wheel-dir", str(folder), str(sdist)], sources)
    (wheel,) = folder.glob("*.whl")
    return wheel, sdist


def make_environment(folder: Path, *extras: str, libraries: Path | None = None) -> Path:
    """Make an environment in a new folder; return the folder of its programs.

    What the package needs with these extras is linked into it, and pip, as they are installed here; or all that is in
    ``libraries``, the folder of another environment's packages. Nothing else is there to be imported. Its only program
    is Airflow's.
    """
    run([sys.executable, "-m", "venv", "--without-pip", str(folder)], folder.parent)
    here = libraries or Path(sysconfig.get_path("purelib"))
    there = Path(sysconfig.get_path("purelib", vars={"base": str(folder), "platbase": str(folder)}))
    needed = list_files(find_needed(DISTRIBUTION, {"", *extras}) | {"pip"})
    for name in needed if libraries is None else {each.name for each in here.iterdir()}:
        (there / name).symlink_to(here / name)
    programs = folder / "bin"
    (programs / "airflow").write_text(f"#!{programs / 'python'}\nfrom airflow.__main__ import main\n\nmain()\n")
    (programs / "airflow").chmod(0o755)
    return programs


def install(wheel: Path, programs: Path) -> None:
    """Install the wheel into an environment as the guide for an Airflow of one's own does; no other package changes.

    What is there has to be enough: pip fetches nothing.
    """
    pip = [str(programs / "python"), "-m", "pip", "--disable-pip-version-check"]
    freeze = [*pip, "freeze", "--exclude-editable", "--exclude", DISTRIBUTION]
    installed = programs.parent / "installed.txt"
    installed.write_text(before := run(freeze, programs.parent))
    run([*pip, "install", "--quiet", "--no-index", str(wheel), "--constraint", str(installed)], programs.parent)
    assert before.splitlines()
    assert run(freeze, programs.parent) == before


def find_needed(package: str, extras: AbstractSet[str], libraries: Path | None = None) -> set[str]:
    """Return the packages that one needs, in this environment or that one, and what these need in turn."""
    installed = list_installed(libraries)
    found: dict[str, set[str]] = {}
    ahead = [(package, extras)]
    while ahead:
        name, more = ahead.pop()
        if new := more - found.setdefault(canonicalize_name(name), set()):
            found[canonicalize_name(name)] |= new
            needed = map(Requirement, installed[canonicalize_name(name)].requires or ())
            asked = (each for each in needed if not each.marker or any(each.marker.evaluate({"extra": e}) for e in new))
            ahead.extend((each.name, {"", *each.extras}) for each in asked)
    return {*found} - {canonicalize_name(package)}


def list_installed(libraries: Path | None = None) -> dict[str, metadata.Distribution]:
    """Return the packages of this environment or that one, by name. A first one hides others, as it does for Python."""
    places = sys.path if libraries is None else [str(libraries)]
    return {canonicalize_name(each.name): each for each in reversed([*metadata.distributions(path=places)])}


def list_files(packages: AbstractSet[str]) -> set[str]:
    """Return the names in ``site-packages`` that belong to these packages."""
    installed = [each for each in metadata.distributions() if canonicalize_name(each.name) in packages]
    return {file.parts[0] for each in installed for file in each.files or ()} - {"..", "__pycache__"}


def outside_of_the_checkout() -> dict[str, str]:
    """The environment of a person who knows nothing of the checkout, or of services that run for other tests."""
    ours = ("AIRFLOW", "BATCHLEDGER", "PYTHON", "PYTEST", "VIRTUAL_ENV")
    return {name: value for name, value in os.environ.items() if not name.startswith(ours)}


def run(command: list[str], folder: Path) -> str:
    """Run a command that has to succeed; return its output."""
    done = subprocess.run(
        command, cwd=folder, env=outside_of_the_checkout(), capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return done.stdout
