"""What commands that look may import for a pipeline of JSON into a table. An import costs CPU in every command."""

import json
import os
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

import pytest

from tests.conftest import ROOT, Kafka
from tests.house import MEASURED_VARIABLE
from tests.support import Workplace
from tests.watched import WatchedTopic, write_watch_file

PROGRAM = """
import json, os, sys
from batchledger.cli import main
try:
    main()
finally:
    with open({told!r}, "w") as told:
        packages = sorted({{each.partition(".")[0] for each in sys.modules}})
        json.dump({{"packages": packages, "cpu_seconds": sum(os.times()[:2])}}, told)
"""
COMMAND_LINE = {"annotated_doc", "batchledger", "rich", "shellingham", "typer", "typing_extensions"}
HELP = {"attr", "linkify_it", "markdown_it", "mdurl", "pygments"}
"""What typer shows a list with."""
PIPELINE_FILE = {"annotated_types", "pydantic", "pydantic_core", "typing_inspection", "yaml"}
LEDGER, KAFKA, SERVICES_HERE = (
    {"cython_runtime", "psycopg", "psycopg_binary"},
    {"confluent_kafka", "msgspec", "tenacity"},
    {"psutil"},
)
ROWS = {"google", "numpy", "pgpq", "pyarrow"}
"""The table, and the columns that are compared with it."""
LOOK = COMMAND_LINE | PIPELINE_FILE | LEDGER
NEVER = {"airflow", "great_expectations", "matplotlib", "pandas", "pyiceberg", "pyspark", "sqlalchemy"}


@dataclass(frozen=True)
class Taken:
    """What a command has taken: packages outside of Python, and CPU."""

    packages: list[str]
    cpu_seconds: float


def run(folder: Path, *arguments: str) -> Taken:
    """Run a command in a new interpreter. It has to succeed."""
    told = folder / "loaded.json"
    command = [sys.executable, "-c", PROGRAM.format(told=str(told)), *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(told.read_text())
    packages = [each for each in found["packages"] if each not in sys.stdlib_module_names and each[0] != "_"]
    return Taken(packages, found["cpu_seconds"])


def test_commands_that_look_import_only_what_a_pipeline_of_json_into_a_table_needs(
    workplace: Workplace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = workplace.create()
    pipeline.send(4)
    # Where none of the local services runs: another test of this worker may have started a registry.
    monkeypatch.setenv("BATCHLEDGER_LOCAL", str(tmp_path))
    monkeypatch.setenv("BATCHLEDGER_PIPELINES", str(pipeline.path.parent))
    allowed_by_command = {
        ("--help",): COMMAND_LINE | HELP,
        # The time of an unread record is looked up in an array.
        ("status", "--json"): LOOK | KAFKA | SERVICES_HERE | {"numpy"},
        ("connections", "--json"): LOOK,
        ("batches", pipeline.name, "--json"): LOOK | KAFKA,
        ("verify", pipeline.name, "--json"): LOOK | KAFKA | ROWS,
        ("plan", pipeline.name, "--json"): LOOK | KAFKA | ROWS,
    }
    taken = {command: run(tmp_path, *command) for command in allowed_by_command}
    assert {command: {*taken[command].packages} - allowed for command, allowed in allowed_by_command.items()} == {
        command: set() for command in taken
    }
    assert not NEVER & set.union(*allowed_by_command.values())
    if path := os.environ.get(MEASURED_VARIABLE):
        # The file cache is warm by now; what else the machine does only adds to what a command takes.
        again = {command[0]: [run(tmp_path, *command) for _ in range(3)] for command in taken}
        least = {name: min(each, key=lambda one: one.cpu_seconds) for name, each in again.items()}
        Path(path).write_text(json.dumps({name: asdict(each) for name, each in least.items()}))


def test_status_reads_looks_of_watches_without_arrays(
    kafka: Kafka, warehouse_dsn: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A look itself counts in arrays."""
    shop = WatchedTopic(kafka.options, warehouse_dsn)
    shop.look()
    write_watch_file(tmp_path, shop)
    monkeypatch.setenv("BATCHLEDGER_LOCAL", str(tmp_path))
    monkeypatch.setenv("BATCHLEDGER_PIPELINES", str(tmp_path))
    assert set(run(tmp_path, "status", "--json").packages) <= LOOK | KAFKA | SERVICES_HERE
    assert "numpy" in sys.modules
