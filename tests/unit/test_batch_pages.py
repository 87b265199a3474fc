"""One batch on the page and in Data Docs: both say the same of it, and each leads where its reader can go."""

import html
import re
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from itertools import pairwise

import pytest

from batchledger.books.history import (
    AttemptRecord,
    BatchHistory,
    DuplicateRecord,
    QuarantineLine,
    QuarantineList,
    RangeRecord,
    ReplacementRecord,
)
from batchledger.interfaces.batch_view import BatchView, turn_to
from batchledger.interfaces.cli.display.batches import describe_batch
from batchledger.interfaces.data_docs.pages import write_batch
from batchledger.interfaces.page.rendering import show
from batchledger.model.batch import Batch, BatchState, DecisionRecord, Lane
from batchledger.model.checks import CheckResult, OnFailure, Outcome, Severity, Suite
from tests.fakes.docs import NOON, figures
from tests.unit.test_rendering import request_for

RUN, LATER_RUN = "scheduled__2026-11-20T12:00:00+00:00", "manual__2026-11-20T12:01:00+00:00"
SECOND = timedelta(seconds=1)
RANGES = [
    RangeRecord("orders", 3, 0, 100, 96, 0, 0, 0, 0, 4, 4, 0, 0, 0, 0),
    RangeRecord("orders", 4, 7, 10, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 1, rows_erased=1),
]
HISTORY = BatchHistory(
    batch=Batch(17, "orders", Lane.LIVE, BatchState.BLOCKED, 2, LATER_RUN, (), 1200, NOON),
    decisions=[DecisionRecord(1, "retry", "orders", 17, "ana", "it was late", NOON, {"attempt": 1}, {"attempt": 2})],
    attempts=[
        AttemptRecord(1, RUN, NOON, NOON + 9 * SECOND, None, NOON + 80 * SECOND, "fenced", None, None),
        AttemptRecord(2, LATER_RUN, NOON, None, None, NOON + SECOND, "failed", "cannot read 'secret value'", "stage"),
    ],
    ranges=RANGES,
    checks=[
        CheckResult("good", Outcome.PASSED, "fine"),
        CheckResult("bad", Outcome.FAILED, "2 of 3 rows", suite=Suite.PIPELINE),
        CheckResult("odd", Outcome.NOT_RUN, "it broke", severity=Severity.WARNING, on_failure=OnFailure.PUBLISH),
        CheckResult("idle", Outcome.EMPTY, "no row"),
    ],
    duplicates=[DuplicateRecord("orders", 4, 8, "orders", 4, 7)],
    replaced=[ReplacementRecord(17, 13, "orders", 3, 50, 100, 0, 0, 0)],
    replaced_by=[ReplacementRecord(19, 17, "orders", 3, 0, 50, 48, 0, 0)],
)
QUARANTINE = QuarantineList(
    [QuarantineLine("orders", 4, 9, None, "no JSON", 17, NOON, b"a key", b"secret value", payload_kept=True)], 1
)
SAID_BY_BOTH = [
    "Batch 17 of orders blocked",
    "no offset has moved. Failed: bad.",
    "Lane live",
    "Delivery exactly_once",
    "Left behind 1,200 records",
    "Published again by batch 19",
    "103 offsets = 97 accepted + 1 duplicates + 4 aborted + 1 unexplained does not close 1 accepted row was erased.",
    "bad ✘ failed critical, block pipeline 2 of 3 rows",
    "odd ⚠ could not run warning integrity it broke",
    "idle ○ nothing to judge critical integrity no row",
    "good ✔ passed critical integrity fine",
    "orders[3] 0..100 100 = 96 accepted + 4 aborted + 0 unexplained",
    "orders[4] 7..10 3 = 1 accepted + 1 duplicates + 1 unexplained",
    f"1 {RUN} stage 9.0 s from 2026-11-20 12:00:00 UTC audit 1 min 11 s from 2026-11-20 12:00:09 UTC",
    f"2026-11-20 12:01:20 UTC fenced by attempt 2 of {LATER_RUN}",
    "retry ana it was late attempt: 1 → 2",
    "Took orders[3] 50..100 over from batch 13",
    "Batch 19 took orders[3] 0..50 over: 48 rows",
    "The first 1 of 1. orders[4]@8, orders[4]@7 came first",
]


