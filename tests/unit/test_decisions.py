"""What a person may decide: exact, recorded, harmless to repeat, and nothing else is changed by it."""

import json
import re
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from typer.testing import CliRunner

from batchledger import cli
from batchledger.interfaces.cli.commands import decisions as commands
from batchledger.lifecycle import plans, run_batch
from batchledger.lifecycle.decisions import accept_loss, rehearse, skip
from batchledger.model.balance import Balance
from batchledger.model.batch import BatchState, Decided, Decision, DecisionRecord
from batchledger.model.errors import BatchBlockedError, DecisionRefusedError, FencedError, LossError, TopicChangedError
from batchledger.model.offsets import OffsetRange, TopicPartition
from batchledger.planning.live import StartPolicy
from tests.fakes.history import prove
from tests.fakes.source import ids_of
from tests.fakes.world import PIPELINE, World, staged_twice

ORDERS_0, ORDERS_1 = TopicPartition("orders", 0), TopicPartition("orders", 1)
BY_ANA = Decision("ana@host", "retention was too short over the holidays")
BY_BEN = Decision("ben@host", "once more")
LOST = OffsetRange(ORDERS_0, 10, 14)


@pytest.fixture
def world() -> World:
    """Ten records of each partition are published; of the next ten of partition 0, four are expired."""
    world = World()
    world.broker.create_topic("orders", 2)
    for partition in (ORDERS_0, ORDERS_1):
        world.produce(partition, 10)
    run_batch.run_once(world.process(), "first")
    world.produce(ORDERS_0, 10)
    world.broker.expire(ORDERS_0, before=14)
    return world


def record_of(decided: Decided) -> DecisionRecord:
    assert decided.record is not None
    return decided.record


def assert_proved(world: World) -> None:
    verification = prove(world.sink, PIPELINE)
    assert verification.holds, verification.findings


def next_offsets(world: World) -> list[int]:
    return [each.next_offset for each in world.process().ledger.load_positions(PIPELINE)]


def test_accepted_loss_is_a_range_of_its_own_and_the_pipeline_goes_on_behind_it(world: World) -> None:
    """S38: I1 holds across it, and the balance shows it ever after."""
    record = record_of(accept_loss(world.process(), [LOST], BY_ANA))
    stored = world.database.committed.batches[record.batch_id or 0]
    assert (stored.batch.state, stored.batch.ranges) == (BatchState.PUBLISHED, (LOST,))
    assert stored.balances == (Balance(LOST, accepted_loss=4),)
    assert (record.decided_by, record.reason) == (BY_ANA.decided_by, BY_ANA.reason)
    assert next_offsets(world) == [14, 10]
    following = run_batch.run_once(world.process(), "second")
    assert following is not None
    assert following.ranges == (OffsetRange(ORDERS_0, 14, 20),)
    assert sorted(offset for partition, offset in world.times_published() if partition == ORDERS_0) == [
        *range(10),
        *range(14, 20),
    ]


def test_error_of_the_run_names_the_command_that_accepts_exactly_this_loss(world: World) -> None:
    with pytest.raises(LossError) as refused:
        run_batch.run_once(world.process(), "second")
    assert refused.value.ranges == (LOST,)
    assert 'batchledger accept-loss orders_copy "orders[0] 10..14" --reason WHY' in str(refused.value)


@pytest.mark.parametrize(
    "refused",
    [
        OffsetRange(ORDERS_0, 10, 15),  # 14 can still be read
        OffsetRange(ORDERS_0, 11, 14),  # would leave a gap at 10
        OffsetRange(ORDERS_0, 5, 14),  # 5 to 10 are published
        OffsetRange(ORDERS_1, 10, 14),  # nothing is lost there
        OffsetRange(TopicPartition("orders", 7), 0, 1),
    ],
    ids=str,
)
def test_what_is_not_lost_cannot_be_given_up(world: World, refused: OffsetRange) -> None:
    before = world.database.committed
    with pytest.raises(DecisionRefusedError, match=r"Lost: orders\[0\] 10\.\.14"):
        accept_loss(world.process(), [refused], BY_ANA)
    assert world.database.committed.positions == before.positions
    assert world.database.committed.batches == before.batches


