"""Which batches stream into their table, and which are staged first."""

from dataclasses import replace
from typing import Any

import pytest

from batchledger.lifecycle.streaming import MOST_ATTEMPTS, MOST_GIVEN_UP, MOST_RANGES, find_reason_to_stage
from batchledger.model.batch import DeliveryMode, Lane, RecordOrigin
from batchledger.model.offsets import OffsetRange, TopicPartition
from batchledger.model.records.rules import SinkMode
from batchledger.planning.live import Plan
from tests.fakes.world import World

RANGE = OffsetRange(TopicPartition("orders", 0), 0, 10)
LIVE = Plan((RANGE,), 0)
STAGED: list[tuple[Plan, dict[str, Any], str]] = [
    (replace(LIVE, lane=Lane.REPLAY), {}, "it is a replay"),
    (replace(LIVE, origin=RecordOrigin.QUARANTINE), {}, "it is a replay"),
    (replace(LIVE, delivery=DeliveryMode.AT_LEAST_ONCE), {}, "at_least_once has two commits"),
    (replace(LIVE, delivery=DeliveryMode.AT_MOST_ONCE), {}, "at_most_once has two commits"),
    (replace(LIVE, ranges=(RANGE,) * (MOST_RANGES + 1)), {}, "it has more than 100 ranges"),
    (LIVE, {"number": MOST_ATTEMPTS + 1}, "2 attempts have failed"),
    (LIVE, {"given_up": MOST_GIVEN_UP}, "batches before it gave up their streams"),
]


@pytest.mark.parametrize(("plan", "facts", "reason"), STAGED, ids=[each[2] for each in STAGED])
def test_batch_is_staged_for_a_reason_that_people_read(plan: Plan, facts: dict[str, Any], reason: str) -> None:
    assert find_reason_to_stage(World().process().rules, plan, **facts) == reason


def test_batch_streams_up_to_each_bound() -> None:
    most: dict[str, Any] = {"number": MOST_ATTEMPTS, "given_up": MOST_GIVEN_UP - 1}
    plan = replace(LIVE, ranges=(RANGE,) * MOST_RANGES)
    assert find_reason_to_stage(World().process().rules, plan, **most) == ""


def test_rows_that_are_compared_with_each_other_are_staged() -> None:
    rules = replace(World().process().rules, mode=SinkMode.UPSERT)
    assert find_reason_to_stage(rules, LIVE) == "upsert compares its rows with each other"
