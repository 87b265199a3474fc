"""I1 to I9 after every step of arbitrary schedules, in memory and on PostgreSQL."""

from collections import Counter
from functools import cache, partial

import pytest

from batchledger.model.batch import DeliveryMode
from tests.machine.machine import PlatformMachine
from tests.machine.reach import all_to_reach
from tests.machine.schedules import CHOSEN, Choice, choose, play_in_memory, play_on_postgres
from tests.machine.worlds import ForeignWorld, MemoryWorld, PostgresWorld

SCHEDULES_IN_MEMORY = {DeliveryMode.EXACTLY_ONCE: 190, DeliveryMode.AT_LEAST_ONCE: 130, DeliveryMode.AT_MOST_ONCE: 130}
SCHEDULES_ON_POSTGRES = {DeliveryMode.EXACTLY_ONCE: 2, DeliveryMode.AT_LEAST_ONCE: 1, DeliveryMode.AT_MOST_ONCE: 1}
LEAST_OFTEN = 5
WORLDS = (MemoryWorld, ForeignWorld)
IN_MEMORY = [
    pytest.param(
        world,
        delivery,
        marks=() if (world, delivery) == (MemoryWorld, DeliveryMode.EXACTLY_ONCE) else pytest.mark.proof,
    )
    for world in WORLDS
    for delivery in DeliveryMode
]
"""The usual mode into the usual sink is in `make test`. The others take five times as long, so they are the proof's."""


@cache
def play(world: type[MemoryWorld], delivery: DeliveryMode, choice: Choice) -> Counter[str]:
    """Play the schedules of a mode once for all tests, and return what they reached."""
    reached = Counter[str]()
    play_in_memory(world, delivery, choice, SCHEDULES_IN_MEMORY[delivery], reached)
    return reached


@pytest.mark.parametrize(("world", "delivery"), IN_MEMORY)
def test_invariants_hold_in_memory_whatever_happens_in_whatever_order(
    world: type[MemoryWorld], delivery: DeliveryMode
) -> None:
    """S40: expiry and new partitions at random, with everything else."""
    play(world, delivery, CHOSEN)


@pytest.mark.proof
@pytest.mark.parametrize("world", WORLDS)
def test_usual_schedules_reach_every_rule_crash_point_lost_reply_and_batch_state(world: type[MemoryWorld]) -> None:
    """Otherwise the machine could go shallow, and hold its invariants because nothing happens."""
    reached = sum((play(world, delivery, Choice()) for delivery in DeliveryMode), Counter[str]())
    wanted = {
        what
        for delivery in DeliveryMode
        for what in all_to_reach(PlatformMachine, delivery, is_foreign=world.is_foreign)
    }
    few = {what: reached[what] for what in wanted if reached[what] < LEAST_OFTEN}
    assert not few, f"reached less than {LEAST_OFTEN} times: {few}"


@pytest.mark.parametrize("delivery", DeliveryMode)
def test_invariants_hold_on_postgresql_whatever_happens_in_whatever_order(
    warehouse_dsn: str, delivery: DeliveryMode
) -> None:
    play_on_postgres(partial(PostgresWorld, warehouse_dsn), delivery, CHOSEN, SCHEDULES_ON_POSTGRES[delivery])


def test_seed_of_the_environment_chooses_the_schedules() -> None:
    assert choose({}) == Choice()
    assert choose({"BATCHLEDGER_MACHINE_SEED": "7", "BATCHLEDGER_MACHINE_SCHEDULES": "20"}) == Choice(7, 20)
    drawn = choose({"BATCHLEDGER_MACHINE_SEED": "random"})
    assert drawn.seed is not None
    assert choose({"BATCHLEDGER_MACHINE_SEED": str(drawn.seed)}) == drawn
