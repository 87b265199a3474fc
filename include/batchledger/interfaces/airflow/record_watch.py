"""Looks which pipelines of a Kafka cluster have records to read: at log ends and at the ledger, and at no record.

While nothing arrives, a look is one question to each broker. The ledger is asked about pipelines whose topics have
grown, about those that still wait for a run, and about all of them now and then. What cannot be asked is logged, and
the next look tries again.
"""

import logging
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from time import monotonic
from typing import Any

from batchledger.books.starting import load_start_facts
from batchledger.config.pipeline_file import PipelineConfig
from batchledger.config.pipeline_files import ConfigFiles, pipeline_files
from batchledger.interfaces.airflow.troubles import Troubles
from batchledger.looking import ledger_dsn
from batchledger.model.errors import BatchledgerError
from batchledger.model.offsets import TopicPartition
from batchledger.monitoring.starting import (
    AwaitedRun,
    StartFacts,
    await_run,
    count_unread,
    expect_run,
    has_lost,
    is_patient,
    may_start,
)
from batchledger.settings.connections import kafka_options, load_connection
from batchledger.source.kafka.ends import LogEnds

logger = logging.getLogger(__name__)

# How often pipeline files, connections and the partitions of topics are looked up again, and every pipeline's ledger.
REFRESH_SECONDS = 15.0


@dataclass(frozen=True)
class _Watched:
    """A pipeline, its partitions, and the places of these in what the log answers."""

    config: PipelineConfig
    partitions: Sequence[TopicPartition]
    places: Sequence[int]


@dataclass
class _Cluster:
    """What was found out at the last refresh, ``at`` a moment of the monotonic clock, for pipelines of these names."""

    at: float
    names: frozenset[str]
    pipelines: Sequence[_Watched]
    log: LogEnds
    dsn_by_warehouse: dict[str, str] = field(repr=False)


