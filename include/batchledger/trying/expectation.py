"""What a file says that a pipeline makes of records, compared with what it has made of them."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError

from batchledger.config.check_entries import as_json
from batchledger.config.documents import Document, find_inside
from batchledger.config.faults import MOST_FAULTS, list_faults
from batchledger.config.refusals import read_keys, refuse, write_path
from batchledger.model.errors import FileFault
from batchledger.model.quoting import quote, shorten
from batchledger.model.records.columns import DELETED_COLUMN, PROVENANCE_COLUMNS
from batchledger.settings.column_rules import nearest
from batchledger.settings.values import Section
from batchledger.trying.trial import Trial, TriedCheck

ADVICE = "The documentation lists every key: guides/try"
_ABSENT: Any = object()
_FAILURES = ("failed", "not_run")

Place = Sequence[str | int]


class ExpectedQuarantine(Section):
    """A record that is set aside."""

    line: Annotated[int, Field(ge=1)]
    """The line of the record in its file."""
    reason: str = ""
    """Words of the reason."""


class ExpectationConfig(Section):
    """A file of what is expected. Its fields are the keys of the file."""

    records: str
    """The file of the records, beside this one."""
    schema_file: str | None = None
    """The file of the schema of all values, beside this one, if records name theirs in a registry."""
    rows: list[dict[str, Any]] = Field(default_factory=list)
    """All rows, in the order of the records."""
    quarantined: list[ExpectedQuarantine] = Field(default_factory=list)
    """All records that are set aside."""
    checks: dict[str, Literal["passed", "failed", "empty", "not_run", "not_judged"]] = Field(default_factory=dict)
    """What comes of checks. One that is not named must not fail."""


@dataclass(frozen=True)
class Expectation:
    """A file of what is expected, and where each part of it is written."""

    path: Path
    config: ExpectationConfig
    document: Document

    @property
    def file(self) -> str:
        """The path of the file."""
        return write_path(self.path)

    @property
    def folder(self) -> Path:
        """The folder of the file, behind a link."""
        return self.path.resolve().parent

    @property
    def records(self) -> Path:
        """The path of the file of records."""
        return self.folder / self.config.records

    @property
    def schema_file(self) -> Path | None:
        """The path of the file of the schema."""
        return None if self.config.schema_file is None else self.folder / self.config.schema_file

    def compare(self, trial: Trial) -> tuple[FileFault, ...]:
        """Return the first differences, and how many there are more. Without any, the trial is as expected."""
        found = [*self._compare_rows(trial), *self._compare_quarantine(trial), *self._compare_checks(trial)]
        told = [FileFault(*self.document.locate(place), text) for place, text in found[:MOST_FAULTS]]
        more = len(found) - MOST_FAULTS
        return (*told, *([FileFault(1, 1, f"and {more:,} differences more")] if more > 0 else []))

    def _compare_rows(self, trial: Trial) -> Iterator[tuple[Place, str]]:
        for number, (wanted, row) in enumerate(zip_longest(self.config.rows, trial.rows)):
            if row is None:
                yield ["rows", number], f"rows.{number}: expected a row, found none"
            elif wanted is None:
                yield ["rows"], f"rows.{number}: expected no row, found {_write(_leave_out(row))}"
            else:
                yield from _compare_row(["rows", number], as_json(wanted), row)

    def _compare_quarantine(self, trial: Trial) -> Iterator[tuple[Place, str]]:
        reason_by_line = {each.line: each.reason for each in trial.quarantined}
        for number, wanted in enumerate(self.config.quarantined):
            reason = reason_by_line.pop(wanted.line, None)
            if reason is None:
                yield (
                    ["quarantined", number, "line"],
                    f"line {wanted.line}: expected in quarantine, and it is not there",
                )
            elif wanted.reason not in reason:
                yield (
                    ["quarantined", number, "reason"],
                    f"line {wanted.line}: expected {quote(wanted.reason)}, found: {reason}",
                )
        for line, reason in reason_by_line.items():
            yield ["quarantined"], f"line {line}: not expected in quarantine: {reason}"

    def _compare_checks(self, trial: Trial) -> Iterator[tuple[Place, str]]:
        by_name = {each.name: each for each in trial.checks}
        for name, wanted in self.config.checks.items():
            found = by_name.pop(name, None)
            if found is None and wanted != "passed":
                yield ["checks", name], f"{name}: expected {wanted}; no such check was judged, or it has found nothing"
            elif found is not None and found.outcome != wanted:
                yield ["checks", name], f"{name}: expected {wanted}, found {_describe(found)}"
        for each in by_name.values():
            if each.outcome in _FAILURES:
                yield ["checks"], f"{each.name}: not expected: {_describe(each)}"


def read_expectation(path: Path) -> Expectation:
    """Return what the file expects. Raises FileRefusedError with its mistakes."""
    document = read_keys(path, "what is expected: it has no keys; write records, rows and quarantined", ADVICE)
    try:
        config = ExpectationConfig.model_validate(document.content)
    except ValidationError as error:
        refuse(path, list_faults(error, document, ExpectationConfig, ()), ADVICE)
    expectation = Expectation(path, config, document)
    for key in ("records", "schema_file"):
        if (name := getattr(config, key)) is not None:
            try:
                find_inside(expectation.folder, name)
            except ValueError as error:
                refuse(path, [FileFault(*document.locate([key]), f"{key}: {error}")], ADVICE)
    return expectation


def _compare_row(place: Place, wanted: Mapping[str, Any], row: Mapping[str, Any]) -> Iterator[tuple[Place, str]]:
    where = ".".join(map(str, place))
    for name in dict.fromkeys([*wanted, *_leave_out(row)]):
        found = row.get(name, _ABSENT)
        if found is _ABSENT:
            yield [*place, name], f"{where}.{name}: the rows have no such column; {nearest(name, [*row])}"
            continue
        expected = wanted.get(name, False if name == DELETED_COLUMN else None)
        if not _is_same(expected, found):
            told = f"{where}.{name}: expected {_write(expected)}, found {_write(found)}"
            yield [*place, name], f"{told} (offset {row['_offset']})"


def _leave_out(row: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the columns that are compared although a file does not name them."""
    return {name: value for name, value in row.items() if name not in PROVENANCE_COLUMNS}


def _is_same(wanted: Any, found: Any) -> bool:
    """Whether values are equal, as JSON has them: 1 and 1.0 are one number, and true is none."""
    match wanted, found:
        case dict(), dict():
            return wanted.keys() == found.keys() and all(_is_same(each, found[name]) for name, each in wanted.items())
        case list(), list():
            return len(wanted) == len(found) and all(map(_is_same, wanted, found))
        case _:
            return bool(wanted == found) and isinstance(wanted, bool) is isinstance(found, bool)


def _describe(verdict: TriedCheck) -> str:
    lines = f" (lines {', '.join(map(str, verdict.lines))})" if verdict.lines else ""
    return f"{verdict.outcome}{': ' if verdict.detail else ''}{verdict.detail}{lines}"


def _write(value: Any) -> str:
    return shorten(json.dumps(value, ensure_ascii=False))
