"""The limits of the machine; see ``programs.limits``. All run in one process, so that the values lie in memory once."""

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from typing_extensions import override

from bench.contenders.contender import Running, Subject
from bench.contenders.one_program import OneProgram
from bench.orders import COPY_FILE_VARIABLE, Order
from bench.process import run_program
from bench.services import Services

TITLE_BY_WORK: Mapping[str, str] = {
    "consume": "limit: librdkafka's consumer alone",
    "parse_with_orjson": "limit: orjson alone, values in memory",
    "parse_with_arrow": "limit: pyarrow.json alone, values in memory",
    "copy": "limit: COPY of a prepared file",
}


@dataclass(frozen=True)
class Limit(OneProgram):
    """See the role."""

    @override
    def prepare(self, order: Order) -> None:
        """Load the values into memory for the limits that only parse them."""
        if order.settings["work"].startswith("parse"):
            self.program.carry_out(replace(order, settings={"work": "load"}))


@contextmanager
def start(services: Services, copy_file: Path) -> Iterator[Running]:
    """Start the process that carries out all limits."""
    argv = (sys.executable, "-m", "bench.programs.limits")
    with run_program(services, argv, "limits", **{COPY_FILE_VARIABLE: str(copy_file)}) as program:
        yield Limit("limits", program)


def describe() -> list[Subject]:
    """The limits."""
    return [Subject(work, title, {"work": work}, writes=work == "copy") for work, title in TITLE_BY_WORK.items()]
