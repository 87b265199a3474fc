"""What the ledger takes to plan and to publish a batch: over a short and a long history, and for 10,000 partitions."""

from collections.abc import Iterator, Mapping

import psycopg
from psycopg.conninfo import make_conninfo

from batchledger.database.sessions import keep_connections
from batchledger.ledger.migrate import migrate
from bench.bench import Bench
from bench.figures import Figure, describe
from bench.history import History
from bench.ledger_steps import ask_kafka
from bench.ledger_steps import measure as take_steps

PART = "bookkeeping"
DATABASE = "bookkeeping"
HISTORY_BY_SUBJECT: Mapping[str, History] = {
    "1k_batches": History(1_000, 64),
    "10k_partitions": History(1_000, 10_000),
    "1m_batches": History(1_000_000, 64),
}
MOST_RANGES_IF_SMALL = 100_000


def measure(bench: Bench) -> Iterator[Figure]:
    """Yield the seconds of plan and publish together, in a database of their own. It keeps the earlier histories.

    The longest history takes half an hour to write, and 30 GB.
    """
    chosen = {
        subject: history
        for subject, history in HISTORY_BY_SUBJECT.items()
        if not bench.is_small or history.batches * history.partitions <= MOST_RANGES_IF_SMALL
    }
    dsn = make_conninfo(bench.services.superuser_dsn, dbname=DATABASE)
    with psycopg.connect(bench.services.superuser_dsn, autocommit=True) as connection:
        connection.execute(f"create database {DATABASE}")
        try:
            migrate(dsn)
            with keep_connections():
                cost_by_history = {
                    each.history: each for each in take_steps(dsn, list(chosen.values()), bench.rounds, bench.say)
                }
            for subject, history in chosen.items():
                steps = cost_by_history[history].seconds_by_step
                seconds = steps["plan"] + steps["publish"]
                bench.say(f"{history}: plan and publish {seconds:.2f} s")
                yield from describe(PART, subject, seconds=seconds, **steps)
        finally:
            connection.execute(f"drop database {DATABASE} with (force)")
    asked = ask_kafka(bench.services.kafka_options, 1_000 if bench.is_small else 10_000, bench.rounds)
    yield from describe(PART, "kafka", partitions=asked.partitions, **asked.seconds_by_question)
