"""The Chromium of the tests, made sure of before they begin: ``make test`` runs this as a program.

In this order: one that is installed and starts; Playwright's own, fetched if it is missing; as root, if there is
``apt-get``, the package ``chromium``. Without any of them no test is skipped: it stops and says what to install.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

INSTALLED = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome")
PACKAGE = "chromium"
ADVICE = (
    "there is no Chromium or Chrome that starts, and Playwright cannot fetch its own: install the package chromium, or "
    "google-chrome-stable, and try again. As root on Debian, `make test` does so itself."
)
_START_SECONDS = 60
_FETCH_SECONDS = 600


class BrowserMissingError(Exception):
    """No browser is there, and none can be had."""


def prepare_browser(*, may_install: bool) -> str | None:
    """Return the path of an installed Chromium; None stands for Playwright's own. Raises BrowserMissingError.

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
        if install_package() and (found := find_installed()) is not None:
            return found
    raise BrowserMissingError(ADVICE)


def find_installed() -> str | None:
    """Return the first that is on the PATH and starts; the name alone may be a hint to install something."""
    return next((path for path in map(shutil.which, INSTALLED) if path is not None and starts(path)), None)


def find_own() -> str | None:
    """Return the path of Playwright's own, once it was fetched."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        path = playwright.chromium.executable_path
    return path if Path(path).exists() else None


def starts(path: str) -> bool:
    """Whether the program and all the libraries that it needs are there."""
    return _run([path, "--version"], _START_SECONDS, is_quiet=True)


def fetch_own() -> bool:
    """Let Playwright fetch its own; return whether it did."""
    return _run([sys.executable, "-m", "playwright", "install", "chromium"], _FETCH_SECONDS)


def install_package() -> bool:
    """Install the package; return whether that went well."""
    return _run(["apt-get", "update", "--quiet"], _FETCH_SECONDS) and _run(
        ["apt-get", "install", "--quiet", "--yes", "--no-install-recommends", PACKAGE], _FETCH_SECONDS
    )


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
    """Make sure of a browser; the exit code says whether there is one."""
    try:
        _say(f"Chromium: {prepare_browser(may_install=os.geteuid() == 0) or find_own()}")
    except BrowserMissingError as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
