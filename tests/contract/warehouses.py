"""The implementations that the contracts run over, and what a test may do behind their backs."""

import hashlib
import hmac
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial
from string import ascii_lowercase
from typing import Any, Protocol
from uuid import uuid4

import psycopg
import pyarrow as pa
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.rows import dict_row

from batchledger.books.history import list_decisions, load_batch_history, load_published_history
from batchledger.database.sessions import use_connection
from batchledger.ledger.audits import find_window
from batchledger.ledger.decisions import PostgresDecisions
from batchledger.ledger.evidence import PostgresEvidence
from batchledger.ledger.incidents import PostgresIncidents
from batchledger.ledger.ledger import PostgresLedger
from batchledger.model.balance import TargetCounts
from batchledger.model.batch import DecisionRecord, TopicIdentity
from batchledger.model.offsets import TopicPartition
from batchledger.model.records.comparison import DryRunOutcome
from batchledger.model.records.rules import Deduplication, Evolution, SequenceRule, SinkMode, Upsert
from batchledger.ports import Decisions, Evidence, Incidents, Ledger, Sink
from batchledger.proof.proving import prove
from batchledger.proof.verification import PublishedHistory, Verification
from batchledger.sinks.staging.key_secret import ReadSecret
from batchledger.sinks.table.sink import PostgresSink
from tests.conftest import SERVICES, as_superuser
from tests.fakes.database import Coordinate, MemoryDatabase, coordinate_of
from tests.fakes.decisions import MemoryDecisions
from tests.fakes.evidence import MemoryEvidence
from tests.fakes.history import find_window as find_memory_window
from tests.fakes.history import load_published_history as load_memory_history
from tests.fakes.incidents import MemoryIncidents
from tests.fakes.ledger import MemoryLedger
from tests.fakes.sink import MemorySink

IDENTITY = TopicIdentity("cluster-a", "topic-1")


def read_key_secret() -> bytes:
    """The secret that keys of the tests' ledger are hashed with."""
    return SERVICES.credentials.key_secret.encode()


class Warehouse(Protocol):
    """A ledger with its evidence and a sink over one database, empty for each test."""

    pipeline: str
    upsert: Upsert | None

    @property
    def ledger(self) -> Ledger: ...

    @property
    def decisions(self) -> Decisions: ...

    @property
    def evidence(self) -> Evidence: ...

    @property
    def sink(self) -> Sink: ...

    @property
    def incidents(self) -> Incidents: ...

    def read_target(self) -> Sequence[Mapping[str, Any]]:
        """What a reader sees now."""

    def with_rules(
        self,
        deduplication: Deduplication | None = None,
        upsert: Upsert | None = None,
        sequence: SequenceRule | None = None,
    ) -> "Warehouse":
        """The same ledger with a sink that follows these rules; in memory none does (mark ``rules``)."""

    def read_quarantine(self) -> Sequence[tuple[TopicPartition, int, bytes]]:
        """What the pipeline has quarantined: partition, offset, value."""

    def read_pipeline_decisions(self) -> Sequence[DecisionRecord]:
        """What was decided about the pipeline as a whole, in order."""

    def read_dry_run(self, batch_id: int) -> DryRunOutcome | None:
        """What the ledger has kept of a dry run."""

    def move_position(self, partition: TopicPartition, next_offset: int) -> None:
        """Change a position behind the ledger's back."""

    def widen_target(self, column: str) -> None:
        """Add a text column to the target."""

    def plan_at(self, batch_id: int, moment: datetime) -> None:
        """Let a batch have been planned at that moment."""

    def stretch(self, batch_id: int, seconds: float) -> None:
        """Let the newest attempt of a published batch have been opened so long before the publication."""

    def replace_target(self) -> None:
        """Drop the target and create another table of the same name."""

    def load_published_history(self, since: datetime | None = None) -> PublishedHistory:
        """The material of the proof, or of the part of the history that was published since then."""

    def find_window(self, newest: int) -> datetime | None:
        """When the oldest of the newest batches was published; None when there are no more than that."""

    def lose_row(self, partition: TopicPartition, offset: int) -> None:
        """Remove one row from the target behind the ledger's back."""

    def prove(self) -> Verification:
        """Prove the invariants over the whole history of the pipeline."""

    def lose_staging(self) -> None:
        """Empty every staging table, as a crash of the database does with unlogged ones."""


