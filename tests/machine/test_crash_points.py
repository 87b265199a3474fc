"""Every crash point of every mode, one after the other, on PostgreSQL: few schedules are played there.

In memory the floor under the schedules (``reach.py``) says that each point was hit.
"""

from collections.abc import Callable, Sequence
from functools import partial
from itertools import cycle

import pytest

from batchledger.model.batch import DeliveryMode
from tests.fakes.crash import (
    BEFORE_PUBLISHING,
    crash_points,
    replay_crash_points,
)
from tests.machine.actions import Actions, OpenWorld
from tests.machine.machine import PlatformMachine
from tests.machine.model import Kind
from tests.machine.processes import Process
from tests.machine.reach import crash_at
from tests.machine.releases import CHANGED
from tests.machine.worlds import PostgresWorld

Life = Callable[[Actions], Process]
Recovery = Callable[[Actions, Process, Life], Process]
Crash = tuple[str, Life, Recovery]


def publish_what_is_new(machine: Actions) -> Process:
    return machine.launch()


def publish_again(machine: Actions) -> Process:
    """From before the origin up to the end, by a release that decodes other records, and not everything in between."""
    return machine.launch_replay([(0, 1, 6), (0, 10, machine.model.end(0))], CHANGED)


def take_over_from_a_replay(machine: Actions) -> Process:
    """A live batch whose offsets a replay has published ahead of it: one commit in every mode."""
    machine.let(publish_again(machine))
    return machine.launch()


def retry_the_step(machine: Actions, crashed: Process, life: Life) -> Process:
    return machine.relaunch(crashed)


def start_another_run(machine: Actions, crashed: Process, life: Life) -> Process:
    return life(machine)


LIVES: tuple[Life, ...] = (publish_again, take_over_from_a_replay)
RECOVERIES: tuple[Recovery, ...] = (retry_the_step, start_another_run)


def crash_and_recover(open_world: OpenWorld, delivery: DeliveryMode, crashes: Sequence[Crash]) -> None:
    """Let one run after the other die at a point and be recovered; the invariants hold all the time and at the end."""
    machine = PlatformMachine(open_world, delivery)
    try:
        machine.open(gone=[1], old=2, limit=10, published=1)
        for point, life, recover in crashes:
            machine.write(0, Kind.GOOD, 2)
            machine.write(0, Kind.UNDECODABLE, 1)
            crashed = life(machine)
            machine.crash_at(crashed, point)
            assert machine.reached[crash_at(crashed.lane, point)] > 0, (
                f"{crashed} did not die at {point}: {crashed.error!r}"
            )
            machine.all_invariants_hold()
            machine.let(recover(machine, crashed, life))
            machine.all_invariants_hold()
    finally:
        machine.teardown()


@pytest.mark.parametrize("delivery", DeliveryMode)
def test_invariants_hold_on_postgresql_after_a_crash_at_one_point_after_the_other(
    warehouse_dsn: str, delivery: DeliveryMode
) -> None:
    crashes = list(zip(crash_points(delivery), cycle([publish_what_is_new]), cycle(RECOVERIES), strict=False))
    crash_and_recover(partial(PostgresWorld, warehouse_dsn), delivery, crashes)


def test_i8_holds_on_postgresql_after_a_crash_at_one_point_after_the_other(warehouse_dsn: str) -> None:
    """Before its publication a replay does what every batch does."""
    points = [each for each in replay_crash_points() if each not in BEFORE_PUBLISHING]
    recoveries = cycle(recover for recover in RECOVERIES for _ in LIVES)
    crashes = list(zip(points, cycle(LIVES), recoveries, strict=False))
    crash_and_recover(partial(PostgresWorld, warehouse_dsn), DeliveryMode.AT_LEAST_ONCE, crashes)
