"""How a pipeline stands: every state, and what threatens the unread records."""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from batchledger.lifecycle import plans, run_batch
from batchledger.lifecycle.decisions import pause, resume
from batchledger.lifecycle.execution import retire
from batchledger.lifecycle.orders import Retire
from batchledger.model.balance import HolePolicy
from batchledger.model.batch import (
    Attempt,
    Decision,
    LogState,
    PartitionHealth,
    PartitionLog,
    Position,
    Staged,
    TopicIdentity,
)
from batchledger.model.errors import BatchBlockedError, StagingError
from batchledger.model.findings import STATES_OF_WATCHES, PipelineState
from batchledger.model.offsets import TopicPartition
from batchledger.model.records.quarantine import NOTHING, ErrorKind, summarise
from batchledger.monitoring.health import (
    STUCK_AFTER,
    Book,
    CurrentBatch,
    LeftPipeline,
    PipelineHealth,
    describe_duration,
    describe_quarantine,
    describe_threats,
    find_threats,
    judge,
    judge_left,
    look,
    survey,
)
from batchledger.planning.live import StartPolicy
from tests.fakes.ledger import MemoryLedger
from tests.fakes.world import PIPELINE, World, catch_up, stage_and_audit

ORDERS_0, ORDERS_1 = TopicPartition("orders", 0), TopicPartition("orders", 1)
NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)


@pytest.fixture
def world() -> World:
    """Two partitions with three records each, nothing published."""
    world = World(holes=HolePolicy.TRANSACTIONAL)
    world.broker.create_topic("orders", 2)
    world.produce(ORDERS_0, 3)
    world.produce(ORDERS_1, 3)
    return world


def state_of(world: World, now: datetime = NOW) -> PipelineState:
    return survey(world.process(), now).state


def test_pipeline_lags_until_it_has_caught_up(world: World) -> None:
    found = survey(world.process(), NOW)
    assert (found.state, found.threats and found.threats.unread_records) == (PipelineState.UNREAD, 6)
    catch_up(world)
    assert state_of(world) is PipelineState.CAUGHT_UP


def test_lost_offsets_and_another_topic_are_told_with_their_error(world: World) -> None:
    catch_up(world)
    world.produce(ORDERS_0, 3)
    world.broker.expire(ORDERS_0, before=5)
    found = survey(world.process(), NOW)
    assert found.state is PipelineState.LOSS
    assert "orders[0] 3..5" in found.detail
    world.broker.delete_topic("orders")
    assert state_of(world) is PipelineState.SOURCE_CHANGED


def test_quarantine_is_told_of_a_pipeline_that_has_caught_up_and_of_one_whose_kafka_is_silent(world: World) -> None:
    world.broker.append(ORDERS_0, b"{", b"{")
    catch_up(world)
    found = survey(world.process(), NOW)
    assert (found.state, found.quarantine.records) == (PipelineState.CAUGHT_UP, 2)
    (line,) = describe_quarantine(found.quarantine)
    assert line.startswith("2 records in quarantine: 2 records: not decodable: ")
    world.broker.delete_topic("orders")
    assert survey(world.process(), NOW).quarantine == found.quarantine
    assert describe_quarantine(NOTHING) == []


def test_page_tells_of_the_quarantine_of_the_book() -> None:
    content = summarise([ErrorKind("no JSON", 3)])
    rules = World().process().rules
    assert judge(rules, Book(quarantine=content), LogState({}, {}), {}, NOW).quarantine == content


def test_blocked_batch_is_named(world: World) -> None:
    with pytest.raises(BatchBlockedError):
        run_batch.run_once(world.process(alter=lambda rows: rows[1:]), "run")
    found = survey(world.process(), NOW)
    assert (found.state, found.detail) == (PipelineState.BLOCKED, "batch 1 of orders_copy: batchledger batch 1")


