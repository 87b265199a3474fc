"""What the proof needs from the system, made sure of before it begins: ``make proof`` runs this as a program.

Playwright's driver, and a library that it wants. A Chromium, in this order: one that is installed and starts;
Playwright's own, fetched if it is missing; the package ``chromium``. Prometheus with ``promtool``: what is installed,
else the package ``prometheus``. Root gets packages, if there is ``apt-get``. Without a program no test is skipped: the
proof stops and says what to install.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

INSTALLED = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome")
CHROMIUM_ADVICE = (
    "there is no Chromium or Chrome that starts, and Playwright cannot fetch its own: install the package chromium, or "
    "google-chrome-stable, and try again. As root on Debian, `make proof` does so itself."
)
DRIVER_PACKAGE = "libatomic1"
DRIVER_ADVICE = (
    f"Playwright's driver does not start: install the package {DRIVER_PACKAGE}, and try again. As root on Debian, "
    "`make proof` does so itself."
)
PROMETHEUS = ("prometheus", "promtool")
PROMETHEUS_ADVICE = (
    "there is no {program} on the PATH: install the package prometheus (on Debian: apt-get install "
    "--no-install-recommends prometheus), and try again. As root on Debian, `make proof` does so itself."
)
_START_SECONDS = 60
_FETCH_SECONDS = 600


class ProgramMissingError(Exception):
    """A program is not there, and cannot be had. Its text says what to install."""


def prepare_browser(*, may_install: bool) -> str | None:
    """Return the path of an installed Chromium; None stands for Playwright's own. Raises ProgramMissingError.

    ``may_install``: a package is installed if nothing else helps.
    """
    found = find_installed()
    if found is not None:
        return found
    own = find_own()
    if own is not None and starts(own):
        return None
    _say("no Chromium is installed; Playwright fetches its own.")
    if fetch_own() and (own := find_own()) is not None and starts(own):
        return None
    if may_install and shutil.which("apt-get") is not None:
        _say("Playwright's own cannot be fetched, or does not start; the package chromium is installed.")
        if install_package("chromium") and (found := find_installed()) is not None:
            return found
    raise ProgramMissingError(CHROMIUM_ADVICE)


def find_installed() -> str | None:
    """Return the first that is on the PATH and starts; the name alone may be a hint to install something."""
    return next((path for path in map(shutil.which, INSTALLED) if path is not None and starts(path)), None)


def find_own() -> str | None:
    """Return the path of Playwright's own, once it was fetched."""
    from playwright.sync_api import sync_playwright

    if not driver_starts():
        return None
    with sync_playwright() as playwright:
        path = playwright.chromium.executable_path
    return path if Path(path).exists() else None


def driver_starts() -> bool:
    """Whether Playwright's driver finds the libraries that it needs: a small system lacks one."""
    return _run([sys.executable, "-m", "playwright", "--version"], _START_SECONDS, is_quiet=True)


def prepare_driver(*, may_install: bool) -> list[str]:
    """Return what Playwright's driver is called. Raises ProgramMissingError if it does not start."""
    if not driver_starts() and may_install and shutil.which("apt-get") is not None:
        _say(f"Playwright's driver does not start; the package {DRIVER_PACKAGE} is installed.")
        install_package(DRIVER_PACKAGE)
    if not driver_starts():
        raise ProgramMissingError(DRIVER_ADVICE)
    return ["Playwright's driver"]


def starts(path: str) -> bool:
    """Whether the program and all the libraries that it needs are there."""
    return _run([path, "--version"], _START_SECONDS, is_quiet=True)


def fetch_own() -> bool:
    """Let Playwright fetch its own; return whether it did."""
    return _run([sys.executable, "-m", "playwright", "install", "chromium"], _FETCH_SECONDS)


def install_package(package: str) -> bool:
    """Install the package; return whether that went well."""
    return _run(["apt-get", "update", "--quiet"], _FETCH_SECONDS) and _run(
        ["apt-get", "install", "--quiet", "--yes", "--no-install-recommends", package], _FETCH_SECONDS
    )


def find_prometheus(program: str) -> str:
    """Return the path of ``prometheus`` or ``promtool``. Raises ProgramMissingError."""
    found = shutil.which(program)
    if found is None:
        raise ProgramMissingError(PROMETHEUS_ADVICE.format(program=program))
    return found


def prepare_prometheus(*, may_install: bool) -> list[str]:
    """Return the paths of Prometheus and ``promtool``. Raises ProgramMissingError."""
    if may_install and shutil.which("apt-get") is not None and None in map(shutil.which, PROMETHEUS):
        _say("no Prometheus is installed; the package prometheus is installed.")
        install_package("prometheus")
    return [find_prometheus(each) for each in PROMETHEUS]


def _run(command: list[str], seconds: float, *, is_quiet: bool = False) -> bool:
    """Run a command, what it says on standard error; return whether it ended well in time."""
    # Otherwise each of several mirrors, which all may be out of reach, is waited for half a minute, five times.
    environment = {"PLAYWRIGHT_DOWNLOAD_CONNECTION_TIMEOUT": "10000", **os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    output = subprocess.DEVNULL if is_quiet else sys.stderr
    try:
        done = subprocess.run(
            command,
            check=False,
            timeout=seconds,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


def _say(text: str) -> None:
    sys.stderr.write(f"{text}\n")


def main() -> int:
    """Make sure of all programs, and name each that is missing; the exit code says whether they are there."""
    may_install, exit_code = os.geteuid() == 0, 0
    for prepare in (prepare_driver, _prepare_chromium, prepare_prometheus):
        try:
            _say(f"Found {' and '.join(prepare(may_install=may_install))}.")
        except ProgramMissingError as error:
            _say(f"error: {error}")
            exit_code = 1
    return exit_code


def _prepare_chromium(*, may_install: bool) -> list[str]:
    return [prepare_browser(may_install=may_install) or str(find_own())]


if __name__ == "__main__":
    sys.exit(main())
