"""The directive ``test-counts``: how many tests, assertions and lines there are, counted when the site is built."""

import ast
from collections.abc import Iterator
from pathlib import Path

from docutils import nodes
from docutils.statemachine import StringList
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

ROOT = Path(__file__).resolve().parents[2]
_FOLDERS = {
    "unit": "the core, in memory",
    "contract": "ports, over real Kafka and PostgreSQL",
    "machine": "the state machine",
    "integration": "batches, command line, services",
    "faults": "kills, pauses, broken services",
    "dags": "DAG files",
    "browser": "pages and mails in a Chromium",
    "e2e": "through Airflow",
}


class TestCountsDirective(SphinxDirective):
    """A table of the folders of tests."""

    def run(self) -> list[nodes.Node]:
        """Return the table."""
        parent = nodes.Element()
        self.state.nested_parse(StringList(list(write_counts()), source=__file__), self.content_offset, parent)
        return parent.children


def write_counts() -> Iterator[str]:
    """Yield the table as lines of Markdown; a parametrised test counts once."""
    yield from ("| folder | what it tests | test functions | assertions |", "|---|---|---:|---:|")
    total_tests = total_assertions = 0
    for folder, meaning in _FOLDERS.items():
        trees = [ast.parse(path.read_text(encoding="utf-8")) for path in (ROOT / "tests" / folder).rglob("*.py")]
        found = [node for tree in trees for node in ast.walk(tree)]
        tests = sum(isinstance(each, ast.FunctionDef) and each.name.startswith("test_") for each in found)
        assertions = sum(isinstance(each, ast.Assert) for each in found)
        total_tests, total_assertions = total_tests + tests, total_assertions + assertions
        yield f"| `tests/{folder}` | {meaning} | {tests:,} | {assertions:,} |"
    product, tests_lines = _count_lines("include"), _count_lines("tests")
    yield f"| | | **{total_tests:,}** | **{total_assertions:,}** |"
    yield from ("", f"The package has {product:,} lines of Python, the tests have {tests_lines:,}.", "")


def _count_lines(folder: str) -> int:
    return sum(len(path.read_text(encoding="utf-8").splitlines()) for path in (ROOT / folder).rglob("*.py"))


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the directive."""
    app.add_directive("test-counts", TestCountsDirective)
    return {"parallel_read_safe": True}
