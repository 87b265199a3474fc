"""Debian's Prometheus scrapes Airflow with the token of an account that may only read, and answers the board."""

import json
import os
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import httpx
import pytest
import yaml

from batchledger.config.places import PACKAGE
from batchledger.interfaces.metrics.shipped import BOARD, RULES, read_shipped
from batchledger.local.airflow_api import AirflowApi
from batchledger.local.samples.flights import read_flights
from batchledger.local.stack.airflow_components import VIEWER
from tests.board import Answer, ask_board, draw_board
from tests.conftest import TestServices
from tests.e2e.runs import DEADLINE_SECONDS, PATIENT, run_to_the_end, switch_on, trigger
from tests.integration.test_cli import ask
from tests.prometheus import PrometheusServer, serve_prometheus
from tests.support import TestPipeline, Workplace, wait_until

pytestmark = PATIENT


@pytest.fixture
def pipeline(workplace: Workplace, airflow: AirflowApi) -> TestPipeline:
    """Three records in quarantine, forty published by Airflow, and thirteen unread."""
    pipeline = workplace.create(deadlines={"lag": "1s"})
    switch_on(airflow, pipeline)
    pipeline.send(40)
    pipeline.send_raw([(0, b"no document")] * 3)
    run_to_the_end(airflow, pipeline)
    pipeline.send(13)
    return pipeline


@pytest.fixture
def token_file(airflow: AirflowApi, services: TestServices, tmp_path: Path) -> Path:
    """The token of the user who may only look, got as the documentation says."""
    password = json.loads(services.home.airflow_password_file.read_text())[VIEWER]
    login = {"username": VIEWER, "password": password}
    answer = httpx.post(f"{airflow.url}/auth/token", json=login, timeout=60, trust_env=False)
    file = tmp_path / "token"
    file.write_text(answer.json()["access_token"])
    return file


@pytest.fixture
def server(airflow: AirflowApi, token_file: Path, tmp_path: Path) -> Iterator[PrometheusServer]:
    """A Prometheus with the rules of the package, which scrapes each partition, too."""
    rules, target = read_shipped(RULES), httpx.URL(airflow.url).netloc.decode()
    with serve_prometheus(tmp_path, target, token_file, rules, params={"partitions": ["true"]}) as server:
        yield server


def test_prometheus_has_the_numbers_that_status_prints_and_its_rules_fire(
    pipeline: TestPipeline, server: PrometheusServer
) -> None:
    of_pipeline = f'{{pipeline="{pipeline.name}"}}'
    wait_until(
        lambda: list(server.query(f"batchledger_lag_records{of_pipeline}").values()) == [13],
        DEADLINE_SECONDS,
        every=0.5,
    )
    wait_until(lambda: server.query(f"batchledger_lag_seconds{of_pipeline}"), DEADLINE_SECONDS, every=0.5)
    (told,) = [each for each in ask("status")["pipelines"] if each["pipeline"] == pipeline.name]
    name = ("pipeline", pipeline.name)
    assert server.query(f"batchledger_lag_records{of_pipeline}") == {(name,): told["threats"]["unread_records"]}
    assert server.query(f"batchledger_quarantine_records{of_pipeline}") == {(name,): told["quarantine"]["records"]}
    assert server.query(f"batchledger_pipeline_state{of_pipeline}") == {(name, ("state", told["state"])): 1}
    batches = [each for each in ask("batches", pipeline.name)["batches"] if each["state"] == "published"]
    offsets = {
        dict(labels)["kind"]: value for labels, value in server.query(f"batchledger_offsets_total{of_pipeline}").items()
    }
    assert (offsets["accepted"], offsets["quarantined"]) == (sum(each["rows"] for each in batches), 3)
    published = f'batchledger_batches_total{{pipeline="{pipeline.name}",state="published"}}'
    assert list(server.query(published).values()) == [len(batches)]
    assert server.query(f"batchledger_unexplained_offsets{of_pipeline}") == {(name,): 0}
    partitions = server.query(f"batchledger_partition_lag_records{of_pipeline}")
    assert sum(partitions.values()) == 13
    assert server.query("batchledger_up") == {(): 1}
    wait_until(lambda: server.list_alerts().get("BatchledgerLagTooOld") == "firing", DEADLINE_SECONDS, every=0.5)
    assert server.list_targets() == [("up", "")]


