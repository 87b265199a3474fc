"""Runs that begin because records are there: a real triggerer looks at the log, and Airflow says why a run began."""

import json
import signal
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pytest
from confluent_kafka import Producer

from batchledger.local.airflow_api import AirflowApi, Run
from batchledger.local.stack.home import Credentials, write_private
from batchledger.local.stack.kafka_broker import client_options
from batchledger.local.stack.processes import ServiceRecord
from batchledger.local.torture.proxy import Link, run_proxy
from batchledger.model.batch import Decision
from tests.conftest import TestServices, choose_ports
from tests.e2e.runs import DEADLINE_SECONDS, PATIENT, batches_of, second, switch_on, trigger, wait_until_idle
from tests.faults.servers import Server, server_of_its_own
from tests.support import TestPipeline, Workplace, wait_until

pytestmark = PATIENT

EVERY_SECOND = {"check_every": "1s"}
DECISION = Decision("a person", "because")
KAFKA, LEDGER = "kafka_of_starts", "ledger_of_starts"


def begin(airflow: AirflowApi, workplace: Workplace, **changes: Any) -> TestPipeline:
    """A pipeline that starts on records, and whose first run has noted where it begins."""
    (pipeline,) = begin_together(airflow, (workplace, changes))
    return pipeline


def begin_together(airflow: AirflowApi, *wanted: tuple[Workplace, Mapping[str, Any]]) -> list[TestPipeline]:
    """Several such pipelines, each in its workplace and with its changes: their first runs go on side by side."""
    pipelines = [place.create(start_on_records=EVERY_SECOND, **changes) for place, changes in wanted]
    for each in pipelines:
        switch_on(airflow, each)
    for each in pipelines:
        wait_until(partial(has_begun, each), DEADLINE_SECONDS, every=0.5)
        wait_until_idle(airflow, each)
    return pipelines


def has_begun(pipeline: TestPipeline) -> bool:
    """Whether a run has noted where it begins."""
    return bool(pipeline.platform().ledger.load_positions(pipeline.name))


def wait_for_rows(airflow: AirflowApi, pipeline: TestPipeline) -> None:
    """Wait until everything that was sent is visible, and the runs are over."""
    wait_until(lambda: pipeline.count_target_rows() >= len(pipeline.sent), DEADLINE_SECONDS, every=0.2)
    wait_until_idle(airflow, pipeline)
    pipeline.assert_exact()


def ask(airflow: AirflowApi, path: str) -> Any:
    """Ask Airflow's API what its pages show."""
    answer = airflow.client.get(f"/api/v2{path}")
    answer.raise_for_status()
    return answer.json()


def list_causes(airflow: AirflowApi, pipeline: TestPipeline, run: Run) -> list[Mapping[str, Any]]:
    """The events that Airflow shows on the page of the run."""
    return ask(airflow, f"/dags/{pipeline.name}/dagRuns/{run.run_id}/upstreamAssetEvents")["asset_events"]


def kinds_of(airflow: AirflowApi, pipeline: TestPipeline) -> Counter[str]:
    """How many runs began for which reason."""
    return Counter(run.kind for run in airflow.list_runs(pipeline.name))


def test_one_record_starts_a_run_airflow_says_why_and_a_pipeline_without_the_key_waits_for_a_person(
    airflow: AirflowApi, workplace: Workplace
) -> None:
    alone = workplace.create()
    alone.send(3)
    switch_on(airflow, alone)
    pipeline = begin(airflow, workplace)
    # If the first event has come twice, the second one is the cause of the next run.
    for _ in range(2):
        pipeline.send(1)
        wait_for_rows(airflow, pipeline)
    published_by = batches_of(pipeline)[-1].planned_by
    (run,) = (each for each in airflow.list_runs(pipeline.name) if each.run_id == published_by)
    assert (run.kind, run.state) == ("asset_triggered", "success")
    cause = max(list_causes(airflow, pipeline, run), key=lambda each: each["id"])
    assert cause["name"] == f"{pipeline.name}_records"
    assert cause["extra"]["payload"] == {"pipeline": pipeline.name, "unread_records": 1, "open_batch": None}
    assert airflow.list_runs(alone.name) == []


