"""The page of metrics: who sees which pipeline, in which format, and what it says without a look.

With Kafka and a ledger: tests/integration/test_metrics.py.
"""

from collections.abc import Sequence
from dataclasses import replace
from socket import create_server
from threading import Event

import pytest
from fastapi.testclient import TestClient
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from batchledger.interfaces.page import metrics
from batchledger.interfaces.page.overview import Overview
from batchledger.interfaces.page.watch import Watch
from batchledger.interfaces.surveys import Standing
from batchledger.ledger.totals import PipelineTotals, load_totals
from batchledger.model.errors import ServiceUnavailableError
from tests.pages import User, let_in, open_browser
from tests.unit.test_metrics import HEALTH, PAYMENTS

MINE, OTHER = Standing(HEALTH), Standing(replace(HEALTH, pipeline="payments"))
OPENMETRICS = "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5"


def open_page(patches: pytest.MonkeyPatch, *looks: Sequence[Standing] | Exception) -> TestClient:
    """The page of an account that may read the DAG orders; each look finds the next of these."""
    account, left = User("prometheus", may_act=False, dags=frozenset({"orders"})), list(looks)

    def find(_: Overview | None) -> Overview:
        found = left.pop(0)
        if isinstance(found, Exception):
            raise found
        return Overview(tuple(found))

    pages = let_in(patches, account)
    pages.state.lookout.overview = Watch(find, fresh_seconds=3600.0)
    return open_browser(pages, account)


def test_account_sees_the_pipelines_whose_dags_it_may_read(monkeypatch: pytest.MonkeyPatch) -> None:
    text = open_page(monkeypatch, [MINE, OTHER]).get("/metrics?partitions=true").text
    assert 'batchledger_lag_records{pipeline="orders"} 15.0' in text
    assert 'batchledger_partition_lag_records{partition="0",pipeline="orders",topic="orders"} 15.0' in text
    assert "payments" not in text


def test_account_sees_the_watches_whose_dags_it_may_read(monkeypatch: pytest.MonkeyPatch) -> None:
    watch = replace(MINE, is_watch=True, look=PAYMENTS)
    text = open_page(monkeypatch, [watch, replace(OTHER, is_watch=True, look=PAYMENTS)]).get("/metrics").text
    assert 'batchledger_watch_outcome{outcome="wrong",watch="orders"} 1.0' in text
    assert 'pipeline="orders"' not in text
    assert "payments" not in text


def test_partitions_are_left_out_unless_they_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "batchledger_partition" not in open_page(monkeypatch, [MINE]).get("/metrics").text


def test_format_is_openmetrics_for_prometheus_and_its_text_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    page = open_page(monkeypatch, [MINE])
    scraped = page.get("/metrics", headers={"Accept": OPENMETRICS})
    assert scraped.headers["content-type"].startswith("application/openmetrics-text; version=1.0.0; charset=utf-8")
    assert scraped.text.endswith("# EOF\n")
    plain = page.get("/metrics", headers={"Accept": "*/*"})
    assert plain.headers["content-type"].startswith("text/plain; version=0.0.4; charset=utf-8")
    assert "# EOF" not in plain.text


def test_look_that_does_not_end_is_not_waited_for_beyond_its_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "FIRST_LOOK_SECONDS", 0.0)
    page, end = open_page(monkeypatch), Event()
    page.app.state.lookout.overview = Watch(lambda _: Overview(()) if end.wait(60) else None, 3600.0)  # type: ignore[attr-defined]
    lines = [line for line in page.get("/metrics").text.splitlines() if not line.startswith("#")]
    end.set()
    assert lines == ["batchledger_up 0.0"]


def test_ledger_that_has_fallen_silent_since_the_look_is_given_up_within_a_scrape(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It accepts the connection and says nothing; its connection allows it a minute."""
    given_up: list[str] = []

    def load(dsn: str, names: Sequence[str]) -> dict[str, PipelineTotals]:
        try:
            return load_totals(dsn, names)
        except ServiceUnavailableError as error:
            given_up.append(f"{conninfo_to_dict(dsn)['connect_timeout']} s: {error}")
            raise

    monkeypatch.setattr("batchledger.interfaces.metrics.totals.load_totals", load)
    with create_server(("127.0.0.1", 0)) as server:
        dsn = make_conninfo(host="127.0.0.1", port=server.getsockname()[1], user="any", connect_timeout=60)
        text = open_page(monkeypatch, [replace(MINE, dsn=dsn)]).get("/metrics").text
    assert [each.partition(" s:")[0] for each in given_up] == ["3"]
    assert "connection timeout expired" in given_up[0]
    assert 'batchledger_lag_records{pipeline="orders"} 15.0' in text
    assert "batchledger_batches_total{" not in text


def test_failed_look_keeps_the_numbers_of_the_look_before_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    page = open_page(monkeypatch, [MINE], ServiceUnavailableError("the password is hunter2"))
    assert "batchledger_up 1.0\n" in page.get("/metrics").text
    watch = page.app.state.lookout.overview  # type: ignore[attr-defined]
    watch.expire()
    assert watch.look(30.0).error is not None
    text = page.get("/metrics").text
    assert "batchledger_up 0.0\n" in text
    assert 'batchledger_lag_records{pipeline="orders"} 15.0' in text
    assert "hunter2" not in text
