"""Connections that people make in Airflow's page or by its command line: in its own database, here SQLite."""

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
import sqlalchemy
from airflow.models.connection import Connection
from cryptography.fernet import Fernet

from batchledger.jobs import stage_batch
from batchledger.settings import lookup
from tests.forked import COMMAND_SECONDS, _run_main, fork_server

MADE = "made_by_hand"
PASSWORD = "s3cret-of-airflow"  # noqa: S105 -- made up
LOOK = ("batch", "999999999", "--connection")
BARRED = "airflow-db-not-allowed:///"
"""What Airflow puts into the environment of a task, in place of the address of its database."""


@dataclass(frozen=True)
class Airflow:
    """The database of an Airflow, the key of its secrets, and the working folder of a shell."""

    url: str
    key: str
    folder: Path

    def run(self, *arguments: str, **changes: str) -> subprocess.CompletedProcess[str]:
        """Run a command in a shell that has the settings of this Airflow, and no connection of its own."""
        environment = {name: value for name, value in os.environ.items() if not name.startswith("AIRFLOW_CONN_")}
        environment |= {"AIRFLOW__CORE__FERNET_KEY": self.key, "AIRFLOW__SECRETS__BACKEND": "", **changes}
        out, err = self.folder / "out", self.folder / "err"
        process = fork_server().Process(target=_run_in, args=(self.url, arguments, environment, out, err), daemon=True)
        process.start()
        process.join(COMMAND_SECONDS)
        assert process.exitcode is not None
        return subprocess.CompletedProcess(
            arguments, process.exitcode, out.read_text(), " ".join(err.read_text().split())
        )


def _run_in(url: str, arguments: tuple[str, ...], environment: dict[str, str], out: Path, err: Path) -> None:
    """Run a command that imports Airflow with this database: the process that it is forked from has imported it."""
    from airflow import settings

    settings.SQL_ALCHEMY_CONN = url
    settings.configure_orm()
    _run_main(arguments, environment, out, err)


@pytest.fixture
def airflow(tmp_path: Path) -> Airflow:
    """An Airflow in which a person has made a connection, to a closed port. Its database has that one table."""
    key = Fernet.generate_key()
    secret = Fernet(key).encrypt(PASSWORD.encode()).decode()
    fields = {"host": "127.0.0.1", "port": 9, "schema": "warehouse", "login": "etl", "password": secret}
    row = {"conn_id": MADE, "conn_type": "postgres", **fields, "is_encrypted": True, "is_extra_encrypted": False}
    engine = sqlalchemy.create_engine(url := f"sqlite:///{tmp_path}/airflow.db")
    Connection.metadata.create_all(engine, tables=[Connection.__table__])
    with engine.begin() as session:
        # Not by the model, which would encrypt with the key of the process of the tests.
        columns = sqlalchemy.table("connection", *map(sqlalchemy.column, row))
        session.execute(sqlalchemy.insert(columns).values(row))
    engine.dispose()
    return Airflow(url, key.decode(), tmp_path)


@pytest.mark.proof
def test_a_command_finds_the_connection_that_a_person_made_in_airflow(airflow: Airflow) -> None:
    shown = airflow.run(*LOOK, MADE)
    assert 'connection to server at "127.0.0.1", port 9 failed: Connection refused' in shown.stderr


def test_a_connection_that_is_nowhere_names_each_place_and_the_command_that_makes_it(airflow: Airflow) -> None:
    shown = airflow.run(*LOOK, "made_by_hands")
    assert shown.returncode == 2
    assert "Airflow knows no connection 'made_by_hands'" in shown.stderr
    places = f"the environment (AIRFLOW_CONN_MADE_BY_HANDS); Airflow's database ({airflow.url})."
    assert f"Airflow looked in {places}" in shown.stderr
    assert f"Did you mean '{MADE}'?" in shown.stderr
    assert (
        """airflow connections add made_by_hands --conn-json '{"conn_type": "postgres", "host": "HOST","""
        in shown.stderr
    )
    assert PASSWORD not in shown.stderr


def test_a_command_without_the_key_of_airflow_says_so_and_not_that_the_connection_is_missing(airflow: Airflow) -> None:
    other = Fernet.generate_key().decode()
    shown = airflow.run(*LOOK, MADE, AIRFLOW__CORE__FERNET_KEY=other)
    assert shown.returncode == 2
    assert f"has a connection '{MADE}', and this process cannot decrypt it" in shown.stderr
    assert "AIRFLOW__CORE__FERNET_KEY" in shown.stderr


def test_a_database_that_cannot_be_read_is_named_with_the_class_of_the_error(airflow: Airflow) -> None:
    elsewhere = Airflow(f"sqlite:///{airflow.folder}/none/airflow.db", airflow.key, airflow.folder)
    shown = elsewhere.run(*LOOK, MADE)
    assert shown.returncode == 2
    assert "which could not be read: OperationalError" in shown.stderr


def test_a_command_that_a_task_has_started_does_not_look_into_the_database(airflow: Airflow) -> None:
    """The negative control: the same shell, and what Airflow's supervisor puts into the environment of a task."""
    shown = airflow.run(*LOOK, MADE, AIRFLOW__DATABASE__SQL_ALCHEMY_CONN=BARRED)
    assert shown.returncode == 2
    assert f"Airflow looked in the environment (AIRFLOW_CONN_{MADE.upper()}). " in shown.stderr


@pytest.mark.parametrize("is_job", [False, True], ids=["command", "job of spark-submit"])
def test_a_program_that_a_task_has_started_can_import_airflow(is_job: bool, tmp_path: Path) -> None:
    """Airflow puts an address into its environment at which the import of Airflow fails."""
    job = (str(stage_batch.__file__), "--pipeline", "flights", "--batch", "1", "--run", "r")
    program = job if is_job else ("-c", "from batchledger.cli import main; main()", "batch", "1")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("AIRFLOW")}
    environment |= {"AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": BARRED, "AIRFLOW_HOME": str(tmp_path)}
    environment |= {"BATCHLEDGER_LOCAL": str(tmp_path / "local"), "HOME": str(tmp_path)}
    environment.pop("BATCHLEDGER_PIPELINES")
    done = subprocess.run(
        [sys.executable, *program],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 2, done.stderr
    assert "Airflow knows no connection" in done.stderr


def test_the_address_of_airflows_database_has_no_login_and_no_query() -> None:
    url = sqlalchemy.make_url(f"postgresql+psycopg2://etl:{PASSWORD}@db.internal:5433/airflow?passfile=/etc/secret")
    assert lookup._address(url) == "postgresql://db.internal:5433/airflow"
