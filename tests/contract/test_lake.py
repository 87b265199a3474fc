"""What the sink of an Iceberg table promises beside the contract of every sink: branches, tags, and who was first."""

import pickle
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from datetime import timedelta
from functools import partial
from math import nan
from types import SimpleNamespace
from typing import Any

import psycopg
import pyarrow as pa
import pytest
from psycopg.conninfo import conninfo_to_dict
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.expressions import EqualTo, GreaterThanOrEqual
from pyiceberg.io.pyarrow import ArrowScan
from pyiceberg.table import FileScanTask, Table
from pyiceberg.table.update import AddSnapshotUpdate, SetSnapshotRefUpdate
from pyiceberg.transforms import DayTransform, HourTransform, Transform
from sqlalchemy import Connection, text
from sqlalchemy.exc import DBAPIError, OperationalError

from batchledger.database import sessions
from batchledger.lifecycle.delivery import deliver
from batchledger.lifecycle.requirement import confirm_rows, publish_rows, require_own_target
from batchledger.local.stack.defaults import DATABASE_USER
from batchledger.model.batch import Attempt, BatchState, Lane
from batchledger.model.errors import (
    ConfigurationError,
    DecisionRefusedError,
    OutcomeUnknownError,
    ServiceUnavailableError,
    StagingError,
    StagingLostError,
    TargetChangedError,
)
from batchledger.model.offsets import OffsetRange
from batchledger.model.records.comparison import Comparison
from batchledger.model.records.partitioning import parse_partition
from batchledger.model.records.rules import Upsert
from batchledger.sinks.iceberg import commits, files
from batchledger.sinks.iceberg import coordinates as lake_coordinates
from batchledger.sinks.iceberg import held as lake_held
from batchledger.sinks.iceberg import rows as lake_rows
from batchledger.sinks.iceberg import table as iceberg_table
from batchledger.sinks.iceberg.commits import TRIES, branch_of, tag_before, tag_of
from batchledger.sinks.iceberg.coordinates import Change, as_coordinates
from batchledger.sinks.iceberg.layout import stored_schema
from batchledger.sinks.iceberg.sink import LakeSink
from batchledger.sinks.iceberg.table import IcebergTable
from tests.contract import life
from tests.contract.lake_warehouse import CATALOG, EVERY_CATALOG, LakeWarehouse, before_the_next_commit, catalog_in
from tests.contract.life import FIRST, ORDERS_0, OTHER, SECOND
from tests.contract.test_foreign_commits import give_up, with_target
from tests.fakes.crash import SimulatedCrashError
from tests.fakes.work import ROW_SCHEMA

NONE = as_coordinates([])
ALL_OF_FIRST = Change(NONE, NONE, len(FIRST))


def commit(warehouse: LakeWarehouse, attempt: Attempt) -> None:
    """Commit the staged rows in the lake alone."""
    change = Change(NONE, NONE, sum(map(len, attempt.batch.ranges)))
    warehouse.lake_table.commit(attempt, None, change, read_epoch=int, is_found=True)


def append_by_another(table: Table) -> None:
    """Let another writer commit to the table."""
    rows = pa.table({"_topic": ["else"], "_offset": pa.array([1], pa.int64())})
    table.append(rows)


def test_staged_rows_lie_on_a_branch_of_the_attempt_and_readers_do_not_see_them(lake: LakeWarehouse) -> None:
    attempt = life.take_to_audited(lake, FIRST, OTHER)
    branch = lake.table.scan(snapshot_id=lake.table.metadata.refs[branch_of(attempt)].snapshot_id)
    assert branch.to_arrow().num_rows == len(FIRST) + len(OTHER)
    assert lake.read_target() == []


def test_reader_needs_the_name_of_the_catalog_its_database_and_a_file_with_the_password(
    lake: LakeWarehouse, services: Any
) -> None:
    """As the README shows it."""
    life.take_to_published(lake, FIRST)
    parts = {name: str(value) for name, value in conninfo_to_dict(lake.dsn).items()}
    place = f"{DATABASE_USER}@{parts['host']}:{parts['port']}/{parts['dbname']}"
    uri = f"postgresql+psycopg://{place}?passfile={services.home.database_password_file}"
    with closing(load_catalog(CATALOG, uri=uri)) as catalog:
        assert catalog.load_table(f"{lake.schema}.orders").scan().to_arrow().num_rows == len(FIRST)


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


def test_commit_is_found_when_another_ledger_has_tagged_a_batch_of_its_number_since(lake: LakeWarehouse) -> None:
    attempt = life.announce(lake, life.take_to_audited(lake, FIRST))
    commit(lake, attempt)
    foreign = replace(attempt, batch=replace(attempt.batch, planned_at=attempt.batch.planned_at.replace(year=2020)))
    lake.lake_table.stage(foreign, [])
    lake.lake_table.commit(foreign, None, Change(NONE, NONE, 0), read_epoch=int, is_found=True)
    assert lake.lake_table.find_commit(foreign)
    assert lake.sink.find_commit(attempt)


