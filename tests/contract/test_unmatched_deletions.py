"""A record that deletes a key of which nothing is known is counted and named before anything is published."""

from collections.abc import Iterator

import pytest

from batchledger.model.attempt_facts import UnmatchedDeletions
from batchledger.model.batch import Attempt
from batchledger.model.checks import IntegrityCheck, Severity
from batchledger.model.erasure import ErasureKey
from batchledger.model.offsets import OffsetRange
from batchledger.model.records.rules import Upsert
from tests.contract import life
from tests.contract.decided import BY_ANA
from tests.contract.updates import BY_OFFSET, BY_TIMESTAMP, DELETING_SCHEMA, KEYED_SCHEMA, P0, P1, Record, Story
from tests.contract.warehouses import PostgresWarehouse, open_postgres


@pytest.fixture
def table(warehouse_dsn: str) -> Iterator[PostgresWarehouse]:
    yield from open_postgres(warehouse_dsn)


def find(story: Story, attempt: Attempt) -> list[str]:
    """Name the deletions, as many as are counted."""
    with story.warehouse.sink.read_staged(attempt) as staged:
        counted = staged.count_unmatched()
    check = IntegrityCheck.DELETIONS_FIND_ROWS
    named = story.warehouse.sink.find_offenders(attempt, [check], 20).get(check, [])
    assert counted == UnmatchedDeletions(len(named), Severity.WARNING)
    return [str(each) for each in named]


def publish(story: Story, attempt: Attempt) -> None:
    life.audit(story.warehouse, attempt)
    life.publish(story.warehouse, attempt)


def test_deletion_of_a_key_that_is_known_in_no_way_is_named(table: PostgresWarehouse) -> None:
    story = Story(table.with_rules(upsert=BY_OFFSET))
    first = story.stage(Record("AA", None), Record("AA", 1), Record("DL", 1), Record("DL", None), Record("UA", None))
    assert find(story, first) == ["orders[0]@0", "orders[0]@4"]
    publish(story, first)
    second = story.stage(Record("aa", None), Record("AA", None), Record("UA", None), Record("UA", None))
    assert find(story, second) == ["orders[0]@5"], "AA has a row, and UA was deleted before"
    publish(story, second)


def test_deletion_counts_once_for_a_key(table: PostgresWarehouse) -> None:
    """Repeated in a batch, or brought again by a replay, it is a deletion of a key that is deleted already."""
    story = Story(table.with_rules(upsert=BY_TIMESTAMP))
    first = story.stage(Record("AA", None, P1, minute=5), Record("AA", None, P0, minute=3))
    assert find(story, first) == ["orders[0]@0"]
    publish(story, first)
    assert find(story, story.stage_replay(OffsetRange(P0, 0, 1))) == []


def test_deletion_of_an_erased_key_is_not_judged(table: PostgresWarehouse) -> None:
    """A check sees no record of the key."""
    story = Story(table.with_rules(upsert=Upsert(("carrier",))))
    story.publish(Record("AA", 1), Record("AA", None))
    key = ErasureKey.parse(["carrier=AA"])
    table.decisions.erase(table.pipeline, key, BY_ANA, lambda access: story.warehouse.sink.erase(access, key))
    assert table.count_deleted_keys() == 0
    assert find(story, story.stage_replay(OffsetRange(P0, 1, 2))) == []


@pytest.mark.parametrize("rules", [BY_OFFSET, None], ids=["no deletion", "no key"])
def test_rows_without_deletions_and_a_target_without_keys_are_not_asked(
    table: PostgresWarehouse, rules: Upsert | None
) -> None:
    story = Story(table.with_rules(upsert=rules), KEYED_SCHEMA if rules else DELETING_SCHEMA)
    with story.warehouse.sink.read_staged(story.stage(Record("AA", 1))) as staged:
        assert staged.count_unmatched() is None
