"""A whole platform in memory: one broker, one database, and as many processes over them as a test wants."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial

import pyarrow as pa

from batchledger.lifecycle import plans, run_batch
from batchledger.lifecycle.platform import PipelineRules, Platform
from batchledger.model.balance import HolePolicy
from batchledger.model.batch import Batch, DeliveryMode
from batchledger.model.checks import IntegrityCheck
from batchledger.model.offsets import TopicPartition
from batchledger.model.presence import Patience
from batchledger.model.records.quarantine import QuarantineLimit
from batchledger.model.records.rules import TombstonePolicy
from batchledger.model.requests import TwoPersonOrder
from batchledger.planning.live import Limits, StartPolicy
from batchledger.ports import CrashHook, no_crash
from tests.fakes.database import Coordinate, MemoryDatabase, Row, coordinate_of
from tests.fakes.decisions import MemoryDecisions
from tests.fakes.evidence import MemoryEvidence
from tests.fakes.foreign_sink import ForeignStore, MemoryForeignSink
from tests.fakes.history import prove
from tests.fakes.ledger import MemoryLedger
from tests.fakes.presence import MemoryPresences
from tests.fakes.publication import ALL_PROTECTIONS, Protection
from tests.fakes.row_checks import MemoryRowChecks, RowTest
from tests.fakes.sink import MemorySink
from tests.fakes.source import MemoryBroker, MemorySourceLog
from tests.fakes.work import ROW_SCHEMA, MemoryAuditor, MemoryStager, Rows, keep_all

PIPELINE = "orders_copy"
ORDERS_0, ORDERS_1 = TopicPartition("orders", 0), TopicPartition("orders", 1)


@dataclass
class World:
    """What outlives a process. ``process`` starts one; what it holds in memory dies with it."""

    limits: Limits = field(default_factory=lambda: Limits(max_records=1000))
    start: StartPolicy = StartPolicy.EARLIEST
    start_at: datetime | None = None
    holes: HolePolicy = HolePolicy.NONE
    delivery: DeliveryMode = DeliveryMode.EXACTLY_ONCE
    broker: MemoryBroker = field(default_factory=MemoryBroker)
    database: MemoryDatabase = field(default_factory=MemoryDatabase)
    ignored_checks: frozenset[IntegrityCheck] = frozenset()
    tombstones: TombstonePolicy = TombstonePolicy.QUARANTINE
    schema: pa.Schema = ROW_SCHEMA
    row_tests: Sequence[RowTest] = ()
    foreign: ForeignStore | None = None
    quarantine_limit: QuarantineLimit = field(default_factory=QuarantineLimit)
    patience: Patience = field(default_factory=Patience)
    second_person: tuple[TwoPersonOrder, ...] = ()
    row_rules: str = "first"

    @property
    def pipeline(self) -> str:
        """Its name in the ledger."""
        return PIPELINE

    @property
    def sink(self) -> MemorySink:
        """In the ledger's database, or in a ``foreign`` store."""
        if self.foreign is not None:
            return MemoryForeignSink(self.database, "orders", self.foreign)
        return MemorySink(self.database, "orders")

    def process(
        self,
        crash: CrashHook = no_crash,
        protections: frozenset[Protection] = ALL_PROTECTIONS,
        alter: Callable[[Rows], Rows] = keep_all,
        has_transform: bool = False,
    ) -> Platform:
        """Start a process over what is stored."""
        sink = self.sink
        evidence = MemoryEvidence(self.database)
        rules = PipelineRules(
            PIPELINE,
            ("orders",),
            self.limits,
            self.start,
            self.start_at,
            self.holes,
            has_transform,
            self.delivery,
            quarantine_limit=self.quarantine_limit,
            second_person=self.second_person,
            row_rules=self.row_rules,
        )
        return Platform(
            rules=rules,
            source=MemorySourceLog(self.broker),
            ledger=MemoryLedger(self.database, protections),
            decisions=MemoryDecisions(self.database),
            presences=MemoryPresences(self.database),
            evidence=evidence,
            sink=sink,
            make_stager=lambda: MemoryStager(self.broker, evidence, sink, alter, self.schema, self.tombstones),
            make_auditor=lambda: MemoryAuditor(self.ignored_checks),
            prove=partial(prove, sink, PIPELINE),
            make_row_checks=(lambda: MemoryRowChecks(self.row_tests)) if self.row_tests else None,
            crash=crash,
            patience=self.patience,
        )

    def produce(self, partition: TopicPartition, count: int) -> None:
        """Write ``count`` records, each with an id that says where it lies."""
        end = self.broker.partitions[partition].end
        ids = [f"{partition}@{offset}" for offset in range(end, end + count)]
        self.broker.append(partition, *(f'{{"message_id": "{each}"}}'.encode() for each in ids))

    def replace_target(self, identity: str) -> None:
        """Put another target of the same name in the place of the one that was published to."""
        if self.foreign is not None and self.foreign.target is not None:
            self.foreign.target = replace(self.foreign.target, identity=identity)
            return
        with self.database.transaction() as tables:
            tables.targets["orders"] = replace(tables.targets["orders"], identity=identity)

    def times_published(self) -> Counter[Coordinate]:
        """How often the target holds each coordinate."""
        return Counter(coordinate_of(row) for row in self.read_target())

    def read_target(self) -> Sequence[Row]:
        """What readers see."""
        return self.sink.read_target()

    def records(self) -> list[Coordinate]:
        """The coordinates of every visible record of the broker."""
        return [
            (partition, offset)
            for partition, held in self.broker.partitions.items()
            for offset, record in enumerate(held.log)
            if record is not None
        ]


def catch_up(world: World, run: str = "catch-up") -> None:
    """Run batches in fresh processes until there is nothing left to do."""
    while run_batch.run_once(world.process(), run) is not None:
        pass


def assert_exactly_once(world: World) -> None:
    """Every visible record is in the target once, and nothing else is."""
    assert world.times_published() == Counter(world.records())


def staged_twice(rows: Rows) -> Rows:
    """A fault: the first row of every range is written twice."""
    return rows[:1] + rows


def stage_and_audit(platform: Platform, run: str) -> Batch:
    """Take a batch up to its publication."""
    batch = plans.plan(platform, run)
    assert batch is not None
    run_batch.stage(platform, batch.batch_id, run)
    return run_batch.audit(platform, batch.batch_id, run)
