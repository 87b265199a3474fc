"""The time of the pages in Airflow over a thousand pipelines, and of the work beside them."""

import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import psycopg
from psycopg.conninfo import make_conninfo

from batchledger.ledger.migrate import migrate
from batchledger.local.stack.defaults import DATABASE_USER
from batchledger.local.stack.home import Credentials
from batchledger.local.stack.machine import HOST
from batchledger.local.stack.postgres_server import public_dsn
from bench.bench import Bench
from bench.contenders.batchledger import service_pid
from bench.figures import Figure, describe
from bench.many_pipelines import (
    CONNECTION,
    LONG,
    ManyPipelines,
    delete_topics,
    list_pages,
    seed_ledger,
    write_files,
    write_topics,
)
from bench.process import kill_group, spawn
from bench.programs.read_pages import ANSWERS_VARIABLE, PAGES_VARIABLE

PART = "pages"
LEDGER, AIRFLOW = "pages", "pages_airflow"
MANY = ManyPipelines(
    ordinary=998, batches=100, partitions=10, long_batches=1_000_000, wide_partitions=1_000, wide_batches=20
)
FEW = ManyPipelines(ordinary=18, batches=10, partitions=10, long_batches=2_000, wide_partitions=100, wide_batches=5)
SLOWEST, LOOK, HISTORY = "slowest", "a look at all pipelines", "reading the long history"
MOMENTS = ("cold", "warm", "busy")
PROGRAM_SECONDS = 3600.0
LOG_CHARACTERS = 2_000


def measure(bench: Bench) -> Iterator[Figure]:
    """Yield the seconds of every page in every round, and of the work beside them, in databases of their own."""
    many = FEW if bench.is_small else MANY
    folder = bench.services.home.local / PART
    (folder / "pipelines").mkdir(parents=True)
    write_files(folder / "pipelines", many)
    dsn = make_conninfo(bench.services.dsn, dbname=LEDGER)
    with _databases(bench):
        migrate(dsn)
        write_topics(bench.services.kafka_options, many)
        bench.say(f"{many}: topics written")
        try:
            seed_ledger(make_conninfo(bench.services.superuser_dsn, dbname=LEDGER), bench.services.kafka_options, many)
            bench.say("ledger seeded")
            pages = {each.subject: each.path for each in list_pages(dsn, many)}
            yield from _describe(bench, _read_pages(bench, pages, many))
        finally:
            delete_topics(bench.services.kafka_options, many)


def _read_pages(bench: Bench, path_by_subject: Mapping[str, str], many: ManyPipelines) -> dict[str, Any]:
    """Run a program that asks for the pages; return its answers. Raises RuntimeError with its last words."""
    services = bench.services
    folder, log_file = services.home.local / PART, services.home.log_file(PART)
    asked = {
        "path_by_subject": path_by_subject,
        "rounds": bench.rounds,
        "long_pipeline": LONG,
        "dag_ids": [each.pipeline for each in many.histories],
        "root_by_group": {name: service_pid(services, name) for name in ("kafka", "postgres")},
    }
    (folder / "asked.json").write_text(json.dumps(asked))
    environment = {
        PAGES_VARIABLE: str(folder / "asked.json"),
        ANSWERS_VARIABLE: str(folder / "answers.json"),
        "BATCHLEDGER_PIPELINES": str(folder / "pipelines"),
        f"AIRFLOW_CONN_{CONNECTION.upper()}": json.dumps(
            {
                "conn_type": "postgres",
                "host": HOST,
                "port": services.ports.postgres,
                "login": DATABASE_USER,
                "password": Credentials.of(services.home).database_password,
                "schema": LEDGER,
            }
        ),
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": public_dsn(
            services.home, services.ports, AIRFLOW, "postgresql+psycopg2"
        ),
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN_ASYNC": public_dsn(
            services.home, services.ports, AIRFLOW, "postgresql+asyncpg"
        ),
    }
    with log_file.open("ab") as log:
        process = spawn(services, (sys.executable, "-m", "bench.programs.read_pages"), log, **environment)
        try:
            code = process.wait(PROGRAM_SECONDS)
        finally:
            kill_group(process)
    if code != 0:
        # The folder of the services is emptied at the end.
        raise RuntimeError(f"the pages could not be read: {log_file.read_text()[-LOG_CHARACTERS:]}")
    answers: dict[str, Any] = json.loads((folder / "answers.json").read_text())
    return answers


def _describe(bench: Bench, answers: Mapping[str, Any]) -> Iterator[Figure]:
    """Yield the figures of all rounds, and in each the slowest page."""
    for subject, seconds_by_moment in answers["seconds_by_page"].items():
        for moment, values in seconds_by_moment.items():
            yield Figure(PART, subject, f"{moment}_seconds", tuple(values))
        told = ", ".join(f"{moment} {1000 * max(values):.0f} ms" for moment, values in seconds_by_moment.items())
        bench.say(f"{subject}: at most {told}")
    taken = [each[moment] for each in answers["seconds_by_page"].values() for moment in MOMENTS]
    yield Figure(PART, SLOWEST, "seconds", tuple(map(max, zip(*taken, strict=True))))
    for subject, found in ((LOOK, answers["looks"]), (HISTORY, answers["history"])):
        for measure, values in found.items():
            yield Figure(PART, subject, measure, tuple(values))
    yield from describe(PART, "application", start_seconds=answers["start_seconds"])


@contextmanager
def _databases(bench: Bench) -> Iterator[None]:
    """Lend a database for the ledger and one for Airflow."""
    with psycopg.connect(bench.services.superuser_dsn, autocommit=True) as connection:
        for database in (LEDGER, AIRFLOW):
            connection.execute(f"create database {database} owner {DATABASE_USER}")
        try:
            yield
        finally:
            for database in (LEDGER, AIRFLOW):
                connection.execute(f"drop database {database} with (force)")
