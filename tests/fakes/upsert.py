"""Idempotent updates in memory: the same rule as the PostgreSQL sink's, written key by key."""

import json
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

from batchledger.model.batch import Attempt
from batchledger.model.errors import KeyConflictError
from batchledger.model.offsets import TopicPartition
from batchledger.model.records.rules import Upsert, VersionBy
from tests.fakes.database import Coordinate, Row, Tables, coordinate_of, is_erased

_NEVER = datetime.min.replace(tzinfo=UTC)


def apply_updates(
    tables: Tables, attempt: Attempt, held: Sequence[Row], rows: Iterable[Row], rules: Upsert
) -> tuple[Row, ...]:
    """Return the target as it is after ``rows``, which carry their batch id; remember what was deleted."""
    pipeline = attempt.batch.pipeline
    state = {_key_of(row, rules): row for row in held}
    tombstones = {key: row for (owner, key), row in tables.deleted_keys.items() if owner == pipeline}
    for row in sorted(rows, key=lambda each: _version_of(each, rules)):
        key = _key_of(row, rules)
        known = [each for each in (state.get(key), tombstones.get(key)) if each is not None and _is_of_a_record(each)]
        if rules.version is VersionBy.OFFSET:
            _require_one_partition(attempt, row, known)
        if any(_version_of(each, rules) > _version_of(row, rules) for each in known):
            continue
        state.pop(key, None)
        tombstones.pop(key, None)
        if row.get("_deleted"):
            tombstones[key] = row
        else:
            state[key] = {name: value for name, value in row.items() if name != "_deleted"}
    others = {each: row for each, row in tables.deleted_keys.items() if each[0] != pipeline}
    tables.deleted_keys = others | {(pipeline, key): row for key, row in tombstones.items()}
    return tuple(state.values())


def count_repeated_keys(rows: Sequence[Row], rules: Upsert) -> dict[tuple[int, TopicPartition], int]:
    """Return how many rows of each batch and partition have a key that another row has too."""
    keys = [_key_of(row, rules) for row in rows]
    repeated: dict[tuple[int, TopicPartition], int] = {}
    for row, key in zip(rows, keys, strict=True):
        place = (row["_batch_id"], coordinate_of(row)[0])
        repeated[place] = repeated.get(place, 0) + (keys.count(key) > 1)
    return repeated


def find_unmatched(
    tables: Tables, attempt: Attempt, held: Sequence[Row], rows: Sequence[Row], rules: Upsert
) -> list[Coordinate]:
    """Return the records that delete a key of which nothing is known."""
    known = {_key_of(row, rules) for row in held}
    known |= {key for owner, key in tables.deleted_keys if owner == attempt.batch.pipeline}
    found = []
    whole = [row for row in rows if not is_erased(row) and None not in [row[column] for column in rules.key]]
    for row in sorted(whole, key=lambda each: _version_of(each, rules)):
        key = _key_of(row, rules)
        if row.get("_deleted") and key not in known:
            found.append(coordinate_of(row))
        known.add(key)
    return sorted(found)


def _key_of(row: Row, rules: Upsert) -> str:
    values = [row[column] for column in rules.key]
    if None in values:
        partition, offset = coordinate_of(row)
        raise KeyConflictError(f"{partition}@{offset} has no value in sink.key {rules.key}.")
    return json.dumps(values, default=str)


def _is_of_a_record(row: Row) -> bool:
    """Whether a record has written the row, or the target held it before."""
    return row["_offset"] is not None


def _version_of(row: Row, rules: Upsert) -> tuple[Any, ...]:
    place = (row["_topic"], row["_partition"], row["_offset"])
    return place if rules.version is VersionBy.OFFSET else (row["_timestamp"] or _NEVER, *place)


def _require_one_partition(attempt: Attempt, row: Row, known: Sequence[Row]) -> None:
    partition, offset = coordinate_of(row)
    for each in known:
        other, its = coordinate_of(each)
        if other != partition:
            both = f"{partition}@{offset} and {other}@{its}"
            raise KeyConflictError(f"{attempt.batch.label}: {both}: one key, two partitions.", coordinates=(both,))
