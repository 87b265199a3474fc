"""The table of sinks, modes and guarantees; ``test_scenarios`` shows that the tests which it names exist."""

import re

from tests.conftest import ROOT

NAMED = re.compile(r"`test_\w+(?:\[[^`\]]*\])?`")
OF_THE_TEST_BESIDE = re.compile(r"`\[\w+-\w+-…\]`")
SINKS = 3


def test_every_cell_of_the_guarantees_names_a_test() -> None:
    text = (ROOT / "docs" / "concepts" / "guarantees.md").read_text(encoding="utf-8")
    section = text.partition("### Which sink, which mode, which guarantee")[2].partition("\n## ")[0]
    _, _, *rows = [line for line in section.splitlines() if line.startswith("|")]
    cells = [cell for row in rows for cell in row.strip("| ").split(" | ")[1:]]
    assert len(cells) == SINKS * len(rows) > 0
    assert [cell for cell in cells if not NAMED.search(cell) and not OF_THE_TEST_BESIDE.search(cell)] == []
