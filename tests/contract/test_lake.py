"""What the sink of an Iceberg table promises beside the contract of every sink: branches, tags, and who was first."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.expressions import EqualTo
from pyiceberg.table import Table
from pyiceberg.table.update import SetSnapshotRefUpdate
from sqlalchemy.exc import OperationalError

from batchledger.batch import Attempt, BatchState, Lane
from batchledger.errors import (
    DecisionRefusedError,
    OutcomeUnknownError,
    ServiceUnavailableError,
    StagingLostError,
    TargetChangedError,
)
from batchledger.iceberg.commits import branch_of, tag_before, tag_of
from batchledger.iceberg.table import IcebergTable
from batchledger.partitioning import parse_partition
from batchledger.ports import Change, as_coordinates
from batchledger.record_rules import Upsert
from batchledger.sinks.lake import LakeSink
from tests.contract import life
from tests.contract.lake_warehouse import LakeWarehouse, open_lake
from tests.contract.life import FIRST, ORDERS_0, OTHER, SECOND
from tests.fakes.crash import SimulatedCrashError
from tests.fakes.work import ROW_SCHEMA

NONE = as_coordinates([])
ALL_OF_FIRST = Change(NONE, NONE, len(FIRST))


EVERY_CATALOG = pytest.mark.parametrize("lake", ["sql", "rest"], indirect=True)


@pytest.fixture
def lake(request: pytest.FixtureRequest, warehouse_dsn: str, tmp_path: Path) -> Iterator[LakeWarehouse]:
    """The catalog is in the database, unless a test asks for others."""
    is_rest = getattr(request, "param", "sql") == "rest"
    yield from open_lake(warehouse_dsn, tmp_path, request.getfixturevalue("rest_server").connect() if is_rest else None)


def commit(warehouse: LakeWarehouse, attempt: Attempt) -> None:
    """Commit the staged rows in the lake alone."""
    table, change = warehouse.lake_table, Change(NONE, NONE, sum(map(len, attempt.batch.ranges)))
    table.commit(attempt, table.find_base(attempt) or 0, change, epoch=0, is_found=True)


def append_by_another(table: Table) -> None:
    """Let somebody else commit to the table."""
    rows = pa.table({"_topic": ["else"], "_offset": pa.array([1], pa.int64())})
    table.append(rows)


def test_staged_rows_lie_on_a_branch_of_the_attempt_and_readers_do_not_see_them(lake: LakeWarehouse) -> None:
    attempt = life.take_to_audited(lake, FIRST, OTHER)
    branch = lake.table.scan(snapshot_id=lake.table.metadata.refs[branch_of(attempt)].snapshot_id)
    assert branch.to_arrow().num_rows == len(FIRST) + len(OTHER)
    assert lake.read_target() == []


def test_snapshot_says_of_which_batch_it_is(lake: LakeWarehouse) -> None:
    attempt = life.take_to_published(lake, FIRST)
    summary = lake.table.metadata.snapshot_by_name("main").summary.additional_properties
    assert {name: summary[name] for name in summary if name.startswith("batchledger.")} == {
        "batchledger.pipeline": lake.pipeline,
        "batchledger.batch-id": str(attempt.batch.batch_id),
        "batchledger.attempt": "1",
        "batchledger.planned-at": attempt.batch.planned_at.isoformat(),
        "batchledger.lane": "live",
        "batchledger.epoch": "0",
        "batchledger.ranges": str(FIRST),
    }
    assert branch_of(attempt) not in lake.table.metadata.refs


@EVERY_CATALOG
def test_commit_is_found_by_its_tag_and_without_it_in_the_history_under_later_snapshots(lake: LakeWarehouse) -> None:
    attempt = life.announce(lake, life.take_to_audited(lake, FIRST))
    assert not lake.sink.find_commit(attempt)
    commit(lake, attempt)
    append_by_another(lake.table)
    assert lake.sink.find_commit(attempt)
    lake.table.manage_snapshots().remove_tag(tag_of(attempt.batch)).commit()
    assert lake.sink.find_commit(attempt)


def test_commit_of_a_batch_with_the_same_number_in_another_ledger_is_not_taken_for_it(lake: LakeWarehouse) -> None:
    attempt = life.announce(lake, life.take_to_audited(lake, FIRST))
    commit(lake, attempt)
    earlier = replace(attempt.batch, planned_at=attempt.batch.planned_at.replace(year=2020))
    assert not lake.lake_table.find_commit(replace(attempt, batch=earlier))


def test_tag_that_another_ledger_has_given_to_the_number_of_a_batch_is_replaced(lake: LakeWarehouse) -> None:
    attempt = life.announce(lake, life.take_to_audited(lake, FIRST))
    head = lake.table.metadata.snapshot_by_name("main")
    lake.table.manage_snapshots().create_tag(head.snapshot_id, tag_of(attempt.batch)).commit()
    assert not lake.sink.find_commit(attempt)
    commit(lake, attempt)
    assert lake.sink.find_commit(attempt)


def test_batch_that_is_committed_is_not_committed_again(lake: LakeWarehouse) -> None:
    attempt = life.announce(lake, life.take_to_audited(lake, FIRST))
    commit(lake, attempt)
    with pytest.raises(StagingLostError):
        commit(lake, attempt)
    assert len(lake.read_target()) == len(FIRST)


def test_rows_that_are_there_twice_are_both_replaced(lake: LakeWarehouse) -> None:
    """As at least once leaves them."""
    life.take_to_published(lake, FIRST)
    lake.table.append(lake.table.scan().to_arrow())
    assert len(lake.read_target()) == 2 * len(FIRST)
    life.publish(lake, life.take_replay_to_audited(lake, FIRST))
    assert len(lake.read_target()) == len(FIRST)


@pytest.mark.parametrize("upsert", [None, Upsert(("message_id",))], ids=["append", "upsert"])
def test_confirmation_finds_what_the_commit_has_removed(lake: LakeWarehouse, upsert: Upsert | None) -> None:
    """The process dies between the sink's commit and the ledger's: the state before is read once more."""
    warehouse = replace(lake, upsert=upsert)
    life.take_to_published(warehouse, FIRST)
    attempt = life.announce(warehouse, life.take_replay_to_audited(warehouse, FIRST))
    removed = []

    def commit_and_die() -> None:
        with warehouse.ledger.publication(attempt, BatchState.COMMITTING) as publication:
            removed.append(warehouse.sink.withdraw(publication, publication.find_replaced()))
            warehouse.sink.publish(publication)
            warehouse.sink.commit(publication)
            raise SimulatedCrashError("sink_committed")

    with pytest.raises(SimulatedCrashError):
        commit_and_die()
    assert warehouse.sink.find_commit(attempt)
    with warehouse.ledger.publication(attempt, BatchState.COMMITTING) as publication:
        replaced = publication.find_replaced()
        removed.append(warehouse.sink.withdraw(publication, replaced))
        publication.take_over(replaced, removed[-1])
        publication.publish_quarantine()
        publication.mark_published()
        warehouse.sink.confirm(publication)
        publication.mark_rows()
    assert removed == [[len(FIRST)], [len(FIRST)]]
    assert len(warehouse.read_target()) == len(FIRST)
    assert warehouse.prove().holds


def test_newest_commit_and_what_was_before_it_are_tagged_and_no_others(lake: LakeWarehouse) -> None:
    tags = []
    for each in (FIRST, SECOND):
        attempt = life.announce(lake, life.take_to_audited(lake, each))
        commit(lake, attempt)
        with lake.ledger.publication(attempt, BatchState.COMMITTING) as publication:
            publication.advance_positions()
            publication.mark_published()
            lake.sink.confirm(publication)
            publication.mark_rows()
        tags.append({name for name, ref in lake.table.metadata.refs.items() if ref.snapshot_ref_type == "tag"})
        assert tags[-1] == {tag_of(attempt.batch), tag_before(attempt.batch)}
    assert len(lake.read_target()) == len(FIRST) + len(SECOND)


def test_how_long_the_owner_lets_the_table_keep_its_states_stays_as_it_is(lake: LakeWarehouse) -> None:
    life.take_to_published(lake, FIRST)
    head = lake.table.metadata.refs["main"].snapshot_id
    kept = {"ref-name": "main", "type": "branch", "snapshot-id": head, "min-snapshots-to-keep": 7}
    lake.catalog.commit_table(lake.table, (), (SetSnapshotRefUpdate.model_validate(kept),))
    life.take_to_published(lake, SECOND)
    assert lake.table.metadata.refs["main"].min_snapshots_to_keep == 7


def test_i4_whoever_is_about_to_commit_cannot_do_so_once_the_sink_was_asked(
    lake: LakeWarehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S71: the zombie has prepared its commit, sleeps, and wakes up after somebody else has asked."""
    attempt = life.announce(lake, life.take_to_audited(lake, FIRST))
    catalog = lake.lake_catalog.opened
    real, asked = catalog.commit_table, []

    def commit_late(*arguments: Any) -> Any:
        monkeypatch.setattr(catalog, "commit_table", real)
        asked.append(lake.lake_table.find_commit(attempt))
        return real(*arguments)

    monkeypatch.setattr(catalog, "commit_table", commit_late)
    zombie = lake.lake_table
    with pytest.raises(ServiceUnavailableError):
        zombie.commit(attempt, zombie.find_base(attempt) or 0, ALL_OF_FIRST, epoch=0, is_found=True)
    assert (asked, lake.read_target()) == ([False], [])


