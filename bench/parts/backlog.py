"""A backlog of ten batches against one batch: rows a second, and the peak memory of every program."""

from collections.abc import Iterator

from bench.bench import Bench
from bench.contenders import batchledger
from bench.figures import Figure, describe
from bench.records import write_topic
from bench.taking import Taken, take, warm_up

PART = "backlog"
BATCHES = 10
ONE, ALL = "one_batch", "backlog"


def measure(bench: Bench) -> Iterator[Figure]:
    """Yield the figures of single batches, one in each round, and of the backlog, which is taken once."""
    batch_records = bench.topic.records
    backlog = write_topic(bench.services, batch_records * BATCHES, "backlog")
    contender = batchledger.describe("exactly_once", batch_records)
    with contender.start(bench.services) as running:
        warm_up(bench, contender.subject, running, bench.topic)
        for number in range(bench.rounds):
            taken = take(bench.services, contender.subject, running, bench.topic)
            bench.say(f"one batch, round {number + 1} of {bench.rounds}: {taken.rows_per_second:,.0f} rows/s")
            yield from _describe(ONE, taken)
        bench.say(f"a backlog of {backlog.records:,} records in batches of {batch_records:,}")
        taken = take(bench.services, contender.subject, running, backlog)
        bench.say(f"backlog: {taken.rows_per_second:,.0f} rows/s")
        yield from _describe(ALL, taken)


def _describe(subject: str, taken: Taken) -> Iterator[Figure]:
    memory = {f"{program}_peak_bytes": peak for program, peak in taken.usage.memory_bytes_by_program.items()}
    yield from describe(PART, subject, rows_per_second=taken.rows_per_second, **memory)
