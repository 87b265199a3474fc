"""What every part of the bench is given."""

from collections.abc import Callable
from dataclasses import dataclass

from bench.records import Topic
from bench.services import Services

RECORDS, ROUNDS = 2_000_000, 5
"""Of a whole run, to which the goals belong."""

Say = Callable[[str], None]
"""Is told in a few words what was measured, or what comes next."""


@dataclass(frozen=True)
class Bench:
    """The running services, the topic that is read and a smaller one to warm up with, how often, and how to tell.

    ``is_small``: the figures shall show that everything works, and need not be good ones.
    """

    services: Services
    topic: Topic
    warm_up: Topic
    rounds: int
    is_small: bool
    say: Say
