"""The two worlds that the machine runs in. Kafka is in memory in both; the database is in memory or PostgreSQL.

Every run begins at once, even if another one is alive: what is published must not depend on who leaves a batch to whom.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import cached_property
from typing import Any, Protocol

import psycopg
from psycopg import sql

from batchledger.ledger.presence import PostgresPresences
from batchledger.lifecycle.platform import PipelineRules, Platform
from batchledger.model.balance import HolePolicy
from batchledger.model.batch import DeliveryMode
from batchledger.model.checks import IntegrityCheck
from batchledger.model.presence import NO_PATIENCE
from batchledger.model.records.quarantine import QuarantineLimit
from batchledger.planning.live import Limits, StartPolicy
from batchledger.ports import Evidence, Sink
from batchledger.proof.verification import Verification
from tests.contract.warehouses import PostgresWarehouse
from tests.fakes.database import MemoryDatabase
from tests.fakes.foreign_sink import ForeignStore, MemoryForeignSink
from tests.fakes.history import prove
from tests.fakes.publication import ALL_PROTECTIONS, Protection
from tests.fakes.sink import MemorySink
from tests.fakes.source import DEFAULT_TIMESTAMP, MemoryBroker, MemorySourceLog
from tests.fakes.work import MemoryAuditor, MemoryStager
from tests.fakes.world import PIPELINE, World
from tests.machine.releases import FIRST, Release
from tests.machine.stored import Stored, read_memory, read_postgres

TOPIC = "orders"
START = DEFAULT_TIMESTAMP
"""The pipeline begins with the first record of this moment; what is older was there before."""
ANY_SHARE = QuarantineLimit(max_share=1)
"""A schedule may write only records that do not decode, and there is no person who looks at a blocked batch."""
BEFORE_START = START - timedelta(days=1)


class MachineWorld(Protocol):
    """What outlives a process, and what the machine may do to it."""

    broker: MemoryBroker
    delivery: DeliveryMode

    @property
    def is_foreign(self) -> bool:
        """Whether the sink commits by itself."""

    def platform(self, release: Release = FIRST) -> Platform:
        """Everything a process of a release needs."""

    def read(self) -> Stored:
        """What is stored now."""

    def lose_staging(self) -> None:
        """Empty every staging table, as a crash of the database does with unlogged ones (S113)."""

    def verify(self) -> Verification:
        """The platform's own proof."""

    def close(self) -> None:
        """Remove what belongs to this world alone."""


@dataclass
class MemoryWorld:
    """See the protocol. What differs from the defaults is a protection switched off."""

    is_foreign = False

    delivery: DeliveryMode
    limits: Limits
    broker: MemoryBroker = field(default_factory=MemoryBroker)
    protections: frozenset[Protection] = ALL_PROTECTIONS
    ignored_checks: frozenset[IntegrityCheck] = frozenset()
    real_delivery: DeliveryMode | None = None
    make_sink: Callable[[MemoryDatabase, str], MemorySink] = MemorySink

    @cached_property
    def _world(self) -> World:
        return World(
            limits=self.limits,
            start=StartPolicy.TIMESTAMP,
            start_at=START,
            holes=HolePolicy.TRANSACTIONAL,
            delivery=self.real_delivery or self.delivery,
            broker=self.broker,
            ignored_checks=self.ignored_checks,
            quarantine_limit=ANY_SHARE,
            patience=NO_PATIENCE,
        )

    @property
    def _sink(self) -> MemorySink:
        return self.make_sink(self._world.database, TOPIC)

    def platform(self, release: Release = FIRST) -> Platform:
        """See the protocol."""
        process = self._world.process(protections=self.protections)
        sink = self._sink
        return replace(process, sink=sink, make_stager=lambda: _stager(self.broker, process.evidence, sink, release))

    def read(self) -> Stored:
        """See the protocol."""
        return read_memory(self._sink.committed, TOPIC)

    def lose_staging(self) -> None:
        """See the protocol."""
        with self._world.database.transaction() as tables:
            tables.staging = {key: replace(each, rows_by_task={}) for key, each in tables.staging.items()}

    def verify(self) -> Verification:
        """See the protocol."""
        return prove(self._sink, PIPELINE)

    def close(self) -> None:
        """See the protocol."""


@dataclass
class ForeignWorld(MemoryWorld):
    """The same with a sink that commits by itself; its staging is kept when the database crashes."""

    is_foreign = True

    @cached_property
    def _store(self) -> ForeignStore:
        return ForeignStore()

    @property
    def _sink(self) -> MemoryForeignSink:
        return MemoryForeignSink(self._world.database, TOPIC, store=self._store)

    def lose_staging(self) -> None:
        """See the protocol."""


@dataclass
class PostgresWorld:
    """See the protocol. Ledger, evidence and sink are the real ones; pipeline and target schema are this world's."""

    is_foreign = False

    dsn: str
    delivery: DeliveryMode
    limits: Limits
    broker: MemoryBroker = field(default_factory=MemoryBroker)

    @cached_property
    def _warehouse(self) -> PostgresWarehouse:
        return PostgresWarehouse(self.dsn)

    @cached_property
    def _connection(self) -> psycopg.Connection[Any]:
        return psycopg.connect(self.dsn, autocommit=True)

    def platform(self, release: Release = FIRST) -> Platform:
        """See the protocol."""
        held = self._warehouse
        sink, evidence = held.sink, held.evidence
        rules = PipelineRules(
            held.pipeline,
            (TOPIC,),
            self.limits,
            StartPolicy.TIMESTAMP,
            START,
            HolePolicy.TRANSACTIONAL,
            delivery=self.delivery,
            quarantine_limit=ANY_SHARE,
        )
        return Platform(
            rules=rules,
            source=MemorySourceLog(self.broker),
            ledger=held.ledger,
            decisions=held.decisions,
            presences=PostgresPresences(self.dsn),
            evidence=evidence,
            sink=sink,
            make_stager=lambda: _stager(self.broker, evidence, sink, release),
            make_auditor=MemoryAuditor,
            prove=held.prove,
            patience=NO_PATIENCE,
        )

    def read(self) -> Stored:
        """See the protocol."""
        held = self._warehouse
        return read_postgres(self._connection, held.pipeline, sql.Identifier(held.schema, TOPIC))

    def lose_staging(self) -> None:
        """See the protocol."""
        self._warehouse.lose_staging()

    def verify(self) -> Verification:
        """See the protocol."""
        return self._warehouse.prove()

    def close(self) -> None:
        """See the protocol. Staging of processes that died would stay for ever."""
        tables = self._connection.execute(
            "select t.tablename from pg_tables t join batchledger.batch b "
            "on starts_with(t.tablename, format('b%%s_', b.batch_id)) "
            "where t.schemaname = 'batchledger_staging' and b.pipeline = %s",
            [self._warehouse.pipeline],
        ).fetchall()
        for (table,) in tables:
            self._connection.execute(sql.SQL("drop table {}").format(sql.Identifier("batchledger_staging", table)))
        self._connection.close()
        self._warehouse.drop()


def _stager(broker: MemoryBroker, evidence: Evidence, sink: Sink, release: Release) -> MemoryStager:
    return MemoryStager(broker, evidence, sink, release.alter, decode=release.decode)
