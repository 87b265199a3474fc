"""A batch does not drain its topic into quarantine: too large a share blocks it, until a person decides otherwise."""

import pytest

from batchledger.lifecycle import plans, run_batch
from batchledger.lifecycle.decisions import accept
from batchledger.lifecycle.dry_run import dry_run_replay
from batchledger.model.batch import Batch, BatchState, Decision
from batchledger.model.checks import CheckResult, IntegrityCheck, OnFailure, Outcome
from batchledger.model.errors import BatchBlockedError
from batchledger.model.offsets import OffsetRange, TopicPartition
from batchledger.model.records.quarantine import (
    KINDS_SHOWN,
    NOTHING,
    ErrorKind,
    QuarantineContent,
    QuarantineLimit,
    summarise,
)
from batchledger.model.records.rules import TombstonePolicy
from batchledger.planning.replay import Replay, split_quarantined
from tests.fakes.row_checks import RowTest
from tests.fakes.source import Record
from tests.fakes.world import PIPELINE, World, catch_up

ORDERS_0 = TopicPartition("orders", 0)
ANA = Decision("ana@example", "they are what they are")
SECRET = b"no JSON, but a secret"


def world_of(good: int, bad: int, limit: QuarantineLimit | None = None, **changes: object) -> World:
    """So many records that decode, followed by so many that do not."""
    world = World(quarantine_limit=limit or QuarantineLimit(), **changes)  # type: ignore[arg-type]
    world.broker.create_topic("orders", 1)
    world.produce(ORDERS_0, good)
    world.broker.append(ORDERS_0, *[SECRET] * bad)
    return world


def run(world: World) -> Batch:
    batch = run_batch.run_once(world.process(), "run")
    assert batch is not None
    return batch


def block(world: World) -> CheckResult:
    """Run into the limit; return what its check says."""
    with pytest.raises(BatchBlockedError, match="quarantine_within_limit"):
        run(world)
    (found,) = [each for each in world.process().ledger.load_checks(1) if each.blocks]
    return found


def test_topic_of_which_every_record_is_undecodable_is_blocked_and_not_drained() -> None:
    world = world_of(good=0, bad=20)
    told = block(world)
    assert told.name == IntegrityCheck.QUARANTINE_WITHIN_LIMIT
    assert not world.sink.read_target()
    assert [each.next_offset for each in world.process().ledger.load_positions(PIPELINE)] == [0]
    assert world.process().ledger.summarise_quarantine(PIPELINE) == NOTHING


def test_control_without_the_check_the_topic_is_drained_in_green() -> None:
    world = world_of(good=0, bad=20, ignored_checks=frozenset({IntegrityCheck.QUARANTINE_WITHIN_LIMIT}))
    assert run(world).state is BatchState.PUBLISHED
    assert not world.sink.read_target()
    assert world.process().ledger.summarise_quarantine(PIPELINE).records == 20


def test_blocked_batch_names_kinds_of_error_numbers_and_coordinates_and_no_payload() -> None:
    world = world_of(good=3, bad=18)
    world.broker.append_keyed(ORDERS_0, (None, None))
    told = block(world)
    assert "orders[0]@3 (18 records: not decodable: Expecting value" in told.detail
    assert "orders[0]@21 (1 record: not decodable: a tombstone)" in told.detail
    assert f'batchledger records {PIPELINE} "orders[0] 3..4" "orders[0] 21..22"' in told.detail
    assert "secret" not in repr(told)


@pytest.mark.parametrize(
    ("good", "bad", "limit", "is_blocked"),
    [
        (10, 10, None, False),
        (9, 11, None, True),
        (0, 19, None, False),
        (0, 20, None, True),
        (1, 0, QuarantineLimit(0, 1), False),
        (99, 1, QuarantineLimit(0, 1), True),
        (0, 1, QuarantineLimit(0, 1), True),
        (71, 29, QuarantineLimit(0.29, 1), False),
        (70, 30, QuarantineLimit(0.29, 1), True),
        (0, 50, QuarantineLimit(1, 1), False),
    ],
)
def test_more_than_the_share_blocks_and_the_default_says_nothing_of_a_few_records(
    good: int, bad: int, limit: QuarantineLimit | None, is_blocked: bool
) -> None:
    """S116, S118."""
    world = world_of(good, bad, limit)
    if is_blocked:
        block(world)
    else:
        assert run(world).state is BatchState.PUBLISHED


