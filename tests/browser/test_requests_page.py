"""What waits for a second person, in a Chromium: the list follows what a person does, and what another one does."""

import pytest
from playwright.sync_api import expect

from tests.chromium import OpenPage
from tests.pages import ANA, BEN, open_desk, publish, read_approval, serving
from tests.support import Workplace


def test_list_follows_asking_and_withdrawing_and_keeps_what_is_typed(
    workplace: Workplace, open_page: OpenPage, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = workplace.create(partitions=1, second_person=["quarantine-drop", "truncate"])
    pipeline.send_raw([(0, b"not json")])
    pipeline.send(1, partitions=1)
    publish(pipeline)
    desk = open_desk(monkeypatch, ANA, BEN)
    with serving(desk.pages) as address, open_page(own=(address,)) as page:
        page.goto(f"{address}/pipelines/{pipeline.name}/decisions?do=quarantine-drop")
        form = page.locator("#quarantine-drop")
        form.get_by_label("Ranges").fill(f"{pipeline.name}[0] 0..1")
        form.get_by_label("Reason").fill("ticket 812")
        form.get_by_role("button", name="Show what would change").click()
        form.get_by_role("button", name="Ask a second person for it").click()
        expect(form.get_by_text("not done yet")).to_be_visible()
        first = page.locator("details[id^=request-]").first
        expect(first).to_contain_text("ticket 812")
        first.get_by_label("Reason").fill("not the right")
        # Another person asks for something else; nothing that is typed, or folded, is lost by it.
        shown = desk.preview(pipeline, "rewind", user=BEN, to="earliest", truncate="yes")
        desk.confirm(pipeline, "rewind", read_approval(shown), user=BEN)
        page.locator("body").dispatch_event("tick")
        expect(page.locator("details[id^=request-]")).to_have_count(2)
        first.get_by_label("Reason").press_sequentially(" records")
        expect(first.get_by_label("Reason")).to_have_value("not the right records")
        first.get_by_role("button", name="Withdraw the request").click()
        expect(page.locator("details[id^=request-]")).to_have_count(1)
        expect(page.locator("main > .outcome")).to_contain_text("done withdraw by ana of operations")
        expect(page.locator("main > .outcome")).to_be_in_viewport()
        # The request that came later works, too.
        second = page.locator("details[id^=request-]")
        second.get_by_label("Reason").fill("agreed")
        second.get_by_role("button", name="Confirm: rewind").click()
        expect(page.locator("#requests")).to_have_count(0)
        expect(page.locator("main > .outcome")).to_contain_text("done rewind by ana of operations")
    assert pipeline.count_target_rows() == 0
