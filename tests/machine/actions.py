"""What can be done to a pipeline and to the processes that work on it, each followed by a look at what is stored."""

import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime

from batchledger.lifecycle import run_batch
from batchledger.lifecycle.decisions import accept_loss
from batchledger.model.batch import Decision, DeliveryMode, Lane
from batchledger.model.errors import BatchBlockedError, ExpiredError, LossError, TopicChangedError
from batchledger.model.offsets import OffsetRange, TopicPartition
from batchledger.planning.live import Limits
from batchledger.planning.replay import Replay
from tests.fakes.crash import SimulatedCrashError
from tests.fakes.ledger import CommitFault
from tests.machine.invariants import Invariants, Slice
from tests.machine.model import Kind, spell_out
from tests.machine.processes import Process, Request, Step
from tests.machine.reach import (
    AHEAD,
    BEFORE_ORIGIN,
    EXPIRED_WHEN_ASKED,
    EXPIRED_WHEN_STORED,
    REPAIRED,
    crash_at,
    in_state,
    reply_lost,
    took_over,
)
from tests.machine.releases import FIRST, Release, encode
from tests.machine.stored import Span, StoredBatch
from tests.machine.worlds import BEFORE_START, TOPIC, MachineWorld

OpenWorld = Callable[[DeliveryMode, Limits], MachineWorld]

PATIENCE_RUNS = 2
NEVER = datetime.min.replace(tzinfo=UTC)
BY_ANA = Decision("ana@host", "retention was too short")