def test_what_arrives_during_a_run_is_taken_by_the_next_and_nothing_piles_up(
    airflow: AirflowApi, workplace: Workplace
) -> None:
    """With a schedule beside it, which Airflow shows as well, and a person who triggers a run in between."""
    pipeline = begin(airflow, workplace, schedule="0 0 1 1 *")
    for _ in range(3):
        pipeline.send(20)
        wait_until(lambda: any(run.is_active for run in airflow.list_runs(pipeline.name)), DEADLINE_SECONDS, every=0.1)
        pipeline.send(20)
        wait_until_idle(airflow, pipeline)
    wait_for_rows(airflow, pipeline)
    trigger(airflow, pipeline)
    published = [each for each in batches_of(pipeline) if each.state == "published"]
    kinds = kinds_of(airflow, pipeline)
    assert kinds["manual"] == 1
    assert kinds["asset_triggered"] <= len(published) + 3, "a doubled event costs a skipped run, and these are few"


def test_paused_dag_paused_or_blocked_pipeline_and_open_transaction_start_nothing_until_they_are_over(
    airflow: AirflowApi, workplace: Workplace
) -> None:
    """Another pipeline on the same cluster starts meanwhile, which is the negative control."""
    one, transactional = {"partitions": 1}, {"partitions": 1, "source": {"holes": "transactional"}}
    changes: tuple[dict[str, Any], ...] = ({}, {}, one, transactional, {})
    off, held, blocked, open_, other = begin_together(airflow, *[(workplace, each) for each in changes])
    airflow.client.patch(f"/api/v2/dags/{off.name}", json={"is_paused": True}).raise_for_status()
    held.platform().decisions.pause(held.name, DECISION)
    # A commit marker on a topic that declares no holes.
    blocked.send_in_transaction([b"{}"], partition=0, commit=True)
    wait_until(lambda: [each.state for each in batches_of(blocked)] == ["blocked"], DEADLINE_SECONDS, every=0.5)
    wait_until_idle(airflow, blocked)
    waiting = (off, held, blocked, open_)
    known = {each.name: airflow.list_runs(each.name) for each in waiting}
    transaction = begin_transaction(open_)
    # Nothing starts for what was written behind the transaction, too: the last stable offset stands still.
    for each in waiting:
        each.send(5, partitions=1)
    other.send(1)
    wait_for_rows(airflow, other)
    assert {each.name: airflow.list_runs(each.name) for each in waiting} == known
    transaction.commit_transaction(30)
    held.platform().decisions.resume(held.name, DECISION)
    airflow.unpause(off.name)
    for each in (off, held, open_):
        wait_for_rows(airflow, each)
        started = airflow.list_runs(each.name)[len(known[each.name]) :]
        assert len(started) <= 2, "one run, and at most one that finds nothing to do"
    assert_few_runs(airflow, open_, other)
    assert airflow.list_runs(blocked.name) == known[blocked.name]


def begin_transaction(pipeline: TestPipeline) -> Producer:
    """Write one record in a transaction that stays open."""
    patient = {"transactional.id": pipeline.name, "transaction.timeout.ms": 900_000}
    producer = Producer({**pipeline.workplace.kafka_options, **patient})
    producer.init_transactions(30)
    producer.begin_transaction()
    pipeline.sent.append(f"{pipeline.name}-in-transaction")
    record = {"message_id": pipeline.sent[-1], "number": 0, "amount": 0}
    producer.produce(pipeline.name, value=json.dumps(record), partition=0)
    producer.flush(30)
    return producer


@dataclass(frozen=True)
class Fragile:
    """A broker and a way to the ledger of a test's own; pipelines know both by the names of their connections."""

    broker: Server
    ledger: Link

    @property
    def kafka_options(self) -> dict[str, str]:
        """What a client of the broker needs."""
        return client_options(self.broker.ports, Credentials.of(self.broker.home))


