"""From produce to visible through Airflow: runs that begin when records are there, beside other ways to begin.

A steady producer sends a record every 10 seconds, or 1, 100 and 2,000 a second. Airflow and Spark's server run already
and are warm. Cron starts a run every minute; AvailableNow is triggered again and again in one warm session, without
Airflow.
"""

from collections.abc import Iterator, Mapping
from statistics import quantiles
from typing import Any

from batchledger.local.airflow_api import AirflowApi
from bench.bench import Bench
from bench.contenders import available_now, batchledger
from bench.figures import Figure, describe
from bench.orders import Order
from bench.parts.airflow_trigger import wait_until
from bench.parts.latency import Looking, find_delays, plan_topic, produce_steadily, read_times, time_loop
from bench.records import Topic, create_topic
from bench.taking import warm_up
from bench.targets.table import fresh_table

PART = "starts"
ALONE = "alone"
"""So rare that each record has a run of its own, which finds everything idle."""
RECORDS_PER_SECOND_BY_RATE: Mapping[str, float] = {ALONE: 0.1, "1": 1, "100": 100, "2000": 2000}
SECONDS, SECONDS_ALONE, SECONDS_OF_CRON = 30, 100, 120
ROUNDS_AT_MOST = 3
WARM_UPS = 5
PARSE_SECONDS = 180.0
SECONDS_BETWEEN_QUESTIONS = 0.5
STARTS: Mapping[str, Mapping[str, Any]] = {
    "on_records": {"start_on_records": {"check_every": "1s"}},
    "cron": {"schedule": "* * * * *"},
}
TITLES = {
    "on_records": "Batchledger, `start_on_records: {check_every: 1s}`",
    "cron": "Batchledger, cron of one minute",
    available_now.describe().subject.name: available_now.describe().subject.title,
}


def subject_of(name: str, rate: str) -> str:
    """The subject of a figure."""
    return f"{name} at {rate}"


def title_of(rate: str) -> str:
    """The rate for people."""
    per_second = RECORDS_PER_SECOND_BY_RATE[rate]
    return f"a record each {1 / per_second:.0f} s" if per_second < 1 else f"{per_second:,.0f} records/s"


def measure(bench: Bench) -> Iterator[Figure]:
    """Yield p50 and p99 of each way to begin, at each rate."""
    for file in bench.services.home.pipelines.glob("*.yaml"):
        file.unlink()
    contender = available_now.describe()
    with contender.start(bench.services) as running:
        warm_up(bench, contender.subject, running, bench.warm_up)
        for rate, number in _list_rounds(bench):
            topic = _create(bench, f"starts_loop_{rate}_{number}", rate)
            delays = time_loop(bench, contender.subject, running, topic, RECORDS_PER_SECOND_BY_RATE[rate])
            yield from _describe(bench, contender.subject.name, rate, delays)
    bench.say("starting Airflow")
    with bench.services.airflow() as airflow:
        for number in range(WARM_UPS):
            _time(bench, airflow, "on_records", _create(bench, f"starts_warm_{number}", "100"), "100")
        for rate, number in _list_rounds(bench):
            topic = _create(bench, f"starts_on_records_{rate}_{number}", rate)
            yield from _describe(bench, "on_records", rate, _time(bench, airflow, "on_records", topic, rate))
        for rate in RECORDS_PER_SECOND_BY_RATE:
            topic = _create(bench, f"starts_cron_{rate}", rate, SECONDS_OF_CRON)
            yield from _describe(bench, "cron", rate, _time(bench, airflow, "cron", topic, rate))


def _list_rounds(bench: Bench) -> Iterator[tuple[str, int]]:
    for number in range(min(bench.rounds, ROUNDS_AT_MOST)):
        for rate in RECORDS_PER_SECOND_BY_RATE:
            yield rate, number


def _describe(bench: Bench, name: str, rate: str, milliseconds: list[float]) -> Iterator[Figure]:
    cuts = quantiles(milliseconds, n=100, method="inclusive")
    bench.say(f"{TITLES[name]}, {title_of(rate)}: p50 {cuts[49]:,.0f} ms, p99 {cuts[98]:,.0f} ms")
    yield from describe(PART, subject_of(name, rate), p50_milliseconds=cuts[49], p99_milliseconds=cuts[98])


def _create(bench: Bench, name: str, rate: str, seconds: int = SECONDS) -> Topic:
    topic = plan_topic(name, round(RECORDS_PER_SECOND_BY_RATE[rate] * (SECONDS_ALONE if rate == ALONE else seconds)))
    create_topic(bench.services, name)
    return topic


def _time(bench: Bench, airflow: AirflowApi, start: str, topic: Topic, rate: str) -> list[float]:
    """Return how many milliseconds each record took through a pipeline of its own, which has run once before."""
    name = topic.name
    order = Order(name, name, name, {}, batchledger.describe("exactly_once", 100_000).subject.settings)
    file = batchledger.write_pipeline(bench.services, order, **STARTS[start])
    with fresh_table(bench.services.dsn, name):
        airflow.wait_until_known(name, PARSE_SECONDS)
        airflow.unpause(name)
        airflow.trigger(name)
        _wait_until_idle(airflow, name)
        with Looking(bench.services.dsn, name, patience_seconds=150) as looks:
            produce_steadily(bench, topic, RECORDS_PER_SECOND_BY_RATE[rate])
            looks.wait_for(topic.end_by_partition)
        _wait_until_idle(airflow, name)
    file.unlink()
    return find_delays(looks.seen, read_times(bench, topic))


def _wait_until_idle(airflow: AirflowApi, name: str) -> None:
    wait_until(lambda: not any(each.is_active for each in airflow.list_runs(name)), SECONDS_BETWEEN_QUESTIONS)
