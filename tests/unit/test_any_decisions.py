"""Any sequence of runs, replays and decisions keeps every invariant, and ends in the table that the topic says."""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from batchledger.lifecycle import decisions, plans, run_batch
from batchledger.model.batch import BatchState, Decision, DeliveryMode
from batchledger.model.errors import BatchBlockedError, DecisionRefusedError
from batchledger.model.offsets import OffsetRange, TopicPartition
from batchledger.model.presence import NO_PATIENCE
from batchledger.planning.live import Limits, StartPolicy
from batchledger.planning.replay import Replay
from batchledger.planning.rewind import Rewind
from tests.fakes.crash import CrashOnce, SimulatedCrashError
from tests.fakes.world import World, assert_exactly_once, catch_up

PARTITIONS = [TopicPartition("orders", number) for number in range(2)]
BY_ANA = Decision("ana@host", "because")
PARTS = st.integers(0, 100)


class Decisions(RuleBasedStateMachine):
    """One pipeline; whatever is decided, nothing that was skipped comes back by itself."""

    make_world: Callable[[], World] = World
    drops_duplicates = False

    def __init__(self) -> None:
        super().__init__()
        self.world = type(self).make_world()
        # Every rule is a run of its own, and no other run waits for it.
        self.world.patience = NO_PATIENCE
        self.world.broker.create_topic("orders", len(PARTITIONS))
        self.runs = 0
        for partition in PARTITIONS:
            self.world.produce(partition, 6)
        self.run()

    def name(self) -> str:
        self.runs += 1
        return f"run-{self.runs}"

    def next_offsets(self) -> dict[TopicPartition, int]:
        return {
            each.partition: each.next_offset for each in self.world.process().ledger.load_positions(self.world.pipeline)
        }

    def has_visible_rows(self) -> bool:
        """Whether the open batch is between its two commits."""
        platform = self.world.process()
        batch = platform.ledger.find_open_batch(self.world.pipeline)
        return batch is not None and platform.ledger.has_rows(batch.batch_id)

    @contextmanager
    def deciding(self) -> Iterator[None]:
        """A decision is refused only if no batch would account for rows that are visible."""
        try:
            yield
        except DecisionRefusedError:
            assert self.has_visible_rows()

    @rule(partition=st.sampled_from(PARTITIONS), count=st.integers(1, 5))
    def produce(self, partition: TopicPartition, count: int) -> None:
        self.world.produce(partition, count)

    @rule()
    def run(self) -> None:
        batch = self.world.process().ledger.find_open_batch(self.world.pipeline)
        run_batch.run_once(self.world.process(), self.name(), batch.batch_id if batch else None)

    @rule()
    def leave_a_batch_open(self) -> None:
        name, platform = self.name(), self.world.process()
        batch = platform.ledger.find_open_batch(self.world.pipeline) or plans.plan(platform, name)
        if batch is not None:
            run_batch.stage(platform, batch.batch_id, name)
            run_batch.audit(platform, batch.batch_id, name)

    @rule()
    def leave_a_batch_blocked(self) -> None:
        platform = self.world.process(alter=lambda rows: rows[1:])
        if platform.ledger.find_open_batch(self.world.pipeline) is None:
            try:
                run_batch.run_once(platform, self.name())
            except BatchBlockedError:
                return

    @rule()
    def leave_a_batch_between_its_commits(self) -> None:
        if self.world.delivery is not DeliveryMode.AT_LEAST_ONCE or not self.drops_duplicates:
            return
        batch = self.world.process().ledger.find_open_batch(self.world.pipeline)
        crashing = self.world.process(CrashOnce("between_commits"))
        try:
            run_batch.run_once(crashing, self.name(), batch.batch_id if batch else None)
        except SimulatedCrashError:
            return

    @rule(part=PARTS, length=st.integers(1, 6), partition=st.sampled_from(PARTITIONS))
    def replay(self, part: int, length: int, partition: TopicPartition) -> None:
        end = self.world.broker.partitions[partition].end
        start = part % end
        range_ = OffsetRange(partition, start, min(end, start + length))
        name = self.name()
        batch = plans.plan_replay(self.world.process(), Replay((range_,)), name, BY_ANA, name)
        assert batch is not None
        run_batch.take_through(self.world.process(), batch.batch_id, name)

    @rule(part=PARTS, partition=st.sampled_from(PARTITIONS))
    def rewind(self, part: int, partition: TopicPartition) -> None:
        at = self.next_offsets()[partition]
        with self.deciding():
            decisions.rewind(self.world.process(), Rewind({partition: part % (at + 1)}), BY_ANA)

    @rule()
    def rewind_and_truncate(self) -> None:
        decisions.rewind(self.world.process(), Rewind(StartPolicy.EARLIEST, truncate=True), BY_ANA)
        assert self.world.times_published() == Counter()

    @rule(partition=st.sampled_from(PARTITIONS), length=st.integers(1, 3))
    def skip(self, partition: TopicPartition, length: int) -> None:
        at, end = self.next_offsets()[partition], self.world.broker.partitions[partition].end
        if at == end:
            return
        open_batch = self.world.process().ledger.find_open_batch(self.world.pipeline)
        # Named, the rows would stay, and the proof would say so for ever.
        named = None if open_batch is None or self.has_visible_rows() else open_batch.batch_id
        range_ = OffsetRange(partition, at, min(end, at + length))
        with self.deciding():
            decisions.skip(self.world.process(), [range_], BY_ANA, named)

    @rule(is_accepted=st.booleans())
    def decide_about_the_open_batch(self, is_accepted: bool) -> None:
        batch = self.world.process().ledger.find_open_batch(self.world.pipeline)
        if batch is not None:
            is_acceptable = batch.state is BatchState.BLOCKED or self.has_visible_rows()
            decide = decisions.accept if is_accepted and is_acceptable else decisions.discard
            with self.deciding():
                decide(self.world.process(), batch.batch_id, BY_ANA)

    @invariant()
    def the_proof_holds(self) -> None:
        if self.has_visible_rows():
            return  # Its rows are for the proof after the next run.
        verification = self.world.process().prove()
        assert verification.holds, verification.findings

    def teardown(self) -> None:
        """What was given up comes back by a rewind; then the table is what the topic says."""
        self.run()
        decisions.rewind(self.world.process(), Rewind(StartPolicy.EARLIEST), BY_ANA)
        catch_up(self.world)
        self.the_proof_holds()
        assert_exactly_once(self.world)


WORLDS: dict[str, Callable[[], World]] = {
    str(delivery): partial(World, limits=Limits(max_records=5), delivery=delivery) for delivery in DeliveryMode
}


@pytest.mark.parametrize("make_world", WORLDS.values(), ids=WORLDS)
def test_any_sequence_of_decisions_keeps_the_invariants_and_ends_in_the_table_of_the_topic(
    make_world: Callable[[], World],
) -> None:
    machine = type("OfThisWorld", (Decisions,), {"make_world": staticmethod(make_world)})
    run_state_machine_as_test(machine, settings=settings(max_examples=20, stateful_step_count=15, deadline=None))
