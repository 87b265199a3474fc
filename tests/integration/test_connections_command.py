"""``batchledger connections``: what pipelines name, where Airflow has it, and whether it answers."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from batchledger.interfaces.airflow.hooks import HttpHook, KafkaHook
from batchledger.ledger.schema import NEWEST_MIGRATION, RELEASES
from batchledger.settings.connections import load_connection
from tests.conftest import SERVICES, Kafka
from tests.endpoints import free_port, serve_mail, serve_webhook
from tests.integration.test_cli import ask, batchledger
from tests.support import TestPipeline, Workplace

PASSWORD = "s3cret-of-the-broker"  # noqa: S105
LOCAL_FILE = "the secrets backend LocalFilesystemBackend"
HERE = {"BATCHLEDGER_LOCAL": str(SERVICES.home.local)}


def by_name(listed: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {each["connection"]: each for each in listed}


def test_each_connection_that_pipelines_name_is_listed_once_with_its_place_and_what_answers(
    workplace: Workplace, registry_url: str, spark: None
) -> None:
    """Kafka, PostgreSQL, Spark Connect, spark-submit, a registry, an Iceberg catalog, a mail server, the secret."""
    hashed = {"protect": {"message_id": "hash"}}
    first = workplace.create(alerts=["post", "pager"], source=hashed)
    second = workplace.create(into="lake", spark="submit")
    avro = {"type": "kafka", "topic": "registered", "format": "avro", "registry": "registry_default"}
    third = workplace.create(sink=avro)
    with serve_mail() as mail:
        post = {"conn_type": "smtp", "host": "127.0.0.1", "port": mail.port}
        here = HERE | {
            "AIRFLOW_CONN_POST": json.dumps(post | {"extra": {"disable_ssl": True, "disable_tls": True}}),
            "AIRFLOW_CONN_PAGER": '{"conn_type": "http", "host": "http://pager.invalid/s3cret"}',
            "AIRFLOW_CONN_SUBMIT": "spark://local",
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        }
        done = batchledger("connections", first.name, second.name, third.name, "--test", "--json", **here)
        found = by_name(json.loads(done.stdout))
    assert {name: each["error"] for name, each in found.items()} == dict.fromkeys(found)
    assert found["kafka_default"]["pipelines_by_key"] == {
        "source.connection": [first.name, second.name, third.name], "sink.connection": [third.name],
    }  # fmt: skip
    assert found["warehouse"]["pipelines_by_key"] == {
        "sink.connection": [first.name], "ledger": [second.name, third.name],
    }  # fmt: skip
    words = {name: each["words"].partition(" ")[0] for name, each in found.items()}
    assert words.pop("lake") in ("Iceberg", "A")
    assert words == {
        "kafka_default": "Kafka", "warehouse": "PostgreSQL", "spark_default": "Spark", "submit": "spark-submit",
        "registry_default": "A", "batchledger_keys": "A", "post": "Mail", "pager": "Not",
    }  # fmt: skip
    assert found["warehouse"]["words"].endswith(f", ledger {RELEASES[NEWEST_MIGRATION]}")
    assert found["registry_default"]["words"] == f"A schema registry at {registry_url}"
    assert {name for name, each in found.items() if each["milliseconds"] is None} == {"pager", "batchledger_keys"}
    assert {name: each["found_in"] for name, each in found.items() if each["found_in"] != LOCAL_FILE} == {
        name: f"the environment (AIRFLOW_CONN_{name.upper()})" for name in ("post", "pager", "submit")
    }


def test_a_catalog_whose_tables_are_not_there_is_found_and_not_made(
    workplace: Workplace, tmp_path: Path, kafka: Kafka
) -> None:
    file = tmp_path / "catalog.db"
    pipeline = workplace.create(sink={"type": "iceberg", "table": "shop.orders", "catalog": "made_up"})
    lake = {"conn_type": "iceberg", "extra": {"uri": f"sqlite:///{file}", "warehouse": str(tmp_path), "token": None}}
    here = HERE | {"AIRFLOW_CONN_MADE_UP": json.dumps(lake)}
    found = by_name(ask("connections", pipeline.name, "--test", **here))["made_up"]
    assert found["words"] == "A database without a catalog yet: the first batch makes it"
    assert not file.exists() or file.read_bytes() == b""


def test_what_is_missing_of_another_type_or_does_not_answer_exits_with_1_and_keeps_no_other_from_being_shown(
    workplace: Workplace,
) -> None:
    """And no password is in the words, here of a broker that refuses it."""
    source = {"connection": "wrong"}
    pipeline = workplace.create(source=source, spark="nowhere", alerts=["elsewhere"], into="lake", ledger="gone")
    options = dict(load_connection("kafka_default").extra) | {"sasl.password": PASSWORD}
    gone = {"conn_type": "postgres", "host": "127.0.0.1", "port": free_port(), "password": PASSWORD}
    here = HERE | {
        "AIRFLOW_CONN_WRONG": json.dumps({"conn_type": "kafka", "extra": options}),
        "AIRFLOW_CONN_ELSEWHERE": "postgres://etl:s3cret@127.0.0.1/x",
        "AIRFLOW_CONN_GONE": json.dumps(gone),
    }
    listed = batchledger("connections", pipeline.name, **here)
    assert listed.returncode == 1
    assert "Airflow knows no connection 'nowhere'" in listed.stdout
    assert "Define one of type spark-connect or spark: airflow connections add nowhere" in listed.stdout
    done = batchledger("connections", pipeline.name, "--test", "--json", **here)
    assert done.returncode == 1
    found = by_name(json.loads(done.stdout))
    told = {name: (each["error"] or "").partition("\n")[0] for name, each in found.items()}
    assert told.pop("lake") == ""
    assert found["lake"]["words"].startswith(("Iceberg catalog of type sql, ", "A database without a catalog yet"))
    assert told == {
        "wrong": "could not ask for the cluster. Nothing was changed.",
        "gone": "could not look at the database. Nothing was changed.",
        "nowhere": f"{pipeline.path}: spark: Airflow knows no connection 'nowhere'.",
        "elsewhere": f"{pipeline.path}: alerts: Connection 'elsewhere' has type 'postgres'. Nothing was opened.",
    }
    assert "refuses the login" in found["wrong"]["error"]
    assert PASSWORD not in done.stdout + done.stderr + listed.stdout


def test_one_connection_that_is_used_for_two_things_has_to_fit_both(workplace: Workplace) -> None:
    """The negative control is a connection of HTTP, which fits alerts and a registry: the registry is asked."""
    first = workplace.create(alerts=["shared"])
    second = workplace.create(source={"connection": "shared"})
    third = workplace.create(sink={"type": "kafka", "topic": "out", "format": "avro", "registry": "shared"})
    here = HERE | {"AIRFLOW_CONN_SHARED": json.dumps({"conn_type": "http", "host": f"http://127.0.0.1:{free_port()}"})}
    refused = batchledger("connections", first.name, second.name, "--json", **here)
    assert refused.returncode == 1
    error = by_name(json.loads(refused.stdout))["shared"]["error"]
    assert error.startswith(f"{second.path}: source.connection: Connection 'shared' has type 'http'.")
    assert "type 'kafka' is needed here" in error
    fitting = batchledger("connections", first.name, third.name, "--test", "--json", **here)
    found = by_name(json.loads(fitting.stdout))["shared"]
    assert list(found["pipelines_by_key"]) == ["alerts", "sink.registry"]
    assert (found["milliseconds"] is None, "has type" in found["error"]) == (False, False)


def test_airflows_test_says_which_cluster_answers_and_what_a_broker_refuses_without_the_password(
    kafka: Kafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As its form stores them: what is left empty is null, and a text that was removed is empty."""
    empty = {"ssl.ca.location": None, "aws.region": ""}
    for name, more in {"good": {}, "wrong": {"sasl.password": PASSWORD}}.items():
        connection = {"conn_type": "kafka", "extra": {**kafka.options, **empty, **more}}
        monkeypatch.setenv(f"AIRFLOW_CONN_{name.upper()}", json.dumps(connection))
    is_good, words = KafkaHook("good").test_connection()
    assert (is_good, words.endswith(", 1 broker")) == (True, True), words
    is_good, words = KafkaHook("wrong").test_connection()
    assert (is_good, "refuses the login" in words, PASSWORD in words) == (False, True, False)


