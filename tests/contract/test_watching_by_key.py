"""Watches by key: real Kafka, real tables, each verdict with what it would be without its cause."""

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from typing_extensions import override

from batchledger.config.watch_file import WatchConfig
from batchledger.model.errors import ConfigurationError
from batchledger.proof.watching import Discrepancy, WatchOutcome
from batchledger.watching.building import build_watch
from batchledger.watching.by_key import KeyedTable
from batchledger.watching.look import TableWatch, look
from tests.conftest import Kafka
from tests.watched import ForeignTable, offsets_of, pass_a_moment

SCHEMA = "id string, status string, version bigint"


@dataclass
class KeyedShop(ForeignTable):
    """A topic and the table that another program makes of it, with columns id, status and version."""

    partitions: int = 2
    columns: str = "id text, status text, version bigint"

    def send(self, id_: Any, status: str | None = "new", version: int | None = 1, partition: int = 0) -> None:
        """Write a record, whose value is missing if it has no status."""
        value = None if status is None else json.dumps({"id": id_, "status": status, "version": version})
        self.write([value], partition, key=json.dumps({"id": id_}))

    def insert(self, id_: Any, status: str = "new", version: int | None = 1) -> None:
        self.run("insert into {table} values (%s, %s, %s)", [id_, status, version])

    @override
    def watch(self, source: dict[str, Any] | None = None, **keys: Any) -> TableWatch:
        content = {
            "watch": self.name,
            "source": {"topics": [self.name], "schema": SCHEMA, **(source or {})},
            "table": {"connection": "ledger_owner", "name": self.name},
            "ledger": "ledger_owner",
            "key": ["id"],
            "lateness": 0,
            **keys,
        }
        return build_watch(WatchConfig.model_validate(content, context={"folder": Path()}))


@pytest.fixture
def shop(kafka: Kafka, warehouse_dsn: str) -> KeyedShop:
    """Three records in each of two partitions, and a row for each."""
    made = KeyedShop(kafka.options, warehouse_dsn)
    for number in range(6):
        made.send(f"m{number}", partition=number % 2)
        made.insert(f"m{number}")
    return made


def in_small_portions(watch: TableWatch) -> TableWatch:
    """The same watch; records of a key come in portions of their own."""
    assert isinstance(watch.table, KeyedTable)
    return replace(watch, table=replace(watch.table, portion_records=1))


VERSION = {"compare": {"version": "version"}}
COLUMNS = {"compare": {"columns": ["status", "version"]}}
BOTH = pytest.mark.parametrize("rule", [VERSION, COLUMNS], ids=["version", "columns"])


def test_table_with_a_row_for_each_key_is_proved_and_says_that_this_is_weaker(shop: KeyedShop) -> None:
    found = shop.look()
    assert (found.outcome, found.offsets, found.rows, found.proved, found.found) == (WatchOutcome.PROVED, 6, 6, 6, ())
    assert "not by offset" in found.notes[0]


def test_record_whose_key_has_no_row_is_missing_until_it_has(shop: KeyedShop) -> None:
    shop.run("delete from {table} where id = 'm3'")
    found = shop.look()
    assert (found.outcome, found.rows) == (WatchOutcome.WRONG, 5)
    assert offsets_of(found, Discrepancy.MISSING) == ["1: 1..2"]
    shop.insert("m3")
    assert shop.look().outcome is WatchOutcome.PROVED


def test_row_deleted_after_it_was_proved_is_found_and_not_without_a_second_look(shop: KeyedShop) -> None:
    shop.look()
    shop.run("delete from {table} where id = 'm3'")
    assert shop.look(shop.watch(recheck=0)).outcome is WatchOutcome.PROVED
    found = shop.look(shop.watch(recheck=100))
    assert found.outcome is WatchOutcome.WRONG
    assert offsets_of(found, Discrepancy.DELETED) == ["1: 1..2"]


def test_key_with_more_rows_than_records_is_twice(shop: KeyedShop) -> None:
    shop.insert("m4")
    found = shop.look()
    assert found.outcome is WatchOutcome.WRONG
    assert offsets_of(found, Discrepancy.TWICE) == ["0: 2..3"]
    assert found.rows == 6


