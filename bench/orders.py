"""What the bench orders from a program, and how both talk: one JSON document a line, over a local socket.

A program connects, says that it is ready, and then carries out one order after the other. Addresses and passwords come
from the environment, never from an order.
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
KAFKA_VARIABLE = "BENCH_KAFKA_OPTIONS"
JAVA_KAFKA_VARIABLE = "BENCH_JAVA_KAFKA_OPTIONS"
DSN_VARIABLE = "BENCH_DSN"
CHECKPOINTS_VARIABLE = "BENCH_CHECKPOINTS"
COPY_FILE_VARIABLE = "BENCH_COPY_FILE"
SPARK_SETTINGS_VARIABLE = "BENCH_SPARK_SETTINGS"

CATALOG, NAMESPACE = "lake", "bench"
"""Where the tables of a lake are."""


class Sink(StrEnum):
    """The kind of target, by its name in a pipeline file."""

    POSTGRES = "postgres"
    KAFKA = "kafka"
    ICEBERG = "iceberg"


@dataclass(frozen=True)
class Order:
    """Take a topic into a target until every partition is read up to its end.

    ``target`` names the table or topic, which exists and is empty.
    ``name`` names the pipeline, consumer group or checkpoint: the same name goes on where it stopped.
    ``end_by_partition`` may be ahead of the topic; then the program goes on until it is there.
    """

    name: str
    topic: str
    target: str
    end_by_partition: Mapping[int, int]
    settings: Mapping[str, str] = field(default_factory=dict)
    sink: Sink = Sink.POSTGRES

    @property
    def records(self) -> int:
        """The number of records from the beginning to these ends."""
        return sum(self.end_by_partition.values())

    def to_json(self) -> str:
        """Return the order as one line."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Self:
        """JSON has no numbers as keys."""
        content = json.loads(text)
        ends = {int(partition): end for partition, end in content["end_by_partition"].items()}
        return cls(**content | {"end_by_partition": ends, "sink": Sink(content["sink"])})


@dataclass(frozen=True)
class Done:
    """The time of an order inside of the program, and of its steps if it has any."""

    seconds: float
    seconds_by_step: Mapping[str, float] = field(default_factory=dict)


def serve(carry_out: Callable[[Order], Mapping[str, float]]) -> None:
    """Carry out the order in the environment. Without one, carry out orders until the bench closes the connection."""
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
