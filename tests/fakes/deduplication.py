"""The idempotent consumer in memory: the same rule as the PostgreSQL sink's, written row by row."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from batchledger.model.batch import Attempt, HeldRange, Lane
from batchledger.model.records.rules import Deduplication
from tests.fakes.database import Coordinate, Row, StoredKey, Tables, Verdict, coordinate_of, is_erased

Verdicts = Mapping[Coordinate, Verdict]


@dataclass(frozen=True)
class Judged:
    """Every row with a key: what was decided before and stands, and what is decided now."""

    settled: Verdicts
    anew: Verdicts

    @property
    def duplicates(self) -> Verdicts:
        """The rows whose first record is another one."""
        return {at: each for at, each in {**self.settled, **self.anew}.items() if each.first != at}

    @property
    def repeated(self) -> Verdicts:
        """The duplicates that were not listed before."""
        return {at: each for at, each in self.anew.items() if each.first != at}


def recall(
    tables: Tables, old_rows: Iterable[Row], replaced: Sequence[HeldRange], rules: Deduplication
) -> Mapping[Coordinate, Verdict]:
    """Return what was decided about the records that a batch takes over; ``old_rows`` were accepted."""
    listed = {
        at: verdict
        for each in replaced
        for at, verdict in tables.duplicates.get(each.batch_id, {}).items()
        if at[0] == each.range.partition and at[1] in each.range and verdict.key is not None
    }
    keys = _keys_of(old_rows, rules)
    return listed | {at: Verdict(at, key) for at, key in keys.items()}


def judge(
    tables: Tables, attempt: Attempt, rows: Sequence[Row], rules: Deduplication, recalled: Verdicts | None
) -> Judged:
    """Tell duplicates from first records; ``recalled`` is None for a batch that takes nothing over."""
    batch, keys = attempt.batch, _keys_of(rows, rules)
    known = {at: each for at, each in (recalled or {}).items() if keys.get(at) == each.key}
    accepted = {at for at, each in known.items() if each.first == at}
    settled = {at: each for at, each in known.items() if each.first in accepted or not _covers(attempt, each.first)}
    open_ = sorted(keys.keys() - settled.keys())
    first: dict[str, Coordinate] = {}
    for at in (*sorted(accepted), *open_):
        first.setdefault(keys[at], at)
    for key in {keys[at] for at in open_}:
        stored = tables.message_keys.get((batch.pipeline, key))
        if stored is None or stored.remembered_until <= batch.planned_at:
            continue
        if recalled is None or keys.get(stored.first) == key or not _covers(attempt, stored.first):
            first[key] = stored.first
    return Judged(settled, {at: Verdict(first[keys[at]], keys[at]) for at in open_})


def find_held(tables: Tables, attempt: Attempt, rows: Sequence[Row], rules: Deduplication) -> frozenset[Coordinate]:
    """Return which rows an earlier attempt of the batch has written: those whose keys it remembered."""
    batch, coordinates = attempt.batch, set()
    for coordinate, key in _keys_of(rows, rules).items():
        stored = tables.message_keys.get((batch.pipeline, key))
        if stored is not None and (stored.batch_id, stored.first) == (batch.batch_id, coordinate):
            coordinates.add(coordinate)
    return frozenset(coordinates)


def drop_duplicates(tables: Tables, attempt: Attempt, rows: Sequence[Row], rules: Deduplication) -> tuple[Row, ...]:
    """Remember the keys, list the duplicates, return the other rows."""
    batch, recalled = attempt.batch, tables.recalled.pop(attempt.batch.batch_id, None)
    judged = judge(tables, attempt, rows, rules, recalled)
    if batch.lane is Lane.LIVE:
        tables.message_keys = {
            each: stored
            for each, stored in tables.message_keys.items()
            if each[0] != batch.pipeline or stored.remembered_until > batch.planned_at
        }
    _forget(tables, attempt, {at: each for at, each in (recalled or {}).items() if at == each.first}, judged)
    for at, verdict in {**judged.settled, **judged.anew}.items():
        key = (batch.pipeline, str(verdict.key))
        stored = tables.message_keys.get(key)
        if stored is not None and stored.first == at:
            owner = stored.batch_id if recalled is None else batch.batch_id
            tables.message_keys[key] = replace(stored, batch_id=owner)
        elif at == verdict.first and at in judged.anew:
            tables.message_keys[key] = StoredKey(at, batch.planned_at + rules.remember, batch.batch_id)
    tables.duplicates[batch.batch_id] = judged.duplicates
    return tuple(row for row in rows if coordinate_of(row) not in judged.duplicates)


def _forget(tables: Tables, attempt: Attempt, accepted_before: Verdicts, judged: Judged) -> None:
    """Forget first records that are not read any more, or with another key."""
    pipeline = attempt.batch.pipeline
    gone = {each for at, each in accepted_before.items() if at not in judged.settled}
    for each in gone:
        stored = tables.message_keys.get((pipeline, str(each.key)))
        if stored is not None and stored.first == each.first:
            del tables.message_keys[pipeline, str(each.key)]
    for batch_id, listed in tables.duplicates.items():
        if gone and tables.batches[batch_id].batch.pipeline == pipeline:
            tables.duplicates[batch_id] = {
                at: replace(each, key=None) if each in gone else each for at, each in listed.items()
            }


def _covers(attempt: Attempt, place: Coordinate) -> bool:
    return any(each.partition == place[0] and place[1] in each for each in attempt.batch.ranges)


def _keys_of(rows: Iterable[Row], rules: Deduplication) -> dict[Coordinate, str]:
    values = {coordinate_of(row): [row[column] for column in rules.key] for row in rows if not is_erased(row)}
    return {at: json.dumps(each, default=str) for at, each in values.items() if None not in each}