@pytest.mark.parametrize("rows", [1, 2])
def test_record_that_was_sent_twice_may_have_one_row_or_two(shop: KeyedShop, rows: int) -> None:
    shop.send("m4")
    for _ in range(rows - 1):
        shop.insert("m4")
    found = shop.look()
    assert (found.outcome, found.proved) == (WatchOutcome.PROVED, 7)
    assert any("key another record near them has, too: 1." in each for each in found.notes)
    shop.insert("m4")
    shop.watch().store.forget(shop.name)
    found = shop.look()
    assert bool(offsets_of(found, Discrepancy.TWICE)) is (rows == 2)


def test_records_of_a_key_that_an_earlier_look_has_proved_count_for_a_later_one(shop: KeyedShop) -> None:
    shop.look()
    shop.send("m4")
    shop.insert("m4")
    watch = in_small_portions(shop.watch(recheck=0))
    assert shop.look(watch).outcome is WatchOutcome.PROVED
    shop.send("m4")
    shop.insert("m4")
    shop.insert("m4")
    assert offsets_of(shop.look(watch), Discrepancy.TWICE) == ["0: 4..5"]


def test_record_whose_key_is_null_or_cannot_be_read_cannot_be_judged(shop: KeyedShop) -> None:
    shop.send(None)
    shop.write(["no json"])
    shop.write([None], key="m1")
    shop.send("a\0b")
    found = shop.look()
    assert (found.outcome, found.proved) == (WatchOutcome.CANNOT_SAY, 6)
    assert offsets_of(found, Discrepancy.UNDECODABLE) == ["0: 3..7"]
    assert any(f"{shop.name}[0]@" in each for each in found.notes)


def test_tombstones_that_are_skipped_need_no_row(shop: KeyedShop) -> None:
    shop.send("m1", None)
    assert shop.look(shop.watch({"tombstones": "skip"})).outcome is WatchOutcome.PROVED


def test_keys_are_compared_as_the_table_does(kafka: Kafka, warehouse_dsn: str) -> None:
    shop = KeyedShop(kafka.options, warehouse_dsn, columns="id bigint, status text, version bigint")
    shop.send("7")
    shop.send("007")
    shop.send("seven")
    shop.send("99999999999999999999")
    shop.insert(7)
    found = shop.look()
    assert offsets_of(found, Discrepancy.UNDECODABLE) == ["0: 2..4"]
    assert (found.rows, offsets_of(found, Discrepancy.MISSING)) == (2, [])


def test_values_never_become_sql(shop: KeyedShop) -> None:
    for each in ("'); drop table x; --", '"},{"', "NULL", "a\\b,{}", "%s %(v0)s", ""):
        shop.send(each)
        assert offsets_of(shop.look(), Discrepancy.MISSING)
        shop.insert(each)
        assert shop.look().outcome is WatchOutcome.PROVED


def test_keys_may_be_of_several_columns_of_key_and_headers_as_of_a_pipeline(kafka: Kafka, warehouse_dsn: str) -> None:
    shop = KeyedShop(kafka.options, warehouse_dsn, columns="shop text, number int")
    watch = shop.watch(
        {"schema": "note string", "key": {"format": "json", "columns": "shop string, number int"}},
        key=["shop", "number"],
    )
    for number in range(3):
        shop.write(['{"note": "n"}'], key=json.dumps({"shop": "a", "number": number}))
    shop.run("insert into {table} values ('a', 0), ('a', 2), ('b', 1)")
    found = shop.look(watch)
    assert offsets_of(found, Discrepancy.MISSING) == ["0: 1..2"]


def test_aborted_records_and_markers_are_holes(shop: KeyedShop) -> None:
    shop.produce_in_transaction(1, is_committed=False)
    found = shop.look()
    assert (found.outcome, dict(found.holes)) == (WatchOutcome.PROVED, {"aborted": 1, "markers": 1})


@BOTH
def test_row_as_the_newest_record_says_is_proved_whatever_older_ones_say(shop: KeyedShop, rule: dict[str, Any]) -> None:
    shop.send("m4", "paid", 2)
    shop.send("m4", "sent", 3)
    shop.run("update {table} set status = 'sent', version = 3 where id = 'm4'")
    for watch in (shop.watch(**rule), in_small_portions(shop.watch(**rule))):
        found = shop.look(watch)
        assert (found.outcome, found.proved) == (WatchOutcome.PROVED, 8)
        watch.store.forget(shop.name)