def test_without_a_valid_token_prometheus_gets_nothing(server: PrometheusServer, token_file: Path) -> None:
    """The token is read again for each scrape, so one that was renewed is used at once."""
    wait_until(lambda: server.list_targets() == [("up", "")], DEADLINE_SECONDS, every=0.5)
    good = token_file.read_text()
    token_file.write_text(f"{good[:-4]}xxxx")
    wait_until(lambda: server.list_targets()[0][0] == "down", DEADLINE_SECONDS, every=0.5)
    ((_, error),) = server.list_targets()
    assert "401" in error or "403" in error
    token_file.write_text(good)
    wait_until(lambda: server.list_targets() == [("up", "")], DEADLINE_SECONDS, every=0.5)


FLIGHTS_AT_ONCE = 30_000
# Two rounds show something in each panel; lines are worth looking at after five.
ROUNDS = 5 if "BATCHLEDGER_PICTURES" in os.environ else 2


def let_things_go_wrong(airflow: AirflowApi, workplace: Workplace) -> None:
    """Flights come and are published; orders are set aside and wait; a refund stops its batch."""
    schema = yaml.safe_load((PACKAGE / "pipelines" / "flights.yaml").read_text())["source"]["schema"]
    flights = workplace.create(
        partitions=4, name="flights", source={"schema": schema}, limits={"max_records": FLIGHTS_AT_ONCE // 2}
    )
    orders = workplace.create(name="orders", topic_config={"retention.ms": "3600000"})
    not_negative = {"type": "expect_column_values_to_be_between", "column": "amount", "min_value": 0}
    refunds = workplace.create(name="refunds", checks=[not_negative])
    for pipeline in (flights, orders, refunds):
        switch_on(airflow, pipeline)
    records = read_flights()
    for _ in range(ROUNDS):
        # With the time of now: the delay of flights of 2013 would be years.
        flights.send_raw((number % 4, each.value) for number, each in enumerate(islice(records, FLIGHTS_AT_ONCE)))
        orders.send(300)
        orders.send_raw([(0, b"no document")])
        refunds.send(20)
        for pipeline in (flights, orders, refunds):
            trigger(airflow, pipeline)
    refunds.send_raw([(0, json.dumps({"message_id": "x", "number": 1, "amount": -5}).encode())])
    trigger(airflow, refunds)
    orders.send(900)


def test_every_panel_of_the_board_shows_something_of_a_stack_in_which_things_go_wrong(
    airflow: AirflowApi, workplace: Workplace, server: PrometheusServer, pictures: Path
) -> None:
    since = time.time()
    let_things_go_wrong(airflow, workplace)
    expected = {
        'batchledger_open_batches{pipeline="refunds",state="blocked"}': [1],
        # A look reads the states first, so the state of a batch that was blocked meanwhile comes with the next look.
        'batchledger_pipeline_state{pipeline="refunds",state="blocked"}': [1],
        'batchledger_quarantine_records{pipeline="orders"}': [ROUNDS],
        'batchledger_lag_records{pipeline="orders"}': [900],
        'batchledger_offsets_total{pipeline="flights",kind="accepted"}': [FLIGHTS_AT_ONCE * ROUNDS],
    }
    for query, values in expected.items():
        wait_until(lambda query=query, values=values: list(server.query(query).values()) == values, 60, every=0.5)
    answers = ask_board(server, json.loads(read_shipped(BOARD)), since, time.time())
    assert [each.panel["title"] for each in answers if not each.series] == []
    lines = [each for each in answers if each.panel["type"] == "timeseries"]
    assert [each.panel["title"] for each in lines if len({*each.legends}) < len(each.series)] == []
    assert [name for each in lines for name in each.legends if not name or "{{" in name] == []
    wrong = {"targets": [{"legendFormat": "{{stat}}"}]}
    assert {*Answer(wrong, lines[0].series).legends} == {"{{stat}}"}, "the negative control"
    picture = pictures / "board.png"
    draw_board(answers, picture)
    assert picture.stat().st_size < 200_000
