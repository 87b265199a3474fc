"""SQL that changes rows, taken apart without Spark: one SELECT over ``rows``, whose every row comes from one row.

Nothing here knows Spark's grammar. A text is let through if each of its words, signs and functions is one that an
expression over one row has; every other one is refused with its place. What is let through goes to Spark as expressions
(``select`` and ``where`` of a DataFrame), and there an expression can neither join, nor order, nor leave rows out.
Spark finds faults of grammar and of types when a batch is staged. Pure.
"""

import re
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from enum import Enum, auto

from typing_extensions import override

from batchledger.model.quoting import quote
from batchledger.model.records.columns import PROVENANCE_COLUMNS
from batchledger.model.records.sql_words import (
    CALLS_WITH_FROM,
    CLAUSES,
    FUNCTIONS,
    NAMES_OF_FUNCTIONS,
    OPERATORS,
    REASON_BY_FUNCTION,
    TYPES_AND_UNITS,
)

ROWS = "rows"
EVERYTHING = "*"


@dataclass(frozen=True)
class RowQuery:
    """Expressions for Spark. ``names`` are the columns that ``items`` make, one for each; a star makes all others."""

    text: str
    items: tuple[str, ...]
    names: tuple[str, ...]
    condition: str | None

    @override
    def __str__(self) -> str:
        return "sql"

    @property
    def rule(self) -> str:
        """What two pipeline files share if they make the same rows."""
        return self.text

    def list_carried(self, required: Sequence[str]) -> list[str]:
        """Return the required columns that the items leave out, so that each row keeps them."""
        made = {each.lower() for each in self.names}
        return [] if EVERYTHING in made else [each for each in required if each not in made]

    def is_answered_by(self, columns: Sequence[str]) -> bool:
        """Whether Spark has made these columns first, by their names: otherwise it reads the text in another way."""
        names, found = [each.lower() for each in self.names], [each.lower() for each in columns]
        if EVERYTHING not in names:
            return found[: len(names)] == names
        before = names.index(EVERYTHING)
        after = names[before + 1 :]
        return found[:before] == names[:before] and found[len(found) - len(after) :] == after


def read_row_query(text: str, columns: Collection[str]) -> RowQuery:
    """Take SQL apart; ``columns`` are all that rows have. Raises ValueError with line, column and what is allowed."""
    return _QueryReader(text, {each.lower(): each for each in columns}).read()


class _Kind(Enum):
    SPACE = auto()
    COMMENT = auto()
    TEXT = auto()
    NAME = auto()
    NUMBER = auto()
    WORD = auto()
    SIGN = auto()


_PIECES: Mapping[_Kind, str] = {
    _Kind.SPACE: r"[ \t\r\n]+",
    _Kind.COMMENT: r"--|/\*",
    _Kind.TEXT: r"[rR]'[^']*'|'(?:[^'\\]|\\.)*'",
    _Kind.NAME: r"`[^`]+`",
    _Kind.NUMBER: r"(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?(?:[bB][dD]|[lLsSyYdDfF])?(?!\w)",
    _Kind.WORD: r"[A-Za-z_]\w*",
    _Kind.SIGN: r"<=>|<>|<=|>=|!=|==|\|\||->|::|<<|>>|[-+*/%=<>!&|^~.,;()\[\]]",
}
_PIECE = re.compile("|".join(f"(?P<{kind.name}>{text})" for kind, text in _PIECES.items()), re.ASCII | re.DOTALL)
_OPENING, _CLOSING = frozenset("(["), {")": "(", "]": "["}
# Cast to a moment, it is the one in which Spark runs.
_MOMENT = re.compile(r"'[\x00- ]*(?:now|today|tomorrow|yesterday)\b[\x00- ]*[^\x00- ]*[\x00- ]*'", re.IGNORECASE)
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|([0-3][0-7]{2})|(.))", re.DOTALL)
_CONTROLS = {"0": "\0", "b": "\b", "n": "\n", "r": "\r", "t": "\t", "Z": "\x1a"}
_VARIABLE = "${"
_MOST_LEVELS = 32
_REASON_BY_SIGN: Mapping[str, str] = {
    **dict.fromkeys(("--", "/*"), "no comment or hint is allowed in the SQL; YAML has # for comments, outside of it"),
    '"': "write texts in single quotes, names in backticks: Spark takes double quotes for a text",
    "'": "this text does not end",
    "`": "this name does not end",
    "?": "no parameters are allowed",
    ":": "no parameters are allowed",
    "$": "no variables are allowed",
    "@": "no variables are allowed",
}


