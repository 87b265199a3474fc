"""A world whose database is a real one: what a rule of a pipeline file does with rows is written once, in the product.

Kafka and Spark are in memory, as everywhere in the tests of the core. One life of a batch takes 0.1 s of CPU here, and
5 ms over the ledger in memory. So what knows no rule, and what needs thousands of runs, stays in memory.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import ClassVar

from psycopg import sql
from psycopg.rows import dict_row
from typing_extensions import override

from batchledger.ledger.presence import PostgresPresences
from batchledger.lifecycle.platform import Platform
from batchledger.model.balance import Balance
from batchledger.model.batch import Batch
from batchledger.model.checks import JudgedCheck
from batchledger.model.records.rules import Deduplication, SequenceRule, Upsert
from batchledger.ports import CheckedBatch, CrashHook, RowsToCheck, no_crash
from tests.contract.lake_warehouse import LakeWarehouse
from tests.contract.warehouses import PostgresWarehouse, connect_behind
from tests.fakes.database import Row
from tests.fakes.publication import ALL_PROTECTIONS, Protection
from tests.fakes.row_checks import MemoryRowChecks
from tests.fakes.work import MemoryStager, Rows, keep_all
from tests.fakes.world import World


class StoredRowChecks(MemoryRowChecks):
    """The same judgement of rows that are read from the database."""

    @override
    def judge(self, rows: RowsToCheck, batch: CheckedBatch) -> Sequence[JudgedCheck]:
        with rows.connection.cursor(row_factory=dict_row) as cursor:
            held = cursor.execute(sql.SQL("select * from {}").format(sql.Identifier(rows.table))).fetchall()
        return super().judge(replace(rows, connection=held), batch)


@dataclass
class StoredWorld(World):
    """A pipeline and a table of its own in ``dsn``; ``open_worlds`` lends that, and removes the tables."""

    dsn: ClassVar[str] = ""
    opened: ClassVar[list[PostgresWarehouse]] = []

    deduplication: Deduplication | None = None
    upsert: Upsert | None = None
    sequence: SequenceRule | None = None
    lake: Path | None = None
    """The folder of the target, if that is a lake: a sink that commits by itself."""
    _held: PostgresWarehouse = field(init=False)

    def __post_init__(self) -> None:
        lake = self.lake
        self._held = PostgresWarehouse(self.dsn) if lake is None else LakeWarehouse(self.dsn, folder=lake)
        self.opened.append(self._held)

    @property
    @override
    def pipeline(self) -> str:
        return self._held.pipeline

    @property
    def warehouse(self) -> PostgresWarehouse:
        """Ledger and table, by the rules as they are now."""
        return self._held.with_rules(self.deduplication, self.upsert, self.sequence)

    @override
    def process(
        self,
        crash: CrashHook = no_crash,
        protections: frozenset[Protection] = ALL_PROTECTIONS,
        alter: Callable[[Rows], Rows] = keep_all,
        has_transform: bool = False,
    ) -> Platform:
        in_memory, held = super().process(crash, protections, alter, has_transform), self.warehouse
        sink, evidence, key = held.sink, held.evidence, self.upsert.key if self.upsert else ()
        stager = MemoryStager(self.broker, evidence, sink, alter, self.schema, self.tombstones, key)
        return replace(
            in_memory,
            rules=replace(
                in_memory.rules, name=held.pipeline, deduplication=self.deduplication, sequence=self.sequence
            ),
            ledger=held.ledger,
            decisions=held.decisions,
            presences=PostgresPresences(held.dsn),
            evidence=evidence,
            sink=sink,
            make_stager=lambda: stager,
            prove=held.prove,
            make_row_checks=(lambda: StoredRowChecks(self.row_tests)) if self.row_tests else None,
        )

    @override
    def read_target(self) -> Sequence[Row]:
        return self.warehouse.read_target()

    def batches(self) -> list[Batch]:
        """Every batch of the pipeline, in order."""
        query = "select batch_id from batchledger.batch where pipeline = %s order by batch_id"
        with connect_behind(self.dsn) as connection:
            numbers = connection.execute(query, [self.pipeline]).fetchall()
        return [self.warehouse.ledger.load_batch(number) for (number,) in numbers]

    def balances(self) -> list[Balance]:
        """The lines of every batch."""
        decisions = self.warehouse.decisions
        return [line for each in self.batches() for line in decisions.load_balances(each.batch_id)]

    def staging_tables(self) -> list[str]:
        """What is left of the staging and evidence of its batches."""
        query = (
            "select t.tablename from pg_tables t join batchledger.batch b on starts_with(t.tablename, "
            "format('b%%s_', b.batch_id)) where t.schemaname = 'batchledger_staging' and b.pipeline = %s"
        )
        with connect_behind(self.dsn) as connection:
            return [name for (name,) in connection.execute(query, [self.pipeline]).fetchall()]

    def quarantined(self) -> list[int]:
        """The offsets of the records in quarantine."""
        return [offset for _, offset, _ in self.warehouse.read_quarantine()]

    def forget_keys(self, days: int = -999) -> None:
        """Let all message keys be remembered for so many days from now on."""
        until = "update batchledger.message_key set remembered_until = now() + make_interval(days => %s)"
        with connect_behind(self.dsn) as connection:
            connection.execute(f"{until} where pipeline = %s".encode(), [days, self.pipeline])

    def assert_proved(self) -> None:
        """Ledger and target agree, as ``verify`` sees them."""
        assert self.process().prove().findings == ()


@contextmanager
def open_worlds(dsn: str) -> Iterator[None]:
    """Let worlds be opened over a database."""
    StoredWorld.dsn = dsn
    try:
        yield
    finally:
        while StoredWorld.opened:
            StoredWorld.opened.pop().drop()