def prove_with(warehouse: Warehouse, count_target: Callable[[], TargetCounts]) -> Verification:
    """Prove the pipeline of a warehouse; ``count_target`` may let something happen before it counts."""
    mode = SinkMode.UPSERT if warehouse.upsert else SinkMode.APPEND
    return prove(warehouse.pipeline, warehouse.load_published_history, count_target, mode)


def _unique(prefix: str) -> str:
    return f"{prefix}_{uuid4().hex[:12]}"


@dataclass
class MemoryWarehouse:
    """See the protocol."""

    database: MemoryDatabase = field(default_factory=MemoryDatabase)
    pipeline: str = field(default_factory=lambda: _unique("pipeline"))
    table: str = "orders"
    upsert: None = None

    @property
    def ledger(self) -> MemoryLedger:
        return MemoryLedger(self.database)

    @property
    def decisions(self) -> MemoryDecisions:
        return MemoryDecisions(self.database)

    @property
    def evidence(self) -> MemoryEvidence:
        return MemoryEvidence(self.database)

    @property
    def incidents(self) -> MemoryIncidents:
        return MemoryIncidents(self.database)

    @property
    def sink(self) -> MemorySink:
        return MemorySink(self.database, self.table)

    def read_target(self) -> Sequence[Mapping[str, Any]]:
        return self.sink.read_target()

    def read_quarantine(self) -> Sequence[tuple[TopicPartition, int, bytes]]:
        return [(key[1], key[2], row["value"]) for key, row in sorted(self.database.committed.quarantine.items())]

    def read_pipeline_decisions(self) -> Sequence[DecisionRecord]:
        decisions = self.database.committed.decisions.values()
        return [each for each in decisions if each.pipeline == self.pipeline and each.batch_id is None]

    def read_dry_run(self, batch_id: int) -> DryRunOutcome | None:
        return self.database.committed.batches[batch_id].dry_run

    def move_position(self, partition: TopicPartition, next_offset: int) -> None:
        with self.database.transaction() as tables:
            key = (self.pipeline, partition)
            tables.positions[key] = replace(tables.positions[key], next_offset=next_offset)

    def widen_target(self, column: str) -> None:
        with self.database.transaction() as tables:
            target = tables.targets[self.table]
            rows = tuple({**row, column: None} for row in target.rows)
            tables.targets[self.table] = replace(
                target, schema=target.schema.append(pa.field(column, pa.string())), rows=rows
            )

    def plan_at(self, batch_id: int, moment: datetime) -> None:
        with self.database.transaction() as tables:
            stored = tables.batches[batch_id]
            tables.batches[batch_id] = replace(stored, batch=replace(stored.batch, planned_at=moment))

    def stretch(self, batch_id: int, seconds: float) -> None:
        with self.database.transaction() as tables:
            stored = tables.batches[batch_id]
            assert stored.published_at is not None
            opened_at = stored.published_at - timedelta(seconds=seconds)
            tables.batches[batch_id] = replace(stored, opened_at=opened_at)

    def replace_target(self) -> None:
        with self.database.transaction() as tables:
            tables.targets[self.table] = replace(tables.targets[self.table], identity="another table", rows=())

    def load_published_history(self, since: datetime | None = None) -> PublishedHistory:
        return load_memory_history(self.database, self.pipeline, since)

    def find_window(self, newest: int) -> datetime | None:
        return find_memory_window(self.database, self.pipeline, newest)

    def lose_row(self, partition: TopicPartition, offset: int) -> None:
        with self.database.transaction() as tables:
            target = tables.targets[self.table]
            left = tuple(row for row in target.rows if coordinate_of(row) != (partition, offset))
            tables.targets[self.table] = replace(target, rows=left)

    def prove(self) -> Verification:
        return prove_with(self, partial(self.sink.count_target, self.pipeline))

    def lose_staging(self) -> None:
        with self.database.transaction() as tables:
            tables.staging = {key: replace(each, rows_by_task={}) for key, each in tables.staging.items()}


