"""Watches of tables in PostgreSQL: real Kafka, real tables, each verdict with what it would be without its cause."""

import multiprocessing
import signal
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from batchledger.model.balance import HolePolicy
from batchledger.model.errors import ConfigurationError, LookOvertakenError
from batchledger.proof.watching import Discrepancy, WatchOutcome
from batchledger.watching.history import load_summaries
from batchledger.watching.look import look as look_at
from batchledger.watching.postgres import PostgresTable
from tests.conftest import Kafka
from tests.support import add_partitions
from tests.watched import WatchedTopic, look_and_die, offsets_of, open_shop, pass_a_moment


@pytest.fixture
def shop(kafka: Kafka, warehouse_dsn: str) -> WatchedTopic:
    """Ten records in each of two partitions, and a row for each."""
    return open_shop(kafka.options, warehouse_dsn, partitions=2)


def at_the_next_count(monkeypatch: pytest.MonkeyPatch, act: Callable[[], object]) -> None:
    """Let something happen within the next look, before it reads the table."""
    count = PostgresTable.count

    def act_and_count(self: PostgresTable, spans: Any) -> Any:
        monkeypatch.setattr(PostgresTable, "count", count)
        act()
        return count(self, spans)

    monkeypatch.setattr(PostgresTable, "count", act_and_count)


def test_table_with_one_row_a_record_is_proved(shop: WatchedTopic) -> None:
    look = shop.look()
    assert (look.outcome, look.offsets, look.rows, look.proved, look.found) == (WatchOutcome.PROVED, 20, 20, 20, ())


def test_missing_row_is_named_until_it_is_there(shop: WatchedTopic) -> None:
    shop.delete([3, 7, 8], partition=1)
    look = shop.look()
    assert (look.outcome, look.rows, look.proved) == (WatchOutcome.WRONG, 17, 17)
    assert offsets_of(look, Discrepancy.MISSING) == ["1: 3..4", "1: 7..9"]
    assert offsets_of(shop.look(), Discrepancy.MISSING) == ["1: 3..4", "1: 7..9"]
    shop.insert([3, 7, 8], partition=1)
    assert shop.look().outcome is WatchOutcome.PROVED


def test_row_that_is_there_twice_is_named(shop: WatchedTopic) -> None:
    shop.insert([4], partition=1)
    look = shop.look()
    assert look.outcome is WatchOutcome.WRONG
    assert offsets_of(look, Discrepancy.TWICE) == ["1: 4..5"]
    assert look.notes == (f"{shop.name}[1] 4..5: 2 rows, at (0,15), (0,21)",)
    assert look.rows == 20


def test_row_deleted_after_it_was_proved_is_named_also_when_kafka_has_removed_the_record(shop: WatchedTopic) -> None:
    assert shop.look().outcome is WatchOutcome.PROVED
    shop.delete([5])
    look = shop.look()
    assert (look.outcome, look.rows) == (WatchOutcome.WRONG, 19)
    assert offsets_of(look, Discrepancy.DELETED) == ["0: 5..6"]
    assert offsets_of(shop.look(shop.watch(recheck=0)), Discrepancy.DELETED) == ["0: 5..6"]
    shop.insert([5])
    assert shop.look(shop.watch(recheck=0)).outcome is WatchOutcome.PROVED


def test_without_a_second_look_at_what_is_proved_a_deleted_row_stays_unseen(shop: WatchedTopic) -> None:
    watch = shop.watch(recheck=0)
    shop.look(watch)
    shop.delete([5])
    assert shop.look(watch).outcome is WatchOutcome.PROVED
    assert shop.look(watch, everything=True).outcome is WatchOutcome.WRONG


def test_emptied_table_and_restored_table_are_told_apart(shop: WatchedTopic) -> None:
    shop.look()
    shop.delete([8, 9])
    look = shop.look()
    assert offsets_of(look, Discrepancy.DELETED) == ["0: 8..10"]
    assert "restored" in look.notes[0]
    shop.delete(range(10))
    shop.delete(range(10), partition=1)
    assert "emptied" in shop.look().notes[0]


