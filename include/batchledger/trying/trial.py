"""What a pipeline makes of records of a file: rows, records that are set aside, and what its checks say.

Decoder, protection, transform and checks are the ones of the stage step and of the audit. What only the ledger or the
target knows is left out: keys, numbers and batches of before, and whether a table takes the rows.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from batchledger.checks.in_memory import explain_unjudged, judge_in_memory
from batchledger.config.pipeline_file import PipelineConfig
from batchledger.formats.decoding.surviving import SurvivingDecoder
from batchledger.lifecycle.row_audit import ROUNDS
from batchledger.model.checks import (
    CheckResult,
    IntegrityCheck,
    JudgedCheck,
    Outcome,
    list_failed,
)
from batchledger.model.records.columns import COORDINATE_COLUMNS, DELETED_COLUMN
from batchledger.model.records.protection import ColumnProtection
from batchledger.model.records.rules import Deduplication, DuplicatePolicy, UnknownFieldPolicy
from batchledger.model.records.unknown_fields import UnknownFieldCounter, sum_up
from batchledger.reading import make_lone_decoder
from batchledger.settings.column_rules import require_row_columns
from batchledger.trying.records import Place, RecordsOfFile
from batchledger.trying.values import write_rows

NOT_JUDGED = "not_judged"
FindLine = Callable[[Place], int]


@dataclass(frozen=True, slots=True)
class TriedCheck:
    """What came of a check: an ``Outcome``, or ``NOT_JUDGED``; ``lines`` are some records whose rows do not pass."""

    name: str
    outcome: str
    severity: str
    detail: str
    lines: tuple[int, ...] = ()
    blocks: bool = False


@dataclass(frozen=True, slots=True)
class QuarantinedLine:
    """A record in quarantine, by its line, and why."""

    line: int
    reason: str


@dataclass(frozen=True, slots=True)
class RepeatedLine:
    """A record that repeats a message, and the line of the first record with its key."""

    line: int
    first: int


@dataclass(frozen=True, slots=True)
class Trial:
    """What became of the records, each in the order of their lines.

    ``tombstones`` are lines that are only counted, and ``filtered`` ones whose rows the transform has left out.
    """

    records: int
    rows: tuple[Mapping[str, Any], ...]
    quarantined: tuple[QuarantinedLine, ...]
    duplicates: tuple[RepeatedLine, ...]
    tombstones: tuple[int, ...]
    filtered: tuple[int, ...]
    checks: tuple[TriedCheck, ...]
    notes: tuple[str, ...] = ()

    @property
    def is_blocked(self) -> bool:
        """Whether a run would publish none of the rows."""
        return any(each.blocks for each in self.checks)


def try_records(pipeline: PipelineConfig, records: RecordsOfFile, schema_file: Path | None = None) -> Trial:
    """Return what the pipeline makes of the records. Raises the errors of a stage step, and ConfigurationError."""
    decoder, line_of = make_lone_decoder(pipeline, schema_file), records.find_line
    decoded = SurvivingDecoder(decoder).decode(records.records)
    made = pa.Table.from_batches(decoded.rows, decoder.schema)
    staged = made
    if pipeline.transform is not None:
        # Imported here because only a transform needs Spark, which takes seconds.
        from batchledger.trying.staging import stage_records

        staged = stage_records(pipeline, decoder, records)
    require_row_columns(pipeline.sink.target, staged.schema.names, pipeline.keys)
    places = _places(staged)
    first_of = {} if pipeline.deduplication is None else find_repeated(staged, pipeline.deduplication)
    kept = staged.filter(pa.array([each not in first_of for each in places], pa.bool_()))
    kept, failed, verdicts = _judge(pipeline, kept, line_of)
    refused = [] if decoded.set_aside is None else decoded.set_aside.to_pylist()
    aside = [QuarantinedLine(line_of(_place(each)), each["error"]) for each in refused] + failed
    skipped = [] if decoded.skipped is None else decoded.skipped.to_pylist()
    tombstones = [line_of(_place(each)) for each in skipped]
    unknown = UnknownFieldCounter()
    for names, seen in decoded.undeclared:
        unknown.count(names, seen)
    integrity = [
        *_judge_places(places, records.line_by_place.keys() - {_place(each) for each in [*refused, *skipped]}),
        *_judge_batch(pipeline, len(aside), records.records.num_rows - len(tombstones), len(first_of)),
        *_judge_unknown_fields(pipeline.source.unknown_fields, unknown),
    ]
    ordered = sorted(zip(_places(kept), write_rows(kept), strict=True), key=lambda each: line_of(each[0]))
    return Trial(
        records.records.num_rows,
        tuple(row for _, row in ordered),
        tuple(sorted(aside, key=lambda each: each.line)),
        tuple(RepeatedLine(line_of(place), line_of(first)) for place, first in first_of.items()),
        tuple(sorted(tombstones)),
        tuple(sorted(line_of(place) for place in {*_places(made)} - {*places})),
        tuple([_tell(each, line_of) for each in map(JudgedCheck, integrity)] + verdicts),
        tuple(_note(pipeline)),
    )


def find_repeated(rows: pa.Table, rule: Deduplication) -> Mapping[Place, Place]:
    """Return the rows that repeat the key of another one, with the first of it by topic, partition and offset.

    As ``list_repeated`` of the staging finds them in a batch. A key with a null repeats none.
    """
    first_by_key: dict[tuple[Any, ...], Place] = {}
    first_of = {}
    for place, row in sorted(zip(_places(rows), write_rows(rows), strict=True), key=lambda each: each[0]):
        key = tuple(row[name] for name in rule.key)
        if None not in key and (first := first_by_key.setdefault(key, place)) != place:
            first_of[place] = first
    return first_of


def _judge(
    pipeline: PipelineConfig, rows: pa.Table, line_of: FindLine
) -> tuple[pa.Table, list[QuarantinedLine], list[TriedCheck]]:
    """Return the rows that are left, the records that checks set aside, and what came of each check of the file.

    In rounds, as an audit does: what is left is judged anew.
    """
    unjudged = {each.name: explain_unjudged(each, rows) for each in pipeline.requested_checks}
    asked = [each for each in pipeline.requested_checks if not unjudged[each.name]]
    reasons: dict[Place, str] = {}
    failed_of: dict[str, list[int]] = {}
    judged: Mapping[str, JudgedCheck] = {}
    for _ in range(ROUNDS if asked else 0):
        judged = judge_in_memory(asked, pipeline.folder, _without_deletions(rows))
        found = {
            (each.partition.topic, each.partition.partition, each.offset): each
            for each in list_failed([each for each in judged.values() if each.failing])
        }
        if not found:
            break
        for place, each in found.items():
            reasons[place] = each.reason
            for name in each.checks:
                failed_of.setdefault(name, []).append(line_of(place))
        rows = rows.filter(pa.array([place not in found for place in _places(rows)], pa.bool_()))
    verdicts = [
        TriedCheck(each.name, NOT_JUDGED, each.severity, unjudged[each.name])
        if unjudged[each.name]
        else _tell(judged[each.name], line_of, failed_of.get(each.name, ()))
        for each in pipeline.requested_checks
    ]
    return rows, [QuarantinedLine(line_of(place), why) for place, why in reasons.items()], verdicts


def _without_deletions(rows: pa.Table) -> pa.Table:
    if DELETED_COLUMN not in rows.column_names:
        return rows
    return rows.filter(pa.array([not each for each in rows[DELETED_COLUMN].to_pylist()], pa.bool_()))


def _tell(judged: JudgedCheck, line_of: FindLine, aside: Sequence[int] = ()) -> TriedCheck:
    """Return a result with the lines of its examples; one whose rows were set aside has failed, whatever is left."""
    result = judged.result
    if aside:
        return TriedCheck(
            result.name, Outcome.FAILED, result.severity, "rows that do not pass are set aside", tuple(aside)
        )
    places = [
        (each.offsets.partition.topic, each.offsets.partition.partition, each.offsets.start) for each in judged.examples
    ]
    lines = tuple(sorted(map(line_of, places)))
    return TriedCheck(result.name, result.outcome, result.severity, result.detail, lines, result.blocks)


def _judge_places(places: Sequence[Place], known: set[Place]) -> Iterator[CheckResult]:
    """Say what is wrong with the places of rows: only a transform can change them."""
    wrong = {
        IntegrityCheck.NO_DUPLICATE_OFFSETS: len(places) - len({*places}),
        IntegrityCheck.NO_ROWS_OUTSIDE_RANGES: len({*places} - known),
    }
    for check, total in wrong.items():
        if total:
            yield CheckResult(check, Outcome.FAILED, check.failure.format(total=total))


def _judge_batch(pipeline: PipelineConfig, quarantined: int, records: int, repeated: int) -> Iterator[CheckResult]:
    """Say what would block the batch as a whole, as far as its records alone tell."""
    check, limit = IntegrityCheck.QUARANTINE_WITHIN_LIMIT, pipeline.rules.quarantine_limit
    if limit.is_exceeded(quarantined, records):
        detail = f"{check.failure.format(total=quarantined)}, of {records:,}; quarantine.max_share: {limit.max_share:g}"
        yield CheckResult(check, Outcome.FAILED, detail)
    if repeated and pipeline.deduplication and pipeline.deduplication.duplicates is DuplicatePolicy.BLOCK:
        check = IntegrityCheck.NO_DUPLICATE_MESSAGES
        yield CheckResult(check, Outcome.FAILED, check.failure.format(total=repeated))


def _judge_unknown_fields(policy: UnknownFieldPolicy, counter: UnknownFieldCounter) -> Iterator[CheckResult]:
    check, unknown = IntegrityCheck.NO_UNKNOWN_FIELDS, sum_up(counter.records, counter.list_first())
    if unknown.records and policy.severity is not None:
        detail = f"{check.failure.format(total=unknown.records)}: {unknown.describe()}"
        yield CheckResult(check, Outcome.FAILED, detail, severity=policy.severity)


def _note(pipeline: PipelineConfig) -> Iterator[str]:
    """Say what the rows here lack beside the ones of a run."""
    hashed = [name for name, each in pipeline.source.protect.items() if each is ColumnProtection.HASH]
    if hashed:
        yield f"Hashes of {', '.join(hashed)} are made with a secret that every person knows: a run makes others."
    if pipeline.numbering is not None:
        yield "sequence is not judged: the ledger has the numbers of before."


def _places(rows: pa.Table) -> list[Place]:
    return list(zip(*(rows[name].to_pylist() for name in COORDINATE_COLUMNS), strict=True))


def _place(record: Mapping[str, Any]) -> Place:
    return record["topic"], record["partition"], record["offset"]
