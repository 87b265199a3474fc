"""One measurement: a contender takes a topic into a fresh target."""

from dataclasses import dataclass
from uuid import uuid4

from bench.bench import Bench
from bench.contenders.batchledger import service_pid
from bench.contenders.contender import Running, Subject
from bench.measuring import KAFKA, POSTGRES, Usage, measure
from bench.orders import Done, Order, Sink
from bench.records import Topic
from bench.services import Services
from bench.targets.lake import LakeTables, find_catalog
from bench.targets.table import Tables
from bench.targets.target import Target
from bench.targets.topic import Topics

WARM_UPS = 3


@dataclass(frozen=True)
class Taken:
    """The result of a measurement."""

    topic: Topic
    done: Done
    usage: Usage

    @property
    def rows_per_second(self) -> float:
        """Rows of the topic, all of them visible at the end."""
        return self.topic.records / self.done.seconds

    @property
    def step_seconds(self) -> dict[str, float]:
        """The seconds of each step, by the name of the figure; empty if the contender has no steps."""
        return {f"{step}_seconds": value for step, value in self.done.seconds_by_step.items() if step != "batches"}


def new_order(subject: Subject, topic: Topic) -> Order:
    """Return an order with a name and a target of its own, independent of all before."""
    name = f"{subject.name}_{uuid4().hex[:8]}"
    return Order(name, topic.name, name, topic.end_by_partition, subject.settings, subject.sink)


def take(services: Services, subject: Subject, running: Running, topic: Topic) -> Taken:
    """Let a contender take the whole topic, and measure it. Raises RuntimeError if rows are missing."""
    order, target = new_order(subject, topic), find_target(services, subject.sink)
    with target.fresh(order.target):
        running.prepare(order)
        with measure(services.superuser_dsn, processes(services, running)) as meter:
            running.begin(order)
            done = running.finish()
        rows = target.count_rows(order.target)
        if subject.writes and rows != topic.records:
            raise RuntimeError(f"{subject.title} left {rows:,} rows of {topic.records:,}: nothing was killed")
    return Taken(topic, done, meter.result())


def warm_up(bench: Bench, subject: Subject, running: Running, topic: Topic) -> None:
    """Let a contender take the whole of a topic again and again.

    A JVM compiles what it does often: the fifth take needs half the time of the first.
    """
    times = 1 if bench.is_small else WARM_UPS
    for number in range(times):
        bench.say(f"warming up, {number + 1} of {times}: {subject.title}")
        take(bench.services, subject, running, topic)


def take_and_read(services: Services, subject: Subject, running: Running, topic: Topic) -> str:
    """Let a contender take the whole topic; return the digest of its rows."""
    order, target = new_order(subject, topic), find_target(services, subject.sink)
    with target.fresh(order.target):
        running.prepare(order)
        running.begin(order)
        running.finish()
        return target.read_digest(order.target)


def find_target(services: Services, sink: Sink) -> Target:
    """Return the target of the rows."""
    match sink:
        case Sink.POSTGRES:
            return Tables(services.dsn)
        case Sink.KAFKA:
            return Topics(services.kafka_options)
        case Sink.ICEBERG:
            return LakeTables(find_catalog())


def processes(services: Services, running: Running) -> dict[str, int]:
    """The first process of each group that takes part."""
    shared = {POSTGRES: service_pid(services, "postgres"), KAFKA: service_pid(services, "kafka")}
    return {**running.root_by_group, **shared}
