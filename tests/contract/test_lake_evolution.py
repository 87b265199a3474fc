"""An Iceberg table gets the columns that rows need in the commit that publishes them, if the pipeline allows it.

The statement is ``Evolution`` of the rules, and docs/guides/schema.md.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.types import StringType

from batchledger.lifecycle.delivery import deliver
from batchledger.model.batch import Attempt, Batch, Decision, Lane
from batchledger.model.errors import StagingLostError, TargetChangedError
from batchledger.model.offsets import OffsetRange
from batchledger.model.records.comparison import Comparison
from batchledger.model.records.contract import SchemaChange
from batchledger.model.records.rules import Deduplication, Evolution, Upsert
from batchledger.planning.live import Plan
from batchledger.sinks.iceberg.coordinates import Change, as_coordinates
from batchledger.sinks.iceberg.evolution import columns_of as stored_columns
from batchledger.sinks.iceberg.evolution import is_wider
from tests.contract import life
from tests.contract.lake_warehouse import EVERY_CATALOG, LakeWarehouse, before_the_next_commit
from tests.contract.life import ORDERS_0
from tests.fakes.crash import SimulatedCrashError

FIRST, SECOND = OffsetRange(ORDERS_0, 0, 3), OffsetRange(ORDERS_0, 3, 5)
LARGEST_INT = 2**31 - 1
Columns = Mapping[str, tuple[pa.DataType, Sequence[Any]]]
NUMBER: Columns = {"number": (pa.int32(), [1, 2, 3])}
NOTES: Columns = {"number": (pa.int32(), [4, 5]), "note": (pa.string(), ["a", "b"])}
LONGER: Columns = {"number": (pa.int64(), [LARGEST_INT + 1, 5])}


def stage(lake: LakeWarehouse, batch: Batch, columns: Columns) -> Attempt:
    """Take rows with these columns, (type, values) each, to audited."""
    rows = life.batch_of_rows(life.rows_of(batch.ranges))
    for name, (type_, values) in columns.items():
        rows = rows.append_column(name, pa.array(values, type_))
    attempt = life.stage(lake, batch, str(batch.batch_id), rows=rows)
    life.audit(lake, attempt)
    return attempt


def publish(lake: LakeWarehouse, attempt: Attempt) -> None:
    """Publish an audited attempt as the step does."""
    deliver(life.platform(lake), attempt)


def stage_second(lake: LakeWarehouse, columns: Columns) -> Attempt:
    """Publish three rows with a number of 32 bits, and stage two more with these columns."""
    bare = replace(lake, evolution=Evolution.NONE)
    publish(bare, stage(bare, life.store(bare, FIRST), NUMBER))
    return stage(lake, life.store(lake, SECOND, run="run-2"), columns)


def columns_of(lake: LakeWarehouse) -> Mapping[str, str]:
    """Type by name of what a reader sees now, without the columns that every table has."""
    fields = {each.name: str(each.field_type) for each in lake.table.schema().fields}
    return {name: type_ for name, type_ in fields.items() if name[0] != "_" and name != "message_id"}


def values_of(lake: LakeWarehouse, name: str) -> list[Any]:
    """The values of a column by offset."""
    return [row[name] for row in sorted(lake.read_target(), key=lambda row: row["_offset"])]


def change_columns(lake: LakeWarehouse, added: str | None = None, dropped: str | None = None) -> None:
    """Alter the table as its owner would."""
    with lake.table.update_schema(allow_incompatible_changes=True) as update:
        if added:
            update.add_column(added, StringType())
        if dropped:
            update.delete_column(dropped)


@EVERY_CATALOG
@pytest.mark.parametrize("allowed", [Evolution.ADD, Evolution.WIDEN])
def test_new_column_comes_with_the_rows_and_is_empty_in_older_ones(lake: LakeWarehouse, allowed: Evolution) -> None:
    lake = replace(lake, evolution=allowed)
    attempt = stage_second(lake, NOTES)
    assert columns_of(lake) == {"number": "int"}
    publish(lake, attempt)
    assert columns_of(lake) == {"number": "int", "note": "string"}
    assert values_of(lake, "note") == [None, None, None, "a", "b"]
    assert lake.prove().findings == ()


@EVERY_CATALOG
def test_wider_type_comes_with_the_rows_and_older_values_stay(lake: LakeWarehouse) -> None:
    lake = replace(lake, evolution=Evolution.WIDEN)
    attempt = stage_second(lake, LONGER)
    assert columns_of(lake) == {"number": "int"}
    publish(lake, attempt)
    assert columns_of(lake) == {"number": "long"}
    assert values_of(lake, "number") == [1, 2, 3, LARGEST_INT + 1, 5]


def test_without_leave_the_new_column_is_refused_before_anything_is_staged(lake: LakeWarehouse) -> None:
    with pytest.raises(TargetChangedError, match=r"(?s)lacks note.*sink\.evolve: add.*ADD COLUMNS \(note string\)"):
        stage_second(lake, NOTES)
    assert columns_of(lake) == {"number": "int"}
    assert not lake.lake_table.list_branches()


@pytest.mark.parametrize("allowed", [Evolution.NONE, Evolution.ADD])
def test_without_leave_the_wider_type_is_refused_before_anything_is_staged(
    lake: LakeWarehouse, allowed: Evolution
) -> None:
    with pytest.raises(TargetChangedError, match="number"):
        stage_second(replace(lake, evolution=allowed), LONGER)
    assert columns_of(lake) == {"number": "int"}


@pytest.mark.parametrize(
    ("known", "wider"),
    [
        (pa.int32(), pa.int64()),
        (pa.float32(), pa.float64()),
        (pa.decimal128(10, 2), pa.decimal128(12, 2)),
    ],
    ids=str,
)
def test_types_become_wider_as_the_specification_of_iceberg_says(known: pa.DataType, wider: pa.DataType) -> None:
    every = (pa.int32(), pa.int64(), pa.float32(), pa.float64(), pa.decimal128(10, 2), pa.decimal128(12, 3))
    others = (*every, pa.string(), pa.binary(), pa.date32(), pa.timestamp("us", "UTC"), pa.bool_())
    types = {each: type_ for each in (*others, known, wider) for _, type_ in stored_columns(pa.schema([("a", each)]))}
    assert {each for each in types if is_wider(types[each], types[known])} == {wider}


@pytest.mark.parametrize("type_", [pa.string(), pa.float64(), pa.date32()], ids=str)
def test_type_that_does_not_hold_the_old_values_is_refused_whatever_is_allowed(
    lake: LakeWarehouse, type_: pa.DataType
) -> None:
    with pytest.raises(TargetChangedError, match="number"):
        stage_second(replace(lake, evolution=Evolution.WIDEN), {"number": (type_, [None, None])})


@EVERY_CATALOG
@pytest.mark.parametrize("columns", [NOTES, LONGER], ids=["add", "widen"])
def test_publication_that_does_not_commit_leaves_the_table_as_it_was(
    lake: LakeWarehouse, monkeypatch: pytest.MonkeyPatch, columns: Columns
) -> None:
    lake = replace(lake, evolution=Evolution.WIDEN)
    attempt = stage_second(lake, columns)
    before = lake.table.metadata

    def die() -> None:
        raise SimulatedCrashError("made up")

    before_the_next_commit(lake, monkeypatch, die)
    with pytest.raises(SimulatedCrashError):
        publish(lake, attempt)
    assert lake.table.metadata == before
    publish(lake, replace(attempt, batch=lake.ledger.load_batch(attempt.batch.batch_id)))
    assert len(values_of(lake, "number")) == 5


@EVERY_CATALOG
@pytest.mark.parametrize("change", [{"added": "other"}, {"dropped": "message_id"}], ids=["added", "dropped"])
@pytest.mark.parametrize("is_late", [False, True])
def test_table_that_others_alter_meanwhile_keeps_what_they_did_and_the_rows_are_staged_again(
    lake: LakeWarehouse, monkeypatch: pytest.MonkeyPatch, change: Mapping[str, str], is_late: bool
) -> None:
    """A column that they have dropped would come back, or one that they have added would have the rows' values."""
    lake = replace(lake, evolution=Evolution.ADD)
    attempt = stage_second(lake, NOTES)
    if is_late:
        before_the_next_commit(lake, monkeypatch, lambda: change_columns(lake, **change))
    else:
        change_columns(lake, **change)
    altered = {**columns_of(lake), **({"other": "string"} if "added" in change else {})}
    with pytest.raises(StagingLostError, match="columns of the table were changed"):
        publish(lake, attempt)
    assert columns_of(lake) == altered
    assert len(lake.read_target()) == len(FIRST)


