"""Sample records for a pipeline's topic: its own data set where it has one, else records made from its schema."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from batchledger.config import PipelineConfig
from batchledger.connections import kafka_options, load_connection
from batchledger.examples.flights import FLIGHT_COUNT, read_flights
from batchledger.examples.synthetic import synthesize_records
from batchledger.kafka.admin import KEEP_FOREVER, ensure_topic, find_ends
from batchledger.kafka.producer import Fed, Record, feed, produce

DEFAULT_RECORDS = 10_000
# Which pipelines have a data set of their own, and how many records it holds.
DATA_SETS: Mapping[str, tuple[Callable[[], Iterator[Record]], int]] = {"flights": (read_flights, FLIGHT_COUNT)}


@dataclass(frozen=True, slots=True)
class Produced:
    """What a topic held before, and what was written to it; counts of records."""

    topic: str
    already_there: int
    sent: int


def produce_samples(pipeline: PipelineConfig, count: int | None, partitions: int, console: Console) -> Produced:
    """Write sample records to the pipeline's first topic, created when missing; show progress on ``console``.

    A data set is written up to its end and each of its records once, however often this is called; made records are
    added, ``count`` at every call. Raises SetupError and ServiceUnavailableError.
    """
    options = kafka_options(load_connection(pipeline.source.connection))
    topic = pipeline.source.topics[0]
    ensure_topic(options, topic, partitions, KEEP_FOREVER)
    data_set = DATA_SETS.get(pipeline.name) if count is None else None
    total = data_set[1] if data_set else count or DEFAULT_RECORDS
    columns = (TextColumn("[progress.description]{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, TimeRemainingColumn(), console=console) as progress:
        task = progress.add_task(f"writing to topic {topic}", total=total)

        def report(sent: int) -> None:
            progress.update(task, completed=sent)

        if data_set:
            fed = feed(options, topic, partitions, data_set[0](), report)
        else:
            present = sum(find_ends(options, topic, partitions).values())
            made = synthesize_records(pipeline.source.columns, total, first=present)
            fed = Fed(present, produce(options, topic, partitions, made, report))
        report(total)
    return Produced(topic, fed.already_there, fed.sent)
