"""The list of pipelines on the page, if the file of one is gone."""

import pytest

from batchledger.interfaces.page.overview import Overview
from batchledger.interfaces.page.watch import Watch
from batchledger.interfaces.surveys import Standing
from batchledger.model.findings import PipelineState
from batchledger.monitoring.health import LeftPipeline, PipelineHealth, judge_left
from tests.pages import PATIENT_SECONDS, User, let_in, open_browser, words

LEFT, ADVICE = judge_left(LeftPipeline("orders", ("batch 3 (blocked)",)), "warehouse")
WITH_FILE = PipelineHealth("payments", PipelineState.CAUGHT_UP, "", None)


def test_pipeline_whose_file_is_gone_is_listed_with_its_open_batch_and_the_way_on_and_leads_to_no_page(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ana = User("ana", dags=frozenset({"orders", "payments"}))
    pages = let_in(monkeypatch, ana)
    standings = (Standing(LEFT, (ADVICE,)), Standing(WITH_FILE))
    pages.state.lookout.overview = Watch(lambda _: Overview(standings), fresh_seconds=3600.0)
    pages.state.lookout.overview.look(PATIENT_SECONDS)
    shown = open_browser(pages, ana).get("/pipelines")
    told = words(shown)
    assert "file gone" in told.lower()
    assert "No pipeline file has this name, and open is batch 3 (blocked)" in told
    assert "Put the file back, or end the pipeline: batchledger retire orders --reason WHY" in told
    assert ("/pipelines/orders" in shown.text, "/pipelines/payments" in shown.text) == (False, True)
