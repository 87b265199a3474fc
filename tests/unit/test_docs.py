"""Data Docs: what a page shows, that it needs nothing and nobody else, and which pages are written again."""

import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from batchledger.batch import BatchState, Lane
from batchledger.checking import ACCEPTED_BY_TARGET, CheckResult, Outcome, Severity, Suite
from batchledger.checks.integrity import IntegrityAuditor
from batchledger.docs import folder as docs_folder
from batchledger.docs import site
from batchledger.docs.charts import draw_history
from batchledger.docs.expectations import render_results
from batchledger.docs.folder import DocsFolder, write_page
from batchledger.docs.pages import write_batch, write_history, write_index
from batchledger.docs.site import make_stamp, write_docs
from batchledger.ledger.history import BatchHistory
from tests.fakes.docs import figures, history
from tests.unit.test_integrity_suite import FAULTS

SCRIPT = "<script>alert(1)</script>"
# Namespaces of SVG are names, and no page asks for them.
NAMES_ONLY = re.compile(r'xmlns(:\w+)?="[^"]*"|(rdf|cc|dc):\w+="[^"]*"')


def judged() -> list[CheckResult]:
    """The results of a batch with a fault."""
    facts, _ = next(iter(FAULTS.values()))
    return list(IntegrityAuditor().judge(facts))


def page(checks: Sequence[CheckResult] = (), error: str | None = None) -> str:
    batch = figures(17)
    return write_batch(history(batch, checks, error), batch, make_stamp(batch))


def test_page_tells_each_check_in_its_own_words_and_in_those_of_great_expectations() -> None:
    checks = judged()
    html = page(checks)
    for check in checks:
        assert check.name in html
    assert "Each (topic, partition, offset) is staged once." in html
    assert html.count("fa-times text-danger") == len([each for each in checks if each.outcome is Outcome.FAILED])


def test_page_asks_no_server_for_anything_and_runs_no_script() -> None:
    """Great Expectations' own pages load styles and scripts from eight servers."""
    pages = [page(judged()), write_history("orders", [figures(17)]), write_index([])]
    for html in pages:
        assert "default-src 'none'; style-src 'unsafe-inline'; img-src data:" in html
        shown = NAMES_ONLY.sub("", html)
        assert not re.search(r"https?://|<script|src=|@import|<link[^>]*stylesheet", shown)


def test_page_takes_no_text_for_markup() -> None:
    check = CheckResult(SCRIPT, Outcome.FAILED, SCRIPT, severity=Severity.WARNING, suite=Suite.PIPELINE)
    assert "<script" not in page([check])
    assert page([check]).count("&lt;script&gt;") == 2


def test_page_holds_no_error_of_an_attempt_because_it_may_quote_a_record() -> None:
    assert "secret-value" not in page(error="cannot read 'secret-value'")


def test_page_holds_no_words_of_the_table_because_they_may_quote_a_record() -> None:
    html = page([CheckResult(ACCEPTED_BY_TARGET, Outcome.FAILED, "invalid input syntax: 'secret-value'")])
    assert "secret-value" not in html
    assert "the table refuses the rows" in html


@pytest.mark.parametrize("outcome", [Outcome.EMPTY, Outcome.NOT_RUN])
def test_check_that_judged_nothing_is_neither_a_success_nor_a_failure_of_great_expectations(outcome: Outcome) -> None:
    (validation,) = [each.validation for each in judged()][:1]
    check = CheckResult("some_check", outcome, "no row to judge", validation=validation)
    html = page([check])
    assert "fa-check-circle text-success" not in html
    assert "fa-times text-danger" not in html
    assert "some_check" in html


def test_expectation_whose_class_is_gone_keeps_no_other_from_being_shown() -> None:
    known = judged()[0]
    gone = {"success": True, "expectation_config": {"type": "expect_what_was", "kwargs": {}}, "result": {}, "meta": {}}
    table = render_results([known, CheckResult("gone", Outcome.PASSED, "fine", validation=gone)], "one")
    assert table is not None
    assert table == render_results([known], "one")


def test_drawing_takes_its_colours_from_the_page_and_is_the_same_each_time() -> None:
    """So it follows the light and the dark look."""
    batches = [figures(each, failed=each % 2, duplicates=each) for each in range(1, 9)]
    drawing = draw_history(batches)
    assert drawing == draw_history(batches)
    assert "var(--good)" in drawing
    assert set(re.findall(r"#[0-9a-f]{6}\b", drawing)) == set()


