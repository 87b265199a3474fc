"""Chromium and Prometheus are made sure of before the proof, by programs that stand in for the machine's own."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests import programs
from tests.conftest import ROOT
from tests.programs import PROMETHEUS, ProgramMissingError

STARTS = "#!/bin/sh\necho Chromium 150\n"
DOES_NOT_START = "#!/bin/sh\necho 'install the snap' >&2\nexit 1\n"
INSTALLS = """#!/bin/sh
echo "$@" >> {said}
for name in "$@"; do :; done
case "$1" in
install) for each in $name promtool; do printf '#!/bin/sh\\n' > {folder}/$each; chmod 755 {folder}/$each; done;;
esac
"""


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """A folder that is all of the PATH but a shell. Playwright has no browser on this machine and can fetch none."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ("sh", "chmod"):
        (folder / name).symlink_to(f"/bin/{name}")
    for name in PROMETHEUS:
        put(folder, name, STARTS)
    return folder


def put(folder: Path, name: str, text: str) -> None:
    (folder / name).write_text(text)
    (folder / name).chmod(0o755)


def prepare(machine: Path, *, is_root: bool = True, browsers: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run what ``make proof`` runs first, as root or not, under any user; Playwright fetches into ``browsers``."""
    user = f"import os, sys; os.geteuid = lambda: {0 if is_root else 1000}; "
    # Whether this machine has the library of Playwright's driver is not in question.
    driver = "from tests import programs; programs.prepare_driver = lambda may_install: ['a driver']; "
    program = f"{user}{driver}sys.exit(programs.main())"
    environment = {
        **os.environ,
        "PATH": str(machine),
        "PLAYWRIGHT_BROWSERS_PATH": str(browsers or machine.parent / "browsers"),
        "PLAYWRIGHT_DOWNLOAD_HOST": "http://127.0.0.1:9",
    }
    return subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize("name", ["chromium", "google-chrome"])
def test_browser_that_is_installed_is_taken_and_nothing_is_fetched(machine: Path, name: str) -> None:
    put(machine, name, STARTS)
    done = prepare(machine)
    assert (done.returncode, done.stdout, done.stderr) == (
        0,
        "",
        f"Found a driver.\nFound {machine / name}.\nFound {machine / 'prometheus'} and {machine / 'promtool'}.\n",
    )


def test_name_of_a_browser_that_does_not_start_is_none(machine: Path) -> None:
    put(machine, "chromium", DOES_NOT_START)
    put(machine, "google-chrome", STARTS)
    assert prepare(machine).returncode == 0


def test_root_gets_the_package_where_playwright_can_fetch_nothing(machine: Path, tmp_path: Path) -> None:
    said = tmp_path / "said"
    put(machine, "apt-get", INSTALLS.format(said=said, folder=machine))
    done = prepare(machine)
    assert done.returncode == 0, done.stderr
    assert said.read_text() == "update --quiet\ninstall --quiet --yes --no-install-recommends chromium\n"
    assert done.stderr.index("Playwright fetches its own") < done.stderr.index("the package chromium is installed")


@pytest.mark.parametrize(
    ("is_root", "apt"),
    [(False, INSTALLS), (True, "#!/bin/sh\nexit 100\n"), (True, "#!/bin/sh\nexit 0\n")],
    ids=["not root", "apt-get fails", "no such package"],
)
def test_without_any_browser_it_stops_and_says_what_to_install(machine: Path, is_root: bool, apt: str) -> None:
    put(machine, "apt-get", apt.format(said=machine.parent / "said", folder=machine))
    # Playwright gives up at once where no folder can be; an address that refuses it is asked five times.
    done = prepare(machine, is_root=is_root, browsers=machine / "sh" / "none")
    assert done.returncode == 1
    assert "error: there is no Chromium or Chrome that starts" in done.stderr
    assert "install the package chromium" in done.stderr
    assert not (machine / "chromium").exists()


@pytest.fixture
def bare(machine: Path) -> Path:
    """A machine with a Chromium, and without Prometheus."""
    put(machine, "chromium", STARTS)
    for name in PROMETHEUS:
        (machine / name).unlink()
    return machine


def test_root_gets_the_package_of_prometheus(bare: Path, tmp_path: Path) -> None:
    said = tmp_path / "said"
    put(bare, "apt-get", INSTALLS.format(said=said, folder=bare))
    done = prepare(bare)
    assert done.returncode == 0, done.stderr
    assert said.read_text() == "update --quiet\ninstall --quiet --yes --no-install-recommends prometheus\n"


def test_all_that_is_missing_is_named_at_once_where_there_is_no_apt_get(bare: Path) -> None:
    (bare / "chromium").unlink()
    done = prepare(bare, browsers=bare / "sh" / "none")
    assert done.returncode == 1
    assert "install the package chromium" in done.stderr
    assert "install the package prometheus" in done.stderr


@pytest.mark.parametrize("may_install", [True, False])
def test_library_of_playwrights_driver_is_installed_or_named(
    machine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, may_install: bool
) -> None:
    said = tmp_path / "said"
    put(machine, "apt-get", INSTALLS.format(said=said, folder=machine))
    monkeypatch.setenv("PATH", str(machine))
    monkeypatch.setattr(programs, "driver_starts", said.exists)
    if may_install:
        assert programs.prepare_driver(may_install=True)
        assert said.read_text().splitlines()[-1].endswith(" libatomic1")
        return
    with pytest.raises(ProgramMissingError, match="install the package libatomic1"):
        programs.prepare_driver(may_install=False)


def list_prerequisites(target: str) -> list[str]:
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    found = re.search(rf"(?m)^{target}: (.*?)  ##", text)
    assert found is not None
    return found[1].split()


def test_setup_leaves_nothing_behind_that_holds_its_output(tmp_path: Path) -> None:
    """The ``sleep`` between two messages outlives the loop: ``make setup | cat`` would wait for it."""
    programs = {
        "sleep": "found=$(readlink /proc/$$/fd/1); mkdir once 2>&- && echo $found > answer; exec /bin/sleep 1",
        "python": "mkdir asked 2>&- && cat answer > said; exit 0",
    }
    os.mkfifo(tmp_path / "answer")
    for name, text in programs.items():
        (tmp_path / name).write_text(f"#!/bin/sh\ncd {tmp_path}\n{text}\n")
        (tmp_path / name).chmod(0o755)
    (tmp_path / "environment").touch()
    target, variables = f"{tmp_path}/packages", (f"STAMPS={tmp_path}", f"BIN={tmp_path}")
    path = f"{tmp_path}:{os.environ['PATH']}"
    made = subprocess.run(
        ["make", "-C", ROOT, *variables, target],  # noqa: S607
        capture_output=True,
        check=True,
        env={**os.environ, "PATH": path},
    )
    assert b"Installing the locked packages" in made.stdout
    assert (tmp_path / "said").read_text() == "/dev/null\n"


def test_proof_begins_with_the_programs_and_make_test_needs_none() -> None:
    assert list_prerequisites("proof")[0] == "programs"
    assert "programs" not in list_prerequisites("test")


def test_build_machine_has_what_the_readme_lists_and_brings_nothing_else() -> None:
    """A program that it brings would hide that ``make test`` wants it."""
    text = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    assert re.findall(r"missing\+=\((\S+)\)", text) == ["make", "openjdk-17-jre-headless", "python3-venv"]
    assert text.count("apt-get install") == 1
