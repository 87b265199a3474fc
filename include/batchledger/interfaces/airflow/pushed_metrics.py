"""Sends the metrics of a pipeline through Airflow's OpenTelemetry metrics, if they are on.

The same families as a scrape reads, under the same names behind Airflow's prefix. All of them are gauges, totals too:
each task is a process of its own, whose counters would begin at 0 again and again.
"""

import logging
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from airflow.sdk.configuration import conf
from airflow.sdk.observability.stats import Stats

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from prometheus_client.core import Metric

    from batchledger.config.pipeline_file import PipelineConfig
    from batchledger.monitoring.health import PipelineHealth
    from batchledger.proof.watching import TableLook


logger = logging.getLogger(__name__)


def push_metrics(pipeline: "PipelineConfig", health: "PipelineHealth") -> None:
    """Send how the pipeline stands by a look that was taken anyway, and the totals of its ledger. Raises nothing.

    Airflow sends it when the process of the task ends. A number that is not known is not sent.
    """
    _try_to_push(pipeline.name, lambda: _push(pipeline, health))


def push_look(look: "TableLook") -> None:
    """Send what a look at a watched table has found. Raises nothing."""

    def push() -> None:
        from batchledger.interfaces.metrics.watches import build_watch_families
        from batchledger.watching.history import summarise

        send(build_watch_families({look.watch: summarise(look)}))

    _try_to_push(look.watch, push)


def _try_to_push(name: str, push: "Callable[[], None]") -> None:
    if not _are_on():
        return
    try:
        push()
    except Exception as error:  # noqa: BLE001 (numbers that are not sent are no reason to fail a batch or an audit)
        logger.warning("the metrics of %s are not sent: %s", name, type(error).__name__)


def _push(pipeline: "PipelineConfig", health: "PipelineHealth") -> None:
    from batchledger.interfaces.metrics.families import Look, build_families
    from batchledger.interfaces.metrics.totals import ask_ledgers
    from batchledger.interfaces.surveys import Standing
    from batchledger.looking import ledger_dsn

    totals = ask_ledgers({pipeline.name: ledger_dsn(pipeline)}).get(pipeline.name)
    now = datetime.now(UTC)
    standing = Standing(health, deadlines=pipeline.deadlines.rules, totals=totals)
    send(build_families(Look((standing,), now, is_current=True), now))


def send(families: "Iterable[Metric]") -> None:
    """Give the samples of pipelines and watches to Airflow; others are about the page that Prometheus scrapes."""
    for family in families:
        for sample in family.samples:
            if not sample.labels.keys().isdisjoint(("pipeline", "watch")):
                Stats.gauge(sample.name, sample.value, tags=dict(sample.labels))


def _are_on() -> bool:
    """StatsD, which Airflow prefers if both are on, has no labels: pipelines would overwrite each other's numbers."""
    return conf.getboolean("metrics", "otel_on") and not conf.getboolean("metrics", "statsd_on")