def test_aborted_records_and_markers_are_holes(shop: WatchedTopic) -> None:
    shop.produce_in_transaction(3, is_committed=False)
    shop.produce_in_transaction(2, is_committed=True)
    shop.insert([14, 15])
    look = shop.look()
    assert (look.outcome, dict(look.holes)) == (WatchOutcome.PROVED, {"aborted": 3, "markers": 2})


def test_rows_of_aborted_records_are_found_and_not_without_reading_kafka(shop: WatchedTopic) -> None:
    shop.produce_in_transaction(3, is_committed=False)
    shop.insert([11])
    look = shop.look()
    assert look.outcome is WatchOutcome.WRONG
    assert offsets_of(look, Discrepancy.UNCOMMITTED) == ["0: 11..12"]
    shop.watch().store.forget(shop.name)
    undeclared = shop.look(shop.watch(holes=HolePolicy.NONE))
    assert undeclared.outcome is WatchOutcome.CANNOT_SAY
    assert offsets_of(undeclared, Discrepancy.UNDECLARED) == ["0: 10..11", "0: 12..14"]


def test_row_of_an_offset_that_kafka_never_had_is_unknown(shop: WatchedTopic) -> None:
    shop.insert([10, 2**53 + 1, 2**62])
    shop.insert([0], partition=9)
    look = shop.look()
    assert look.outcome is WatchOutcome.WRONG
    assert offsets_of(look, Discrepancy.UNKNOWN) == [
        "0: 10..11", f"0: {2**53 + 1}..{2**53 + 2}", f"0: {2**62}..{2**62 + 1}",
    ]  # fmt: skip
    assert look.count_by_difference[Discrepancy.FOREIGN] == 1


def test_row_without_coordinates_cannot_be_judged(shop: WatchedTopic) -> None:
    shop.run("insert into {table} values (null, 3), (0, null), (0, -2)")
    look = shop.look()
    assert (look.outcome, look.found[0].difference, look.found[0].count) == (
        WatchOutcome.CANNOT_SAY, Discrepancy.STRAY, 3,
    )  # fmt: skip
    assert shop.look().outcome is WatchOutcome.CANNOT_SAY, "a later look does not read these rows again"
    shop.run("delete from {table} where kafka_partition is null or coalesce(kafka_offset, -1) < 0")
    assert shop.look().outcome is WatchOutcome.CANNOT_SAY
    assert shop.look(everything=True).outcome is WatchOutcome.PROVED
    assert shop.look().outcome is WatchOutcome.PROVED


def test_topic_that_was_created_again_is_no_proof(shop: WatchedTopic) -> None:
    shop.look()
    shop.delete_topic()
    shop.create_topic()
    assert shop.look(everything=True).outcome is WatchOutcome.CANNOT_SAY
    look = shop.look()
    assert look.outcome is WatchOutcome.CANNOT_SAY
    assert [(each.difference, each.count) for each in look.found] == [(Discrepancy.RECREATED, 20)]


def test_records_younger_than_the_lateness_are_late_and_not_missing(shop: WatchedTopic) -> None:
    shop.produce(5)
    assert shop.look().outcome is WatchOutcome.WRONG
    late = shop.look(shop.watch(lateness=timedelta(hours=1)))
    assert (late.late, late.outcome) == (25, WatchOutcome.CANNOT_SAY)
    assert [(each.difference, each.count) for each in late.found] == [(Discrepancy.YOUNG, 25)]


def test_watch_of_another_table_does_not_build_on_what_was_proved(shop: WatchedTopic) -> None:
    shop.look()
    another = shop.watch()
    another = replace(another, rules=replace(another.rules, subject="another table"))
    with pytest.raises(ConfigurationError, match="something else"):
        shop.look(another)
    assert another.store.forget(shop.name)
    assert shop.look(another).outcome is WatchOutcome.PROVED


def test_of_two_looks_at_once_one_is_not_stored(shop: WatchedTopic, monkeypatch: pytest.MonkeyPatch) -> None:
    shop.look()
    at_the_next_count(monkeypatch, shop.look)
    shop.produce(1)
    with pytest.raises(LookOvertakenError, match="not stored"):
        shop.look()


