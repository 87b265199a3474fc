"""Data Docs and an alert as people see them: a history with ordinary trouble, then a producer that lost records."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random

import pytest
from playwright.sync_api import Page

from batchledger.interfaces.data_docs.folder import DOCS_VARIABLE
from batchledger.lifecycle import run_batch
from batchledger.model.errors import BatchBlockedError
from tests.chromium import Look, OpenPage
from tests.endpoints import connect_mail, serve_mail
from tests.integration.test_cli import ask
from tests.support import TestPipeline, Workplace

NAME = "shop_orders"  # No other test has a topic of this name.
FILE = {
    "source": {"schema": "message_id string, device_id int, seq bigint, amount double"},
    "dedupe": {"key": ["message_id"], "remember": "30d"},
    "sequence": {"key": ["device_id"], "number": "seq"},
    "checks": [
        {"type": "expect_column_values_to_not_be_null", "column": "amount", "mostly": 0.9},
        {"type": "expect_column_values_to_be_between", "column": "amount", "min_value": 0, "on_failure": "quarantine"},
        {"type": "expect_batch_rows_to_be_near_recent", "min_ratio": 0.4, "severity": "warning"},
    ],
    "alerts": ["oncall"],
}
BATCHES = 14


@dataclass
class Shop:
    """A producer whose records carry numbers of their own. The same ``seed`` does the same things."""

    pipeline: TestPipeline
    random: Random
    sent: int = 0

    def order(self, count: int) -> None:
        """Send orders; some come twice, some cannot be read, some have an amount that cannot be."""
        values = []
        for number in range(self.sent, self.sent + count):
            values.append(self.describe(number))
            if self.random.random() < 0.01:
                values.append(values[-1])
            if self.random.random() < 0.004:
                values.append(b"{")
        self.sent += count
        self.pipeline.send_raw((0, value) for value in values)

    def lose(self, count: int) -> None:
        """Number orders that never reach the broker."""
        self.sent += count

    def describe(self, number: int) -> bytes:
        """One order."""
        amount = -1 if self.random.random() < 0.0005 else round(self.random.uniform(5, 90), 2)
        order = {"message_id": f"m{number}", "device_id": number % 5, "seq": number // 5, "amount": amount}
        return json.dumps(order).encode()


@dataclass(frozen=True)
class Story:
    """What came of it: the pages, the batch that is blocked, and the mail that tells of it."""

    pages: Path
    blocked: int
    title: str
    mail: str


@pytest.fixture
def story(workplace: Workplace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Story]:
    """Batches of an ordinary week, one of them small; then records are lost before they reach the broker."""
    monkeypatch.setenv(DOCS_VARIABLE, str(tmp_path / "docs"))
    monkeypatch.setenv("AIRFLOW__API__BASE_URL", "https://airflow.example.com")
    pipeline = workplace.create(name=NAME, partitions=1, **FILE)
    shop = Shop(pipeline, Random(4))  # noqa: S311 -- not for cryptography
    with serve_mail() as mailbox:
        connect_mail(monkeypatch, "oncall", mailbox.port)
        for number in range(BATCHES):
            shop.order(90 if number == BATCHES - 4 else shop.random.randint(700, 1300))
            run_batch.run_once(pipeline.platform(), f"scheduled__2026-11-21T{number:02}:00:00+00:00")
        ask("alerts", "send", NAME)
        shop.order(200)
        shop.lose(10)
        shop.order(800)
        with pytest.raises(BatchBlockedError) as blocked:
            run_batch.run_once(pipeline.platform(), f"scheduled__2026-11-21T{BATCHES}:00:00+00:00")
        ask("alerts", "send", NAME)
        ask("docs", NAME)
        yield Story(tmp_path / "docs", blocked.value.batch_id, mailbox.titles[-1], mailbox.pages[-1])


def fits(page: Page) -> bool:
    """Whether one need not scroll sideways."""
    return bool(page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth"))


def test_history_its_batches_and_the_alert_are_seen_in_a_browser(
    story: Story, open_page: OpenPage, pictures: Path
) -> None:
    """In a light and a dark look, on a wide and a narrow screen: what is wrong is seen, and nothing is loaded."""
    looks: tuple[Look, ...] = ("light", "dark")
    for look in looks:
        with open_page(look, height=930) as page:
            page.goto((story.pages / "index.html").as_uri())
            page.get_by_role("link", name=NAME).click()
            for panel in ("Rows", "Duplicates", "Quarantined", "Holes"):
                assert page.locator("svg").get_by_text(panel, exact=True).is_visible()
            assert page.locator("td .blocked").all_inner_texts() == ["blocked"]
            page.screenshot(path=pictures / f"history-{look}.png")
            page.get_by_role("link", name=str(story.blocked), exact=True).click()
            failed = page.locator("table.checks").get_by_role("row").filter(has=page.locator(".failed"))
            assert "no_missing_numbers" in failed.first.inner_text()
            assert "numbers missing in what the producers have numbered: 10" in failed.first.inner_text()
            page.set_viewport_size({"width": 1100, "height": 620})
            page.screenshot(path=pictures / f"batch-{look}.png")
    with open_page(width=390) as page:
        for name in ("index", str(story.blocked)):
            page.goto((story.pages / NAME / f"{name}.html").as_uri())
            assert fits(page)
        # What was found is in sight, and no row is taller than what it says.
        for cell in page.locator("table.checks td.wide").all():
            box = cell.bounding_box()
            assert box is not None
            assert box["x"] + box["width"] <= 390
        failed = page.locator("table.checks tbody tr").first
        assert "numbers missing in what the producers have numbered" in failed.inner_text()
        page.screenshot(path=pictures / "batch-phone.png", full_page=True)
    with open_page(height=470) as page:
        page.set_content(story.mail)
        assert page.get_by_role("heading").inner_text() == story.title
        assert "blocked — no_missing_numbers" in story.title
        assert f"https://airflow.example.com/batchledger/docs/{NAME}/{story.blocked}" in page.inner_text("pre")
        page.screenshot(path=pictures / "alert.png")