def test_two_publications_that_need_the_same_column_both_succeed(lake: LakeWarehouse) -> None:
    """Both were staged when the table lacked it."""
    lake = replace(lake, evolution=Evolution.ADD)
    live = stage_second(lake, NOTES)
    notes: Columns = {**NUMBER, "note": (pa.string(), ["x", "y", "z"])}
    publish(lake, stage(lake, life.store_replay(lake, FIRST), notes))
    publish(lake, live)
    assert columns_of(lake) == {"number": "int", "note": "string"}
    assert values_of(lake, "note") == ["x", "y", "z", "a", "b"]
    assert lake.prove().findings == ()


def test_two_publications_that_need_different_columns_do_not_share_one(lake: LakeWarehouse) -> None:
    """Both columns were to have the next number; the second publication is staged again."""
    lake = replace(lake, evolution=Evolution.ADD)
    live = stage_second(lake, NOTES)
    tags: Columns = {**NUMBER, "tag": (pa.string(), ["x", "y", "z"])}
    publish(lake, stage(lake, life.store_replay(lake, FIRST), tags))
    with pytest.raises(StagingLostError):
        publish(lake, live)
    publish(lake, stage(lake, lake.ledger.load_batch(live.batch.batch_id), NOTES))
    assert columns_of(lake) == {"number": "int", "tag": "string", "note": "string"}
    assert values_of(lake, "tag") == ["x", "y", "z", None, None]
    assert values_of(lake, "note") == [None, None, None, "a", "b"]


