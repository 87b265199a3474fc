"""A real Chromium: one that is installed, else Playwright's own; ``BATCHLEDGER_PICTURES`` names where pictures stay."""

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import pytest

from tests.programs import ProgramMissingError, prepare_browser

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

PICTURES_VARIABLE = "BATCHLEDGER_PICTURES"
# Otherwise it looks for hosts of its maker at every start.
ALONE = ("--disable-background-networking", "--disable-component-update", "--disable-sync", "--no-first-run")

# A page from the disk.
FROM_DISK = ("file:",)

Look = Literal["light", "dark"]
OpenPage = Callable[..., AbstractContextManager["Page"]]


def find_chromium() -> str | None:
    """Return the path of an installed Chromium; None stands for Playwright's own."""
    try:
        return prepare_browser(may_install=False)
    except ProgramMissingError as error:
        pytest.fail(str(error))


@pytest.fixture(scope="session")
def browser() -> Iterator["Browser"]:
    """One Chromium for all tests."""
    from playwright.sync_api import sync_playwright

    path = find_chromium()
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=path, args=ALONE)
        yield chromium
        chromium.close()


@pytest.fixture
def open_page(browser: "Browser") -> OpenPage:
    """Open a page in a look and a width; it must load nothing but its ``own``, and complain about nothing.

    ``cookies`` belong to the address that they are for; ``allowed`` are complaints that are part of a test.
    """

    @contextmanager
    def open_page(
        look: Look = "light",
        width: int = 1100,
        height: int = 900,
        *,
        own: tuple[str, ...] = FROM_DISK,
        cookies: Mapping[str, str] | None = None,
        allowed: tuple[str, ...] = (),
    ) -> Iterator["Page"]:
        context = browser.new_context(color_scheme=look, viewport={"width": width, "height": height})
        context.add_cookies([{"name": name, "value": each, "url": own[0]} for name, each in (cookies or {}).items()])
        page, complaints, loaded = context.new_page(), list[str](), list[str]()
        page.on("request", lambda request: loaded.append(request.url))
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("requestfailed", lambda request: complaints.append(f"{request.url}: {request.failure}"))
        yield page
        context.close()
        assert [each for each in complaints if not any(part in each for part in allowed)] == [], complaints
        known = (*own, *(f"blob:{each}" for each in own), "data:")
        foreign = [each for each in loaded if not each.startswith(known)]
        assert foreign == [], foreign

    return open_page


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    """Where pictures go: thrown away unless the environment names a folder."""
    folder = Path(os.environ.get(PICTURES_VARIABLE) or tmp_path)
    folder.mkdir(parents=True, exist_ok=True)
    return folder
