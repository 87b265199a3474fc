"""The contract of ``Decisions.retire``: nothing new, nothing left open, and a history that can still be proved."""

from dataclasses import replace

import pytest

from batchledger.model.batch import BatchState, Decided, DecisionKind, Position
from batchledger.model.errors import DecisionRefusedError, PipelinePausedError, UnknownPipelineError
from batchledger.model.findings import IncidentKind, Place, list_kinds
from batchledger.model.incidents import Condition, Event, Findings
from batchledger.planning.live import Plan
from tests.contract import life
from tests.contract.decided import BY_ANA, BY_BEN, assert_proved, record_of, take_to_blocked
from tests.contract.life import FIRST, SECOND
from tests.contract.warehouses import IDENTITY, Warehouse


def test_retired_pipeline_plans_nothing_new_and_says_who_retired_it_and_how_to_go_on(warehouse: Warehouse) -> None:
    life.take_to_published(warehouse, FIRST)
    record = record_of(warehouse.decisions.retire(warehouse.pipeline, BY_ANA))
    assert (record.kind, record.decided_by, record.reason) == (DecisionKind.RETIRE, "ana@host", BY_ANA.reason)
    assert (record.before, record.after) == ({"retired": False}, {"retired": True})
    with pytest.raises(
        PipelinePausedError, match=rf"(?s)is retired.*ana@host.* retired it on.*{BY_ANA.reason}"
    ) as error:
        life.store(warehouse, SECOND)
    assert f"batchledger resume {warehouse.pipeline} --reason WHY" in str(error.value)
    with pytest.raises(PipelinePausedError, match="is retired"):
        life.store_replay(warehouse, FIRST)
    assert_proved(warehouse)


def test_retired_pipeline_is_taken_up_again_where_it_stood(warehouse: Warehouse) -> None:
    life.take_to_published(warehouse, FIRST)
    warehouse.decisions.retire(warehouse.pipeline, BY_ANA)
    resumed = record_of(warehouse.decisions.resume(warehouse.pipeline, BY_BEN))
    assert (resumed.before, resumed.after) == ({"retired": True}, {"retired": False})
    life.take_to_published(warehouse, SECOND, run="run-2")
    assert life.target_coordinates(warehouse) == life.rows_of([FIRST, SECOND])
    assert_proved(warehouse)


def test_retiring_is_harmless_to_repeat_and_takes_the_place_of_a_pause(warehouse: Warehouse) -> None:
    life.take_to_published(warehouse, FIRST)
    warehouse.decisions.pause(warehouse.pipeline, BY_BEN)
    retired = warehouse.decisions.retire(warehouse.pipeline, BY_ANA)
    assert retired.is_new
    assert warehouse.decisions.retire(warehouse.pipeline, BY_BEN) == Decided(retired.record, is_new=False)
    assert warehouse.decisions.pause(warehouse.pipeline, BY_BEN) == Decided(retired.record, is_new=False)
    assert warehouse.decisions.find_pause(warehouse.pipeline) == retired.record


def test_open_batch_keeps_its_pipeline_from_being_retired_until_it_is_given_up_by_its_number(
    warehouse: Warehouse,
) -> None:
    life.take_to_published(warehouse, FIRST)
    replayed = life.store_replay(warehouse, FIRST)
    batch_id = take_to_blocked(warehouse, SECOND, run="run-2").batch.batch_id
    with pytest.raises(DecisionRefusedError, match=r"2 batches are open. Nothing was changed") as refused:
        warehouse.decisions.retire(warehouse.pipeline, BY_ANA)
    assert f"batch {batch_id} (blocked)" in str(refused.value)
    given_up = f"--discard-batch {replayed.batch_id} --discard-batch {batch_id}"
    assert f"batchledger retire {warehouse.pipeline} {given_up} --reason WHY" in str(refused.value)
    with pytest.raises(DecisionRefusedError, match=f"Open are batch {replayed.batch_id}"):
        warehouse.decisions.retire(warehouse.pipeline, BY_ANA, discard=[batch_id])
    first = Position(FIRST.partition, FIRST.start, FIRST.start, IDENTITY)
    foreign = warehouse.ledger.store_plan(f"{warehouse.pipeline}_other", Plan((FIRST,), 0, (first,)), "run-3").batch_id
    with pytest.raises(DecisionRefusedError, match=f"has no open batch {foreign}. Nothing was changed"):
        warehouse.decisions.retire(warehouse.pipeline, BY_ANA, discard=[batch_id, replayed.batch_id, foreign])
    assert warehouse.ledger.load_batch(batch_id).state is BatchState.BLOCKED
    record = record_of(warehouse.decisions.retire(warehouse.pipeline, BY_ANA, discard=[batch_id, replayed.batch_id]))
    assert record.after == {
        "retired": True,
        "batch": {str(replayed.batch_id): "discarded", str(batch_id): "discarded"},
    }
    again = warehouse.decisions.retire(warehouse.pipeline, BY_ANA, discard=[batch_id])
    assert again == Decided(record, is_new=False)
    with pytest.raises(DecisionRefusedError, match=f"has no open batch {foreign}. Nothing was changed"):
        warehouse.decisions.retire(warehouse.pipeline, BY_ANA, discard=[foreign])
    for each in (batch_id, replayed.batch_id):
        assert warehouse.ledger.load_batch(each).state is BatchState.DISCARDED
        assert [one.kind for one in warehouse.decisions.load_decisions(each)][-1:] == [DecisionKind.DISCARD]
    assert_proved(warehouse)


