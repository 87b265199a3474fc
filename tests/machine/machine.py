"""The rules: what producers, retention, operators, schedulers, crashes and the network may do, in any order."""

from collections.abc import Sequence
from itertools import chain

from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition

from batchledger.model.batch import Lane
from tests.fakes.crash import AFTER_COMMIT, BEFORE_PUBLISHING, PUBLISHING, PUBLISHING_TO_FOREIGN_SINK
from tests.fakes.ledger import CommitFault
from tests.machine.actions import Actions, named
from tests.machine.model import Kind
from tests.machine.processes import FENCED_WRITES, Process, pauses, points
from tests.machine.reach import rule
from tests.machine.releases import CHANGED, FAULTY, FIRST, Release, encode
from tests.machine.stored import Span
from tests.machine.worlds import TOPIC

MOST_PARTITIONS = 4
MOST_ALIVE = 4
REMEMBERED = 5
BEFORE_COMMITS = ("publication", "between_commits", "announced")
LATE_RUNS = 12
"""A topic is created anew only after so many runs, because nothing can be published afterwards."""

PARTITIONS = st.runner().flatmap(lambda machine: st.sampled_from(sorted(machine.model.log)))
DECIDED = st.runner().flatmap(lambda machine: st.sampled_from(machine.decided))
UNDECIDED = st.runner().flatmap(lambda machine: st.sampled_from(sorted(machine.model.undecided)))
READ = st.runner().flatmap(lambda machine: st.sampled_from(machine.read))
UNREAD = st.runner().flatmap(lambda machine: st.sampled_from(machine.unread))
WHICH = st.integers(0, MOST_ALIVE - 1)
RECENT = st.runner().flatmap(lambda machine: st.sampled_from(machine.processes[-REMEMBERED:]))
REPLAYS = st.runner().flatmap(lambda machine: st.sampled_from(machine.replays[-REMEMBERED:]))
RANGES = st.runner().flatmap(lambda machine: ranges_within(machine.readable))
RELEASES = st.sampled_from([FIRST, FIRST, CHANGED, CHANGED, FAULTY])


def ranges_within(readable: list[Span]) -> st.SearchStrategy[list[Span]]:
    """One or two ranges that do not touch, of one partition or of several."""

    def cut(span: Span) -> st.SearchStrategy[list[Span]]:
        partition, start, until = span
        most = 4 if until - start > 2 else 2
        cuts = st.lists(st.integers(start, until), min_size=2, max_size=most, unique=True).map(sorted)
        return cuts.map(lambda at: [(partition, *each) for each in zip(at[::2], at[1::2], strict=False)])

    chosen = st.lists(st.sampled_from(readable), min_size=1, max_size=2, unique=True)
    return chosen.flatmap(lambda spans: st.tuples(*map(cut, spans))).map(lambda found: list(chain(*found)))


