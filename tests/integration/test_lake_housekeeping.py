"""Housekeeping of an Iceberg table by a real Spark: what readers see stays, and what tells of the newest batch."""

import json
import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pyarrow as pa
import pytest
from airflow.providers.apache.spark.hooks.spark_connect import SparkConnectHook
from pyiceberg.table import Table
from pyspark.errors import PySparkException
from typer.testing import CliRunner

from batchledger import cli
from batchledger.formats.arrow_types import mark_columns
from batchledger.interfaces.upkeep import keep_house
from batchledger.lifecycle import run_batch
from batchledger.lifecycle.requirement import publish_rows
from batchledger.model.batch import Attempt, BatchState, Staged
from batchledger.model.errors import ConfigurationError, ServiceUnavailableError
from batchledger.model.housekeeping import Leftover
from batchledger.model.offsets import OffsetRange
from batchledger.model.records.columns import Column
from batchledger.model.records.comparison import Comparison
from batchledger.model.records.rules import Evolution
from batchledger.model.records.types import Scalar
from batchledger.settings.connections import load_connection
from batchledger.sinks.iceberg import catalog, commits, maintenance
from batchledger.sinks.iceberg.catalog import LakeCatalog, open_catalog
from batchledger.sinks.iceberg.commits import branch_of, tag_before, tag_of
from batchledger.source.spark.session import open_connect_session
from tests.contract import life
from tests.contract.lake_warehouse import (
    LakeWarehouse,
    before_the_next_commit,
    catalog_in,
    open_lake,
    unguarded,
)
from tests.contract.life import FIRST, ORDERS_0
from tests.contract.test_lake_evolution import publish, stage
from tests.fakes.work import ROW_SCHEMA
from tests.support import TestPipeline, Workplace, wait_until

FEW = [OffsetRange(ORDERS_0, start, start + 3) for start in range(0, 18, 3)]
NEXT = OffsetRange(ORDERS_0, 18, 21)
LONG_AGO = timedelta(days=4).total_seconds()


@pytest.fixture
def lake(warehouse_dsn: str, spark: None, tmp_path: Path) -> Iterator[LakeWarehouse]:
    """A table that Spark maintains."""
    url = SparkConnectHook(conn_id="spark_default").get_connection_url()
    session = partial(open_connect_session, url, "housekeeping of tests")
    yield from open_lake(warehouse_dsn, tmp_path, open_session=session)


@pytest.fixture
def full(lake: LakeWarehouse) -> LakeWarehouse:
    """Six batches are published, each in a small file, and every state may expire at once."""
    for each in FEW:
        newest = life.take_to_published(lake, each)
    let_states_expire(lake.table)
    assert tag_of(newest.batch) in lake.table.metadata.refs
    return lake


def let_states_expire(table: Table) -> None:
    """All that may expire does so at once, tags and branches too; Iceberg keeps states for five days otherwise."""
    with table.transaction() as change:
        change.set_properties({f"history.expire.max-{each}-age-ms": "1" for each in ("snapshot", "ref")})


def newest_of(lake: LakeWarehouse) -> Attempt:
    batch_id = max(each.batch_id for each in lake.load_published_history().ranges)
    return Attempt(lake.ledger.load_batch(batch_id), 1, "run-1")


def list_files(table: Table) -> set[str]:
    return {each.file.file_path for each in table.scan().plan_files()}


def tidy(lake: LakeWarehouse) -> dict[Leftover, int]:
    return {each.kind: each.count for each in lake.sink.tidy().removals}


def sorted_rows(lake: LakeWarehouse) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for row in lake.read_target())


