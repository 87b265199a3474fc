"""The page in a real Airflow and a real Chromium: what people see and do there, and what they must not."""

import json
import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Locator, Page, expect

from batchledger.books.history import load_batch_history
from batchledger.interfaces.page.app import build_app
from batchledger.lifecycle import decisions, run_batch
from batchledger.local.airflow_api import AirflowApi
from batchledger.local.stack.home import write_private
from batchledger.looking import ledger_dsn
from batchledger.model.batch import BatchState, Decision
from batchledger.model.errors import BatchBlockedError, LossError
from batchledger.model.offsets import OffsetRange
from tests.chromium import Look, OpenPage
from tests.conftest import Kafka, TestServices
from tests.e2e.own_airflow import fill_form
from tests.e2e.runs import DEADLINE_SECONDS, PATIENT, batches_of, switch_on, trigger
from tests.support import TestPipeline, Workplace, delete_records
from tests.unit.test_ui_app import list_routes

pytestmark = PATIENT

MARKUP = "<script>document.title='broken'</script>"
WIDE = (1280, 860)
LOOKS: tuple[Look, ...] = ("light", "dark")
expect.set_options(timeout=60_000)
OpenView = Callable[..., AbstractContextManager[Page]]


@dataclass(frozen=True)
class Shop:
    """Four pipelines: caught up; with unread records, quarantine and a skip; blocked; one that has lost records."""

    clicks: TestPipeline
    purchases: TestPipeline
    payments: TestPipeline
    shipments: TestPipeline
    blocked: int
    skipped: OffsetRange
    lost: OffsetRange


@pytest.fixture(scope="module")
def shop(kafka: Kafka, warehouse_dsn: str, spark: None, services: TestServices, airflow: AirflowApi) -> Iterator[Shop]:
    """What has happened in a shop since yesterday."""
    workplace = Workplace(kafka.options, warehouse_dsn, services.home.pipelines)
    clicks, purchases, shipments = (workplace.create(name=name) for name in ("clicks", "purchases", "shipments"))
    not_negative = {"type": "expect_column_values_to_be_between", "column": "amount", "min_value": 0}
    payments = workplace.create(name="payments", checks=[not_negative])
    for hours, size in ((5, 40), (3, 60), (1, 30)):
        clicks.send(size)
        publish(clicks)
        move_back(clicks, hours)
    purchases.send(200)
    purchases.send_raw([(0, MARKUP.encode())], key=b"k1")
    publish(purchases)
    purchases.send(60)
    skipped = OffsetRange.parse("purchases[1] 100..104")
    decisions.skip(purchases.platform(), [skipped], Decision("ana", "test orders, agreed with finance"))
    publish(purchases)
    purchases.send(25)
    payments.send(50)
    publish(payments)
    payments.send_raw([(0, json.dumps({"message_id": "x", "number": 1, "amount": -5}).encode())])
    with pytest.raises(BatchBlockedError) as blocked:
        publish(payments)
    shipments.send(40)
    publish(shipments)
    shipments.send(20)
    delete_records(kafka.options, "shipments", 0, 25)
    with pytest.raises(LossError):
        publish(shipments)
    for each in (clicks, purchases, payments, shipments):
        switch_on(airflow, each)
    lost = OffsetRange.parse("shipments[0] 20..25")
    yield Shop(clicks, purchases, payments, shipments, blocked.value.batch_id, skipped, lost)
    for path in services.home.pipelines.glob("*.yaml"):
        path.unlink()


def publish(pipeline: TestPipeline) -> None:
    run_batch.run_once(pipeline.platform(), f"scheduled__{pipeline.name}")


def move_back(pipeline: TestPipeline, hours: int) -> None:
    """Let the newest batch be some hours old."""
    pipeline.query(
        "update batchledger.batch set planned_at = planned_at - make_interval(hours => %s), "
        "published_at = published_at - make_interval(hours => %s) "
        "where batch_id = (select max(batch_id) from batchledger.batch where pipeline = %s) returning 1",
        hours,
        hours,
        pipeline.name,
    )


def look_at(page: Page, look: Look) -> None:
    """Give the machine this look, and choose it in Airflow's page; wait until ours has followed."""
    page.emulate_media(color_scheme=look)
    if len(page.frames) > 1:
        page.evaluate("look => localStorage.setItem('theme', look)", look)
    page.frames[-1].wait_for_function("look => document.documentElement.dataset.look === look", arg=look)


