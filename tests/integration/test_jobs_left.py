"""No job of Spark outlives the step that has started it, and no worker its job."""

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from threading import Event
from types import SimpleNamespace
from typing import Any

import psutil
import pyarrow as pa
import pytest
from airflow.providers.apache.spark.hooks.spark_connect import SparkConnectHook

from batchledger.formats.decoding.decoder import RecordDecoder
from batchledger.model.batch import Attempt, Batch, BatchState, Lane
from batchledger.model.errors import StagingError
from batchledger.model.offsets import OffsetRange, TopicPartition
from batchledger.model.records.columns import parse_columns
from batchledger.model.records.rules import TombstonePolicy
from batchledger.source.spark.session import open_connect_session
from batchledger.source.spark.stager import SparkStager
from tests.support import wait_until

pytestmark = pytest.mark.usefixtures("spark")

GONE_SECONDS = 30


def attempt(batch_id: int, number: int) -> Attempt:
    """An attempt to stage ten records."""
    ranges = (OffsetRange(TopicPartition("orders", 0), 0, 10),)
    planned_at = datetime(2026, 11, 28, tzinfo=UTC)
    batch = Batch(batch_id, "orders", Lane.LIVE, BatchState.PLANNED, number, "run", ranges, 0, planned_at)
    return Attempt(batch, number, "run")


def stager(mark: Path | None = None, **more: Any) -> SparkStager:
    """A stager in whose tasks no record comes: they end at once, or write who they are into ``mark`` and stay."""

    def read_share(_: Sequence[OffsetRange]) -> Iterator[pa.RecordBatch]:
        if mark is not None:
            mark.write_text(f"{os.getpid()}\n")
            while mark.exists():
                Event().wait(0.1)
        yield from ()

    testimony = SimpleNamespace(finish=lambda *_: None)
    evidence: Any = SimpleNamespace(
        open=lambda _: SimpleNamespace(open=lambda _: nullcontext(testimony)), count_finished=lambda _: 1
    )
    sink: Any = SimpleNamespace(
        open_staging=lambda *_: SimpleNamespace(open=lambda _: nullcontext(print)), seal_staging=lambda *_: None
    )
    url = SparkConnectHook(conn_id="spark_default").get_connection_url()
    return SparkStager(
        open_session=partial(open_connect_session, url, "jobs"),
        read_share=read_share,
        decoder=RecordDecoder(parse_columns("number bigint"), TombstonePolicy.SKIP),
        transform=None,
        evidence=evidence,
        sink=sink,
        **more,
    )


def wait_for_worker(mark: Path) -> psutil.Process:
    """The worker that stays."""
    wait_until(lambda: mark.exists() and mark.read_text().endswith("\n"), 60)
    return psutil.Process(int(mark.read_text()))


def test_next_attempt_ends_the_job_that_an_earlier_one_has_left(tmp_path: Path) -> None:
    """As after SIGKILL of the step: the server goes on with its job."""
    with ThreadPoolExecutor(1) as pool:
        job = pool.submit(stager(tmp_path / "mark").stage, attempt(1, 1))
        worker = wait_for_worker(tmp_path / "mark")
        try:
            stager().stage(attempt(1, 2))
            wait_until(lambda: not worker.is_running(), GONE_SECONDS)
            with pytest.raises(StagingError):
                job.result(GONE_SECONDS)
        finally:
            with stager().open_session() as session:
                session.interruptAll()


def test_another_batch_and_an_earlier_attempt_that_is_late_let_a_job_come_to_its_end(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    with ThreadPoolExecutor(1) as pool:
        job = pool.submit(stager(mark).stage, attempt(1, 3))
        wait_for_worker(mark)
        try:
            stager().stage(attempt(2, 4))
            stager().stage(attempt(1, 2))
        finally:
            mark.unlink()
        assert job.result(GONE_SECONDS).reported_rows == 0


def test_task_that_makes_no_progress_ends_with_an_error_that_is_retried(tmp_path: Path) -> None:
    with pytest.raises(StagingError, match="makes no progress for 2 s") as caught:
        stager(tmp_path / "mark", step_seconds=2).stage(attempt(4, 1))
    assert caught.value.retryable
