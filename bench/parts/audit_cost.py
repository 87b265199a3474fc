"""What the audit adds to a batch: the integrity suite, the checks of a pipeline file, and a naive suite.

Every round runs the whole topic as one batch for each kind of pipeline, into a table of its own.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import psycopg
import yaml
from psycopg import sql

from batchledger.config.pipeline_file import read_pipeline_file
from batchledger.lifecycle import run_batch
from batchledger.lifecycle.plans import plan
from batchledger.model.batch import Batch
from batchledger.wiring import build_platform
from bench.bench import Bench
from bench.figures import Figure, describe
from bench.parts.naive_suite import run_naive_suite
from bench.records import SCHEMA, Topic
from bench.services import Services

PART = "audit"
NAIVE = "a naive suite"

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
    """Seconds of one batch: without the audit, of the audit, and of the naive suite on the same rows."""

    kind: str
    rest: float
    audit: float
    naive: float | None = None


def measure(bench: Bench) -> Iterator[Figure]:
    """Yield the figures of each batch, the kinds in turn, after a warm-up."""
    _take(bench.services, "audit_warm_up", "integrity suite", bench.warm_up)
    for number in range(bench.rounds):
        for place, kind in enumerate(FILES):
            cost = _take(bench.services, f"audit_{number}_{place}", kind, bench.topic)
            whole = f"{cost.rest + cost.audit:.1f} s, {cost.audit:.2f} s of it the audit"
            bench.say(f"round {number + 1} of {bench.rounds}, {kind}: {whole}")
            yield from describe(PART, kind, seconds=cost.audit, share_of_rest=cost.audit / cost.rest)
            if cost.naive is not None:
                yield from describe(PART, NAIVE, seconds=cost.naive, share_of_rest=cost.naive / cost.rest)


def _take(services: Services, name: str, kind: str, topic: Topic) -> AuditCost:
    file = services.home.pipelines / f"{name}.yaml"
    content = {"name": name, "source": {"topics": [topic.name], "schema": SCHEMA}, "sink": {"table": name}}
    file.write_text(yaml.safe_dump({**content, "limits": {"max_records": topic.records}, **FILES[kind]}))
    platform = build_platform(read_pipeline_file(file))
    moments = [perf_counter()]
    batch = plan(platform, "bench")
    if batch is None:
        raise RuntimeError(f"topic {topic.name} holds nothing to take")
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