def test_table_of_another_pipeline_is_refused_until_its_tag_is_removed(lake: LakeWarehouse) -> None:
    """Each would remove the tags of the other, and with them what its outcome is found by.

    Its own ledger refuses it without, too; another ledger does not know of it.
    """
    owner = life.take_to_published(lake, FIRST)
    other = replace(lake, pipeline=f"{lake.pipeline}_other")
    attempt = other.ledger.open_attempt(life.store(other, SECOND).batch_id, "run-1")
    with pytest.raises(TargetChangedError, match=f"remove the tag {tag_of(owner.batch)}") as tagged:
        require_own_target(life.platform(other), attempt)
    assert tagged.value.subject == lake.lake_table.name
    lake.table.manage_snapshots().remove_tag(tag_of(owner.batch)).commit()
    with pytest.raises(TargetChangedError) as owned:
        require_own_target(life.platform(other), attempt)
    assert (owned.value.pipeline, owned.value.owner) == (other.pipeline, lake.pipeline)
    with psycopg.connect(lake.dsn) as connection:
        forget = "update batchledger.pipeline set target = null, target_identity = null where name = %s"
        connection.execute(forget, [lake.pipeline])
    require_own_target(life.platform(other), attempt)
    assert other.sink.open_staging(attempt, ROW_SCHEMA).index_schema.names


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


def test_rows_beside_the_ranges_stay_whatever_number_they_have(lake: LakeWarehouse) -> None:
    """They lie in the files that are written anew: rows of no batch, and of a batch of its number in another ledger."""
    life.take_to_published(lake, FIRST)
    attempt = life.take_replay_to_audited(lake, FIRST)
    rows = lake.table.scan().to_arrow()
    beside = with_values(rows.slice(0, 2), _offset=[1_000, 1_001], _batch_id=[None, attempt.batch.batch_id])
    lake.table.overwrite(pa.concat_tables([rows, beside]))
    life.publish(lake, attempt)
    assert sorted(row["_offset"] for row in lake.read_target()) == [0, 1, 2, 1_000, 1_001]


def test_newer_rows_of_the_keys_stay_whatever_number_they_have(lake: LakeWarehouse) -> None:
    """Rows of no batch, and of a batch of its number in another ledger, that are newer than what is published."""
    warehouse = replace(lake, upsert=Upsert(("message_id",)))
    life.take_to_published(warehouse, FIRST)
    attempt = life.take_to_audited(warehouse, SECOND)
    keys = [f"{ORDERS_0}@{each}" for each in (3, 4)]
    numbers = [None, attempt.batch.batch_id]
    newer = with_values(
        lake.table.scan().to_arrow().slice(0, 2), _offset=[103, 104], _batch_id=numbers, message_id=keys
    )
    lake.table.append(newer)
    life.publish(warehouse, attempt)
    assert sorted(row["_offset"] for row in lake.read_target()) == [0, 1, 2, 103, 104]


def with_values(rows: pa.Table, **values: list[Any]) -> pa.Table:
    """Return rows with other values in some columns."""
    for name, column in values.items():
        position = rows.schema.get_field_index(name)
        rows = rows.set_column(position, rows.schema.field(name), pa.array(column, rows.schema.field(name).type))
    return rows


@pytest.mark.parametrize("is_tagged", [True, False], ids=["tagged", "untagged"])
@pytest.mark.parametrize("upsert", [None, Upsert(("message_id",))], ids=["append", "upsert"])
def test_confirmation_finds_what_the_commit_has_removed(
    lake: LakeWarehouse, upsert: Upsert | None, *, is_tagged: bool
) -> None:
    """The process dies between the sink's commit and the ledger's: the state before is read once more."""
    warehouse = replace(lake, upsert=upsert)
    life.take_to_published(warehouse, FIRST)
    attempt = life.announce(warehouse, life.take_replay_to_audited(warehouse, FIRST))
    removed = []

    def commit_and_die() -> None:
        with warehouse.ledger.publication(attempt, BatchState.COMMITTING) as publication:
            rows = publication.load()
            withdrawn = warehouse.sink.withdraw(rows)
            removed.append(withdrawn.rows)
            rows = publish_rows(warehouse.sink, publication, replace(rows, handed=withdrawn.handed))
            warehouse.sink.commit(rows)
            raise SimulatedCrashError("sink_committed")

    with pytest.raises(SimulatedCrashError):
        commit_and_die()
    if not is_tagged:
        lake.table.manage_snapshots().remove_tag(tag_before(attempt.batch)).commit()
    assert warehouse.sink.find_commit(attempt)
    with warehouse.ledger.publication(attempt, BatchState.COMMITTING) as publication:
        rows = publication.load()
        withdrawn = warehouse.sink.withdraw(rows)
        removed.append(withdrawn.rows)
        publication.take_over(rows.replaced, withdrawn.rows)
        publication.publish_quarantine()
        publication.mark_published()
        confirm_rows(warehouse.sink, replace(rows, handed=withdrawn.handed))
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
            confirm_rows(lake.sink, publication.load())
            publication.mark_rows()
        tags.append({name for name, ref in lake.table.metadata.refs.items() if ref.snapshot_ref_type == "tag"})
        assert tags[-1] == {tag_of(attempt.batch), tag_before(attempt.batch)}
    assert len(lake.read_target()) == len(FIRST) + len(SECOND)


