"""Every crash point of every delivery mode, one after the other: what the random schedules reach only by chance."""

from collections.abc import Callable
from functools import partial

import pytest

from batchledger.batch import DeliveryMode
from tests.fakes.crash import crash_points
from tests.machine.actions import Actions, OpenWorld
from tests.machine.machine import PlatformMachine
from tests.machine.model import Kind
from tests.machine.processes import Process
from tests.machine.reach import crash_at
from tests.machine.worlds import MemoryWorld, PostgresWorld

EVERY_CRASH = pytest.mark.parametrize(
    ("delivery", "point"), [(delivery, point) for delivery in DeliveryMode for point in crash_points(delivery)]
)


def retry_step(machine: Actions, crashed: Process) -> Process:
    return machine.relaunch(crashed)


def start_another_run(machine: Actions, crashed: Process) -> Process:
    return machine.launch("run")


RECOVERIES: list[Callable[[Actions, Process], Process]] = [retry_step, start_another_run]


def crash_and_recover(open_world: OpenWorld, delivery: DeliveryMode, point: str) -> None:
    """Crash twice at the point, recover once by each way, and look at the invariants in between and at the end."""
    machine = PlatformMachine(open_world, delivery)
    try:
        machine.open(origins=[1], limit=10, published=1)
        for recover in RECOVERIES:
            machine.write(0, Kind.UNDECODABLE, 1)
            crashed = machine.launch("run")
            machine.crash_at(crashed, point)
            machine.all_invariants_hold()
            machine.let(recover(machine, crashed))
            machine.all_invariants_hold()
        assert machine.reached[crash_at(point)] == len(RECOVERIES)
    finally:
        machine.teardown()


@EVERY_CRASH
def test_invariants_hold_in_memory_after_a_crash_at(delivery: DeliveryMode, point: str) -> None:
    crash_and_recover(MemoryWorld, delivery, point)


@EVERY_CRASH
def test_invariants_hold_on_postgresql_after_a_crash_at(warehouse_dsn: str, delivery: DeliveryMode, point: str) -> None:
    crash_and_recover(partial(PostgresWorld, warehouse_dsn), delivery, point)