@pytest.fixture
def fragile(services: TestServices, airflow: AirflowApi) -> Iterator[Fragile]:
    file = services.home.connections_file
    before = file.read_text()
    known = json.loads(before)
    with (
        server_of_its_own("kafka", signal.SIGTERM) as broker,
        run_proxy({choose_ports().postgres: services.ports.postgres}) as (ledger,),
    ):
        fragile = Fragile(broker, ledger)
        own = {
            KAFKA: {"conn_type": "kafka", "extra": fragile.kafka_options},
            LEDGER: {**known["warehouse"], "port": ledger.port},
        }
        write_private(file, json.dumps(known | own))
        try:
            yield fragile
        finally:
            write_private(file, before)


def find_triggerer(services: TestServices) -> set[int]:
    """The numbers of the triggerer's processes."""
    record = ServiceRecord.read(services.home, "triggerer")
    assert record is not None
    assert record.leader is not None
    return {process.pid for process in (record.leader, *record.leader.children(recursive=True))}


def assert_few_runs(airflow: AirflowApi, *pipelines: TestPipeline) -> None:
    """Nothing has piled up: a batch needs one run, and a doubled event costs one that is skipped."""
    for each in pipelines:
        assert {batch.state for batch in batches_of(each)} == {"published"}
        assert kinds_of(airflow, each)["asset_triggered"] <= len(batches_of(each)) + 3


def test_ledger_and_kafka_that_go_away_and_come_back_need_no_hand(
    airflow: AirflowApi, workplace: Workplace, services: TestServices, fragile: Fragile
) -> None:
    """The ledger is silent, the broker is killed; the triggerer's log says when a look has noticed it."""
    triggerer = find_triggerer(services)
    log = services.home.log_file("triggerer")

    def is_said(trouble: str) -> bool:
        text = log.read_text()
        return any(trouble in said for said in text.split("no run is started for now")[1:])

    place, source = replace(workplace, kafka_options=fragile.kafka_options), {"connection": KAFKA}
    behind, other = begin_together(
        airflow, (place, {"source": source, "sink": {"connection": LEDGER}}), (place, {"source": source})
    )
    fragile.ledger.black_hole()
    try:
        behind.send(10)
        wait_until(lambda: is_said("could not look which pipelines have records to read"), DEADLINE_SECONDS)
        other.send(10)
        wait_for_rows(airflow, other)
        assert behind.count_target_rows() == 0
    finally:
        fragile.ledger.heal()
    wait_for_rows(airflow, behind)
    fragile.broker.crash()
    try:
        wait_until(lambda: is_said(fragile.kafka_options["bootstrap.servers"]), DEADLINE_SECONDS)
    finally:
        fragile.broker.up()
    for each in (behind, other):
        each.send(10)
    for each in (behind, other):
        wait_for_rows(airflow, each)
    assert_few_runs(airflow, behind, other)
    assert find_triggerer(services) == triggerer


def test_two_schedulers_and_two_triggerers_publish_every_record_once_and_one_that_is_killed_is_replaced(
    airflow: AirflowApi, workplace: Workplace, services: TestServices
) -> None:
    with second(services, "scheduler"), second(services, "triggerer"):
        pipelines = begin_together(airflow, *[(workplace, {})] * 2)
        for _ in range(2):
            for each in pipelines:
                each.send(10)
            for each in pipelines:
                wait_for_rows(airflow, each)
        record = ServiceRecord.read(services.home, "triggerer")
        assert record is not None
        assert record.leader is not None
        for process in (*record.leader.children(recursive=True), record.leader):
            process.kill()
        for each in pipelines:
            each.send(10)
        for each in pipelines:
            wait_for_rows(airflow, each)
            published = [batch for batch in batches_of(each) if batch.state == "published"]
            assert kinds_of(airflow, each)["asset_triggered"] <= len(published) + 4
    services.up("triggerer")
