"""From produce to visible: a steady producer, a contender in its natural loop, a reader that looks 20 times a second.

Natural loops: Batchledger runs batch after batch in one warm process, AvailableNow trigger after trigger in one
session, the hand-written loop and Debezium's connector run anyway. A record counts as visible when the reader first
finds its offset, or a later one of its partition, in the table.
"""

import threading
import time
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import quantiles
from typing import Self

from confluent_kafka import Consumer, Producer, TopicPartition
from typing_extensions import override

from batchledger.local.samples.producer import choose_partition
from bench.bench import Bench
from bench.contenders.contender import Contender, Running, Subject
from bench.figures import Figure, describe
from bench.records import PARTITIONS, Topic, create_topic, to_record
from bench.taking import new_order, warm_up
from bench.targets.table import fresh_table, watching

PART = "latency"
RECORDS_PER_SECOND = 2000
SECONDS = 20
SECONDS_IF_SMALL = 5
ROUNDS_AT_MOST = 3
BURSTS_PER_SECOND = 100
SECONDS_BETWEEN_LOOKS = 0.05
TAIL_PAGES = 500


@dataclass(frozen=True)
class Look:
    """What a reader saw: the next offset of every partition that had rows."""

    at_ms: float
    end_by_partition: Mapping[int, int]


def measure(bench: Bench, contenders: Sequence[Contender]) -> Iterator[Figure]:
    """Yield p50 and p99 of every contender and round."""
    for contender in contenders:
        with contender.start(bench.services) as running:
            warm_up(bench, contender.subject, running, bench.topic)
            for number in range(min(bench.rounds, ROUNDS_AT_MOST)):
                name = f"latency_{contender.subject.name}_{number}"
                topic = plan_topic(name, RECORDS_PER_SECOND * (SECONDS_IF_SMALL if bench.is_small else SECONDS))
                create_topic(bench.services, name)
                cuts = quantiles(time_loop(bench, contender.subject, running, topic, RECORDS_PER_SECOND), n=100)
                bench.say(f"{contender.subject.title}: p50 {cuts[49]:,.0f} ms, p99 {cuts[98]:,.0f} ms")
                yield from describe(PART, contender.subject.name, p50_milliseconds=cuts[49], p99_milliseconds=cuts[98])


def time_loop(bench: Bench, subject: Subject, running: Running, topic: Topic, records_per_second: float) -> list[float]:
    """Return how many milliseconds each record of a steady producer took through a contender in its natural loop."""
    order = new_order(subject, topic)
    with fresh_table(bench.services.dsn, order.target):
        running.prepare(order)
        running.begin(order)
        with Looking(bench.services.dsn, order.target) as looks:
            produce_steadily(bench, topic, records_per_second)
            running.finish()
            looks.wait_for(topic.end_by_partition)
    return find_delays(looks.seen, read_times(bench, topic))


def find_delays(looks: Sequence[Look], times_by_partition: Mapping[int, Sequence[float]]) -> list[float]:
    """Return for every record the milliseconds from its time to the first look that found it.

    ``times_by_partition`` has the time of every offset from 0 on. Every record must have been found.
    """
    delays: list[float] = []
    for partition, times in times_by_partition.items():
        ends = [look.end_by_partition.get(partition, 0) for look in looks]
        delays += [looks[bisect_right(ends, offset)].at_ms - moment for offset, moment in enumerate(times)]
    return delays


class Looking(threading.Thread):
    """A reader that looks until it has seen all that it waits for, ``patience_seconds`` after the last record."""

    def __init__(self, dsn: str, table: str, patience_seconds: float = 60) -> None:
        super().__init__(daemon=True)
        self.dsn, self.table, self.patience_seconds = dsn, table, patience_seconds
        self.seen: list[Look] = []
        self.awaited: Mapping[int, int] | None = None
        self.stopping = threading.Event()

    @override
    def run(self) -> None:
        """Look at the newest pages, 20 times a second."""
        with watching(self.dsn, self.table, TAIL_PAGES) as watch:
            while not self.stopping.wait(SECONDS_BETWEEN_LOOKS):
                found = dict(watch.look())
                self.seen.append(Look(time.time() * 1000, found))
                if found == self.awaited:
                    return

    def wait_for(self, end_by_partition: Mapping[int, int]) -> None:
        """Return when everything up to these offsets was seen."""
        self.awaited = end_by_partition
        self.join(self.patience_seconds)
        if self.is_alive():
            raise RuntimeError(f"rows of {self.table} are missing, or became visible outside of the newest pages")

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stopping.set()
        self.join()


def plan_topic(name: str, records: int) -> Topic:
    """Where every partition will end."""
    ends = Counter(choose_partition(to_record(number).key, PARTITIONS) for number in range(records))
    return Topic(name, dict(sorted(ends.items())), 0)


def produce_steadily(bench: Bench, topic: Topic, records_per_second: float) -> None:
    """Send the records in bursts, a hundred a second at most, each with the moment of its sending."""
    producer = Producer({**bench.services.kafka_options, "linger.ms": 0, "acks": "all", "enable.idempotence": True})
    bursts_per_second = min(BURSTS_PER_SECOND, records_per_second)
    at_once = round(records_per_second / bursts_per_second)
    started = time.monotonic()
    for burst, first in enumerate(range(0, topic.records, at_once)):
        time.sleep(max(0.0, started + burst / bursts_per_second - time.monotonic()))
        for number in range(first, min(first + at_once, topic.records)):
            record = to_record(number, int(time.time() * 1000))
            partition = choose_partition(record.key, PARTITIONS)
            producer.produce(topic.name, record.value, record.key, partition, timestamp=record.timestamp_ms)
        producer.poll(0)
    producer.flush(30)


def read_times(bench: Bench, topic: Topic) -> dict[int, list[float]]:
    """Return the time of every offset, from its record."""
    options = {**bench.services.kafka_options, "group.id": topic.name, "enable.auto.commit": False}
    times: dict[int, list[float]] = {partition: [] for partition in topic.end_by_partition}
    consumer = Consumer(options)
    try:
        consumer.assign([TopicPartition(topic.name, partition, 0) for partition in times])
        while sum(map(len, times.values())) < topic.records:
            for message in consumer.consume(10_000, timeout=1.0):
                times[message.partition() or 0].append(message.timestamp()[1])
    finally:
        consumer.close()
    return times
