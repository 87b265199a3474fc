"""The list of 120 pipelines in a Chromium, by keyboard and by mouse. Everything is real but what there is to list.

The page on real services, and in Airflow's frame: tests/e2e/test_page.py.
"""

import re
from collections.abc import Iterator

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, Route, expect

from batchledger.interfaces.page.overview import Overview
from batchledger.interfaces.page.watch import Watch
from batchledger.interfaces.surveys import Standing
from batchledger.model.findings import PipelineState
from batchledger.monitoring.health import PipelineHealth, Threats
from tests.chromium import Look, OpenPage
from tests.pages import User, let_in, serving

LOOKS: tuple[Look, ...] = ("light", "dark")
PIPELINES = 120
WORST = "zebra_of_the_second_enclosure_in_the_north"
OTHERS = (PipelineState.UNREAD, PipelineState.CAUGHT_UP)


def list_standings() -> Iterator[Standing]:
    """One blocked pipeline, then 119: the more unread records, the later the name."""
    yield Standing(PipelineHealth(WORST, PipelineState.BLOCKED, f"batch 4 of {WORST} waits for a person", None))
    for number in range(1, PIPELINES):
        threats = Threats(number * 10, (), None, None)
        yield Standing(PipelineHealth(f"orders-{number:03}", OTHERS[number % 2], "", threats))


@pytest.fixture
def pipelines(monkeypatch: pytest.MonkeyPatch) -> list[Standing]:
    """What there is to list; a test may empty it."""
    return list(list_standings())


