"""Everything that people read keeps the rules of CONTRIBUTING, *Plain English*, as far as a search can tell."""

import ast
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import ROOT

_FOLDERS = ("include", "dags", "plugins", "spark_jobs", "bench", "docs")
_READ = {".md", ".j2", ".js", ".sql", ".yaml"}
WORDS = {
    "a sentence begins with Of": re.compile(r"(?:^|[.!?:] |\n\n|- |\| )Of (?!course)[a-z\d]"),
    "is told": re.compile(r"\b(?:is|are|was|were|be|been|being) (?:\w+ )?told\b"),
    "nobody": re.compile(r"\bnobody\b", re.IGNORECASE),
    "somebody": re.compile(r"\bsomebody\b", re.IGNORECASE),
    "whoever": re.compile(r"\bwhoever\b", re.IGNORECASE),
    "those of": re.compile(r"\bthose of\b", re.IGNORECASE),
    "that of": re.compile(r"\bthat of\b", re.IGNORECASE),
    "as does": re.compile(r"\b(?:as|so) (?:does|do|is|are) (?:a|an|the|its|every|each|what)\b", re.IGNORECASE),
    "where for if": re.compile(r"\b(?:none|empty|nothing|only|also|even|left out|not) where\b", re.IGNORECASE),
}
# What a program writes, and the rules themselves.
_LEFT = {"bench/results.md", "CONTRIBUTING.md", "tests/unit/test_words.py"}


def read_python(path: Path) -> Iterator[str]:
    """Yield the strings, docstrings and comments of a module: names may be anything."""
    text = path.read_text(encoding="utf-8")
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield re.sub(r"\s*\n\s*(?!\n)", " ", node.value)
    yield re.sub(r"\n\s*# ?", " ", "\n".join(line for line in text.splitlines() if line.lstrip().startswith("#")))


def read_remarks(path: Path) -> Iterator[str]:
    """Yield the docstrings and comments of a module, without names in backticks: other strings are data."""
    text, comments, line = path.read_text(encoding="utf-8"), "", 0
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield re.sub(r"\s*\n\s*(?!\n)", " ", re.sub(r"`[^`]*`", "``", node.value.value))
    for token in tokenize.generate_tokens(iter(text.splitlines(keepends=True)).__next__):
        if token.type == tokenize.COMMENT:
            comments += (" " if token.start[0] == line + 1 else "\n\n") + token.string.lstrip("# ")
            line = token.start[0]
    yield re.sub(r"`[^`\n]*`", "``", comments)


def read_words(path: Path) -> Iterator[str]:
    """Yield what a person reads of a file; a paragraph is one line."""
    if path.is_relative_to(ROOT / "tests"):
        yield from read_remarks(path)
    elif path.suffix == ".py":
        yield from read_python(path)
    else:
        text = path.read_text(encoding="utf-8")
        yield re.sub(r"(?<!\n)\n(?![\n|#-])[ \t>]*", " ", re.sub(r"`[^`\n]*`", "``", text))


FILES = sorted(
    path
    for path in [
        *ROOT.glob("*.md"),
        *(path for each in _FOLDERS for path in (ROOT / each).rglob("*")),
        *(ROOT / "tests").rglob("*.py"),
    ]
    if path.suffix in {*_READ, ".py"} and str(path.relative_to(ROOT)) not in _LEFT
)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_words_that_need_a_second_reading_are_not_used(path: Path) -> None:
    # A user of Unix has this name.
    texts = [text.replace("`nobody`", "") for text in read_words(path) if text != "nobody"]
    found = [(rule, each) for text in texts for rule, words in WORDS.items() for each in words.findall(text)]
    assert found == []


@pytest.mark.parametrize(
    "text",
    [
        "Of one that commits",
        "It ends. Of a topic",
        "people are told of",
        "Nobody asks",
        "that of today",
        "None where it is",
    ],
)
def test_such_words_are_recognised(text: str) -> None:
    assert [rule for rule, words in WORDS.items() if words.search(text)]