def picture(page: Page, pictures: Path, name: str) -> None:
    """Keep a picture of what is seen now, in both looks."""
    for look in LOOKS:
        look_at(page, look)
        file = pictures / f"page-{name}-{look}.png"
        if len(page.frames) > 1:
            page.locator("iframe").screenshot(path=file)
        else:
            height = page.evaluate("document.querySelector('main').getBoundingClientRect().bottom") + 16
            page.screenshot(path=file, clip={"x": 0, "y": 0, "width": WIDE[0], "height": min(height, WIDE[1])})


def token_of(api: AirflowApi) -> str:
    return api.client.headers["Authorization"].removeprefix("Bearer ")


@pytest.fixture
def open_view(shop: Shop, airflow: AirflowApi, open_page: OpenPage) -> OpenView:
    """Open an address of the page, logged in as the administrator or as another user."""

    @contextmanager
    def open_view(address: str, user: AirflowApi = airflow, allowed: tuple[str, ...] = ()) -> Iterator[Page]:
        cookies = {"_token": token_of(user)}
        # A page that is left while it asks whether anything is new.
        allowed = (*allowed, "net::ERR_ABORTED")
        with open_page(width=WIDE[0], height=WIDE[1], own=(airflow.url,), cookies=cookies, allowed=allowed) as page:
            page.goto(f"{airflow.url}{address}")
            yield page

    return open_view


def row_of(page: Page, name: str) -> Locator:
    return page.locator(f"#row-{name}")


VIEWS = {
    "pipelines": "/batchledger/pipelines",
    "pipeline": "/batchledger/pipelines/purchases",
    "partition": "/batchledger/pipelines/purchases/partitions/purchases/0",
    "schema": "/batchledger/pipelines/purchases/schema?from_topic=true",
    "batch": "/batchledger/pipelines/payments/batches/{blocked}",
    "decisions": "/batchledger/pipelines/payments/decisions?do=accept&batch={blocked}",
}


@pytest.mark.parametrize("name", VIEWS)
def test_each_view_can_be_read_by_everybody_in_both_looks(
    open_view: OpenView, shop: Shop, pictures: Path, name: str
) -> None:
    """No finding of axe, wide and narrow, and nothing to scroll sideways on a small screen."""
    address = VIEWS[name].format(blocked=shop.blocked)
    with open_view(address) as page:
        dated = row_of(page, "purchases").locator("td").nth(2).get_by_role("time")
        ready = {"pipelines": dated, "pipeline": page.locator(".asof")}
        expect(ready.get(name, page.get_by_role("heading", level=1))).to_be_visible()
        picture(page, pictures, name)
        for look in LOOKS:
            look_at(page, look)
            for width in (1600, 400):
                page.set_viewport_size({"width": width, "height": 860})
                found = Axe().run(page).response["violations"]
                assert [(each["id"], [node["html"] for node in each["nodes"]][:2]) for each in found] == []
                assert page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")


def test_pipelines_are_listed_the_worst_first_and_stay_up_to_date(open_view: OpenView, shop: Shop) -> None:
    with open_view("/batchledger/pipelines") as page:
        expect(row_of(page, "purchases")).to_contain_text("unread records")
        # The first view may be an earlier look's.
        expect(page.locator("tbody th a")).to_have_text(["shipments", "payments", "purchases", "clicks"])
        expect(row_of(page, "shipments")).to_contain_text(str(shop.lost))
        expect(row_of(page, "payments")).to_contain_text("blocked")
        expect(row_of(page, "clicks")).to_contain_text("caught up")
        page.get_by_role("columnheader", name="Rows today").get_by_role("button").click()
        expect(page.locator("tbody th a").first).to_have_text("purchases")
        page.get_by_label("Filter pipelines by name").fill("cli")
        expect(page.locator("tbody th a")).to_have_text(["clicks"])
        shop.clicks.send(7)
        # The page is not reloaded.
        expect(row_of(page, "clicks")).to_contain_text("unread records")
        expect(row_of(page, "clicks").locator("td").nth(1)).to_have_text("7")
        publish(shop.clicks)


