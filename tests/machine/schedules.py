"""How many schedules are played, and which: the same ones in each run, or other ones when the environment says so.

``BATCHLEDGER_MACHINE_SEED`` is ``random`` or a number that an earlier run has printed. How many schedules each delivery
mode takes in memory is ``BATCHLEDGER_MACHINE_SCHEDULES``; on PostgreSQL it is a fiftieth of that, and at least one.
"""

import os
import secrets
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import hypothesis
from hypothesis import HealthCheck
from hypothesis.stateful import run_state_machine_as_test

from batchledger.model.batch import DeliveryMode
from tests.machine.actions import OpenWorld
from tests.machine.machine import PlatformMachine

SEED = "BATCHLEDGER_MACHINE_SEED"
SCHEDULES = "BATCHLEDGER_MACHINE_SCHEDULES"

_POSTGRES_SHARE = 50


@dataclass(frozen=True)
class Choice:
    """Which schedules are played: without ``seed`` the same in each run, without ``count`` as many as a test says."""

    seed: int | None = None
    count: int | None = None

    def __str__(self) -> str:
        if self.seed is None:
            return "the same schedules in each run"
        return f"{SEED}={self.seed}" + (f" {SCHEDULES}={self.count}" if self.count else "")


def choose(environment: Mapping[str, str]) -> Choice:
    """Read the two variables. Raises ValueError when one is no number."""
    seed, count = environment.get(SEED), environment.get(SCHEDULES)
    drawn = secrets.randbelow(2**32) if seed == "random" else int(seed) if seed else None
    return Choice(drawn, int(count) if count else None)


CHOSEN = choose(os.environ)


def play_in_memory(
    open_world: OpenWorld, delivery: DeliveryMode, choice: Choice, schedules: int, reached: Counter[str]
) -> None:
    """Play the chosen schedules, ``schedules`` by default, of 40 steps; add what they reach to ``reached``."""
    _play(lambda: PlatformMachine(open_world, delivery, reached), choice, choice.count or schedules, steps=40)


def play_on_postgres(open_world: OpenWorld, delivery: DeliveryMode, choice: Choice, schedules: int) -> None:
    """Play the chosen schedules, ``schedules`` by default, of 20 steps."""
    count = max(1, choice.count // _POSTGRES_SHARE) if choice.count else schedules
    _play(lambda: PlatformMachine(open_world, delivery), choice, count, steps=20)


def _play(open_machine: Callable[[], PlatformMachine], choice: Choice, schedules: int, steps: int) -> None:
    if choice.seed is not None:
        hypothesis.seed(choice.seed)(open_machine)
    run_state_machine_as_test(
        open_machine,
        settings=hypothesis.settings(
            max_examples=schedules,
            stateful_step_count=steps,
            derandomize=choice.seed is None,
            database=None,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