def test_loss_can_be_accepted_in_part(world: World) -> None:
    accept_loss(world.process(), [OffsetRange(ORDERS_0, 10, 12)], BY_ANA)
    assert next_offsets(world) == [12, 10]
    with pytest.raises(LossError, match=r"orders\[0\] 12\.\.14"):
        plans.plan(world.process(), "second")


def test_open_batch_over_the_lost_offsets_is_discarded_and_the_rest_of_it_planned_again() -> None:
    """The records expired between plan and stage."""
    world = World()
    world.broker.create_topic("orders", 2)
    for partition in (ORDERS_0, ORDERS_1):
        world.produce(partition, 10)
    planned = plans.plan(world.process(), "first")
    assert planned is not None
    world.broker.expire(ORDERS_0, before=3)
    with pytest.raises(LossError) as refused:
        run_batch.stage(world.process(), planned.batch_id, "first")
    assert refused.value.ranges == (OffsetRange(ORDERS_0, 0, 3),)
    accept_loss(world.process(), refused.value.ranges, BY_ANA)
    assert world.process().ledger.load_batch(planned.batch_id).state is BatchState.DISCARDED
    with pytest.raises(FencedError, match="was discarded by a person's") as fenced:
        run_batch.stage(world.process(), planned.batch_id, "first")
    assert fenced.value.batch_id == planned.batch_id
    batch = run_batch.run_once(world.process(), "second")
    assert batch is not None
    assert batch.ranges == (OffsetRange(ORDERS_0, 3, 10), OffsetRange(ORDERS_1, 0, 10))


def test_open_batch_over_other_partitions_stays_as_it_is(world: World) -> None:
    accept_loss(world.process(), [LOST], BY_ANA)
    run_batch.run_once(world.process(), "second")
    world.produce(ORDERS_1, 5)
    planned = plans.plan(world.process(), "third")
    assert planned is not None
    assert {each.partition for each in planned.ranges} == {ORDERS_1}
    world.produce(ORDERS_0, 5)
    world.broker.expire(ORDERS_0, before=22)
    accept_loss(world.process(), [OffsetRange(ORDERS_0, 20, 22)], BY_ANA)
    batch = run_batch.run_once(world.process(), "third")
    assert batch is not None
    assert (batch.batch_id, batch.ranges) == (planned.batch_id, planned.ranges)


def test_added_partition_that_lost_its_beginning_can_be_accepted_before_it_was_ever_planned(world: World) -> None:
    accept_loss(world.process(), [LOST], BY_ANA)
    run_batch.run_once(world.process(), "second")
    added = world.broker.add_partition("orders")
    world.produce(added, 5)
    world.broker.expire(added, before=2)
    with pytest.raises(LossError, match=r"orders\[2\] 0\.\.2"):
        plans.plan(world.process(), "third")
    accept_loss(world.process(), [OffsetRange(added, 0, 2)], BY_ANA)
    batch = run_batch.run_once(world.process(), "third")
    assert batch is not None
    assert batch.ranges == (OffsetRange(added, 2, 5),)


def test_loss_of_another_topic_under_the_same_name_cannot_be_accepted(world: World) -> None:
    world.broker.delete_topic("orders")
    world.broker.create_topic("orders", 2)
    with pytest.raises(TopicChangedError) as refused:
        accept_loss(world.process(), [LOST], BY_ANA)
    assert ids_of(refused.value) == ("topic-1", "topic-2")