@contextmanager
def connect_behind(dsn: str) -> Iterator[psycopg.Connection[Any]]:
    """Lend a connection, a kept one if there is one, for what a test does behind the ledger's back, and commit it."""
    with use_connection(dsn) as connection:
        yield connection
        connection.commit()


@dataclass
class PostgresWarehouse:
    """See the protocol. The ledger is shared by all tests; pipeline and target schema belong to this one."""

    dsn: str
    pipeline: str = field(default_factory=lambda: _unique("pipeline"))
    schema: str = field(default_factory=lambda: _unique("target"))
    deduplication: Deduplication | None = None
    upsert: Upsert | None = None
    sequence: SequenceRule | None = None
    evolution: Evolution = Evolution.NONE
    read_secret: ReadSecret = read_key_secret

    @property
    def ledger(self) -> PostgresLedger:
        return PostgresLedger(self.dsn)

    @property
    def decisions(self) -> PostgresDecisions:
        return PostgresDecisions(self.dsn)

    @property
    def evidence(self) -> PostgresEvidence:
        return PostgresEvidence(self.dsn)

    @property
    def incidents(self) -> PostgresIncidents:
        return PostgresIncidents(self.dsn)

    @property
    def sink(self) -> PostgresSink:
        return PostgresSink(
            self.dsn,
            (self.schema, "orders"),
            self.deduplication,
            self.upsert,
            self.sequence,
            self.evolution,
            self.read_secret,
        )

    def count_kept_waiting(self, backend: int) -> int:
        """How many sessions wait for what that one holds."""
        query = "select count(*) from pg_stat_activity where %s = any(pg_blocking_pids(pid))"
        with psycopg.connect(self.dsn) as connection:
            return int(connection.execute(query, [backend]).fetchall()[0][0])

    def with_rules(
        self,
        deduplication: Deduplication | None = None,
        upsert: Upsert | None = None,
        sequence: SequenceRule | None = None,
    ) -> "PostgresWarehouse":
        return replace(self, deduplication=deduplication, upsert=upsert, sequence=sequence)

    def hash_key(self, *values: str) -> bytes:
        """The hash by which the ledger knows a key."""
        return hmac.digest(self.read_secret(), hashlib.sha256(json.dumps(values).encode()).digest(), "sha256")

    @property
    def _target(self) -> sql.Identifier:
        return sql.Identifier(self.schema, "orders")

    def read_target(self) -> Sequence[Mapping[str, Any]]:
        with connect_behind(self.dsn) as connection:
            if not connection.execute("select 1 from pg_tables where schemaname = %s", [self.schema]).fetchall():
                return []
            rows = connection.cursor(row_factory=dict_row)
            return rows.execute(sql.SQL("select * from {}").format(self._target)).fetchall()

    def read_duplicates(self) -> Sequence[tuple[Coordinate, Coordinate]]:
        query = (
            'select topic, partition, "offset", first_topic, first_partition, first_offset '
            "from batchledger.duplicate where pipeline = %s order by 1, 2, 3"
        )
        with connect_behind(self.dsn) as connection:
            rows = connection.execute(query, [self.pipeline]).fetchall()
        return [
            ((TopicPartition(topic, partition), offset), (TopicPartition(first_topic, first_partition), first_offset))
            for topic, partition, offset, first_topic, first_partition, first_offset in rows
        ]

    def read_message_keys(self) -> Sequence[tuple[Coordinate, datetime]]:
        query = (
            'select topic, partition, "offset", remembered_until from batchledger.message_key where pipeline = %s '
            "order by 1, 2, 3"
        )
        with connect_behind(self.dsn) as connection:
            rows = connection.execute(query, [self.pipeline]).fetchall()
        return [((TopicPartition(topic, partition), offset), until) for topic, partition, offset, until in rows]

    def read_series(self) -> Mapping[str, tuple[int, Sequence[int]]]:
        query = (
            "select key_hash, run, array(select number from unnest(seen) as piece, "
            "generate_series(lower(piece), upper(piece) - 1) as number order by number) "
            "from batchledger.sequence where pipeline = %s"
        )
        with connect_behind(self.dsn) as connection:
            stored = connection.execute(query, [self.pipeline]).fetchall()
        names = [*self.sequence.key, self.sequence.number] if self.sequence else []
        # The ledger has hashes alone; a key of these tests is a letter.
        keys = {self.hash_key(*names, each): json.dumps([each]) for each in ascii_lowercase}
        return {keys[key_hash]: (run, seen) for key_hash, run, seen in stored}

    def count_deleted_keys(self) -> int:
        query = "select count(*) from batchledger.deleted_key where pipeline = %s"
        with connect_behind(self.dsn) as connection:
            return int(connection.execute(query, [self.pipeline]).fetchall()[0][0])

    def remember_key(self, message_id: str, first: Coordinate, until: datetime, pipeline: str | None = None) -> None:
        begin = "insert into batchledger.pipeline (name) values (%s) on conflict do nothing"
        bring = (
            "insert into batchledger.batch (pipeline, lane, state, is_dry_run, lag_left_records, planned_by) "
            "values (%s, 'replay', 'discarded', true, 0, 'before') returning batch_id"
        )
        query = (
            'insert into batchledger.message_key (pipeline, key_hash, topic, partition, "offset", batch_id, '
            "remembered_until) values (%s, %s, %s, %s, %s, %s, %s)"
        )
        key_hash = self.hash_key(message_id)
        (partition, offset), owner = first, pipeline or self.pipeline
        with connect_behind(self.dsn) as connection:
            connection.execute(begin, [owner])
            (batch,) = connection.execute(bring, [owner]).fetchall()
            connection.execute(query, [owner, key_hash, partition.topic, partition.partition, offset, *batch, until])

    def read_quarantine(self) -> Sequence[tuple[TopicPartition, int, bytes]]:
        query = (
            'select topic, partition, "offset", value from batchledger.quarantine where pipeline = %s order by 1, 2, 3'
        )
        with connect_behind(self.dsn) as connection:
            rows = connection.execute(query, [self.pipeline]).fetchall()
        return [(TopicPartition(topic, partition), offset, value) for topic, partition, offset, value in rows]

    def read_pipeline_decisions(self) -> Sequence[DecisionRecord]:
        found = list_decisions(self.dsn, self.pipeline)[::-1]
        return [each for each in found if each.batch_id is None]

    def read_dry_run(self, batch_id: int) -> DryRunOutcome | None:
        return load_batch_history(self.dsn, batch_id).dry_run

    def move_position(self, partition: TopicPartition, next_offset: int) -> None:
        query = (
            "update batchledger.position set next_offset = %s, origin_offset = least(origin_offset, %s) "
            "where pipeline = %s and topic = %s and partition = %s"
        )
        with connect_behind(self.dsn) as connection:
            values = [next_offset, next_offset, self.pipeline, partition.topic, partition.partition]
            connection.execute(query, values)

    def widen_target(self, column: str) -> None:
        with connect_behind(self.dsn) as connection:
            widen = sql.SQL("alter table {} add column {} text")
            connection.execute(widen.format(self._target, sql.Identifier(column)))

    def plan_at(self, batch_id: int, moment: datetime) -> None:
        with connect_behind(self.dsn) as connection:
            connection.execute("update batchledger.batch set planned_at = %s where batch_id = %s", [moment, batch_id])

    def stretch(self, batch_id: int, seconds: float) -> None:
        query = (
            "update batchledger.attempt a set opened_at = b.published_at - make_interval(secs => %s) "
            "from batchledger.batch b where b.batch_id = %s and a.batch_id = b.batch_id and a.number = b.attempt"
        )
        with connect_behind(self.dsn) as connection:
            connection.execute(query, [seconds, batch_id])

    def replace_target(self) -> None:
        with connect_behind(self.dsn) as connection:
            aside = sql.SQL("alter table {} rename to orders_before").format(self._target)
            connection.execute(aside)
            connection.execute(
                sql.SQL("create table {} (like {}.orders_before)").format(self._target, sql.Identifier(self.schema))
            )

    def load_published_history(self, since: datetime | None = None) -> PublishedHistory:
        return load_published_history(self.dsn, self.pipeline, since)

    def find_window(self, newest: int) -> datetime | None:
        return find_window(self.dsn, self.pipeline, newest)

    def lose_row(self, partition: TopicPartition, offset: int) -> None:
        query = sql.SQL("delete from {} where (_topic, _partition, _offset) = (%s, %s, %s)").format(self._target)
        with connect_behind(self.dsn) as connection:
            connection.execute(query, [partition.topic, partition.partition, offset])

    def forget_erasures(self) -> None:
        with connect_behind(self.dsn) as connection:
            connection.execute("update batchledger.erased_key set until = 0 where pipeline = %s", [self.pipeline])
        with psycopg.connect(as_superuser(self.dsn)) as connection:
            connection.execute("delete from batchledger.erased_offset where pipeline = %s", [self.pipeline])

    def prove(self) -> Verification:
        return prove_with(self, partial(self.sink.count_target, self.pipeline))

    def lose_staging(self) -> None:
        with connect_behind(self.dsn) as connection:
            tables = connection.execute(
                "select t.tablename from pg_tables t join batchledger.batch b "
                "on t.tablename like 'b' || b.batch_id || '\\_a%%rows' "
                "where t.schemaname = 'batchledger_staging' and b.pipeline = %s",
                [self.pipeline],
            ).fetchall()
            for (table,) in tables:
                connection.execute(sql.SQL("truncate {}").format(sql.Identifier("batchledger_staging", table)))

    def drop(self) -> None:
        """Remove what belongs to this test alone."""
        with connect_behind(self.dsn) as connection:
            connection.execute(sql.SQL("drop schema if exists {} cascade").format(sql.Identifier(self.schema)))


