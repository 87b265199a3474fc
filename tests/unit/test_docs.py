"""Data Docs: what a page shows, that it needs nothing else, and which pages are written again."""

import dataclasses
import html
import json
import re
import stat
import subprocess
import sys
from collections.abc import Sequence
from datetime import timedelta
from functools import cache
from pathlib import Path
from uuid import uuid4

import great_expectations as gx
import pandas as pd
import pytest
from great_expectations.data_context.types.base import ProgressBarsConfig

from batchledger.books.history import BatchHistory
from batchledger.checks.integrity import IntegrityAuditor
from batchledger.checks.ledger import judge
from batchledger.checks.outcomes import explain
from batchledger.checks.requested import build_checks
from batchledger.interfaces.data_docs import folder as docs_folder
from batchledger.interfaces.data_docs import pages
from batchledger.interfaces.data_docs.charts import draw_history
from batchledger.interfaces.data_docs.expectations import render_results
from batchledger.interfaces.data_docs.folder import DOCS_VARIABLE, DocsFolder, write_page
from batchledger.interfaces.data_docs.index import write_index
from batchledger.interfaces.data_docs.pages import write_batch, write_history
from batchledger.interfaces.data_docs.site import build_all_docs, make_stamp, write_docs
from batchledger.ledger.audits import StoredAudit
from batchledger.model.batch import BatchState, Lane
from batchledger.model.checks import ACCEPTED_BY_TARGET, CheckResult, Outcome, RequestedCheck, Severity, Suite
from batchledger.model.findings import LedgerCheck
from batchledger.monitoring.ledger_audit import Fact, Question
from tests.fakes.docs import NOON, figures, history
from tests.unit.test_integrity_suite import FAULTS

SCRIPT = "<script>alert(1)</script>"
# Namespaces of SVG are names, and no page asks for them.
NAMES_ONLY = re.compile(r'xmlns(:\w+)?="[^"]*"|(rdf|cc|dc):\w+="[^"]*"')


@cache
def judged() -> tuple[CheckResult, ...]:
    """The results of a batch with a fault."""
    facts, _ = next(iter(FAULTS.values()))
    return tuple(IntegrityAuditor().judge(facts))


def page(checks: Sequence[CheckResult] = (), error: str | None = None) -> str:
    batch = figures(17)
    return write_batch(history(batch, checks, error), batch, make_stamp(batch))


def test_page_tells_each_check_in_its_own_words_and_in_those_of_great_expectations() -> None:
    checks = judged()
    text = page(checks)
    for check in checks:
        assert check.name in text
    assert "Each (topic, partition, offset) is staged once." in text
    assert text.count("fa-times text-danger") == len([each for each in checks if each.outcome is Outcome.FAILED])


def test_page_tells_first_what_is_wrong() -> None:
    outcomes = {"good": Outcome.PASSED, "bad": Outcome.FAILED}
    check = judged()[0]
    text = page([dataclasses.replace(check, name=name, outcome=outcome) for name, outcome in outcomes.items()])
    assert text.index("<code>bad</code>") < text.index("<code>good</code>")


def test_page_asks_no_server_for_anything_and_runs_no_script() -> None:
    """Great Expectations' own pages load styles and scripts from eight servers."""
    for text in (page(judged()), write_history("orders", [figures(17)]), write_index([])):
        policy = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; form-action 'none'; base-uri 'none'"
        assert f'content="{policy}"' in html.unescape(text)
        shown = NAMES_ONLY.sub("", text)
        assert not re.search(r"https?://|<script|src=|@import|<link[^>]*stylesheet", shown)


def audited(hours: int = 0) -> StoredAudit:
    """The results of an audit that found a row too few, and could not ask Kafka."""
    questions = [
        Question(LedgerCheck.TARGET, "3 batches", (Fact("batch 1", 1, "accepted 10 rows, the target holds 9"),)),
        Question(LedgerCheck.RANGES_MEET, "3 batches", (Fact("orders[0]", 0),)),
        Question(LedgerCheck.LOSS, "", unanswered="Kafka does not answer"),
    ]
    return StoredAudit(NOON + timedelta(hours=hours), judge(questions))


