"""The page of a schema as people see it, with differences of records and of a table, on a wide and a narrow screen."""

import json
from pathlib import Path

import psycopg
import pytest
from psycopg import sql

from batchledger.lifecycle import run_batch
from tests.chromium import OpenPage
from tests.pages import ANA, open_desk, serving
from tests.support import Workplace

DECLARED = (
    "message_id string, number int, placed date, amount decimal(8,2), "
    "customer struct<id int, address struct<city string>>, items array<struct<price int, code string>>, "
    "marks array<bigint>"
)
RECORD = {
    "message_id": "m",
    "number": 2**40,
    "placed": "yesterday",
    "amount": 1.5,
    "customer": {"id": 2**40, "address": {"city": "Oslo", "zip": "0150"}, "loyalty_programme": "gold"},
    "items": [{"price": 2**40, "code": "c"}],
    "marks": [1],
    "discount": 0.5,
    "shipping_address_of_the_customer": {"city": "Oslo"},
}


def test_differences_are_read_on_a_wide_and_a_narrow_screen(
    workplace: Workplace, open_page: OpenPage, pictures: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = workplace.create(partitions=1, source={"schema": "message_id string, marks array<int>"})
    pipeline.send_raw([(0, b'{"message_id": "a", "marks": [1]}')])
    run_batch.run_once(pipeline.platform(), "first")
    text = pipeline.path.read_text().replace("message_id string, marks array<int>", DECLARED)
    pipeline.path.write_text(text)
    with psycopg.connect(workplace.dsn) as connection:
        table = sql.Identifier(f"{pipeline.name}_target")
        connection.execute(sql.SQL("alter table {} add column amount numeric(8,1)").format(table))
    pipeline.send_raw([(0, json.dumps(RECORD).encode())])
    desk = open_desk(monkeypatch, ANA)
    with serving(desk.pages) as address:
        for width in (1280, 480):
            with open_page(width=width, height=1400, own=(address,)) as page:
                page.goto(f"{address}/pipelines/{pipeline.name}/schema?from_topic=true")
                page.screenshot(path=pictures / f"schema-{width}.png", full_page=True)
                for region in ("html", ".scroll >> nth=0"):
                    assert page.locator(region).evaluate("each => each.scrollWidth <= each.clientWidth"), (
                        width,
                        region,
                    )
                differences = page.get_by_role("region", name="Differences")
                # One line of the file takes all that is different within a column.
                assert differences.get_by_text("customer struct<").count() == 1
                assert differences.get_by_text("the same line").count() == 2
                states = differences.locator(".state").all()
                assert {each.evaluate("each => getComputedStyle(each, '::before').content") for each in states} == {
                    "none"
                }
