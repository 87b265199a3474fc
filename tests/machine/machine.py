"""The rules: what producers, retention, operators, schedulers, crashes and the network may do, in any order."""

import sys
from collections.abc import Callable
from dataclasses import replace

from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule

from batchledger import run_batch
from batchledger.batch import Decision, DeliveryMode
from batchledger.decisions import accept_loss
from batchledger.errors import BatchBlockedError, TopicChangedError
from batchledger.offsets import OffsetRange, TopicPartition
from batchledger.planning import Limits
from tests.fakes.crash import crash_points
from tests.fakes.ledger import CommitFault
from tests.machine.invariants import Invariants, Slice
from tests.machine.model import Kind
from tests.machine.processes import FENCED_WRITES, Process, Step, pauses
from tests.machine.worlds import TOPIC, MachineWorld

OpenWorld = Callable[[DeliveryMode, Limits], MachineWorld]

MOST_PARTITIONS = 4
MOST_ALIVE = 4
REMEMBERED = 5
BY_ANA = Decision("ana@host", "retention was too short")

PARTITIONS = st.runner().flatmap(lambda machine: st.sampled_from(sorted(machine.model.log)))
DECIDED = st.runner().flatmap(lambda machine: st.sampled_from(machine.decided))
UNDECIDED = st.runner().flatmap(lambda machine: st.sampled_from(sorted(machine.model.undecided)))
READ = st.runner().flatmap(lambda machine: st.sampled_from(machine.read))
UNREAD = st.runner().flatmap(lambda machine: st.sampled_from(machine.unread))
ALIVE = st.runner().flatmap(lambda machine: st.sampled_from(machine.alive))
RECENT = st.runner().flatmap(lambda machine: st.sampled_from(machine.processes[-REMEMBERED:]))


