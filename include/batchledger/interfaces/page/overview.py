"""How all pipelines and watches stand, found in one go: few statements for a ledger, few requests for a cluster.

What cannot be asked harms only what depends on it: its pipelines are ``unknown``, with the error, and the page says
which connection does not answer.
"""

import gc
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cache
from time import monotonic

from batchledger.books.overview import list_waiting_replays, load_books
from batchledger.config.pipeline_file import PipelineConfig
from batchledger.config.pipeline_files import ConfigFiles, pipeline_files, watch_files
from batchledger.config.watch_file import WatchConfig
from batchledger.database.sessions import keep_connections
from batchledger.interfaces.page.airflow_state import find_active_runs, find_hosts, find_switched_off
from batchledger.interfaces.surveys import Standing, find_left, survey_watches
from batchledger.lifecycle.platform import PipelineRules
from batchledger.looking import ledger_dsn
from batchledger.model.batch import LogState, PartitionHealth, PartitionLog
from batchledger.model.errors import BatchledgerError
from batchledger.model.findings import PipelineState
from batchledger.model.offsets import TopicPartition
from batchledger.model.runs import find_place
from batchledger.monitoring.health import Book, CurrentBatch, PipelineHealth, find_positions, judge
from batchledger.settings.connections import kafka_options, load_connection
from batchledger.source.kafka.log import KafkaLog

# The oldest unread records are looked for in so many partitions at a time, of pipelines that a person looks at.
PARTITIONS_DATED = 500
_WANTED_SECONDS = 60


@dataclass(frozen=True, slots=True)
class Overview:
    """All pipelines and watches, the worst first; ``problems`` are the errors of connections that do not answer."""

    standings: tuple[Standing, ...]
    problems: tuple[str, ...] = ()


@cache
def _spare_what_stays() -> None:
    """Take what is there out of the sight of the garbage collector, once for the process, as Airflow's scheduler does.

    Most of it are modules, which stay as long as the process does. The values of 10,000 partitions make the collector
    go through everything every few seconds, and no page is answered meanwhile: 0.4 s with the modules, 0.1 s without.
    """
    gc.collect()
    gc.freeze()


@dataclass
class OverviewFinder:
    """Finds the overview; between two times it keeps what was read of files, and the moments of unread records."""

    _files: ConfigFiles[PipelineConfig] = field(default_factory=pipeline_files)
    _watch_files: ConfigFiles[WatchConfig] = field(default_factory=watch_files)
    _moments: dict[str, Mapping[TopicPartition, PartitionHealth]] = field(default_factory=dict)
    _wanted: dict[str, float] = field(default_factory=dict)

    def want(self, pipelines: Iterable[str]) -> None:
        """Have the oldest unread records of these pipelines looked for the next time."""
        now = monotonic()
        self._wanted.update(dict.fromkeys(pipelines, now))

    def find(self, _: Overview | None) -> Overview:
        """Ask every ledger and every cluster."""
        _spare_what_stays()
        configs, refused = self._files.read()
        with keep_connections():
            ledgers = _read_ledgers(configs)
            watches = survey_watches(*self._watch_files.read())
        logs, silent = _read_clusters(configs)
        books = note_runs(ledgers.books)
        self._date(configs, books, logs)
        found = _Found(
            ledgers=replace(ledgers, books=books, problems=ledgers.problems | silent),
            logs=logs,
            moments=self._moments,
            switched_off=_find_switched_off([*(each.name for each in configs), *(each.name for each in watches)]),
            now=datetime.now(UTC),
        )
        left = find_left(ledgers.dsn_by_connection, {*refused, *(each.name for each in configs)})
        standings = [
            *(Standing(PipelineHealth(name, PipelineState.UNKNOWN, error, None)) for name, error in refused.items()),
            *(_stand(each, found) for each in configs),
            *(replace(each, notes=_note_switch(each.name, found)) for each in watches),
            *left,
        ]
        return Overview(tuple(sorted(standings, key=_urgency)), tuple(dict.fromkeys(found.ledgers.problems.values())))

    def _date(
        self,
        configs: Sequence[PipelineConfig],
        books: Mapping[str, Book],
        logs: Mapping[str, Mapping[str, LogState]],
    ) -> None:
        """Look for the oldest unread records of the pipelines that a person looks at, once for each cluster."""
        since = monotonic() - _WANTED_SECONDS
        wanted = [each for each in configs if self._wanted.get(each.name, since) > since and each.name in books]
        for connection, log in logs.items():
            lagging: dict[TopicPartition, int] = {}
            for each in wanted:
                if each.source.connection == connection:
                    concerned = _choose(log, each.source.topics)
                    for partition, offset in find_lagging(each.rules, books[each.name], concerned).items():
                        # If two pipelines are at different offsets of a partition, the one that is behind is dated.
                        lagging[partition] = min(offset, lagging.get(partition, offset))
            self._moments[connection] = date_unread(connection, lagging, self._moments.get(connection, {}))