def test_history_shows_when_the_pipeline_was_audited_last_and_what_was_found_first_what_is_wrong() -> None:
    text = write_history("orders", [figures(17)], audited())
    assert '<a href="#audit"><span class="failed">2 checks have not passed</span></a>' in text
    shown = text[text.index('id="audit"') :]
    assert "2026-11-20 12:00:00 UTC" in shown
    places = [
        shown.index(each)
        for each in (
            "✘ failed",
            "accepted 10 rows, the target holds 9",
            "✔ passed",
            "The published ranges of each partition meet",
        )
    ]
    assert places == sorted(places)
    assert "Kafka does not answer" in shown
    table = shown[shown.index("<details>") :]
    assert "unexpected values found" in table
    assert table.count("fa-times text-danger") == 1
    assert "audit" not in write_history("orders", [figures(17)]).partition("<body>")[2]


def test_history_of_a_pipeline_that_was_audited_before_it_first_planned_is_written(tmp_path: Path) -> None:
    folder = DocsFolder(tmp_path)
    write_docs(folder, "orders", [], Loads(), audited())
    assert "accepted 10 rows, the target holds 9" in folder.history_of("orders").read_text()
    assert f'>2026-11-20 12:00:00 UTC</a>: <span class="failed">{LedgerCheck.TARGET}' in folder.index.read_text()


def test_history_is_written_again_after_an_audit(tmp_path: Path) -> None:
    folder = DocsFolder(tmp_path)
    for audit in (None, audited(), audited(hours=1)):
        write_docs(folder, "orders", [figures(17)], Loads(), audit)
    assert "2026-11-20 13:00:00 UTC" in folder.history_of("orders").read_text()


def test_page_takes_no_text_for_markup() -> None:
    check = CheckResult(SCRIPT, Outcome.FAILED, SCRIPT, severity=Severity.WARNING, suite=Suite.PIPELINE)
    assert "<script" not in page([check])
    assert page([check]).count("&lt;script&gt;") == 2


HOSTILE = "<img src=x onerror=alert(1)>"
PATTERN = r"(?<!\s)a&b"


def validated(kind: str, *, success: bool, **arguments: object) -> CheckResult:
    """A check of a pipeline file over three rows, judged by Great Expectations, reduced and stored as such ones are."""
    check = RequestedCheck(kind, kind, arguments)
    (built,) = build_checks([check], Path())
    context = gx.get_context(mode="ephemeral")
    context.variables.progress_bars = ProgressBarsConfig(globally=False)
    table = pd.DataFrame({HOSTILE: ["x", "y", "z"], "name": ["x", "y", "z"]})
    batch = context.data_sources.add_pandas(uuid4().hex).read_dataframe(table, asset_name="rows")
    result = explain(built, batch.validate(built.expectation, result_format="BASIC"), len(table), 10).result
    assert (result.outcome is Outcome.PASSED) is success
    return dataclasses.replace(result, validation=json.loads(json.dumps(result.validation)))


@pytest.mark.parametrize(
    ("kind", "success", "arguments"),
    [
        ("expect_table_columns_to_match_set", False, {"column_set": [HOSTILE, "other"]}),
        ("expect_table_columns_to_match_ordered_list", False, {"column_list": ["name", HOSTILE]}),
        ("expect_table_row_count_to_equal", True, {"value": 3, "description": HOSTILE}),
        ("expect_column_values_to_be_in_set", False, {"column": HOSTILE, "value_set": [f"'{HOSTILE}"]}),
        ("expect_column_values_to_be_in_set", False, {"column": "name", "value_set": ["a"], "description": HOSTILE}),
        ("expect_column_unique_value_count_to_be_between", True, {"column": HOSTILE, "min_value": 1}),
    ],
)
def test_what_a_pipeline_file_says_of_a_check_is_text_in_the_tables_of_great_expectations(
    kind: str, success: bool, arguments: dict[str, object]
) -> None:
    """Names of columns, sets of values and descriptions, of real results; each stands there as it was written."""
    table = render_results([validated(kind, success=success, **arguments)], "one")
    assert table is not None
    assert "<img" not in table
    assert HOSTILE in html.unescape(table)


