"""The idempotent consumer in memory: the same rule as the PostgreSQL sink's, written row by row."""

import json
from collections.abc import Mapping, Sequence

from batchledger.batch import Attempt
from batchledger.record_rules import Deduplication
from tests.fakes.database import Coordinate, Row, StoredKey, Tables, coordinate_of


def find_duplicates(
    tables: Tables, attempt: Attempt, rows: Sequence[Row], rules: Deduplication
) -> Mapping[Coordinate, Coordinate]:
    """Return where each duplicate lies and where its first record does."""
    batch, first, duplicates = attempt.batch, {}, {}
    for row in sorted(rows, key=coordinate_of):
        key, coordinate = _key_of(row, rules), coordinate_of(row)
        if key is None:
            continue
        stored = tables.message_keys.get((batch.pipeline, key))
        is_remembered = stored is not None and stored.remembered_until > batch.planned_at
        first.setdefault(key, stored.first if stored and is_remembered else coordinate)
        if first[key] != coordinate:
            duplicates[coordinate] = first[key]
    return duplicates


def find_held(tables: Tables, attempt: Attempt, rows: Sequence[Row], rules: Deduplication) -> frozenset[Coordinate]:
    """Return which rows an earlier attempt of the batch has written: those whose keys it remembered."""
    batch, coordinates = attempt.batch, set()
    for row in rows:
        key, coordinate = _key_of(row, rules), coordinate_of(row)
        stored = None if key is None else tables.message_keys.get((batch.pipeline, key))
        if stored is not None and (stored.batch_id, stored.first) == (batch.batch_id, coordinate):
            coordinates.add(coordinate)
    return frozenset(coordinates)


def drop_duplicates(tables: Tables, attempt: Attempt, rows: Sequence[Row], rules: Deduplication) -> tuple[Row, ...]:
    """Remember the keys, list the duplicates, return the other rows."""
    batch = attempt.batch
    duplicates = find_duplicates(tables, attempt, rows, rules)
    tables.duplicates[batch.batch_id] = duplicates
    tables.message_keys = {
        each: stored
        for each, stored in tables.message_keys.items()
        if each[0] != batch.pipeline or stored.remembered_until > batch.planned_at
    }
    accepted = tuple(row for row in rows if coordinate_of(row) not in duplicates)
    for row in accepted:
        key = _key_of(row, rules)
        if key is not None:
            remembered = StoredKey(coordinate_of(row), batch.planned_at + rules.remember, batch.batch_id)
            tables.message_keys.setdefault((batch.pipeline, key), remembered)
    return accepted


def _key_of(row: Row, rules: Deduplication) -> str | None:
    values = [row[column] for column in rules.key]
    return None if None in values else json.dumps(values, default=str)
