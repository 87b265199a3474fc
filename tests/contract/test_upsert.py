"""The contract of the Sink port with ``mode: upsert``: the target holds the newest state of each key."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from psycopg import sql

from batchledger.lifecycle.requirement import check_rows
from batchledger.model.balance import TargetCount
from batchledger.model.errors import ConfigurationError, KeyConflictError, StagingLostError, TargetChangedError
from batchledger.model.offsets import TopicPartition
from batchledger.model.records.rules import Deduplication, Upsert
from tests.contract import life
from tests.contract.conftest import EVERY_TABLE
from tests.contract.updates import ANYWHERE, BY_OFFSET, BY_TIMESTAMP, KEYED_SCHEMA, P0, P1, STABLE, Record, Story
from tests.contract.warehouses import PostgresWarehouse, Warehouse, open_postgres

WAREHOUSES = EVERY_TABLE
pytestmark = pytest.mark.rules

OTHER_TOPIC = TopicPartition("returns", 0)


@pytest.fixture
def story(warehouse: Warehouse) -> Story:
    """A sink that updates (carrier, flight), newest by offset."""
    return Story(warehouse.with_rules(upsert=BY_OFFSET))


@pytest.fixture
def timed(warehouse: Warehouse) -> Story:
    """The same, newest by timestamp."""
    return Story(warehouse.with_rules(upsert=BY_TIMESTAMP))


def test_last_record_of_a_key_in_one_batch_wins(story: Story) -> None:
    story.publish(Record("AA", 1), Record("DL", 7), Record("AA", 2), Record("AA", 3))
    assert story.state() == {("AA", 1): 3, ("DL", 1): 7}


def test_later_batch_replaces_the_row_of_its_key_whole(story: Story) -> None:
    story.publish(Record("AA", 1), Record("DL", 7))
    second = story.publish(Record("AA", 5, message_id="m2"))
    (row,) = [row for row in story.warehouse.read_target() if row["carrier"] == "AA"]
    where = (row["_offset"], row["_batch_id"], row["message_id"], row["delay"])
    assert where == (2, second.batch.batch_id, "m2", 5)
    assert "_deleted" not in row


def test_key_needs_all_of_its_columns_to_be_equal(story: Story) -> None:
    story.publish(Record("AA", 1, flight=1), Record("AA", 2, flight=2))
    assert story.state() == {("AA", 1): 1, ("AA", 2): 2}


def test_tombstone_deletes_its_key_and_a_newer_record_brings_it_back(story: Story) -> None:
    story.publish(Record("AA", 1), Record("DL", 7))
    story.publish(Record("AA", None))
    assert story.state() == {("DL", 1): 7}
    assert story.warehouse.count_deleted_keys() == 1
    story.publish(Record("AA", 9))
    assert story.state() == {("AA", 1): 9, ("DL", 1): 7}
    assert story.warehouse.count_deleted_keys() == 0


def test_last_record_of_a_batch_decides_between_update_and_deletion(story: Story) -> None:
    story.publish(Record("AA", 1), Record("AA", None), Record("DL", None), Record("DL", 2))
    assert story.state() == {("DL", 1): 2}


def test_older_record_published_again_does_not_overwrite_a_newer_one(story: Story) -> None:
    story.publish(Record("AA", 1))
    story.publish(Record("AA", 2))
    story.publish_again(0)
    assert story.state() == {("AA", 1): 2}


def test_older_record_published_again_does_not_bring_back_a_deleted_key(story: Story) -> None:
    story.publish(Record("AA", 1))
    story.publish(Record("AA", None))
    for _ in range(2):
        story.publish_again(0)
        assert story.state() == {}


def test_older_tombstone_published_again_does_not_make_a_deletion_older(story: Story) -> None:
    story.publish(Record("AA", None))
    story.publish(Record("AA", 1))
    story.publish(Record("AA", None))
    for number in (0, 1):
        story.publish_again(number)
    assert story.state() == {}


def test_older_tombstone_published_again_does_not_delete_a_newer_row(story: Story) -> None:
    story.publish(Record("AA", 1), Record("AA", None))
    story.publish(Record("AA", 3))
    story.publish_again(0)
    assert story.state() == {("AA", 1): 3}
    assert story.warehouse.count_deleted_keys() == 0
    story.publish(Record("AA", None))
    story.publish_again(1)
    assert story.state() == {}


def test_tombstone_of_a_key_that_never_was_is_remembered_too(timed: Story) -> None:
    timed.publish(Record("AA", None, minute=5))
    timed.publish(Record("AA", 1, minute=4))
    assert timed.state() == {}


def test_every_staged_row_counts_as_accepted(story: Story) -> None:
    attempt = story.stage(Record("AA", 1), Record("AA", 2), Record("AA", None), Record("DL", 7))
    (balance,) = life.balance(story.warehouse, attempt)
    assert (balance.accepted, balance.unexplained) == (4, 0)
    life.audit(story.warehouse, attempt)
    assert life.publish(story.warehouse, attempt) == 4
    counted = dict(story.warehouse.sink.count_target(story.warehouse.pipeline).by_batch)
    assert counted == {(attempt.batch.batch_id, P0): TargetCount(1, 1, 3, 3, repeated_keys=0)}


def test_key_in_two_partitions_is_refused_by_coordinates_and_nothing_is_published(story: Story) -> None:
    attempt = story.stage(Record("DL", 1), Record("AA", 1, P0), Record("AA", 2, P1))
    life.audit(story.warehouse, attempt)
    with pytest.raises(KeyConflictError), story.warehouse.ledger.publication(attempt) as publication:
        check_rows(story.warehouse.sink, publication)
    with pytest.raises(KeyConflictError) as refused:
        life.publish(story.warehouse, attempt)
    assert [set(each.split(" and ")) for each in refused.value.coordinates] == [{"orders[0]@1", "orders[1]@0"}]
    assert story.state() == {}
    assert set(life.next_offsets(story.warehouse).values()) == {0}


@pytest.mark.parametrize("before", [Record("AA", 1, P0), Record("AA", None, P0)], ids=["row", "tombstone"])
@pytest.mark.parametrize("other", [P1, OTHER_TOPIC], ids=str)
def test_key_that_an_earlier_batch_had_in_another_partition_is_refused(
    story: Story, before: Record, other: TopicPartition
) -> None:
    story.publish(before)
    state = story.state()
    attempt = story.stage(Record("DL", 1, other), Record("AA", 2, other))
    life.audit(story.warehouse, attempt)
    with pytest.raises(KeyConflictError) as refused:
        life.publish(story.warehouse, attempt)
    assert refused.value.coordinates == (f"{other}@1 and {P0}@0",)
    assert story.state() == state


def test_version_by_timestamp_orders_the_records_of_several_partitions(timed: Story) -> None:
    timed.publish(Record("AA", 1, P1, minute=5), Record("AA", 2, P0, minute=3))
    assert timed.state() == {("AA", 1): 1}
    timed.publish(Record("AA", 3, P0, minute=5), Record("AA", 4, P0, minute=1))
    assert timed.state() == {("AA", 1): 1}
    timed.publish(Record("AA", 5, P0, minute=6))
    assert timed.state() == {("AA", 1): 5}


def test_null_in_the_key_is_refused_by_coordinates(story: Story) -> None:
    attempt = story.stage(Record("AA", 1), Record(None, 2))
    life.audit(story.warehouse, attempt)
    with pytest.raises(KeyConflictError, match=r"orders\[0\]@1"):
        life.publish(story.warehouse, attempt)
    assert story.state() == {}


@pytest.mark.table
def test_target_without_a_unique_index_on_the_key_is_refused_before_anything_is_staged(warehouse: Warehouse) -> None:
    Story(warehouse, KEYED_SCHEMA).publish(Record("AA", 1))
    late = Story(warehouse.with_rules(upsert=BY_OFFSET), KEYED_SCHEMA)
    with pytest.raises(TargetChangedError, match=r"index on exactly .*carrier.*flight"):
        late.stage(Record("AA", 2))


def test_key_column_that_the_rows_do_not_have_is_refused(warehouse: Warehouse) -> None:
    with pytest.raises(ConfigurationError, match="tail"):
        Story(warehouse.with_rules(upsert=Upsert(("tail",)))).stage(Record("AA", 1))


def test_s113_lost_staging_is_not_taken_for_a_batch_without_updates(story: Story) -> None:
    attempt = story.stage(Record("AA", 1))
    life.audit(story.warehouse, attempt)
    story.warehouse.lose_staging()
    with pytest.raises(StagingLostError):
        life.publish(story.warehouse, attempt)


def test_duplicates_are_dropped_before_rows_become_updates(warehouse: Warehouse) -> None:
    """A message that is delivered again, late, must not win as the last record of its key."""
    rules = Deduplication(("message_id",), timedelta(days=30))
    story = Story(warehouse.with_rules(rules, BY_OFFSET))
    story.publish(Record("AA", 1, message_id="m1"), Record("AA", 2, message_id="m2"))
    attempt = story.stage(Record("AA", 1, message_id="m1"), Record("DL", 7, message_id="m3"))
    assert [each.duplicates for each in life.summarise(story.warehouse, attempt)] == [1]
    life.audit(story.warehouse, attempt)
    assert life.publish(story.warehouse, attempt) == 1
    assert story.state() == {("AA", 1): 2, ("DL", 1): 7}


def test_deleted_keys_belong_to_their_pipeline(story: Story) -> None:
    story.publish(Record("AA", None))
    for other in open_another(story.warehouse):
        its = Story(other)
        its.publish(Record("AA", 1))
        assert its.state() == {("AA", 1): 1}


def open_another(warehouse: Warehouse) -> Iterator[Warehouse]:
    """Another pipeline with a target of its own in the same database."""
    other = PostgresWarehouse(warehouse.dsn, f"{warehouse.pipeline}_other", upsert=BY_OFFSET)
    yield other
    other.drop()


@pytest.mark.table
@pytest.mark.parametrize(
    ("rules", "minute"),
    [(BY_OFFSET, 0), (BY_TIMESTAMP, 0), (BY_TIMESTAMP, None)],
    ids=["offset", "timestamp", "no time"],
)
def test_row_that_the_target_held_before_is_older_than_any_record(
    warehouse: Warehouse, rules: Upsert, minute: int | None
) -> None:
    hold_before(warehouse, ("AA", "DL", "UA"))
    story = Story(warehouse.with_rules(upsert=rules))
    assert story.state() == {("AA", 1): 0, ("DL", 1): 0, ("UA", 1): 0}
    records = [Record("AA", 5, minute=minute), Record("DL", None, minute=minute), Record("WN", 7, minute=minute)]
    attempt = story.publish(*records)
    assert story.state() == {("AA", 1): 5, ("UA", 1): 0, ("WN", 1): 7}
    (replaced,) = [row for row in warehouse.read_target() if row["carrier"] == "AA"]
    assert (replaced["_offset"], replaced["_batch_id"]) == (0, attempt.batch.batch_id)
    story.publish_again(0)
    assert story.state() == {("AA", 1): 5, ("UA", 1): 0, ("WN", 1): 7}
    counted = warehouse.sink.count_target(warehouse.pipeline).by_batch
    assert [(batch_id, count.rows) for (batch_id, _), count in counted.items() if count.first_offset is None] == [
        (None, 1)
    ]


def hold_before(warehouse: Warehouse, carriers: Sequence[str]) -> None:
    """Let the target exist, with a row of flight 1 and delay 0 for each carrier that no record has written."""
    create_by_hand(warehouse, "create unique index on {} (carrier, flight)")
    table = sql.Identifier(warehouse.schema, "orders")
    with psycopg.connect(warehouse.dsn) as connection:
        insert = sql.SQL("insert into {} (carrier, flight, delay) select unnest(%s::text[]), 1, 0").format(table)
        connection.execute(insert, [list(carriers)])


def create_by_hand(warehouse: PostgresWarehouse, index: str) -> None:
    """Create a target, with a column of its own and an index on ``{}``."""
    table = sql.Identifier(warehouse.schema, "orders")
    with psycopg.connect(warehouse.dsn) as connection:
        connection.execute(sql.SQL("create schema {}").format(sql.Identifier(warehouse.schema)))
        connection.execute(
            sql.SQL(
                "create table {} (message_id text, carrier text, flight int, delay bigint, note text, "
                "_topic text, _partition int, _offset bigint, _timestamp timestamptz, _batch_id bigint)"
            ).format(table)
        )
        connection.execute(sql.SQL(index).format(table))  # type: ignore[arg-type]


def histories(record: st.SearchStrategy[Record]) -> st.SearchStrategy[Sequence[tuple[Sequence[Record], Sequence[int]]]]:
    """Batches, each followed by numbers that choose which earlier ones are published again."""
    again = st.lists(st.integers(0, 9), max_size=3)
    return st.lists(st.tuples(st.lists(record, min_size=1, max_size=6), again), min_size=1, max_size=5)


def follow(dsn: str, rules: Upsert, history: Sequence[tuple[Sequence[Record], Sequence[int]]]) -> None:
    """After every publication, of a new batch or of an old one, the target is what the model says."""
    with contextmanager(open_postgres)(dsn) as warehouse:
        story = Story(warehouse.with_rules(upsert=rules))
        for records, again in history:
            story.publish(*records)
            assert story.state() == story.newest(rules.version)
            for number in again:
                story.publish_again(number % len(story.attempts))
                assert story.state() == story.newest(rules.version)


def test_any_history_gives_the_newest_state(warehouse_dsn: str) -> None:
    """Few examples: each needs a schema and dozens of transactions."""

    @given(histories(STABLE), histories(ANYWHERE))
    # Without shrinking, which would take minutes against a real database.
    @settings(max_examples=5, deadline=None, phases=[Phase.generate], database=None)
    def holds(stable: Any, anywhere: Any) -> None:
        follow(warehouse_dsn, BY_OFFSET, stable)
        follow(warehouse_dsn, BY_TIMESTAMP, anywhere)

    holds()


@pytest.mark.parametrize(
    ("index", "fits"),
    [
        ("create unique index on {} (flight, carrier)", True),
        ("create unique index on {} (carrier, flight) include (delay)", True),
        ("create unique index on {} (carrier)", False),
        ("create unique index on {} (carrier, flight, delay)", False),
        ("create unique index on {} (carrier, flight) where delay > 0", False),
        ("create unique index on {} (carrier, (flight + 0))", False),
        ("alter table {} add unique (carrier, flight) deferrable", False),
        ("create index on {} (carrier, flight)", False),
    ],
)
def test_table_made_by_hand_is_taken_with_an_index_that_on_conflict_can_use(
    warehouse_dsn: str, index: str, fits: bool
) -> None:
    for warehouse in open_postgres(warehouse_dsn):
        create_by_hand(warehouse, index)
        story = Story(warehouse.with_rules(upsert=BY_OFFSET))
        if fits:
            story.publish(Record("AA", 1))
            assert story.state() == {("AA", 1): 1}
        else:
            with pytest.raises(TargetChangedError, match="no unique index"):
                story.stage(Record("AA", 1))
