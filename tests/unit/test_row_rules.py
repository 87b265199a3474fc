"""A run whose pipeline file changes between its steps: what it has staged by the former rules is never published."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from batchledger.config.pipeline_file import read_pipeline_file
from batchledger.lifecycle import decisions, plans, run_batch
from batchledger.lifecycle.platform import Platform
from batchledger.model.batch import Batch, BatchState, Decision, DeliveryMode
from batchledger.model.errors import BatchBlockedError, RowRulesChangedError, RowsRefusedError, StagingLostError
from batchledger.ports import Stager
from tests.fakes.crash import FOREIGN, SINKS, CrashOnce, SimulatedCrashError
from tests.fakes.foreign_sink import store_of
from tests.fakes.work import Rows
from tests.fakes.world import ORDERS_0, World
from tests.unit.test_config import changed, write

PROTECTED = [f"hash of {ORDERS_0}@{offset}" for offset in range(3)]


def protect(rows: Rows) -> Rows:
    return [{**row, "message_id": f"hash of {row['message_id']}"} for row in rows]


@pytest.fixture(params=SINKS)
def world(request: pytest.FixtureRequest) -> World:
    world = World(foreign=store_of(request.param))
    world.broker.create_topic("orders", 1)
    world.produce(ORDERS_0, 3)
    return world


def deployed(world: World) -> Platform:
    """A process that has read the next version of the file."""
    world.row_rules = "second"
    return world.process(alter=protect)


def messages(world: World) -> list[str]:
    return sorted(row["message_id"] for row in world.sink.read_target())


def staged(world: World) -> Batch:
    batch = plans.plan(world.process(), "run")
    assert batch is not None
    return run_batch.stage(world.process(), batch.batch_id, "run")


def publish_by_the_next_version(world: World, batch: Batch) -> Batch:
    return run_batch.publish(deployed(world), batch.batch_id, "run", run_batch.stage)


def test_change_between_stage_and_audit_stages_the_same_ranges_again(world: World) -> None:
    batch = staged(world)
    run_batch.audit(deployed(world), batch.batch_id, "run", run_batch.stage)
    published = publish_by_the_next_version(world, batch)
    assert (published.ranges, published.attempt, published.state) == (batch.ranges, 2, BatchState.PUBLISHED)
    assert messages(world) == PROTECTED


@pytest.mark.parametrize("delivery", DeliveryMode)
def test_change_between_audit_and_publication_stages_and_audits_again(world: World, delivery: DeliveryMode) -> None:
    world.delivery = delivery
    batch = staged(world)
    run_batch.audit(world.process(), batch.batch_id, "run")
    published = publish_by_the_next_version(world, batch)
    assert (published.ranges, published.attempt, published.state) == (batch.ranges, 2, BatchState.PUBLISHED)
    assert messages(world) == PROTECTED


def test_step_that_cannot_stage_refuses_and_the_next_run_stages_again(world: World) -> None:
    batch = staged(world)
    run_batch.audit(world.process(), batch.batch_id, "run")
    with pytest.raises(RowRulesChangedError, match=r"(?s)another version of the pipeline file.*Nothing was published"):
        run_batch.publish(deployed(world), batch.batch_id, "run")
    assert messages(world) == []
    run_batch.run_once(deployed(world), "next")
    assert messages(world) == PROTECTED


def test_step_whose_own_file_is_the_older_one_refuses_what_it_has_staged_again(world: World) -> None:
    """spark-submit may read another copy of the file: the step stages once more, not for ever."""
    batch, attempts = staged(world), []

    def stage_elsewhere(platform: Platform, batch_id: int, run: str) -> Batch:
        world.row_rules = "third"
        attempts.append(batch_id)
        return run_batch.stage(world.process(), batch_id, run)

    with pytest.raises(RowRulesChangedError):
        run_batch.audit(deployed(world), batch.batch_id, "run", stage_elsewhere)
    assert attempts == [batch.batch_id]


def test_announced_commit_that_was_not_made_is_staged_again(world: World) -> None:
    world.foreign = store_of(FOREIGN)
    batch = staged(world)
    run_batch.audit(world.process(), batch.batch_id, "run")
    crash = CrashOnce("announced")
    with pytest.raises(SimulatedCrashError):
        run_batch.publish(world.process(crash), batch.batch_id, "run")
    published = run_batch.run_once(deployed(world), "next")
    assert published is not None
    assert (published.batch_id, published.state) == (batch.batch_id, BatchState.PUBLISHED)
    assert messages(world) == PROTECTED


def test_blocked_batch_of_the_former_rules_cannot_be_accepted(world: World) -> None:
    world.broker.append_holes(ORDERS_0, 1)
    world.produce(ORDERS_0, 1)
    batch = staged(world)
    with pytest.raises(BatchBlockedError):
        run_batch.audit(world.process(), batch.batch_id, "run")
    with pytest.raises(RowRulesChangedError):
        decisions.accept(deployed(world), batch.batch_id, Decision("ana", "the rows are right"))
    assert world.database.committed.decisions == {}


def test_batch_that_was_blocked_while_it_was_staged_has_nothing_to_accept(world: World) -> None:
    batch = plans.plan(world.process(), "run")
    assert batch is not None

    def refuse() -> Stager:
        raise RowsRefusedError("The ledger refuses a row.")

    with pytest.raises(BatchBlockedError):
        run_batch.stage(replace(world.process(), make_stager=refuse), batch.batch_id, "run")
    with pytest.raises(StagingLostError, match=r"(?s)Staging of .* is gone.*Take it again"):
        decisions.accept(world.process(), batch.batch_id, Decision("ana", "the rows are right"))


@pytest.mark.parametrize(
    ("change", "is_other"),
    [
        ({"source__protect": {"id": "hash"}}, True),
        ({"source__headers": {"trace": "header trace string"}}, True),
        ({"source__schema": "id string"}, True),
        ({"transform": "tests.transforms:keep_all"}, True),
        ({"limits__max_records": 7}, False),
    ],
    ids=str,
)
def test_rules_are_other_ones_if_the_file_makes_other_rows(
    tmp_path: Path, change: dict[str, Any], is_other: bool
) -> None:
    rules = [read_pipeline_file(write(tmp_path, changed(**each))).rules.row_rules for each in ({}, change)]
    assert (rules[0] != rules[1]) is is_other
