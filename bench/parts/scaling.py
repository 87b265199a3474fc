"""What a batch costs by itself, and what each partition adds: batches of ten records in each of so many partitions."""

from collections.abc import Iterator

from bench.bench import Bench
from bench.contenders import batchledger
from bench.figures import Figure, describe
from bench.records import write_topic
from bench.taking import take

PART = "scaling"
PARTITIONS_TRIED = (1, 16, 256)
RECORDS_OF_A_PARTITION = 10
STEPS = ("plan", "stage", "audit", "publish")
# A JVM compiles what it does often.
WARM_UPS = 3


def measure(bench: Bench) -> Iterator[Figure]:
    """Yield seconds, CPU, WAL and writing transactions of one batch, for every number of partitions in every round."""
    topics = [
        write_topic(bench.services, partitions * RECORDS_OF_A_PARTITION, f"scaling_{partitions}", partitions)
        for partitions in PARTITIONS_TRIED
    ]
    contender = batchledger.describe("exactly_once", max(topic.records for topic in topics))
    with contender.start(bench.services) as running:
        for number in range(-WARM_UPS, bench.rounds):
            for topic in topics:
                taken = take(bench.services, contender.subject, running, topic)
                if number < 0:
                    continue
                seconds, cpu = taken.done.seconds, taken.usage.cpu_seconds
                subject = f"{len(topic.end_by_partition)} partitions"
                bench.say(f"round {number + 1} of {bench.rounds}, {subject}: {seconds:.2f} s, CPU {cpu:.2f} s")
                steps = {f"{step}_seconds": taken.done.seconds_by_step[step] for step in STEPS}
                yield from describe(
                    PART,
                    subject,
                    seconds=seconds,
                    **steps,
                    cpu_seconds=cpu,
                    wal_bytes=taken.usage.wal_bytes,
                    transactions=taken.usage.transactions,
                )
