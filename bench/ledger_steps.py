"""The time of ledger and planner for one batch over a history: no Spark, no rows, no Kafka.

The steps of ``plans`` and ``run_batch`` work on the real ledger and evidence. Everything else is made up: a log that
always holds one more batch, tasks that have read every record, and a sink without a database. ``ask_kafka`` times the
answers of Kafka.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from statistics import median
from time import perf_counter
from typing import Any, ClassVar, cast
from uuid import uuid4

import psycopg
from typing_extensions import override

from batchledger.ledger.decisions import PostgresDecisions
from batchledger.ledger.evidence import PostgresEvidence
from batchledger.ledger.ledger import PostgresLedger
from batchledger.ledger.presence import PostgresPresences
from batchledger.lifecycle import run_batch
from batchledger.lifecycle.plans import plan
from batchledger.lifecycle.platform import PipelineRules, Platform
from batchledger.local.samples.admin import ensure_topic
from batchledger.model.attempt_facts import AttemptFacts
from batchledger.model.balance import StagedRange
from batchledger.model.batch import Attempt, Batch, LogState, PartitionLog, Staged
from batchledger.model.capabilities import Capabilities
from batchledger.model.checks import CheckResult, IntegrityCheck, Outcome
from batchledger.model.claims import PreparedRows, TargetClaim
from batchledger.model.offsets import OffsetRange, TopicPartition
from batchledger.planning.live import Limits
from batchledger.ports import RowsToPublish, Stager
from batchledger.sinks.table.capabilities import CAPABILITIES
from batchledger.source.kafka.log import KafkaLog
from bench.history import IDENTITY, RECORDS, TOPIC, History, seed

OTHERS = 200
"""How many other pipelines the ledger knows, each with some batches."""

_JUDGED = (
    IntegrityCheck.NO_DUPLICATE_OFFSETS,
    IntegrityCheck.NO_ROWS_OUTSIDE_RANGES,
    IntegrityCheck.NO_UNEXPLAINED_HOLES,
    IntegrityCheck.BALANCE_CLOSES,
    IntegrityCheck.RANGES_MEET_POSITION,
    IntegrityCheck.NO_PUBLISHED_OFFSETS,
    IntegrityCheck.STAGED_AS_REPORTED,
)


@dataclass(frozen=True)
class BookkeepingCost:
    """Medians of one batch over a history: seconds of each step and of each call within it, and opened connections."""

    history: History
    seconds_by_step: Mapping[str, float]
    seconds_by_call: Mapping[str, float]
    connections: float

    @property
    def seconds(self) -> float:
        """The seconds of all steps together."""
        return sum(self.seconds_by_step.values())


@dataclass(frozen=True)
class KafkaCost:
    """Median seconds of each question that a batch asks Kafka about so many partitions."""

    partitions: int
    seconds_by_question: Mapping[str, float]


def measure(
    dsn: str, histories: Sequence[History], rounds: int = 5, told: Callable[[str], None] = lambda _: None
) -> list[BookkeepingCost]:
    """Write each history, the shortest first, and take batches on top of it. The ledger keeps the earlier ones.

    ``dsn`` names a migrated ledger without any use; the histories stay there. One batch before the others warms up.
    """
    _seed_others(dsn)
    costs = []
    for history in sorted(histories, key=lambda each: each.batches * each.partitions):
        started = perf_counter()
        seed(dsn, [history])
        told(f"{history}: seeded in {perf_counter() - started:.0f} s")
        costs.append(take_batches(dsn, history, rounds))
    return costs


def take_batches(dsn: str, history: History, rounds: int) -> BookkeepingCost:
    """Take one batch to warm up, and then ``rounds`` batches that are measured."""
    log = _EndlessLog(history)
    _take(dsn, history, log)
    before = _count_connections(dsn)
    taken = [_take(dsn, history, log) for _ in range(rounds)]
    # This look takes a connection, too.
    connections = (_count_connections(dsn) - before - 1) / rounds
    return BookkeepingCost(
        history,
        _take_medians([each.steps for each in taken]),
        _take_medians([each.calls for each in taken]),
        connections,
    )


def ask_kafka(options: Mapping[str, str], partitions: int, rounds: int = 5) -> KafkaCost:
    """Create topics without records, and ask like a batch: the plan asks for the log once, the stage step twice."""
    # A controller refuses a request for many more partitions.
    sizes = [min(2_000, partitions - made) for made in range(0, partitions, 2_000)]
    run = uuid4().hex[:8]
    topics = {f"bookkeeping_{run}_{number}": size for number, size in enumerate(sizes)}
    for topic, size in topics.items():
        ensure_topic(options, topic, size, {})
    source = KafkaLog(options)
    positions = {TopicPartition(topic, each): 0 for topic, size in topics.items() for each in range(size)}
    questions: Mapping[str, Callable[[], object]] = {
        "read_log": lambda: source.read_log(list(topics)),
        "commit_courtesy": lambda: source.commit_courtesy(f"batchledger.bookkeeping_{run}", positions),
    }
    seconds = [{name: _time(ask) for name, ask in questions.items()} for _ in range(rounds + 1)]
    return KafkaCost(partitions, _take_medians(seconds[1:]))


@dataclass
class _EndlessLog:
    """The SourceLog port: a topic that holds ``RECORDS`` unread records in each partition when a plan asks."""

    history: History
    planned: int = 0

    def read_log(self, topics: Sequence[str]) -> LogState:
        end = (self.history.batches + self.planned) * RECORDS
        partitions = [TopicPartition(topic, each) for topic in topics for each in range(self.history.partitions)]
        return LogState(dict.fromkeys(topics, IDENTITY), {each: PartitionLog(0, end) for each in partitions})

    def commit_courtesy(self, group: str, next_offset_by_partition: Mapping[TopicPartition, int]) -> None:
        pass


@dataclass(frozen=True)
class _Tasks(Stager):
    """The Stager port: evidence that every record was read, written by one task, outside of the measured time."""

    evidence: PostgresEvidence
    apart: Callable[[], AbstractContextManager[None]]

    @override
    def stage(self, attempt: Attempt) -> Staged:
        writer = self.evidence.open(attempt)
        with self.apart(), writer.open(0) as testimony:
            testimony.finish(attempt.batch.ranges)
        return Staged(sum(len(each) for each in attempt.batch.ranges))


@dataclass(frozen=True)
class _NoRows:
    """The Sink and StagedRows ports, as far as the steps need them: every record is staged once, nothing is moved."""

    ranges: Sequence[OffsetRange] = ()
    capabilities: ClassVar[Capabilities] = CAPABILITIES

    @contextmanager
    def read_staged(self, attempt: Attempt) -> Iterator["_NoRows"]:
        yield _NoRows(attempt.batch.ranges)

    def summarise(self) -> Sequence[StagedRange]:
        return [StagedRange(each, len(each), len(each)) for each in self.ranges]

    def count_numbers(self) -> None:
        pass

    def count_unmatched(self) -> None:
        pass

    def claim_target(self, attempt: Attempt, _connection: Any = None) -> TargetClaim:
        return TargetClaim("nowhere", f"nowhere for {attempt.batch.pipeline}")

    def publish(self, rows: RowsToPublish) -> PreparedRows:
        return PreparedRows(rows.accepted, rows.duplicates)

    def remember_numbers(self, rows: RowsToPublish) -> None:
        pass

    def drop_staging(self, attempt: Attempt) -> None:
        pass


class _Content:
    """The Auditor port: as many results as the real suite has, all passed."""

    def judge(self, facts: AttemptFacts) -> Sequence[CheckResult]:
        observed = {"ranges": len(facts.ranges), "unexpected_ranges": 0, "total": 0}
        return [CheckResult(each, Outcome.PASSED, "all is well", observed) for each in _JUDGED]


@dataclass
class _Taken:
    """The measurements of one batch."""

    steps: dict[str, float] = field(default_factory=dict)
    calls: dict[str, float] = field(default_factory=dict)
    seconds_apart: float = 0.0

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        started, apart = perf_counter(), self.seconds_apart
        yield
        self.steps[name] = perf_counter() - started - (self.seconds_apart - apart)

    @contextmanager
    def apart(self) -> Iterator[None]:
        started = perf_counter()
        yield
        self.seconds_apart += perf_counter() - started


@dataclass(frozen=True)
class _Timed:
    """Passes every call on to ``inner``, and adds up its seconds by its name."""

    name: str
    inner: Any
    calls: dict[str, float]

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.inner, name)
        if not callable(found):
            return found

        def call(*arguments: Any, **named: Any) -> Any:
            started = perf_counter()
            try:
                return found(*arguments, **named)
            finally:
                self._add(name, perf_counter() - started)

        return self.publication if name == "publication" else call

    @contextmanager
    def publication(self, *arguments: Any) -> Iterator["_Timed"]:
        """Time the transaction as a whole, and the calls within it."""
        started = perf_counter()
        with self.inner.publication(*arguments) as publication:
            yield _Timed("publication", publication, self.calls)
        self._add("publication", perf_counter() - started)

    def _add(self, name: str, seconds: float) -> None:
        called = f"{self.name}.{name}"
        self.calls[called] = self.calls.get(called, 0.0) + seconds


def _take(dsn: str, history: History, log: _EndlessLog) -> _Taken:
    taken, run = _Taken(), uuid4().hex
    evidence = cast(PostgresEvidence, _Timed("evidence", PostgresEvidence(dsn), taken.calls))
    limits = Limits(max_records=RECORDS * history.partitions, target_duration_seconds=3600.0)
    platform = Platform(
        rules=PipelineRules(history.pipeline, (TOPIC,), limits),
        source=cast(Any, log),
        ledger=cast(Any, _Timed("ledger", PostgresLedger(dsn), taken.calls)),
        decisions=cast(Any, _Timed("decisions", PostgresDecisions(dsn), taken.calls)),
        presences=cast(Any, _Timed("presences", PostgresPresences(dsn), taken.calls)),
        evidence=evidence,
        sink=cast(Any, _NoRows()),
        make_stager=lambda: _Tasks(evidence, taken.apart),
        make_auditor=_Content,
        prove=cast(Any, None),
    )
    log.planned += 1
    with taken.step("plan"):
        batch = cast(Batch, plan(platform, run))
    for step in (run_batch.stage, run_batch.audit, run_batch.publish):
        with taken.step(step.__name__):
            step(platform, batch.batch_id, run)
    return taken


def _seed_others(dsn: str) -> None:
    """Write the pipelines that share the ledger."""
    seed(dsn, [History(batches=5 + number, partitions=4) for number in range(OTHERS)])


def _count_connections(dsn: str) -> int:
    with psycopg.connect(dsn) as connection:
        connection.execute("select pg_stat_force_next_flush()")
        ((sessions,),) = connection.execute(
            "select sessions from pg_stat_database where datname = current_database()"
        ).fetchall()
    return int(sessions)


def _time(call: Callable[[], object]) -> float:
    started = perf_counter()
    call()
    return perf_counter() - started


def _take_medians(taken: Sequence[Mapping[str, float]]) -> dict[str, float]:
    return {name: median(each.get(name, 0.0) for each in taken) for name in taken[0]}
