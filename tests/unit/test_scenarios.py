"""docs/testing/scenarios.md is true: what it names exists and cites it, what tests cite is in it, no row is empty."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache

import pytest

from tests.conftest import ROOT

PAGE = ROOT / "docs" / "testing" / "scenarios.md"
_ROW = re.compile(r"^\| (S\d+) \| (.+?) \| (.+) \|$", re.MULTILINE)
_NAMED = re.compile(r"`((?:test_|[A-Z])\w+)`")
_CITED = re.compile(r"\bS(\d{1,3})\b|(?<=_)s(\d{1,3})(?=_)")
_DEFINED = re.compile(r"^(?:def|class) (\w+)", re.MULTILINE)
_LINT_CODE = re.compile(r"# noqa.*")


@dataclass(frozen=True)
class Row:
    """One scenario of the page."""

    scenario: str
    must_happen: str
    answer: str

    @property
    def tests(self) -> list[str]:
        return _NAMED.findall(self.answer)


def read_rows() -> list[Row]:
    return [Row(*found) for found in _ROW.findall(PAGE.read_text(encoding="utf-8"))]


def cited_in(text: str) -> set[str]:
    """The scenarios that a piece of code cites: S55 in words, or _s55_ in a name."""
    return {f"S{word or name}" for word, name in _CITED.findall(_LINT_CODE.sub("", text))}


@cache
def read_tests() -> dict[str, str]:
    """The source of every test, and of every class of tests, by its name. Two empty lines part them."""
    texts = [path.read_text(encoding="utf-8") for path in sorted((ROOT / "tests").rglob("test_*.py"))]
    blocks = [block for text in texts for block in text.split("\n\n\n")]
    return {name: block for block in blocks for name in _DEFINED.findall(block)}


ROWS = read_rows()


def test_every_line_of_the_page_that_looks_like_a_scenario_is_a_row_and_none_comes_twice() -> None:
    looks_like_one = re.findall(r"^\| *(S\d+)", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert [row.scenario for row in ROWS] == looks_like_one
    assert len(set(looks_like_one)) == len(looks_like_one) > 100
    assert looks_like_one == sorted(looks_like_one, key=lambda scenario: int(scenario[1:]))


def find_faults(row: Row, source_by_test: Mapping[str, str]) -> Iterator[str]:
    """What a row promises and no test keeps."""
    if not row.must_happen.strip():
        yield f"{row.scenario}: say what must happen"
    if not row.tests and len(row.answer.split()) < 3:
        yield f"{row.scenario}: name a test, or the reason why there is none"
    for name in row.tests:
        if name not in source_by_test:
            yield f"{row.scenario}: there is no test {name}"
        elif row.scenario not in cited_in(source_by_test[name]):
            yield f"{row.scenario}: {name} does not cite it, in its name or its docstring"


def test_every_scenario_names_tests_that_exist_and_cite_it_or_gives_a_reason() -> None:
    faults = [fault for row in ROWS for fault in find_faults(row, read_tests())]
    assert not faults, "\n".join(faults)


@pytest.mark.parametrize(
    ("row", "fault"),
    [
        (Row("S7", " ", "`test_seven`"), "S7: say what must happen"),
        (Row("S7", "x", "none yet"), "S7: name a test, or the reason why there is none"),
        (Row("S7", "x", "`test_gone`"), "S7: there is no test test_gone"),
        (Row("S8", "x", "`test_seven`"), "S8: test_seven does not cite it, in its name or its docstring"),
    ],
)
def test_row_that_is_not_kept_is_found(row: Row, fault: str) -> None:
    source = {"test_seven": 'def test_seven() -> None:\n    """S7."""'}
    assert list(find_faults(row, source)) == [fault]
    assert list(find_faults(Row("S7", "x", "`test_seven`"), source)) == []


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
