"""What the pages share between requests: the overview, and for each pipeline what Kafka and its history hold."""

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field

from batchledger.books.overview import Held, load_books, load_held
from batchledger.config.pipeline_file import load_pipeline
from batchledger.interfaces.page.overview import Overview, OverviewFinder, date_unread, find_lagging
from batchledger.interfaces.page.watch import Watch
from batchledger.looking import ledger_dsn, source_options
from batchledger.model.batch import LogState, PartitionHealth, Position
from batchledger.model.offsets import TopicPartition
from batchledger.source.kafka.log import KafkaLog

FRESH_SECONDS = 4.0


@dataclass(frozen=True, slots=True)
class Source:
    """What Kafka holds of a pipeline's topics, and what is known of its unread records.

    ``positions`` were read before the log: later ones might lie beyond its end, as if the topic had been truncated.
    """

    log: LogState
    seen: Mapping[TopicPartition, PartitionHealth]
    positions: tuple[Position, ...]


@dataclass
class Lookout:
    """The watches; each finds its value again only while a person looks."""

    finder: OverviewFinder = field(default_factory=OverviewFinder)
    _sources: dict[str, Watch[Source]] = field(default_factory=dict)
    _helds: dict[str, Watch[Held]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _turn: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self.overview: Watch[Overview] = Watch(self.finder.find, FRESH_SECONDS, self._turn)

    def source(self, pipeline: str) -> Watch[Source]:
        """What Kafka holds of a pipeline."""
        with self._lock:
            return self._sources.setdefault(
                pipeline, Watch(lambda before: _find_source(pipeline, before), FRESH_SECONDS, self._turn)
            )

    def held(self, pipeline: str) -> Watch[Held]:
        """What published batches of a pipeline hold."""
        with self._lock:
            # It needs no turn: what takes long about it, the database does.
            return self._helds.setdefault(pipeline, Watch(lambda before: _find_held(pipeline, before), FRESH_SECONDS))

    def expire(self, pipeline: str) -> None:
        """Have everything about a pipeline found again, because a person has just acted on it."""
        for watch in (self.overview, self.source(pipeline), self.held(pipeline)):
            watch.expire()


def _find_source(pipeline: str, before: Source | None) -> Source:
    config = load_pipeline(pipeline)
    book = load_books(ledger_dsn(config), [pipeline])[pipeline]
    log = KafkaLog(source_options(config)).read_log(config.rules.topics)
    lagging = find_lagging(config.rules, book, log)
    return Source(log, date_unread(config.source.connection, lagging, before.seen if before else {}), book.positions)


def _find_held(pipeline: str, before: Held | None) -> Held:
    return load_held(ledger_dsn(load_pipeline(pipeline)), pipeline, before)