def test_airflows_test_of_http_finds_a_registry_and_says_that_a_webhook_has_none(
    registry_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_FOUND", json.dumps({"conn_type": "http", "host": registry_url}))
    assert HttpHook("found").test_connection() == (True, f"A schema registry at {registry_url}")
    with serve_webhook() as webhook:
        monkeypatch.setenv("AIRFLOW_CONN_HOOK", json.dumps({"conn_type": "http", "host": webhook.url}))
        is_good, words = HttpHook("hook").test_connection()
    assert (is_good, words.splitlines()[-1].partition(":")[0]) == (False, "A webhook has no test here")
    assert webhook.received == []


def test_a_secret_that_is_not_defined_is_missing_only_if_columns_are_hashed_with_it(
    workplace: Workplace, tmp_path: Path
) -> None:
    """A ledger may hold its keys as they are. The negative control is a pipeline with a hashed column."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("AIRFLOW")}
    environment |= {"HOME": str(tmp_path), "BATCHLEDGER_LOCAL": str(tmp_path / "local"), "AIRFLOW_HOME": str(tmp_path)}
    environment |= {"AIRFLOW_CONN_KAFKA_DEFAULT": "kafka://", "AIRFLOW_CONN_WAREHOUSE": "postgres://db"}
    environment |= {"AIRFLOW_CONN_SPARK_DEFAULT": "spark://local"}

    def list_connections(pipeline: TestPipeline) -> subprocess.CompletedProcess[str]:
        program = (sys.executable, "-c", "from batchledger.cli import main; main()")
        return subprocess.run(
            [*program, "connections", pipeline.name], env=environment, capture_output=True, text=True, check=False
        )

    remembers = list_connections(workplace.create(dedupe={"key": ["message_id"], "remember": "1d"}))
    assert (remembers.returncode, "batchledger_keys" in remembers.stdout) == (0, False), remembers.stderr
    hashes = list_connections(workplace.create(source={"protect": {"message_id": "hash"}}))
    assert (hashes.returncode, "no connection 'batchledger_keys'" in hashes.stdout) == (1, True)
