"""The pages that people read name files that are there, and a decision is read in two minutes."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import ROOT

PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("bench/*.md")])
_LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)\s]*)?\)")
_MODULE = re.compile(r"`((?:[\w.-]+/)+\w+\.py)`")
_MOST_WORDS = 400
_PARTS = ["Context", "Decision", "Measured", "Broken when"]


def find_dead_links(page: Path) -> list[str]:
    """The links of a page to other files of the project that do not exist, and the modules that it names."""
    text = page.read_text(encoding="utf-8")
    links = [each for each in _LINK.findall(text) if "://" not in each and not (page.parent / each).exists()]
    # The changelog says what was there.
    named = [] if page.name == "CHANGELOG.md" else _MODULE.findall(text)
    places = (ROOT, ROOT / "include/batchledger")
    return [*links, *(each for each in named if not any((place / each).exists() for place in places))]


def find_faults(decision: str) -> Iterator[str]:
    """What keeps a decision from being read: too many words, or a part that is not there or not in its place."""
    if (words := len(decision.split())) > _MOST_WORDS:
        yield f"{words} words"
    headings = re.findall(r"^## (.+)$", decision, re.MULTILINE)
    if [each for each in headings if each in _PARTS] != _PARTS:
        yield f"the parts are {', '.join(headings)}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    assert find_dead_links(page) == []


def test_link_that_leads_nowhere_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("[one](page.md#part), [two](docs/gone.md), [three](https://example.com/gone.md), `wiring/gone.py`")
    assert find_dead_links(page) == ["docs/gone.md", "wiring/gone.py"]


def test_every_decision_says_what_was_measured_and_what_would_break_it_in_400_words() -> None:
    decisions = {path.name: path.read_text(encoding="utf-8") for path in ROOT.glob("docs/adr/0*.md")}
    assert decisions
    assert {name: faults for name, text in decisions.items() if (faults := list(find_faults(text)))} == {}


@pytest.mark.parametrize(
    ("left_out", "fault"), [("Measured", "the parts are Context, Decision, Broken when"), ("", "408 words")]
)
def test_decision_that_is_long_or_lacks_a_part_is_found(left_out: str, fault: str) -> None:
    parts = [f"## {each}\n\n" for each in _PARTS if each != left_out]
    filler = "" if left_out else "word " * 399
    assert list(find_faults("".join(parts) + filler)) == [fault]
