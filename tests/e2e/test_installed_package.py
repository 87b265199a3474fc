"""The wheel in an empty environment: the local services and the demo, through Airflow, without a checkout."""

import dataclasses
import json
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from batchledger.local.airflow_api import AirflowAccount, open_airflow
from batchledger.local.stack.home import Credentials, port_variable
from tests.archives import build_archives, copy_sources, install, outside_of_the_checkout
from tests.conftest import SERVICES, as_superuser, choose_ports
from tests.e2e.runs import PATIENT
from tests.leaks import find_leaks

pytestmark = PATIENT
FLIGHTS = 336_776
MESSAGE = "nycflights13-012345"
"""A value of one record, of the first batch."""
REFUSAL = f'''\
def refuse(message_id):
    if message_id == "{MESSAGE}":
        raise ValueError(f"bad {{message_id}}")
    return message_id


def change(rows):
    from pyspark.sql import functions

    return rows.withColumn("message_id", functions.udf(refuse, "string")("message_id"))
'''
"""A module with a transform that fails at that record, and quotes it."""
KEEPERS = {
    "credentials.json": {*Credentials.__dataclass_fields__},
    "connections.json": {"database_password", "kafka_password", "key_secret", "spark_token"},
    "kafka.properties": {"kafka_password"},
    "kafka/server.properties": {"kafka_password"},
    "pgpass": {"airflow_database_password", "database_password", "ledger_password"},
    "airflow/airflow.cfg": {"airflow_fernet_key", "airflow_jwt_secret", "airflow_secret_key"},
    "airflow/passwords.json": {"airflow_password", "airflow_reviewer_password", "airflow_viewer_password"},
}
"""The files whose purpose is to hold secrets, with the names of these."""


@dataclass(frozen=True)
class Person:
    """Someone who has installed the wheel, in an empty working directory."""

    programs: Path
    folder: Path
    environment: dict[str, str]

    def run(self, program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run an installed program to its end."""
        command = [str(self.programs / program), *arguments]
        return subprocess.run(
            command, cwd=self.folder, env=self.environment, capture_output=True, text=True, timeout=600, check=False
        )

    def succeed(self, program: str, *arguments: str) -> str:
        """Run a program that has to succeed; return its output."""
        done = self.run(program, *arguments)
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
        return done.stdout


def prepare(sources: Path, folder: Path) -> Person:
    wheel, _ = build_archives(sources, folder / "dist")
    programs = install(wheel, folder / "environment")
    (folder / "empty").mkdir()
    ports = {port_variable(name): str(port) for name, port in dataclasses.asdict(choose_ports()).items()}
    environment = outside_of_the_checkout() | ports | {"BATCHLEDGER_CACHE": str(SERVICES.home.cache)}
    path = f"{programs}:{environment['PATH']}"
    return Person(programs, folder / "empty", {**environment, "PATH": path, "HOME": str(folder)})


@pytest.fixture
def person(tmp_path: Path) -> Iterator[Person]:
    (tmp_path / "sources").mkdir()
    made = prepare(copy_sources(tmp_path / "sources"), tmp_path)
    yield made
    made.run("batchledger", "down")
    shutil.rmtree((made.folder / ".batchledger" / "postgres").resolve(), ignore_errors=True)


def test_installed_wheel_takes_the_flights_through_airflow_from_an_empty_folder(person: Person) -> None:
    file = person.succeed("python", "-c", "import batchledger; print(batchledger.__file__)")
    assert Path(file.strip()).is_relative_to(person.programs.parent)
    assert person.succeed("batchledger", "--version").startswith("batchledger 0.")
    assert "No module named 'pytest'" in person.run("python", "-c", "import pytest").stderr
    services = json.loads(person.succeed("batchledger", "up", "--json"))
    demo = person.run("batchledger", "demo")
    told = " ".join(demo.stderr.split())
    assert demo.returncode == 0, told[-3000:]
    assert f"Made from 4 batches, each read by its _batch_id. The same query over all {FLIGHTS:,} rows" in told
    proved = person.succeed("batchledger", "verify", "flights")
    assert f"{FLIGHTS:,}" in proved
    with open_airflow(account_of(services["airflow"])) as api:
        airflow = api.client
        plugins = airflow.get("/api/v2/plugins").json()["plugins"]
        assert [each["name"] for each in plugins if each["name"] == "batchledger"] == ["batchledger"]
        assert airflow.get("/api/v2/plugins/importErrors").json()["import_errors"] == []
        page = airflow.get("/batchledger/pipelines/flights")
        assert (page.status_code, "flights" in page.text) == (200, True)
        assert airflow.get("/batchledger/docs/index.html").status_code == 200
    assert {each.name for each in person.folder.iterdir()} == {".batchledger"}
    fail_demo(person, Path(file.strip()).parent)
    words = json.loads((person.folder / ".batchledger" / "credentials.json").read_text())
    dsn = as_superuser(services["warehouse"]["dsn"], Credentials(**words))
    leaks = find_leaks({**words, "value": MESSAGE}, person.folder / ".batchledger", dsn)
    in_kafka = {place for place in leaks if place.startswith("kafka/data/flights-")}
    in_tables = ("warehouse.public.flights", "warehouse.batchledger.attempt")
    assert leaks == KEEPERS | {place: {"value"} for place in (*in_tables, *in_kafka)}
    assert "kafka" in person.succeed("batchledger", "down")


def fail_demo(person: Person, package: Path) -> None:
    """Run the demo with a transform that fails; its whole error is in the ledger."""
    name, home = "flights_refused", "from batchledger.config.places import default_pipelines_folder as f; print(f())"
    folder = Path(person.succeed("python", "-c", home).strip())
    package.with_name("flights_refusal.py").write_text(REFUSAL)
    text = (folder / "flights.yaml").read_text().replace("name: flights", f"name: {name}")
    text = text.replace("table: flights", f"table: {name}")
    (folder / f"{name}.yaml").write_text(f"{text}transform: flights_refusal:change\n")
    failed = person.run("batchledger", "demo", name)
    assert failed.returncode == 1, failed.stderr[-3000:]


def account_of(shown: dict[str, str]) -> AirflowAccount:
    return AirflowAccount(shown["url"], shown["user"], Path(shown["password_file"]))


def test_wheel_without_its_data_finds_no_pipeline(tmp_path: Path) -> None:
    """The negative control: this environment has no other place from which the package could get its data."""
    (tmp_path / "sources").mkdir()
    sources = copy_sources(tmp_path / "sources")
    project = sources / "pyproject.toml"
    text = project.read_text()
    assert '"**/*.yaml",' in text
    project.write_text(text.replace('"**/*.yaml",', ""))
    person = prepare(sources, tmp_path)
    refused = person.run("batchledger", "plan", "flights")
    assert refused.returncode == 2
    assert "There is no pipeline 'flights'" in refused.stderr.replace("\n", " ")
