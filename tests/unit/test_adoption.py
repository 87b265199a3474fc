"""A target that was restored is adopted once it is proved; one that differs never is."""

from dataclasses import replace

import pytest

from batchledger.lifecycle import run_batch
from batchledger.lifecycle.decisions import adopt_target, rehearse
from batchledger.lifecycle.platform import Platform
from batchledger.model.batch import Decided, Decision, Target
from batchledger.model.errors import BatchBlockedError, DecisionRefusedError, TargetChangedError
from tests.fakes.world import ORDERS_0, PIPELINE, World, assert_exactly_once, catch_up, stage_and_audit

BY_ANA = Decision("ana@host", "moved to another server")


@pytest.fixture
def world() -> World:
    """Ten records are published; then the target is restored, and has another identity."""
    return restored(World())


def restored(world: World) -> World:
    world.broker.create_topic("orders", 2)
    world.produce(ORDERS_0, 10)
    catch_up(world)
    world.replace_target("restored")
    return world


def adopt(world: World, platform: Platform | None = None, by: Decision = BY_ANA) -> Decided:
    return adopt_target(platform or world.process(), by)


def take_rows(world: World, kept: int) -> None:
    """Leave only the first rows of the target."""
    with world.database.transaction() as tables:
        target = tables.targets["orders"]
        tables.targets["orders"] = replace(target, rows=target.rows[:kept])


def test_refusal_of_a_restored_target_names_the_way_out_and_stages_nothing(world: World) -> None:
    world.produce(ORDERS_0, 5)
    with pytest.raises(TargetChangedError) as refused:
        run_batch.run_once(world.process(), "run")
    assert (refused.value.pipeline, refused.value.found) == (PIPELINE, "restored")
    assert f"batchledger adopt-target {PIPELINE} --reason WHY" in str(refused.value)
    assert not any(each.rows_by_task for each in world.database.committed.staging.values())


def test_restored_target_is_adopted_and_the_pipeline_goes_on_exactly_once(world: World) -> None:
    world.produce(ORDERS_0, 5)
    decided = adopt(world)
    assert decided.record is not None
    assert decided.record.before == {"target": "orders", "identity": "created by batch 1 of orders_copy"}
    assert decided.record.after == {
        "target": "orders",
        "identity": "restored",
        "rows_found": 10,
        "batches_proved": 1,
        "newest_batch_found": 1,
    }
    catch_up(world)
    assert_exactly_once(world)


def test_batch_that_was_audited_before_the_restore_is_blocked_and_published_after_the_adoption(world: World) -> None:
    world.replace_target("created by batch 1 of orders_copy")
    world.produce(ORDERS_0, 5)
    batch = stage_and_audit(world.process(), "run")
    world.replace_target("restored")
    with pytest.raises(BatchBlockedError, match="batchledger adopt-target"):
        run_batch.publish(world.process(), batch.batch_id, "run")
    adopt(world)
    run_batch.run_once(world.process(), "again", batch.batch_id)
    assert_exactly_once(world)


def test_repeating_an_adoption_changes_nothing(world: World) -> None:
    adopt(world)
    assert adopt(world) == Decided(None, is_new=False)
    assert len(world.database.committed.decisions) == 1


def test_rehearsal_proves_as_always_and_changes_nothing(world: World) -> None:
    decided = adopt(world, rehearse(world.process()))
    assert decided.record is not None
    assert world.process().ledger.list_targets()[PIPELINE] == Target("orders", "created by batch 1 of orders_copy")
    take_rows(world, 9)
    with pytest.raises(DecisionRefusedError):
        adopt(world, rehearse(world.process()))


@pytest.mark.parametrize("kept", [0, 9])
def test_target_that_lacks_rows_is_refused_with_what_differs(world: World, kept: int) -> None:
    take_rows(world, kept)
    with pytest.raises(DecisionRefusedError, match=f"10 rows, the target holds {kept}") as refused:
        adopt(world)
    assert (refused.value.pipeline, refused.value.subject) == (PIPELINE, "restored")
    assert world.database.committed.decisions == {}


def test_target_that_is_not_there_cannot_be_adopted(world: World) -> None:
    with world.database.transaction() as tables:
        del tables.targets["orders"]
    with pytest.raises(DecisionRefusedError, match=r"is not there\. Nothing was adopted") as refused:
        adopt(world)
    assert refused.value.pipeline == PIPELINE


def test_pipeline_that_has_published_nothing_has_nothing_to_adopt() -> None:
    with pytest.raises(DecisionRefusedError, match="has published nothing yet"):
        adopt(World())


def test_adoption_needs_a_reason(world: World) -> None:
    with pytest.raises(DecisionRefusedError, match="a reason"):
        adopt(world, by=Decision("ana@host", " "))


def test_target_of_another_pipeline_is_not_adopted(world: World) -> None:
    with world.database.transaction() as tables:
        tables.target_by_pipeline["other"] = Target("orders", "restored")
    with pytest.raises(DecisionRefusedError, match="belongs to another pipeline"):
        adopt(world)
