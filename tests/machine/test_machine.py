"""I1 to I9 after every step of arbitrary schedules, in memory and on PostgreSQL. Each run takes the same schedules."""

from functools import partial

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from batchledger.batch import DeliveryMode
from tests.machine.machine import OpenWorld, PlatformMachine
from tests.machine.worlds import MemoryWorld, PostgresWorld


def hold_always(open_world: OpenWorld, delivery: DeliveryMode, schedules: int, steps: int) -> None:
    run_state_machine_as_test(
        lambda: PlatformMachine(open_world, delivery),
        settings=settings(
            max_examples=schedules,
            stateful_step_count=steps,
            derandomize=True,
            database=None,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )


@pytest.mark.parametrize(
    ("delivery", "schedules"),
    [(DeliveryMode.EXACTLY_ONCE, 200), (DeliveryMode.AT_LEAST_ONCE, 75), (DeliveryMode.AT_MOST_ONCE, 75)],
)
def test_invariants_hold_in_memory_whatever_happens_in_whatever_order(delivery: DeliveryMode, schedules: int) -> None:
    """S40: expiry and new partitions at random, with everything else."""
    hold_always(MemoryWorld, delivery, schedules, steps=40)


@pytest.mark.parametrize(
    ("delivery", "schedules"),
    [(DeliveryMode.EXACTLY_ONCE, 10), (DeliveryMode.AT_LEAST_ONCE, 4), (DeliveryMode.AT_MOST_ONCE, 4)],
)
def test_invariants_hold_on_postgresql_whatever_happens_in_whatever_order(
    warehouse_dsn: str, delivery: DeliveryMode, schedules: int
) -> None:
    hold_always(partial(PostgresWorld, warehouse_dsn), delivery, schedules, steps=25)
