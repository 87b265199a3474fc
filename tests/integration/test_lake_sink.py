"""From a topic into an Iceberg table, with everything that is real: Spark, broker, database, files."""

import json
from pathlib import Path

import pytest
from airflow.providers.apache.spark.hooks.spark_connect import SparkConnectHook

from batchledger.books.history import load_batch_history
from batchledger.lifecycle import plans, run_batch
from batchledger.lifecycle.decisions import accept, rewind
from batchledger.local.stack.home import Home
from batchledger.model.batch import BatchState, Decision
from batchledger.model.errors import BatchBlockedError, DecisionRefusedError
from batchledger.planning.live import StartPolicy
from batchledger.planning.replay import Replay
from batchledger.planning.rewind import Rewind
from batchledger.source.spark.session import open_connect_session
from batchledger.wiring import verify_pipeline
from tests.conftest import TestServices
from tests.rest_catalog import HOST, LOGIN, PASSWORD, Fault, serve_rest_catalog
from tests.support import Workplace

AT_MOST_TEN = {
    "type": "expect_column_values_to_be_between",
    "column": "number",
    "max_value": 10,
    "on_failure": "quarantine",
}
ANA = Decision("ana@host", "the schema was wrong")


@pytest.mark.always
def test_every_record_is_in_the_table_once_and_the_second_run_has_nothing_to_do(workplace: Workplace) -> None:
    pipeline = workplace.create(
        into="lake", partitions=3, limits={"max_records": 600}, sink={"partition_by": ["day(_timestamp)"]}
    )
    pipeline.send(1000, partitions=3)
    for run in ("first", "second"):
        batch = run_batch.run_once(pipeline.platform(), run)
        assert batch is not None
        assert batch.state is BatchState.PUBLISHED
    pipeline.assert_exact()
    assert run_batch.run_once(pipeline.platform(), "third") is None
    assert pipeline.list_staging() == []
    assert {(row["number"], row["amount"]) for row in pipeline.read_output()} == {(n, n / 4) for n in range(1000)}


def test_batches_go_on_after_spark_has_deleted_the_folder_of_their_session(
    workplace: Workplace, services: TestServices
) -> None:
    """An executor forgets a session after 30 minutes of rest, or when about a hundred others have been at work."""
    pipeline = workplace.create(into="lake", partitions=1)
    pipeline.send(3, partitions=1)
    assert run_batch.run_once(pipeline.platform(), "before") is not None
    folders = list_session_folders(services.home)
    assert folders
    number = 0
    while folders & list_session_folders(services.home):
        number += 1
        with open_connect_session(SparkConnectHook("spark_default").get_connection_url(), f"other {number}") as other:
            assert len(other.range(1).collect()) == 1
    pipeline.send(3, partitions=1)
    assert run_batch.run_once(pipeline.platform(), "after") is not None
    pipeline.assert_exact()


def list_session_folders(home: Home) -> set[Path]:
    """The folders that Spark starts the Python workers of its sessions in."""
    return {each for each in (home.local / "spark" / "tmp").glob("spark-*/userFiles-*/*") if each.is_dir()}


def test_poison_is_quarantined_duplicates_are_dropped_and_checks_see_the_rows(workplace: Workplace) -> None:
    pipeline = workplace.create(
        into="lake",
        partitions=1,
        dedupe={"key": ["message_id"], "remember": "30d"},
        checks=[AT_MOST_TEN],
    )
    pipeline.send(5, partitions=1)
    again, wrong = {"message_id": pipeline.sent[0], "number": 1}, {"message_id": "wrong", "number": 11}
    pipeline.send_raw([(0, b"not json"), *((0, json.dumps(each).encode()) for each in (again, wrong))])
    batch = run_batch.run_once(pipeline.platform(), "run")
    assert batch is not None
    (balance,) = load_batch_history(workplace.dsn, batch.batch_id).ranges
    assert (balance.accepted, balance.quarantined, balance.duplicates, balance.unexplained) == (5, 2, 1, 0)
    pipeline.assert_exact()


