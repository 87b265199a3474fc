"""The hand-written peer; see ``programs.hand_written_loop``."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from bench.contenders.contender import Contender, Running, Subject
from bench.contenders.one_program import OneProgram
from bench.process import run_program
from bench.programs.hand_written_loop import OFFSETS
from bench.services import Services


@contextmanager
def start(services: Services) -> Iterator[Running]:
    """Start the process."""
    argv = (sys.executable, "-m", "bench.programs.hand_written_loop")
    with run_program(services, argv, "hand_written_loop") as program:
        yield OneProgram("loop", program)


def describe() -> Contender:
    """The loop."""
    return Contender(Subject("loop", "hand-written loop: confluent-kafka, orjson, COPY"), start)


def describe_offsets_first() -> Contender:
    """The loop, turned round: it commits the offsets, then the rows."""
    return Contender(Subject("loop_offsets_first", "hand-written loop, offsets before rows", {"first": OFFSETS}), start)
