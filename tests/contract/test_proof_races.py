"""The proof of a pipeline that goes on publishing: what commits between its reads is no finding, what is wrong is one.

Each race commits exactly between reading the ledger and counting the target. That it makes the two differ is shown too:
one look at them has findings.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import pytest

from batchledger.lifecycle.requirement import publish_rows
from batchledger.model.balance import TargetCounts
from batchledger.model.batch import Attempt, Decision
from batchledger.model.errors import UnsettledError
from batchledger.model.offsets import OffsetRange, TopicPartition
from batchledger.model.records.rules import SinkMode
from batchledger.planning.rewind import ResolvedRewind
from batchledger.proof import proving
from batchledger.proof.verification import PublishedHistory, Verification, check_target
from tests.contract import life
from tests.contract.warehouses import Warehouse, prove_with

ORDERS_0, ORDERS_1 = TopicPartition("orders", 0), TopicPartition("orders", 1)
FIRST, OTHER = OffsetRange(ORDERS_0, 0, 20), OffsetRange(ORDERS_1, 0, 20)
BY_ANA = Decision("ana@host", "the rows were wrong")

Event = Callable[[], object]


@pytest.fixture
def four_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fewer than in use, because each of them needs a replay that is staged."""
    monkeypatch.setattr(proving, "LOOKS", 4)


@dataclass
class Looks:
    """Counts the target; before each count the next event happens, as long as there is one."""

    warehouse: Warehouse
    events: Iterable[Event]
    seen: list[tuple[PublishedHistory, TargetCounts]] = field(default_factory=list)

    def prove(self) -> Verification:
        events = iter(self.events)

        def count_target() -> TargetCounts:
            history = self.warehouse.load_published_history()
            next(events, lambda: None)()
            target = self.warehouse.sink.count_target(self.warehouse.pipeline)
            self.seen.append((history, target))
            return target

        return prove_with(self.warehouse, count_target)

    def findings_of_the_first(self) -> tuple[str, ...]:
        """What a proof would report without a second look."""
        history, target = self.seen[0]
        found = check_target(history, target, SinkMode.APPEND)
        return tuple(each.invariant for findings in found.values() for each in findings)


def publishing(warehouse: Warehouse, attempt: Attempt) -> Event:
    return lambda: life.publish(warehouse, attempt)


def replaying(warehouse: Warehouse, *ranges: OffsetRange) -> Event:
    """Take a replay as far as it goes unseen; the event publishes it."""
    run = f"replay of {ranges[0]}"
    return publishing(warehouse, life.take_replay_to_audited(warehouse, *ranges, run=run))


def rewind(warehouse: Warehouse, truncate: bool = False) -> None:
    epoch = warehouse.decisions.load_epoch(warehouse.pipeline)
    empty = warehouse.sink.truncate if truncate else None
    warehouse.decisions.rewind(warehouse.pipeline, ResolvedRewind(epoch, {ORDERS_0: 0, ORDERS_1: 0}), BY_ANA, empty)


def a_replay(warehouse: Warehouse) -> Event:
    return replaying(warehouse, OffsetRange(ORDERS_0, 5, 10))


def a_live_batch(warehouse: Warehouse) -> Event:
    return publishing(warehouse, life.take_to_audited(warehouse, OffsetRange(ORDERS_0, 20, 25), run="live"))


def a_live_batch_that_takes_over_after_a_rewind(warehouse: Warehouse) -> Event:
    rewind(warehouse)
    return publishing(warehouse, life.take_to_audited(warehouse, OffsetRange(ORDERS_0, 0, 7), run="live"))


def a_rewind_that_empties_the_target(warehouse: Warehouse) -> Event:
    return lambda: rewind(warehouse, truncate=True)


def a_first_commit_of_at_least_once(warehouse: Warehouse) -> Event:
    attempt = life.take_to_audited(warehouse, OffsetRange(ORDERS_0, 20, 25), run="live")
    return lambda: commit_rows_only(warehouse, attempt)


RACES = (
    a_replay,
    a_live_batch,
    a_live_batch_that_takes_over_after_a_rewind,
    a_rewind_that_empties_the_target,
    a_first_commit_of_at_least_once,
)


def commit_rows_only(warehouse: Warehouse, attempt: Attempt) -> None:
    with warehouse.ledger.publication(attempt) as publication:
        publish_rows(warehouse.sink, publication, publication.load())
        publication.mark_rows()