@dataclass
class RecordWatch:
    """The pipelines of one Kafka connection that start on records, and what is remembered of them between looks.

    ``has_run`` says whether Airflow has a run of a DAG that is queued or running.
    """

    connection: str
    has_run: Callable[[str], bool]
    clock: Callable[[], float] = monotonic
    _files: ConfigFiles[PipelineConfig] = field(default_factory=pipeline_files)
    _cluster: _Cluster | None = None
    # The ends at which a pipeline had nothing to do; absent while it has.
    _settled: dict[str, list[int]] = field(default_factory=dict)
    _awaited: dict[str, AwaitedRun] = field(default_factory=dict)
    # Pipelines whose position the log did not have at the last look.
    _suspected: set[str] = field(default_factory=set)
    # By connection, and by pipeline for what Airflow says of its runs.
    _troubles: Troubles = field(init=False)

    def __post_init__(self) -> None:
        self._troubles = Troubles(logger, self.clock)

    def find_starts(self, names: Collection[str]) -> dict[str, dict[str, Any]]:
        """Return what each of these pipelines that shall start now has to do, for people to read. Raises nothing."""
        try:
            found = self._look(frozenset(names))
        except BatchledgerError as error:
            self._troubles.tell(self.connection, str(error))
        except Exception as error:  # noqa: BLE001 (the next look may find what this one did not)
            self._troubles.tell(self.connection, f"{type(error).__name__}: {error}", unforeseen=error)
        else:
            self._troubles.end(self.connection)
            return found
        self._refresh_soon()
        return {}

    def _look(self, names: frozenset[str]) -> dict[str, dict[str, Any]]:
        cluster = self._refresh(names)
        ends = cluster.log.read()
        grown: dict[str, tuple[_Watched, list[int]]] = {}
        for each in cluster.pipelines:
            # A partition that does not answer just now is no partition that is gone.
            own = [end for place in each.places if (end := ends[place]) is not None]
            if len(own) == len(each.places) and own != self._settled.get(each.config.name):
                grown[each.config.name] = each, own
        facts = self._load_facts(cluster, [each.config for each, _ in grown.values()])
        decided = {name: self._decide(*grown[name], facts[name]) for name in grown if name in facts}
        return {name: start for name, start in decided.items() if start is not None}

    def _decide(self, pipeline: _Watched, ends: list[int], facts: StartFacts) -> dict[str, Any] | None:
        """Return what to say of a start, or None if the pipeline shall not start now."""
        name, now = pipeline.config.name, self.clock()
        facts = _keep_topics(facts, pipeline.config.source.topics)
        end_by_partition = dict(zip(pipeline.partitions, ends, strict=True))
        if facts.is_at_work or self._is_doubtful(name, has_lost(facts, end_by_partition)):
            return None
        unread = count_unread(facts, end_by_partition)
        if not may_start(facts, end_by_partition, pipeline.config.limits.rules):
            self._awaited.pop(name, None)
            if unread == 0:
                self._settled[name] = ends
            return None
        self._settled.pop(name, None)
        before = self._awaited.get(name)
        if is_patient(before, facts, now):
            return None
        is_running = self._ask_airflow(name)
        if is_running is None:
            return None
        self._awaited[name] = (await_run if is_running else expect_run)(before, facts, now)
        if is_running:
            return None
        return {"pipeline": name, "unread_records": unread, "open_batch": facts.open_batch and facts.open_batch[0]}

    def _is_doubtful(self, name: str, is_lost: bool) -> bool:
        """Whether the next look has to confirm that the log does not have a position any more.

        The ends were read before the position, and the partitions at the last refresh.
        """
        if not is_lost:
            self._suspected.discard(name)
        elif name not in self._suspected:
            self._suspected.add(name)
            self._refresh_soon()
            return True
        return False

    def _ask_airflow(self, name: str) -> bool | None:
        """Return whether a run of the pipeline is queued or at work; None if Airflow does not say."""
        try:
            found = self.has_run(name)
        except Exception as error:  # noqa: BLE001 (its clients have no family of errors, and no other pipeline shall suffer)
            trouble = f"Airflow does not say whether {name} has one: {type(error).__name__}"
            self._troubles.tell(f"run of {name}", trouble)
            return None
        self._troubles.end(f"run of {name}")
        return found

    def _refresh(self, names: frozenset[str]) -> _Cluster:
        """Return the cluster; look everything up again if that was long ago, or for other pipelines."""
        known, now = self._cluster, self.clock()
        if known is not None and known.names == names and now < known.at + REFRESH_SECONDS:
            return known
        configs, _ = self._files.read()
        pipelines = [each for each in configs if each.name in names and each.source.connection == self.connection]
        options = kafka_options(load_connection(self.connection, ("kafka",)))
        log = known.log if known and known.log.options == options else LogEnds(options)
        partitions = log.list_partitions({topic for each in pipelines for topic in each.source.topics})
        places: dict[str, list[int]] = {}
        for place, partition in enumerate(partitions):
            places.setdefault(partition.topic, []).append(place)
        watched = []
        for each in pipelines:
            own = [place for topic in each.source.topics for place in places.get(topic, ())]
            watched.append(_Watched(each, [partitions[place] for place in own], own))
        self._settled.clear()
        # What has left may come back: then its first event is not late.
        self._awaited = {name: each for name, each in self._awaited.items() if name in names}
        self._cluster = _Cluster(now, names, watched, log, self._find_dsns(pipelines))
        return self._cluster

    def _refresh_soon(self) -> None:
        if self._cluster is not None:
            self._cluster.at = -inf

    def _find_dsns(self, pipelines: Iterable[PipelineConfig]) -> dict[str, str]:
        found = {}
        for each in {each.warehouse: each for each in pipelines}.values():
            try:
                found[each.warehouse] = ledger_dsn(each)
            except BatchledgerError as error:
                self._troubles.tell(each.warehouse, str(error))
        return found

    def _load_facts(self, cluster: _Cluster, asked: Sequence[PipelineConfig]) -> dict[str, StartFacts]:
        """Return the facts by pipeline; a ledger that does not answer leaves its own pipelines out.

        It is asked again after the next refresh: the pipelines of other ledgers shall not wait for it at each look.
        """
        found: dict[str, StartFacts] = {}
        for warehouse, dsn in list(cluster.dsn_by_warehouse.items()):
            names = [each.name for each in asked if each.warehouse == warehouse]
            if not names:
                continue
            try:
                found |= load_start_facts(dsn, names)
            except BatchledgerError as error:
                self._troubles.tell(warehouse, str(error))
                del cluster.dsn_by_warehouse[warehouse]
            else:
                self._troubles.end(warehouse)
        return found


def _keep_topics(facts: StartFacts, topics: Sequence[str]) -> StartFacts:
    """Leave positions out that belong to topics which the pipeline does not read any more."""
    kept = {each: offset for each, offset in facts.next_offset_by_partition.items() if each.topic in topics}
    return replace(facts, next_offset_by_partition=kept)
