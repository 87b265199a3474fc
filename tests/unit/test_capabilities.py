"""What a target cannot do is refused from the value of its kind, before anything else is asked."""

from collections.abc import Callable

import pytest

from batchledger.lifecycle import plans
from batchledger.lifecycle.decisions import rehearse, rewind
from batchledger.lifecycle.erasing import erase
from batchledger.lifecycle.platform import Platform
from batchledger.model.batch import Decision
from batchledger.model.erasure import ErasureKey
from batchledger.model.errors import DecisionRefusedError
from batchledger.planning.live import StartPolicy
from batchledger.planning.rewind import Rewind
from tests.fakes.foreign_sink import ForeignStore
from tests.fakes.world import ORDERS_0, World, catch_up

BY_ANA = Decision("ana@host", "it was wrong")


@pytest.fixture
def world() -> World:
    """A target that commits by itself, with three records published."""
    world = World(foreign=ForeignStore())
    world.broker.create_topic("orders", 1)
    world.produce(ORDERS_0, 3)
    catch_up(world)
    return world


@pytest.mark.parametrize("look", [rehearse, lambda platform: platform])
def test_rewind_that_cannot_empty_the_target_is_refused_in_its_dry_run_as_well(
    world: World, look: Callable[[Platform], Platform]
) -> None:
    with pytest.raises(DecisionRefusedError, match="cannot be emptied together"):
        rewind(look(world.process()), Rewind(StartPolicy.EARLIEST, truncate=True), BY_ANA)
    assert len(world.sink.read_target()) == 3


def test_erase_into_a_target_that_cannot_is_refused_without_a_wait_for_an_open_batch(world: World) -> None:
    world.produce(ORDERS_0, 1)
    plans.plan(world.process(), "run")
    with pytest.raises(DecisionRefusedError, match="cannot be erased together"):
        erase(world.process(), ErasureKey.parse(["message_id=1"]), BY_ANA)
