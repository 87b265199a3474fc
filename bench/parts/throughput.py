"""Rows a second, and their cost: every contender and every limit in turn, round after round, on one topic."""

import random
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import psycopg
from psycopg import sql

from bench.bench import Bench
from bench.contenders import batchledger, limits
from bench.contenders.contender import Contender, Running, Subject
from bench.figures import Figure, describe
from bench.orders import Order, Sink
from bench.taking import Taken, new_order, take, take_and_read, warm_up
from bench.targets.table import fresh_table, identify

PART = "throughput"
LIMITS = "limits"
SINKS = "sinks"
"""The other targets, with Spark's own sink as the peer."""
BYTES_OF_A_MEGABYTE = 1_000_000


def measure(
    bench: Bench, contenders: Sequence[Contender], *, part: str = PART, with_limits: bool = False
) -> Iterator[Figure]:
    """Yield the figures of every round. All contenders are warm, and all on the same target write the same rows.

    Each round has another order, so that no contender always follows the one that leaves most work behind. Every run
    has the same orders.
    """
    with ExitStack() as stack:
        entries: list[tuple[str, Subject, Running]] = []
        digests: defaultdict[Sink, dict[str, str]] = defaultdict(dict)
        for contender in contenders:
            running, subject = stack.enter_context(contender.start(bench.services)), contender.subject
            written = digests[subject.sink]
            written[take_and_read(bench.services, subject, running, bench.warm_up)] = subject.title
            if len(written) > 1:
                raise RuntimeError(f"these do not write the same rows: {' and '.join(written.values())}")
            warm_up(bench, subject, running, bench.topic)
            entries.append((part, subject, running))
        if with_limits:
            file = _write_copy_file(bench)
            limit = stack.enter_context(limits.start(bench.services, file))
            entries += [(LIMITS, each, limit) for each in limits.describe()]
        for number in range(bench.rounds):
            for entry, subject, running in random.Random(number).sample(entries, len(entries)):  # noqa: S311
                if entry != LIMITS:
                    # A contender that has waited is cold again: Spark ends Python workers that are idle for a minute.
                    take(bench.services, subject, running, bench.warm_up)
                taken = take(bench.services, subject, running, bench.topic)
                per_second = f"{taken.rows_per_second:,.0f} rows/s"
                bench.say(f"round {number + 1} of {bench.rounds}, {subject.title}: {per_second}")
                yield from describe_taken(entry, subject.name, taken)


def describe_taken(part: str, name: str, taken: Taken) -> Iterator[Figure]:
    """Return the figures of one measurement."""
    seconds, millions = taken.done.seconds, taken.topic.records / 1_000_000
    yield from describe(
        part,
        name,
        seconds=seconds,
        rows_per_second=taken.rows_per_second,
        megabytes_per_second=taken.topic.value_bytes / BYTES_OF_A_MEGABYTE / seconds,
        cpu_seconds_per_million=taken.usage.cpu_seconds / millions,
        peak_memory_bytes=taken.usage.memory_bytes,
        wal_bytes_per_row=taken.usage.wal_bytes / taken.topic.records,
        **{f"{group}_cpu_per_million": cpu / millions for group, cpu in taken.usage.cpu_seconds_by_group.items()},
        **taken.step_seconds,
    )
    if "audit" in taken.done.seconds_by_step:
        yield from describe(part, name, audit_share=taken.done.seconds_by_step["audit"] / seconds)


def _write_copy_file(bench: Bench) -> Path:
    """Write the input of COPY: the rows of the topic, in PostgreSQL's own binary format."""
    bench.say("preparing the file for COPY")
    file = bench.services.home.local / "rows.copy"
    contender = batchledger.describe("exactly_once", bench.topic.records)
    with contender.start(bench.services) as running:
        order = new_order(contender.subject, bench.topic)
        with fresh_table(bench.services.dsn, order.target):
            running.prepare(order)
            running.begin(order)
            running.finish()
            _copy_out(bench, order, file)
    return file


def _copy_out(bench: Bench, order: Order, file: Path) -> None:
    statement = sql.SQL("copy {} to stdout (format binary)").format(identify(order.target))
    with (
        psycopg.connect(bench.services.dsn) as connection,
        file.open("wb") as written,
        connection.cursor().copy(statement) as rows,
    ):
        for data in rows:
            written.write(data)
