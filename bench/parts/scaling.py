"""The cost of a batch, and of each of its partitions: batches of ten records a partition."""

from collections.abc import Iterator

from bench.bench import Bench
from bench.contenders import batchledger
from bench.figures import Figure, describe
from bench.records import write_topic
from bench.taking import take, warm_up

PART = "scaling"
PARTITIONS_TRIED = (1, 16, 256)
RECORDS_OF_A_PARTITION = 10


def measure(bench: Bench) -> Iterator[Figure]:
    """Yield seconds, CPU, WAL and writing transactions of one batch, for every number of partitions in every round."""
    topics = [
        write_topic(bench.services, partitions * RECORDS_OF_A_PARTITION, f"scaling_{partitions}", partitions)
        for partitions in PARTITIONS_TRIED
    ]
    contender = batchledger.describe("exactly_once", max(topic.records for topic in topics))
    with contender.start(bench.services) as running:
        for topic in topics:
            warm_up(bench, contender.subject, running, topic)
        for number in range(bench.rounds):
            for topic in topics:
                taken = take(bench.services, contender.subject, running, topic)
                seconds, cpu = taken.done.seconds, taken.usage.cpu_seconds
                subject = f"{len(topic.end_by_partition)} partitions"
                bench.say(f"round {number + 1} of {bench.rounds}, {subject}: {seconds:.2f} s, CPU {cpu:.2f} s")
                yield from describe(
                    PART,
                    subject,
                    seconds=seconds,
                    **taken.step_seconds,
                    cpu_seconds=cpu,
                    wal_bytes=taken.usage.wal_bytes,
                    transactions=taken.usage.transactions,
                )
