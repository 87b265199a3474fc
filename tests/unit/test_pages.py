"""The pages that people read link to files that are there."""

import re
from pathlib import Path

import pytest

from tests.conftest import ROOT

PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("bench/*.md")])
_LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)\s]*)?\)")


def find_dead_links(page: Path) -> list[str]:
    """The links of a page to other files of the project that do not exist."""
    links = _LINK.findall(page.read_text(encoding="utf-8"))
    return [each for each in links if "://" not in each and not (page.parent / each).exists()]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    assert find_dead_links(page) == []


def test_link_that_leads_nowhere_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("[one](page.md#part), [two](docs/gone.md), [three](https://example.com/gone.md)")
    assert find_dead_links(page) == ["docs/gone.md"]
