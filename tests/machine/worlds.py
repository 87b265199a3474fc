"""The two worlds that the machine runs in. Kafka is in memory in both; the database is in memory or PostgreSQL."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Protocol

import psycopg
from psycopg import sql

from batchledger.accounting import HolePolicy, IntegrityCheck
from batchledger.batch import DeliveryMode
from batchledger.ledger.history import load_published_history
from batchledger.pipeline import PipelineRules, Platform
from batchledger.planning import Limits
from batchledger.verification import PublishedRange, Verification, verify_history
from tests.contract.warehouses import PostgresWarehouse
from tests.fakes.database import MemoryDatabase
from tests.fakes.ledger import ALL_PROTECTIONS, Protection
from tests.fakes.sink import MemorySink
from tests.fakes.source import MemoryBroker, MemorySourceLog
from tests.fakes.work import MemoryAuditor, MemoryStager, Rows, keep_all
from tests.fakes.world import PIPELINE, World
from tests.machine.stored import Stored, read_memory, read_postgres

TOPIC = "orders"


class MachineWorld(Protocol):
    """What outlives a process, and what the machine may do to it."""

    broker: MemoryBroker
    delivery: DeliveryMode

    def platform(self, alter: Callable[[Rows], Rows] = keep_all) -> Platform:
        """Everything a process needs; ``alter`` is its transform."""

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
            holes=HolePolicy.TRANSACTIONAL,
            delivery=self.real_delivery or self.delivery,
            broker=self.broker,
            ignored_checks=self.ignored_checks,
        )

    def platform(self, alter: Callable[[Rows], Rows] = keep_all) -> Platform:
        """See the protocol."""
        process = self._world.process(protections=self.protections, alter=alter)
        return replace(process, sink=self.make_sink(self._world.database, TOPIC))

    def read(self) -> Stored:
        """See the protocol."""
        return read_memory(self._world.database.committed, TOPIC)

    def lose_staging(self) -> None:
        """See the protocol."""
        with self._world.database.transaction() as tables:
            tables.staging = {key: replace(each, rows_by_task={}) for key, each in tables.staging.items()}

    def verify(self) -> Verification:
        """See the protocol."""
        tables = self._world.database.committed
        published = [
            PublishedRange(number, each.range, each.accepted, each.quarantined, each.unexplained)
            for number, held in tables.batches.items()
            if held.published_at is not None
            for each in held.balances
        ]
        quarantined: dict[Any, int] = {}
        for (_, partition, _), row in tables.quarantine.items():
            key = (row["batch_id"], partition)
            quarantined[key] = quarantined.get(key, 0) + 1
        target = MemorySink(self._world.database, TOPIC).count_target(PIPELINE)
        return verify_history(PIPELINE, list(tables.positions.values()), published, target, quarantined, duplicates={})

    def close(self) -> None:
        """See the protocol."""


@dataclass
class PostgresWorld:
    """See the protocol. Ledger, evidence and sink are the real ones; pipeline and target schema are this world's."""

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

    def platform(self, alter: Callable[[Rows], Rows] = keep_all) -> Platform:
        """See the protocol."""
        held = self._warehouse
        sink, evidence = held.sink, held.evidence
        rules = PipelineRules(
            held.pipeline, (TOPIC,), self.limits, holes=HolePolicy.TRANSACTIONAL, delivery=self.delivery
        )
        return Platform(
            rules=rules,
            source=MemorySourceLog(self.broker),
            ledger=held.ledger,
            decisions=held.decisions,
            evidence=evidence,
            sink=sink,
            make_stager=lambda: MemoryStager(self.broker, evidence, sink, alter),
            make_auditor=MemoryAuditor,
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
        held = self._warehouse
        history = load_published_history(self.dsn, held.pipeline)
        target = held.sink.count_target(held.pipeline)
        return verify_history(
            held.pipeline,
            history.positions,
            history.ranges,
            target,
            history.quarantined,
            duplicates=history.duplicates,
        )

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