@pytest.mark.parametrize("state", [BatchState.STAGED, BatchState.AUDITED, BatchState.BLOCKED])
def test_what_a_batch_has_staged_is_given_up_only_by_its_name(state: BatchState) -> None:
    """The records expired after they were staged: the run that staged them may still publish them."""
    world = World()
    world.broker.create_topic("orders", 1)
    world.produce(ORDERS_0, 10)
    platform = world.process(alter=staged_twice) if state is BatchState.BLOCKED else world.process()
    planned = plans.plan(platform, "first")
    assert planned is not None
    run_batch.stage(platform, planned.batch_id, "first")
    if state is BatchState.AUDITED:
        run_batch.audit(platform, planned.batch_id, "first")
    if state is BatchState.BLOCKED:
        with pytest.raises(BatchBlockedError):
            run_batch.audit(platform, planned.batch_id, "first")
    world.broker.expire(ORDERS_0, before=3)
    lost = [OffsetRange(ORDERS_0, 0, 3)]
    with pytest.raises(DecisionRefusedError, match=f"of run first has the batch {state}") as refused:
        accept_loss(world.process(), lost, BY_ANA)
    assert refused.value.batch_id == planned.batch_id
    assert f"--discard-batch {planned.batch_id}" in str(refused.value)
    assert world.process().ledger.load_batch(planned.batch_id).state is state
    accept_loss(world.process(), lost, BY_ANA, discard=planned.batch_id)
    assert (world.database.committed.staging, world.database.committed.evidence) == ({}, {})
    batch = run_batch.run_once(world.process(), "second")
    assert batch is not None
    assert batch.ranges == (OffsetRange(ORDERS_0, 3, 10),)


def test_run_whose_batch_is_discarded_under_it_is_told_so_and_leaves_no_staging() -> None:
    world = World()
    world.broker.create_topic("orders", 1)
    world.produce(ORDERS_0, 10)
    platform = world.process()
    planned = plans.plan(platform, "first")
    assert planned is not None
    run_batch.stage(platform, planned.batch_id, "first")
    world.broker.expire(ORDERS_0, before=3)
    accept_loss(world.process(), [OffsetRange(ORDERS_0, 0, 3)], BY_ANA, discard=planned.batch_id)
    with pytest.raises(FencedError, match="was discarded by a person's") as fenced:
        run_batch.audit(platform, planned.batch_id, "first")
    assert (fenced.value.batch_id, fenced.value.attempt) == (planned.batch_id, 1)
    assert world.database.committed.staging == {}
    assert world.database.committed.evidence == {}


@pytest.mark.parametrize(
    "named",
    [[], [LOST, LOST], [OffsetRange(ORDERS_0, 10, 12), OffsetRange(ORDERS_0, 12, 14)], [OffsetRange(ORDERS_0, 10, 10)]],
)
def test_each_partition_is_named_once_and_with_an_offset(world: World, named: list[OffsetRange]) -> None:
    with pytest.raises(DecisionRefusedError, match="Name each partition once"):
        accept_loss(world.process(), named, BY_ANA)


def test_loss_is_not_accepted_without_a_reason(world: World) -> None:
    with pytest.raises(DecisionRefusedError, match="needs a reason"):
        accept_loss(world.process(), [LOST], Decision("ana@host", " "))


def test_loss_that_is_accepted_already_can_be_accepted_again(world: World) -> None:
    """The reply to COMMIT was lost; by now the position has moved on."""
    first = accept_loss(world.process(), [LOST], BY_ANA)
    run_batch.run_once(world.process(), "second")
    again = accept_loss(world.process(), [LOST], BY_BEN)
    assert again == Decided(first.record, is_new=False)
    assert next_offsets(world) == [20, 10]


def test_accepting_a_loss_leaves_open_where_a_topic_starts_that_was_never_read(world: World) -> None:
    """Its first position is for the next plan, which asks Kafka for the offset of the start time."""
    world.start, world.start_at = StartPolicy.TIMESTAMP, datetime(2020, 1, 1, tzinfo=UTC)
    (late,) = world.broker.create_topic("late", 1)
    world.produce(late, 7)
    platform = world.process()
    both = replace(platform, rules=replace(platform.rules, topics=("orders", "late")))
    accept_loss(both, [LOST], BY_ANA)
    assert (PIPELINE, late) not in world.database.committed.positions
    assert OffsetRange(late, 0, 7) in plans.preview(both).ranges


def test_skip_gives_up_offsets_that_can_be_read_and_the_pipeline_goes_on_behind_them(world: World) -> None:
    accept_loss(world.process(), [LOST], BY_ANA)
    record = record_of(skip(world.process(), [OffsetRange(ORDERS_0, 14, 17)], BY_ANA))
    assert record.kind == "skip"
    assert next_offsets(world) == [17, 10]
    batch = run_batch.run_once(world.process(), "second")
    assert batch is not None
    assert batch.ranges == (OffsetRange(ORDERS_0, 17, 20),)
    assert_proved(world)
    assert skip(world.process(), [OffsetRange(ORDERS_0, 14, 17)], BY_BEN) == Decided(record, is_new=False)


