"""The bench of the bookkeeping at a small scale: its histories are what the ledger would have written itself."""

from collections.abc import Iterator
from uuid import uuid4

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo

from batchledger.books.history import load_published_history
from batchledger.ledger.migrate import migrate
from bench import ledger_steps
from bench.history import History, seed
from bench.ledger_steps import ask_kafka, measure
from tests.conftest import Kafka, as_superuser

SHORT, LONG = History(batches=3, partitions=4), History(batches=40, partitions=4)


@pytest.fixture
def dsn(warehouse_dsn: str) -> Iterator[str]:
    """A ledger in a database of its own, for the superuser: seeding breaks every rule."""
    name, superuser = f"bookkeeping_{uuid4().hex[:8]}", as_superuser(warehouse_dsn)
    with psycopg.connect(superuser, autocommit=True) as connection:
        connection.execute(sql.SQL("create database {}").format(sql.Identifier(name)))
        own = make_conninfo(superuser, dbname=name)
        migrate(own)
        yield own
        connection.execute(sql.SQL("drop database {} with (force)").format(sql.Identifier(name)))


def test_history_that_was_written_at_once_is_guarded_by_every_index(dsn: str) -> None:
    seed(dsn, [SHORT, LONG])
    with psycopg.connect(dsn, autocommit=True) as connection:
        for index in ("batch_range_pkey", "batch_range_disjoint", "batch_range_held_once"):
            # Builds it anew, and compares each row with all others.
            connection.execute(sql.SQL("reindex index batchledger.{}").format(sql.Identifier(index)))
    seed(dsn, [History(batches=2, partitions=4)])
    query = "update batchledger.batch_range set {} where batch_id = 2 and partition = 1"
    with psycopg.connect(dsn, autocommit=True) as connection:
        for change, refusal in (
            ("offsets = '[0,10)'", "batch_range_disjoint"),
            ("held = '{[0,10)}'", "batch_range_held_once"),
            ("batch_id = 1, offsets = '[0,10)', published_live = false, held = '{}'", "batch_range_pkey"),
        ):
            with pytest.raises(psycopg.IntegrityError, match=refusal):
                connection.execute(sql.SQL(query).format(sql.SQL(change)))


def test_batches_over_a_history_are_taken_through_their_whole_life(dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger_steps, "OTHERS", 3)
    costs = measure(dsn, [LONG, SHORT], rounds=2)
    assert [each.history for each in costs] == [SHORT, LONG]
    for each in costs:
        assert list(each.seconds_by_step) == ["plan", "stage", "audit", "publish"]
        assert each.seconds == pytest.approx(sum(each.seconds_by_step.values()))
        assert {"ledger.store_plan", "ledger.record_audit", "ledger.publication"} <= set(each.seconds_by_call)
        history = load_published_history(dsn, each.history.pipeline)
        # One batch warms up.
        assert len(history.ranges) == (each.history.batches + 3) * each.history.partitions


def test_kafka_is_asked_what_a_batch_asks(kafka: Kafka) -> None:
    cost = ask_kafka(kafka.options, partitions=3, rounds=1)
    assert set(cost.seconds_by_question) == {"read_log", "commit_courtesy"}
