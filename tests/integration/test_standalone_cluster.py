"""The same pipeline on a Spark standalone cluster, whose executors are processes of their own that may die."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Any, cast

import psycopg
import pytest
from airflow.providers.apache.spark.hooks.spark_connect import SparkConnectHook
from psycopg import sql
from typing_extensions import override

from batchledger.ledger.evidence import PostgresEvidence, PostgresEvidenceWriter
from batchledger.ledger.evidence_tables import visible_table
from batchledger.lifecycle import plans, run_batch
from batchledger.lifecycle.platform import Platform
from batchledger.model.batch import Attempt, Batch
from batchledger.model.errors import BatchBlockedError, StagingError
from batchledger.model.records.identifiers import TASK_COLUMN
from batchledger.planning.shares import OFFSETS_WORTH_A_RANGE
from batchledger.sinks.staging.tables import open_table, rows_table
from batchledger.sinks.table.sink import PostgresSink
from batchledger.source.spark.session import open_connect_session
from batchledger.wiring import build_platform
from tests.cluster import START_SECONDS, WORKERS, Cluster, standalone_cluster
from tests.conftest import SERVICES
from tests.support import TestPipeline, Workplace, change_stager, find_secret, stager_of, wait_until

RANGES = 4
RECORDS = 100
"""A batch has a task for each range, more than there are executors, each of which runs one task at a time."""


@dataclass(frozen=True, kw_only=True)
class HeldEvidence(PostgresEvidence):
    """Real evidence that no task writes until ``held`` ends its transaction: tasks have committed their rows then.

    Their reports are still to come, so that Spark does not know yet that they have written something.
    """

    held: psycopg.Connection[Any] = field(repr=False)

    @override
    def open(self, attempt: Attempt) -> PostgresEvidenceWriter:
        writer = super().open(attempt)
        self.held.execute(sql.SQL("lock table {} in share mode").format(visible_table(attempt)))
        return writer

    def count_waiting(self) -> int:
        """How many tasks wait."""
        query = "select count(*) from pg_locks where not granted and pg_blocking_pids(pid) = array[pg_backend_pid()]"
        return int(self.held.execute(query).fetchall()[0][0])


class CredulousSink(PostgresSink):
    """The real sink without one protection: it takes the rows of every task that has written some for accepted."""

    @override
    def seal_staging(self, attempt: Attempt, accepted_tasks: Sequence[int]) -> None:
        """Accept all."""
        super().seal_staging(attempt, list(count_rows(self.dsn, open_table(attempt))))


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with standalone_cluster() as cluster:
        yield cluster


@pytest.fixture
def pipeline(workplace: Workplace) -> TestPipeline:
    """A pipeline like any other; its records wait."""
    pipeline = workplace.create(partitions=RANGES)
    pipeline.send(RECORDS, partitions=RANGES)
    return pipeline


@pytest.fixture
def on_cluster(pipeline: TestPipeline, cluster: Cluster) -> Iterator[TestPipeline]:
    """The same; the connection that its file names leads to the cluster."""
    with cluster.connected():
        yield pipeline


def plan(pipeline: TestPipeline) -> Attempt:
    """Plan a batch; return its first attempt, which is still to be opened."""
    batch = plans.plan(pipeline.platform(), "run")
    assert batch is not None
    return Attempt(batch, 1, "run")


def in_parts(platform: Platform) -> Platform:
    """The same, with a task for each range: a batch of so few records would be a single task's."""
    return change_stager(platform, offsets_in_share=OFFSETS_WORTH_A_RANGE + RECORDS // RANGES)


def count_rows(dsn: str, table: sql.Identifier) -> dict[int, int]:
    """How many rows each task attempt has in the staging table."""
    query = sql.SQL("select {task}, count(*) from {table} group by {task}")
    with psycopg.connect(dsn) as connection:
        return dict(connection.execute(query.format(task=sql.Identifier(TASK_COLUMN), table=table)).fetchall())


def stage_disturbed(
    platform: Platform, attempt: Attempt, executors: int, disturb: Callable[[], object], **changes: Any
) -> Batch:
    """Stage; ``disturb`` acts when each of the executors has committed the rows of a task and not reported it yet.

    ``changes`` replace parts of the stager.
    """
    parts = in_parts(platform)
    dsn = cast("PostgresEvidence", stager_of(parts).evidence).dsn
    with ThreadPoolExecutor(1) as threads, psycopg.connect(dsn) as connection:
        evidence = HeldEvidence(dsn, held=connection)
        steps = change_stager(parts, evidence=evidence, **changes)
        step = threads.submit(run_batch.stage, steps, attempt.batch.batch_id, attempt.run)
        wait_until(lambda: evidence.count_waiting() == executors or step.done(), START_SECONDS)
        disturb()
        connection.rollback()
        return step.result()


def test_same_pipeline_runs_unchanged_on_a_cluster_and_every_worker_writes(
    pipeline: TestPipeline, cluster: Cluster
) -> None:
    """Its first batch is staged without a cluster, the second one on it: the connection leads elsewhere."""
    run_batch.run_once(pipeline.platform(), "run")
    pipeline.send(RECORDS, partitions=RANGES)
    pipeline.send_raw([(0, b"poison")])
    with cluster.connected():
        attempt, jobs = plan(pipeline), cluster.count_jobs()
        batch_id = attempt.batch.batch_id
        platform = in_parts(pipeline.platform())
        run_batch.stage(platform, batch_id, "run")
        writers = count_rows(pipeline.workplace.dsn, rows_table(attempt))
        executor_by_task = {each.attempt_id: each.executor for each in cluster.list_task_runs(jobs)}
        assert {executor_by_task[task] for task in writers} == {cluster.find_executor(each) for each in WORKERS}
        run_batch.audit(pipeline.platform(), batch_id, "run")
        run_batch.publish(pipeline.platform(), batch_id, "run")
    balances = "select sum(quarantined), sum(unexplained) from batchledger.batch_range where batch_id = %s"
    assert pipeline.query(balances, batch_id) == [(1, 0)]
    pipeline.assert_exact()
    # Spark's page shows what its event log has.
    events = cluster.read_events()
    assert b"ReadAndWriteTask" in events, "the plan is there, with the task that knows the passwords"
    for secret in (SERVICES.credentials.database_password, SERVICES.credentials.kafka_password):
        assert find_secret(secret, events) == []


def test_worker_that_is_killed_in_the_middle_of_a_batch_loses_and_doubles_nothing(
    on_cluster: TestPipeline, cluster: Cluster
) -> None:
    """S75: the other worker repeats what it has done, and the rows that Spark had no report of are not published."""
    cluster.start(*WORKERS)
    attempt, jobs, dsn = plan(on_cluster), cluster.count_jobs(), on_cluster.workplace.dsn
    victim, survivor = (cluster.find_executor(each) for each in WORKERS)
    written: dict[int, int] = {}

    def disturb() -> None:
        written.update(count_rows(dsn, open_table(attempt)))
        cluster.kill(WORKERS[0])

    stage_disturbed(on_cluster.platform(), attempt, len(WORKERS), disturb)
    runs = cluster.list_task_runs(jobs)
    killed = {each.attempt_id for each in runs if each.executor == victim}
    accepted = {each.attempt_id: each for each in runs if each.has_succeeded}
    assert killed
    assert killed < written.keys()
    assert {(each.partition, each.executor) for each in accepted.values()} == {(n, survivor) for n in range(RANGES)}
    assert count_rows(dsn, rows_table(attempt)).keys() == accepted.keys()
    run_batch.audit(on_cluster.platform(), attempt.batch.batch_id, "run")
    run_batch.publish(on_cluster.platform(), attempt.batch.batch_id, "run")
    on_cluster.assert_exact()


def test_with_the_rows_of_killed_tasks_records_are_doubled_and_the_audit_finds_them(
    on_cluster: TestPipeline, cluster: Cluster
) -> None:
    """The negative control: every row is kept that a worker has left when it died."""
    cluster.start(*WORKERS)
    attempt, platform = plan(on_cluster), on_cluster.platform()
    sink = cast("PostgresSink", platform.sink)
    credulous = CredulousSink(sink.dsn, sink.table)
    stage_disturbed(platform, attempt, len(WORKERS), lambda: cluster.kill(WORKERS[0]), sink=credulous)
    with pytest.raises(BatchBlockedError, match="no_duplicate_offsets"):
        run_batch.audit(platform, attempt.batch.batch_id, "run")
    assert on_cluster.count_target_rows() == 0
    run_batch.run_once(platform, "next", attempt.batch.batch_id)
    on_cluster.assert_exact()


def test_batch_whose_workers_have_all_died_ends_with_a_retryable_error_and_the_next_attempt_succeeds(
    on_cluster: TestPipeline, cluster: Cluster
) -> None:
    """Spark itself would wait for other executors for ever; its job is over when the step is."""
    url = SparkConnectHook(conn_id=on_cluster.config.spark).get_connection_url()
    impatient = partial(open_connect_session, url, "impatient", starved_seconds=3)
    attempt, jobs, executors = plan(on_cluster), cluster.count_jobs(), len(cluster.list_executors())
    platform = build_platform(on_cluster.config, open_session=impatient)
    with pytest.raises(StagingError, match="no task of the job has run for 3 s") as caught:
        stage_disturbed(platform, attempt, executors, lambda: cluster.kill(*WORKERS))
    assert caught.value.retryable
    assert not any(each.has_succeeded for each in cluster.list_task_runs(jobs))
    assert (on_cluster.count_target_rows(), on_cluster.list_staging()) == (0, [])
    cluster.start(WORKERS[0])
    run_batch.run_once(on_cluster.platform(), "run", attempt.batch.batch_id)
    on_cluster.assert_exact()