def test_replay_of_a_part_of_a_file_brings_the_column_for_its_rows_alone(lake: LakeWarehouse) -> None:
    lake = replace(lake, evolution=Evolution.ADD)
    publish(lake, stage(lake, life.store(lake, FIRST), NUMBER))
    part = OffsetRange(ORDERS_0, 1, 3)
    columns: Columns = {"number": (pa.int32(), [20, 30]), "note": (pa.string(), ["y", "z"])}
    publish(lake, stage(lake, life.store_replay(lake, part), columns))
    assert values_of(lake, "note") == [None, "y", "z"]
    assert values_of(lake, "number") == [1, 20, 30]


def test_rows_whose_neighbours_are_left_out_keep_the_new_column(lake: LakeWarehouse) -> None:
    """Their files are written anew for that."""
    lake = replace(lake, evolution=Evolution.ADD, deduplication=Deduplication(("number",), timedelta(days=1)))
    columns: Columns = {"number": (pa.int32(), [3, 5]), "note": (pa.string(), ["a", "b"])}
    publish(lake, stage_second(lake, columns))
    assert values_of(lake, "number") == [1, 2, 3, 5]
    assert values_of(lake, "note") == [None, None, None, "b"]


@EVERY_CATALOG
def test_row_that_replaces_an_older_one_brings_the_column(lake: LakeWarehouse) -> None:
    lake = replace(lake, evolution=Evolution.ADD, upsert=Upsert(("number",)))
    publish(lake, stage(lake, life.store(lake, FIRST), NUMBER))
    columns: Columns = {"number": (pa.int32(), [3, 5]), "note": (pa.string(), ["a", "b"])}
    publish(lake, stage(lake, life.store(lake, SECOND, run="run-2"), columns))
    assert {row["number"]: row["note"] for row in lake.read_target()} == {1: None, 2: None, 3: "a", 5: "b"}
    assert lake.prove().findings == ()


