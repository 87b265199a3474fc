"""One life of a batch as Airflow's tasks lead it, each of them tried again, with Spark's tasks in this process."""

import traceback
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from types import SimpleNamespace
from typing import Any, TypeVar
from unittest.mock import patch

import psycopg
import pyarrow as pa
import yaml
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from sqlalchemy.exc import SQLAlchemyError
from typing_extensions import override

from batchledger.database.sessions import keep_connections
from batchledger.formats.decoding.decoder import RecordDecoder
from batchledger.ledger.housekeeping import PostgresHousekeeping
from batchledger.lifecycle import plans, run_batch
from batchledger.lifecycle.at_work import hand_on
from batchledger.lifecycle.following import follow_nothing
from batchledger.lifecycle.platform import Platform
from batchledger.looking import source_options
from batchledger.model.batch import BatchState
from batchledger.model.errors import BatchledgerError
from batchledger.planning.shares import OFFSETS_WORTH_A_RANGE
from batchledger.source.kafka.records import read_share
from batchledger.source.spark import tasks
from batchledger.source.spark.stager import OpenedStaging, SparkStager
from batchledger.wiring import build_platform
from tests.faults.nth_operation import Fault, Faults
from tests.runner import let_run
from tests.support import SCHEMA, TestPipeline, Workplace

SINKS: Mapping[str, Mapping[str, Any]] = {
    "table": {"table": "{name}_target"},
    "upsert": {"table": "{name}_target", "mode": "upsert", "key": ["message_id"]},
    # A transaction that could not be aborted holds readers up until Kafka ends it: by default after a minute.
    "topic": {"type": "kafka", "topic": "{name}_target", "transaction_timeout": "10s"},
    "lake": {"type": "iceberg", "table": "tests.{name}_target"},
}
PARTITIONS = 2
RECORDS = 20
# One share a partition.
OFFSETS_IN_SHARE = OFFSETS_WORTH_A_RANGE + RECORDS // PARTITIONS

Result = TypeVar("Result")
Alter = Callable[[Platform], Platform]


def as_it_is(platform: Platform) -> Platform:
    """The platform with all of its protections."""
    return platform


NO_SESSION: Any = SimpleNamespace(addTag=str, removeTag=str, interruptTag=str)
"""Takes the tags of a job, and starts none."""


class StagerInThisProcess(SparkStager):
    """Runs what Spark's tasks run, one after the other."""

    @override
    def _run(
        self, spark: SparkSession, reading: tasks.DividedRead, staging: OpenedStaging, transform: Any
    ) -> list[tuple[int, int]]:
        task = tasks.ReadAndWriteTask(reading, staging.open(self.decoder.schema))
        reports = []
        for number in range(len(reading.shares)):
            context = SimpleNamespace(taskAttemptId=partial(int, number))
            with (
                patch.object(tasks, "_task_context", lambda context=context: context),
                patch.object(tasks, "settle_worker"),
                _failing_as_a_task(),
            ):
                for report in task([pa.RecordBatch.from_pydict({tasks.NUMBER: [number]})]):
                    reports += [(row["task"], row["written"]) for row in report.to_pylist()]
        return reports


@contextmanager
def _failing_as_a_task() -> Iterator[None]:
    try:
        yield
    except (psycopg.Error, BatchledgerError, SQLAlchemyError) as error:
        raise PySparkException("".join(traceback.format_exception(error))) from error


@dataclass(frozen=True)
class Source:
    """A topic that many pipelines read."""

    workplace: Workplace
    topic: str
    sent: list[str]

    @classmethod
    def create(cls, workplace: Workplace) -> "Source":
        """Write the records of every batch."""
        filled = workplace.create(partitions=PARTITIONS)
        filled.send(RECORDS, PARTITIONS)
        return cls(workplace, filled.name, filled.sent)

    def open_pipeline(self, into: str, **changes: Any) -> TestPipeline:
        """A new pipeline over the topic, with a target of its own."""
        name = f"n_{uuid.uuid4().hex[:12]}"
        path = self.workplace.folder / f"{name}.yaml"
        sink = {key: value.format(name=name) if isinstance(value, str) else value for key, value in SINKS[into].items()}
        source = {"topics": [self.topic], "schema": SCHEMA}
        path.write_text(yaml.safe_dump({"name": name, "source": source, "sink": sink, **changes}))
        let_run(self.workplace.dsn, name)
        return TestPipeline(self.workplace, name, path, self.sent)