def test_lost_reply_is_an_unknown_outcome_that_is_found(lake: LakeWarehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    attempt = life.announce(lake, life.take_to_audited(lake, FIRST))
    lose_reply(lake.lake_catalog.opened, monkeypatch)
    with pytest.raises(OutcomeUnknownError):
        commit(lake, attempt)
    assert lake.sink.find_commit(attempt)
    assert len(lake.read_target()) == len(FIRST)


def lose_reply(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    real = catalog.commit_table

    def lose(*arguments: Any) -> Any:
        monkeypatch.setattr(catalog, "commit_table", real)
        real(*arguments)
        raise OperationalError("update", {}, Exception("server closed the connection"))

    monkeypatch.setattr(catalog, "commit_table", lose)


def test_what_fails_after_the_commit_does_not_say_that_it_was_not_made(
    lake: LakeWarehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempt = life.announce(lake, life.take_to_audited(lake, FIRST))

    def fail(*arguments: Any) -> None:
        raise ValueError("these files are not mine")

    monkeypatch.setattr(lake.catalog, "_delete_old_metadata", fail)
    commit(lake, attempt)
    assert len(lake.read_target()) == len(FIRST)


@EVERY_CATALOG
def test_rows_are_added_on_top_of_what_others_have_committed_meanwhile(lake: LakeWarehouse) -> None:
    attempt = life.announce(lake, life.take_to_audited(lake, FIRST))
    base = lake.lake_table.find_base(attempt) or 0
    append_by_another(lake.table)
    lake.lake_table.commit(attempt, base, ALL_OF_FIRST, epoch=0, is_found=True)
    assert len(lake.read_target()) == len(FIRST) + 1


@EVERY_CATALOG
def test_rows_are_not_replaced_when_others_have_committed_meanwhile(lake: LakeWarehouse) -> None:
    """The state that was looked at is the one that is replaced, or nothing is."""
    life.take_to_published(lake, FIRST)
    attempt = life.announce(lake, life.take_replay_to_audited(lake, FIRST))
    base = lake.lake_table.find_base(attempt) or 0
    append_by_another(lake.table)
    before = lake.read_target()
    change = Change(as_coordinates([("orders", 0, each) for each in range(FIRST.start, FIRST.until)]), NONE, len(FIRST))
    with pytest.raises(ServiceUnavailableError, match="others have committed"):
        lake.lake_table.commit(attempt, base, change, epoch=0, is_found=True)
    assert lake.read_target() == before


def test_rows_that_are_to_go_and_are_not_there_stop_the_commit(lake: LakeWarehouse) -> None:
    life.take_to_published(lake, FIRST)
    attempt = life.announce(lake, life.take_replay_to_audited(lake, FIRST))
    change = Change(as_coordinates([("orders", 0, 1_000)]), NONE, len(FIRST))
    with pytest.raises(StagingLostError, match="0 of the rows"):
        lake.lake_table.commit(attempt, lake.lake_table.find_base(attempt) or 0, change, epoch=0, is_found=True)


def test_files_that_hold_other_rows_than_were_accepted_stop_the_commit(lake: LakeWarehouse) -> None:
    attempt = life.announce(lake, life.take_to_audited(lake, FIRST))
    change = Change(NONE, NONE, len(FIRST) - 1)
    with pytest.raises(StagingLostError, match=f"{len(FIRST)} rows of batch"):
        lake.lake_table.commit(attempt, lake.lake_table.find_base(attempt) or 0, change, epoch=0, is_found=True)
    assert lake.read_target() == []


@EVERY_CATALOG
def test_replay_writes_only_the_files_anew_that_hold_its_rows(lake: LakeWarehouse) -> None:
    first, other = life.take_to_published(lake, FIRST), life.take_to_published(lake, SECOND)
    files = {each.file.file_path for each in lake.table.scan().plan_files()}
    attempt = life.take_replay_to_audited(lake, SECOND)
    life.publish(lake, attempt)
    left = {each.file.file_path for each in lake.table.scan().plan_files()}
    assert len(files & left) == 1
    owners = {(row["_offset"], row["_batch_id"]) for row in lake.read_target()}
    numbers = [(FIRST, first.batch.batch_id), (SECOND, attempt.batch.batch_id)]
    assert owners == {(offset, number) for each, number in numbers for offset in range(each.start, each.until)}
    assert other.batch.lane is Lane.LIVE


@EVERY_CATALOG
def test_column_that_the_table_does_not_have_is_added_and_empty_in_older_rows(lake: LakeWarehouse) -> None:
    life.take_to_published(lake, FIRST)
    attempt = lake.ledger.open_attempt(life.store(lake, SECOND).batch_id, "run-2")
    lake.sink.open_staging(attempt, ROW_SCHEMA.append(pa.field("note", pa.string())))
    assert {row["note"] for row in lake.read_target()} == {None}


def test_column_of_another_type_is_refused_before_anything_is_staged(lake: LakeWarehouse) -> None:
    life.take_to_published(lake, FIRST)
    attempt = lake.ledger.open_attempt(life.store(lake, SECOND).batch_id, "run-2")
    position = ROW_SCHEMA.get_field_index("_offset")
    with pytest.raises(TargetChangedError, match="_offset"):
        lake.sink.open_staging(attempt, ROW_SCHEMA.set(position, pa.field("_offset", pa.string())))


@pytest.mark.parametrize("name", ["_file", "_pos", "_deleted"])
def test_column_that_iceberg_keeps_for_itself_is_refused(lake: LakeWarehouse, name: str) -> None:
    attempt = lake.ledger.open_attempt(life.store(lake, FIRST).batch_id, "run-1")
    with pytest.raises(TargetChangedError, match=f"cannot have a column '{name}'"):
        lake.sink.open_staging(attempt, ROW_SCHEMA.append(pa.field(name, pa.string())))


@pytest.mark.parametrize("declared", ["day(_timestamp)", "hour(_timestamp)", "bucket(4, _offset)", "_topic"])
def test_table_is_created_with_its_partitions_and_files_lie_in_one_each(lake: LakeWarehouse, declared: str) -> None:
    table = IcebergTable(lake.lake_catalog, (lake.schema, "orders"), (parse_partition(declared),))
    attempt = lake.ledger.open_attempt(life.store(lake, FIRST, OTHER).batch_id, "run-1")
    sink = LakeSink(lake.dsn, table)
    life.write(sink.open_staging(attempt, ROW_SCHEMA), 0, life.batch_of_rows(life.rows_of([FIRST, OTHER])))
    sink.seal_staging(attempt, [0])
    change = Change(NONE, NONE, len(FIRST) + len(OTHER))
    table.commit(attempt, table.find_base(attempt) or 0, change, epoch=0, is_found=False)
    assert len(lake.read_target()) == len(FIRST) + len(OTHER)
    partitions = {str(each.file.partition) for each in lake.table.scan().plan_files()}
    assert len(partitions) == len(list(lake.table.scan().plan_files()))
    assert lake.table.spec().fields[0].name == parse_partition(declared).name
    assert lake.table.scan(row_filter=EqualTo("_kafka_partition", 0)).to_arrow().num_rows == len(FIRST)


def test_table_cannot_be_emptied_together_with_the_ledger(lake: LakeWarehouse) -> None:
    with pytest.raises(DecisionRefusedError, match="without --truncate"):
        lake.sink.truncate(SimpleNamespace(pipeline=lake.pipeline))  # type: ignore[arg-type]


@EVERY_CATALOG
def test_branches_of_a_batch_go_with_its_staging(lake: LakeWarehouse) -> None:
    attempt = life.take_to_audited(lake, FIRST)
    again = life.stage(lake, attempt.batch, "run-2")
    assert {branch_of(attempt), branch_of(again)} <= lake.table.metadata.refs.keys()
    lake.sink.drop_staging(again)
    assert lake.table.metadata.refs.keys() == {"main"}


def test_files_of_a_task_that_was_not_accepted_are_in_no_branch(lake: LakeWarehouse) -> None:
    """S75: nor are those that it writes after the staging was sealed."""
    attempt = lake.ledger.open_attempt(life.store(lake, FIRST, OTHER).batch_id, "run-1")
    writer = lake.sink.open_staging(attempt, ROW_SCHEMA)
    life.write(writer, 0, life.batch_of_rows(life.rows_of([FIRST])))
    life.write(writer, 1, life.batch_of_rows(life.rows_of([OTHER])))
    lake.sink.seal_staging(attempt, [0])
    branch = lake.table.scan(snapshot_id=lake.table.metadata.refs[branch_of(attempt)].snapshot_id)
    assert branch.to_arrow()["_kafka_partition"].unique().to_pylist() == [ORDERS_0.partition]