def test_pipeline_shows_what_has_become_of_every_offset_down_to_the_batch(open_view: OpenView, shop: Shop) -> None:
    with open_view("/batchledger/pipelines/purchases") as page:
        ribbon = page.get_by_role("row").filter(has_text="purchases[0]").get_by_role("img")
        expect(ribbon).to_have_attribute("aria-label", "quarantined 1, published 130, unread 13")
        other = page.get_by_role("row").filter(has_text="purchases[1]").get_by_role("img")
        expect(other).to_have_attribute("aria-label", "accepted loss 4, published 126, unread 12")
        assert other.locator("rect.accepted-loss").count() == 1
        page.get_by_role("link", name="purchases[1]", exact=True).press("Enter")
        expect(page.get_by_role("heading", level=1)).to_have_text("purchases[1]")
        page.get_by_role("link", name="100..104").first.click()
        segment = page.locator("tbody tr").first
        expect(segment).to_contain_text("accepted loss")
        page.get_by_role("region", name="Batches that hold them").get_by_role("link").last.click()
        expect(page.get_by_role("heading", level=1)).to_contain_text("of purchases")
        expect(page.get_by_text("test orders, agreed with finance")).to_be_visible()
    with open_view("/batchledger/pipelines/shipments") as page:
        expect(page.get_by_role("status").filter(has_text=str(shop.lost))).to_be_visible()
        expect(page.locator(".ribbons rect.expired-unread")).to_have_count(1)


def test_partitions_and_batches_are_sorted_and_filtered_each_by_itself(open_view: OpenView, shop: Shop) -> None:
    with open_view("/batchledger/pipelines/purchases") as page:
        unread = page.get_by_role("columnheader", name="Unread")
        unread.get_by_role("button").press("Enter")
        expect(unread).to_have_attribute("aria-sort", "descending")
        expect(unread.get_by_role("button")).to_be_focused()
        numbers = page.get_by_role("region", name="Batches").locator("tbody th a")
        offsets = page.get_by_role("columnheader", name="Offsets")
        offsets.get_by_role("button").click()
        expect(offsets).to_have_attribute("aria-sort", "descending")
        assert page.url.endswith("?sort=-unread&batches=-offsets")
        assert numbers.first.inner_text() == str(batches_of(shop.purchases)[0].batch_id)
        page.get_by_role("link", name="Blocked", exact=True).click()
        expect(page.get_by_text("No batch matches the filter.")).to_be_visible()
        page.go_back()
        expect(numbers).to_have_count(3)
        expect(unread).to_have_attribute("aria-sort", "descending")


def test_batch_shows_a_sum_that_closes_and_what_is_in_quarantine_as_text(open_view: OpenView, shop: Shop) -> None:
    first = batches_of(shop.purchases)[0].batch_id
    with open_view(f"/batchledger/pipelines/purchases/batches/{first}") as page:
        expect(page.locator(".sum")).to_have_text(
            re.compile(r"201\s+offsets\s+=\s+200\s+accepted\s+\+\s+1\s+quarantined\s+\+\s+0\s+unexplained\s+closes")
        )
        quarantined = page.get_by_role("region", name="Quarantine")
        expect(quarantined).not_to_contain_text("k1")
        page.get_by_role("link", name="Show keys and values").click()
        expect(quarantined).to_contain_text(MARKUP)
        expect(quarantined).to_contain_text("k1")
        expect(page.get_by_role("region", name="Attempts")).to_contain_text("publish")
        assert page.title().startswith("purchases: batch")
    with open_view(f"/batchledger/pipelines/payments/batches/{shop.blocked}") as page:
        failed = page.get_by_role("region", name="Checks").get_by_role("row").nth(1)
        expect(failed).to_contain_text("expect_column_values_to_be_between(amount)")
        expect(failed).to_contain_text("payments[0]@25")


def test_replay_goes_from_its_dry_run_to_published_once(
    open_view: OpenView, shop: Shop, airflow: AirflowApi, pictures: Path
) -> None:
    """In Airflow's own page, where the tab of the DAG leads to it; the rows are spoilt."""
    shop.clicks.query("update {target} set amount = -1 where _partition = 0 and _offset < 5 returning 1")
    noise = ("escape its sandboxing",)
    with open_view("/plugin/batchledger/batchledger/pipelines/clicks", allowed=noise) as page:
        frame = page.frame_locator("iframe")
        frame.get_by_role("link", name="Replay and decisions").click()
        form = frame.locator("#replay")
        form.locator("summary").click()
        form.get_by_label("Ranges").fill("clicks[0] 0..10")
        form.get_by_label("Reason").fill("somebody spoilt them")
        assert form.locator("button.act").count() == 0
        form.get_by_role("button", name="Start a dry run").click()
        button = form.locator("button.act")
        expect(button).to_be_visible(timeout=DEADLINE_SECONDS * 1000)
        expect(form).to_contain_text("0 added, 0 removed, 5 changed, 5 unchanged")
        expect(form).to_contain_text("clicks[0]@4")
        # The clock of the page presses no button.
        frame.locator("body").dispatch_event("tick")
        page.wait_for_load_state("networkidle")
        assert not any(run.run_id.endswith("__replay") for run in airflow.list_runs("clicks"))
        button.scroll_into_view_if_needed()
        picture(page, pictures, "replay")
        assert shop.clicks.query("select count(*) from {target} where amount = -1") == [(5,)]
        button.dblclick()
        expect(form.locator(".outcome")).to_contain_text("published", timeout=DEADLINE_SECONDS * 1000)
        form.get_by_role("link", name=re.compile(r"^batch \d+")).click()
        expect(frame.get_by_role("heading", level=1)).to_contain_text("published")
    assert shop.clicks.query("select count(*) from {target} where amount = -1") == [(0,)]
    replay = load_batch_history(ledger_dsn(shop.clicks.config), batches_of(shop.clicks)[-1].batch_id)
    assert replay.batch.state is BatchState.PUBLISHED
    assert [(each.decided_by, each.reason) for each in replay.decisions] == [("admin", "somebody spoilt them")]
    assert sum(run.run_id.endswith("__replay") for run in airflow.list_runs("clicks")) == 1
    shop.clicks.assert_exact()