@pytest.mark.parametrize(
    ("owner", "step"),
    [
        ("source.kafka.log:KafkaLog", "read_log"),
        ("watching.postgres:PostgresTable", "count"),
        ("source.kafka.log:KafkaLog", "find_records"),
        ("source.kafka.log:KafkaLog", "look_into"),
        ("ledger.watches:WatchStore", "save"),
        ("ledger.watches", "write_look"),
    ],
)
def test_look_that_is_killed_at_a_step_leaves_what_the_next_one_begins_with(
    shop: WatchedTopic, owner: str, step: str
) -> None:
    """The last step is within the transaction that stores the look."""
    shop.look()
    shop.produce_in_transaction(2, is_committed=True)
    shop.insert([10])
    process = multiprocessing.get_context("spawn").Process(target=look_and_die, args=(shop, owner, step))
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    assert len(load_summaries(shop.dsn, [shop.name], 9)[shop.name]) == 1
    look = shop.look()
    assert offsets_of(look, Discrepancy.MISSING) == ["0: 11..12"]
    assert (look.proved, dict(look.holes)) == (22, {"markers": 1})


def test_table_that_grows_while_it_is_read_is_not_wrong(shop: WatchedTopic, monkeypatch: pytest.MonkeyPatch) -> None:
    def grow() -> None:
        shop.produce(5)
        shop.insert(range(10, 15))

    at_the_next_count(monkeypatch, grow)
    assert shop.look().outcome is WatchOutcome.PROVED
    look = shop.look()
    assert (look.outcome, look.rows) == (WatchOutcome.PROVED, 25)


def test_timestamp_of_the_future_holds_nothing_up_for_longer_than_a_look(kafka: Kafka, warehouse_dsn: str) -> None:
    """Kafka takes such a timestamp before version 4, and where a topic allows it."""
    settings = {"message.timestamp.after.max.ms": str(2**63 - 1)}
    shop = WatchedTopic(kafka.options, warehouse_dsn, settings=settings)
    shop.produce(10)
    shop.insert(range(10))
    shop.produce(1, timestamp=int(datetime(2199, 1, 1, tzinfo=UTC).timestamp() * 1000))
    shop.produce(3)
    shop.insert([10, 11, 12])
    look = shop.look()
    assert (look.outcome, look.late) == (WatchOutcome.PROVED, 4)
    later = look_at(shop.watch(), datetime.now(UTC) + timedelta(seconds=10))
    assert offsets_of(later, Discrepancy.MISSING) == ["0: 13..14"]


def test_expired_offsets_are_not_proved_until_the_watch_begins_later(kafka: Kafka, warehouse_dsn: str) -> None:
    shop = open_shop(kafka.options, warehouse_dsn, lacking=range(5, 10))
    assert shop.look().outcome is WatchOutcome.WRONG
    shop.expire(8)
    assert offsets_of(shop.look(), Discrepancy.MISSING) == ["0: 5..10"]
    shop.insert(range(5, 10))
    assert shop.look().outcome is WatchOutcome.PROVED
    shop.produce(5)
    shop.insert([11, 14])
    shop.expire(13)
    look = shop.look()
    assert offsets_of(look, Discrepancy.EXPIRED) == ["0: 10..13"], "the row of 11, too, may be of an aborted record"
    assert offsets_of(look, Discrepancy.MISSING) == ["0: 13..14"]
    shop.insert([13])
    assert shop.look().outcome is WatchOutcome.CANNOT_SAY
    later = shop.look(shop.watch(since=datetime.now(UTC)))
    assert (later.outcome, later.offsets) == (WatchOutcome.PROVED, 0)


def change_note(shop: WatchedTopic, offset: int, note: str) -> None:
    shop.run("update {table} set note = %s where kafka_partition = 0 and kafka_offset = %s", [note, offset])


