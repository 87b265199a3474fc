"""From the POST that triggers a run to published rows, beside a spark-submit that starts cold; both take 10k records.

Both count the same work of a micro-batch, from the moment of the request. Airflow and Spark's server run already and
are warm; spark-submit starts from nothing, as from a cron job.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from typing import Any
from urllib.parse import quote

from batchledger.local.airflow_api import AirflowApi
from batchledger.local.samples.admin import find_ends
from batchledger.local.samples.producer import produce
from batchledger.local.stack import local_stack
from bench.bench import Bench
from bench.contenders import available_now, batchledger
from bench.figures import Figure, describe
from bench.measuring import cpu_by_group
from bench.orders import Order
from bench.records import PARTITIONS, create_topic, to_record
from bench.targets.table import fresh_table, watching

PART = "airflow"
WARM, COLD = "warm_trigger", "cold_available_now"
AIRFLOW = "airflow"
RECORDS = 10_000
# A JVM compiles what it does often, and a platform in use has done this many times.
WARM_UPS = 10
TASKS = ("plan", "stage", "audit", "publish")
PARSE_SECONDS = 180.0
RUN_SECONDS = 300.0
SECONDS_BETWEEN_LOOKS = 0.02
SECONDS_BETWEEN_QUESTIONS = 0.5
IDLE_SECONDS = 20.0
TAIL_PAGES = 500


def measure(bench: Bench) -> Iterator[Figure]:
    """Yield both figures of every round, and the hops of the warm one. Airflow is down for the cold ones."""
    for file in bench.services.home.pipelines.glob("*.yaml"):
        # Otherwise Airflow would parse the pipelines of earlier parts again and again.
        file.unlink()
    create_topic(bench.services, WARM)
    contender = batchledger.describe("exactly_once", RECORDS)
    batchledger.write_pipeline(bench.services, Order(WARM, WARM, WARM, {}, contender.subject.settings))
    bench.say("starting Airflow")
    with fresh_table(bench.services.dsn, WARM), bench.services.airflow() as airflow:
        airflow.wait_until_known(WARM, PARSE_SECONDS)
        airflow.unpause(WARM)
        for _ in range(WARM_UPS):
            _time_trigger(bench, airflow)
        idle_cpu = _measure_idle_cpu(bench)
        for number in range(bench.rounds):
            cpu_before, started = _airflow_cpu(bench), time.time()
            hops = _time_trigger(bench, airflow)
            cpu = _airflow_cpu(bench) - cpu_before - idle_cpu * (time.time() - started)
            bench.say(f"warm trigger, round {number + 1} of {bench.rounds}: {hops['seconds']:.2f} s until visible")
            yield from describe(PART, WARM, **hops)
            yield from describe(PART, AIRFLOW, cpu_of_a_run=cpu, cpu_of_a_second_without_work=idle_cpu)
    create_topic(bench.services, COLD)
    _produce(bench, COLD)
    # Broker and database have just started: the first run finds them cold, and does not count.
    _time_cold(bench, -1)
    for number in range(bench.rounds):
        seconds = _time_cold(bench, number)
        bench.say(f"cold spark-submit, round {number + 1} of {bench.rounds}: {seconds:.1f} s")
        yield from describe(PART, COLD, seconds=seconds)


def find_hops(posted: float, run_started: float, task_times: Mapping[str, tuple[float, float]]) -> dict[str, float]:
    """Return the seconds of every hop up to the end of ``publish``; moments are seconds since the epoch."""
    hops = {"until_run_seconds": run_started - posted}
    before = run_started
    for task in TASKS:
        started, ended = task_times[task]
        hops |= {f"until_{task}_seconds": started - before, f"{task}_seconds": ended - started}
        before = ended
    return hops


def _time_trigger(bench: Bench, airflow: AirflowApi) -> dict[str, float]:
    """Trigger a run over new records; return the seconds until a reader sees their rows, and of every hop."""
    _produce(bench, WARM)
    ends = find_ends(bench.services.kafka_options, WARM, PARTITIONS)
    with watching(bench.services.dsn, WARM, TAIL_PAGES) as watch:
        posted = time.time()
        run = airflow.trigger(WARM)
        wait_until(lambda: watch.look() == ends, SECONDS_BETWEEN_LOOKS)
        visible = time.time()
    wait_until(lambda: not any(each.is_active for each in airflow.list_runs(WARM)), SECONDS_BETWEEN_QUESTIONS)
    started = next(each.started_at for each in airflow.list_runs(WARM) if each.run_id == run.run_id)
    tasks = _ask(airflow, f"/dags/{WARM}/dagRuns/{quote(run.run_id)}/taskInstances")["task_instances"]
    times = {
        each["task_id"]: (_moment(each["start_date"]), _moment(each["end_date"]))
        for each in tasks
        if each["task_id"] in TASKS
    }
    run_started = started.timestamp() if started else posted
    return {"seconds": visible - posted, **find_hops(posted, run_started, times)}


def _measure_idle_cpu(bench: Bench) -> float:
    """Return the CPU seconds that an idle Airflow uses in a second."""
    before = _airflow_cpu(bench)
    time.sleep(IDLE_SECONDS)
    return (_airflow_cpu(bench) - before) / IDLE_SECONDS


def _airflow_cpu(bench: Bench) -> float:
    """Return the CPU that Airflow's components have used so far, tasks included."""
    roots = {name: batchledger.service_pid(bench.services, name) for name in local_stack.AIRFLOW_SERVICES}
    return sum(cpu_by_group(roots).values())


def _time_cold(bench: Bench, number: int) -> float:
    """Run one spark-submit on a topic with as many records; return the seconds from its start until all are seen."""
    subject = available_now.describe().subject
    ends = find_ends(bench.services.kafka_options, COLD, PARTITIONS)
    order = Order(f"{COLD}_{number}", COLD, COLD, ends, subject.settings)
    with fresh_table(bench.services.dsn, COLD), watching(bench.services.dsn, COLD, TAIL_PAGES) as watch:
        started = time.time()
        with available_now.cold_run(bench.services, order) as require_alive:

            def is_there() -> bool:
                require_alive()
                return watch.look() == ends

            wait_until(is_there, SECONDS_BETWEEN_LOOKS)
            return time.time() - started


def wait_until(holds: Callable[[], bool], seconds_between: float) -> None:
    """Return once the condition holds. Raises RuntimeError after ``RUN_SECONDS``."""
    deadline = time.monotonic() + RUN_SECONDS
    while not holds():
        if time.monotonic() > deadline:
            raise RuntimeError(f"a run was not over within {RUN_SECONDS:.0f} s")
        time.sleep(seconds_between)


def _produce(bench: Bench, name: str) -> None:
    records = (to_record(number) for number in range(RECORDS))
    produce(bench.services.kafka_options, name, PARTITIONS, records, lambda sent: None)


def _ask(airflow: AirflowApi, path: str) -> Any:
    answer = airflow.client.get(f"/api/v2{path}")
    answer.raise_for_status()
    return answer.json()


def _moment(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()