def test_column_of_the_key_stays_as_it_is(lake: LakeWarehouse) -> None:
    lake = replace(lake, evolution=Evolution.WIDEN, upsert=Upsert(("number",)))
    publish(lake, stage(lake, life.store(lake, FIRST), NUMBER))
    with pytest.raises(TargetChangedError, match="number"):
        stage(lake, life.store(lake, SECOND, run="run-2"), LONGER)
    other = replace(lake, upsert=Upsert(("note",)))
    with pytest.raises(TargetChangedError, match="lacks note"):
        stage(other, life.store(lake, SECOND, run="run-2"), NOTES)


def test_dry_run_compares_the_new_column_and_leaves_the_table_as_it_was(lake: LakeWarehouse) -> None:
    lake = replace(lake, evolution=Evolution.ADD)
    publish(lake, stage(lake, life.store(lake, FIRST), NUMBER))
    before = lake.table.schema()
    plan = Plan((FIRST,), 0, lane=Lane.REPLAY, is_dry_run=True)
    batch = lake.ledger.store_replay(lake.pipeline, plan, "dry", Decision("ana", "look"), None)
    attempt = stage(lake, batch, {**NUMBER, "note": (pa.string(), ["x", None, None])})
    assert lake.sink.compare(attempt, 0) == Comparison(changed=1, unchanged=2)
    assert lake.table.schema() == before


@pytest.mark.parametrize("has_moved", [False, True], ids=["the same place", "another place"])
def test_table_that_others_alter_while_rows_are_staged_does_not_get_them_in_another_column(
    lake: LakeWarehouse, has_moved: bool
) -> None:
    """Their schema takes the number that the staged one has, and with another column first, its column numbers, too."""
    lake = replace(lake, evolution=Evolution.ADD)
    publish(lake, stage(lake, life.store(lake, FIRST), NUMBER))
    rows = life.batch_of_rows(life.rows_of([SECOND]))
    for name, (type_, values) in NOTES.items():
        rows = rows.append_column(name, pa.array(values, type_))
    attempt = lake.ledger.open_attempt(life.store(lake, SECOND, run="run-2").batch_id, "run-2")
    lake.evidence.open(attempt)
    writer = lake.sink.open_staging(attempt, rows.schema)
    if has_moved:
        change_columns(lake, added="other")
    change_columns(lake, added="note")
    life.write(writer, 0, rows)
    lake.sink.seal_staging(attempt, [0])
    with lake.lake_catalog.opened.load_table((lake.schema, "orders")).update_schema() as update:
        update.update_column("note", doc="another schema")
    change = Change(as_coordinates([]), as_coordinates([]), len(SECOND))
    if has_moved:
        with pytest.raises(StagingLostError):
            lake.lake_table.commit(attempt, None, change, read_epoch=int, is_found=True)
        assert values_of(lake, "number") == [1, 2, 3]
        return
    lake.lake_table.commit(attempt, None, change, read_epoch=int, is_found=True)
    assert values_of(lake, "note") == [None, None, None, "a", "b"]


