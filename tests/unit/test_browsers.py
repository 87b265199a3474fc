"""A Chromium for the tests is made sure of at the start, by programs that stand in for the machine's own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT

STARTS = "#!/bin/sh\necho Chromium 150\n"
DOES_NOT_START = "#!/bin/sh\necho 'install the snap' >&2\nexit 1\n"
INSTALLS = """#!/bin/sh
echo "$@" >> {said}
case "$1" in install) printf '#!/bin/sh\\necho Chromium 150\\n' > {folder}/chromium; chmod 755 {folder}/chromium;; esac
"""


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """A folder that is all of the PATH but a shell. Playwright has no browser on this machine and can fetch none."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ("sh", "chmod"):
        (folder / name).symlink_to(f"/bin/{name}")
    return folder


def put(folder: Path, name: str, text: str) -> None:
    (folder / name).write_text(text)
    (folder / name).chmod(0o755)


def prepare(machine: Path, *, is_root: bool = True, browsers: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run what ``make test`` runs first, as root or not, under any user; Playwright fetches into ``browsers``."""
    user = f"import os, sys; os.geteuid = lambda: {0 if is_root else 1000}; "
    program = f"{user}from tests.browsers import main; sys.exit(main())"
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
    assert (done.returncode, done.stdout, done.stderr) == (0, "", f"Chromium: {machine / name}\n")


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
    [(False, INSTALLS), (True, None), (True, "#!/bin/sh\nexit 100\n"), (True, "#!/bin/sh\nexit 0\n")],
    ids=["not root", "no apt-get", "apt-get fails", "no such package"],
)
def test_without_any_browser_it_stops_and_says_what_to_install(machine: Path, is_root: bool, apt: str | None) -> None:
    if apt is not None:
        put(machine, "apt-get", apt.format(said=machine.parent / "said", folder=machine))
    # Playwright gives up at once where no folder can be; an address that refuses it is asked five times.
    done = prepare(machine, is_root=is_root, browsers=machine / "sh" / "none")
    assert done.returncode == 1
    assert "error: there is no Chromium or Chrome that starts" in done.stderr
    assert "install the package chromium" in done.stderr
    assert not (machine / "chromium").exists()


def test_make_test_begins_with_the_browser() -> None:
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert "\ntest: browser lint setup " in text
    assert "$(BIN)/python -m tests.browsers" in text