def test_row_that_was_changed_after_it_was_proved_is_found_until_it_is_as_it_was(shop: WatchedTopic) -> None:
    watch = shop.watch(hashed=("note",))
    assert shop.look(watch).outcome is WatchOutcome.PROVED
    shop.produce(2)
    shop.insert([10, 11])
    assert shop.look(watch).outcome is WatchOutcome.PROVED
    change_note(shop, 3, "another")
    assert shop.look(shop.watch()).outcome is WatchOutcome.PROVED, "nothing is hashed without the key"
    for _ in range(2):
        look = shop.look(shop.watch(hashed=("note",), recheck=0) if _ else watch)
        assert look.outcome is WatchOutcome.WRONG
        assert offsets_of(look, Discrepancy.CHANGED) == ["0: 0..12"]
    change_note(shop, 3, "row 3")
    assert shop.look(watch).outcome is WatchOutcome.PROVED
    shop.produce(1)
    shop.insert([12])
    assert shop.look(shop.watch(hashed=("note",), recheck=0)).outcome is WatchOutcome.PROVED
    assert shop.look(watch, everything=True).outcome is WatchOutcome.PROVED


def test_replica_that_stands_still_proves_nothing_of_what_it_does_not_have(
    shop: WatchedTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PostgresTable, "find_moment", lambda _: datetime.now(UTC) - timedelta(minutes=10))
    look = shop.look()
    assert (look.outcome, look.count_by_difference) == (WatchOutcome.CANNOT_SAY, {Discrepancy.BEHIND: 20})


def test_row_that_is_replaced_by_the_row_of_another_offset_is_a_change(shop: WatchedTopic) -> None:
    watch = shop.watch(hashed=("note",))
    shop.look(watch)
    change_note(shop, 3, "row 4")
    change_note(shop, 4, "row 3")
    assert shop.look(watch).outcome is WatchOutcome.WRONG


def test_wrong_row_and_missing_row_stay_wrong_when_kafka_has_removed_their_records(
    kafka: Kafka, warehouse_dsn: str
) -> None:
    shop = WatchedTopic(kafka.options, warehouse_dsn)
    shop.produce(5)
    shop.produce_in_transaction(3, is_committed=False)
    shop.insert([0, 1, 3, 4, 6])
    for _ in range(2):
        look = shop.look()
        assert offsets_of(look, Discrepancy.MISSING) == ["0: 2..3"]
        assert look.count_by_difference[Discrepancy.UNCOMMITTED] == 1
    shop.expire(9)
    for _ in range(2):
        look = shop.look()
        assert offsets_of(look, Discrepancy.MISSING) == ["0: 2..3"]
        assert offsets_of(look, Discrepancy.UNKNOWN) == ["0: 6..7"]
    shop.insert([2])
    shop.delete([6])
    assert shop.look().outcome is WatchOutcome.PROVED


def test_moment_from_which_a_watch_proves_may_be_moved_both_ways(shop: WatchedTopic) -> None:
    moment = pass_a_moment()
    shop.produce(3)
    shop.insert([10, 11, 12])
    shop.delete([4])
    later = shop.look(shop.watch(since=moment))
    assert (later.outcome, later.offsets) == (WatchOutcome.PROVED, 3)
    earlier = shop.look(shop.watch(since=datetime(2020, 1, 1, tzinfo=UTC)))
    assert (earlier.offsets, offsets_of(earlier, Discrepancy.MISSING)) == (23, ["0: 4..5"])
    assert shop.look().offsets == 23


def test_window_of_days_stands_still_while_a_clock_is_wrong(shop: WatchedTopic) -> None:
    watch = shop.watch(since=timedelta(days=30))
    assert shop.look(watch).offsets == 20
    wrong = look_at(watch, datetime.now(UTC) + timedelta(days=40))
    assert wrong.offsets == 20
    shop.delete([4])
    assert shop.look(watch).outcome is WatchOutcome.WRONG


def test_partition_that_is_added_while_the_table_is_read_is_no_foreign_one(
    shop: WatchedTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    def grow() -> None:
        add_partitions(shop.options, shop.name, 3)
        shop.produce(2, partition=2)
        shop.insert([0, 1], partition=2)

    at_the_next_count(monkeypatch, grow)
    assert shop.look().outcome is WatchOutcome.PROVED
    assert shop.look().rows == 22


def test_look_that_began_before_everything_was_forgotten_is_not_stored(
    shop: WatchedTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    def forget_and_look() -> None:
        shop.watch().store.forget(shop.name)
        shop.look()

    shop.look()
    at_the_next_count(monkeypatch, forget_and_look)
    with pytest.raises(LookOvertakenError):
        shop.look()
