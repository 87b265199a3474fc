"""Checks of a pipeline file where rows have keys: a row that is no duplicate any more is judged like every other."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from batchledger.lifecycle import plans, run_batch
from batchledger.model.batch import BatchState
from batchledger.model.checks import OnFailure
from batchledger.model.errors import BatchBlockedError
from batchledger.model.offsets import TopicPartition
from batchledger.model.records.rules import Deduplication, Upsert
from tests.contract.lives.world import StoredWorld
from tests.fakes.row_checks import RowTest

ORDERS = TopicPartition("orders", 0)
RUN = "run-1"


def is_good(row: Mapping[str, Any]) -> bool:
    return not str(row["message_id"]).startswith("bad")


def world_with(*tests: RowTest, ids: tuple[str, ...]) -> StoredWorld:
    world = StoredWorld(row_tests=tests, deduplication=Deduplication(("message_id",), timedelta(days=1)))
    world.broker.create_topic("orders", 1)
    world.broker.append(ORDERS, *(f'{{"message_id": "{each}"}}'.encode() for each in ids))
    return world


def visible_ids(world: StoredWorld) -> list[str]:
    return [row["message_id"] for row in sorted(world.read_target(), key=lambda row: row["_offset"])]


def staged(world: StoredWorld) -> int:
    batch = plans.plan(world.process(), RUN)
    assert batch is not None
    run_batch.stage(world.process(), batch.batch_id, RUN)
    return batch.batch_id


def test_duplicate_of_a_row_that_is_set_aside_is_judged_before_it_is_published() -> None:
    """Without its first record the second one is no duplicate any more."""
    world = world_with(
        RowTest("good", is_good, on_failure=OnFailure.QUARANTINE), ids=("bad-1", "bad-1", "a", "bad-1", "a")
    )
    run_batch.run_once(world.process(), RUN)
    assert visible_ids(world) == ["a"]
    assert world.quarantined() == [0, 1, 3]


def test_row_that_ceases_to_be_a_duplicate_after_the_audit_is_judged_before_it_is_published() -> None:
    """An audit that became outdated judges the rows again: no check has judged what was a duplicate."""
    world = world_with(RowTest("good", is_good), ids=("a", "bad-1"))
    world.row_tests = ()
    run_batch.run_once(world.process(), "first")
    world.row_tests = [RowTest("good", is_good)]
    world.broker.append(ORDERS, b'{"message_id": "bad-1"}', b'{"message_id": "b"}')
    batch_id = staged(world)
    run_batch.audit(world.process(), batch_id, RUN)
    world.forget_keys()
    with pytest.raises(BatchBlockedError, match="good: 1 rows fail"):
        run_batch.publish(world.process(), batch_id, RUN)
    assert visible_ids(world) == ["a", "bad-1"]


def test_row_that_ceases_to_be_a_duplicate_while_the_others_are_judged_is_judged_before_it_is_published() -> None:
    """What is counted is what was judged, else the publication would find exactly what the audit has counted."""
    world = world_with(ids=("a", "bad-1"))
    run_batch.run_once(world.process(), "first")

    def forgets(row: Mapping[str, Any]) -> bool:
        world.forget_keys()
        return is_good(row)

    world.row_tests = [RowTest("good", forgets)]
    world.broker.append(ORDERS, b'{"message_id": "bad-1"}', b'{"message_id": "b"}')
    batch_id = staged(world)
    assert run_batch.audit(world.process(), batch_id, RUN).state is BatchState.AUDITED
    with pytest.raises(BatchBlockedError, match="good: 1 rows fail"):
        run_batch.publish(world.process(), batch_id, RUN)
    assert visible_ids(world) == ["a", "bad-1"]


def test_without_judging_again_such_a_row_would_be_published(monkeypatch: pytest.MonkeyPatch) -> None:
    """The negative control of the promise above."""
    world = world_with(ids=("a", "bad-1"))
    run_batch.run_once(world.process(), "first")
    world.row_tests = [RowTest("good", is_good)]
    world.broker.append(ORDERS, b'{"message_id": "bad-1"}', b'{"message_id": "b"}')
    batch_id = staged(world)
    run_batch.audit(world.process(), batch_id, RUN)
    world.forget_keys()
    run_batch.publish(replace(world.process(), make_row_checks=None), batch_id, RUN)
    assert visible_ids(world) == ["a", "bad-1", "bad-1", "b"]


def test_rows_without_a_key_are_set_aside_by_a_check_and_the_others_are_published() -> None:
    world = StoredWorld(upsert=Upsert(("message_id",)))
    world.broker.create_topic("orders", 1)
    world.produce(ORDERS, 3)
    world.broker.append(ORDERS, b'{"message_id": null}')
    with pytest.raises(BatchBlockedError, match=r"without a value in sink\.key"):
        run_batch.run_once(world.process(), "first")
    (batch,) = world.batches()
    is_there = RowTest("not_null", lambda row: row["message_id"] is not None, on_failure=OnFailure.QUARANTINE)
    world.row_tests = [is_there]
    run_batch.run_once(world.process(), "by a person", batch.batch_id)
    assert len(world.times_published()) == 3
    assert world.quarantined() == [3]
