"""Everything that people read keeps the rules of CONTRIBUTING, *Plain English*, as far as a search can tell."""

import re

import pytest

from tests.conftest import ROOT

_FOLDERS = ("include", "dags", "plugins", "spark_jobs", "bench", "docs", "tests")
_READ = {".md", ".j2", ".js", ".sql", ".yaml", ".py"}
# What a program writes, and the rules themselves.
_LEFT = {"bench/results.md", "CONTRIBUTING.md", "tests/unit/test_words.py"}
# Between two words: a space, or the end of a line with what begins the next one of a paragraph, comment or string.
_GAP = r"""(?:[ ]|[ "']*\n[ \t>]*(?:# ?|-- ?|// ?|[fr]*["'])?)"""
_INSTEAD_BY_WORDS = {
    r'(?:^|[.!?:] |\n\n\s*|[-#|"] |")Of (?!course)[a-z\d]': "begin with the subject",
    r"(?i)\b(?:is|are|was|were|be|been|being) (?:\w+ )?told\b": "say who tells, or what is shown",
    r"(?i)\b(?:nobody|somebody|whoever)\b": "name the person or the part",
    r"(?i)\b(?:those|that) of\b": "repeat the noun",
    r"(?i)\b(?:as|so) (?:does|do|is|are) (?:a|an|the|its|every|each|what)\b": "put the subject before its verb",
    r"(?i)\b(?:none|empty|nothing|only|also|even|left out|not) where\b": "write 'if'",
}
_RULES = [(re.compile(words.replace(" ", _GAP)), instead) for words, instead in _INSTEAD_BY_WORDS.items()]
_USER_OF_UNIX = re.compile('[`"]nobody[`"]')
_REMARK = re.compile(r'("""[\s\S]*?"""|(?:^|(?<=  ))#.*$)|[^\n#"]+|.', re.MULTILINE)


def find_words(name: str, text: str) -> list[str]:
    """Return what needs a second reading in a file, its line, and what to write instead. Strings of tests are data."""
    if name.startswith("tests/"):
        text = _REMARK.sub(lambda found: found[1] or " " * len(found[0]), text)
    text = _USER_OF_UNIX.sub("``", text)
    return [
        f"{name}:{len(text[: found.end()].splitlines())}: {' '.join(found[0].split())!r}: {instead}"
        for words, instead in _RULES
        for found in words.finditer(text)
    ]


def test_words_that_need_a_second_reading_are_not_used() -> None:
    paths = [*ROOT.glob("*.md"), *(path for each in _FOLDERS for path in sorted((ROOT / each).rglob("*.*")))]
    texts = {str(path.relative_to(ROOT)): path for path in paths if path.suffix in _READ}
    assert len(texts) > 1000
    found = [find_words(name, path.read_text(encoding="utf-8")) for name, path in texts.items() if name not in _LEFT]
    assert not any(found), "\n".join(line for each in found for line in each)


@pytest.mark.parametrize(
    ("name", "text", "found"),
    [
        ("a.md", "Of one that commits", "a.md:1: 'Of o': begin with the subject"),
        ("a.py", '"""It ends.\n\n  Of a topic"""', "a.py:3: 'Of a': begin with the subject"),
        ("a.py", "# It ends.\n  # Of a topic", "a.py:2: '. # Of a': begin with the subject"),
        ("a.sql", "-- people are then\n-- told", "a.sql:2: 'are then -- told': say who tells, or what is shown"),
        ("a.j2", "Nobody asks, for", "a.j2:1: 'Nobody': name the person or the part"),
        ("a.js", "let x // not somebody", "a.js:1: 'somebody': name the person or the part"),
        ("a.md", "ask\n\nwhoever", "a.md:3: 'whoever': name the person or the part"),
        ("a.py", 'f"those "\n    f"of today"', "a.py:2: 'those \" f\"of': repeat the noun"),
        ("tests/a.py", "x = 1  # As that\n# of today", "tests/a.py:2: 'that # of': repeat the noun"),
        ("a.md", "one,\nas does a\nsink", "a.md:2: 'as does a': put the subject before its verb"),
        ("a.yaml", "a: None where it is", "a.yaml:1: 'None where': write 'if'"),
    ],
)
def test_each_of_the_words_is_found_in_its_line(name: str, text: str, found: str) -> None:
    assert find_words(name, text) == [found]


def test_data_of_tests_names_and_the_user_of_unix_are_left_alone() -> None:
    assert find_words("tests/a.py", 'ask("nobody else", x="that of")') == []
    assert (
        find_words("a.md", "`nobody` starts it, nobody_sees_it, that. Often, of course. Of course, those\n\n- of") == []
    )