@pytest.fixture
def address(pipelines: list[Standing], monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The page, served to a user who may see all of it."""
    dags = frozenset(each.name for each in pipelines) | {"none"}
    app = let_in(monkeypatch, User("ana", dags=dags))
    app.state.lookout.overview = Watch(lambda _: Overview(tuple(pipelines)), 1.0)
    with serving(app) as address:
        yield address


@pytest.fixture
def page(address: str, open_page: OpenPage) -> Iterator[Page]:
    with open_page(width=1280, own=(address,), allowed=("net::ERR_ABORTED",)) as page:
        page.goto(f"{address}/pipelines")
        expect(page.locator("tbody tr")).to_have_count(50)
        yield page


def expect_first(page: Page, name: str) -> None:
    """The address changes before the table does."""
    expect(page.locator("tbody th a").first).to_have_text(name)


def test_list_is_filtered_while_one_types_and_the_field_keeps_its_focus(page: Page) -> None:
    page.get_by_label("Filter pipelines by name").press_sequentially("orders-11", delay=30)
    expect(page.get_by_role("status").filter(has_text="10 of 120 pipelines")).to_be_visible()
    expect(page).to_have_url(re.compile(r"\?q=orders-11$"))
    expect(page.get_by_label("Filter pipelines by name")).to_be_focused()
    page.locator("body").dispatch_event("tick")
    page.wait_for_load_state("networkidle")
    expect(page.locator("tbody tr")).to_have_count(10)
    page.keyboard.type("9")
    expect(page.locator("tbody th a")).to_have_text(["orders-119"])
    # All keys of one word are one step back.
    page.go_back()
    expect(page.locator("tbody tr")).to_have_count(50)
    expect(page.get_by_label("Filter pipelines by name")).to_have_value("")
    page.go_forward()
    expect(page.locator("tbody th a")).to_have_text(["orders-119"])
    expect(page.get_by_label("Filter pipelines by name")).to_have_value("orders-119")


def hold_look(page: Page) -> list[Route]:
    """Let the page ask whether anything is new, and hold what it asks."""
    held: list[Route] = []

    def hold(route: Route) -> None:
        held.append(route)

    page.route("**/pipelines", hold)
    page.locator("body").dispatch_event("tick")
    return held


def test_buttons_stay_as_they_are_while_the_page_asks_whether_anything_is_new(page: Page) -> None:
    """Only the form that was sent dims."""
    held = hold_look(page)
    expect(page.locator("#page.htmx-request")).to_have_count(1)
    expect(page.locator("th .sort").first).to_have_css("opacity", "1")
    held[0].continue_()


def test_answer_to_an_older_question_replaces_nothing(page: Page) -> None:
    """The clock asked before the last key, and its answer comes late."""
    held = hold_look(page)
    page.get_by_label("Filter pipelines by name").fill("zebra")
    expect(page.locator("tbody th a")).to_have_text([WORST])
    assert held
    held[0].continue_()
    page.wait_for_load_state("networkidle")
    expect(page.locator("tbody th a")).to_have_text([WORST])


def test_button_of_a_column_sorts_all_pages_and_says_so(page: Page) -> None:
    column = page.get_by_role("columnheader", name="Unread records")
    expect(column).to_have_attribute("aria-sort", "none")
    column.get_by_role("button").focus()
    page.keyboard.press("Enter")
    expect(column).to_have_attribute("aria-sort", "descending")
    expect(column.get_by_role("button")).to_be_focused()
    expect(page).to_have_url(re.compile(r"\?sort=-unread$"))
    # The pipeline with the most unread records was on the last page.
    expect_first(page, "orders-119")
    page.keyboard.press("Space")
    expect(column).to_have_attribute("aria-sort", "ascending")
    expect_first(page, "orders-001")
    page.get_by_role("link", name="next →").click()
    expect(page).to_have_url(re.compile(r"\?sort=unread&page=2$"))
    expect_first(page, "orders-051")
    # What is filtered begins on its first page, and keeps the order.
    page.get_by_label("Filter pipelines by name").fill("09")
    expect(page).to_have_url(re.compile(r"\?sort=unread&q=09$"))
    expect_first(page, "orders-009")


def test_state_is_chosen_by_a_link_and_kept_in_the_address(page: Page, address: str) -> None:
    page.get_by_role("link", name="Blocked 1").press("Enter")
    expect(page.locator("tbody th a")).to_have_text([WORST])
    expect(page.get_by_role("link", name="Blocked 1")).to_have_attribute("aria-current", "true")
    page.goto(f"{address}/pipelines?state=unread+records&sort=-name")
    expect_first(page, "orders-118")
    expect(page.get_by_role("columnheader", name="Pipeline")).to_have_attribute("aria-sort", "descending")


def test_filter_and_order_work_without_scripts(page: Page, address: str) -> None:
    context = page.context.browser.new_context(java_script_enabled=False)
    plain = context.new_page()
    plain.goto(f"{address}/pipelines?sort=-name")
    plain.get_by_label("Filter pipelines by name").fill("orders-00")
    plain.get_by_label("Filter pipelines by name").press("Enter")
    assert plain.url.endswith("?q=orders-00&sort=-name")
    expect_first(plain, "orders-009")
    plain.get_by_role("button", name="Unread records").click()
    assert plain.url.endswith("?q=orders-00&sort=-unread")
    assert plain.locator("tbody tr").count() == 9
    context.close()


def test_keyboard_alone_reaches_everything_and_its_place_is_seen(page: Page) -> None:
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="To the content")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("#page")).to_be_focused()
    seen = []
    for _ in range(16):
        page.keyboard.press("Tab")
        seen.append(page.evaluate("document.activeElement.innerText || document.activeElement.tagName"))
        assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid", seen
    assert [each for each in seen if each in {"All 120", "Unread records", WORST}] == [
        "All 120",
        "Unread records",
        WORST,
    ]


def test_empty_lists_say_what_to_do_next(page: Page, pipelines: list[Standing], address: str) -> None:
    page.get_by_label("Filter pipelines by name").fill("nothing like that")
    expect(page.get_by_text("No pipeline matches the filter.")).to_be_visible()
    expect(page.get_by_role("status").filter(has_text="0 of 120 pipelines")).to_be_visible()
    page.get_by_role("link", name="Show all 120 pipelines").click()
    expect(page.locator("tbody tr")).to_have_count(50)
    expect(page.get_by_label("Filter pipelines by name")).to_have_value("")
    pipelines.clear()
    expect(page.get_by_text("There is no pipeline that you may see.")).to_be_visible(timeout=20_000)
    expect(page.get_by_text("batchledger plan NAME")).to_be_visible()


def test_unknown_column_is_refused_in_three_lines(page: Page, address: str, open_page: OpenPage) -> None:
    with open_page(own=(address,), allowed=("409",)) as other:
        other.goto(f"{address}/pipelines?sort=password")
        lines = other.get_by_role("alert").locator("p").all_inner_texts()
        assert len(lines) == 3
        assert lines[2] == "Choose one of: name, state, unread, oldest, last, rows."


@pytest.mark.parametrize("query", ["", "?q=nothing", "?sort=-unread"])
@pytest.mark.parametrize("width", [400, 1600])
def test_list_passes_axe_and_fits(address: str, open_page: OpenPage, query: str, width: int) -> None:
    """The state of a pipeline is in sight on a phone, however long its name is."""
    for look in LOOKS:
        with open_page(look, width=width, own=(address,)) as page:
            page.goto(f"{address}/pipelines{query}")
            expect(page.get_by_role("heading", level=1)).to_contain_text("pipelines")
            assert page.evaluate("document.documentElement.dataset.look") == look
            found = Axe().run(page).response["violations"]
            assert [(each["id"], [node["html"] for node in each["nodes"]][:2]) for each in found] == []
            assert page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
            ends = "[...document.querySelectorAll('th + td .state')].map(each => each.getBoundingClientRect().right)"
            assert all(each <= width for each in page.evaluate(ends))