def test_tags_and_branches_of_people_stay(lake: LakeWarehouse) -> None:
    life.take_to_published(lake, FIRST)
    head = lake.table.metadata.refs["main"].snapshot_id
    tags, branches = {"batchledger_backup", "batchledger_b1_a1", "batchledger_b1_beforehand"}, {"batchledger_bugfix"}
    for each in tags:
        lake.table.manage_snapshots().create_tag(head, each).commit()
    for each in branches:
        lake.table.manage_snapshots().create_branch(head, each).commit()
    attempt = life.take_to_published(lake, SECOND)
    lake.sink.drop_staging(attempt)
    ours = {tag_of(attempt.batch), tag_before(attempt.batch)}
    assert lake.table.metadata.refs.keys() == {"main", *ours, *tags, *branches}
    assert lake.lake_table.list_branches() == []


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
    """S71: the zombie has prepared its commit, sleeps, and wakes up after another run has asked."""
    attempt = life.announce(lake, life.take_to_audited(lake, FIRST))
    asked: list[bool] = []
    before_the_next_commit(lake, monkeypatch, lambda: asked.append(lake.lake_table.find_commit(attempt)))
    zombie = lake.lake_table
    with pytest.raises(ServiceUnavailableError):
        zombie.commit(attempt, None, ALL_OF_FIRST, read_epoch=int, is_found=True)
    assert (asked, lake.read_target()) == ([False], [])


def as_newest(update: Any) -> Any:
    """Number a snapshot behind one more than there was."""
    if not isinstance(update, AddSnapshotUpdate):
        return update
    newer = update.snapshot.model_copy(update={"sequence_number": (update.snapshot.sequence_number or 0) + 1})
    return update.model_copy(update={"snapshot": newer})