def test_person_may_accept_what_is_to_be_quarantined() -> None:
    world = world_of(good=2, bad=20)
    block(world)
    accept(world.process(), 1, ANA)
    catch_up(world)
    assert len(world.sink.read_target()) == 2
    assert world.process().ledger.summarise_quarantine(PIPELINE).records == 20


def test_batch_is_judged_anew_by_the_limit_of_today() -> None:
    world = world_of(good=2, bad=20)
    block(world)
    world.quarantine_limit = QuarantineLimit(1, 1)
    assert run_batch.take_through(world.process(), 1, "run").state is BatchState.PUBLISHED


def test_replay_of_quarantine_in_which_everything_stays_undecodable_is_not_stuck() -> None:
    """Nothing is drained: what was in quarantine stays there."""
    world = world_of(good=2, bad=30, limit=QuarantineLimit(1, 1))
    run(world)
    world.quarantine_limit = QuarantineLimit(0, 1)
    (portion,) = split_quarantined(world.process().ledger.find_quarantined(PIPELINE, None))
    batch = plans.plan_replay(world.process(), Replay(portion), "again", ANA, "again")
    assert batch is not None
    assert run_batch.take_through(world.process(), batch.batch_id, "again").state is BatchState.PUBLISHED
    assert world.process().ledger.summarise_quarantine(PIPELINE).records == 30


def test_replay_that_would_move_visible_rows_into_quarantine_is_blocked_and_its_dry_run_says_so() -> None:
    """A schema that does not fit any more must not empty the table."""
    world = world_of(good=30, bad=0)
    run(world)
    world.broker.partitions[ORDERS_0].log[:] = [Record(SECRET)] * 30
    asked = Replay((OffsetRange(ORDERS_0, 0, 30),))
    found = dry_run_replay(world.process(), asked, "look", ANA)
    assert found is not None
    assert [each.name for each in found.objections] == [IntegrityCheck.QUARANTINE_WITHIN_LIMIT]
    batch = plans.plan_replay(world.process(), asked, "again", ANA, "again")
    assert batch is not None
    with pytest.raises(BatchBlockedError, match="quarantine_within_limit"):
        run_batch.take_through(world.process(), batch.batch_id, "again")
    assert len(world.sink.read_target()) == 30


def test_flood_of_rows_that_a_check_sets_aside_is_the_same_drain() -> None:
    test = RowTest("no_orders", lambda row: "@" not in row["message_id"], on_failure=OnFailure.QUARANTINE)
    told = block(world_of(good=20, bad=0, row_tests=[test]))
    assert "20 records: check no_orders: the row does not pass it" in told.detail
    assert told.outcome is Outcome.FAILED


def test_tombstones_that_are_skipped_say_nothing_of_the_others() -> None:
    world = world_of(good=0, bad=20, tombstones=TombstonePolicy.SKIP)
    world.broker.append_keyed(ORDERS_0, *[(None, None)] * 100)
    assert block(world).detail.startswith("quarantined: 20 of 20")


def test_most_frequent_kinds_are_shown_and_the_others_counted() -> None:
    kinds = [ErrorKind(f"column c{number}", 1 + number // 2) for number in range(8)]
    content = summarise(kinds)
    assert (content.records, content.kinds, len(content.most_frequent)) == (20, 8, KINDS_SHOWN)
    assert content.title == "20 records in quarantine"
    assert content.lines == (
        "4 records: column c6",
        "4 records: column c7",
        "3 records: column c4",
        "3 records: column c5",
        "2 records: column c2",
        "and 3 more kinds of error",
    )
    assert summarise(kinds[:1]) == QuarantineContent(1, 1, (ErrorKind("column c0", 1),))
    assert summarise(kinds[:1]).title == "1 record in quarantine"
    assert summarise([]) == NOTHING