def test_target_stays_the_retired_pipelines_own_unless_it_is_freed(warehouse: Warehouse) -> None:
    life.take_to_published(warehouse, FIRST)
    target = warehouse.ledger.list_targets()[warehouse.pipeline]
    warehouse.decisions.retire(warehouse.pipeline, BY_ANA)
    assert warehouse.ledger.list_targets()[warehouse.pipeline] == target
    freed = record_of(warehouse.decisions.retire(warehouse.pipeline, BY_BEN, free_target=True))
    assert freed.before == {"retired": False, "target": target.name}
    assert freed.after == {"retired": True, "target": None}
    assert warehouse.pipeline not in warehouse.ledger.list_targets()
    assert not warehouse.decisions.retire(warehouse.pipeline, BY_BEN, free_target=True).is_new
    warehouse.decisions.resume(warehouse.pipeline, BY_ANA)
    life.take_to_published(warehouse, SECOND, run="run-2")
    assert warehouse.ledger.list_targets()[warehouse.pipeline] == target
    assert_proved(warehouse)


def test_incidents_of_a_retired_pipeline_end_and_channels_hear_of_it(warehouse: Warehouse) -> None:
    life.take_to_published(warehouse, FIRST)
    lag = Condition.of(IncidentKind.LAG, warehouse.pipeline)
    elsewhere = replace(lag, pipeline=f"{warehouse.pipeline}_other")
    incidents, looked_for = warehouse.incidents, list_kinds(Place.THREATS)
    for each in (lag, elsewhere):
        incidents.settle(each.pipeline, Findings((each,), looked_for), ["mail"], life.NOW)
    retired = record_of(warehouse.decisions.retire(warehouse.pipeline, BY_ANA))
    assert list(incidents.list_open(warehouse.pipeline)) == []
    assert len(incidents.list_open(elsewhere.pipeline)) == 1
    told = []
    while claimed := incidents.claim(warehouse.pipeline, "mail", retired.decided_at):
        incidents.mark_sent(claimed, retired.decided_at)
        told.append((claimed.event, claimed.incident.ending))
    assert told == [(Event.OPENED, "the pipeline is retired"), (Event.ENDED, "the pipeline is retired")]


def test_pipeline_that_the_ledger_does_not_know_is_not_retired(warehouse: Warehouse) -> None:
    with pytest.raises(UnknownPipelineError, match="The ledger has nothing of no_such_pipeline"):
        warehouse.decisions.retire("no_such_pipeline", BY_ANA)
    assert warehouse.decisions.find_pause("no_such_pipeline") is None


def test_rehearsed_retirement_changes_nothing(warehouse: Warehouse) -> None:
    life.take_to_published(warehouse, FIRST)
    batch_id = take_to_blocked(warehouse, SECOND, run="run-2").batch.batch_id
    targets = warehouse.ledger.list_targets()
    decided = warehouse.decisions.rehearsal.retire(warehouse.pipeline, BY_ANA, discard=[batch_id], free_target=True)
    assert decided.is_new
    assert warehouse.ledger.load_batch(batch_id).state is BatchState.BLOCKED
    assert warehouse.ledger.list_targets() == targets
    assert warehouse.decisions.find_pause(warehouse.pipeline) is None