def test_paused_pipeline_says_who_paused_it_unless_something_worse_is_to_be_said(world: World) -> None:
    pause(world.process(), Decision("ana@host", "the warehouse is being moved"))
    found = survey(world.process(), NOW)
    assert found.state is PipelineState.PAUSED
    assert "by ana@host since" in found.detail
    assert "the warehouse is being moved" in found.detail
    resume(world.process(), Decision("ana@host", "it has been moved"))
    catch_up(world)
    world.produce(ORDERS_0, 3)
    pause(world.process(), Decision("ana@host", "once more"))
    world.broker.expire(ORDERS_0, before=5)
    assert state_of(world) is PipelineState.LOSS


class RefusingStager:
    """Stages nothing."""

    def __init__(self, error: str) -> None:
        self._error = error

    def stage(self, attempt: Attempt) -> Staged:
        raise StagingError(self._error, batch_id=attempt.batch.batch_id)


def fail_at_staging(world: World, error: str) -> None:
    platform = replace(world.process(), make_stager=lambda: RefusingStager(error))
    with pytest.raises(StagingError):
        run_batch.run_once(platform, "failing")


def test_pipeline_whose_newest_attempt_failed_is_failing_with_the_error_until_a_batch_goes_well(world: World) -> None:
    fail_at_staging(world, "no memory. Nothing is visible.")
    fail_at_staging(world, "the disk is full. Nothing is visible.")
    found = survey(world.process(), NOW)
    assert found.state is PipelineState.FAILING
    assert found.detail == "batch 1 of orders_copy, stage step: the disk is full. Nothing is visible."
    assert found.threats is not None
    assert found.threats.unread_records == 6
    catch_up(world)
    assert state_of(world) is PipelineState.CAUGHT_UP


def test_long_error_of_a_failing_pipeline_is_told_by_its_first_sentence(world: World) -> None:
    fail_at_staging(world, "the disk /data is full. " + "It has 3.5 TB. " * 20)
    assert survey(world.process(), NOW).detail == (
        "batch 1 of orders_copy, stage step: the disk /data is full. The whole error: batchledger batch 1"
    )


def test_attempt_that_is_at_work_after_a_failed_one_is_not_failing(world: World) -> None:
    fail_at_staging(world, "the disk is full.")
    platform = world.process()
    platform.ledger.open_attempt(1, "next")
    assert state_of(world) is PipelineState.UNREAD


def test_source_that_does_not_answer_is_unknown_with_the_error(world: World) -> None:
    world.broker.is_down = True
    found = survey(world.process(), NOW)
    assert found.state is PipelineState.UNKNOWN
    assert "no broker answered" in found.detail


def plan_at(world: World, now: datetime) -> None:
    """A scheduled run that plans at that moment."""
    platform = world.process()
    assert isinstance(platform.ledger, MemoryLedger)
    plans.plan(replace(platform, ledger=replace(platform.ledger, clock=lambda: now)), "scheduled")


def test_transaction_is_stuck_when_the_last_stable_offset_stands_still_while_records_arrive(world: World) -> None:
    """Whatever the timestamps of its records are: they are the producer's own."""
    catch_up(world)
    world.broker.append_undecided(ORDERS_0, b"{}", timestamp=NOW - timedelta(days=5000))
    world.produce(ORDERS_0, 4)
    assert state_of(world, NOW) is PipelineState.CAUGHT_UP
    plan_at(world, NOW)
    world.produce(ORDERS_0, 4)
    plan_at(world, NOW + STUCK_AFTER)
    assert state_of(world, NOW + STUCK_AFTER) is PipelineState.CAUGHT_UP
    assert state_of(world, NOW + STUCK_AFTER + timedelta(seconds=1)) is PipelineState.STUCK


def test_transactions_that_follow_each_other_are_not_stuck(world: World) -> None:
    catch_up(world)
    for hour in range(3):
        world.broker.append_undecided(ORDERS_0, b"{}")
        plan_at(world, NOW + timedelta(hours=hour))
        assert state_of(world, NOW + timedelta(hours=hour, minutes=1)) is PipelineState.CAUGHT_UP
        world.broker.abort(ORDERS_0)
        run_batch.run_once(world.process(), "between")
    assert {each.held_back_at for each in world.process().ledger.load_positions("orders_copy")} == {None}


