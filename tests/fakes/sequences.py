"""Producers' own numbering in memory: the same rule as the PostgreSQL sink's, written record by record."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from batchledger.model.batch import Attempt
from batchledger.model.checks import IntegrityCheck, Offender
from batchledger.model.offsets import OffsetRange
from batchledger.model.records.numbering import NumberFacts, name_missing, name_repeated
from batchledger.model.records.rules import SequenceRule
from tests.fakes.database import Coordinate, Row, StoredSeries, Tables, coordinate_of


@dataclass
class JudgedNumbers:
    """What came of the numbers of a batch."""

    facts: NumberFacts
    missing: Sequence[Offender]
    repeated: Sequence[Offender]
    series: dict[str, StoredSeries]


@dataclass
class _Series:
    """One key while its records are taken in order."""

    rules: SequenceRule
    key: str
    known: StoredSeries | None
    before: frozenset[int] = frozenset()
    run: int = 1
    seen: dict[int, Coordinate | None] = field(default_factory=dict)
    kept: set[int] = field(default_factory=set)
    missing: list[Offender] = field(default_factory=list)
    repeated: list[tuple[Coordinate, Offender]] = field(default_factory=list)
    lost: int = 0
    late: int = 0
    restarts: int = 0
    joined: int = 0

    def __post_init__(self) -> None:
        if self.known is not None:
            self.before, self.run = self.known.seen, self.known.run
            self.seen = dict.fromkeys(sorted(self.known.seen))

    def take(self, number: int, at: Coordinate, is_kept: bool) -> None:
        """Judge one record; one that was set aside repeats nothing."""
        if number == self.rules.starts_at and (self.seen or self.known):
            self.end_run()
            self.restarts, self.run, self.before, self.seen = self.restarts + 1, self.run + 1, frozenset(), {}
            self.kept = set()
        elif not self.seen and self.known is None and self.rules.starts_at not in (None, number):
            self.joined += 1
        if is_kept and number in self.before | self.kept:
            self.repeated.append((at, _offender(at, name_repeated(number))))
        if is_kept:
            self.kept.add(number)
        if number not in self.seen:
            self.late += bool(self.before) and number < max(self.before)
            self.seen[number] = at

    def end_run(self) -> None:
        """Tell which gaps are new."""
        known = set(_missing_of(self.before))
        lost = [each for each in _missing_of(self.seen) if each not in known]
        self.lost += len(lost)
        for first, last in _stretches(lost):
            behind = self.seen.get(last + 1)
            number, at = (last + 1, behind) if behind else (first - 1, self.seen[first - 1])
            assert at is not None
            self.missing.append(_offender(at, name_missing(first, last, number)))


def judge_numbers(tables: Tables, attempt: Attempt, rows: Iterable[Row], rules: SequenceRule) -> JudgedNumbers:
    """Judge the rows that the batch makes visible, and those set aside, by what was seen before. Changes nothing."""
    series: dict[str, _Series] = {}
    unnumbered = 0
    aside = tables.staging[attempt.batch.batch_id, attempt.number].aside
    arrived = [(row, True) for row in rows] + [(row, False) for row in aside]
    for row, is_kept in sorted(arrived, key=lambda each: coordinate_of(each[0])):
        values, number = [row[column] for column in rules.key], row[rules.number]
        if None in (*values, number):
            unnumbered += is_kept
            continue
        key = json.dumps(values)
        stored = tables.sequences.get((attempt.batch.pipeline, key))
        series.setdefault(key, _Series(rules, key, stored)).take(number, coordinate_of(row), is_kept)
    for each in series.values():
        each.end_run()
    missing = [one for each in series.values() for one in each.missing]
    repeated = [one for each in series.values() for one in each.repeated]
    facts = NumberFacts(
        series=len(series),
        missing=sum(each.lost for each in series.values()),
        gaps=len(missing),
        repeated=len(repeated),
        late=sum(each.late for each in series.values()),
        restarts=sum(each.restarts for each in series.values()),
        joined=sum(each.joined for each in series.values()),
        unnumbered=unnumbered,
    )
    return JudgedNumbers(
        facts,
        sorted(missing, key=lambda each: each.offsets),
        [offender for _, offender in sorted(repeated, key=lambda each: each[0])],
        {key: StoredSeries(each.run, frozenset(each.seen)) for key, each in series.items()},
    )


def remember_numbers(tables: Tables, attempt: Attempt, rows: Iterable[Row], rules: SequenceRule) -> None:
    """Let later batches know the numbers of this one."""
    for key, series in judge_numbers(tables, attempt, rows, rules).series.items():
        tables.sequences[attempt.batch.pipeline, key] = series


def name_numbers(judged: JudgedNumbers, limit: int) -> dict[IntegrityCheck, Sequence[Offender]]:
    """The records that the checks name."""
    return {
        IntegrityCheck.NO_MISSING_NUMBERS: judged.missing[:limit],
        IntegrityCheck.NO_REPEATED_NUMBERS: judged.repeated[:limit],
    }


def _missing_of(seen: Iterable[int]) -> list[int]:
    present = set(seen)
    return [each for each in range(min(present), max(present)) if each not in present] if present else []


def _stretches(numbers: Sequence[int]) -> list[tuple[int, int]]:
    starts = [each for each in numbers if each - 1 not in numbers]
    ends = [each for each in numbers if each + 1 not in numbers]
    return list(zip(starts, ends, strict=True))


def _offender(at: Coordinate, note: str) -> Offender:
    partition, offset = at
    return Offender(OffsetRange(partition, offset, offset + 1), note)
