"""Metrics over real services: the page and the command say the same as ``status --json``, and nothing else."""

import json
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from httpx import Response
from prometheus_client.parser import text_string_to_metric_families

from batchledger.interfaces.page import lookout, overview
from batchledger.interfaces.page.overview import date_unread
from batchledger.lifecycle import plans
from batchledger.model.batch import Step, StepFailure
from batchledger.model.offsets import TopicPartition
from batchledger.source.kafka.log import KafkaLog
from tests.integration.test_cli import batchledger, read_answer
from tests.pages import PATIENT_SECONDS, User, block, let_in, open_browser, publish
from tests.prometheus import promtool
from tests.support import TestPipeline, Workplace

CANARY = "canary-4111"
Numbers = dict[str, dict[tuple[str, ...], float]]


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first request waits for the look; no later one is taken."""
    monkeypatch.setattr(lookout, "FRESH_SECONDS", 3600.0)
    monkeypatch.setattr("batchledger.interfaces.page.metrics.FIRST_LOOK_SECONDS", PATIENT_SECONDS)
    monkeypatch.setattr(overview, "find_active_runs", lambda _: set())
    monkeypatch.setattr(overview, "find_switched_off", lambda _: set())


def scrape(monkeypatch: pytest.MonkeyPatch, *pipelines: TestPipeline, address: str = "/metrics") -> Response:
    """Ask a page that was just started as an account that may read these pipelines."""
    account = User("prometheus", may_act=False, dags=frozenset(each.name for each in pipelines) or frozenset({"none"}))
    answer = open_browser(let_in(monkeypatch, account), account).get(address)
    assert answer.status_code == 200, answer.text
    return answer


def read_numbers(text: str) -> Numbers:
    """The values of each series by the pipeline and its other labels, in the order of their names."""
    found: Numbers = {}
    for family in text_string_to_metric_families(text):
        for each in family.samples:
            names = sorted(each.labels, key=lambda name: (name != "pipeline", name))
            found.setdefault(each.name, {})[tuple(each.labels[name] for name in names)] = each.value
    return found


def measure(*arguments: str) -> Numbers:
    """Run the command."""
    done = batchledger("metrics", *arguments)
    assert (done.returncode, done.stderr) == (0, "")
    return read_numbers(done.stdout)


def without_clocks(numbers: Numbers) -> Numbers:
    """All but what is another number a moment later."""
    moving = ("_lag_seconds", "_expiry_seconds", "_freshness_seconds", "_timestamp_seconds")
    return {name: found for name, found in numbers.items() if not name.endswith(moving)}


@pytest.fixture
def shop(workplace: Workplace) -> tuple[TestPipeline, TestPipeline]:
    """One pipeline with a publication, quarantine and unread records, and a blocked one; each holds a canary."""
    orders = workplace.create(deadlines={"lag": "10m"})
    orders.send(7)
    orders.send_raw([(0, CANARY.encode())], key=CANARY.encode())
    publish(orders)
    orders.send(5)
    blocked, _ = block(workplace)
    return orders, blocked


def test_page_command_and_status_say_the_same(
    shop: tuple[TestPipeline, TestPipeline], monkeypatch: pytest.MonkeyPatch
) -> None:
    orders, blocked = shop
    page = read_numbers(scrape(monkeypatch, *shop, address="/metrics?partitions=true").text)
    command = measure(orders.name, blocked.name, "--partitions")
    assert without_clocks(page) == without_clocks(command)
    found = read_answer(batchledger("status", "--json"))["pipelines"]
    status = {each["pipeline"]: each for each in found if each["pipeline"] in (orders.name, blocked.name)}
    told = status[orders.name]
    assert page["batchledger_lag_records"] == {
        (name,): status[name]["threats"]["unread_records"] for name in (orders.name, blocked.name)
    }
    assert told["threats"]["unread_records"] == 5
    assert page["batchledger_pipeline_state"] == {(name, status[name]["state"]): 1 for name in status}
    assert page["batchledger_quarantine_records"][orders.name,] == told["quarantine"]["records"] == 1
    for name, moment in (("lag", "oldest_unread_at"), ("expiry", "expires_at")):
        found = command[f"batchledger_{name}_seconds"][orders.name,]
        seconds = datetime.fromisoformat(told["threats"][moment]).timestamp()
        looked_at = command["batchledger_look_timestamp_seconds"][()]
        # The command computes ages a moment after its look has ended.
        assert abs(found) == pytest.approx(abs(looked_at - seconds), abs=1.0)
    assert page["batchledger_open_batches"] == {(blocked.name, "blocked"): 1}
    assert page["batchledger_batches_total"][orders.name, "published"] == 1
    assert page["batchledger_offsets_total"][orders.name, "accepted"] == 7
    assert page["batchledger_offsets_total"][orders.name, "quarantined"] == 1
    assert page["batchledger_unexplained_offsets"] == {(orders.name,): 0, (blocked.name,): 1}
    assert page["batchledger_step_seconds_count"][orders.name, "stage"] == 1
    assert page["batchledger_deadline_seconds"] == {(orders.name, "lag"): 600}
    lags = page["batchledger_partition_lag_records"]
    assert {number: count for (name, number, _), count in lags.items() if name == orders.name} == {"0": 3, "1": 2}


def test_open_incidents_are_counted_as_status_lists_them(shop: tuple[TestPipeline, TestPipeline]) -> None:
    _, blocked = shop
    assert batchledger("alerts", "send", blocked.name).returncode == 0
    incidents = read_answer(batchledger("status", "--json"))["incidents"]
    kinds = [each["kind"] for each in incidents if each["pipeline"] == blocked.name]
    assert kinds
    assert measure(blocked.name)["batchledger_open_incidents"] == {
        (blocked.name, kind): kinds.count(kind) for kind in kinds
    }


def test_account_sees_the_pipelines_whose_dags_it_may_read_and_no_others(
    shop: tuple[TestPipeline, TestPipeline], monkeypatch: pytest.MonkeyPatch
) -> None:
    orders, blocked = shop
    mine = scrape(monkeypatch, orders, address="/metrics?partitions=true").text
    assert (orders.name in mine, blocked.name in mine) == (True, False)
    assert set(read_numbers(scrape(monkeypatch).text)["batchledger_up"].values()) == {1}
    assert orders.name not in scrape(monkeypatch).text


def test_named_pipelines_are_looked_at_alone_and_an_unknown_name_is_refused(
    shop: tuple[TestPipeline, TestPipeline],
) -> None:
    orders, _ = shop
    assert list(measure(orders.name)["batchledger_lag_records"]) == [(orders.name,)]
    done = batchledger("metrics", "there_is_none")
    assert (done.returncode, done.stdout, "there_is_none" in done.stderr) == (2, "", True)


def test_no_value_of_a_record_no_error_and_no_password_is_in_the_metrics(
    shop: tuple[TestPipeline, TestPipeline], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    orders, blocked = shop
    platform = orders.platform()
    batch = plans.plan(platform, "manual__1")
    assert batch is not None
    attempt = platform.ledger.open_attempt(batch.batch_id, "manual__1")
    platform.ledger.mark_failed(attempt, StepFailure(Step.STAGE, f"refused: {CANARY}"))
    secret = f"{CANARY}-password"
    monkeypatch.setenv("AIRFLOW_CONN_ELSEWHERE", f"postgres://ana:{secret}@127.0.0.1:1/warehouse")
    silent = orders.workplace.create(partitions=1, sink={"connection": "elsewhere"})
    (orders.workplace.folder / "wrong.yaml").write_text(f"name: wrong\nsource: {CANARY}\n")
    file = tmp_path / "batchledger.prom"
    assert batchledger("metrics", "--partitions", "--textfile", str(file)).returncode == 0
    accept = {"Accept": "application/openmetrics-text;version=1.0.0"}
    account = User("prometheus", may_act=False, dags=frozenset({orders.name, blocked.name, silent.name, "wrong"}))
    browser = open_browser(let_in(monkeypatch, account), account)
    texts = [file.read_text(), *(browser.get("/metrics?partitions=true", headers=each).text for each in ({}, accept))]
    for text in texts:
        assert CANARY not in text
        assert (f'pipeline="{silent.name}",state="unknown"' in text, 'state="failing"' in text) == (True, True)
    # It is there, where people with the right to act look: so it could have been in the metrics, too.
    assert CANARY in json.dumps(read_answer(batchledger("status", "--json")))
    assert promtool("check", "metrics", text=texts[0]).stderr == ""


def test_ledger_that_does_not_answer_leaves_out_only_its_own_totals(
    shop: tuple[TestPipeline, TestPipeline], monkeypatch: pytest.MonkeyPatch
) -> None:
    orders, blocked = shop
    monkeypatch.setenv("AIRFLOW_CONN_ELSEWHERE", "postgres://ana:none@127.0.0.1:1/warehouse")
    silent = orders.workplace.create(partitions=1, sink={"connection": "elsewhere"})
    found = read_numbers(scrape(monkeypatch, orders, silent).text)
    assert found["batchledger_pipeline_state"][silent.name, "unknown"] == 1
    assert list(found["batchledger_unexplained_offsets"]) == [(orders.name,)]
    assert blocked.name not in str(found)


def test_request_asks_kafka_for_nothing_and_counts_what_was_published_since_the_look(
    shop: tuple[TestPipeline, TestPipeline], monkeypatch: pytest.MonkeyPatch
) -> None:
    orders, _ = shop
    account = User("prometheus", may_act=False, dags=frozenset({orders.name}))
    browser = open_browser(let_in(monkeypatch, account), account)
    before = read_numbers(browser.get("/metrics").text)
    publish(orders)

    def refuse(*_: Any) -> Any:
        raise AssertionError("Kafka was asked")

    for name in ("read_log", "read_health"):
        monkeypatch.setattr(KafkaLog, name, refuse)
    after = read_numbers(browser.get("/metrics").text)
    assert after["batchledger_look_timestamp_seconds"] == before["batchledger_look_timestamp_seconds"]
    assert after["batchledger_lag_records"] == before["batchledger_lag_records"] == {(orders.name,): 5}
    assert after["batchledger_offsets_total"][orders.name, "accepted"] == 12


def test_before_the_first_look_the_page_says_that_it_has_none(
    workplace: Workplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("batchledger.interfaces.page.metrics.FIRST_LOOK_SECONDS", 0.0)
    pipeline = workplace.create(partitions=1)
    text = scrape(monkeypatch, pipeline).text
    assert read_numbers(text) == {"batchledger_up": {(): 0}}


def test_partitions_that_wait_longest_are_dated_next(workplace: Workplace, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if all of them move between two looks, which asks about each anew."""
    monkeypatch.setattr(overview, "PARTITIONS_DATED", 2)
    pipeline = workplace.create(partitions=5)
    pipeline.send(50, partitions=5)
    connection, known, asked = pipeline.config.source.connection, {}, []
    for offset in range(1, 6):
        known = date_unread(connection, {TopicPartition(pipeline.name, each): offset for each in range(5)}, known)
        asked.append({each.partition.partition for each in known.values() if each.next_offset == offset})
    assert asked == [{0, 1}, {2, 3}, {4, 0}, {1, 2}, {3, 0}]
