"""The cost of a batch and of each of its partitions: topics of many shapes, each of them one batch."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from bench.bench import Bench
from bench.contenders import batchledger
from bench.figures import Figure, describe
from bench.records import Topic, delete_topics, write_topic
from bench.taking import take, warm_up

PART = "scaling"


@dataclass(frozen=True)
class Shape:
    """A topic by its partitions, and how many records each has; None divides the records of the bench among them."""

    partitions: int
    of_a_partition: int | None

    @property
    def subject(self) -> str:
        """What the tables call it, such as ``256 partitions of 10``."""
        count = f"{self.partitions:,} partition{'' if self.partitions == 1 else 's'}"
        return f"{count} of {self.of_a_partition}" if self.of_a_partition else f"all records in {count}"

    def write(self, bench: Bench) -> Topic:
        """Write the topic, unless the bench has it already."""
        records = bench.topic.records if self.of_a_partition is None else self.partitions * self.of_a_partition
        if self.of_a_partition is None and self.partitions == len(bench.topic.end_by_partition):
            return bench.topic
        return write_topic(bench.services, records, f"scaling_{self.partitions}_{records}", self.partitions)


ONE, SIXTEEN, MANY = Shape(1, 10), Shape(16, 10), Shape(256, 10)
MOST = Shape(10_000, 100)
WHOLE, WHOLE_IN_ONE = Shape(4, None), Shape(1, None)


def measure(bench: Bench) -> Iterator[Figure]:
    """Yield seconds, CPU, WAL and writing transactions of one batch, for every shape in every round."""
    topics = [(shape, shape.write(bench)) for shape in (ONE, SIXTEEN, MANY, MOST, WHOLE, WHOLE_IN_ONE)]
    try:
        yield from _measure_each(bench, topics)
    finally:
        # A broker pays for each partition that it has, also in the parts that follow.
        delete_topics(bench.services.kafka_options, [topic.name for _, topic in topics if topic is not bench.topic])


def _measure_each(bench: Bench, topics: Sequence[tuple[Shape, Topic]]) -> Iterator[Figure]:
    contender = batchledger.describe("exactly_once", max(topic.records for _, topic in topics))
    with contender.start(bench.services) as running:
        for _, topic in topics:
            warm_up(bench, contender.subject, running, topic)
        for number in range(bench.rounds):
            for shape, topic in topics:
                taken = take(bench.services, contender.subject, running, topic)
                seconds, cpu = taken.done.seconds, taken.usage.cpu_seconds
                bench.say(f"round {number + 1} of {bench.rounds}, {shape.subject}: {seconds:.2f} s, CPU {cpu:.2f} s")
                yield from describe(
                    PART,
                    shape.subject,
                    seconds=seconds,
                    rows_per_second=taken.rows_per_second,
                    **taken.step_seconds,
                    cpu_seconds=cpu,
                    wal_bytes=taken.usage.wal_bytes,
                    transactions=taken.usage.transactions,
                )