def test_viewer_sees_everything_but_values_and_can_change_nothing(
    open_view: OpenView, shop: Shop, viewer: AirflowApi
) -> None:
    first = batches_of(shop.purchases)[0].batch_id
    with open_view(f"/batchledger/pipelines/purchases/batches/{first}", user=viewer) as page:
        expect(page.get_by_role("region", name="Quarantine")).to_contain_text("purchases[0]@100")
        expect(page.get_by_role("region", name="Quarantine")).not_to_contain_text("script")
        expect(page.get_by_role("link", name="Publish again")).to_have_count(0)
        page.goto(page.url.partition("/batches")[0] + "/decisions?do=pause")
        expect(page.get_by_text("You may see this pipeline, and not act on it")).to_be_visible()
        assert page.get_by_role("button").count() == 0
    headers = {"HX-Request": "true", "Sec-Fetch-Site": "same-origin", "Authorization": f"Bearer {token_of(viewer)}"}
    for way in ("decisions/pause/preview", "decisions/pause", "decisions/replay/preview", "dry-runs/1"):
        address = f"{viewer.url}/batchledger/pipelines/purchases/{way}"
        answer = httpx.post(address, headers=headers, data={"reason": "I can"}, trust_env=False)
        assert answer.status_code == 403, way


def test_blocked_batch_is_accepted_once_it_was_shown_what_that_means(open_view: OpenView, shop: Shop) -> None:
    with open_view(f"/batchledger/pipelines/payments/batches/{shop.blocked}", allowed=("409",)) as page:
        page.get_by_role("link", name="Accept", exact=True).click()
        form = page.locator("#accept")
        form.get_by_role("button", name="Show what would change").click()
        # The browser asks for the reason before anything is sent.
        assert form.locator("button.act").count() == 0
        form.get_by_label("Reason").fill("   ")
        form.get_by_role("button", name="Show what would change").click()
        expect(form.get_by_role("alert")).to_contain_text("Give a reason")
        form.get_by_label("Reason").fill(f"a refund, booked by hand {MARKUP}")
        form.get_by_role("button", name="Show what would change").click()
        expect(form.get_by_role("row").filter(has_text="state")).to_contain_text("audited")
        assert batches_of(shop.payments)[-1].state == BatchState.BLOCKED
        form.locator("button.act").click()
        expect(form.locator(".outcome")).to_contain_text("done")
        form.get_by_role("link", name=f"See batch {shop.blocked}").click()
        expect(page.get_by_role("heading", level=1)).to_contain_text("published")
        expect(page.get_by_text(f"a refund, booked by hand {MARKUP}")).to_be_visible()
        assert "broken" not in page.title()
    (decision,) = load_batch_history(ledger_dsn(shop.payments.config), shop.blocked).decisions
    assert (decision.kind, decision.decided_by) == ("accept", "admin")


def test_anonymous_and_forged_visitors_get_nothing_from_any_route(airflow: AirflowApi) -> None:
    with httpx.Client(base_url=f"{airflow.url}/batchledger", trust_env=False, timeout=30) as client:
        for method, address in list_routes():
            for headers in ({}, {"Authorization": "Bearer forged"}, {"Cookie": "_token=forged"}):
                assert client.request(method, address, headers=headers).status_code in (401, 403), (method, address)
    assert len(list_routes()) > len(build_app().routes)