def test_pattern_reads_in_the_tables_as_it_was_written() -> None:
    """Great Expectations escapes some of what it is given by itself: nothing is escaped twice."""
    check = validated("expect_column_values_to_match_regex", success=False, column="name", regex=PATTERN)
    table = render_results([check], "one")
    assert table is not None
    assert html.escape(PATTERN, quote=False) in table


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
    text = page([check])
    assert "fa-check-circle text-success" not in text
    assert "fa-times text-danger" not in text
    assert "some_check" in text


def test_expectation_whose_class_is_gone_keeps_no_other_from_being_shown() -> None:
    known = judged()[0]
    gone = {"success": True, "expectation_config": {"type": "expect_what_was", "kwargs": {}}, "result": {}, "meta": {}}
    check = CheckResult("gone", Outcome.PASSED, "fine", suite=Suite.PIPELINE, validation=gone)
    table = render_results([known, check], "one")
    assert table is not None
    assert table == render_results([known], "one")


def stored_before(
    kind: str, check: str, description: str, arguments: dict[str, object], found: dict[str, object]
) -> dict[str, object]:
    """A result that an earlier version has stored, which had a class for each check."""
    return {
        "success": False,
        "expectation_config": {
            "type": kind,
            "kwargs": {"batch_id": "facts-facts", **arguments},
            "meta": {"check": check},
            "description": description,
            "severity": "critical",
        },
        "result": {"element_count": 3, "unexpected_count": 1, "unexpected_percent": 33.3, "missing_count": 0, **found},
        "meta": {},
        "exception_info": {"raised_exception": False, "exception_traceback": None, "exception_message": None},
    }


STORED_BEFORE = [
    (
        CheckResult(
            "no_rows_outside_ranges",
            Outcome.FAILED,
            "",
            validation=stored_before(
                "expect_rows_to_lie_in_ranges",
                "no_rows_outside_ranges",
                "Staging holds rows of the batch's ranges only.",
                {"column": "outside", "value_set": [0]},
                {"partial_unexpected_list": [3], "observed_value": 3},
            ),
        ),
        "rows outside of the batch's ranges: 3",
    ),
    (
        CheckResult(
            "published_ranges_meet",
            Outcome.FAILED,
            "",
            suite=Suite.LEDGER,
            validation=stored_before(
                "expect_published_ranges_to_meet",
                "published_ranges_meet",
                "The published ranges of each partition meet without a gap, up to its position (I1).",
                {"column": "published_ranges_meet", "min_value": 0.0, "max_value": 0.0},
                {"partial_unexpected_index_list": [{"published_ranges_meet": 1.0, "subject": "orders[0]"}]},
            ),
        ),
        "1 unexpected values found",
    ),
]


@pytest.mark.parametrize(("check", "failure"), STORED_BEFORE, ids=[each.suite for each, _ in STORED_BEFORE])
def test_result_that_an_earlier_version_has_stored_is_told_with_its_promise(check: CheckResult, failure: str) -> None:
    """Its type is the name of a class that is gone."""
    assert check.validation is not None
    table = render_results([check], "one")
    assert table is not None
    told = html.unescape(html.unescape(table))
    assert check.validation["expectation_config"]["description"] in told
    assert failure in told
    assert table.count("fa-times text-danger") == 1


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