class Actions(Invariants):
    """A pipeline over one topic. ``reached`` counts what has happened, over all machines that share it."""

    def __init__(self, open_world: OpenWorld, delivery: DeliveryMode, reached: Counter[str] | None = None) -> None:
        super().__init__(delivery)
        self.reached = Counter[str]() if reached is None else reached
        self.world: MachineWorld | None = None
        self._open_world = open_world
        self._alarms = 0
        self._release_by_attempt: dict[tuple[int, int], Release] = {}

    def open(self, gone: list[int], old: int, limit: int, published: int) -> None:
        """Begin: a few records lie in each partition, and so many batches are published already.

        The first offsets of each partition are ``gone``; ``old`` records behind them are from before the pipeline
        starts, so that only a replay can publish them.
        """
        self.world = self._open_world(self.delivery, Limits(max_records=limit))
        self.world.broker.create_topic(TOPIC, len(gone))
        for count in gone:
            partition = self.model.add_partition(count)
            self.world.broker.append_holes(named(partition), count)
            self.world.broker.expire(named(partition), count)
            before = [encode(Kind.GOOD, each) for each in self.model.write(partition, Kind.GOOD, old)]
            self.world.broker.append(named(partition), *before, timestamp=BEFORE_START)
            self.model.origin[partition] = count + old
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
        """The live batch that is neither published nor discarded."""
        batches = self.stored.batches.items()
        open_batches = [number for number, each in batches if each.lane is Lane.LIVE and not each.is_over]
        assert len(open_batches) <= 1, open_batches
        return open_batches[0] if open_batches else None

    @property
    def is_blocked(self) -> bool:
        """Whether the open batch waits for a person."""
        return self.open_batch is not None and self.stored.batches[self.open_batch].state == "blocked"

    @property
    def is_committing(self) -> bool:
        """Whether the outcome of the open batch is unknown."""
        return self.open_batch is not None and self.stored.batches[self.open_batch].state == "committing"

    @property
    def losses(self) -> dict[int, tuple[int, int]]:
        """By partition, what retention removed before it was read."""
        return {} if self.model.is_recreated else self.model.find_losses(self.stored.next_offsets)

    def write(self, partition: int, kind: Kind, count: int) -> None:
        """Let a producer write so many records."""
        ids = self.model.write(partition, kind, count)
        self.world.broker.append(named(partition), *(encode(kind, each) for each in ids))

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
        """Let a person give up these offsets, and what the open batch holds of them.

        If its sink perhaps shows the batch, its outcome is found first.
        """
        if self.is_committing:
            self.let(self.take_by_hand())
        if (start, until) != self.losses.get(partition):
            return
        lost = [OffsetRange(named(partition), start, until)]
        decided = accept_loss(self.world.platform(), lost, BY_ANA, self.open_batch)
        self.model.losses.add(decided.record.batch_id)
        self.look()

    def launch(self, release: Release = FIRST) -> Process:
        """Return a new run, which has not moved yet."""
        return self._add(Process(self._name("run"), self.world.platform(release), release))

    def launch_replay(self, ranges: list[Span], release: Release = FIRST, run: str | None = None) -> Process:
        """Return a new run that publishes ranges again, or an old one that is asked anew; it has not moved yet.

        What is gone of the ranges is left out when it is asked anew.
        """
        what = tuple(OffsetRange(named(partition), start, until) for partition, start, until in ranges)
        key = self._name("replay")
        request = Request(Replay(what, allow_expired=run is not None), key)
        platform = self.world.platform(release)
        return self._add(Process(run or key, platform, release, lane=Lane.REPLAY, request=request))

    def relaunch(self, process: Process) -> Process:
        """Return a second execution of the step that a run is at, or has ended with, by the first release."""
        again = Process(
            process.run, self.world.platform(), FIRST, process.batch_id, process.step, process.lane, process.request
        )
        return self._add(again)

    def take_by_hand(self, batch_id: int | None = None) -> Process:
        """Return a run by which a person takes a batch again, the open live one if no other is named."""
        number = self.open_batch if batch_id is None else batch_id
        lane = self.stored.batches[number].lane
        return self._add(Process(self._name("by-hand"), self.world.platform(), FIRST, number, Step.STAGE, lane))

    def _name(self, kind: str) -> str:
        return f"{kind}-{len(self.processes)}"

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
            self._let_once(process)
            if process.paused_at == until:
                break
        if process.has_published:
            self.model.acknowledge(self.stored.batches[process.batch_id].spans)
        self._count_end(process)

    def _let_once(self, process: Process) -> None:
        paused_at, held, fault, commits = process.paused_at, process.holds, process.commit_fault, process.commits
        sink_commits = process.sink_commits
        before = self.stored
        process.advance()
        has_lost_reply = process.commit_fault is not fault
        is_repeated = process.commits > commits and self._note_commit(process)
        if self.world.is_foreign and process.sink_commits == sink_commits:
            # What it has confirmed was to be seen before.
            is_repeated = False
        if process.sink_commits > sink_commits and process.commits == commits:
            self._note_unconfirmed(process)
        self.look()
        if process.holds is not None:
            staged = (process.holds.batch.batch_id, process.holds.number)
            self._release_by_attempt.setdefault(staged, process.release)
        if fault is not None and has_lost_reply:
            commit = process.commits + (fault is CommitFault.BEFORE)
            self.reached[reply_lost(process.lane, fault, commit)] += 1
        self.slices.append(
            Slice(
                process=process,
                paused_at=paused_at,
                held=held,
                step=process.step,
                error=process.error,
                is_over=process.is_over,
                has_lost_reply=has_lost_reply,
                is_repeated=is_repeated,
                before=before,
                after=self.stored,
            )
        )

    def _count_end(self, process: Process) -> None:
        match process.error:
            case SimulatedCrashError() as crash:
                self.reached[crash_at(process.lane, str(crash))] += 1
            case ExpiredError():
                self.reached[EXPIRED_WHEN_ASKED if process.batch_id is None else EXPIRED_WHEN_STORED] += 1
            case LossError() | BatchBlockedError():
                self._alarms += process.lane is Lane.LIVE

    def look(self) -> None:
        """See what is stored now, and note who has published what."""
        earlier, self.stored = self.stored, self.world.read()
        # One process may publish what another one has left, and then its own.
        by_time = sorted(self.stored.batches.items(), key=lambda item: (item[1].published_at or NEVER, item[0]))
        for number, batch in by_time:
            if number in earlier.batches and earlier.batches[number].state == batch.state:
                continue
            self.reached[in_state(batch.lane, batch.state)] += 1
            if batch.state == "published":
                self._note_published(number, batch)

    def _note_published(self, number: int, batch: StoredBatch) -> None:
        owners = {self.model.owners.get(each) for each in spell_out(batch.spans)} - {None}
        for lane in {self.stored.batches[each].lane for each in owners}:
            self.reached[took_over(batch.lane, lane)] += 1
        if batch.lane is Lane.REPLAY:
            next_offsets, origins = self.stored.next_offsets, self.model.origin
            self.reached[AHEAD] += any(until > next_offsets[partition] for partition, _, until in batch.spans)
            self.reached[BEFORE_ORIGIN] += any(start < origins[partition] for partition, start, _ in batch.spans)
        self.model.publish(number, batch.spans, self._release_of(number, batch.attempt).decodes)

    def _release_of(self, number: int, attempt: int) -> Release:
        """By which release an attempt has been staged."""
        return self._release_by_attempt.get((number, attempt), FIRST)

    def _note_commit(self, process: Process) -> bool:
        """Note what a commit makes whole, or leaves half done; return whether it only repeats what is there.

        Called before the look at what it has changed. Decided by the model alone: a replay is one commit, and a batch
        that takes offsets over, too.
        """
        number, attempt = process.holds.batch.batch_id, process.holds.number
        spans = self.stored.batches[number].spans
        places = spell_out(spans)
        takes_over = any(self.model.owners.get(each, number) != number for each in places)
        if self.delivery is DeliveryMode.EXACTLY_ONCE or process.lane is Lane.REPLAY or takes_over:
            repaired = places & self.at_risk
            self.reached[REPAIRED] += bool(repaired)
            for each in self.processes:
                each.at_risk -= repaired
            return not repaired and self.model.is_repeated(number, spans, self._release_of(number, attempt).decodes)
        process.at_risk = places if process.commits == 1 else set()
        return False

    def _note_unconfirmed(self, process: Process) -> None:
        """Note that the sink shows a batch, and the ledger does not know; the next process asks if it was announced."""
        batch = self.world.read().batches[process.holds.batch.batch_id]
        if self.delivery is DeliveryMode.AT_LEAST_ONCE and batch.state not in ("committing", "published"):
            process.at_risk = spell_out(batch.spans)

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
        self._finish_replays()
        self.all_invariants_hold()
        if not self.at_risk:
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

    def _finish_replays(self) -> None:
        """Every replay that is still open can be finished, unless it cannot be read any more."""
        for number in self.stored.open_replays:
            if self.stored.batches[number].is_over:
                # Another one has found its outcome.
                continue
            try:
                run_batch.run_once(self.world.platform(), "finish", number)
            except ExpiredError:
                assert self.is_expired(self.stored.batches[number].spans)
            except TopicChangedError:
                assert self.model.is_recreated
            self.look()

    def _expect_refusal(self) -> None:
        if self.is_committing:
            # What was staged of the topic that was there before.
            self.let(self.take_by_hand())
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