def test_skip_never_passes_over_lost_records_they_are_accepted_as_lost_first(world: World) -> None:
    named = re.escape('batchledger accept-loss orders_copy "orders[0] 10..14"')
    with pytest.raises(DecisionRefusedError, match=named):
        skip(world.process(), [OffsetRange(ORDERS_0, 10, 17)], BY_ANA)
    assert next_offsets(world) == [10, 10]


@pytest.mark.parametrize(
    "refused",
    [
        OffsetRange(ORDERS_0, 14, 21),  # 20 does not exist yet
        OffsetRange(ORDERS_0, 15, 17),  # would leave a gap at 14
        OffsetRange(ORDERS_0, 5, 17),  # 5 to 10 are published
        OffsetRange(ORDERS_1, 10, 11),  # nothing is unread there
    ],
    ids=str,
)
def test_skip_begins_at_the_position_and_ends_where_the_log_does(world: World, refused: OffsetRange) -> None:
    accept_loss(world.process(), [LOST], BY_ANA)
    with pytest.raises(DecisionRefusedError, match=r"Unread: orders\[0\] 14\.\.20"):
        skip(world.process(), [refused], BY_ANA)
    assert next_offsets(world) == [14, 10]


def test_dry_run_of_giving_up_says_what_would_change_and_keeps_what_is_staged() -> None:
    world = World()
    world.broker.create_topic("orders", 1)
    world.produce(ORDERS_0, 10)
    planned = plans.plan(world.process(), "first")
    assert planned is not None
    run_batch.stage(world.process(), planned.batch_id, "first")
    record = record_of(skip(rehearse(world.process()), [OffsetRange(ORDERS_0, 0, 3)], BY_ANA, planned.batch_id))
    assert record.before == {"next_offset": {"orders[0]": 0}, "batch": {"1": "staged"}}
    assert record.after == {"next_offset": {"orders[0]": 3}, "batch": {"1": "discarded"}}
    assert next_offsets(world) == [0]
    run_batch.audit(world.process(), planned.batch_id, "first")
    assert run_batch.publish(world.process(), planned.batch_id, "first").state is BatchState.PUBLISHED


def test_advice_of_a_refused_retirement_names_the_connection_that_was_given(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    world.broker.create_topic("orders", 1)
    world.produce(ORDERS_0, 10)
    assert plans.plan(world.process(), "first") is not None
    monkeypatch.setattr("batchledger.lifecycle.execution.retire", lambda _, name, order, decision: (
        world.process().decisions.retire(name, decision, discard=order.discard)
    ))  # fmt: skip
    monkeypatch.setattr(commands, "find_known", lambda *_: (None, "dbname=none"))
    for connection, named in (("warehouse", ""), ("other", " --connection other")):
        with pytest.raises(DecisionRefusedError) as refused:
            commands.retire(PIPELINE, reason="it is over", connection=connection)
        assert f"batchledger batch 1{named}\n" in refused.value.advice
        assert f"batchledger retire {PIPELINE}{named} --discard-batch 1 --reason WHY" in refused.value.advice


def test_order_of_the_command_line_needs_a_reason_and_a_dry_run_of_it_changes_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``@decision`` gives what the function of a command returns, and nothing else."""
    monkeypatch.delenv("BATCHLEDGER_PIPELINES", raising=False)
    monkeypatch.setattr("batchledger.wiring.build_platform", lambda _: world.process())

    def pause(*more: str) -> tuple[int, str]:
        done = CliRunner().invoke(cli.app, ["pause", "flights", *more])
        return done.exit_code, done.stdout

    assert pause() == (2, "")
    code, told = pause("--reason", "the topic moves", "--dry-run", "--json")
    assert (code, json.loads(told)["dry_run"], world.process().decisions.find_pause(PIPELINE)) == (0, True, None)
    code, told = pause("--reason", "the topic moves", "--json")
    stored = world.process().decisions.find_pause(PIPELINE)
    assert (code, json.loads(told)["is_new"], stored and stored.reason) == (0, True, "the topic moves")