class PlatformMachine(Invariants):
    """A pipeline over a topic of one to four partitions, and up to four processes that work on it at once."""

    def __init__(self, open_world: OpenWorld, delivery: DeliveryMode) -> None:
        super().__init__(delivery)
        self._open_world = open_world
        self.world: MachineWorld | None = None
        self.processes: list[Process] = []

    @property
    def alive(self) -> list[Process]:
        """The processes that are paused."""
        return [each for each in self.processes if not each.is_over]

    @property
    def decided(self) -> list[int]:
        """The partitions without an open transaction."""
        return [each for each in self.model.log if each not in self.model.undecided]

    @property
    def read(self) -> list[int]:
        """The partitions that hold records which were read already."""
        starts, next_offsets = self.model.log_start, self.stored.next_offsets
        return [] if self.model.is_recreated else [each for each in next_offsets if starts[each] < next_offsets[each]]

    @property
    def unread(self) -> list[int]:
        """The partitions that hold records which nobody has read; none before the first plan."""
        if self.model.is_recreated or not self.stored.next_offsets:
            return []
        ends = {each: self.model.readable_end(each) for each in self.model.log}
        starts = self.model.log_start
        return [each for each in ends if max(starts[each], self.stored.next_offsets.get(each, 0)) < ends[each]]

    @initialize(origins=st.lists(st.integers(0, 2), min_size=1, max_size=2), limit=st.sampled_from([3, 10]))
    def begin(self, origins: list[int], limit: int) -> None:
        """A few records lie there, and two schedulers begin to plan."""
        self.world = self._open_world(self.delivery, Limits(max_records=limit))
        self.world.broker.create_topic(TOPIC, len(origins))
        for origin in origins:
            partition = self.model.add_partition(origin)
            self.world.broker.append_holes(_named(partition), origin)
            self.world.broker.expire(_named(partition), origin)
            self._write(partition, Kind.GOOD, 8)
        for _ in range(2):
            self.start_run()

    # Producers, retention and administrators.

    @precondition(lambda self: not self.model.is_recreated)
    @rule(partition=PARTITIONS, count=st.integers(1, 5), kind=st.sampled_from([Kind.GOOD, Kind.UNDECODABLE]))
    def produce(self, partition: int, count: int, kind: Kind) -> None:
        self._write(partition, kind, count)

    @precondition(lambda self: self.decided and not self.model.is_recreated)
    @rule(partition=DECIDED, count=st.integers(1, 3))
    def begin_a_transaction(self, partition: int, count: int) -> None:
        """Nothing from here on can be read until it is decided; others may write behind it."""
        ids = self.model.begin(partition, count)
        self.world.broker.append_undecided(_named(partition), *map(_encode, ids))

    @precondition(lambda self: self.model.undecided and not self.model.is_recreated)
    @rule(partition=UNDECIDED, outcome=st.sampled_from([Kind.GOOD, Kind.ABORTED]))
    def decide_a_transaction(self, partition: int, outcome: Kind) -> None:
        self.model.decide(partition, outcome)
        broker = self.world.broker
        (broker.commit if outcome is Kind.GOOD else broker.abort)(_named(partition))

    @precondition(lambda self: self.read)
    @rule(partition=READ)
    def expire_what_was_read(self, partition: int) -> None:
        self._expire(partition, self.stored.next_offsets[partition])

    @precondition(lambda self: self.unread)
    @rule(partition=UNREAD, data=st.data())
    def expire_what_was_not_read(self, partition: int, data: st.DataObject) -> None:
        first = max(self.model.log_start[partition], self.stored.next_offsets.get(partition, 0)) + 1
        self._expire(partition, data.draw(st.integers(first, self.model.readable_end(partition))))

    @precondition(lambda self: len(self.model.log) < MOST_PARTITIONS and not self.model.is_recreated)
    @precondition(lambda self: self.stored.next_offsets)
    @rule()
    def add_partition(self) -> None:
        self.model.add_partition()
        self.world.broker.add_partition(TOPIC)

    @precondition(lambda self: len(self.stored.published) > 2 and not self.model.is_recreated)
    @rule(count=st.integers(0, 30))
    def recreate_topic(self, count: int) -> None:
        """Other records lie under the same offsets from here on; nothing of them may ever be published."""
        self.model.is_recreated = True
        self.model.undecided.clear()
        self.world.broker.delete_topic(TOPIC)
        for partition in self.world.broker.create_topic(TOPIC, len(self.model.log)):
            self.world.broker.append(partition, *(_encode(f"another topic's {offset}") for offset in range(count)))

    # Schedulers and people.

    @precondition(lambda self: len(self.alive) < MOST_ALIVE)
    @rule()
    def start_run(self) -> None:
        self._start(Process(f"run-{len(self.processes)}", self.world.platform()))

    @precondition(lambda self: self.processes and len(self.alive) < MOST_ALIVE)
    @rule(process=RECENT)
    def run_the_step_again(self, process: Process) -> None:
        """As Airflow does when it believes that the task has died; the first one may still be alive."""
        self._start(Process(process.run, self.world.platform(), process.batch_id, process.step))

    @precondition(lambda self: self._open_batch is not None and len(self.alive) < MOST_ALIVE)
    @rule()
    def take_the_open_batch_by_hand(self) -> None:
        self._start(self._by_hand())

    @precondition(lambda self: self._open_batch is not None and self.alive)
    @rule()
    def overtake(self) -> None:
        """Somebody takes the open batch from whoever is at work on it, and finishes it; the others sleep meanwhile."""
        process = self._by_hand()
        self.processes.append(process)
        self._let(process)

    @precondition(lambda self: self._losses and not self.model.is_recreated)
    @rule(data=st.data())
    def accept_a_loss(self, data: st.DataObject) -> None:
        partition, (start, log_start) = data.draw(st.sampled_from(sorted(self._losses.items())))
        self._accept_loss(partition, start, data.draw(st.integers(start + 1, log_start)))

    # Time, crashes and the network.

    @precondition(lambda self: self.alive)
    @rule(process=ALIVE)
    def go_on(self, process: Process) -> None:
        self._let(process, slices=1)

    @precondition(lambda self: self.alive)
    @rule(process=ALIVE, data=st.data())
    def go_on_until(self, process: Process, data: st.DataObject) -> None:
        ahead = [each for each in pauses(self.delivery) if each not in process.passed]
        self._let(process, until=data.draw(st.sampled_from(ahead or ["the end"])))

    @precondition(lambda self: self.alive)
    @rule(process=ALIVE, write=st.sampled_from(FENCED_WRITES))
    def go_on_until_it_writes(self, process: Process, write: str) -> None:
        self._let(process, until=write)

    @precondition(lambda self: self.alive)
    @rule(process=ALIVE)
    def finish(self, process: Process) -> None:
        self._let(process)

    @precondition(lambda self: self.alive)
    @rule(process=ALIVE, data=st.data())
    def crash(self, process: Process, data: st.DataObject) -> None:
        ahead = [each for each in crash_points(self.delivery) if each not in process.passed]
        process.fatal_point = data.draw(st.sampled_from(ahead or ["the end"]))
        self._let(process)

    @precondition(lambda self: self.alive)
    @rule(process=ALIVE)
    def kill(self, process: Process) -> None:
        process.kill()
        self._look()

    @precondition(lambda self: self.alive)
    @rule(process=ALIVE, moment=st.sampled_from(CommitFault))
    def lose_a_commit_reply(self, process: Process, moment: CommitFault) -> None:
        process.commit_fault = moment
        self._let(process)

    @precondition(lambda self: any(each.state in ("staged", "audited") for each in self.stored.batches.values()))
    @rule()
    def crash_the_database(self) -> None:
        """The database comes back without the rows of its unlogged tables."""
        self.world.lose_staging()

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
            self.decide_a_transaction(partition, Kind.GOOD)
        self._drain()
        for process in self.alive:
            self._let(process)
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
        for _ in range(sum(map(len, self.model.log.values())) + MOST_PARTITIONS):
            for partition, (start, log_start) in self._losses.items():
                self._accept_loss(partition, start, log_start)
            try:
                batch = run_batch.run_once(platform, "drain")
            except BatchBlockedError:
                batch = run_batch.run_once(platform, "drain", self._open_batch)
            self._look()
            if batch is None:
                return
        raise AssertionError("the pipeline does not come to rest")

    def _expect_refusal(self) -> None:
        before = self.stored.contents
        for run in range(2):
            try:
                batch = run_batch.run_once(self.world.platform(), f"refused {run}", self._open_batch)
            except TopicChangedError:
                continue
            raise AssertionError(f"{batch} was read from another topic")
        self._look()
        assert self.stored.contents == before

    # What the rules are made of.

    @property
    def _open_batch(self) -> int | None:
        open_batches = [n for n, each in self.stored.batches.items() if each.state not in ("published", "discarded")]
        assert len(open_batches) <= 1, open_batches
        return open_batches[0] if open_batches else None

    def _write(self, partition: int, kind: Kind, count: int) -> None:
        ids = self.model.write(partition, kind, count)
        values = map(_encode, ids) if kind is Kind.GOOD else (b"no JSON" for _ in ids)
        self.world.broker.append(_named(partition), *values)

    def _expire(self, partition: int, before: int) -> None:
        self.model.log_start[partition] = max(before, self.model.log_start[partition])
        self.world.broker.expire(_named(partition), self.model.log_start[partition])

    @property
    def _losses(self) -> dict[int, tuple[int, int]]:
        return self.model.find_losses(self.stored.next_offsets)

    def _accept_loss(self, partition: int, start: int, until: int) -> None:
        accept_loss(self.world.platform(), [OffsetRange(_named(partition), start, until)], BY_ANA, self._open_batch)
        self.model.give_up(partition, start, until)
        self._look()

    def _by_hand(self) -> Process:
        return Process(f"by-hand-{len(self.processes)}", self.world.platform(), self._open_batch, Step.STAGE)

    def _start(self, process: Process) -> None:
        self.processes.append(process)
        self._let(process, slices=1)

    def _let(self, process: Process, slices: int = sys.maxsize, until: str | None = None) -> None:
        """Let a process go on for so many slices, until it pauses at ``until``, or until it ends."""
        self.slices = []
        while not process.is_over and len(self.slices) < slices:
            paused_at, held, fault, before = process.paused_at, process.holds, process.commit_fault, self.stored
            process.advance()
            self._look()
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
            if process.paused_at == until:
                break
        if process.has_published:
            self.model.acknowledge(self.stored.batches[process.batch_id].spans)

    def _look(self) -> None:
        self.stored = self.world.read()


def _named(partition: int) -> TopicPartition:
    return TopicPartition(TOPIC, partition)


def _encode(message_id: str) -> bytes:
    return f'{{"message_id": "{message_id}"}}'.encode()
