"""The proof of the newest batches: it finds what is wrong in them, whatever is published or replayed meanwhile."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import pytest

from batchledger.model.balance import TargetCount, TargetCounts
from batchledger.model.batch import Attempt, Decision, DecisionKind
from batchledger.model.offsets import OffsetRange, TopicPartition
from batchledger.model.records.rules import SinkMode
from batchledger.planning.rewind import ResolvedRewind
from batchledger.proof.newest import NewestHistory
from batchledger.proof.proving import prove
from batchledger.proof.verification import Verification
from tests.contract import life
from tests.contract.warehouses import Warehouse

ORDERS_0, ORDERS_1 = TopicPartition("orders", 0), TopicPartition("orders", 1)
BY_ANA = Decision("ana@host", "the rows were wrong")


@pytest.fixture
def history(warehouse: Warehouse) -> Warehouse:
    """Five live batches of ten offsets of one partition; the first has two of another one too."""
    life.take_to_published(warehouse, OffsetRange(ORDERS_0, 0, 10), OffsetRange(ORDERS_1, 0, 2))
    for start in range(10, 50, 10):
        life.take_to_published(warehouse, OffsetRange(ORDERS_0, start, start + 10), run=f"live-{start}")
    return warehouse


@dataclass
class Look:
    """Proves the newest batches. Before each count of the target the next event happens, as long as there is one."""

    warehouse: Warehouse
    newest: int
    events: Sequence[Callable[[], object]] = ()
    windows: list[NewestHistory] = field(default_factory=list)

    def prove(self) -> Verification:
        since = self.warehouse.find_window(self.newest)
        assert since is not None
        events = iter(self.events)

        def count(within: Sequence[OffsetRange]) -> TargetCounts:
            next(events, lambda: None)()
            return self.warehouse.sink.count_target(self.warehouse.pipeline, within)

        window = NewestHistory(since, self.warehouse.load_published_history, count)
        self.windows.append(window)
        mode = SinkMode.UPSERT if self.warehouse.upsert else SinkMode.APPEND
        return prove(self.warehouse.pipeline, window.load, window.count, mode)


def found(warehouse: Warehouse, newest: int) -> list[tuple[str, str]]:
    return [(each.invariant, each.where) for each in Look(warehouse, newest).prove().findings]


def test_only_the_asked_offsets_of_the_target_are_counted_whoever_wrote_them(history: Warehouse) -> None:
    within = [OffsetRange(ORDERS_0, 5, 12), OffsetRange(ORDERS_1, 1, 99)]
    first, second = sorted({each.batch_id for each in history.load_published_history().ranges})[:2]
    assert dict(history.sink.count_target(history.pipeline, within).by_batch) == {
        (first, ORDERS_0): TargetCount(5, 5, 5, 9),
        (second, ORDERS_0): TargetCount(2, 2, 10, 11),
        (first, ORDERS_1): TargetCount(1, 1, 1, 1),
    }
    assert dict(history.sink.count_target(history.pipeline, []).by_batch) == {}


def test_window_holds_the_newest_batches_and_says_what_it_has_not_looked_at(history: Warehouse) -> None:
    look = Look(history, 2)
    verification = look.prove()
    assert (verification.batches, verification.offsets, verification.rows, verification.findings) == (2, 20, 20, ())
    (window,) = look.windows
    assert (window.coverage.is_complete, window.coverage.untouched) == (False, (ORDERS_1,))


@pytest.mark.parametrize("newest", [5, 6, 1000])
def test_history_that_is_no_longer_than_the_window_is_proved_as_a_whole(history: Warehouse, newest: int) -> None:
    assert history.find_window(newest) is None
    assert history.find_window(4) is not None


def test_row_that_is_missing_is_found_in_the_window_and_not_outside_of_it(history: Warehouse) -> None:
    history.lose_row(ORDERS_0, 35)
    assert [invariant for invariant, _ in found(history, 2)] == ["target"]
    assert found(history, 1) == []


def test_position_that_has_passed_offsets_is_found(history: Warehouse) -> None:
    history.move_position(ORDERS_0, 55)
    assert found(history, 2) == [("I1", "orders[0] 50..55")]


def test_replay_of_old_offsets_is_in_the_window_because_it_was_published_lately(history: Warehouse) -> None:
    replay = life.take_replay_to_audited(history, OffsetRange(ORDERS_0, 3, 14))
    life.publish(history, replay)
    assert found(history, 1) == []
    assert Look(history, 1).prove().offsets == 11
    history.lose_row(ORDERS_0, 4)
    assert found(history, 1) == [("target", f"batch {replay.batch.batch_id}, orders[0] 3..14")]


def test_replay_that_was_planned_early_and_took_over_late_is_in_the_window(history: Warehouse) -> None:
    """Batches are numbered when they are planned; what counts is the order of their publications."""
    early = life.take_replay_to_audited(history, OffsetRange(ORDERS_0, 40, 45))
    life.take_to_published(history, OffsetRange(ORDERS_0, 50, 60), run="live-50")
    life.publish(history, early)
    assert found(history, 2) == []
    assert Look(history, 2).prove().batches == 2


def test_accepted_loss_over_offsets_that_an_old_batch_holds_is_no_finding(history: Warehouse) -> None:
    """After a rewind, an accepted loss takes over from no batch, so the rows of the old epoch stay."""
    epoch = history.decisions.load_epoch(history.pipeline)
    history.decisions.rewind(history.pipeline, ResolvedRewind(epoch, {ORDERS_0: 0, ORDERS_1: 2}), BY_ANA)
    history.decisions.give_up(history.pipeline, [OffsetRange(ORDERS_0, 0, 25)], DecisionKind.ACCEPT_LOSS, BY_ANA)
    assert found(history, 1) == []
    history.lose_row(ORDERS_0, 21)
    assert [invariant for invariant, _ in found(history, 1)] == ["target"]


def test_what_is_published_while_the_window_is_proved_pushes_nothing_out_of_it(history: Warehouse) -> None:
    """The oldest batch of the window is wrong; with a window of always two batches the second look would pass it by."""
    history.lose_row(ORDERS_0, 35)

    def publish(start: int) -> Attempt:
        return life.take_to_published(history, OffsetRange(ORDERS_0, start, start + 10), run=f"live-{start}")

    look = Look(history, 2, [lambda: None, lambda: publish(50), lambda: publish(60)])
    (finding,) = look.prove().findings
    assert finding.detail == "the ledger accepted 10 rows, the target holds 9"


def test_quarantine_of_the_window_is_looked_at_and_that_of_older_batches_is_not(warehouse: Warehouse) -> None:
    for start in (0, 5):
        poison = [(ORDERS_0, start + 3)]
        poisoned = life.stage(warehouse, life.store(warehouse, OffsetRange(ORDERS_0, start, start + 5)), poison=poison)
        life.audit(warehouse, poisoned)
        life.publish(warehouse, poisoned)
    verification = Look(warehouse, 1).prove()
    assert (verification.findings, verification.quarantined, verification.rows) == ((), 1, 4)