def find_lagging(rules: PipelineRules, book: Book, log: LogState) -> dict[TopicPartition, int]:
    """Return the next offset of each partition that has unread records, or the one that would be the first."""
    held = log.log_by_partition
    return {
        each.partition: each.next_offset
        for each in find_positions(rules, book, log)
        if each.partition in held and each.next_offset < held[each.partition].end
    }


def date_unread(
    connection: str,
    next_offset_by_partition: Mapping[TopicPartition, int],
    known: Mapping[TopicPartition, PartitionHealth],
) -> Mapping[TopicPartition, PartitionHealth]:
    """Return when the oldest unread records were written, and expire; in the order of asking.

    What is ``known`` of a position that has not moved is not asked again. At a time ``PARTITIONS_DATED`` others are
    asked: first the ones that never were, then the ones that wait longest. Until it is asked, a position that has moved
    keeps what is known of the earlier one. A cluster that does not answer adds nothing: its own error stands elsewhere.
    """
    kept = {each: found for each, found in known.items() if each in next_offset_by_partition}
    moved = [each for each, found in kept.items() if found.next_offset != next_offset_by_partition[each]]
    asked = [*(each for each in next_offset_by_partition if each not in kept), *moved][:PARTITIONS_DATED]
    if not asked:
        return kept
    try:
        log = KafkaLog(kafka_options(load_connection(connection, ("kafka",))))
        found = log.read_health({each: next_offset_by_partition[each] for each in asked})
    except BatchledgerError:
        return kept
    again = set(asked)
    left = {each: health for each, health in kept.items() if each not in again}
    return {**left, **{each.partition: each for each in found}}


@dataclass(frozen=True)
class _Ledgers:
    """Books, waiting replays and connection strings by pipeline; connection strings and errors by connection."""

    books: dict[str, Book] = field(default_factory=dict)
    waiting: dict[str, list[int]] = field(default_factory=dict)
    dsns: dict[str, str] = field(default_factory=dict, repr=False)
    dsn_by_connection: dict[str, str] = field(default_factory=dict, repr=False)
    problems: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class _Found:
    """What ledgers, clusters and Airflow say; logs by connection and topic, moments by connection."""

    ledgers: _Ledgers
    logs: Mapping[str, Mapping[str, LogState]]
    moments: Mapping[str, Mapping[TopicPartition, PartitionHealth]]
    switched_off: Collection[str]
    now: datetime


def _stand(config: PipelineConfig, found: _Found) -> Standing:
    """Return how a pipeline stands; without one of its connections that is not known."""
    name, source, ledgers = config.name, config.source, found.ledgers
    if errors := [ledgers.problems[each] for each in (config.warehouse, source.connection) if each in ledgers.problems]:
        quarantine = ledgers.books.get(name, Book()).quarantine
        unknown = PipelineHealth(name, PipelineState.UNKNOWN, "\n".join(errors), None, quarantine)
        dsn = None if config.warehouse in ledgers.problems else ledgers.dsns.get(name)
        return Standing(unknown, dsn=dsn, deadlines=config.deadlines.rules)
    book, log = ledgers.books[name], _choose(found.logs[source.connection], source.topics)
    health = judge(config.rules, book, log, found.moments.get(source.connection, {}), found.now)
    notes = [f"a replay waits for a person: batch {each}" for each in ledgers.waiting.get(name, ())]
    notes += _note_switch(name, found)
    return Standing(for_page(health, book.open_batch), tuple(notes), ledgers.dsns[name], config.deadlines.rules)