@pytest.mark.parametrize("race", RACES, ids=lambda race: race.__name__)
def test_what_commits_between_the_reads_of_a_proof_is_no_finding(
    warehouse: Warehouse, race: Callable[[Warehouse], Event]
) -> None:
    life.take_to_published(warehouse, FIRST, OTHER)
    looks = Looks(warehouse, [race(warehouse)])
    assert looks.prove().findings == ()
    assert set(looks.findings_of_the_first()) == {"target"}, "the negative control"
    assert len(looks.seen) == 2


@pytest.mark.parametrize("race", RACES[:3], ids=lambda race: race.__name__)
def test_row_that_is_missing_is_found_whatever_commits_between_the_reads(
    warehouse: Warehouse, race: Callable[[Warehouse], Event]
) -> None:
    first = life.take_to_published(warehouse, FIRST, OTHER)
    looks = Looks(warehouse, [race(warehouse)])
    warehouse.lose_row(ORDERS_1, 3)
    (finding,) = looks.prove().findings
    assert finding.where == f"batch {first.batch.batch_id}, {OTHER}"
    assert finding.detail == "the ledger accepted 20 rows, the target holds 19"


@pytest.mark.usefixtures("four_looks")
def test_row_that_is_missing_is_found_although_its_batch_is_replayed_at_every_look_but_the_last(
    warehouse: Warehouse,
) -> None:
    """A partition whose rows are replaced is looked at again, not left out."""
    first = life.take_to_published(warehouse, FIRST)
    replays = [replaying(warehouse, OffsetRange(ORDERS_0, at, at + 1)) for at in range(proving.LOOKS - 2)]
    warehouse.lose_row(ORDERS_0, 15)
    (finding,) = Looks(warehouse, replays).prove().findings
    left = FIRST.until - len(replays)
    assert finding.where == f"batch {first.batch.batch_id}, {ORDERS_0} {len(replays)}..{FIRST.until}"
    assert finding.detail == f"the ledger accepted {left} rows, the target holds {left - 1}"


def test_proof_ends_although_something_is_published_at_every_look(warehouse: Warehouse) -> None:
    """A backfill: each of its replays takes over from a batch of its own, and the live lane goes on."""
    starts = [0, 10, 20, 30]
    published = [
        life.take_to_published(warehouse, OffsetRange(ORDERS_0, at, at + 10), run=f"live-{at}") for at in starts
    ]
    looks = Looks(warehouse, [replaying(warehouse, OffsetRange(ORDERS_0, at + 2, at + 6)) for at in starts])
    warehouse.lose_row(ORDERS_0, 9)
    (finding,) = looks.prove().findings
    assert finding.where == f"batch {published[0].batch.batch_id}, {ORDERS_0} 0..2, {ORDERS_0} 6..10"
    assert len(looks.seen) == 3


@pytest.mark.usefixtures("four_looks")
def test_proof_that_never_settles_says_so_and_what_is_certain(warehouse: Warehouse) -> None:
    first = life.take_to_published(warehouse, FIRST, OTHER)
    replays = [replaying(warehouse, OffsetRange(ORDERS_0, at, at + 1)) for at in range(proving.LOOKS)]
    warehouse.lose_row(ORDERS_1, 3)
    looks = Looks(warehouse, replays)
    batch = f"batch {first.batch.batch_id}"
    with pytest.raises(UnsettledError) as refused:
        looks.prove()
    assert f"at each of {proving.LOOKS} looks ({batch}, {ORDERS_0})." in str(refused.value)
    assert f"Certain so far: {batch}, {OTHER}: the ledger accepted 20 rows, the target holds 19." in str(refused.value)
    assert looks.warehouse.prove().findings


def test_rows_of_a_batch_between_its_two_commits_are_left_to_the_next_proof(warehouse: Warehouse) -> None:
    """at_least_once. The other batches are proved; nothing has to be looked at twice."""
    life.take_to_published(warehouse, FIRST)
    commit_rows_only(warehouse, life.take_to_audited(warehouse, OffsetRange(ORDERS_0, 20, 25), run="live"))
    looks = Looks(warehouse, [])
    verification = looks.prove()
    assert (verification.findings, verification.rows, len(looks.seen)) == ((), 20, 1)
    warehouse.lose_row(ORDERS_0, 3)
    assert [each.invariant for each in warehouse.prove().findings] == ["target"]
