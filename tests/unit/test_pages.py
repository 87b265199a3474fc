"""The pages that people read name what is there, and a decision is read in two minutes."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.unit.test_scenarios import read_tests

PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("bench/*.md")])
SOURCES = ("include", "tests", "dags", "plugins", "spark_jobs", "docs", "bench")
# Names of files that are examples, and of Airflow's own files.
EXAMPLES = {"NNNN-title.md", "utils.py", "orders.yaml", "table.md", "taskinstance.py", "backfill.py"}
FILES = EXAMPLES | {path.name for path in [*ROOT.glob("*.*"), *(x for s in SOURCES for x in (ROOT / s).rglob("*.*"))]}
TESTS = read_tests().keys() | {path.stem for path in (ROOT / "tests").rglob("test_*.py")}
_LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)\s]*)?\)")
_MODULE = re.compile(r"`((?:[\w.-]+/)+\w+\.py)`")
_FILE = re.compile(r"`(?:[\w./-]+/)?([\w.-]+\.(?:py|sql|md|yaml|xml|toml|j2|js|css))`")
_TEST = re.compile(r"`(test_\w+)(?:\[[^`]*\])?`")
_OUTDATED = re.compile(
    r"\b(?:is|are) not (?:built|written|implemented)\b|\b(?:built|written|implemented) yet\b"
    r"|\bno (?:Kafka|Iceberg) sink\b",
    re.IGNORECASE,
)
_MOST_WORDS = 400
_PARTS = ["Context", "Decision", "Measured", "Broken when"]
_OF_THE_TEST_BESIDE = re.compile(r"`\[\w+-\w+-…\]`")


def find_faults(page: Path, text: str) -> list[str]:
    """What a page names that is not there, with its line. The changelog says what was there."""
    rules = _find_dead_links if page.name == "CHANGELOG.md" else _find_all
    name = page.relative_to(ROOT)
    return [f"{name}:{at}: {each}" for at, line in enumerate(text.splitlines(), 1) for each in rules(page, line)]


def _find_dead_links(page: Path, line: str) -> Iterator[str]:
    dead = (each for each in _LINK.findall(line) if "://" not in each and not (page.parent / each).exists())
    yield from (f"{each}: the link leads nowhere" for each in dead)


def _find_all(page: Path, line: str) -> Iterator[str]:
    yield from _find_dead_links(page, line)
    for each in _MODULE.findall(line):
        if not any((place / each).exists() for place in (ROOT, ROOT / "include/batchledger")):
            yield f"{each}: the module is not there; its path begins at the project or at include/batchledger"
    yield from (f"{each}: there is no such file" for each in _FILE.findall(line) if each not in FILES)
    yield from (f"{each}: there is no such test" for each in _TEST.findall(line) if each not in TESTS)
    yield from (f"{each}: goes stale; say what happens, or which test shows it" for each in _OUTDATED.findall(line))


def test_what_a_page_names_is_there_and_none_says_that_something_is_not_there_yet() -> None:
    faults = [fault for page in PAGES for fault in find_faults(page, page.read_text(encoding="utf-8"))]
    assert not faults, "\n".join(faults)


@pytest.mark.parametrize(
    ("line", "faults"),
    [
        (
            "[one](README.md#part), [three](https://example.com/gone.md), [two](docs/gone.md)",
            ["docs/gone.md: the link"],
        ),
        ("`wiring/gone.py`", ["wiring/gone.py: the module is not there", "gone.py: there is no such file"]),
        ("`gone.sql`, `README.md`", ["gone.sql: there is no such file"]),
        ("`test_gone[x]`, `test_pages`", ["test_gone: there is no such test"]),
        ("no Kafka sink is built", ["no Kafka sink: goes stale"]),
        ("the protocol is not written yet", ["is not written: goes stale"]),
        ("It is not built.", ["is not built: goes stale"]),
        ("there are not implemented", ["are not implemented: goes stale"]),
    ],
)
def test_what_is_not_there_is_found_with_its_line(line: str, faults: list[str]) -> None:
    found = find_faults(ROOT / "page.md", f"One.\n\n{line}\n")
    assert [each[: len(f"page.md:3: {fault}")] for each, fault in zip(found, faults, strict=True)] == [
        f"page.md:3: {fault}" for fault in faults
    ]


def find_faults_of_decision(text: str) -> Iterator[str]:
    """What keeps a decision from being read: too many words, or a part that is not there or not in its place."""
    if (words := len(text.split())) > _MOST_WORDS:
        yield f"{words} words"
    headings = re.findall(r"^## (.+)$", text, re.MULTILINE)
    if [each for each in headings if each in _PARTS] != _PARTS:
        yield f"the parts are {', '.join(headings)}"


def test_every_decision_says_what_was_measured_and_what_would_break_it_in_400_words() -> None:
    decisions = {path.name: path.read_text(encoding="utf-8") for path in ROOT.glob("docs/adr/0*.md")}
    assert decisions
    faults = [f"{name}: {fault}" for name, text in decisions.items() for fault in find_faults_of_decision(text)]
    assert not faults, "\n".join(faults)


@pytest.mark.parametrize(
    ("left_out", "fault"), [("Measured", "the parts are Context, Decision, Broken when"), ("", "408 words")]
)
def test_decision_that_is_long_or_lacks_a_part_is_found(left_out: str, fault: str) -> None:
    parts = [f"## {each}\n\n" for each in _PARTS if each != left_out]
    filler = "" if left_out else "word " * 399
    assert list(find_faults_of_decision("".join(parts) + filler)) == [fault]


def find_cells_without_test(rows: list[str]) -> list[str]:
    """Return the cells of a table that name no test; the first of each row names the row."""
    cells = [cell for row in rows for cell in row.strip("| ").split(" | ")[1:]]
    return [cell for cell in cells if not _TEST.search(cell) and not _OF_THE_TEST_BESIDE.search(cell)]


def test_every_cell_of_the_guarantees_names_a_test() -> None:
    text = (ROOT / "docs" / "concepts" / "guarantees.md").read_text(encoding="utf-8")
    section = text.partition("### Which sink, which mode, which guarantee")[2].partition("\n## ")[0]
    _, _, *rows = [line for line in section.splitlines() if line.startswith("|")]
    assert [row.strip("| ").count(" | ") for row in rows] == [3] * len(rows) != []
    assert find_cells_without_test(rows) == []


def test_cell_without_a_test_is_found() -> None:
    assert find_cells_without_test(["| mode | `test_x[a]` | `[b-c-…]` | once |"]) == ["once"]