@BOTH
def test_row_older_than_the_newest_record_is_stale(shop: KeyedShop, rule: dict[str, Any]) -> None:
    shop.send("m4", "paid", 2)
    assert shop.look(shop.watch()).outcome is WatchOutcome.PROVED
    shop.watch().store.forget(shop.name)
    found = shop.look(in_small_portions(shop.watch(**rule)))
    assert found.outcome is WatchOutcome.WRONG
    assert offsets_of(found, Discrepancy.STALE) == ["0: 3..4"]
    assert found.proved == 6
    shop.run("update {table} set status = 'paid', version = 2 where id = 'm4'")
    assert shop.look(shop.watch(**rule)).outcome is WatchOutcome.PROVED


@BOTH
def test_tombstone_whose_row_is_there_is_not_deleted(shop: KeyedShop, rule: dict[str, Any]) -> None:
    shop.send("m4", None)
    found = shop.look(shop.watch(**rule))
    assert found.outcome is WatchOutcome.WRONG
    assert offsets_of(found, Discrepancy.UNDELETED) == ["0: 3..4"]
    shop.run("delete from {table} where id = 'm4'")
    assert shop.look(in_small_portions(shop.watch(**rule))).outcome is WatchOutcome.PROVED
    shop.send("m4", "again", 1)
    assert offsets_of(shop.look(shop.watch(**rule)), Discrepancy.MISSING) == ["0: 4..5"]
    shop.insert("m4", "again", 1)
    assert shop.look(shop.watch(**rule)).outcome is WatchOutcome.PROVED


def test_row_that_a_younger_record_has_changed_is_not_stale(shop: KeyedShop) -> None:
    shop.send("m4", "paid", 2)
    shop.run("update {table} set status = 'paid', version = 2 where id = 'm4'")
    watch = shop.watch(**COLUMNS)
    middle = pass_a_moment()
    found = look(watch, middle)
    assert (found.outcome, found.late) == (WatchOutcome.PROVED, 0)
    watch.store.forget(shop.name)
    shop.send("m4", "sent", 3)
    shop.run("update {table} set status = 'sent', version = 3 where id = 'm4'")
    found = look(watch, middle)
    assert (found.outcome, found.late) == (WatchOutcome.PROVED, 1)
    watch.store.forget(shop.name)
    shop.run("update {table} set status = 'lost' where id = 'm4'")
    assert offsets_of(shop.look(watch), Discrepancy.STALE) == ["0: 4..5"]


def test_two_rows_of_a_key_of_an_upserted_table_are_twice(shop: KeyedShop) -> None:
    shop.insert("m4")
    assert offsets_of(shop.look(shop.watch(**VERSION)), Discrepancy.TWICE) == ["0: 2..3"]


def test_upserted_table_is_proved_again_by_all_and_says_so(shop: KeyedShop) -> None:
    watch = shop.watch(**VERSION)
    assert any("--all" in each for each in shop.look(watch).notes)
    shop.run("update {table} set version = 0 where id = 'm4'")
    assert shop.look(watch).outcome is WatchOutcome.PROVED
    assert offsets_of(shop.look(watch, everything=True), Discrepancy.STALE) == ["0: 2..3"]


def test_proved_records_that_kafka_has_removed_are_not_called_deleted(shop: KeyedShop) -> None:
    shop.look()
    shop.expire(2)
    shop.run("delete from {table} where id in ('m0', 'm1')")
    found = shop.look(everything=True)
    assert offsets_of(found, Discrepancy.DELETED) == ["1: 0..1"]
    assert any("2 offsets that were to be proved again are no longer in Kafka" in each for each in found.notes)


@pytest.mark.parametrize(
    ("column", "record"),
    [("int4range", "string"), ("float4", "float"), ("float8", "double"), ("numeric", "double")],
)
def test_column_of_a_type_that_is_not_comparable_is_refused(
    kafka: Kafka, warehouse_dsn: str, column: str, record: str
) -> None:
    shop = KeyedShop(kafka.options, warehouse_dsn, columns=f"id {column}, status text, version bigint")
    shop.send(1.5)
    with pytest.raises(ConfigurationError, match=f"has id of type {column}, which is not compared"):
        shop.look(shop.watch({"schema": f"id {record}, status string, version bigint"}))
    shop.run("alter table {table} drop column id")
    with pytest.raises(ConfigurationError, match="has no column id"):
        shop.look()


def test_look_that_would_read_too_many_rows_is_refused(shop: KeyedShop) -> None:
    with pytest.raises(ConfigurationError, match="max_rows allows 5"):
        shop.look(shop.watch(limits={"max_rows": 5}))
    assert shop.look(shop.watch(limits={"max_rows": 1_000_000})).outcome is WatchOutcome.PROVED