def test_newest_record_of_a_key_wins_a_tombstone_deletes_it_and_an_older_one_does_not_bring_it_back(
    workplace: Workplace,
) -> None:
    pipeline = workplace.create(
        into="lake",
        partitions=1,
        source={"tombstones": "delete"},
        sink={"mode": "upsert", "key": ["message_id"]},
        limits={"max_records": 3},
    )
    records = [("a", 1), ("b", 1), ("a", 2), ("b", None), ("c", 1), ("c", 2)]
    pipeline.send_keyed(
        (0, key.encode(), None if number is None else json.dumps({"message_id": key, "number": number}).encode())
        for key, number in records
    )
    first = run_batch.run_once(pipeline.platform(), "first")
    assert first is not None
    assert {row["message_id"]: row["number"] for row in pipeline.read_output()} == {"a": 2, "b": 1}
    run_batch.run_once(pipeline.platform(), "second")
    newest = {"a": 2, "c": 2}
    assert {row["message_id"]: row["number"] for row in pipeline.read_output()} == newest
    platform = pipeline.platform()
    replay = plans.plan_replay(platform, Replay(first.ranges), "again", ANA, "again")
    assert replay is not None
    run_batch.take_through(platform, replay.batch_id, "again")
    assert {row["message_id"]: row["number"] for row in pipeline.read_output()} == newest
    assert verify_pipeline(pipeline.config).holds


def test_replay_replaces_its_rows_and_a_rewind_does_not_empty_the_table(workplace: Workplace) -> None:
    pipeline = workplace.create(into="lake")
    pipeline.send(10)
    run_batch.run_once(pipeline.platform(), "run")
    with pytest.raises(DecisionRefusedError, match="Rewind without --truncate"):
        rewind(pipeline.platform(), Rewind(StartPolicy.EARLIEST, truncate=True), ANA)
    pipeline.assert_exact()
    rewind(pipeline.platform(), Rewind(StartPolicy.EARLIEST), ANA)
    again = run_batch.run_once(pipeline.platform(), "again")
    assert again is not None
    assert {row["_batch_id"] for row in pipeline.read_output()} == {again.batch_id}
    pipeline.assert_exact()


def test_row_that_the_table_refuses_blocks_the_batch_and_nothing_is_visible(workplace: Workplace) -> None:
    pipeline = workplace.create(into="lake", partitions=1, sink={"mode": "upsert", "key": ["number"]})
    pipeline.send(3, partitions=1)
    pipeline.send_raw([(0, b'{"message_id": "without a number"}')])
    refusal = r"records without a value in sink.key \(number\).*For example .*@3"
    with pytest.raises(BatchBlockedError, match=f"(?s){refusal}") as blocked:
        run_batch.run_once(pipeline.platform(), "run")
    with pytest.raises(DecisionRefusedError, match=f"(?s)cannot be accepted: .*{refusal}"):
        accept(pipeline.platform(), blocked.value.batch_id, ANA)
    assert pipeline.read_output() == []


def test_batches_go_through_a_rest_catalog_also_when_the_answer_to_a_commit_is_lost(
    workplace: Workplace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serve_rest_catalog(tmp_path) as server:
        address = {"conn_type": "iceberg", "host": HOST, "port": server.port, "login": LOGIN, "password": PASSWORD}
        connection = {**address, "extra": {"type": "rest", "warehouse": "shop"}}
        monkeypatch.setenv("AIRFLOW_CONN_LAKE_REST", json.dumps(connection))
        pipeline = workplace.create(into="lake", limits={"max_records": 20}, sink={"catalog": "lake_rest"})
        pipeline.send(60)
        for faults in ([], [None, Fault.LOST_GATEWAY], [None, Fault.MADE_TWICE]):
            server.faults = faults  # Later batches are staged, and the answer to their publication gets lost.
            batch = run_batch.run_once(pipeline.platform(), "run")
            assert batch is not None
            assert (batch.state, batch.attempt, server.faults) == (BatchState.PUBLISHED, 1, [])
        pipeline.assert_exact()
        assert run_batch.run_once(pipeline.platform(), "last") is None
