"""docs/testing/scenarios.md is true: what it names exists and cites it, what tests cite is in it, no row is empty.

And no page names what does not exist, or says of something that it is not there yet: such words go stale unnoticed.
"""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

import pytest

from tests.conftest import ROOT

PAGE = ROOT / "docs" / "testing" / "scenarios.md"
SOURCES = ("include", "tests", "dags", "plugins", "spark_jobs", "docs", "bench")
_ROW = re.compile(r"^\| (S\d+) \| (.+?) \| (.+) \|$", re.MULTILINE)
_NAMED = re.compile(r"`((?:test_|[A-Z])\w+)`")
_CITED = re.compile(r"\bS(\d{1,3})\b|(?<=_)s(\d{1,3})(?=_)")
_LINT_CODE = re.compile(r"# noqa.*")


@dataclass(frozen=True)
class Row:
    """One scenario of the page."""

    scenario: str
    must_happen: str
    answer: str

    @property
    def tests(self) -> list[str]:
        """The tests that it names."""
        return _NAMED.findall(self.answer)


def read_rows() -> list[Row]:
    return [Row(*found) for found in _ROW.findall(PAGE.read_text(encoding="utf-8"))]


def cited_in(text: str) -> set[str]:
    """The scenarios that a piece of code cites: S55 in words, or _s55_ in a name."""
    return {f"S{word or name}" for word, name in _CITED.findall(_LINT_CODE.sub("", text))}


@cache
def read_tests() -> dict[str, str]:
    """The source of every test, and of every class of tests, by its name."""
    return dict(_each_test())


def _each_test() -> Iterator[tuple[str, str]]:
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        text = path.read_text(encoding="utf-8")
        lines = text.splitlines()
        for node in ast.parse(text).body:
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                first = min([node.lineno, *(each.lineno for each in node.decorator_list)])
                yield node.name, "\n".join(lines[first - 1 : node.end_lineno])


ROWS = read_rows()


def test_every_line_of_the_page_that_looks_like_a_scenario_is_a_row_and_none_comes_twice() -> None:
    looks_like_one = re.findall(r"^\| *(S\d+)", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert [row.scenario for row in ROWS] == looks_like_one
    assert len(set(looks_like_one)) == len(looks_like_one) > 100
    assert looks_like_one == sorted(looks_like_one, key=lambda scenario: int(scenario[1:]))


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.scenario)
def test_scenario_names_tests_that_exist_and_cite_it_or_gives_a_reason(row: Row) -> None:
    assert row.must_happen.strip()
    assert row.tests or len(row.answer.split()) >= 3
    for name in row.tests:
        assert name in read_tests(), f"there is no test {name}"
        assert row.scenario in cited_in(read_tests()[name]), f"{name} does not cite {row.scenario}"


PAGES = sorted(
    str(path.relative_to(ROOT))
    for path in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "bench").glob("*.md")]
    if path.name != "CHANGELOG.md"
)
# Names of files that are examples, and of Airflow's own files.
EXAMPLES = {
    "NNNN-title.md", "utils.py", "orders.yaml", "table.md", "taskinstance.py", "backfill.py",
}  # fmt: skip
_OUTDATED = re.compile(
    r"\b(?:is|are) not (?:built|written|implemented)\b|\b(?:built|written|implemented) yet\b"
    r"|\bno (?:Kafka|Iceberg) sink\b",
    re.IGNORECASE,
)


@pytest.mark.parametrize("page", PAGES)
def test_every_test_that_a_page_names_exists(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    named = {name for name in re.findall(r"`(test_\w+)(?:\[[^`]*\])?`", text) if name not in read_tests()}
    files = {path.stem for path in (ROOT / "tests").rglob("test_*.py")}
    assert named - files == set()


@pytest.mark.parametrize("page", PAGES)
def test_every_file_that_a_page_names_exists(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    named = set(re.findall(r"`(?:[\w./-]+/)?([\w.-]+\.(?:py|sql|md|yaml|xml|toml|j2|js|css))`", text))
    places = [path for each in SOURCES for path in (ROOT / each).rglob("*.*")]
    assert named - EXAMPLES - {path.name for path in [*places, *ROOT.glob("*.*")]} == set()


@pytest.mark.parametrize("page", PAGES)
def test_no_page_says_of_something_that_it_is_not_there_yet(page: str) -> None:
    """Such a sentence goes stale unnoticed: say what happens instead, or which test shows the limit."""
    assert _OUTDATED.findall((ROOT / page).read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    "text",
    ["no Kafka sink is built", "the protocol is not written yet", "It is not built.", "there are not implemented"],
)
def test_words_that_go_stale_are_recognised(text: str) -> None:
    assert _OUTDATED.search(text)


def test_every_scenario_that_a_test_cites_is_on_the_page() -> None:
    known = {row.scenario for row in ROWS}
    files = sorted((ROOT / "tests").rglob("*.py"))
    unknown = {str(file.relative_to(ROOT)): cited_in(file.read_text(encoding="utf-8")) - known for file in files}
    assert {name: sorted(cited) for name, cited in unknown.items() if cited} == {}


@pytest.mark.parametrize(
    ("text", "cited"),
    [
        ('"""S7."""', {"S7"}),
        ("def test_s53_s60_position() -> None: ...", {"S53", "S60"}),
        ('x = f"select {y}"  # noqa: S608', set()),
        ("tests_s3cret, S, s31, ES3000", set()),
    ],
)
def test_citations_are_recognised(text: str, cited: set[str]) -> None:
    assert cited_in(text) == cited