def _note_switch(name: str, found: _Found) -> tuple[str, ...]:
    return ("its DAG is switched off in Airflow",) if name in found.switched_off else ()


def _read_ledgers(configs: Sequence[PipelineConfig]) -> _Ledgers:
    """Ask each ledger once for all of its pipelines."""
    found = _Ledgers()
    for connection in dict.fromkeys(each.warehouse for each in configs):
        concerned = [each for each in configs if each.warehouse == connection]
        names = [each.name for each in concerned]
        try:
            dsn = ledger_dsn(concerned[0])
            found.dsns.update(dict.fromkeys(names, dsn))
            found.books.update(load_books(dsn, names))
            found.waiting.update(list_waiting_replays(dsn, names))
            found.dsn_by_connection[connection] = dsn
        except BatchledgerError as error:
            found.problems[connection] = str(error)
    return found


def _read_clusters(configs: Sequence[PipelineConfig]) -> tuple[dict[str, dict[str, LogState]], dict[str, str]]:
    """Return what Kafka holds, by connection and topic, and errors by connection; a topic may be missing."""
    logs: dict[str, dict[str, LogState]] = {}
    problems: dict[str, str] = {}
    for connection in dict.fromkeys(each.source.connection for each in configs):
        topics = {topic for each in configs if each.source.connection == connection for topic in each.source.topics}
        try:
            found = KafkaLog(kafka_options(load_connection(connection, ("kafka",)))).read_log(sorted(topics))
            held: dict[str, dict[TopicPartition, PartitionLog]] = {topic: {} for topic in found.identity_by_topic}
            for where, each in found.log_by_partition.items():
                held[where.topic][where] = each
            logs[connection] = {
                topic: LogState({topic: found.identity_by_topic[topic]}, parts) for topic, parts in held.items()
            }
        except BatchledgerError as error:
            problems[connection] = str(error)
    return logs, problems


def _choose(logs: Mapping[str, LogState], topics: Sequence[str]) -> LogState:
    """Return what Kafka holds of a pipeline's topics."""
    found = [logs[topic] for topic in topics if topic in logs]
    return LogState(
        {topic: identity for each in found for topic, identity in each.identity_by_topic.items()},
        {where: held for each in found for where, held in each.log_by_partition.items()},
    )


def for_page(health: PipelineHealth, batch: CurrentBatch | None) -> PipelineHealth:
    """Return the health in the words of a page, which names no command if there is a link.

    Without the error of an attempt, which may quote a record: the page of the batch has it for those who may act.
    """
    if batch is None:
        return health
    match health.state:
        case PipelineState.FAILING:
            return replace(health, detail=f"{batch.label}: its newest attempt has failed")
        case PipelineState.BLOCKED:
            return replace(health, detail=f"{batch.label} waits for a person")
        case _:
            return health


def note_runs(books: Mapping[str, Book]) -> dict[str, Book]:
    """Return the books by pipeline; an open batch is at work only if Airflow has its run going on.

    The page cannot see a run of the command line, so its attempt counts until it ends.
    """
    begun = {
        name: each.open_batch
        for name, each in books.items()
        if each.open_batch is not None and each.open_batch.is_at_work
    }
    asked = {name: place for name, each in begun.items() if (place := find_place(name, each.run or "")) is not None}
    active = find_active_runs({each.dag_id for each in asked.values()}) if asked else set()
    over = {
        name: replace(begun[name], is_at_work=False)
        for name, place in asked.items()
        if (place.dag_id, place.run_id) not in active
    }
    return {name: replace(each, open_batch=over[name]) if name in over else each for name, each in books.items()}


def _find_switched_off(pipelines: Collection[str]) -> Collection[str]:
    """Return the pipelines of which no run starts by itself, because all their DAGs are switched off."""
    hosts = find_hosts(pipelines)
    off = find_switched_off({host.dag_id for each in hosts.values() for host in each})
    return {name for name, each in hosts.items() if off.issuperset(host.dag_id for host in each)}


def _urgency(standing: Standing) -> tuple[int, int, str]:
    threats = standing.health.threats
    unread = threats.unread_records if threats else 0
    return list(PipelineState).index(standing.health.state), -unread, standing.name