def test_small_files_become_one_old_states_go_and_the_newest_commit_is_found(full: LakeWarehouse) -> None:
    rows, newest = sorted_rows(full), newest_of(full)
    assert len(list_files(full.table)) == len(FEW)
    done = tidy(full)
    assert done[Leftover.SMALL_FILE] == len(FEW)
    assert len(list_files(full.table)) == 1
    refs = full.table.metadata.refs
    assert refs.keys() == {"main", tag_of(newest.batch), tag_before(newest.batch)}
    kept = {each.snapshot_id for each in full.table.metadata.snapshots}
    assert kept == {ref.snapshot_id for ref in refs.values()}, "and all others went"
    assert done[Leftover.SNAPSHOT] > len(kept)
    assert full.sink.find_commit(newest)
    assert sorted_rows(full) == rows
    assert full.prove().holds
    assert tidy(full) == dict.fromkeys(done, 0)


def test_uuids_stay_what_they_are_in_the_files_that_spark_writes_together(lake: LakeWarehouse) -> None:
    for each in FEW:
        rows = uuids_of(each)
        attempt = life.stage(lake, life.store(lake, each, run=f"run-{each.start}"), f"run-{each.start}", rows=rows)
        life.audit(lake, attempt)
        life.publish(lake, attempt)
    let_states_expire(lake.table)
    before = sorted_rows(lake)
    assert tidy(lake)[Leftover.SMALL_FILE] == len(FEW)
    assert len(list_files(lake.table)) == 1
    assert sorted_rows(lake) == before
    assert {type(row["message_id"]) for row in lake.read_target()} == {UUID}
    again = life.stage(lake, life.store_replay(lake, FEW[1]), "again", rows=uuids_of(FEW[1]))
    assert lake.sink.compare(again, 0) == Comparison(unchanged=len(FEW[1]))


def uuids_of(range_: OffsetRange) -> pa.RecordBatch:
    """Rows whose message ids are UUIDs, made of their offsets."""
    rows = life.batch_of_rows(life.rows_of([range_]))
    texts = pa.array([str(UUID(int=offset)) for offset in range(range_.start, range_.until)])
    columns = [texts if each == "message_id" else rows[each] for each in rows.schema.names]
    schema = mark_columns(rows.schema, [Column("message_id", Scalar.UUID)])
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def test_spark_writes_files_of_two_schemas_together_and_leaves_a_branch_whose_columns_are_still_to_come(
    full: LakeWarehouse,
) -> None:
    lake = replace(full, evolution=Evolution.ADD)
    publish(lake, stage(lake, life.store(lake, NEXT), {"note": (pa.string(), ["a", "b", "c"])}))
    later = life.store(lake, OffsetRange(ORDERS_0, 21, 23), run="later")
    is_open = stage(lake, later, {"note": (pa.string(), ["d", None]), "tag": (pa.int64(), [1, 2])})
    rows = sorted_rows(lake)
    assert tidy(lake)[Leftover.SMALL_FILE] == len(FEW) + 1
    assert sorted_rows(lake) == rows
    publish(lake, is_open)
    by_offset = sorted(lake.read_target(), key=lambda row: row["_offset"])
    assert [(row["note"], row["tag"]) for row in by_offset[-6:]] == [
        (None, None),
        ("a", None),
        ("b", None),
        ("c", None),
        ("d", 1),
        (None, 2),
    ]
    assert lake.prove().holds


def test_negative_control_without_its_tag_the_newest_commit_is_lost(full: LakeWarehouse) -> None:
    newest = newest_of(full)
    for name in (tag_of(newest.batch), tag_before(newest.batch)):
        full.table.manage_snapshots().remove_tag(name).commit()
    assert full.sink.find_commit(newest), "the history tells of it"
    tidy(full)
    assert not full.sink.find_commit(newest)


def test_negative_control_a_tag_that_may_become_no_older_than_others_is_lost(
    lake: LakeWarehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commits, "FOR_GOOD", {})
    newest = life.take_to_published(lake, FIRST)
    let_states_expire(lake.table)
    tidy(lake)
    assert tag_of(newest.batch) not in lake.table.metadata.refs


