"""The role of a contender: something that takes a topic into a target."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import Protocol, Self

from bench.orders import Done, Order, Sink
from bench.services import Services


class Running(Protocol):
    """A contender that is started and warm enough to take orders."""

    @property
    def root_by_group(self) -> Mapping[str, int]:
        """The first process of each group that works for this contender only, at least now."""

    def prepare(self, order: Order) -> None:
        """Do what a long-lived process does once, before its work: files, registrations."""

    def begin(self, order: Order) -> None:
        """Begin a prepared order. Raises ProgramEndedError."""

    def finish(self) -> Done:
        """Wait until the order is carried out. Raises ProgramEndedError."""

    def kill(self) -> None:
        """Send SIGKILL to the processes that write."""


@dataclass(frozen=True)
class Subject:
    """What is measured, where it writes to, and the settings of its orders.

    If a limit only reads, ``writes`` is None.
    """

    name: str
    title: str
    settings: Mapping[str, str] = field(default_factory=dict)
    writes: bool = True
    sink: Sink = Sink.POSTGRES


@dataclass(frozen=True)
class Contender:
    """A subject that ``start`` runs for the length of a block."""

    subject: Subject
    start: Callable[[Services], AbstractContextManager[Running]]

    def with_settings(self, more: Mapping[str, str]) -> Self:
        """Return the contender with more settings of its orders."""
        return replace(self, subject=replace(self.subject, settings={**self.subject.settings, **more}))
