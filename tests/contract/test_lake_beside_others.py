"""What others do to a table meanwhile, or have done to it before: other attempts, other ledgers, and its owner."""

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.expressions import AlwaysTrue

from batchledger.lifecycle.delivery import deliver
from batchledger.lifecycle.requirement import publish_rows, require_own_target
from batchledger.model.batch import Attempt, DeliveryMode, Position
from batchledger.model.errors import OutcomeUnknownError, TargetChangedError
from batchledger.model.offsets import OffsetRange
from batchledger.model.records.rules import Upsert
from batchledger.planning.live import Plan
from batchledger.sinks.iceberg import commits
from batchledger.sinks.iceberg.commits import branch_of, tag_before, tag_of
from batchledger.sinks.iceberg.coordinates import Change, as_coordinates
from tests.contract import life
from tests.contract.lake_warehouse import EVERY_CATALOG, LakeWarehouse, before_the_next_commit, unguarded
from tests.contract.life import FIRST, IDENTITY, ORDERS_0, SECOND
from tests.fakes.crash import CrashOnce, SimulatedCrashError

NONE = as_coordinates([])


def append_by_another(lake: LakeWarehouse, **columns: Any) -> None:
    lake.table.append(pa.table({"_topic": ["else"], **columns}))


def stage_another(lake: LakeWarehouse, attempt: Attempt) -> None:
    lake.lake_table.stage(replace(attempt, number=attempt.number + 7), [])


def numbers_of(lake: LakeWarehouse) -> tuple[int, list[int]]:
    """The newest number that the table says it has given, and its snapshots' numbers."""
    metadata: Any = lake.table.metadata
    return metadata.last_sequence_number, sorted(each.sequence_number for each in metadata.snapshots)


@EVERY_CATALOG
@pytest.mark.parametrize("is_guarded", [True, False], ids=["guarded", "negative control"])
def test_commits_of_others_while_a_batch_is_staged_do_not_set_the_numbers_of_the_table_back(
    lake: LakeWarehouse, monkeypatch: pytest.MonkeyPatch, is_guarded: bool
) -> None:
    """Iceberg's own library, and with it Spark, does not load a table with a snapshot that is newer than its newest."""
    life.take_to_published(lake, FIRST)

    def others() -> None:
        for _ in range(3):
            append_by_another(lake)

    before_the_next_commit(lake, monkeypatch, others, tuple if is_guarded else unguarded)
    attempt = life.take_to_audited(lake, SECOND)
    newest, numbers = numbers_of(lake)
    assert (numbers[-1] == newest) is is_guarded
    assert (len(set(numbers)) == len(numbers)) is is_guarded
    if is_guarded:
        life.publish(lake, attempt)
        assert lake.prove().holds