def judge_world(world: World, now: datetime, *, is_at_work: bool = False) -> PipelineHealth:
    """What is judged of what ledger and Kafka hold."""
    platform = world.process()
    batch = platform.ledger.find_open_batch(PIPELINE)
    open_batch = batch and CurrentBatch(
        batch.batch_id,
        batch.label,
        batch.state,
        platform.ledger.find_failure(batch),
        batch.attempt_run,
        is_at_work=is_at_work,
    )
    positions = tuple(platform.ledger.load_positions(PIPELINE))
    book = Book(positions, open_batch, platform.decisions.find_pause(PIPELINE))
    return judge(platform.rules, book, platform.source.read_log(platform.rules.topics), {}, now)


def lose(world: World) -> None:
    catch_up(world)
    world.produce(ORDERS_0, 3)
    world.broker.expire(ORDERS_0, before=5)


def lose_beginning_of_new_partition(world: World) -> None:
    catch_up(world)
    added = world.broker.add_partition("orders")
    world.produce(added, 3)
    world.broker.expire(added, before=2)


def recreate_topic(world: World) -> None:
    catch_up(world)
    world.broker.delete_topic("orders")
    world.broker.create_topic("orders", 2)


def go_beyond_the_end(world: World) -> None:
    catch_up(world)
    del world.broker.partitions[ORDERS_0].log[1:]


def block(world: World) -> None:
    with pytest.raises(BatchBlockedError):
        run_batch.run_once(world.process(alter=lambda rows: rows[1:]), "run")


def block_while_paused_and_stuck(world: World) -> None:
    block(world)
    world.broker.append_undecided(ORDERS_0, b"{}")
    pause(world.process(), Decision("ana@host", "look at it first"))


def hold_back(world: World, since: datetime) -> None:
    catch_up(world)
    world.broker.append_undecided(ORDERS_0, b"{}")
    plan_at(world, since)


def hold_back_while_paused(world: World) -> None:
    hold_back(world, NOW - STUCK_AFTER - timedelta(seconds=1))
    pause(world.process(), Decision("ana@host", "wait"))


def lose_topic(world: World) -> None:
    catch_up(world)
    world.broker.delete_topic("orders")


def retire_without_topic(world: World) -> None:
    catch_up(world)
    world.broker.delete_topic("orders")
    retire(world.process().decisions, PIPELINE, Retire(), Decision("ana@host", "orders has moved"))


STATES: dict[str, tuple[Callable[[World], object], PipelineState]] = {
    "nothing read yet": (lambda world: None, PipelineState.UNREAD),
    "caught up": (catch_up, PipelineState.CAUGHT_UP),
    "a loss": (lose, PipelineState.LOSS),
    "a loss in a partition that was added": (lose_beginning_of_new_partition, PipelineState.LOSS),
    "no topic yet": (lambda world: world.broker.delete_topic("orders"), PipelineState.AWAITING),
    "no topic any more": (lose_topic, PipelineState.SOURCE_CHANGED),
    "another topic": (recreate_topic, PipelineState.SOURCE_CHANGED),
    "a position beyond the end": (go_beyond_the_end, PipelineState.SOURCE_CHANGED),
    "blocked": (block, PipelineState.BLOCKED),
    "blocked, whatever else": (block_while_paused_and_stuck, PipelineState.BLOCKED),
    "failing": (lambda world: fail_at_staging(world, "the disk is full. " * 20), PipelineState.FAILING),
    "open transaction": (lambda world: hold_back(world, NOW - STUCK_AFTER), PipelineState.CAUGHT_UP),
    "stuck": (lambda world: hold_back(world, NOW - STUCK_AFTER - timedelta(seconds=1)), PipelineState.STUCK),
    "stuck and paused": (hold_back_while_paused, PipelineState.STUCK),
    "paused": (lambda world: pause(world.process(), Decision("ana@host", "wait")), PipelineState.PAUSED),
    "audited": (lambda world: stage_and_audit(world.process(), "run"), PipelineState.UNREAD),
    "retired, whatever else": (retire_without_topic, PipelineState.RETIRED),
}