def test_drawing_shows_numbers_that_are_missing_beside_the_holes() -> None:
    """Records that never reached the broker leave no hole in its offsets."""
    assert ">missing numbers<" in draw_history([figures(1, holes=0), figures(2, holes=0, missing_numbers=10)])
    assert ">missing numbers<" not in draw_history([figures(1), figures(2, missing_numbers=0)])


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
    original = pages.write_history
    monkeypatch.setattr(
        pages, "write_history", lambda name, *found: drawn.append(len(found[0])) or original(name, *found)
    )
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


@pytest.mark.parametrize("module", ["batchledger.interfaces.data_docs.site", "batchledger.interfaces.page.app"])
def test_look_at_a_pipeline_where_nothing_has_happened_imports_nothing_that_takes_seconds(module: str) -> None:
    """Otherwise each report would cost them, in a process of its own."""
    code = f"import sys, {module}; print(sorted({{'great_expectations', 'matplotlib'}} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_process_that_is_late_takes_nothing_back_of_one_that_knows_newer_batches(tmp_path: Path) -> None:
    """It read the ledger before batch 3 was planned, and writes after the pages of batch 3."""
    folder = DocsFolder(tmp_path)
    newer = [figures(2), figures(3, runs=("manual__3",))]
    write_docs(folder, "orders", newer, Loads())
    before = {each.name: each.read_text() for each in (tmp_path / "orders").iterdir()}
    assert write_docs(folder, "orders", [figures(1), figures(2)], Loads()).removed == 0
    assert {each.name: each.read_text() for each in (tmp_path / "orders").iterdir()} == before | {
        "1.html": folder.page_of("orders", 1).read_text()
    }
    assert "orders/3.html" in folder.index.read_text()
    assert write_docs(folder, "orders", newer, Loads()).removed == 1


def test_index_leads_to_every_pipeline_and_a_run_to_its_batch(tmp_path: Path) -> None:
    folder = DocsFolder(tmp_path)
    write_docs(folder, "orders", [figures(1)], Loads())
    write_docs(folder, "clicks", [figures(9, runs=("manual__9",))], Loads())
    text = folder.index.read_text()
    assert 'href="clicks/index.html"' in text
    assert 'href="orders/1.html"' in text
    summary = folder.read_summary("clicks")
    assert summary is not None
    assert summary["batch_by_run"]["manual__9"] == 9


def test_pages_of_a_pipeline_whose_file_is_gone_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A refused file's pages stay, and what others keep beside them. All stay while there is no file."""
    files, docs = tmp_path / "pipelines", DocsFolder(tmp_path / "docs")
    files.mkdir()
    monkeypatch.setenv("BATCHLEDGER_PIPELINES", str(files))
    monkeypatch.setenv(DOCS_VARIABLE, str(docs.path))
    (docs.path / "mine").mkdir(parents=True)
    for name in ("orders", "clicks"):
        write_docs(docs, name, [figures(1)], Loads())
    build_all_docs()
    assert [each["pipeline"] for each in docs.list_summaries()] == ["clicks", "orders"]
    (files / "orders.yaml").write_text("name: [")
    _, failures = build_all_docs()
    assert list(failures) == ["orders"]
    assert sorted(each.name for each in docs.path.iterdir()) == ["index.html", "mine", "orders"]
    assert "clicks" not in docs.index.read_text()


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


def test_page_and_the_folders_that_are_made_for_it_are_their_owners(tmp_path: Path) -> None:
    folder = DocsFolder(tmp_path / "docs")
    write_docs(folder, "orders", [figures(17)], Loads())
    modes = {path: stat.S_IMODE(path.stat().st_mode) for path in (folder.path, *folder.path.rglob("*"))}
    assert folder.page_of("orders", 17) in modes
    assert modes == {path: 0o700 if path.is_dir() else 0o600 for path in modes}


def test_page_that_could_not_be_written_whole_leaves_the_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "1.html"
    write_page(target, "old")

    def fail(*_: object, **__: object) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(docs_folder.Path, "replace", fail)
    with pytest.raises(OSError, match="no space"):
        write_page(target, "new")
    assert [each.name for each in tmp_path.iterdir()] == ["1.html"]
    assert target.read_text() == "old"