def open_postgres(dsn: str) -> Iterator[PostgresWarehouse]:
    """Lend a warehouse over the PostgreSQL that ``dsn`` names."""
    warehouse = PostgresWarehouse(dsn)
    yield warehouse
    warehouse.drop()


@contextmanager
def create_role(dsn: str) -> Iterator[str]:
    """Lend the connection string of a new role of PostgreSQL; what it owns goes with it."""
    role = _unique("team")
    name = sql.Identifier(role)
    with psycopg.connect(as_superuser(dsn), autocommit=True) as connection:
        connection.execute(sql.SQL("create role {} login password {}").format(name, role))
        try:
            yield make_conninfo(dsn, user=role, password=role)
        finally:
            owned = "select oid::regclass::text from pg_class where relowner = %s::regrole and relkind = 'r'"
            tables = [table for (table,) in connection.execute(owned, [role]).fetchall()]
            # All at once would be more locks than the server has room for.
            for start in range(0, len(tables), 500):
                connection.execute(f"drop table {', '.join(tables[start : start + 500])}".encode())
            connection.execute(sql.SQL("drop owned by {0} cascade; drop role {0}").format(name))
            connection.execute("delete from batchledger.pipeline_role where role = %s", [role])


def role_of(dsn: str) -> str:
    """The role that logs in with a connection string."""
    return str(conninfo_to_dict(dsn)["user"])


@contextmanager
def let_run(owner_dsn: str, warehouse: PostgresWarehouse) -> Iterator[None]:
    """Let the role of a warehouse, which has its grants, run the pipeline of that warehouse and one with ``_other``."""
    role, pipelines = role_of(warehouse.dsn), [warehouse.pipeline, f"{warehouse.pipeline}_other"]
    with connect_behind(owner_dsn) as connection:
        connection.execute(
            "insert into batchledger.pipeline_role (role, pipeline) select %s, unnest(%s::text[])", [role, pipelines]
        )
    yield
    with connect_behind(owner_dsn) as connection:
        connection.execute("delete from batchledger.pipeline_role where role = %s", [role])
