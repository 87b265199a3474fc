"""How pipelines stand, as metric families: the page under ``/batchledger/metrics`` and the command line write the same.

Pure. A label holds a name or a word of a closed list: no offset, no error, no value of a record.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric, SummaryMetricFamily
from prometheus_client.registry import Collector
from typing_extensions import override

from batchledger.interfaces.metrics.watches import build_watch_families
from batchledger.interfaces.surveys import Standing
from batchledger.ledger.totals import PipelineTotals
from batchledger.model.batch import PartitionHealth
from batchledger.model.findings import PipelineState
from batchledger.monitoring.health import Threats
from batchledger.watching.history import LookSummary

Samples = Iterable[tuple[tuple[str, ...], float]]


@dataclass(frozen=True, slots=True)
class Look:
    """What the newest look at the pipelines has found, and when; ``found_at`` is None before the first one.

    ``is_current``: no later look has failed. ``watches`` has the newest look of each watch by its name.
    """

    pipelines: tuple[Standing, ...] = ()
    found_at: datetime | None = None
    is_current: bool = False
    watches: Mapping[str, LookSummary] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Families(Collector):
    """Metric families in the form in which ``prometheus_client`` writes them."""

    families: Sequence[Metric]

    @override
    def collect(self) -> Sequence[Metric]:
        return self.families


def build_families(look: Look, now: datetime) -> list[Metric]:
    """Return everything about the pipelines; a number that is not known has no sample."""
    known = [(each.name, each.totals) for each in look.pipelines if each.totals is not None]
    found_at = [] if look.found_at is None else [((), look.found_at.timestamp())]
    return [
        _gauge("batchledger_up", "1 if the newest look at the pipelines has succeeded.", (), [((), look.is_current)]),
        _gauge("batchledger_look_timestamp_seconds", "When the newest look has ended, in Unix time.", (), found_at),
        *_of_health(look.pipelines, now),
        *_of_ledger(known, now),
        *build_watch_families(look.watches),
    ]


def build_partition_families(look: Look, now: datetime) -> list[Metric]:
    """Return the lag of each partition."""
    labels = ("pipeline", "topic", "partition")
    found = [
        ((name, each.partition.topic, str(each.partition.partition)), each)
        for name, threats in _list_threats(look.pipelines)
        for each in threats.partitions
    ]
    lags = ((where, _count_unread(each)) for where, each in found)
    ages = ((where, age) for where, each in found for age in _find_age(_count_unread(each), each, now))
    return [
        _gauge("batchledger_partition_lag_records", "Unread records of a partition.", labels, lags),
        _gauge("batchledger_partition_lag_seconds", "Age of the oldest unread record of a partition.", labels, ages),
    ]


def _of_health(pipelines: Sequence[Standing], now: datetime) -> Iterator[Metric]:
    """Yield what positions, Kafka and the pipeline files say."""
    threats = list(_list_threats(pipelines))
    yield _gauge(
        "batchledger_pipeline_state",
        "1 for the state of a pipeline; its other states have no sample.",
        ("pipeline", "state"),
        (((each.name, each.health.state), 1) for each in pipelines),
    )
    yield _gauge(
        "batchledger_lag_records",
        "Unread records: from the position to the last stable offset.",
        ("pipeline",),
        (((name,), each.unread_records) for name, each in threats),
    )
    yield _gauge(
        "batchledger_lag_seconds",
        "Age of the oldest unread record; 0 if there is none.",
        ("pipeline",),
        (((name,), age) for name, each in threats for age in _find_age(each.unread_records, each.oldest_unread, now)),
    )
    yield _gauge(
        "batchledger_expiry_seconds",
        "Time until the topic may delete an unread record; below 0 if it may already.",
        ("pipeline",),
        (((name,), left) for name, each in threats for left in _find_time_left(each.first_to_expire, now)),
    )
    yield _gauge(
        "batchledger_deadline_seconds",
        "The deadlines of the pipeline file.",
        ("pipeline", "kind"),
        (((each.name, kind), limit.total_seconds()) for each in pipelines for kind, limit in _list_deadlines(each)),
    )
    yield _gauge(
        "batchledger_quarantine_records",
        "Records that are in quarantine now.",
        ("pipeline",),
        (((each.name,), each.health.quarantine.records) for each in pipelines if each.totals is not None),
    )


def _of_ledger(known: Sequence[tuple[str, PipelineTotals]], now: datetime) -> Iterator[Metric]:
    """Yield what the ledger alone says."""
    yield _gauge(
        "batchledger_freshness_seconds",
        "Time since the last publication of new records; before the first one, since the first plan.",
        ("pipeline",),
        (
            ((name,), (now - since).total_seconds())
            for name, each in known
            if (since := each.published_at or each.known_since) is not None
        ),
    )
    yield _gauge(
        "batchledger_open_batches",
        "Batches that are neither published nor discarded; a state without any has no sample.",
        ("pipeline", "state"),
        (((name, state), count) for name, each in known for state, count in each.open_batches_by_state.items()),
    )
    yield _fill(
        CounterMetricFamily(
            "batchledger_batches", "Batches that were published or discarded.", labels=("pipeline", "state")
        ),
        (((name, state), count) for name, each in known for state, count in each.batches_by_end.items()),
    )
    yield _fill(
        CounterMetricFamily(
            "batchledger_offsets",
            "Offsets of published batches by what has become of them.",
            labels=("pipeline", "kind"),
        ),
        (((name, kind), count) for name, each in known for kind, count in each.offsets_by_kind.items()),
    )
    yield _gauge(
        "batchledger_unexplained_offsets",
        "Offsets of open and published batches that no line of a balance accounts for; has to be 0.",
        ("pipeline",),
        (((name,), each.unexplained_open + each.unexplained_published) for name, each in known),
    )
    steps = SummaryMetricFamily(
        "batchledger_step_seconds",
        "Time that the steps of published batches took, the wait for a worker included.",
        labels=("pipeline", "step"),
        unit="seconds",
    )
    for name, each in known:
        for step, seconds in each.seconds_by_step.items():
            steps.add_metric((name, step), each.timed, seconds)
    yield steps
    yield _gauge(
        "batchledger_open_incidents",
        "Incidents that are not over; a kind without any has no sample.",
        ("pipeline", "kind"),
        (((name, kind), count) for name, each in known for kind, count in each.incidents_by_kind.items()),
    )


def _list_threats(pipelines: Sequence[Standing]) -> Iterator[tuple[str, Threats]]:
    return ((each.name, each.health.threats) for each in pipelines if each.health.threats is not None)


def _list_deadlines(pipeline: Standing) -> Iterator[tuple[str, timedelta]]:
    if pipeline.health.state is PipelineState.RETIRED:
        return
    for kind in ("lag", "freshness", "blocked"):
        limit: timedelta | None = getattr(pipeline.deadlines, kind)
        if limit is not None:
            yield kind, limit


def _count_unread(health: PartitionHealth) -> int:
    return max(0, health.end - health.next_offset)


def _find_age(unread_records: int, oldest: PartitionHealth | None, now: datetime) -> list[float]:
    """Return the age of the oldest unread record in seconds; nothing if its timestamp is not known."""
    if not unread_records:
        return [0]
    if oldest is None or oldest.oldest_unread_at is None:
        return []
    return [(now - oldest.oldest_unread_at).total_seconds()]


def _find_time_left(expiring: PartitionHealth | None, now: datetime) -> list[float]:
    """Return the seconds until the unread record may be deleted; nothing if it never may, or that is not known."""
    if expiring is None or expiring.expires_at is None:
        return []
    return [(expiring.expires_at - now).total_seconds()]


def _gauge(name: str, told: str, labels: Sequence[str], samples: Samples) -> Metric:
    unit = "seconds" if name.endswith("_seconds") else ""
    return _fill(GaugeMetricFamily(name, told, labels=labels, unit=unit), samples)


def _fill(family: GaugeMetricFamily | CounterMetricFamily, samples: Samples) -> Metric:
    for labels, value in samples:
        family.add_metric(labels, value)
    return family