class PlatformMachine(Actions):
    """A pipeline over a topic of one to four partitions, and up to four processes that work on it at once."""

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
        """The partitions that hold unread records; none before the first plan."""
        if self.model.is_recreated or not self.stored.next_offsets:
            return []
        ends = {each: self.model.readable_end(each) for each in self.model.log}
        starts = self.model.log_start
        return [each for each in ends if max(starts[each], self.stored.next_offsets.get(each, 0)) < ends[each]]

    @property
    def readable(self) -> list[Span]:
        """What can be read again of each partition: what the pipeline has passed, what it has not, what came before."""
        ends = {each: self.model.readable_end(each) for each in self.model.log}
        starts = self.model.log_start
        return [(each, starts[each], ends[each]) for each in ends if starts[each] < ends[each]]

    @property
    def can_replay(self) -> bool:
        """Whether there is something to publish again, and room for one more process to do it."""
        return self.has_place and not self.model.is_recreated and bool(self.readable)

    @property
    def replays(self) -> list[Process]:
        """The processes that a person asked to publish ranges again."""
        return [each for each in self.processes if each.request is not None]

    @property
    def is_free(self) -> bool:
        """Whether nothing stops a run: no blocked batch, no loss, no other topic."""
        return not (self.is_blocked or self.losses or self.model.is_recreated)

    @property
    def owners(self) -> list[Process]:
        """The paused processes that may still publish: no other has taken their batch from them."""
        attempts = {number: batch.attempt for number, batch in self.stored.batches.items()}
        held = [each for each in self.alive if each.holds is not None and not each.passed & set(AFTER_COMMIT)]
        return [each for each in held if attempts[each.holds.batch.batch_id] == each.holds.number]

    def owners_in(self, lane: Lane) -> list[Process]:
        """The owners that work in a lane."""
        return [each for each in self.owners if each.lane is lane]

    @property
    def has_place(self) -> bool:
        """Whether one more process may live."""
        return len(self.alive) < MOST_ALIVE

    def choose(self, which: int) -> Process:
        """Return the paused process of this number, or a new run, so that there is always one to go on."""
        return self.alive[which] if which < len(self.alive) else self.launch()

    def choose_owner(self, which: int) -> Process:
        """Return the owner of this number, or a new run, which has something to do."""
        owners = self.owners_in(Lane.LIVE)
        return owners[which] if which < len(owners) else self.launch_with_work()

    def choose_replay(self, which: int, ranges: list[Span]) -> Process:
        """Return the owner of this number, or a new replay of ranges."""
        owners = self.owners_in(Lane.REPLAY)
        return owners[which] if which < len(owners) else self.launch_replay(ranges)

    def launch_with_work(self) -> Process:
        """Return a new run over unread records; they are written now if there are none."""
        if self.open_batch is None and not self.unread and self.decided:
            self.write(self.decided[0], Kind.GOOD, 2)
        return self.launch()

    @property
    def is_anything_published_ahead(self) -> bool:
        """Whether a replay has published offsets that the position has not reached yet."""
        return any(offset >= self.stored.next_offsets.get(partition, 0) for partition, offset in self.model.owners)

    def crash_at_one_of(self, points: Sequence[str], process: Process, data: st.DataObject) -> None:
        """Let a process die at one of the points that lie ahead of it."""
        ahead = [each for each in points if each not in process.passed] or ["the end"]
        # What hypothesis draws is often the first choice, or the one of the schedule before.
        turn = len(self.processes) % len(ahead)
        self.crash_at(process, data.draw(st.sampled_from(ahead[turn:] + ahead[:turn])))

    def lose_one_reply(self, process: Process, moment: CommitFault, data: st.DataObject) -> None:
        """Let a process lose the reply to one of the commits that lie ahead of it."""
        names = pauses(self.delivery, process.lane, is_foreign=self.world.is_foreign)
        ahead = [each for each in BEFORE_COMMITS if each in names and each not in process.passed] or ["publication"]
        turn = len(self.processes) % len(ahead)
        self.let(process, until=data.draw(st.sampled_from(ahead[turn:] + ahead[:turn])))
        process.commit_fault = moment
        self.let(process)

    @initialize(
        gone=st.lists(st.integers(0, 2), min_size=1, max_size=2),
        old=st.integers(0, 3),
        limit=st.sampled_from([3, 10]),
        published=st.integers(0, 3),
    )
    def begin(self, gone: list[int], old: int, limit: int, published: int) -> None:
        """Up to three batches are published, more records lie there, and two schedulers begin to plan."""
        self.open(gone, old, limit, published)
        for _ in range(2):
            self.let(self.launch(), slices=1)

    # Producers, retention and administrators.

    @precondition(lambda self: not self.model.is_recreated)
    @rule(partition=PARTITIONS, count=st.integers(1, 5), kind=st.sampled_from([Kind.GOOD, Kind.UNDECODABLE]))
    def produce(self, partition: int, count: int, kind: Kind) -> None:
        self.write(partition, kind, count)

    @precondition(lambda self: self.decided and not self.model.is_recreated)
    @rule(partition=DECIDED, count=st.integers(1, 3))
    def begin_a_transaction(self, partition: int, count: int) -> None:
        """Nothing from here on can be read until it is decided; others may write behind it."""
        ids = self.model.begin(partition, count)
        self.world.broker.append_undecided(named(partition), *(encode(Kind.GOOD, each) for each in ids))

    @precondition(lambda self: self.model.undecided and not self.model.is_recreated)
    @rule(partition=UNDECIDED, outcome=st.sampled_from([Kind.GOOD, Kind.ABORTED]))
    def decide_a_transaction(self, partition: int, outcome: Kind) -> None:
        self.decide(partition, outcome)

    @precondition(lambda self: self.read)
    @rule(partition=READ)
    def expire_what_was_read(self, partition: int) -> None:
        self.expire(partition, self.stored.next_offsets[partition])

    @precondition(lambda self: self.unread and not self.losses)
    @rule(partition=UNREAD, data=st.data())
    def expire_what_was_not_read(self, partition: int, data: st.DataObject) -> None:
        first = max(self.model.log_start[partition], self.stored.next_offsets.get(partition, 0)) + 1
        self.expire(partition, data.draw(st.integers(first, self.model.readable_end(partition))))

    @precondition(lambda self: len(self.model.log) < MOST_PARTITIONS and not self.model.is_recreated)
    @precondition(lambda self: self.stored.next_offsets)
    @rule()
    def add_partition(self) -> None:
        self.model.add_partition()
        self.world.broker.add_partition(TOPIC)

    @precondition(lambda self: self.stored.published and len(self.processes) >= LATE_RUNS)
    @precondition(lambda self: not self.model.is_recreated)
    @rule(count=st.integers(0, 30))
    def recreate_topic(self, count: int) -> None:
        """Other records lie under the same offsets from here on; nothing of them may ever be published."""
        self.model.is_recreated = True
        self.model.undecided.clear()
        self.world.broker.delete_topic(TOPIC)
        for partition in self.world.broker.create_topic(TOPIC, len(self.model.log)):
            ids = [f"another topic's {offset}" for offset in range(count)]
            self.world.broker.append(partition, *(encode(Kind.GOOD, each) for each in ids))

    # Schedulers and people.

    @precondition(lambda self: self.has_place)
    @rule()
    def start_run(self) -> None:
        self.let(self.launch(), slices=1)

    @precondition(lambda self: self.processes and self.has_place)
    @rule(process=RECENT)
    def run_the_step_again(self, process: Process) -> None:
        """As Airflow does when it believes that the task has died; the first one may still be alive."""
        self.let(self.relaunch(process), slices=1)

    @precondition(lambda self: self.open_batch is not None and not self.is_blocked and self.has_place)
    @rule()
    def take_the_open_batch_by_hand(self) -> None:
        self.let(self.take_by_hand(), slices=1)

    @precondition(lambda self: self.open_batch is not None and not self.is_blocked and self.alive)
    @rule()
    def overtake(self) -> None:
        """A person takes the open batch from the one at work on it, and finishes it; the others sleep meanwhile."""
        self.let(self.take_by_hand())

    @precondition(lambda self: self.is_free and (self.open_batch is not None or self.unread))
    @rule()
    def run_a_faulty_release(self) -> None:
        self.let(self.launch(FAULTY))

    @precondition(lambda self: self.is_blocked)
    @rule()
    def take_the_blocked_batch_again(self) -> None:
        """A person has removed the cause."""
        self.let(self.take_by_hand())

    @precondition(lambda self: self.losses)
    @rule(data=st.data())
    def accept_a_loss(self, data: st.DataObject) -> None:
        partition, (start, log_start) = data.draw(st.sampled_from(sorted(self.losses.items())))
        self.accept(partition, start, data.draw(st.integers(start + 1, log_start)))

    # People who want something published again.

    @precondition(lambda self: self.can_replay)
    @rule(ranges=RANGES, release=RELEASES)
    def start_replay(self, ranges: list[Span], release: Release) -> None:
        self.let(self.launch_replay(ranges, release), slices=1)

    @precondition(lambda self: self.can_replay)
    @rule(ranges=RANGES, release=RELEASES)
    def replay(self, ranges: list[Span], release: Release) -> None:
        self.let(self.launch_replay(ranges, release))

    @precondition(lambda self: self.can_replay and self.open_batch is not None)
    @rule(release=RELEASES)
    def replay_what_the_open_batch_holds(self, release: Release) -> None:
        """The one that publishes later takes these offsets over from the other."""
        self.let(self.launch_replay(list(self.stored.batches[self.open_batch].spans), release))

    @precondition(lambda self: self.replays and self.has_place)
    @rule(process=REPLAYS)
    def repeat_a_replay(self, process: Process) -> None:
        """By another run; some of it may have expired since."""
        what = process.request.replay.what
        ranges = [(each.partition.partition, each.start, each.until) for each in what]
        self.let(self.launch_replay(ranges, process.release))

    @precondition(lambda self: self.replays and self.can_replay)
    @rule(process=REPLAYS, ranges=RANGES)
    def ask_a_run_anew(self, process: Process, ranges: list[Span]) -> None:
        """As by a run that is cleared: what it has not published is discarded."""
        self.let(self.launch_replay(ranges, run=process.run))

    @precondition(lambda self: self.stored.open_replays and not self.model.is_recreated)
    @rule(data=st.data())
    def overtake_a_replay(self, data: st.DataObject) -> None:
        """A person takes an open replay from the one at work on it, or a blocked one again."""
        self.let(self.take_by_hand(data.draw(st.sampled_from(self.stored.open_replays))))

    @precondition(lambda self: self.can_replay)
    @rule(which=WHICH, ranges=RANGES, data=st.data())
    def crash_a_replay(self, which: int, ranges: list[Span], data: st.DataObject) -> None:
        process = self.choose_replay(which, ranges)
        self.crash_at_one_of(points(self.delivery, Lane.REPLAY, is_foreign=self.world.is_foreign), process, data)

    @precondition(lambda self: self.can_replay)
    @rule(which=WHICH, ranges=RANGES, moment=st.sampled_from(CommitFault), data=st.data())
    def lose_the_commit_reply_of_a_replay(
        self, which: int, ranges: list[Span], moment: CommitFault, data: st.DataObject
    ) -> None:
        """Lose it for the next commit, or the one that follows its announcement."""
        self.lose_one_reply(self.choose_replay(which, ranges), moment, data)

    # Time, crashes and the network.

    @rule(which=WHICH)
    def go_on(self, which: int) -> None:
        self.let(self.choose(which), slices=1)

    @rule(which=WHICH, data=st.data())
    def go_on_until(self, which: int, data: st.DataObject) -> None:
        process = self.choose(which)
        names = pauses(self.delivery, process.lane, is_foreign=self.world.is_foreign)
        ahead = [each for each in names if each not in process.passed]
        self.let(process, until=data.draw(st.sampled_from(ahead or ["the end"])))

    @rule(which=WHICH, write=st.sampled_from(FENCED_WRITES))
    def go_on_until_it_writes(self, which: int, write: str) -> None:
        self.let(self.choose(which), until=write)

    @rule(which=WHICH)
    def finish(self, which: int) -> None:
        self.let(self.choose(which))

    @precondition(lambda self: self.is_free)
    @rule(which=WHICH, data=st.data())
    def crash_before_publishing(self, which: int, data: st.DataObject) -> None:
        self.crash_at_one_of(BEFORE_PUBLISHING, self.choose_owner(which), data)

    @precondition(lambda self: self.is_free)
    @rule(which=WHICH, data=st.data())
    def crash_while_publishing(self, which: int, data: st.DataObject) -> None:
        process = self.choose_owner(which)
        if self.is_anything_published_ahead and len(self.processes) % 2:
            # Few batches take offsets over from a replay.
            self.crash_at(process, "rows_withdrawn")
        else:
            publishing = (PUBLISHING_TO_FOREIGN_SINK if self.world.is_foreign else PUBLISHING)[self.delivery]
            self.crash_at_one_of([*publishing, *AFTER_COMMIT], process, data)

    @precondition(lambda self: self.alive)
    @rule(which=WHICH)
    def kill(self, which: int) -> None:
        self.alive[which % len(self.alive)].kill()
        self.look()

    @precondition(lambda self: self.is_free)
    @rule(which=WHICH, moment=st.sampled_from(CommitFault), data=st.data())
    def lose_a_commit_reply(self, which: int, moment: CommitFault, data: st.DataObject) -> None:
        """Lose it for the next commit, or the second one: in the modes that have two, and if one is announced."""
        self.lose_one_reply(self.choose_owner(which), moment, data)

    @precondition(lambda self: any(each.state in ("staged", "audited") for each in self.stored.batches.values()))
    @rule()
    def crash_the_database(self) -> None:
        """The database comes back without the rows of its unlogged tables."""
        self.world.lose_staging()
