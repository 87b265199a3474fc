"""What the format of records costs: the same fields as flat JSON, nested JSON, Avro and Protobuf.

The first rounds decode values in memory, while no service has anything to do. The others take a topic of each format
into a table. Each round has another order.
"""

import random
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace

import psycopg
from psycopg import sql

from bench.bench import Bench
from bench.contenders import available_now, batchledger
from bench.contenders.contender import Running, Subject
from bench.figures import Figure, describe
from bench.formats import AVRO, AVRO_SCHEMA, FORMATS, Format
from bench.orders import Order
from bench.parts.throughput import describe_taken
from bench.process import Program, run_program
from bench.programs.decode_blocks import BLOCK_RECORDS, CPU_SECONDS
from bench.records import Topic, delete_topics, write_topic
from bench.services import Services
from bench.taking import new_order, take, warm_up
from bench.targets.table import fresh_table, identify

PART = "formats"
DECODED = "decoded_per_cpu_second"
MOST_BLOCKS = 20

# The fields of every row as a flat record has them, and its place. Topics differ in name and time.
_DIGEST = "select sum(hashtextextended(row({}, _partition, _offset)::text, 0))::text from {}"

Entry = tuple[Subject, Running, Format]


def measure(bench: Bench) -> Iterator[Figure]:
    """Yield the figures of every round. Raises RuntimeError if two formats do not leave the same rows."""
    yield from _decode_each(bench)
    topics: dict[str, Topic] = {}
    with bench.services.registry() as registry_url:
        try:
            for place, each in enumerate(FORMATS):
                write = each.register(registry_url)
                topics[each.name] = write_topic(bench.services, bench.topic.records, f"formats_{place}", write=write)
            yield from _measure_each(bench, topics)
        finally:
            delete_topics(bench.services.kafka_options, [topic.name for topic in topics.values()])


def _measure_each(bench: Bench, topics: Mapping[str, Topic]) -> Iterator[Figure]:
    ours, peer = batchledger.describe("exactly_once", bench.topic.records), available_now.describe_avro(AVRO_SCHEMA)
    with ExitStack() as stack:
        running, running_peer = (stack.enter_context(each.start(bench.services)) for each in (ours, peer))
        entries: list[Entry] = [(_adapt(ours.subject, each), running, each) for each in FORMATS]
        entries.append((peer.subject, running_peer, AVRO))
        _require_same_rows(bench.services, entries, topics)
        for subject, each_running, format_ in entries:
            warm_up(bench, subject, each_running, topics[format_.name])
        for number in range(bench.rounds):
            for subject, each_running, format_ in random.Random(number).sample(entries, len(entries)):  # noqa: S311
                topic = topics[format_.name]
                taken = take(bench.services, subject, each_running, topic)
                per_second = f"{taken.rows_per_second:,.0f} rows/s"
                bench.say(f"round {number + 1} of {bench.rounds}, {subject.title}: {per_second}")
                yield from describe_taken(PART, subject.title, taken)
                yield from describe(PART, subject.title, bytes_per_record=topic.value_bytes / topic.records)


def _adapt(subject: Subject, format_: Format) -> Subject:
    return replace(subject, title=format_.name, settings={**subject.settings, **format_.source})


def _decode_each(bench: Bench) -> Iterator[Figure]:
    with run_program(
        bench.services, (sys.executable, "-m", "bench.programs.decode_blocks"), "decode_blocks"
    ) as decoder:
        for number in range(bench.rounds):
            for format_ in random.Random(number).sample(FORMATS, len(FORMATS)):  # noqa: S311
                yield from _decode(bench, decoder, format_)


def _decode(bench: Bench, decoder: Program, format_: Format) -> Iterator[Figure]:
    blocks = min(MOST_BLOCKS, max(1, bench.topic.records // BLOCK_RECORDS))
    done = decoder.carry_out(Order("", "", "", {}, {"format": format_.name, "blocks": str(blocks)}))
    seconds, records = done.seconds_by_step[CPU_SECONDS], blocks * BLOCK_RECORDS
    bench.say(f"decoding alone, {format_.name}: {records / seconds:,.0f} records per second of CPU")
    yield from describe(
        PART, format_.name, decoding_cpu_per_million=1_000_000 * seconds / records, **{DECODED: records / seconds}
    )


def _require_same_rows(services: Services, entries: Sequence[Entry], topics: Mapping[str, Topic]) -> None:
    title_by_digest: dict[str, str] = {}
    for subject, running, format_ in entries:
        digest = _take_and_read(services, subject, running, topics[format_.name], format_.as_flat)
        title_by_digest.setdefault(digest, subject.title)
    if len(title_by_digest) > 1:
        raise RuntimeError(f"these do not leave the same rows: {' and '.join(title_by_digest.values())}")


def _take_and_read(services: Services, subject: Subject, running: Running, topic: Topic, as_flat: str) -> str:
    """Take the whole topic; return the digest of its rows, with the fields of a flat record."""
    order = new_order(subject, topic)
    with fresh_table(services.dsn, order.target):
        running.prepare(order)
        running.begin(order)
        running.finish()
        with psycopg.connect(services.dsn) as connection:
            statement = sql.SQL(_DIGEST).format(sql.SQL(as_flat), identify(order.target))
            row = connection.execute(statement).fetchone()
            return str(row[0]) if row else ""
