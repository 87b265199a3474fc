"""Every crash point of every delivery mode, one after the other: what the random schedules reach only by chance."""

from collections.abc import Callable
from functools import partial
from itertools import cycle

import pytest

from batchledger.batch import DeliveryMode, Lane
from tests.fakes.crash import crash_points
from tests.machine.actions import Actions, OpenWorld
from tests.machine.machine import PlatformMachine
from tests.machine.model import Kind
from tests.machine.processes import Process
from tests.machine.reach import crash_at
from tests.machine.worlds import MemoryWorld, PostgresWorld

Recovery = Callable[[Actions, Process], Process]


def retry_the_step(machine: Actions, crashed: Process) -> Process:
    return machine.relaunch(crashed)


def start_another_run(machine: Actions, crashed: Process) -> Process:
    return machine.launch()


RECOVERIES: tuple[Recovery, ...] = (retry_the_step, start_another_run)


def crash_and_recover(open_world: OpenWorld, delivery: DeliveryMode, crashes: list[tuple[str, Recovery]]) -> None:
    """Let one run after the other die at a point and be recovered; the invariants hold all the time and at the end."""
    machine = PlatformMachine(open_world, delivery)
    try:
        machine.open(gone=[1], old=2, limit=10, published=1)
        for point, recover in crashes:
            machine.write(0, Kind.GOOD, 2)
            machine.write(0, Kind.UNDECODABLE, 1)
            crashed = machine.launch()
            machine.crash_at(crashed, point)
            assert machine.reached[crash_at(Lane.LIVE, point)] > 0, f"{crashed} did not die at {point}: {crashed.error!r}"
            machine.all_invariants_hold()
            machine.let(recover(machine, crashed))
            machine.all_invariants_hold()
    finally:
        machine.teardown()


@pytest.mark.parametrize("recover", RECOVERIES)
@pytest.mark.parametrize(
    ("delivery", "point"), [(delivery, point) for delivery in DeliveryMode for point in crash_points(delivery)]
)
def test_invariants_hold_in_memory_after_a_crash_at(delivery: DeliveryMode, point: str, recover: Recovery) -> None:
    """Twice, so that the second crash meets what the first one has left."""
    crash_and_recover(MemoryWorld, delivery, [(point, recover)] * 2)


@pytest.mark.parametrize("delivery", DeliveryMode)
def test_invariants_hold_on_postgresql_after_a_crash_at_one_point_after_the_other(
    warehouse_dsn: str, delivery: DeliveryMode
) -> None:
    crashes = list(zip(crash_points(delivery), cycle(RECOVERIES), strict=False))
    crash_and_recover(partial(PostgresWorld, warehouse_dsn), delivery, crashes)