def test_i4_negative_control_without_the_requirement_on_the_branch_the_commit_is_made_after_the_answer(
    lake: LakeWarehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The zombie is no more refused, and the answer was wrong.

    Its snapshot is refused as older than the newest, too, which is no promise of every catalog: it is given the next
    number.
    """
    attempt = life.announce(lake, life.take_to_audited(lake, FIRST))
    catalog = lake.lake_catalog.opened
    real, asked = catalog.commit_table, []

    def commit_without_it(table: Table, requirements: tuple[Any, ...], updates: tuple[Any, ...]) -> Any:
        monkeypatch.setattr(catalog, "commit_table", real)
        asked.append(lake.lake_table.find_commit(attempt))
        dated = [each for each in requirements if not isinstance(each, commits._AssertLastSequenceNumber)]
        kept = tuple(each for each in dated if getattr(each, "ref", None) != branch_of(attempt))
        assert len(kept) == len(requirements) - 2
        return real(table, kept, tuple(map(as_newest, updates)))

    monkeypatch.setattr(catalog, "commit_table", commit_without_it)
    commit(lake, attempt)
    assert (asked, len(lake.read_target())) == ([False], len(FIRST))


def test_i4_negative_control_without_a_last_question_to_the_ledger_the_late_commit_is_made(lake: LakeWarehouse) -> None:
    attempt = life.take_to_audited(lake, FIRST)

    def commit_late(commit: Callable[..., Any], *values: Any, **named: Any) -> None:
        give_up(lake, attempt)
        commit(*values, **named | {"read_epoch": int})

    with pytest.raises(ServiceUnavailableError):
        deliver(life.platform(lake, sink=with_target(lake, commit_late)), attempt)
    assert lake.ledger.load_batch(attempt.batch.batch_id).state is BatchState.AUDITED
    assert len(lake.read_target()) == len(FIRST)


@pytest.mark.parametrize("is_asked", [True, False], ids=["asked", "negative control"])
def test_i9_commit_whose_outcome_is_unknown_is_made_once_because_it_is_found(
    lake: LakeWarehouse, monkeypatch: pytest.MonkeyPatch, is_asked: bool
) -> None:
    """A sink that did not know its own commits would make it twice, and ``verify`` would tell so."""
    attempt = life.announce(lake, life.take_to_audited(lake, FIRST))
    commit(lake, attempt)
    if not is_asked:
        monkeypatch.setattr(iceberg_table, "is_committed", lambda *_: False)
    with lake.ledger.publication(attempt, BatchState.COMMITTING) as publication:
        found = lake.sink.find_commit(attempt)
        if not found:
            publication.revoke()
        else:
            publication.advance_positions()
            publication.mark_published()
            confirm_rows(lake.sink, publication.load())
            publication.mark_rows()
    if not found:
        again = life.stage(lake, lake.ledger.load_batch(attempt.batch.batch_id), "run-2")
        life.audit(lake, again)
        life.publish(lake, again)
    assert found is is_asked
    assert len(lake.read_target()) == (1 if is_asked else 2) * len(FIRST)
    assert lake.prove().holds is is_asked


def test_lost_reply_is_an_unknown_outcome_that_is_found(lake: LakeWarehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    attempt = life.announce(lake, life.take_to_audited(lake, FIRST))
    lose_reply(lake.lake_catalog.opened, monkeypatch)
    with pytest.raises(OutcomeUnknownError):
        commit(lake, attempt)
    assert lake.sink.find_commit(attempt)
    assert len(lake.read_target()) == len(FIRST)


def test_last_refusal_is_not_believed_before_the_table_was_seen_again(
    lake: LakeWarehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempt = life.announce(lake, life.take_to_audited(lake, FIRST))
    catalog = lake.lake_catalog.opened
    real, refused = catalog.commit_table, []

    def refuse(*arguments: Any) -> Any:
        refused.append(True)
        if len(refused) == TRIES:
            real(*arguments)
        raise CommitFailedException("Requirement failed")

    monkeypatch.setattr(catalog, "commit_table", refuse)
    with pytest.raises(OutcomeUnknownError):
        commit(lake, attempt)
    assert (len(refused), len(lake.read_target())) == (TRIES, len(FIRST))


def lose_reply(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    real = catalog.commit_table

    def lose(*arguments: Any) -> Any:
        monkeypatch.setattr(catalog, "commit_table", real)
        real(*arguments)
        raise OperationalError("update", {}, Exception("server closed the connection"))

    monkeypatch.setattr(catalog, "commit_table", lose)


@contextmanager
def paused_commit(warehouse: LakeWarehouse) -> Iterator[Connection]:
    """Lend the connection of a commit of this table that is not over: the catalog has updated the row."""
    engine = warehouse.catalog.engine  # type: ignore[attr-defined]  # Catalogs in a database have it.
    held = "update iceberg_tables set metadata_location = metadata_location where table_namespace = :schema"
    with engine.connect() as connection:
        connection.execute(text(held), {"schema": warehouse.schema})
        yield connection


def test_waits_for_the_catalog_in_a_database_are_bounded_as_those_for_the_ledger(lake: LakeWarehouse) -> None:
    engine = lake.catalog.engine  # type: ignore[attr-defined]  # Catalogs in a database have it.
    with engine.connect() as catalog, sessions.connect(lake.dsn) as ledger:
        for each in ("lock_timeout", "idle_in_transaction_session_timeout"):
            shown = catalog.execute(text(f"show {each}")).scalar()
            assert (shown,) == ledger.execute(f"show {each}").fetchone()
            assert shown != "0"


def test_commit_that_waits_for_another_ones_lock_ends_unknown_and_is_made_when_the_lock_is_gone(
    lake: LakeWarehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempt = life.announce(lake, life.take_to_audited(lake, FIRST))
    monkeypatch.setitem(sessions.PINNED, "lock_timeout", "200ms")
    hasty = replace(lake, other=catalog_in.__wrapped__(lake.dsn, lake.folder))
    with paused_commit(lake):
        with pytest.raises(OutcomeUnknownError):
            commit(hasty, attempt)
        with pytest.raises(ServiceUnavailableError):
            hasty.sink.find_commit(attempt)
    assert not hasty.sink.find_commit(attempt)
    commit(hasty, attempt)
    assert len(lake.read_target()) == len(FIRST)


def test_process_that_is_paused_in_a_commit_does_not_hold_up_others(
    lake: LakeWarehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempt = life.announce(lake, life.take_to_audited(lake, FIRST))
    monkeypatch.setitem(sessions.PINNED, "idle_in_transaction_session_timeout", "500ms")
    paused = replace(lake, other=catalog_in.__wrapped__(lake.dsn, lake.folder))
    with paused_commit(paused) as woken:
        commit(lake, attempt)
        assert len(lake.read_target()) == len(FIRST)
        with pytest.raises(DBAPIError, match="idle-in-transaction timeout"):
            woken.commit()


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
    publish_after(lake, attempt, lambda: append_by_another(lake.table))
    assert len(lake.read_target()) == len(FIRST) + 1


def publish_after(lake: LakeWarehouse, attempt: Attempt, do: Callable[[], None]) -> None:
    """Publish an announced attempt, with something in between of what is judged and what is committed."""
    with lake.ledger.publication(attempt, BatchState.COMMITTING) as publication:
        rows = life.apply(lake, publication)
        do()
        lake.sink.commit(rows)


def test_key_that_was_not_held_is_looked_for_again_when_others_have_committed_meanwhile(lake: LakeWarehouse) -> None:
    """They may have committed the same key, which would be there twice."""
    warehouse = replace(lake, upsert=Upsert(("message_id",)))
    life.take_to_published(warehouse, FIRST)
    attempt = life.announce(warehouse, life.take_to_audited(warehouse, SECOND))
    theirs = with_values(lake.table.scan().to_arrow().slice(0, 1), _offset=[1_000], message_id=[f"{ORDERS_0}@3"])
    with pytest.raises(ServiceUnavailableError, match="others have committed"):
        publish_after(warehouse, attempt, lambda: lake.table.append(theirs))
    publish_after(warehouse, attempt, lambda: None)
    assert sorted(row["_offset"] for row in lake.read_target()) == [0, 1, 2, 4, 1_000]


def test_transaction_is_not_idle_while_a_table_is_read_that_holds_none_of_the_keys(
    lake: LakeWarehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The database ends one that is idle for a minute, and so it would end the next one."""
    warehouse = replace(lake, upsert=Upsert(("message_id",)))
    for each in (FIRST, SECOND, OffsetRange(ORDERS_0, 5, 7)):
        life.take_to_published(warehouse, each)
    attempt = life.announce(warehouse, life.take_to_audited(warehouse, OffsetRange(ORDERS_0, 7, 9)))
    states: list[str] = []
    read_files = lake_rows.read_files

    def look(*values: Any) -> Iterator[pa.RecordBatch]:
        with psycopg.connect(lake.dsn) as other:
            states.extend(
                state
                for (state,) in other.execute(
                    "select state from pg_stat_activity join pg_locks using (pid) where locktype = 'advisory' "
                    "and objid::bigint = hashtextextended(%s, 0) & 4294967295",
                    [f"batchledger publication of {lake.pipeline}"],
                )
            )
        return read_files(*values)

    monkeypatch.setattr(lake_rows, "read_files", look)
    publish_after(warehouse, attempt, lambda: None)
    assert states == ["idle in transaction", "active", "active"]
    assert sorted(row["_offset"] for row in lake.read_target()) == list(range(9))


def test_range_that_was_empty_is_looked_at_again_when_others_have_committed_meanwhile(lake: LakeWarehouse) -> None:
    """They may have committed rows of the range, which would be there twice."""
    life.take_to_published(lake, FIRST)
    rows = lake.table.scan().to_arrow()
    lake.table.delete(EqualTo("_topic", "orders"))
    attempt = life.announce(lake, life.take_replay_to_audited(lake, FIRST))
    with pytest.raises(ServiceUnavailableError, match="others have committed"):
        publish_after(lake, attempt, lambda: lake.table.append(rows))
    publish_after(lake, attempt, lambda: None)
    assert [row["_batch_id"] for row in lake.read_target()] == [attempt.batch.batch_id] * len(FIRST)


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
        lake.lake_table.commit(attempt, base, change, read_epoch=int, is_found=True)
    assert lake.read_target() == before


def test_rows_that_are_to_go_and_are_not_there_stop_the_commit(lake: LakeWarehouse) -> None:
    life.take_to_published(lake, FIRST)
    attempt = life.announce(lake, life.take_replay_to_audited(lake, FIRST))
    change = Change(as_coordinates([("orders", 0, 1_000)]), NONE, len(FIRST))
    with pytest.raises(StagingLostError, match="0 of the rows"):
        lake.lake_table.commit(attempt, lake.lake_table.find_base(attempt) or 0, change, read_epoch=int, is_found=True)


def test_files_that_hold_other_rows_than_were_accepted_stop_the_commit(lake: LakeWarehouse) -> None:
    attempt = life.announce(lake, life.take_to_audited(lake, FIRST))
    change = Change(NONE, NONE, len(FIRST) - 1)
    with pytest.raises(StagingLostError, match=f"{len(FIRST)} rows of batch"):
        lake.lake_table.commit(attempt, lake.lake_table.find_base(attempt) or 0, change, read_epoch=int, is_found=True)
    assert lake.read_target() == []


@EVERY_CATALOG
def test_replay_writes_only_the_files_anew_that_hold_its_rows(lake: LakeWarehouse) -> None:
    first, other = life.take_to_published(lake, FIRST), life.take_to_published(lake, SECOND)
    before = {each.file.file_path for each in lake.table.scan().plan_files()}
    attempt = life.take_replay_to_audited(lake, SECOND)
    life.publish(lake, attempt)
    left = {each.file.file_path for each in lake.table.scan().plan_files()}
    assert len(before & left) == 1
    owners = {(row["_offset"], row["_batch_id"]) for row in lake.read_target()}
    numbers = [(FIRST, first.batch.batch_id), (SECOND, attempt.batch.batch_id)]
    assert owners == {(offset, number) for each, number in numbers for offset in range(each.start, each.until)}
    assert other.batch.lane is Lane.LIVE


def test_replay_is_compared_with_the_table_in_all_columns(lake: LakeWarehouse) -> None:
    """Its log says how its rows differ, before they are published."""
    life.take_to_published(lake, FIRST)
    changed = with_values(pa.table(life.batch_of_rows(life.rows_of([FIRST]))), message_id=["other"] * len(FIRST))
    batch = life.store_replay(lake, FIRST)
    attempt = life.stage(lake, batch, "again", rows=changed.combine_chunks().to_batches()[0])
    assert lake.sink.compare(attempt, 0) == Comparison(changed=len(FIRST))


def test_column_that_differs_by_case_alone_is_refused_as_spark_could_not_read_the_table(lake: LakeWarehouse) -> None:
    life.take_to_published(lake, FIRST)
    columns = lake.table.schema().column_names
    attempt = lake.ledger.open_attempt(life.store(lake, SECOND).batch_id, "run-2")
    named = ROW_SCHEMA.append(pa.field("Message_Id", pa.string()))
    with pytest.raises(ConfigurationError, match="'Message_Id': 'message_id' is there too"):
        lake.sink.open_staging(attempt, named)
    assert lake.table.schema().column_names == columns
    others = IcebergTable(lake.lake_catalog, (lake.schema, "others"))
    with pytest.raises(TargetChangedError, match="columns 'message_id' and 'Message_Id'") as refused:
        others.prepare(attempt, named)
    assert refused.value.subject == others.name
    assert not lake.catalog.table_exists((lake.schema, "others"))


@pytest.mark.parametrize(("declared", "is_told"), [("hour(_timestamp)", True), ("_partition", False), (None, False)])
def test_table_that_is_partitioned_otherwise_than_the_pipeline_file_says_is_told(
    lake: LakeWarehouse, caplog: pytest.LogCaptureFixture, declared: str | None, is_told: bool
) -> None:
    attempt = lake.ledger.open_attempt(life.store(lake, FIRST).batch_id, "run-1")
    for each in ("_partition", declared):
        fields = (parse_partition(each),) if each else ()
        IcebergTable(lake.lake_catalog, (lake.schema, "orders"), fields).prepare(attempt, ROW_SCHEMA)
    told = "stays partitioned by _partition, because sink.partition_by, hour(_timestamp), counts only"
    assert (told in caplog.text) is is_told


def test_column_of_another_type_is_refused_before_anything_is_staged(lake: LakeWarehouse) -> None:
    life.take_to_published(lake, FIRST)
    attempt = lake.ledger.open_attempt(life.store(lake, SECOND).batch_id, "run-2")
    position = ROW_SCHEMA.get_field_index("_offset")
    with pytest.raises(TargetChangedError, match="_offset"):
        lake.sink.open_staging(attempt, ROW_SCHEMA.set(position, pa.field("_offset", pa.string())))


@EVERY_CATALOG
def test_table_that_somebody_has_created_and_nobody_has_written_to_takes_the_rows(lake: LakeWarehouse) -> None:
    lake.catalog.create_namespace(lake.schema)
    schema = stored_schema(ROW_SCHEMA, "orders")
    lake.catalog.create_table((lake.schema, "orders"), schema, properties={"format-version": "2"})
    life.take_to_published(lake, FIRST)
    assert lake.prove().holds


@pytest.mark.parametrize("change", ["rename", "drop"])
@pytest.mark.parametrize("column", ["message_id", "_offset"])
def test_column_that_is_not_there_any_more_when_a_batch_is_published_is_named(
    lake: LakeWarehouse, column: str, change: str
) -> None:
    warehouse = replace(lake, upsert=Upsert(("message_id",)))
    life.take_to_published(warehouse, FIRST)
    attempt = life.announce(warehouse, life.take_to_audited(warehouse, SECOND))
    with lake.table.update_schema(allow_incompatible_changes=True) as update:
        if change == "drop":
            update.delete_column(column)
        else:
            update.rename_column(column, "renamed")
    with pytest.raises(TargetChangedError, match=f"has lost the column {column}") as refused:
        publish_after(warehouse, attempt, lambda: None)
    assert refused.value.subject == lake.lake_table.name
    if column == "_offset":
        with pytest.raises(TargetChangedError, match="has lost the column _offset"):
            commit(lake, attempt)


@pytest.mark.parametrize("type_", [pa.float64(), pa.float32()], ids=str)
def test_keys_that_the_database_takes_for_the_same_are_the_same_in_the_table(
    lake: LakeWarehouse, type_: pa.DataType
) -> None:
    """-0.0 and 0.0, and a value that is no number."""
    warehouse = replace(lake, upsert=Upsert(("weight",)))
    ranges, values = (OffsetRange(ORDERS_0, 0, 3), OffsetRange(ORDERS_0, 3, 6)), ([0.0, nan, 0.1], [-0.0, nan, 0.1])
    for each, weights in zip(ranges, values, strict=True):
        rows = life.batch_of_rows(life.rows_of([each])).append_column("weight", pa.array(weights, type_))
        life.publish(warehouse, audited(warehouse, life.stage(warehouse, life.store(warehouse, each), rows=rows)))
    assert [row["_offset"] for row in lake.read_target()] == [3, 4, 5]
    lake.table.append(with_values(lake.table.scan().to_arrow(), weight=[0.0, nan, 0.1], _offset=[103, 104, 105]))
    assert sum(each.repeated_keys for each in warehouse.sink.count_target(lake.pipeline).by_batch.values()) == 6


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
    table.commit(attempt, table.find_base(attempt) or 0, change, read_epoch=int, is_found=False)
    assert len(lake.read_target()) == len(FIRST) + len(OTHER)
    partitions = {str(each.file.partition) for each in lake.table.scan().plan_files()}
    assert len(partitions) == len(list(lake.table.scan().plan_files()))
    assert lake.table.spec().fields[0].name == parse_partition(declared).name
    assert lake.table.scan(row_filter=EqualTo("_kafka_partition", 0)).to_arrow().num_rows == len(FIRST)


def test_table_and_each_of_its_files_are_sorted_by_the_time_of_the_records(lake: LakeWarehouse) -> None:
    attempt = lake.ledger.open_attempt(life.store(lake, FIRST, OTHER).batch_id, "run-1")
    rows = life.batch_of_rows(life.rows_of([FIRST, OTHER]))
    times = pa.array([life.NOW - timedelta(days=each) for each in range(rows.num_rows)], ROW_SCHEMA.field(3).type)
    with lake.lake_table.prepare(attempt, ROW_SCHEMA).open() as written:
        written.write(rows.set_column(3, ROW_SCHEMA.field(3), times))
    lake.lake_table.stage(attempt, [str(written.manifest)])
    table = lake.table
    (order,) = table.sort_order().fields
    assert table.schema().find_column_name(order.source_id) == "_timestamp"
    staged = list(written.read_back(["_timestamp"]))
    assert [time for each in staged for time in each["_timestamp"].to_pylist()] == sorted(times.to_pylist())


def test_task_holds_few_rows_and_its_index_has_those_that_its_files_hold(
    lake: LakeWarehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "HELD_BYTES", 1)
    attempt = lake.ledger.open_attempt(life.store(lake, FIRST, OTHER).batch_id, "run-1")
    parts = [life.batch_of_rows(life.rows_of([each])) for each in (FIRST, OTHER)]
    life.write(lake.sink.open_staging(attempt, ROW_SCHEMA), 0, *parts)
    lake.sink.seal_staging(attempt, [0])
    branch = lake.table.metadata.refs[branch_of(attempt)].snapshot_id
    listed = lake.table.scan(snapshot_id=branch).plan_files()
    assert sorted(each.file.record_count for each in listed) == [len(OTHER), len(FIRST)]
    assert [each.rows for each in life.summarise(lake, attempt)] == [len(FIRST), len(OTHER)]


def test_task_whose_files_do_not_hold_its_rows_fails(lake: LakeWarehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    real = files.write_files
    monkeypatch.setattr(files, "write_files", lambda table, rows: real(table, rows.slice(1)))
    attempt = lake.ledger.open_attempt(life.store(lake, FIRST).batch_id, "run-1")
    writer = lake.sink.open_staging(attempt, ROW_SCHEMA)
    with pytest.raises(StagingError, match="do not hold all rows"):
        life.write(writer, 0, life.batch_of_rows(life.rows_of([FIRST])))


@pytest.mark.parametrize(("size", "is_one"), [("1024", False), ("1000000", True)])
def test_files_have_the_size_that_the_table_wants(lake: LakeWarehouse, size: str, is_one: bool) -> None:
    many = OffsetRange(ORDERS_0, 0, 100)
    attempt = lake.ledger.open_attempt(life.store(lake, many).batch_id, "run-1")
    lake.lake_table.prepare(attempt, ROW_SCHEMA)
    with lake.table.transaction() as change:
        change.set_properties({"write.target-file-size-bytes": size})
    with lake.lake_table.prepare(attempt, ROW_SCHEMA).open() as written:
        written.write(life.batch_of_rows(life.rows_of([many])))
    made = files.read_list(lake.table, str(written.manifest))
    assert sum(each.record_count for each in made) == len(many)
    assert (len(made) == 1) is is_one


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


@pytest.mark.parametrize(("at_once_bytes", "read"), [(1, [1, 1, 1]), (2**20, [3])], ids=["large", "small"])
def test_large_files_are_read_one_after_the_other_and_small_ones_together(
    lake: LakeWarehouse, monkeypatch: pytest.MonkeyPatch, at_once_bytes: int, read: list[int]
) -> None:
    for each in (FIRST, SECOND, OTHER):
        life.take_to_published(lake, each)
    at_once = []
    real = ArrowScan.to_record_batches

    def count(scan: ArrowScan, tasks: Sequence[FileScanTask]) -> Iterator[pa.RecordBatch]:
        at_once.append(len(tasks))
        return real(scan, tasks)

    monkeypatch.setattr(ArrowScan, "to_record_batches", count)
    monkeypatch.setattr(files, "AT_ONCE_BYTES", at_once_bytes)
    rows = files.read_files(lake.table, list(lake.table.scan().plan_files()), ["_offset"])
    next(rows)
    assert at_once == read[:1]
    assert sum(each.num_rows for each in rows) > 0
    assert at_once == read


def test_keys_and_rows_that_are_fetched_in_parts_are_all_replaced(
    lake: LakeWarehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    for each in (lake_held, lake_coordinates):
        monkeypatch.setattr(each, "AT_ONCE_ROWS", 2)
    warehouse = replace(lake, upsert=Upsert(("message_id",)))
    five, again = OffsetRange(ORDERS_0, 0, 5), OffsetRange(ORDERS_0, 5, 15)
    life.take_to_published(warehouse, five)
    rows = life.batch_of_rows(life.rows_of([again]))
    keys = pa.array([f"{ORDERS_0}@{offset % 5}" for offset in range(10)])
    position = ROW_SCHEMA.get_field_index("message_id")
    attempt = life.stage(
        warehouse,
        life.store(warehouse, again, run="run-2"),
        "run-2",
        rows=rows.set_column(position, ROW_SCHEMA.field(position), keys),
    )
    life.audit(warehouse, attempt)
    life.publish(warehouse, attempt)
    assert life.target_coordinates(warehouse) == [(ORDERS_0, offset) for offset in range(10, 15)]


def test_login_to_a_catalog_in_a_database_does_not_go_to_the_tasks(lake: LakeWarehouse) -> None:
    attempt = lake.ledger.open_attempt(life.store(lake, FIRST).batch_id, "run-1")
    pickled = pickle.dumps(lake.sink.open_staging(attempt, ROW_SCHEMA).files)
    assert str(conninfo_to_dict(lake.dsn)["password"]).encode() not in pickled
    assert lake.folder.as_uri().encode() in pickled


def test_files_of_a_task_that_was_not_accepted_are_in_no_branch(lake: LakeWarehouse) -> None:
    """S75: nor are those that it writes after the staging was sealed."""
    attempt = lake.ledger.open_attempt(life.store(lake, FIRST, OTHER).batch_id, "run-1")
    writer = lake.sink.open_staging(attempt, ROW_SCHEMA)
    life.write(writer, 0, life.batch_of_rows(life.rows_of([FIRST])))
    life.write(writer, 1, life.batch_of_rows(life.rows_of([OTHER])))
    lake.sink.seal_staging(attempt, [0])
    branch = lake.table.scan(snapshot_id=lake.table.metadata.refs[branch_of(attempt)].snapshot_id)
    assert branch.to_arrow()["_kafka_partition"].unique().to_pylist() == [ORDERS_0.partition]


def partition_by(lake: LakeWarehouse, transform: Transform[Any, Any]) -> None:
    """Partition the table otherwise, as another writer may."""
    with lake.table.update_spec() as spec:
        for each in lake.table.spec().fields:
            spec.remove_field(each.name)
        spec.add_field("_timestamp", transform, "by_time")


def find_since(lake: LakeWarehouse, day: str) -> set[int]:
    """The offsets that a reader finds who looks at some partitions only."""
    found = lake.table.scan(row_filter=GreaterThanOrEqual("_timestamp", f"{day}T00:00:00+00:00")).to_arrow()
    return set(found["_offset"].to_pylist())


@pytest.mark.parametrize("is_staged", [False, True], ids=["before it is staged", "before it is published"])
@pytest.mark.parametrize("declared", [(), ("day(_timestamp)",)], ids=["not partitioned", "by day"])
def test_files_for_partitions_that_were_changed_since_are_not_published_and_staged_again(
    lake: LakeWarehouse, declared: tuple[str, ...], is_staged: bool
) -> None:
    table = IcebergTable(lake.lake_catalog, (lake.schema, "orders"), tuple(map(parse_partition, declared)))
    sink = LakeSink(lake.dsn, table)
    attempt = lake.ledger.open_attempt(life.store(lake, FIRST).batch_id, "run-1")
    life.write(sink.open_staging(attempt, ROW_SCHEMA), 0, life.batch_of_rows(life.rows_of([FIRST])))
    if is_staged:
        sink.seal_staging(attempt, [0])
    partition_by(lake, HourTransform())
    go_on = partial(commit, lake) if is_staged else partial(sink.seal_staging, accepted_tasks=[0])
    with pytest.raises(StagingLostError, match="The next run stages the batch again"):
        go_on(attempt)
    assert lake.read_target() == []
    again = life.announce(lake, audited(lake, life.stage(lake, attempt.batch, "run-2")))
    commit(lake, again)
    assert find_since(lake, "2025-12-31") == {0, 1, 2}


def audited(lake: LakeWarehouse, attempt: Attempt) -> Attempt:
    life.audit(lake, attempt)
    return attempt


def test_partitions_that_change_while_a_batch_is_committed_refuse_it(
    lake: LakeWarehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempt = life.announce(lake, life.take_to_audited(lake, FIRST))
    catalog = lake.lake_catalog.opened
    real = catalog.commit_table

    def commit_late(*arguments: Any) -> Any:
        monkeypatch.setattr(catalog, "commit_table", real)
        partition_by(lake, DayTransform())
        return real(*arguments)

    monkeypatch.setattr(catalog, "commit_table", commit_late)
    with pytest.raises(StagingLostError, match="partitions of the table"):
        commit(lake, attempt)
    assert lake.read_target() == []


def test_rows_of_files_with_older_partitions_are_replaced_and_the_rest_lies_in_the_new_ones(
    lake: LakeWarehouse,
) -> None:
    life.take_to_published(lake, OffsetRange(ORDERS_0, 0, 5))
    partition_by(lake, DayTransform())
    attempt = life.take_replay_to_audited(lake, SECOND)
    life.publish(lake, attempt)
    files = [each.file for each in lake.table.scan().plan_files()]
    assert {(each.spec_id, len(each.partition)) for each in files} == {(lake.table.spec().spec_id, 1)}
    assert find_since(lake, "2025-12-31") == {0, 1, 2, 3, 4}
    assert {row["_offset"] for row in lake.read_target() if row["_batch_id"] == attempt.batch.batch_id} == {3, 4}
    assert find_since(lake, "2026-01-02") == set()
    assert lake.prove().holds