@dataclass(frozen=True)
class _Token:
    """One word, sign or text. ``calls`` has a function for each bracket around it, the innermost last; or ``""``."""

    kind: _Kind
    text: str
    start: int
    calls: tuple[str, ...] = ()

    @property
    def word(self) -> str:
        """The word in small letters; empty if it is none, or in backticks."""
        return self.text.lower() if self.kind is _Kind.WORD else ""

    @property
    def name(self) -> str:
        """The name that it may be in small letters, backticks or not; empty if it can be none."""
        return self.text.strip("`").lower() if self.kind in (_Kind.WORD, _Kind.NAME) else ""


_END = _Token(_Kind.SIGN, "", 0)


@dataclass(frozen=True)
class _QueryReader:
    text: str
    columns: Mapping[str, str]
    """Each column of rows by its name in small letters."""

    def read(self) -> RowQuery:
        tokens = list(self._tokens())
        if not tokens or tokens[0].word != "select":
            raise self._fault(_END, "it is no SELECT; write select … from rows where …")
        items, condition = self._divide(tokens[:-1] if tokens[-1].text == ";" else tokens)
        known, names, made = {**self.columns, ROWS: ROWS}, list[str](), set[str]()
        for item in items:
            self._check(item, known)
            name = self._name(item, tokens[0])
            for each in self._list_all(item) if name == EVERYTHING else [name]:
                if each.lower() in made:
                    raise self._fault(item[0], f"{each} is there twice; write another name, or * except ({each})")
                made.add(each.lower())
            names.append(name)
            # A later item may use the name of an earlier one, unless Spark has a function of the name.
            if name.lower() not in NAMES_OF_FUNCTIONS:
                known[name.lower()] = name
        self._check(condition, {**self.columns, ROWS: ROWS})
        written = tuple(self._write(item) for item in items)
        return RowQuery(self.text, written, tuple(names), self._write(condition) if condition else None)

    def _tokens(self) -> Iterator[_Token]:
        """Yield all but spaces. Each character belongs to a token that may be there, and each bracket is closed."""
        at, before, open_ = 0, _END, list[tuple[str, str]]()
        while at < len(self.text):
            found = _PIECE.match(self.text, at)
            kind, text = (_Kind[str(found.lastgroup)], found[0]) if found else (_Kind.COMMENT, self.text[at])
            token = _Token(kind, text, at, tuple(call for _, call in open_))
            at += len(text)
            if kind is _Kind.COMMENT:
                raise self._fault(token, _REASON_BY_SIGN.get(text, f"{quote(text)} is not allowed here"))
            if kind is _Kind.SPACE:
                continue
            if text in _OPENING:
                if len(open_) == _MOST_LEVELS:
                    raise self._fault(token, f"more than {_MOST_LEVELS} brackets within each other")
                open_.append((text, before.word if text == "(" else ""))
            elif text in _CLOSING and (not open_ or open_.pop()[0] != _CLOSING[text]):
                raise self._fault(token, f"{text} closes no bracket")
            before = token
            yield token
        if open_:
            raise self._fault(before, f"a bracket {open_[-1][0]} is not closed")

    def _divide(self, tokens: Sequence[_Token]) -> tuple[list[list[_Token]], list[_Token]]:
        """Return the tokens of each item, and of the condition. Refuses what is neither of ``rows`` nor of WHERE."""
        begins = next((number for number, each in enumerate(tokens) if each.word == "from" and not each.calls), None)
        if begins is None:
            raise self._fault(tokens[-1], "there is no FROM; write from rows")
        items: list[list[_Token]] = [[]]
        for token in tokens[1:begins]:
            if token.text == "," and not token.calls:
                items.append([])
            else:
                items[-1].append(token)
        table, where, *condition = (*tokens[begins + 1 :], _END, _END)
        if table.word != ROWS:
            raise self._fault(table if table.text else tokens[begins], "the only table is rows; write from rows")
        if where.word == "where":
            if len(condition) == len((_END, _END)):
                raise self._fault(where, "WHERE has no condition")
            return items, condition[:-2]
        if where.text:
            raise self._fault(where, CLAUSES.get(where.word, "only a WHERE may follow rows"))
        return items, []

    def _check(self, part: Sequence[_Token], known: Mapping[str, str]) -> None:
        """Refuse what no expression over one row has."""
        known, text = {**known, **dict.fromkeys(_find_parameters(part), "")}, ""
        for before, token, after in zip((_END, *part), part, (*part[1:], _END), strict=False):
            if _VARIABLE in token.text:
                raise self._fault(token, "Spark puts settings of its server in the place of ${…}")
            if token.kind is _Kind.TEXT:
                # Spark joins texts that stand side by side.
                content = _read_escapes(token.text)
                text = text[:-1] + content[1:] if before.kind is _Kind.TEXT else content
            if token.kind is _Kind.TEXT and _MOMENT.fullmatch(text):
                raise self._fault(token, "Spark may take this text for the moment in which it runs")
            if token.text == ";":
                raise self._fault(token, "one statement is all; leave out what follows")
            if token.name:
                self._check_name(before, token, after, known)

    def _check_name(self, before: _Token, token: _Token, after: _Token, known: Mapping[str, str]) -> None:
        if token.word == "from" and before.text != "(" and not CALLS_WITH_FROM.isdisjoint(token.calls[-1:]):
            return
        if token.word == "except" and before.text == EVERYTHING:
            return
        if token.word in CLAUSES:
            raise self._fault(token, f"{CLAUSES[token.word]}. A column of this name stands in backticks")
        if token.word in OPERATORS:
            return
        is_type = token.word in TYPES_AND_UNITS and (before.word == "as" or before.text == "::")
        if after.text == "(" and not is_type:
            if token.word not in FUNCTIONS or before.text == ".":
                why = REASON_BY_FUNCTION.get(token.word, "the documentation lists all that are: reference/sql")
                raise self._fault(token, f"function {quote(token.name)} is not allowed: {why}")
        elif (
            before.text != "." and before.word != "as" and token.word not in TYPES_AND_UNITS and token.name not in known
        ):
            close = get_close_matches(token.name, known.keys() - {ROWS}, n=1)
            hint = f"did you mean {known[close[0]]}?" if close else "a new name stands behind as"
            raise self._fault(token, f"rows has no column {quote(token.name)}; {hint}")

    def _name(self, item: Sequence[_Token], select: _Token) -> str:
        """Return the name of the column that an item makes."""
        if not item:
            raise self._fault(select, "a column is missing beside a comma, or before FROM")
        if item[0].text == EVERYTHING:
            return EVERYTHING
        is_path = all(bool(each.name) if number % 2 == 0 else each.text == "." for number, each in enumerate(item))
        has_alias = len(item) > 2 and item[-2].word == "as"
        if not item[-1].name or not (has_alias or (is_path and len(item) % 2)):
            raise self._fault(item[0], "this column has no name; write … as name")
        name = item[-1].text.strip("`")
        is_column = len(item) == 1 or (len(item) == len("a.b") and item[0].name == ROWS)
        if name.lower() in PROVENANCE_COLUMNS and (has_alias or not is_column):
            raise self._fault(item[-1], f"{name} says where the record lies, and stays as it is; write another name")
        return name

    def _list_all(self, item: Sequence[_Token]) -> list[str]:
        """Return the columns that a star makes: all of rows, without the ones in ``except (…)``."""
        excluded = {each.name: each for each in item[3:-1:2]}
        signs = [each.word or each.text for each in (*item[1:3], *item[4::2])]
        if len(item) > 1 and signs != ["except", "(", *[","] * (len(excluded) - 1), ")"]:
            raise self._fault(item[1], "a star stands alone, or as * except (name, name)")
        for name in excluded.keys() & PROVENANCE_COLUMNS:
            raise self._fault(excluded[name], f"{name} says where the record lies, and stays on every row")
        return [name for small, name in self.columns.items() if small not in excluded]

    def _write(self, part: Sequence[_Token]) -> str:
        """Return the part as it is written: Spark reads the person's own text."""
        return self.text[part[0].start : part[-1].start + len(part[-1].text)]

    def _fault(self, token: _Token, what: str) -> ValueError:
        line = self.text.count("\n", 0, token.start) + 1
        column = token.start - self.text.rfind("\n", 0, token.start)
        return ValueError(f"line {line}, column {column}: {what}")


def _find_parameters(part: Sequence[_Token]) -> Iterator[str]:
    """Yield the names of lambda functions: ``x`` of ``x -> …``, ``k`` and ``v`` of ``(k, v) -> …``."""
    for number, token in enumerate(part):
        if token.text == "->":
            begin = number - 1
            while part[number - 1].text == ")" and part[begin].text != "(":
                begin -= 1
            yield from {each.word for each in part[begin:number]} - NAMES_OF_FUNCTIONS - {""}


def _read_escapes(text: str) -> str:
    """Return a text with its escapes read as Spark does; a raw one, which has none, as it is."""

    def read(found: re.Match[str]) -> str:
        if found[4] is not None:
            return _CONTROLS.get(found[4], found[4])
        code = int(found[3], 8) if found[3] else int(found[1] or found[2], 16)
        return chr(code) if code <= sys.maxunicode else ""

    return text[1:] if text[:1] in "rR" else _ESCAPE.sub(read, text)
