"""A watch over real services, without Airflow: what is wrong arrives at an endpoint once, and once more at its end."""

import json
from pathlib import Path
from typing import Any

import psycopg
import pytest

from batchledger.config.pipeline_files import watch_files
from batchledger.interfaces.surveys import survey_watches
from batchledger.interfaces.upkeep import keep_house
from batchledger.ledger.incidents import PostgresIncidents
from batchledger.model.findings import PipelineState
from tests.conftest import Kafka
from tests.endpoints import Webhook, free_port
from tests.integration.test_cli import batchledger
from tests.watched import WatchedTopic, open_shop, write_watch_file


@pytest.fixture
def shop(kafka: Kafka, warehouse_dsn: str) -> WatchedTopic:
    """Ten records, and a row for each of nine."""
    return open_shop(kafka.options, warehouse_dsn, lacking={3})


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A folder of files that has no other one."""
    monkeypatch.setenv("BATCHLEDGER_PIPELINES", str(tmp_path))
    return tmp_path


def watch(shop: WatchedTopic, code: int, *more: str) -> dict[str, Any]:
    """Look by the command line, which has to end with this code; return its document."""
    done = batchledger("watch", shop.name, "--json", *more)
    assert done.returncode == code, done.stderr
    found = json.loads(done.stdout) if code in (0, 3) else {}
    return found[0] if isinstance(found, list) else found


def test_wrong_table_is_told_once_goes_on_and_is_over_when_it_is_proved_by_either_look(
    shop: WatchedTopic, folder: Path, webhook: Webhook
) -> None:
    write_watch_file(folder, shop, alerts=["ops"])
    for more in (["--missing"], [], ["--missing"]):
        assert watch(shop, 3, *more)["outcome"] == "wrong"
    title = f"[batchledger] {shop.name}: the table is wrong — missing"
    assert webhook.titles == [title]
    told = webhook.received[0]
    assert told["lines"][0] == f"missing 1: {shop.name}[0] 3..4, Kafka has records there, read just now or earlier"
    assert (told["severity"], told["command"]) == ("critical", f"batchledger watch {shop.name}")
    shop.insert([3])
    for more in (["--missing"], []):
        assert watch(shop, 0, *more)["outcome"] == "proved"
    assert webhook.titles[1:] == [each for each in webhook.titles[1:] if each.startswith(f"{title}: over after ")]
    assert len(webhook.titles) == 2
    assert webhook.received[1]["ending"] == "10 offsets are proved"


def test_table_that_cannot_be_proved_is_another_incident_and_ends_no_wrong_one(
    shop: WatchedTopic, folder: Path, webhook: Webhook
) -> None:
    shop.insert([3])
    write_watch_file(folder, shop, alerts=["ops"])
    watch(shop, 0)
    shop.run("insert into {table} values (null, 5)")
    assert watch(shop, 3, "--all")["outcome"] == "cannot say"
    assert webhook.titles == [f"[batchledger] {shop.name}: the table cannot be proved — without coordinates"]
    assert webhook.received[0]["severity"] == "warning"


def test_table_that_does_not_answer_is_an_incident_that_ends_with_the_next_look(
    shop: WatchedTopic, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is sent only if it lasts, so a blip sends nothing."""
    table = {"connection": "elsewhere", "name": shop.name}
    monkeypatch.setenv("AIRFLOW_CONN_ELSEWHERE", f"postgres://someone@127.0.0.1:{free_port()}/none")
    write_watch_file(folder, shop, table=table)
    incidents = PostgresIncidents(shop.dsn)
    for _ in range(2):
        watch(shop, 1)
    (told,) = [each.condition for each in incidents.list_open(shop.name)]
    assert (told.kind, told.title) == ("unreachable", "the table cannot be looked at")
    (standing,) = (each for each in survey_watches(*watch_files().read()) if each.name == shop.name)
    assert (standing.health.state, standing.current_look) == (PipelineState.UNKNOWN, None)
    assert "no look since" in standing.health.detail
    write_watch_file(folder, shop)
    watch(shop, 3)
    assert [each.condition.kind for each in incidents.list_open(shop.name)] == ["table_wrong"]


@pytest.mark.parametrize("is_there", [True, False], ids=["with its file", "its file is gone"])
def test_incident_of_a_watch_that_is_forgotten_is_over(shop: WatchedTopic, folder: Path, *, is_there: bool) -> None:
    path = write_watch_file(folder, shop)
    watch(shop, 3)
    if not is_there:
        path.unlink()
    assert watch(shop, 0, "--forget")["forgotten"]
    assert not PostgresIncidents(shop.dsn).list_open(shop.name)
    again = batchledger("watch", shop.name, "--forget")
    told = ("nothing was proved yet" in again.stdout, f"no watch '{shop.name}'" in again.stderr)
    assert told == (is_there, not is_there)


def test_metrics_have_the_newest_look_of_each_watch(shop: WatchedTopic, folder: Path) -> None:
    write_watch_file(folder, shop)
    assert "batchledger_watch_outcome{" not in batchledger("metrics").stdout
    watch(shop, 3)
    lines = batchledger("metrics").stdout.splitlines()
    assert f'batchledger_watch_outcome{{outcome="wrong",watch="{shop.name}"}} 1.0' in lines
    assert f'batchledger_watch_found{{difference="missing",watch="{shop.name}"}} 1.0' in lines
    (folder / "refused.yaml").write_text("watch: refused\n")
    assert f'batchledger_watch_proved_offsets{{watch="{shop.name}"}} 9.0' in batchledger("metrics").stdout.splitlines()
    shop.insert([3])
    watch(shop, 0)
    assert 'outcome="wrong"' not in batchledger("metrics").stdout


def test_housekeeping_forgets_the_old_incidents_of_a_watch_and_of_no_other(shop: WatchedTopic, folder: Path) -> None:
    write_watch_file(folder, shop)
    watch(shop, 3)
    shop.insert([3])
    watch(shop, 0)
    count = "select count(*) from batchledger.incident where pipeline = %s"
    with psycopg.connect(shop.dsn) as connection:
        assert connection.execute(count, [shop.name]).fetchone() == (1,)
    shop.run("update batchledger.incident set ended_at = now() - interval '10 years' where pipeline = %s", [shop.name])
    (folder / "orders.yaml").write_text(
        "name: orders\nsource: {topics: [orders], schema: id bigint}\nsink: {table: orders}\n"
    )
    keep_house()
    with psycopg.connect(shop.dsn) as connection:
        assert connection.execute(count, [shop.name]).fetchone() == (0,)