def open_platform(pipeline: TestPipeline) -> Platform:
    """Real adapters for everything but the Spark session."""
    config = pipeline.config
    platform = build_platform(config, open_session=nullcontext, follow=follow_nothing)  # type: ignore[arg-type]

    def make_stager() -> StagerInThisProcess:
        return StagerInThisProcess(
            open_session=partial(nullcontext, NO_SESSION),
            read_share=partial(read_share, source_options(config)),
            decoder=RecordDecoder(config.source.columns, config.source.tombstones, tuple(config.sink.key or ())),
            transform=None,
            evidence=platform.evidence,
            sink=platform.sink,
            offsets_in_share=OFFSETS_IN_SHARE,
        )

    return replace(platform, make_stager=make_stager)


@dataclass
class Life:
    """One pipeline from its first plan until it has caught up; ``errors`` are what its tasks ended with."""

    pipeline: TestPipeline
    faults: Faults
    alter: Alter = as_it_is
    errors: list[BatchledgerError] = field(default_factory=list)

    def live(self) -> None:
        """Let Airflow's tasks run; if one gives up, another run follows. Then a last one finds nothing to do."""
        try:
            self._run("first")
        except BatchledgerError:
            self._run("second")
        self._run("last")

    def _run(self, run: str) -> None:
        batch_id = self._try(lambda platform: self._plan(platform, run))
        if batch_id is None:
            return
        for step in (run_batch.stage, run_batch.audit, run_batch.publish):
            self._try(lambda platform, step=step: step(platform, batch_id, run))  # type: ignore[misc]

    def _plan(self, platform: Platform, run: str) -> int | None:
        batch = plans.plan(platform, run)
        if batch is None:
            return None
        hand_on(platform, batch.batch_id, run)
        return batch.batch_id

    def _try(self, task: Callable[[Platform], Result]) -> Result:
        """Run a task, and again if it fails; while it fails for good, once more before the fault is lifted."""
        tries = 3 if self.faults.fault is Fault.LASTING else 2
        for left in reversed(range(tries)):
            try:
                with keep_connections():
                    return task(self.alter(open_platform(self.pipeline)))
            except BatchledgerError as error:
                self.errors.append(error)
                with self.faults.off():
                    self.require_whole()
                if left <= 1:
                    self.faults.lift()
                if not left or not error.retryable:
                    self.faults.lift()
                    raise
        raise AssertionError

    def require_whole(self) -> None:
        """All records are visible or none is; if the position has moved, all are."""
        copies = self.pipeline.count_copies()
        assert copies in (Counter(), Counter(self.pipeline.sent)), f"half visible: {copies}"
        positions = self.pipeline.platform().ledger.load_positions(self.pipeline.name)
        moved = sum(each.next_offset for each in positions)
        assert moved == 0 or (moved == RECORDS and copies), "the position has moved without the records"
        if not self.pipeline.writes_elsewhere:
            assert bool(moved) == bool(copies), "the records are visible without the position"

    def require_done(self) -> None:
        """Every record is visible once, the ledger proves it, and nothing is left that anybody would wait for."""
        self.pipeline.assert_exact()
        platform = self.pipeline.platform()
        assert platform.ledger.find_open_batch(self.pipeline.name) is None
        assert {each.next_offset for each in platform.ledger.load_positions(self.pipeline.name)} == {
            RECORDS // PARTITIONS
        }
        query = "select batch_id, state from batchledger.batch where pipeline = %s"
        ((batch_id, state),) = self.pipeline.query(query, self.pipeline.name)
        assert state == BatchState.PUBLISHED
        # What a lost connection has kept from being stored keeps no other run from the batch.
        found = platform.presences.find(batch_id)
        assert found is None or not found.lasts(platform.patience)
        query = "select pid, query from pg_stat_activity where datname = current_database() and state like 'idle in%%'"
        assert self.pipeline.query(query) == []
        # What could not be removed is left to the housekeeping, which knows that no run will read it again.
        over = {each.name for each in PostgresHousekeeping(self.pipeline.workplace.dsn).look().tables if each.is_over}
        assert set(self.pipeline.list_staging()) <= over
        assert self.faults.injected or self.pipeline.list_staging() == []
