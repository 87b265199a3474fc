"""One protection switched off, the same machine: it must find what the protection prevents, or it proves nothing."""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from batchledger.lifecycle import run_batch
from batchledger.lifecycle.delivery import deliver
from batchledger.lifecycle.platform import Platform
from batchledger.lifecycle.requirement import publish_rows, withdraw_rows
from batchledger.model.batch import Attempt, BatchState, DeliveryMode, Lane
from batchledger.model.checks import IntegrityCheck
from batchledger.model.claims import PreparedRows, Withdrawn
from batchledger.model.offsets import OffsetRange
from batchledger.ports import Publication, RowsToPublish
from tests.fakes.publication import ALL_PROTECTIONS, Protection
from tests.fakes.sink import MemorySink
from tests.fakes.source import MemoryBroker, Record
from tests.machine.actions import OpenWorld
from tests.machine.machine import PlatformMachine
from tests.machine.worlds import MemoryWorld


class ImpatientMachine(PlatformMachine):
    """Only what the steps themselves show counts: a pipeline that gets stuck at the end is not what is looked for."""

    def come_to_rest(self) -> None:
        """Leave everything as it is."""


def find_violation(
    open_world: OpenWorld,
    machine: type[PlatformMachine] = ImpatientMachine,
    delivery: DeliveryMode = DeliveryMode.EXACTLY_ONCE,
) -> None:
    """Look for a schedule that violates a delivery mode, and raise the assertion that it violates."""
    run_state_machine_as_test(
        lambda: machine(open_world, delivery),
        settings=settings(
            max_examples=2000,
            stateful_step_count=40,
            derandomize=True,
            database=None,
            deadline=None,
            # The first violation is enough; no person has to read it.
            phases=[Phase.generate],
            report_multiple_bugs=False,
            suppress_health_check=list(HealthCheck),
        ),
    )


def test_without_fencing_a_superseded_attempt_is_not_stopped() -> None:
    unfenced = partial(MemoryWorld, protections=ALL_PROTECTIONS - {Protection.ATTEMPTS_FENCED})
    with pytest.raises(AssertionError, match="I4: "):
        find_violation(unfenced)


def test_without_compare_and_swap_the_same_offsets_are_published_twice() -> None:
    """S57: two more protections stand behind it and refuse the stale plan alone: the audit and the constraint."""
    uncompared = partial(
        MemoryWorld,
        protections=ALL_PROTECTIONS - {Protection.POSITIONS_COMPARED, Protection.OVERLAPS_REFUSED},
        ignored_checks=frozenset({IntegrityCheck.RANGES_MEET_POSITION, IntegrityCheck.NO_PUBLISHED_OFFSETS}),
    )
    with pytest.raises(AssertionError, match="I2: "):
        find_violation(uncompared)


class UncommittedBroker(MemoryBroker):
    """A broker that is read under read_uncommitted: it shows the records of aborted transactions."""

    def read(self, range_: OffsetRange) -> Iterator[tuple[int, Record]]:
        """Yield every record of the range, after the refusals of the other one."""
        list(super().read(range_))
        for offset in range(range_.start, range_.until):
            record = self.partitions[range_.partition].find_any(offset)
            if record is not None:
                yield offset, record


def test_under_read_uncommitted_aborted_records_become_visible() -> None:
    """S35."""
    with pytest.raises(AssertionError, match=r"I3 of exactly_once: \{'surplus': \{Row"):
        find_violation(lambda delivery, limits: MemoryWorld(delivery, limits, UncommittedBroker()), PlatformMachine)


@pytest.mark.parametrize(
    ("order", "consequence"), [(DeliveryMode.AT_LEAST_ONCE, "surplus"), (DeliveryMode.AT_MOST_ONCE, "lost")]
)
def test_rows_and_position_in_two_transactions_are_seen_apart(order: DeliveryMode, consequence: str) -> None:
    with pytest.raises(AssertionError, match=rf"I3 of exactly_once: \{{'{consequence}': \{{Row"):
        find_violation(partial(MemoryWorld, real_delivery=order))


def test_without_an_audit_what_a_faulty_release_repeats_becomes_visible() -> None:
    unaudited = partial(
        MemoryWorld,
        protections=ALL_PROTECTIONS - {Protection.BALANCE_REQUIRED},
        ignored_checks=frozenset(IntegrityCheck),
    )
    with pytest.raises(AssertionError, match=r"I3 of exactly_once: \{'repeated': \{Row"):
        find_violation(unaudited)


