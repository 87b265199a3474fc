"""A batch whose duplicates another one has changed since its audit: audited again when it is published, and exact."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from itertools import count

import pytest

from batchledger.ledger.evidence import PostgresEvidence
from batchledger.lifecycle import plans, run_batch
from batchledger.lifecycle.platform import Platform
from batchledger.model.balance import WitnessedRange
from batchledger.model.batch import Attempt, Batch, BatchState, Decision, DeliveryMode, Lane
from batchledger.model.errors import AuditOutdatedError, FencedError, StagingLostError
from batchledger.model.offsets import OffsetRange, TopicPartition
from batchledger.model.presence import NO_PATIENCE
from batchledger.model.records.rules import Deduplication
from batchledger.planning.live import StartPolicy
from batchledger.planning.replay import Replay
from tests.contract.lives.world import StoredWorld
from tests.fakes.crash import Interrupt, SimulatedCrashError
from tests.fakes.work import MemoryAuditor
from tests.fakes.world import stage_and_audit

ORDERS_0 = TopicPartition("orders", 0)
BY_ANA = Decision("ana", "history")


@pytest.fixture
def world() -> StoredWorld:
    """Six records that the pipeline has not read, in which three ids come twice, and two new ones with two of them."""
    world = StoredWorld(
        start=StartPolicy.LATEST,
        deduplication=Deduplication(("message_id",), remember=timedelta(days=30)),
    )
    world.broker.create_topic("orders", 1)
    send(world, "abcabc")
    assert plans.plan(world.process(), "first") is None
    send(world, "ab")
    return world


def send(world: StoredWorld, ids: str) -> None:
    world.broker.append(ORDERS_0, *(f'{{"message_id": "{each}"}}'.encode() for each in ids))


def audited_replay(world: StoredWorld, start: int, until: int, run: str) -> Batch:
    asked = Replay((OffsetRange(ORDERS_0, start, until),))
    batch = plans.plan_replay(world.process(), asked, run, BY_ANA, run)
    assert batch is not None
    run_batch.stage(world.process(), batch.batch_id, run)
    return run_batch.audit(world.process(), batch.batch_id, run)


def publish(platform: Platform, batch: Batch, run: str) -> Batch:
    return run_batch.publish(platform, batch.batch_id, run)


def audited_and_outdated(world: StoredWorld, lane: Lane = Lane.REPLAY) -> Batch:
    """A batch of run ``late`` whose ids a replay has published since it was audited."""
    late = stage_and_audit(world.process(), "late") if lane is Lane.LIVE else audited_replay(world, 3, 6, "late")
    publish(world.process(), audited_replay(world, 0, 3, "early"), "early")
    return late


def copies_by_id(world: StoredWorld) -> Counter[str]:
    return Counter(row["message_id"] for row in world.read_target())


def stored_duplicates(world: StoredWorld, batch: Batch) -> int:
    return sum(each.duplicates for each in world.warehouse.decisions.load_balances(batch.batch_id))


def test_replays_of_history_in_parallel_publish_each_id_once_whoever_is_first(world: StoredWorld) -> None:
    late = audited_and_outdated(world)
    assert stored_duplicates(world, late) == 0
    published = publish(world.process(), late, "late")
    assert (published.state, published.attempt) == (BatchState.PUBLISHED, 1)
    assert copies_by_id(world) == Counter("abc")
    assert stored_duplicates(world, late) == 3
    assert world.staging_tables() == []


@pytest.mark.parametrize("delivery", DeliveryMode)
def test_live_batch_is_published_although_a_replay_has_changed_its_duplicates(
    world: StoredWorld, delivery: DeliveryMode
) -> None:
    world.delivery = delivery
    late = audited_and_outdated(world, Lane.LIVE)
    assert publish(world.process(), late, "late").state is BatchState.PUBLISHED
    assert copies_by_id(world) == Counter("abc")
    assert stored_duplicates(world, late) == 2


@pytest.mark.parametrize("lane", Lane)
def test_crash_after_the_second_audit_leaves_an_audited_batch_that_its_run_publishes(
    world: StoredWorld, lane: Lane
) -> None:
    late = audited_and_outdated(world, lane)
    with pytest.raises(SimulatedCrashError):
        publish(world.process(die_at("audited")), late, "late")
    assert world.process().ledger.load_batch(late.batch_id).state is BatchState.AUDITED
    assert copies_by_id(world) == Counter("abc")
    assert publish(world.process(), late, "late").attempt == 1
    assert copies_by_id(world) == Counter("abc")


def test_crash_after_the_second_audit_and_then_another_run(world: StoredWorld) -> None:
    late = audited_and_outdated(world)
    with pytest.raises(SimulatedCrashError):
        publish(world.process(die_at("audited")), late, "late")
    taken = run_batch.run_once(world.process(), "other", late.batch_id)
    assert taken is not None
    assert taken.attempt == 2
    assert copies_by_id(world) == Counter("abc")


def test_audit_that_is_outdated_time_after_time_ends_with_an_error_that_a_retry_gets_over(world: StoredWorld) -> None:
    late = audited_and_outdated(world, Lane.LIVE)
    looked = count()

    def forget_or_remember(point: str) -> None:
        """Another batch, whenever this one has been audited."""
        if point == "audited":
            world.forget_keys(days=-999 if next(looked) % 2 == 0 else 999)

    with pytest.raises(AuditOutdatedError) as outdated:
        publish(world.process(forget_or_remember), late, "late")
    assert outdated.value.retryable
    assert world.process().ledger.load_batch(late.batch_id).state is BatchState.AUDITED
    assert publish(world.process(), late, "late").state is BatchState.PUBLISHED


@dataclass(frozen=True)
class OvertakenEvidence(PostgresEvidence):
    """Evidence whose reader is always a moment later than ``act``."""

    act: Callable[[], object] = lambda: None

    def summarise(self, attempt: Attempt) -> Sequence[WitnessedRange]:
        self.act()
        return super().summarise(attempt)


@pytest.mark.parametrize("moment", ["before it looks", "before it stores", "after it has stored"])
def test_twin_that_publishes_while_the_batch_is_audited_again_is_not_contradicted(
    world: StoredWorld, moment: str
) -> None:
    late = audited_and_outdated(world)
    platform = world.process()

    def twin() -> None:
        publish(world.process(), late, "late")

    if moment == "before it looks":
        platform = replace(platform, evidence=OvertakenEvidence(world.dsn, twin))
    elif moment == "before it stores":
        platform = replace(platform, make_auditor=lambda: (twin(), MemoryAuditor())[1])
    else:
        platform = replace(platform, crash=Interrupt("audited", twin))
    assert publish(platform, late, "late").state is BatchState.PUBLISHED
    assert copies_by_id(world) == Counter("abc")


def test_newer_attempt_fences_the_one_that_audits_again(world: StoredWorld) -> None:
    world.patience = NO_PATIENCE
    late = audited_and_outdated(world)

    def take_over() -> None:
        run_batch.run_once(world.process(), "other", late.batch_id)

    platform = replace(world.process(), make_auditor=lambda: (take_over(), MemoryAuditor())[1])
    with pytest.raises(FencedError, match="Attempt 2 of run other"):
        publish(platform, late, "late")
    assert copies_by_id(world) == Counter("abc")


@pytest.mark.parametrize(
    ("lane", "advice"),
    [(Lane.LIVE, "The next run stages the batch again"), (Lane.REPLAY, "batchledger run pipeline_")],
)
def test_message_of_lost_staging_says_who_stages_the_batch_again(world: StoredWorld, lane: Lane, advice: str) -> None:
    """No next run takes a replay."""
    if lane is Lane.LIVE:
        batch = plans.plan(world.process(), "run")
    else:
        batch = plans.plan_replay(world.process(), Replay((OffsetRange(ORDERS_0, 3, 6),)), "run", BY_ANA, "run")
    assert batch is not None
    run_batch.stage(world.process(), batch.batch_id, "run")
    world.warehouse.lose_staging()
    with pytest.raises(StagingLostError, match=advice):
        run_batch.audit(world.process(), batch.batch_id, "run")


def die_at(fatal: str) -> Callable[[str], None]:
    def crash(point: str) -> None:
        if point == fatal:
            raise SimulatedCrashError(point)

    return crash