@EVERY_CATALOG
def test_attempt_that_is_staged_meanwhile_does_not_make_the_outcome_of_a_commit_unknown(
    lake: LakeWarehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With at_most_once an unknown outcome is rows that are lost."""
    attempt = life.announce(lake, life.take_to_audited(lake, FIRST))
    before_the_next_commit(lake, monkeypatch, lambda: stage_another(lake, attempt))
    lake.lake_table.commit(attempt, None, Change(NONE, NONE, len(FIRST)), read_epoch=int, is_found=True)
    assert len(lake.read_target()) == len(FIRST)


def test_negative_control_without_looking_at_the_numbers_the_outcome_is_unknown(
    lake: LakeWarehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempt = life.announce(lake, life.take_to_audited(lake, FIRST))
    monkeypatch.setattr(commits._AssertLastSequenceNumber, "validate", lambda *_: None)
    before_the_next_commit(lake, monkeypatch, lambda: stage_another(lake, attempt))
    with pytest.raises(OutcomeUnknownError):
        lake.lake_table.commit(attempt, None, Change(NONE, NONE, len(FIRST)), read_epoch=int, is_found=True)


@EVERY_CATALOG
def test_staging_whose_commit_was_refused_although_it_had_been_made_is_not_staged_twice(
    lake: LakeWarehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a gateway answers that has sent it again."""
    catalog = lake.lake_catalog.opened
    real = catalog.commit_table

    def refuse_after(*arguments: Any) -> Any:
        monkeypatch.setattr(catalog, "commit_table", real)
        real(*arguments)
        raise CommitFailedException("Requirement failed")

    life.take_to_published(lake, FIRST)
    monkeypatch.setattr(catalog, "commit_table", refuse_after)
    life.take_to_published(lake, SECOND)
    assert lake.prove().holds


@EVERY_CATALOG
def test_renamed_table_is_missed_and_no_other_one_is_put_in_its_place(lake: LakeWarehouse) -> None:
    """Files of the old one would look like lost files of the new one."""
    life.take_to_published(lake, FIRST)
    lake.catalog.rename_table((lake.schema, "orders"), (lake.schema, "orders_of_2025"))
    attempt = lake.ledger.open_attempt(life.store(lake, SECOND).batch_id, "run-1")
    with pytest.raises(TargetChangedError, match="was dropped or renamed") as refused:
        require_own_target(life.platform(lake), attempt)
    assert (refused.value.pipeline, refused.value.found) == (lake.pipeline, None)
    assert not lake.catalog.table_exists((lake.schema, "orders"))


def test_tables_of_one_name_lie_at_different_places(lake: LakeWarehouse) -> None:
    """So maintenance of the second one does not take the files of the first one for lost."""
    life.take_to_published(lake, FIRST)
    lake.catalog.rename_table((lake.schema, "orders"), (lake.schema, "orders_of_2025"))
    other = replace(lake, pipeline=f"{lake.pipeline}_other")
    life.take_to_published(other, FIRST)
    places = {lake.catalog.load_table((lake.schema, each)).location() for each in ("orders", "orders_of_2025")}
    assert len(places) == 2
    assert all(other.startswith(f"{place}/") is False for place in places for other in places)


def test_table_that_the_ledger_has_not_published_to_is_not_maintained(lake: LakeWarehouse) -> None:
    """It belongs to others, or to another ledger. The pipeline's own table is named as left out without Spark."""
    other = replace(lake, pipeline=f"{lake.pipeline}_other")
    life.take_to_audited(lake, FIRST)
    assert list(lake.sink.tidy().left_out) == []
    life.take_to_published(other, FIRST)
    assert len(lake.sink.tidy().left_out) == 1


@EVERY_CATALOG
@pytest.mark.parametrize("is_tagged", [True, False], ids=["tagged", "not tagged"])
def test_table_with_a_batch_that_the_ledger_does_not_know_is_refused_before_and_after_staging(
    lake: LakeWarehouse, is_tagged: bool
) -> None:
    """As it is after the ledger was restored from a backup, or beside another ledger with a pipeline of the name."""
    first = life.take_to_published(lake, FIRST)
    attempt = life.take_to_audited(lake, SECOND)
    unknown = replace(attempt, batch=replace(attempt.batch, planned_at=first.batch.planned_at.replace(year=2020)))
    lake.lake_table.stage(replace(unknown, number=7), [])
    lake.lake_table.commit(replace(unknown, number=7), None, Change(NONE, NONE, 0), read_epoch=int, is_found=is_tagged)
    told = f"batch of pipeline {lake.pipeline} in .* is not in this ledger"
    with pytest.raises(TargetChangedError, match=told) as raised, lake.ledger.publication(attempt) as publication:
        publish_rows(lake.sink, publication, publication.load())
    newest = unknown.batch if is_tagged else first.batch
    assert str(raised.value).endswith(f"{tag_of(newest)}, {tag_before(newest)}.")
    again = lake.ledger.open_attempt(attempt.batch.batch_id, "run-2")
    with pytest.raises(TargetChangedError, match=told):
        require_own_target(life.platform(lake), again)


@pytest.mark.parametrize("upsert", [None, Upsert(("message_id",))], ids=["append", "upsert"])
def test_table_that_is_gone_when_the_batch_is_published_is_named_before_its_rows_are_asked_for(
    lake: LakeWarehouse, upsert: Upsert | None
) -> None:
    lake = lake.with_rules(upsert=upsert)
    life.take_to_published(lake, FIRST)
    attempt = life.take_to_audited(lake, SECOND, run="run-2")
    lake.catalog.drop_table((lake.schema, "orders"))
    with pytest.raises(TargetChangedError, match="was dropped or renamed") as refused:
        life.publish(lake, attempt)
    assert (refused.value.pipeline, refused.value.found) == (lake.pipeline, None)


@pytest.mark.parametrize("upsert", [None, Upsert(("message_id",))], ids=["append", "upsert"])
def test_rows_from_nowhere_in_the_files_of_batches_stay_and_hold_up_nothing(
    lake: LakeWarehouse, upsert: Upsert | None
) -> None:
    """Where maintenance has written their file and ours together."""
    warehouse = replace(lake, upsert=upsert)
    life.take_to_published(warehouse, FIRST)
    append_by_another(lake)
    append_by_another(lake, _offset=pa.array([1], pa.int64()))
    lake.table.overwrite(lake.table.scan().to_arrow(), AlwaysTrue())
    assert len(list(lake.table.scan().plan_files())) == 1
    life.publish(warehouse, life.take_replay_to_audited(warehouse, OffsetRange(ORDERS_0, 1, 2)))
    life.take_to_published(warehouse, SECOND)
    assert sum(row["_topic"] == "else" for row in lake.read_target()) == 2
    ours = [row["_offset"] for row in lake.read_target() if row["_topic"] == "orders"]
    assert sorted(ours) == list(range(FIRST.start, SECOND.until))
    counts = lake.sink.count_target(lake.pipeline, [FIRST]).by_batch
    assert sum(each.rows for each in counts.values()) == len(FIRST)


def test_at_least_once_whose_run_dies_between_its_commits_goes_on_from_the_same_staging(lake: LakeWarehouse) -> None:
    plan = Plan((FIRST,), 0, (Position(ORDERS_0, 0, 0, IDENTITY),), delivery=DeliveryMode.AT_LEAST_ONCE)
    attempt = life.stage(lake, lake.ledger.store_plan(lake.pipeline, plan, "run-1"))
    life.audit(lake, attempt)
    with pytest.raises(SimulatedCrashError):
        deliver(life.platform(lake, crash=CrashOnce("between_commits")), attempt)
    assert branch_of(attempt) in lake.table.metadata.refs
    deliver(life.platform(lake), attempt)
    assert life.next_offsets(lake) == {ORDERS_0: FIRST.until}
    assert len(lake.read_target()) == 2 * len(FIRST)
    lake.sink.drop_staging(attempt)
    assert branch_of(attempt) not in lake.table.metadata.refs