@pytest.mark.parametrize(("happen", "state"), STATES.values(), ids=STATES)
def test_what_is_judged_of_ledger_and_log_is_what_a_survey_says(
    world: World, happen: Callable[[World], object], state: PipelineState
) -> None:
    happen(world)
    surveyed, judged = survey(world.process(), NOW), judge_world(world, NOW)
    assert (judged.pipeline, judged.state, judged.detail) == (PIPELINE, state, surveyed.detail)
    assert surveyed.state is state
    assert (judged.threats is None) == (surveyed.threats is None)
    if judged.threats is not None and surveyed.threats is not None:
        assert judged.threats.unread_records == surveyed.threats.unread_records
        assert judged.threats.transactions == surveyed.threats.transactions


def test_every_state_that_a_survey_can_say_is_judged_the_same() -> None:
    """Unknown is what cannot be asked, running is known only if Airflow can be asked, and a gone file has no survey."""
    assert {state for _, state in STATES.values()} == set(PipelineState) - {
        PipelineState.UNKNOWN,
        PipelineState.RUNNING,
        PipelineState.FILE_GONE,
        *STATES_OF_WATCHES,
    }


def test_pipeline_whose_batch_is_at_work_is_running_unless_something_worse_is_to_be_said(world: World) -> None:
    batch = plans.plan(world.process(), "run")
    assert batch is not None
    world.process().ledger.open_attempt(batch.batch_id, "run")
    assert judge_world(world, NOW).state is PipelineState.UNREAD
    judged = judge_world(world, NOW, is_at_work=True)
    assert (judged.state, judged.detail) == (PipelineState.RUNNING, "batch 1 of orders_copy, planned")
    pause(world.process(), Decision("ana@host", "wait"))
    assert judge_world(world, NOW, is_at_work=True).state is PipelineState.PAUSED
    world.broker.expire(ORDERS_0, before=1)
    assert judge_world(world, NOW, is_at_work=True).state is PipelineState.LOSS


def test_topic_that_the_pipeline_does_not_read_any_more_is_not_judged(world: World) -> None:
    catch_up(world)
    platform = world.process()
    old = Position(TopicPartition("left_behind", 0), 0, 5, TopicIdentity("cluster-a", "deleted since"))
    book = Book((*platform.ledger.load_positions(PIPELINE), old))
    judged = judge(platform.rules, book, platform.source.read_log(platform.rules.topics), {}, NOW)
    assert judged.state is PipelineState.CAUGHT_UP


@pytest.mark.parametrize(
    ("start", "unread"), [(StartPolicy.EARLIEST, 6), (StartPolicy.LATEST, 0), (StartPolicy.TIMESTAMP, 6)]
)
def test_unread_records_of_a_pipeline_that_has_read_nothing_are_counted_from_where_it_will_start(
    world: World, start: StartPolicy, unread: int
) -> None:
    """Where a moment lies in the log is for the first plan to find out."""
    rules = replace(world.process().rules, start=start, start_at=NOW if start is StartPolicy.TIMESTAMP else None)
    judged = judge(rules, Book(), world.process().source.read_log(("orders",)), {}, NOW)
    assert judged.threats is not None
    assert judged.threats.unread_records == unread


def test_moments_of_an_earlier_look_hold_for_the_same_position_only() -> None:
    position = Position(ORDERS_0, 0, 5, TopicIdentity("cluster", "topic"))
    held = PartitionLog(0, 12, held_back=3)
    oldest, expiry = NOW - timedelta(hours=1), NOW + timedelta(hours=1)
    seen = health(ORDERS_0, next_offset=5, end=6, oldest_unread_at=oldest, expires_at=expiry)
    expected = health(ORDERS_0, next_offset=5, end=12, high_watermark=15)
    assert look(position, held, seen) == replace(expected, oldest_unread_at=oldest, expires_at=expiry)
    assert look(position, held, replace(seen, next_offset=4)) == expected
    assert look(position, held, None) == expected


