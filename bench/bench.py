"""What every part of the bench is given."""

from collections.abc import Callable
from dataclasses import dataclass

from bench.records import Topic
from bench.services import Services

RECORDS, ROUNDS = 2_000_000, 5
"""Records of a whole run; the goals are for such a run."""

Say = Callable[[str], None]
"""Takes a few words about what was measured, or what comes next."""


@dataclass(frozen=True)
class Bench:
    """The running services, the topic, a smaller one for the warm-up, the number of rounds, and how to report progress.

    ``is_small``: the run only shows that everything works.
    """

    services: Services
    topic: Topic
    warm_up: Topic
    rounds: int
    is_small: bool
    say: Say
