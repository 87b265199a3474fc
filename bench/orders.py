"""What the bench asks of a program, and how both talk: one JSON document a line, over a socket of this machine.

A program connects, says that it is ready, and then carries out one order after the other. Where the addresses of the
services and the passwords are needed they come from the environment, never from an order.
"""

import json
import os
import socket
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from time import perf_counter
from typing import Any, Self

PORT_VARIABLE = "BENCH_ORDERS_PORT"
ORDER_VARIABLE = "BENCH_ORDER"
KAFKA_VARIABLE = "BENCH_BOOTSTRAP_SERVERS"
DSN_VARIABLE = "BENCH_DSN"
CHECKPOINTS_VARIABLE = "BENCH_CHECKPOINTS"
COPY_FILE_VARIABLE = "BENCH_COPY_FILE"
SPARK_SETTINGS_VARIABLE = "BENCH_SPARK_SETTINGS"

CATALOG, NAMESPACE = "lake", "bench"
"""Where the tables of a lake are."""


class Sink(StrEnum):
    """What the rows go to, by its name in a pipeline file."""

    POSTGRES = "postgres"
    KAFKA = "kafka"
    ICEBERG = "iceberg"


@dataclass(frozen=True)
class Order:
    """Take a topic into a target until every partition is read up to its end.

    ``target`` is the name of the table or topic, which is there already and empty.
    ``name`` is that of the pipeline, consumer group or checkpoint: the same name goes on where it stopped.
    ``end_by_partition`` may lie ahead of what the topic holds so far; then the program goes on until it is there.
    """

    name: str
    topic: str
    target: str
    end_by_partition: Mapping[int, int]
    settings: Mapping[str, str] = field(default_factory=dict)
    sink: Sink = Sink.POSTGRES

    @property
    def records(self) -> int:
        """How many records that are, from the beginning."""
        return sum(self.end_by_partition.values())

    def to_json(self) -> str:
        """In one line."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Self:
        """JSON has no numbers as keys."""
        content = json.loads(text)
        ends = {int(partition): end for partition, end in content["end_by_partition"].items()}
        return cls(**content | {"end_by_partition": ends, "sink": Sink(content["sink"])})


@dataclass(frozen=True)
class Done:
    """How long an order took inside of the program, and its steps, where it has such."""

    seconds: float
    seconds_by_step: Mapping[str, float] = field(default_factory=dict)


def serve(carry_out: Callable[[Order], Mapping[str, float]]) -> None:
    """Carry out the order of the environment, or else orders until the bench closes the connection."""
    if ORDER_VARIABLE in os.environ:
        carry_out(Order.from_json(os.environ[ORDER_VARIABLE]))
        return
    with socket.create_connection(("127.0.0.1", int(os.environ[PORT_VARIABLE]))) as connection:
        lines = connection.makefile("rw", encoding="utf-8")

        def say(document: Mapping[str, Any]) -> None:
            lines.write(json.dumps(document) + "\n")
            lines.flush()

        say({"state": "ready"})
        for line in lines:
            order = Order.from_json(line)
            say({"state": "began"})
            started = perf_counter()
            steps = carry_out(order)
            say({"state": "done", **asdict(Done(perf_counter() - started, dict(steps)))})
