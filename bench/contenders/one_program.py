"""A contender whose orders go to one program."""

from collections.abc import Mapping
from dataclasses import dataclass

from bench.orders import Done, Order
from bench.process import Program


@dataclass(frozen=True)
class OneProgram:
    """See the role. Contenders with more than one program override methods."""

    group: str
    program: Program

    @property
    def root_by_group(self) -> Mapping[str, int]:
        """The program."""
        return {self.group: self.program.process.pid}

    def prepare(self, order: Order) -> None:
        """Prepare nothing."""

    def begin(self, order: Order) -> None:
        """See the role."""
        self.program.begin(order)

    def finish(self) -> Done:
        """See the role."""
        return self.program.finish()

    def kill(self) -> None:
        """See the role."""
        self.program.kill()