def test_replay_whose_records_are_all_set_aside_is_published_although_its_column_is_new(lake: LakeWarehouse) -> None:
    lake = replace(lake, evolution=Evolution.ADD, deduplication=Deduplication(("note",), timedelta(days=1)))
    publish(lake, stage(lake, life.store(lake, FIRST), NUMBER | {"note": (pa.string(), ["x", "y", "z"])}))
    change_columns(lake, dropped="note")
    batch = life.store_replay(lake, FIRST)
    attempt = lake.ledger.open_attempt(batch.batch_id, "again")
    rows = life.batch_of_rows([]).append_column("note", pa.array([], pa.string()))
    life.write(lake.sink.open_staging(attempt, rows.schema), 0)
    lake.sink.seal_staging(attempt, [0])
    assert lake.sink.compare(attempt, 0) == Comparison(removed=3, absent_columns=("number",))


def test_columns_of_tables_that_no_publication_changes_are_breaking(lake: LakeWarehouse) -> None:
    lake = replace(lake, evolution=Evolution.WIDEN)
    publish(lake, stage(lake, life.store(lake, FIRST), NUMBER))
    with lake.table.update_schema(allow_incompatible_changes=True) as update:
        update.make_column_optional("message_id")
        update.add_column("owner", StringType(), required=True, default_value="ana")
    schema = pa.schema([("owner", pa.string()), ("number", pa.int64()), ("tax", pa.float64())])
    found = {each.name: each.change for each in lake.lake_table.compare_columns(schema) or ()}
    (other, *_) = lake.lake_table.compare_columns(pa.schema([("Number", pa.int32())])) or ()
    assert (other.name, other.change, other.statement) == ("Number", SchemaChange.BREAKING, None)
    assert found == {
        "owner": SchemaChange.BREAKING,
        "number": SchemaChange.WIDENING,
        "tax": SchemaChange.ADDITIVE,
        "_batch_id": None,
    }


def test_part_of_a_column_that_differs_has_its_own_path_and_statement(lake: LakeWarehouse) -> None:
    lake = replace(lake, evolution=Evolution.WIDEN)
    price, text = pa.field("price", pa.int32()), pa.string()
    older = {
        "customer": (pa.struct([("id", pa.int32()), ("day", pa.date32())]), [None] * 3),
        "items": (pa.list_(pa.struct([price])), [None] * 3),
        "by_name": (pa.map_(text, pa.list_(pa.float32())), [None] * 3),
    }
    publish(lake, stage(lake, life.store(lake, FIRST), older))
    with lake.table.update_schema(allow_incompatible_changes=True) as update:
        update.add_column(("customer", "owner"), StringType(), required=True, default_value="ana")
        update.add_column(("customer", "more"), StringType())
    wanted = pa.schema(
        [
            ("customer", pa.struct([("id", pa.int64()), ("day", text), ("name", text), ("ID", text)])),
            ("items", pa.list_(pa.struct([("price", pa.int64()), ("to", pa.struct([("zip", text)]))]))),
            ("by_name", pa.map_(text, pa.list_(pa.float64()))),
        ]
    )
    found = lake.lake_table.compare_columns(wanted)
    assert found is not None
    table = f"lake.{lake.schema}.orders"
    widening, additive, breaking = SchemaChange.WIDENING, SchemaChange.ADDITIVE, SchemaChange.BREAKING
    assert {each.name: (each.type, each.wanted, each.change, each.statement) for each in found if each.change} == {
        "customer.id": ("int", "bigint", widening, f"alter table {table} alter column customer.id type bigint"),
        "customer.day": ("date", "string", breaking, None),
        "customer.name": (None, "string", additive, f"alter table {table} add column customer.name string"),
        "customer.ID": (None, "string", breaking, None),
        "customer.owner": ("string", None, breaking, None),
        "items[].price": (
            "int",
            "bigint",
            widening,
            f"alter table {table} alter column items.element.price type bigint",
        ),
        "items[].to": (
            None,
            "struct<zip: string>",
            additive,
            f"alter table {table} add column items.element.to struct<zip: string>",
        ),
        "by_name[][]": (
            "float",
            "double",
            widening,
            f"alter table {table} alter column by_name.value.element type double",
        ),
    }
