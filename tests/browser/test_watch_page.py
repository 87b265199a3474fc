"""The page of a watch in a Chromium, on real services: both looks, wide and narrow, and nothing loaded."""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from uuid import uuid4

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, expect

from batchledger.watching.look import look
from tests.chromium import Look, OpenPage
from tests.conftest import Kafka, open_workplace
from tests.pages import User, open_desk, serving
from tests.watched import WatchedTopic, write_watch_file

LOOKS: tuple[Look, ...] = ("light", "dark")


@pytest.fixture(scope="module")
def payments(kafka: Kafka, warehouse_dsn: str) -> Iterator[WatchedTopic]:
    """A watch of payments: rows are missing, one is there twice, records were aborted; before that, all was well."""
    with open_workplace(kafka.options, warehouse_dsn) as place:
        shop = WatchedTopic(kafka.options, warehouse_dsn, partitions=9, name=f"payments_{uuid4().hex[:6]}")
        for partition in range(9):
            shop.produce(400 + 20 * partition, partition)
            shop.insert(range(400 + 20 * partition), partition)
        write_watch_file(place.folder, shop, schedule="*/30 * * * *", lateness="10m")
        look(shop.watch(), datetime.now(UTC))
        shop.produce_in_transaction(40, is_committed=False, partition=2)
        shop.produce(60, 3)
        shop.insert([each for each in range(460, 520) if each not in (471, *range(500, 507))], 3)
        shop.insert([12], 5)
        look(shop.watch(), datetime.now(UTC), everything=True)
        yield shop


@pytest.fixture
def address(payments: WatchedTopic, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The pages, served to a user who may read the DAG of the watch."""
    desk = open_desk(monkeypatch, User("ana", dags=frozenset({payments.name})))
    with serving(desk.pages) as address:
        yield address


def expect_well_made(page: Page) -> None:
    """Everyone can read it, and it is no wider than the window."""
    found = Axe().run(page).response["violations"]
    assert [(each["id"], [node["html"] for node in each["nodes"]][:2]) for each in found] == []
    assert page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")


@pytest.mark.parametrize("width", [400, 1280])
def test_page_of_a_watch_passes_axe_and_fits(
    payments: WatchedTopic, address: str, open_page: OpenPage, pictures: Path, width: int
) -> None:
    for colors in LOOKS:
        with open_page(colors, width=width, own=(address,), allowed=("net::ERR_ABORTED",)) as page:
            page.goto(f"{address}/watches/{payments.name}")
            expect(page.get_by_role("heading", level=1)).to_contain_text("wrong")
            expect_well_made(page)
            wide = "" if width > 1000 else "-narrow"
            page.screenshot(path=pictures / f"page-watch{wide}-{colors}.png", full_page=True)


def test_list_leads_to_the_watch_whose_partitions_are_filtered_and_sorted_in_place(
    payments: WatchedTopic, address: str, open_page: OpenPage, pictures: Path
) -> None:
    with open_page(width=1280, own=(address,), allowed=("net::ERR_ABORTED",)) as page:
        page.goto(f"{address}/pipelines")
        row = page.locator(f"#row-{payments.name}")
        expect(row).to_contain_text("missing 8, twice 1")
        page.screenshot(path=pictures / "page-pipelines-with-watch.png", full_page=True)
        row.get_by_role("link", name=payments.name).click()
        expect(page.locator("#page")).to_contain_text(f"{payments.name}[3] 471..472, {payments.name}[3] 500..507")
        partitions = page.locator("table.ribbons tbody th")
        page.get_by_role("button", name="Not proved").click()
        expect(partitions.first).to_have_text(f"{payments.name}[3]")
        page.get_by_label("Filter partitions").fill("[5]")
        expect(partitions).to_have_text([f"{payments.name}[5]"])
        page.get_by_label("Filter partitions").fill("nothing")
        page.get_by_role("link", name="Show all 9 partitions").click()
        expect(partitions).to_have_count(9)