def test_drawing_says_so_where_there_is_nothing_to_see() -> None:
    """Duplicates and quarantined records: none. Negative control: one of each, and it no longer says so."""
    assert draw_history([figures(1), figures(2)]).count(">none<") == 2
    assert draw_history([figures(1), figures(2, duplicates=1, quarantined=1)]).count(">none<") == 0


def test_drawing_tells_rows_that_nobody_sees_and_rows_published_again_from_published_ones() -> None:
    blocked = figures(3, state=BatchState.BLOCKED, published_at=None, seconds=None)
    drawing = draw_history([figures(1), figures(2, lane=Lane.REPLAY), blocked])
    for label in (">published<", ">published again<", ">not published<"):
        assert label in drawing


class Loads:
    """Hands out what the ledger holds, and remembers what was asked for."""

    def __init__(self) -> None:
        self.asked: list[int] = []

    def __call__(self, batch_id: int) -> BatchHistory:
        self.asked.append(batch_id)
        return history(figures(batch_id))


def test_only_pages_of_batches_that_have_changed_are_written_again(tmp_path: Path) -> None:
    folder, batches, load = DocsFolder(tmp_path), [figures(1), figures(2)], Loads()
    assert write_docs(folder, "orders", batches, load).written == 2
    assert write_docs(folder, "orders", batches, load).written == 0
    changed = figures(1, decisions=1)
    built = write_docs(folder, "orders", [changed, batches[1]], load)
    assert (built.written, built.current, load.asked) == (1, 1, [2, 1, 1])


def test_history_is_drawn_again_only_when_a_batch_has_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[int] = []
    original = site.write_history
    monkeypatch.setattr(site, "write_history", lambda name, found: drawn.append(len(found)) or original(name, found))
    for batches in ([figures(1)], [figures(1)], [figures(1), figures(2)]):
        write_docs(DocsFolder(tmp_path), "orders", batches, Loads())
    assert drawn == [1, 2]


def test_pages_of_batches_that_are_no_longer_kept_are_removed(tmp_path: Path) -> None:
    folder = DocsFolder(tmp_path)
    write_docs(folder, "orders", [figures(1), figures(2)], Loads())
    assert write_docs(folder, "orders", [figures(2), figures(3)], Loads()).removed == 1
    assert sorted(each.name for each in (tmp_path / "orders").iterdir()) == [
        "2.html",
        "3.html",
        "index.html",
        "summary.json",
    ]


def test_index_leads_to_every_pipeline_and_a_run_to_its_batch(tmp_path: Path) -> None:
    folder = DocsFolder(tmp_path)
    write_docs(folder, "orders", [figures(1)], Loads())
    write_docs(folder, "clicks", [figures(9, runs=("manual__9",))], Loads())
    html = folder.index.read_text()
    assert 'href="clicks/index.html"' in html
    assert 'href="orders/1.html"' in html
    summary = folder.read_summary("clicks")
    assert summary is not None
    assert summary["batch_by_run"]["manual__9"] == 9


@pytest.mark.parametrize(
    ("pipeline", "name"),
    [
        ("..", "17"),
        ("orders", ".."),
        ("orders", "../17"),
        ("orders/..", "17"),
        ("", "17"),
        ("orders", ""),
        ("orders", "summary.json"),
        ("orders", "17.html\n"),
        ("orders\n", "17"),
        ("orders", "\u0661\u0667"),
        ("orders", "17.html/../../secret"),
        ("/etc", "17"),
    ],
)
def test_no_name_leads_out_of_the_folder(tmp_path: Path, pipeline: str, name: str) -> None:
    assert DocsFolder(tmp_path).find_page(pipeline, name) is None


@pytest.mark.parametrize("name", ["17", "17.html"])
def test_page_is_found_with_and_without_its_ending(tmp_path: Path, name: str) -> None:
    folder = DocsFolder(tmp_path)
    assert folder.find_page("orders", name) == folder.page_of("orders", 17)


def test_page_that_could_not_be_written_whole_leaves_the_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "1.html"
    write_page(target, "old")

    def fail(*_: object, **__: object) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(docs_folder.Path, "chmod", fail)
    with pytest.raises(OSError, match="no space"):
        write_page(target, "new")
    assert [each.name for each in tmp_path.iterdir()] == ["1.html"]
    assert target.read_text() == "old"