def test_page_survives_a_warehouse_that_is_down(open_view: OpenView, shop: Shop, services: TestServices) -> None:
    """The pages say so in a banner, and go on by themselves when it is back."""
    file = services.home.connections_file
    before = file.read_text()
    nowhere = json.loads(before)
    nowhere["warehouse"] |= {"port": 1}
    first = batches_of(shop.purchases)[0].batch_id
    with open_view(f"/batchledger/pipelines/purchases/batches/{first}", allowed=("503",)) as page:
        write_private(file, json.dumps(nowhere))
        try:
            expect(page.get_by_role("alert")).to_contain_text("The warehouse database says")
            assert "Traceback" not in page.content()
            other = page.context.new_page()
            other.goto(page.url.partition("/pipelines")[0] + "/pipelines")
            expect(other.get_by_role("alert").first).to_contain_text("The warehouse database says")
            expect(row_of(other, "purchases")).to_contain_text("unknown")
            third = page.context.new_page()
            third.goto(page.url.partition("/batches")[0])
            expect(third.get_by_role("heading", level=1)).to_have_text("Something does not answer")
        finally:
            write_private(file, before)
        expect(page.locator(".sum")).to_be_visible()
        expect(page).to_have_title(re.compile(r"^purchases: batch"))
        expect(third.locator(".ribbon").first).to_be_visible()
        expect(row_of(other, "purchases")).to_contain_text("unread records")


def test_open_page_stays_and_says_that_it_is_old_while_something_else_answers(open_view: OpenView, shop: Shop) -> None:
    """As a proxy does while Airflow is started again; the clock of the browser is the test's."""
    with open_view("/batchledger/pipelines/clicks", allowed=("502",)) as page:
        page.clock.install()
        page.reload()
        page.clock.run_for(1000)
        expect(page.locator(".ribbon").first).to_be_visible()
        stale = page.get_by_text("what you see is not up to date")
        page.route("**/pipelines/clicks", lambda route: route.fulfill(status=502, body="<h1>Bad Gateway</h1>"))
        page.clock.run_for(20_000)
        expect(stale).to_be_visible()
        expect(page.get_by_role("heading", level=1)).to_contain_text("clicks")
        page.unroute("**/pipelines/clicks")
        page.clock.run_for(6_000)
        page.wait_for_load_state("networkidle")
        page.clock.run_for(6_000)
        expect(stale).to_be_hidden()


def test_tabs_of_dag_and_run_lead_to_the_pipeline_and_its_batch_in_airflows_look(
    open_view: OpenView, shop: Shop, airflow: AirflowApi, pictures: Path
) -> None:
    shop.clicks.send(2)
    run = trigger(airflow, shop.clicks)
    noise = ("escape its sandboxing",)
    with open_view("/dags/clicks/plugin/batchledger-pipeline", allowed=noise) as page:
        frame = page.frame_locator("iframe")
        expect(frame.get_by_role("heading", level=1)).to_contain_text("clicks")
        expect(frame.locator(".ribbon").first).to_be_visible()
        page.screenshot(path=pictures / "page-airflow-light.png")
        page.evaluate("localStorage.setItem('theme', 'dark')")
        page.reload()
        expect(frame.locator(".ribbon").first).to_be_visible()
        page.screenshot(path=pictures / "page-airflow-dark.png")
        page.goto(f"{airflow.url}/dags/clicks/runs/{run.run_id}/plugin/batchledger-batch")
        expect(frame.get_by_role("heading", level=1)).to_contain_text("of clicks")
        assert frame.locator("html").get_attribute("data-look") == "dark"
        frame.get_by_role("link", name=run.run_id).first.click()
        page.wait_for_url("**/dags/clicks/runs/***")


def test_airflows_form_asks_for_kafka_by_fields_and_hides_the_password(open_view: OpenView, pictures: Path) -> None:
    typed = {
        "bootstrap.servers": "broker-1.internal:9093,broker-2.internal:9093",
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "etl",
        "sasl.password": "s3cret",
        "ssl.ca.location": "/etc/ssl/kafka-ca.pem",
    }
    # What Airflow's own page complains about is not ours.
    with open_view("/connections", allowed=("",)) as page:
        assert "sasl.password" in fill_form(page, "kafka_default", "Apache Kafka", {}, typed)
        page.set_viewport_size({"width": 900, "height": 960})
        page.locator('input[name="element_bootstrap.servers"]').scroll_into_view_if_needed()
        page.screenshot(path=pictures / "connection-kafka.png")
