"""I1 to I9 after every step of arbitrary schedules, in memory and on a real PostgreSQL. The schedules are always the same."""

from functools import partial

from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from batchledger.batch import DeliveryMode
from tests.machine.machine import OpenWorld, PlatformMachine
from tests.machine.worlds import MemoryWorld, PostgresWorld

# The strongest promise gets half of the schedules.
DELIVERIES = (DeliveryMode.EXACTLY_ONCE, *DeliveryMode)


def hold_always(open_world: OpenWorld, examples: int, steps: int) -> None:
    run_state_machine_as_test(
        lambda: PlatformMachine(open_world, DELIVERIES),
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            derandomize=True,
            database=None,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )


def test_invariants_hold_in_memory_whatever_happens_in_whatever_order() -> None:
    hold_always(MemoryWorld, examples=200, steps=40)


def test_invariants_hold_on_postgresql_whatever_happens_in_whatever_order(warehouse_dsn: str) -> None:
    hold_always(partial(PostgresWorld, warehouse_dsn), examples=25, steps=25)
