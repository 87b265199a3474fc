"""The comparison in memory: the whole target before and after, row by row."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from batchledger.model.batch import Attempt
from batchledger.model.records.columns import BATCH_COLUMN, DELETED_COLUMN
from batchledger.model.records.comparison import ChangedRow, Comparison
from tests.fakes.database import Row, StoredTarget, coordinate_of


def compare_rows(
    before: StoredTarget, columns: Sequence[str], after: Iterable[Row], key: Sequence[str], attempt: Attempt, limit: int
) -> Comparison:
    """Compare the rows of the target with those that it would have, copies of one row in their order."""
    old, new = _by_key(before.rows, key), _by_key(after, key)
    compared = [each for each in before.schema.names if each in columns and each != DELETED_COLUMN]
    written = {each: row for each, row in new.items() if row[BATCH_COLUMN] == attempt.batch.batch_id}
    differing = {
        each: tuple(name for name in compared if row[name] != old[each][name])
        for each, row in written.items()
        if each in old
    }
    changed = {coordinate_of(written[each]): names for each, names in differing.items() if names}
    return Comparison(
        added=len(written) - len(differing),
        removed=len(old.keys() - new.keys()),
        changed=len(changed),
        unchanged=len(differing) - len(changed),
        examples=tuple(ChangedRow(*place, changed[place]) for place in sorted(changed)[:limit]),
        absent_columns=tuple(each for each in before.schema.names if each not in columns),
    )


def _by_key(rows: Iterable[Row], key: Sequence[str]) -> dict[tuple[Any, ...], Row]:
    met: dict[tuple[Any, ...], int] = defaultdict(int)
    found = {}
    for row in rows:
        values = tuple(row[column] for column in key)
        found[*values, met[values]] = row
        met[values] += 1
    return found