def test_replay_that_was_committed_before_and_is_confirmed_after_finds_what_it_has_replaced(
    full: LakeWarehouse,
) -> None:
    """The tag of the state before keeps it, and its files, although these were written together since."""
    attempt = life.announce(full, life.take_replay_to_audited(full, FIRST))
    with full.ledger.publication(attempt, BatchState.COMMITTING) as publication:
        rows = publication.load()
        removed = full.sink.withdraw(rows)
        full.sink.commit(publish_rows(full.sink, publication, replace(rows, handed=removed.handed)))
        publication.connection.rollback()
    tidy(full)
    assert full.sink.find_commit(attempt)
    with full.ledger.publication(attempt, BatchState.COMMITTING) as publication:
        assert full.sink.withdraw(publication.load()).rows == removed.rows == [len(FIRST)]


def test_staged_batch_is_published_on_what_housekeeping_has_written(full: LakeWarehouse) -> None:
    attempt = life.take_to_audited(full, NEXT)
    tidy(full)
    assert branch_of(attempt) in full.table.metadata.refs
    assert life.publish(full, attempt) == len(NEXT)
    assert len(full.read_target()) == sum(map(len, FEW)) + len(NEXT)
    assert full.prove().holds


def test_batch_is_published_although_files_are_written_together_while_it_commits(
    full: LakeWarehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempt = life.take_to_audited(full, NEXT)
    before_the_next_commit(full, monkeypatch, lambda: tidy(full))
    assert life.publish(full, attempt) == len(NEXT)
    assert len(list_files(full.table)) == 2
    assert full.prove().holds


def test_replay_is_not_published_while_files_are_written_together_and_is_the_next_time(
    full: LakeWarehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was decided which files it writes anew; now the rows lie in another one."""
    rows = [row[:-1] for row in sorted_rows(full)]
    attempt = life.announce(full, life.take_replay_to_audited(full, FIRST))

    def publish() -> None:
        with full.ledger.publication(attempt, BatchState.COMMITTING) as publication:
            full.sink.commit(life.apply(full, publication))

    before_the_next_commit(full, monkeypatch, lambda: tidy(full))
    with pytest.raises(ServiceUnavailableError, match="others have committed"):
        publish()
    assert not full.sink.find_commit(attempt)
    publish()
    assert [row[:-1] for row in sorted_rows(full)] == rows
    assert full.prove().holds


@pytest.mark.parametrize("is_replay", [False, True], ids=["batch", "replay"])
def test_what_is_published_while_spark_is_about_to_commit_stays(full: LakeWarehouse, is_replay: bool) -> None:
    """Both have read the same state; the publication is first in the queue for the table's row of the catalog.

    Spark gives up if a replay has taken away what it has written together, and does so the next time.
    """
    attempt = life.take_replay_to_audited(full, FIRST) if is_replay else life.take_to_audited(full, NEXT)
    with psycopg.connect(full.dsn) as gate, psycopg.connect(full.dsn, autocommit=True) as watch:
        gate.execute("select 1 from iceberg_tables where table_namespace = %s for update", [full.schema])

        def count_waiting() -> int:
            statement = (
                "select count(*) from pg_stat_activity "
                "where wait_event_type = 'Lock' and query ilike '%iceberg_tables%'"
            )
            return int(watch.execute(statement).fetchall()[0][0])

        with ThreadPoolExecutor(2) as pool:
            publication = pool.submit(life.publish, full, attempt)
            wait_until(lambda: count_waiting() == 1)
            written_together = pool.submit(tidy, full)
            wait_until(lambda: count_waiting() == 2)
            gate.rollback()
            assert publication.result() == sum(map(len, attempt.batch.ranges))
            if is_replay:
                with pytest.raises(ServiceUnavailableError, match="Spark could not maintain table") as left:
                    written_together.result()
                assert left.value.subject == full.lake_table.name
                assert tidy(full)[Leftover.SMALL_FILE] == len(FEW)
            else:
                assert written_together.result()[Leftover.SMALL_FILE] == len(FEW)
    assert len(list_files(full.table)) == (1 if is_replay else 2)
    assert full.sink.find_commit(attempt)
    assert full.prove().holds


@pytest.mark.parametrize("is_guarded", [True, False], ids=["guarded", "negative control"])
def test_table_that_others_have_committed_to_while_a_batch_was_staged_is_one_that_spark_reads(
    lake: LakeWarehouse, monkeypatch: pytest.MonkeyPatch, is_guarded: bool
) -> None:
    life.take_to_published(lake, FEW[0])

    def others() -> None:
        for _ in range(3):
            lake.table.append(lake.table.schema().as_arrow().empty_table())

    before_the_next_commit(lake, monkeypatch, others, tuple if is_guarded else unguarded)
    life.take_to_audited(lake, FEW[1])
    # By the path of the file: through the catalog, Spark tries again for more than a minute.
    with lake.open_session() as session:
        read = session.read.format("iceberg").load(lake.table.metadata_location)
        if is_guarded:
            assert read.count() == len(FEW[0])
            tidy(lake)
        else:
            with pytest.raises(PySparkException, match="Invalid snapshot with sequence number"):
                read.count()


def make_old(folder: Path) -> None:
    """Make every file so old that no writer is still at work on it, as far as Iceberg knows."""
    for path in filter(Path.is_file, folder.rglob("*")):
        os.utime(path, (time.time() - LONG_AGO,) * 2)


def test_files_of_nobody_go_and_those_of_an_attempt_that_is_being_staged_for_days_do_not(lake: LakeWarehouse) -> None:
    """S75: no branch holds them before the attempt is sealed."""
    life.take_to_published(lake, FIRST)
    batch = life.store(lake, FEW[1])
    attempt = lake.ledger.open_attempt(batch.batch_id, "run-1")
    life.witness(lake.evidence.open(attempt), 0, batch.ranges, life.quarantine_of([]))
    writer = lake.sink.open_staging(attempt, ROW_SCHEMA)
    life.write(writer, 0, life.batch_of_rows(life.rows_of(batch.ranges)))
    with psycopg.connect(lake.dsn) as connection:
        earlier = "update batchledger.attempt set opened_at = opened_at - interval '5 d' where batch_id = %s"
        connection.execute(earlier, [batch.batch_id])
    make_old(lake.folder)
    assert tidy(lake)[Leftover.ORPHANED_FILE] == 0
    life.write(writer, 1, life.batch_of_rows(life.rows_of(batch.ranges)))
    lake.sink.seal_staging(attempt, [0])
    lake.ledger.mark_staged(attempt, Staged(len(FEW[1])))
    make_old(lake.folder)
    assert tidy(lake)[Leftover.ORPHANED_FILE] >= 1, "what the task wrote that was not accepted"
    life.audit(lake, attempt)
    assert life.publish(lake, attempt) == len(FEW[1])
    assert lake.prove().holds


def test_negative_control_files_that_no_attempt_is_known_to_write_go_when_they_are_old(lake: LakeWarehouse) -> None:
    life.take_to_published(lake, FEW[0])
    attempt = lake.ledger.open_attempt(life.store(lake, FEW[1]).batch_id, "run-1")
    life.write(lake.sink.open_staging(attempt, ROW_SCHEMA), 0, life.batch_of_rows(life.rows_of([FEW[1]])))
    assert tidy(lake)[Leftover.ORPHANED_FILE] == 0, "they are young"
    make_old(lake.folder)
    with psycopg.connect(lake.dsn) as connection:
        connection.execute(f"drop table batchledger_staging.b{attempt.batch.batch_id}_a1_files".encode())
    assert tidy(lake)[Leftover.ORPHANED_FILE] >= 2, "rows and their list"


def test_spark_without_iceberg_says_what_it_needs(full: LakeWarehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (catalog, maintenance):
        monkeypatch.setattr(module, "SPARK_CATALOG", "org.apache.iceberg.missing.SparkCatalog")
    url = SparkConnectHook(conn_id="spark_default").get_connection_url()
    full.open_session = partial(open_connect_session, url, "housekeeping without Iceberg")
    with pytest.raises(ConfigurationError, match="it has no Iceberg") as refused:
        full.sink.tidy()
    assert refused.value.subject == full.lake_catalog.name
    assert "iceberg-spark-runtime" in str(refused.value)


def test_catalog_that_spark_does_not_reach_is_another_matter(lake: LakeWarehouse) -> None:
    life.take_to_published(lake, FIRST)
    url = SparkConnectHook(conn_id="spark_default").get_connection_url()
    there = catalog_in(lake.dsn, lake.folder)
    unreachable = LakeCatalog("lake", there.properties, {"uri": "jdbc:postgresql://127.0.0.1:1/lake"})
    session = partial(open_connect_session, url, "housekeeping without a catalog")
    with pytest.raises(ServiceUnavailableError, match="Spark could not maintain table lake"):
        replace(lake.lake_table, catalog=unreachable, open_session=session).maintain(None)


def connect_spark(pipeline: TestPipeline, monkeypatch: pytest.MonkeyPatch, **connection: object) -> None:
    """Let a pipeline have another Spark from now on."""
    monkeypatch.setenv("AIRFLOW_CONN_OTHER_SPARK", json.dumps(connection))
    pipeline.path.write_text(f"{pipeline.path.read_text()}spark: other_spark\n")


@pytest.fixture
def workplace(workplace: Workplace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workplace:
    """One whose pipelines are all that housekeeping finds."""
    monkeypatch.setenv("BATCHLEDGER_PIPELINES", str(tmp_path))
    return replace(workplace, folder=tmp_path)


def publish_few(workplace: Workplace, name: str = "") -> TestPipeline:
    pipeline = workplace.create(into="lake", partitions=1, name=name)
    for run in range(6):
        pipeline.send(5, partitions=1)
        run_batch.run_once(pipeline.platform(), f"run {run}")
    return pipeline


def count_files(pipeline: TestPipeline) -> int:
    lake = open_catalog(load_connection("lake"))
    try:
        return len(list_files(lake.opened.load_table(("tests", f"{pipeline.name}_target"))))
    finally:
        lake.rest()


def test_housekeeping_keeps_the_table_of_a_pipeline_fit_and_says_so(workplace: Workplace) -> None:
    pipeline = publish_few(workplace)
    (dry,) = json.loads(CliRunner().invoke(cli.app, ["housekeeping", "--dry-run", "--json"]).stdout)
    assert [each for each in dry["removed"] if pipeline.name in each["subject"]] == []
    (done,) = json.loads(CliRunner().invoke(cli.app, ["housekeeping", "--json"]).stdout)
    removed = {each["kind"]: each["count"] for each in done["removed"] if pipeline.name in each["subject"]}
    assert (removed, count_files(pipeline)) == ({"small file": 6}, 1)
    pipeline.assert_exact()


def test_table_of_a_pipeline_with_spark_submit_is_left_as_it_is_and_it_is_said(
    workplace: Workplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = publish_few(workplace)
    connect_spark(pipeline, monkeypatch, conn_type="spark", host="local[2]")
    done = CliRunner().invoke(cli.app, ["housekeeping"])
    assert f"table lake.tests.{pipeline.name}_target is not maintained" in " ".join(done.stdout.split())
    assert count_files(pipeline) == 6


def test_spark_that_does_not_answer_stops_no_other_pipeline_and_is_told_in_the_end(
    workplace: Workplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, last = (publish_few(workplace, f"{letter}_{uuid4().hex[:12]}") for letter in "az")
    connect_spark(first, monkeypatch, conn_type="spark-connect", host="sc://localhost", port=1)
    with pytest.raises(ServiceUnavailableError, match="localhost:1 does not answer"):
        keep_house()
    assert (count_files(first), count_files(last)) == (6, 1)