def write_docs_page(history: BatchHistory = HISTORY) -> str:
    return write_batch(history, figures(17, state=BatchState.BLOCKED, published_at=None, seconds=None), "0")


def write_page(*, can_see_payloads: bool = True, has_payloads: bool = False) -> str:
    view = BatchView(HISTORY, RANGES, turn_to(1, 51, 50), QUARANTINE, turn_to(1, 1, 20), {1: "bad secret text"})
    content = {"view": view, "ways": {}, "has_docs": True, "to_page": "?page={}#balance".format, "to_payloads": "?"}
    rights = {"can_see_payloads": can_see_payloads, "has_payloads": has_payloads}
    answer = show(request_for(), "batch.html.j2", to_quarantine_page=None, **content, **rights)
    return bytes(answer.body).decode()


def read(page: str) -> str:
    """Return what a person reads."""
    body = page.partition("<body>")[2]
    return " ".join(html.unescape(re.sub(r"<[^>]*>", " ", body)).replace(" .", ".").split())


@pytest.mark.parametrize("write", [write_page, write_docs_page])
def test_page_and_data_docs_say_the_same_of_a_batch_in_the_same_order(write: Callable[[], str]) -> None:
    told = read(write())
    places = [told.find(each) for each in SAID_BY_BOTH]
    assert [said for said, place in zip(SAID_BY_BOTH, places, strict=True) if place < 0] == []
    assert all(before < after for before, after in pairwise(places))


@pytest.mark.parametrize("write", [write_page, write_docs_page])
def test_every_table_of_a_batch_has_a_name_and_says_what_its_cells_belong_to(write: Callable[[], str]) -> None:
    page = write()
    named = re.findall(r'role="region" aria-labelledby="([^"]+)"><table', page)
    assert {"checks", "balance", "attempts", "decisions"} <= set(named)
    for each in named:
        assert page.count(f'id="{each}"') == 1
    assert re.findall(r"<th>|<th class", page) == []


def test_data_docs_lead_to_no_server_and_to_no_page_that_may_be_gone() -> None:
    page = write_docs_page()
    assert set(re.findall(r'href="([^"]+)"', page)) == {"data:,", "../index.html", "index.html", "#again"}
    assert "hx-" not in page


def test_page_leads_to_runs_partitions_and_batches() -> None:
    links = set(re.findall(r'href="([^"]+)"', html.unescape(write_page())))
    assert {
        "/batchledger/pipelines/orders/partitions/orders/3?start=0&until=100",
        "/batchledger/pipelines/orders/batches/13",
        "/batchledger/pipelines/orders/batches/19",
        "/dags/orders/runs/manual__2026-11-20T12%3A01%3A00%2B00%3A00",
        "/batchledger/docs/orders/17",
        "?page=2#balance",
    } <= links


def test_a_span_says_which_batches_it_is_on_its_page_and_on_the_terminal() -> None:
    span = replace(HISTORY, joined_from=3, checks=[])
    told = read(write_docs_page(span))
    assert "Joined batches 3 to 17: ranges and balances are added up" in told
    assert "The ledger keeps no checks of batches that were joined." in told
    shown = describe_batch(span)
    assert isinstance(shown.document, dict)
    assert shown.document["joined_from"] == 3
    assert any("has joined batches 3 to 17 of orders" in str(each) for each in shown.parts)


def test_values_of_records_are_shown_when_they_are_asked_for_and_in_no_file() -> None:
    """An error that quotes one is shown to who may see payloads; its whole text only when it is asked for."""
    assert [write_page(has_payloads=each).count("secret value") for each in (True, False)] == [2, 1]
    assert ["bad secret text" in write_page(has_payloads=each) for each in (True, False)] == [True, False]
    for page in (write_page(can_see_payloads=False), write_docs_page()):
        assert "secret" not in page