def test_moments_of_an_earlier_look_are_judged_with_what_is_held_now(world: World) -> None:
    run_batch.run_once(world.process(), "run")
    world.produce(ORDERS_0, 3)
    platform = world.process()
    book = Book(tuple(platform.ledger.load_positions(PIPELINE)))
    log = platform.source.read_log(("orders",))
    expiry = NOW + timedelta(hours=3)
    for next_offset, first in [(3, ORDERS_0), (2, None)]:
        seen = {ORDERS_0: health(ORDERS_0, next_offset=next_offset, expires_at=expiry, oldest_unread_at=NOW)}
        threats = judge(platform.rules, book, log, seen, NOW).threats
        assert threats is not None
        assert threats.unread_records == 3
        assert (threats.first_to_expire and threats.first_to_expire.partition) == first
        assert (threats.oldest_unread and threats.oldest_unread.partition) == first


def health(partition: TopicPartition, **facts: object) -> PartitionHealth:
    given = {
        "next_offset": 5, "end": 10, "high_watermark": 10, "oldest_unread_at": None, "expires_at": None, **facts,
    }  # fmt: skip
    return PartitionHealth(partition, **given)  # type: ignore[arg-type]


def test_the_first_partition_to_expire_and_the_oldest_unread_record_are_found() -> None:
    soon, later = NOW + timedelta(hours=3, minutes=12), NOW + timedelta(days=2)
    threats = find_threats(
        [
            health(ORDERS_0, oldest_unread_at=NOW - timedelta(days=5), expires_at=later),
            health(ORDERS_1, oldest_unread_at=NOW - timedelta(days=1), expires_at=soon),
        ],
        (),
        NOW,
    )
    assert threats.unread_records == 10
    assert threats.oldest_unread is not None
    assert threats.oldest_unread.partition == ORDERS_0
    assert describe_threats(threats, NOW) == ["orders[1]: the oldest unread record may expire in 3 h 12 min"]
    assert describe_threats(threats, later) == ["orders[1]: the oldest unread record may expire at any moment"]


def test_stuck_transaction_is_described_with_the_command_that_ends_it() -> None:
    since = NOW - timedelta(hours=2)
    position = Position(ORDERS_1, 0, 5, TopicIdentity("cluster", "topic"), held_back_at=10, held_back_since=since)
    threats = find_threats([health(ORDERS_1, high_watermark=1210)], [position], NOW)
    (line,) = describe_threats(threats, NOW)
    assert line.startswith("orders[1]: an open transaction holds back 1,200 offsets, for 2 h at least.\nIt is stuck: ")
    assert "abort --topic orders --partition 1 --start-offset 10" in line


def test_nothing_threatens_a_pipeline_that_has_caught_up() -> None:
    threats = find_threats([health(ORDERS_0, next_offset=10)], (), NOW)
    assert describe_threats(threats, NOW) == []
    assert (threats.unread_records, threats.transactions) == (0, ())


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0 s"), (59, "59 s"), (725, "12 min 5 s"), (273_600, "3 d 4 h"), (86_400, "1 d")]
)
def test_durations_are_told_in_their_two_largest_units(seconds: int, text: str) -> None:
    assert describe_duration(timedelta(seconds=seconds)) == text


def test_pipeline_whose_file_is_gone_is_told_with_its_open_batches_and_the_ways_on() -> None:
    content = summarise([ErrorKind("no JSON", 3)])
    left = LeftPipeline("orders", ("batch 3 (blocked)", "batch 5 (planned)"), content)
    found, advice = judge_left(left, "warehouse")
    assert (found.state, found.quarantine, found.threats) == (PipelineState.FILE_GONE, content, None)
    assert found.detail == (
        f"No pipeline file has this name, and open is batch 3 (blocked), batch 5 (planned).\n{advice}"
    )
    assert advice == "Put the file back, or end the pipeline: batchledger retire orders --reason WHY"
    elsewhere = judge_left(LeftPipeline("orders"), "other")[0].detail
    assert elsewhere.startswith("No pipeline file has this name.\n")
    assert "batchledger retire orders --connection other --reason WHY" in elsewhere
