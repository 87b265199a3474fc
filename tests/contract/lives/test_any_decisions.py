"""Any sequence of runs, replays and decisions where rows have keys: few examples, as each has hundreds of commits.

``make machine`` plays a quarter as many of each as it plays schedules of a mode in memory.
"""

from collections.abc import Callable
from datetime import timedelta
from functools import partial

import pytest
from hypothesis import Phase, seed, settings
from hypothesis.stateful import run_state_machine_as_test

from batchledger.model.batch import DeliveryMode
from batchledger.model.records.rules import Deduplication, Upsert
from batchledger.planning.live import Limits
from tests.contract.lives.world import StoredWorld
from tests.machine.schedules import CHOSEN
from tests.unit.test_any_decisions import Decisions

BY_ID = Deduplication(("message_id",), timedelta(days=9999))
LIMITS = Limits(max_records=5)
WORLDS: dict[str, Callable[[], StoredWorld]] = {
    "upsert": partial(StoredWorld, limits=LIMITS, upsert=Upsert(("message_id",))),
    "dedupe": partial(StoredWorld, limits=LIMITS, deduplication=BY_ID),
    "at_least_once, dedupe": partial(
        StoredWorld, limits=LIMITS, deduplication=BY_ID, delivery=DeliveryMode.AT_LEAST_ONCE
    ),
}


@pytest.mark.parametrize("rules", WORLDS)
def test_any_sequence_of_decisions_with_keys_keeps_the_invariants_and_ends_in_the_table_of_the_topic(
    rules: str,
) -> None:
    members = {"make_world": staticmethod(WORLDS[rules]), "drops_duplicates": "dedupe" in rules}
    machine = type("OfThisWorld", (Decisions,), members)
    if CHOSEN.seed is not None:
        seed(CHOSEN.seed)(machine)
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=max(3, (CHOSEN.count or 0) // 4),
            stateful_step_count=12,
            deadline=None,
            derandomize=CHOSEN.seed is None,
            database=None,
            phases=[Phase.generate],
        ),
    )
