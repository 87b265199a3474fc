"""What can be done to a pipeline and to the processes that work on it, each followed by a look at what is stored."""

import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import replace

from batchledger import run_batch
from batchledger.batch import Decision, DeliveryMode
from batchledger.decisions import accept_loss
from batchledger.errors import BatchBlockedError, LossError, TopicChangedError
from batchledger.offsets import OffsetRange, TopicPartition
from batchledger.planning import Limits
from tests.fakes.crash import SimulatedCrashError
from tests.fakes.ledger import CommitFault
from tests.fakes.work import Rows, keep_all
from tests.machine.invariants import Invariants, Slice
from tests.machine.model import Kind
from tests.machine.processes import Process, Step
from tests.machine.reach import crash_at, in_state, reply_lost
from tests.machine.worlds import TOPIC, MachineWorld

OpenWorld = Callable[[DeliveryMode, Limits], MachineWorld]

PATIENCE_RUNS = 2
BY_ANA = Decision("ana@host", "retention was too short")


class Actions(Invariants):
    """A pipeline over one topic. ``reached`` counts what has happened, over all machines that share it."""

    def __init__(self, open_world: OpenWorld, delivery: DeliveryMode, reached: Counter[str] | None = None) -> None:
        super().__init__(delivery)
        self.reached = Counter[str]() if reached is None else reached
        self.world: MachineWorld | None = None
        self._open_world = open_world
        self._alarms = 0

    def open(self, origins: list[int], limit: int, published: int) -> None:
        """Begin: a few records lie in each partition, and so many batches are published already."""
        self.world = self._open_world(self.delivery, Limits(max_records=limit))
        self.world.broker.create_topic(TOPIC, len(origins))
        for origin in origins:
            partition = self.model.add_partition(origin)
            self.world.broker.append_holes(named(partition), origin)
            self.world.broker.expire(named(partition), origin)
            self.write(partition, Kind.GOOD, 20)
        for number in range(published):
            run_batch.run_once(self.world.platform(), f"before {number}")
        self.look()

    @property
    def alive(self) -> list[Process]:
        """The processes that are paused."""
        return [each for each in self.processes if not each.is_over]

    @property
    def open_batch(self) -> int | None:
        """The batch that is neither published nor discarded."""
        open_batches = [n for n, each in self.stored.batches.items() if each.state not in ("published", "discarded")]
        assert len(open_batches) <= 1, open_batches
        return open_batches[0] if open_batches else None

    @property
    def is_blocked(self) -> bool:
        """Whether the open batch waits for a person."""
        return self.open_batch is not None and self.stored.batches[self.open_batch].state == "blocked"

    @property
    def losses(self) -> dict[int, tuple[int, int]]:
        """By partition, what retention removed before it was read."""
        return {} if self.model.is_recreated else self.model.find_losses(self.stored.next_offsets)

    def write(self, partition: int, kind: Kind, count: int) -> None:
        """Let a producer write so many records."""
        ids = self.model.write(partition, kind, count)
        values = map(encode, ids) if kind is Kind.GOOD else (b"no JSON" for _ in ids)
        self.world.broker.append(named(partition), *values)

    def decide(self, partition: int, outcome: Kind) -> None:
        """End the open transaction of a partition."""
        self.model.decide(partition, outcome)
        broker = self.world.broker
        (broker.commit if outcome is Kind.GOOD else broker.abort)(named(partition))

    def expire(self, partition: int, before: int) -> None:
        """Let retention remove what lies below ``before``."""
        self.model.log_start[partition] = max(before, self.model.log_start[partition])
        self.world.broker.expire(named(partition), self.model.log_start[partition])

    def accept(self, partition: int, start: int, until: int) -> None:
        """Let a person give up these offsets, and what the open batch holds of them."""
        accept_loss(self.world.platform(), [OffsetRange(named(partition), start, until)], BY_ANA, self.open_batch)
        self.model.give_up(partition, start, until)
        self.look()

    def launch(self, kind: str, alter: Callable[[Rows], Rows] = keep_all) -> Process:
        """Return a new run, which has not moved yet; ``alter`` is its transform."""
        return self._add(Process(f"{kind}-{len(self.processes)}", self.world.platform(alter)))

    def relaunch(self, process: Process) -> Process:
        """Return a second execution of the step that a run is at, or has ended with."""
        return self._add(Process(process.run, self.world.platform(), process.batch_id, process.step))

    def take_by_hand(self) -> Process:
        """Return a run by which a person takes the open batch again."""
        return self._add(Process(f"by-hand-{len(self.processes)}", self.world.platform(), self.open_batch, Step.STAGE))

    def crash_at(self, process: Process, point: str) -> None:
        """Let a process go on until it dies at a crash point; one that does not get there ends as it would anyway."""
        process.fatal_point = point
        self.let(process)

    def let(self, process: Process, slices: int = sys.maxsize, until: str | None = None) -> None:
        """Let a process go on for so many slices, until it pauses at ``until``, or until it ends."""
        if self._alarms >= PATIENCE_RUNS:
            self._answer_the_alarms()
        left = slices
        while not process.is_over and left > 0:
            left -= 1
            paused_at, held, fault, before = process.paused_at, process.holds, process.commit_fault, self.stored
            process.advance()
            self.look()
            self.slices.append(
                Slice(
                    process=process,
                    paused_at=paused_at,
                    held=held,
                    step=process.step,
                    error=process.error,
                    has_lost_reply=process.commit_fault is not fault,
                    before=before,
                    after=self.stored,
                )
            )
            if fault is not None and process.commit_fault is not fault:
                self.reached[reply_lost(fault, process.commits + (fault is CommitFault.BEFORE))] += 1
            if process.paused_at == until:
                break
        if process.has_published:
            self.model.acknowledge(self.stored.batches[process.batch_id].spans)
        if isinstance(process.error, SimulatedCrashError):
            self.reached[crash_at(str(process.error))] += 1
        self._alarms += isinstance(process.error, LossError | BatchBlockedError)

    def look(self) -> None:
        """See what is stored now."""
        earlier, self.stored = self.stored, self.world.read()
        for number, batch in self.stored.batches.items():
            if number not in earlier.batches or earlier.batches[number].state != batch.state:
                self.reached[in_state(batch.state)] += 1

    def _add(self, process: Process) -> Process:
        self.processes.append(process)
        return process

    def _answer_the_alarms(self) -> None:
        """One loss, or one blocked batch, must not be all that the rest of a schedule meets."""
        self._alarms = 0
        for partition, (start, log_start) in self.losses.items():
            self.accept(partition, start, log_start)
        if self.is_blocked:
            self.let(self.take_by_hand())

    # The end: everything heals, sleepers wake up, and all that was written must be accounted for.

    def teardown(self) -> None:
        try:
            # A failure that has been found already is what counts.
            if self.world is not None and sys.exc_info()[0] is None:
                self.come_to_rest()
        finally:
            for process in self.alive:
                process.kill()
            if self.world is not None:
                self.world.close()

    def come_to_rest(self) -> None:
        """Decide what is undecided, drain, wake the sleepers up, drain again; compare everything that was written."""
        for partition in list(self.model.undecided):
            self.decide(partition, Kind.GOOD)
        self._drain()
        for process in self.alive:
            self.let(process)
            self.all_invariants_hold()
        self._drain()
        self.all_invariants_hold()
        if self.delivery is DeliveryMode.EXACTLY_ONCE:
            verification = self.world.verify()
            assert verification.holds, verification.findings
        if not self.model.is_recreated:
            ends = {partition: self.model.end(partition) for partition in self.model.log}
            assert self.stored.next_offsets == ends, f"not everything was read: {self.stored.next_offsets} of {ends}"

    def _drain(self) -> None:
        """Run healthy processes until nothing is left; a person takes blocked batches again and accepts losses."""
        if self.model.is_recreated:
            self._expect_refusal()
            return
        platform = self.world.platform()
        platform = replace(platform, rules=replace(platform.rules, limits=Limits(max_records=1000)))
        for _ in range(sum(map(len, self.model.log.values())) + len(self.model.log)):
            for partition, (start, log_start) in self.losses.items():
                self.accept(partition, start, log_start)
            try:
                batch = run_batch.run_once(platform, "drain")
            except BatchBlockedError:
                batch = run_batch.run_once(platform, "drain", self.open_batch)
            self.look()
            if batch is None:
                return
        raise AssertionError("the pipeline does not come to rest")

    def _expect_refusal(self) -> None:
        before = self.stored.contents
        for run in range(2):
            try:
                batch = run_batch.run_once(self.world.platform(), f"refused {run}", self.open_batch)
            except TopicChangedError:
                continue
            raise AssertionError(f"{batch} was read from another topic")
        self.look()
        assert self.stored.contents == before


def named(partition: int) -> TopicPartition:
    """The partition as the platform knows it."""
    return TopicPartition(TOPIC, partition)


def encode(message_id: str) -> bytes:
    """A record that can be decoded."""
    return f'{{"message_id": "{message_id}"}}'.encode()
