"""What the audit adds to a batch: the integrity suite, what a pipeline file can ask for besides, and a naive suite.

Every round takes the whole topic through the life of a batch, once for each kind of pipeline, into a table of its own.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import psycopg
import yaml
from psycopg import sql
from rich.console import Console

from batchledger import run_batch
from batchledger.batch import Batch
from batchledger.config import read_pipeline_file
from batchledger.plans import plan
from batchledger.wiring import build_platform
from bench.naive_suite import run_naive_suite
from bench.records import SCHEMA, TOPIC
from bench.services import Services

DEDUPE = {"dedupe": {"key": ["message_id"], "remember": "30d"}}
SEQUENCE = {"sequence": {"key": ["device_id"], "number": "seq"}}
CHECKS = {
    "checks": [
        {"type": "expect_column_values_to_not_be_null", "column": "amount"},
        {"type": "expect_column_values_to_be_between", "column": "amount", "min_value": 0},
    ]
}
FILES: Mapping[str, Mapping[str, Any]] = {
    "integrity suite": {},
    "with sequence": SEQUENCE,
    "with dedupe": DEDUPE,
    "with sequence and dedupe": {**SEQUENCE, **DEDUPE},
    "with two checks of the file": CHECKS,
}


@dataclass(frozen=True)
class AuditCost:
    """Seconds of one batch: of everything but the audit, of the audit, and of the naive suite on the same rows."""

    kind: str
    rest: float
    audit: float
    naive: float | None = None


def measure(services: Services, rounds: int, records: int, console: Console) -> Iterator[AuditCost]:
    """Yield the figures of each batch, the kinds in turn, after one that warms everything up."""
    _take(services, "warm_up", "integrity suite", records)
    for number in range(1, rounds + 1):
        for place, kind in enumerate(FILES):
            cost = _take(services, f"r{number}_{place}", kind, records)
            console.print(f"round {number}, {kind}: {cost.rest + cost.audit:.1f} s, {cost.audit:.2f} s of it the audit")
            yield cost


def _take(services: Services, name: str, kind: str, records: int) -> AuditCost:
    file = services.home.pipelines / f"{name}.yaml"
    content = {"name": name, "source": {"topics": [TOPIC], "schema": SCHEMA}, "sink": {"table": name}}
    file.write_text(yaml.safe_dump({**content, "limits": {"max_records": records}, **FILES[kind]}))
    platform = build_platform(read_pipeline_file(file))
    moments = [perf_counter()]
    batch = plan(platform, "bench")
    if batch is None:
        raise RuntimeError(f"topic {TOPIC} holds nothing to take")
    for step in (run_batch.stage, run_batch.audit, run_batch.publish):
        moments.append(perf_counter())
        step(platform, batch.batch_id, "bench")
    moments.append(perf_counter())
    audit = moments[3] - moments[2]
    naive = _time_naive(services, name, batch) if kind == "integrity suite" else None
    with psycopg.connect(services.dsn) as connection:
        connection.execute(sql.SQL("drop table {}").format(sql.Identifier(name)))
        for table in ("message_key", "sequence"):
            forget = sql.SQL("delete from batchledger.{} where pipeline = %s").format(sql.Identifier(table))
            connection.execute(forget, [name])
    return AuditCost(kind, moments[4] - moments[0] - audit, audit, naive)


def _time_naive(services: Services, table: str, batch: Batch) -> float:
    started = perf_counter()
    if not run_naive_suite(services.dsn, table, batch.ranges):
        raise RuntimeError(f"the naive suite did not pass for {table}")
    return perf_counter() - started
