"""Metrics through Airflow's OpenTelemetry metrics: the names and numbers of a scrape, and nothing unless that is on."""

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from airflow.sdk._shared.observability.metrics.base_stats_logger import NoStatsLogger
from airflow.sdk._shared.observability.metrics.otel_logger import SafeOtelLogger
from airflow.sdk._shared.observability.metrics.validators import PatternBlockListValidator
from airflow.sdk.observability import stats
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader, NumberDataPoint

from batchledger.config.pipeline_file import PipelineConfig
from batchledger.interfaces.airflow.pushed_metrics import push_metrics, send
from batchledger.interfaces.metrics.families import build_families
from tests.unit.test_metrics import CANARY, HEALTH, LOOK, NOON

CONFIG = PipelineConfig.model_validate(
    {"name": "orders", "source": {"topics": ["orders"], "schema": "message_id string"}, "sink": {"table": "orders"}}
)


@pytest.fixture
def reader() -> Iterator[InMemoryMetricReader]:
    """What Airflow's own client gives to the SDK."""
    reader = InMemoryMetricReader()
    use(SafeOtelLogger(MeterProvider([reader])))
    yield reader
    use(NoStatsLogger())


def use(client: Any) -> None:
    """Let Airflow count with this client."""
    stats.initialize(factory=lambda: client, export_legacy_names=True)


def read(reader: InMemoryMetricReader) -> dict[tuple[str, tuple[tuple[str, Any], ...]], float]:
    """The number of each series, by its name and its labels."""
    data = reader.get_metrics_data()
    found = {}
    for metric in [] if data is None else data.resource_metrics[0].scope_metrics[0].metrics:
        for point in metric.data.data_points:
            assert isinstance(point, NumberDataPoint)
            series = metric.name, tuple(sorted((point.attributes or {}).items()))
            assert series not in found
            found[series] = point.value
    return found


def test_every_sample_of_a_pipeline_is_sent_under_its_own_name_and_labels(reader: InMemoryMetricReader) -> None:
    families = build_families(LOOK, NOON)
    send(families)
    samples = [each for family in families for each in family.samples]
    expected = {
        (f"airflow.{each.name}", tuple(sorted(each.labels.items()))): each.value
        for each in samples
        if each.name not in ("batchledger_up", "batchledger_look_timestamp_seconds")
    }
    assert read(reader) == expected
    assert len(expected) == len(samples) - 2 > 20


def test_list_of_airflow_may_refuse_them() -> None:
    reader = InMemoryMetricReader()
    use(SafeOtelLogger(MeterProvider([reader]), metrics_validator=PatternBlockListValidator("batchledger")))
    send(build_families(LOOK, NOON))
    use(NoStatsLogger())
    assert read(reader) == {}


def test_no_words_of_a_look_are_sent(reader: InMemoryMetricReader) -> None:
    assert CANARY in HEALTH.detail
    send(build_families(LOOK, NOON))
    assert CANARY not in json.dumps([str(each) for each in read(reader)])


@pytest.mark.parametrize(
    ("otel_on", "statsd_on", "asked"), [("False", "False", 0), ("True", "True", 0), ("True", "False", 1)]
)
def test_ledger_is_asked_only_if_something_is_sent(
    monkeypatch: pytest.MonkeyPatch, reader: InMemoryMetricReader, otel_on: str, statsd_on: str, asked: int
) -> None:
    """StatsD has no labels."""
    ledgers: list[str] = []

    def ask(dsn_by_pipeline: dict[str, str]) -> dict[str, Any]:
        ledgers.extend(dsn_by_pipeline)
        return {}

    monkeypatch.setenv("AIRFLOW__METRICS__OTEL_ON", otel_on)
    monkeypatch.setenv("AIRFLOW__METRICS__STATSD_ON", statsd_on)
    monkeypatch.setattr("batchledger.interfaces.metrics.totals.ask_ledgers", ask)
    push_metrics(CONFIG, replace(HEALTH, pipeline="orders"))
    assert ledgers == ["orders"] * asked
    assert bool(read(reader)) == bool(asked)


def test_ledger_whose_error_is_not_foreseen_fails_no_task(
    monkeypatch: pytest.MonkeyPatch, reader: InMemoryMetricReader, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(dsn_by_pipeline: dict[str, str]) -> None:
        raise RuntimeError(CANARY)

    monkeypatch.setenv("AIRFLOW__METRICS__OTEL_ON", "True")
    monkeypatch.setattr("batchledger.interfaces.metrics.totals.ask_ledgers", fail)
    push_metrics(CONFIG, replace(HEALTH, pipeline="orders"))
    assert read(reader) == {}
    assert [each.getMessage() for each in caplog.records] == ["the metrics of orders are not sent: RuntimeError"]
