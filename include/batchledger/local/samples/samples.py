"""Sample records for a pipeline's topic: the topic's own data set if it has one, else records made from a schema.

A data set may be in Avro. Made records are JSON.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from batchledger.config.pipeline_file import PipelineConfig
from batchledger.local.samples.admin import KEEP_FOREVER, ensure_topic, find_ends
from batchledger.local.samples.delivery import Deliveries, deliver, find_settled_end
from batchledger.local.samples.flights import FLIGHT_COUNT, read_flights, read_flights_in_avro
from batchledger.local.samples.guarantee import Guarantee, Transactions
from batchledger.local.samples.producer import ReportProgress, SampleRecord, feed
from batchledger.local.samples.synthetic import synthesize_records
from batchledger.looking import source_options
from batchledger.model.errors import ConfigurationError
from batchledger.reading import open_registry

DEFAULT_RECORDS = 10_000


def _read_in_avro(pipeline: PipelineConfig) -> Iterator[SampleRecord]:
    registry = open_registry(pipeline)
    if registry is None:
        raise ConfigurationError(
            f"The data set of topic {pipeline.source.topics[0]} needs a schema registry. Nothing was written.",
            advice="Name its connection as source.registry in the pipeline file.",
            pipeline=pipeline.name,
        )
    return read_flights_in_avro(registry, pipeline.source.topics[0])


# Which topics have a data set of their own, in which format, and how many records it holds.
DATA_SETS: Mapping[tuple[str, str], tuple[Callable[[PipelineConfig], Iterator[SampleRecord]], int]] = {
    ("flights", "json"): (lambda _: read_flights(), FLIGHT_COUNT),
    ("flights_avro", "avro"): (_read_in_avro, FLIGHT_COUNT),
}


@dataclass(frozen=True, slots=True)
class SampleOrder:
    """What to write, and how: ``count`` made-up records, or the topic's data set if it is None."""

    count: int | None = None
    partitions: int = 4
    guarantee: Guarantee = Guarantee.IDEMPOTENT
    transactions: Transactions = field(default_factory=Transactions)


@dataclass(frozen=True, slots=True)
class Produced:
    """What was written to a topic; ``already_there`` and ``gained`` count its offsets, transaction markers included."""

    topic: str
    guarantee: Guarantee
    already_there: int
    deliveries: Deliveries
    gained: int

    @property
    def is_complete(self) -> bool:
        """Whether nothing failed and nothing is unknown; with acks_0, unknown records do not count."""
        unasked = self.guarantee is Guarantee.ACKS_0
        return self.deliveries.failed == 0 and (unasked or self.deliveries.unknown == 0)


def produce_samples(pipeline: PipelineConfig, order: SampleOrder, console: Console) -> Produced:
    """Write sample records to the pipeline's first topic, created when missing; show progress on ``console``.

    A data set is written up to its end and each of its records once, however often this is called; made records are
    added, ``order.count`` at every call. Raises ConfigurationError, SetupError and ServiceUnavailableError.
    """
    topic, format_ = pipeline.source.topics[0], pipeline.source.format
    data_set = DATA_SETS.get((topic, format_)) if order.count is None else None
    if data_set is None and format_ != "json":
        raise ConfigurationError(
            f"No records can be made up for topic {topic}, whose format is {format_}. Nothing was written.",
            why="Made-up records are JSON, and the pipeline would quarantine them.",
            advice="Write to the topic with a producer of your own.",
            pipeline=pipeline.name,
        )
    if data_set is not None and order.guarantee is not Guarantee.IDEMPOTENT:
        raise ConfigurationError(
            f"The data set of topic {topic} cannot be written with {order.guarantee}. Nothing was written.",
            why="Only an idempotent producer writes it, so that each record is there once.",
            advice=f"Write made-up records instead: batchledger produce {pipeline.name} --guarantee {order.guarantee} "
            "--records 10000",
        )
    options = source_options(pipeline)
    ensure_topic(options, topic, order.partitions, KEEP_FOREVER)
    total = data_set[1] if data_set else order.count or DEFAULT_RECORDS
    with _progress(console, topic, total) as report:
        if data_set:
            fed = feed(options, topic, order.partitions, data_set[0](pipeline), report)
            return Produced(topic, order.guarantee, fed.already_there, Deliveries(fed.sent, fed.sent), fed.sent)
        present = sum(find_ends(options, topic, order.partitions).values())
        made = synthesize_records(pipeline.source.value_columns, total, first=present)
        deliveries = deliver(
            options,
            topic,
            order.partitions,
            made,
            guarantee=order.guarantee,
            transactions=order.transactions,
            report=report,
        )
        expected = present + deliveries.sent - deliveries.failed
        end = find_settled_end(options, topic, order.partitions, expected)
    return Produced(topic, order.guarantee, present, deliveries, end - present)


@contextmanager
def _progress(console: Console, topic: str, total: int) -> Iterator[ReportProgress]:
    """Show a bar that follows the reports, and is full at the end."""
    columns = (TextColumn("[progress.description]{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, TimeRemainingColumn(), console=console) as progress:
        task = progress.add_task(f"writing to topic {topic}", total=total)
        yield lambda sent: progress.update(task, completed=sent)
        progress.update(task, completed=total)
