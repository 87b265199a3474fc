"""Batchledger: a warm process that runs batches, with the Spark Connect server that reads for it."""

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import yaml
from typing_extensions import override

from batchledger.local.stack.processes import ServiceRecord
from bench.contenders.contender import Contender, Running, Subject
from bench.contenders.one_program import OneProgram
from bench.orders import NAMESPACE, Order, Sink
from bench.process import run_program
from bench.records import KEY, SCHEMA
from bench.services import Services
from bench.targets.table import drop_table

SOURCE_KEYS = ("schema", "format", "registry")
"""The keys of a pipeline's source that an order may set."""


@dataclass(frozen=True)
class Batchledger(OneProgram):
    """See the role. An order's settings are ``delivery``, ``max_records``, and perhaps keys of the source.

    A kill ends our own process; its job goes on in Spark's server, as in real life.
    """

    services: Services

    @property
    @override
    def root_by_group(self) -> Mapping[str, int]:
        """Our own process, and Spark's server with its Python workers."""
        return {**super().root_by_group, "spark": service_pid(self.services, "spark")}

    @override
    def prepare(self, order: Order) -> None:
        """Write the pipeline file. A table of other columns than everybody's is left to Batchledger to create."""
        if "schema" in order.settings:
            drop_table(self.services.dsn, order.target)
        write_pipeline(self.services, order)


def write_pipeline(services: Services, order: Order, **more: object) -> Path:
    """Write the pipeline file of an order, with the keys that differ from the defaults only, and ``more`` keys."""
    content = {
        "name": order.name,
        "source": {
            "topics": [order.topic],
            "schema": SCHEMA,
            **{key: order.settings[key] for key in SOURCE_KEYS if key in order.settings},
        },
        "sink": {"type": str(order.sink), **_section(order)},
        "delivery": order.settings["delivery"],
        "limits": {"max_records": int(order.settings["max_records"])},
        **more,
    }
    path = services.home.pipelines / f"{order.name}.yaml"
    path.write_text(yaml.safe_dump(content))
    return path


def _section(order: Order) -> Mapping[str, object]:
    match order.sink:
        case Sink.POSTGRES:
            return {"table": order.target}
        case Sink.KAFKA:
            return {"topic": order.target, "key": [KEY]}
        case Sink.ICEBERG:
            return {"table": f"{NAMESPACE}.{order.target}"}


def service_pid(services: Services, name: str) -> int:
    """The first process of a service of the stack."""
    record = ServiceRecord.read(services.home, name)
    if record is None:
        raise RuntimeError(f"{name} does not run")
    return record.pid


@contextmanager
def start(services: Services) -> Iterator[Running]:
    """Start the process; the server runs already."""
    argv = (sys.executable, "-m", "bench.programs.run_batches")
    with run_program(services, argv, "run_batches") as program:
        yield Batchledger("batchledger", program, services)


def describe(delivery: str, max_records: int) -> Contender:
    """Batchledger in one of its delivery modes."""
    settings = {"delivery": delivery, "max_records": str(max_records)}
    return Contender(Subject(delivery, f"Batchledger, {delivery}, with audit", settings), start)


def describe_into(sink: Sink, max_records: int) -> Contender:
    """Batchledger in its default mode, into any sink."""
    settings = {"delivery": "exactly_once", "max_records": str(max_records)}
    title = f"Batchledger into {sink.title()}, with audit"
    return Contender(Subject(f"into_{sink}", title, settings, sink=sink), start)