class LosingSink(MemorySink):
    """A sink that publishes no row at all."""

    def publish(self, rows: RowsToPublish) -> PreparedRows:
        """Say so many rows, and write none."""
        prepared = super().publish(rows)
        tables, batch_id = rows.connection, rows.attempt.batch.batch_id
        kept = tuple(row for row in tables.targets[self.table].rows if row["_batch_id"] != batch_id)
        tables.targets[self.table] = replace(tables.targets[self.table], rows=kept)
        return prepared


class RepeatingSink(MemorySink):
    """A sink that publishes every row twice."""

    def publish(self, rows: RowsToPublish) -> PreparedRows:
        """Write all rows, twice: behind the look for rows that are there already, which is a protection of its own."""
        prepared = super().publish(rows)
        tables, batch_id = rows.connection, rows.attempt.batch.batch_id
        target = tables.targets[self.table]
        again = [row for row in target.rows if row["_batch_id"] == batch_id]
        tables.targets[self.table] = replace(target, rows=(*target.rows, *again))
        return prepared


@pytest.mark.parametrize(
    ("delivery", "sink", "consequence"),
    [
        (DeliveryMode.AT_MOST_ONCE, LosingSink, "lost"),
        (DeliveryMode.AT_LEAST_ONCE, RepeatingSink, "repeated"),
        (DeliveryMode.AT_LEAST_ONCE, LosingSink, "lost"),
        (DeliveryMode.AT_MOST_ONCE, RepeatingSink, "repeated"),
    ],
)
def test_weaker_mode_allows_its_anomaly_only_where_a_publication_broke_off(
    delivery: DeliveryMode, sink: type[MemorySink], consequence: str
) -> None:
    with pytest.raises(AssertionError, match=rf"I3 of {delivery}: \{{'{consequence}': \{{Row"):
        find_violation(partial(MemoryWorld, make_sink=sink), delivery=delivery)


class ForgetfulSink(MemorySink):
    """A sink that leaves the rows which a batch replaces."""

    def withdraw(self, rows: RowsToPublish) -> Withdrawn:
        """Say that they are gone."""
        return Withdrawn([0] * len(rows.replaced))


def test_when_a_replay_does_not_withdraw_old_rows_both_are_seen() -> None:
    with pytest.raises(AssertionError, match=r"I3 of exactly_once: \{'repeated': \{Row"):
        find_violation(partial(MemoryWorld, make_sink=ForgetfulSink))


@pytest.mark.parametrize(
    ("protections", "consequence"),
    [
        (ALL_PROTECTIONS - {Protection.REPLACED_RELEASED}, "I8: .* needs no position"),
        (ALL_PROTECTIONS - {Protection.REPLACED_RELEASED, Protection.OVERLAPS_REFUSED}, "I8: held, but not owned"),
    ],
    ids=["the constraint refuses it", "nothing refuses it"],
)
def test_when_offsets_are_taken_over_and_not_released_two_batches_hold_them(
    protections: frozenset[Protection], consequence: str
) -> None:
    with pytest.raises(AssertionError, match=consequence):
        find_violation(partial(MemoryWorld, protections=protections))


def deliver_in_two_commits(platform: Platform, attempt: Attempt) -> None:
    """Deliver a live batch as if no other could have published its offsets ahead of it."""
    if attempt.batch.lane is Lane.REPLAY:
        deliver(platform, attempt)
        return
    order = [_publish_rows, _publish_position]
    first, last = order if attempt.batch.delivery is DeliveryMode.AT_LEAST_ONCE else reversed(order)
    with platform.ledger.publication(attempt) as publication:
        first(platform, publication)
    platform.crash("between_commits")
    expected = BatchState.PUBLISHED if first is _publish_position else BatchState.AUDITED
    with platform.ledger.publication(attempt, expected) as publication:
        last(platform, publication)


def _publish_rows(platform: Platform, publication: Publication) -> None:
    publish_rows(platform.sink, publication, publication.load())
    publication.mark_rows()


def _publish_position(platform: Platform, publication: Publication) -> None:
    rows = publication.load()
    if rows.replaced:
        withdraw_rows(platform.sink, publication, rows)
    publication.advance_positions()
    publication.publish_quarantine()
    publication.mark_published()


@pytest.mark.parametrize("delivery", [DeliveryMode.AT_LEAST_ONCE, DeliveryMode.AT_MOST_ONCE])
def test_when_a_live_batch_takes_over_in_two_commits_readers_see_both_or_neither(
    delivery: DeliveryMode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_batch, "deliver", deliver_in_two_commits)
    with pytest.raises(AssertionError, match=r"I8: after .* readers miss|'repeated': "):
        find_violation(MemoryWorld, delivery=delivery)
