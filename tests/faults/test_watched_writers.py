"""Writers of others that are killed nine times: a look names each row that they lose or double, and no other.

The other writers of `make bench ONLY=watched` need a JVM each, and minutes.
"""

import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import psycopg
import pytest
from psycopg import sql

from batchledger.ledger.watches import WatchStore
from batchledger.local.samples.admin import ensure_topic, find_ends
from batchledger.local.samples.producer import produce
from batchledger.model.balance import HolePolicy
from batchledger.proof.watching import Discrepancy, TableLook, WatchOutcome
from batchledger.source.kafka.log import KafkaLog
from batchledger.watching.look import TableWatch, WatchRules, look
from batchledger.watching.postgres import PostgresTable
from batchledger.watching.relation import Relation
from batchledger.watching.table import RowCoordinates
from bench.orders import DSN_VARIABLE, KAFKA_VARIABLE, ORDER_VARIABLE, Order
from bench.own_count import Offset, OwnCount, compare, read_table, read_topic
from bench.programs.hand_written_loop import OFFSETS
from bench.records import to_record
from bench.targets.table import count_rows, fresh_table, identify
from tests.conftest import ROOT, Kafka

KILLS = 9
ROUNDS_AT_MOST = 5
"""Only chance decides whether a kill falls between two commits."""
RECORDS = 10_000
RECORDS_PER_COMMIT = 50
PARTITIONS = 3


@dataclass(frozen=True)
class Writer:
    """A hand-written loop, with the topic that it reads and the table that it writes."""

    order: Order
    options: dict[str, str]
    dsn: str

    def count(self) -> OwnCount:
        """What the table lacks and has twice, by code that is not Batchledger's."""
        return compare(read_topic(self.options, self.order.topic), read_table(self.dsn, identify(self.order.target)))

    def look(self) -> TableLook:
        """What a watch says."""
        rules = WatchRules(self.order.name, self.order.name, (self.order.topic,), HolePolicy.TRANSACTIONAL, timedelta())
        coordinates = RowCoordinates("_partition", "_offset", "_topic")
        table = PostgresTable(Relation(self.dsn, f"public.{self.order.target}"), coordinates, rules.topics)
        watch = TableWatch(rules, KafkaLog(self.options), table, WatchStore(self.dsn))
        return look(watch, datetime.now(UTC) + timedelta(seconds=5))

    @contextmanager
    def running(self) -> Iterator["subprocess.Popen[bytes]"]:
        environment = {
            ORDER_VARIABLE: self.order.to_json(),
            KAFKA_VARIABLE: json.dumps(self.options),
            DSN_VARIABLE: self.dsn,
        }
        command = (sys.executable, "-m", "bench.programs.hand_written_loop")
        with subprocess.Popen(command, cwd=ROOT, env={**os.environ, **environment}) as process:
            try:
                yield process
            finally:
                process.kill()

    def run_until_killed(self, rows: int) -> None:
        """Kill it as soon as it has written so many rows more."""
        until = count_rows(self.dsn, self.order.target) + rows
        reached = sql.SQL("select count(*) >= {} from {}").format(until, identify(self.order.target))
        with psycopg.connect(self.dsn, autocommit=True) as connection, self.running() as process:
            while connection.execute(reached).fetchone() == (False,):
                assert process.poll() is None
            process.kill()
            assert process.wait() == -signal.SIGKILL

    def run_to_the_end(self) -> None:
        """Let it write the rest."""
        with self.running() as process:
            assert process.wait(120) == 0


@contextmanager
def writer(kafka: Kafka, dsn: str, first: str) -> Iterator[Writer]:
    """A topic with records, and an empty table for the loop."""
    name = f"written_{uuid4().hex[:8]}"
    ensure_topic(kafka.options, name, PARTITIONS, {})
    produce(kafka.options, name, PARTITIONS, map(to_record, range(RECORDS)), lambda sent: None)
    ends = find_ends(kafka.options, name, PARTITIONS)
    settings = {"records_per_commit": str(RECORDS_PER_COMMIT), "first": first}
    with fresh_table(dsn, name):
        yield Writer(Order(name, name, name, ends, settings), kafka.options, dsn)


def named(said: TableLook, difference: Discrepancy) -> set[Offset]:
    """The offsets of a difference."""
    return {
        (each.partition.partition, offset)
        for found in said.found
        if found.difference is difference
        for each in found.ranges
        for offset in range(each.start, each.until)
    }


def do_harm(kafka: Kafka, dsn: str, first: str) -> tuple[OwnCount, TableLook]:
    """Kill a writer nine times, and let it end; again if no kill has done harm."""
    chance = random.Random(46)  # noqa: S311 - moments, not secrets
    for _ in range(ROUNDS_AT_MOST):
        with writer(kafka, dsn, first) as loop:
            for _ in range(KILLS):
                loop.run_until_killed(chance.randrange(1, 4 * RECORDS_PER_COMMIT))
            loop.run_to_the_end()
            own = loop.count()
            if own.missing or own.twice:
                return own, loop.look()
    raise AssertionError("no kill fell between two commits")


@pytest.mark.parametrize("first", ["rows", OFFSETS])
def test_each_row_that_a_killed_writer_loses_or_doubles_is_named(kafka: Kafka, warehouse_dsn: str, first: str) -> None:
    own, said = do_harm(kafka, warehouse_dsn, first)
    assert bool(own.twice) is (first == "rows")
    assert bool(own.missing) is (first == OFFSETS)
    assert named(said, Discrepancy.MISSING) == own.missing
    assert named(said, Discrepancy.TWICE) == own.twice
    assert {each.difference for each in said.found} <= {Discrepancy.MISSING, Discrepancy.TWICE}
    assert (said.outcome, said.rows) == (WatchOutcome.WRONG, RECORDS - len(own.missing))


def test_writer_that_is_not_killed_is_proved(kafka: Kafka, warehouse_dsn: str) -> None:
    with writer(kafka, warehouse_dsn, "rows") as loop:
        loop.run_to_the_end()
        assert loop.count() == OwnCount(frozenset(), frozenset())
        assert loop.look().outcome is WatchOutcome.PROVED
