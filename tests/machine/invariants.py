"""What holds after every step, computed from the stored state and the model, without a line of the platform's proof.

I8 (a replay is idempotent) has no invariant here: there are no replays yet. The weaker delivery modes keep as much as
exactly_once, except for the batches of which a process has made the first commit and not the last: it died there, was
overtaken, lost a reply, or still sleeps. Of those at_least_once may repeat records and at_most_once may lose them.
"""

from collections import Counter
from dataclasses import dataclass

from hypothesis.stateful import RuleBasedStateMachine, invariant

from batchledger.batch import Attempt, DeliveryMode
from batchledger.errors import (
    BatchBlockedError,
    BatchledgerError,
    FencedError,
    LossError,
    RowsLostError,
    TopicChangedError,
)
from tests.fakes.crash import SimulatedCrashError
from tests.machine.model import Kind, Model, Place, spell_out
from tests.machine.processes import FENCED_WRITES, Process, Step
from tests.machine.stored import BALANCE_LINES, NOTHING_STORED, Span, Stored


@dataclass(frozen=True)
class Slice:
    """What one process did between two of its pauses, with the state before and after it.

    ``paused_at`` and ``held`` are those of its beginning, ``step`` and ``error`` those of its end.
    """

    process: Process
    paused_at: str | None
    held: Attempt | None
    step: Step
    error: BaseException | None
    has_lost_reply: bool
    before: Stored
    after: Stored

    @property
    def is_superseded(self) -> bool:
        """Whether it was about to write with an attempt that the ledger no longer wants."""
        if self.paused_at not in FENCED_WRITES or self.held is None:
            return False
        found = self.before.batches[self.held.batch.batch_id]
        return found.attempt != self.held.number or found.state == "discarded"


class Invariants(RuleBasedStateMachine):
    """The state that the rules change, and everything that must be true of it."""

    def __init__(self, delivery: DeliveryMode) -> None:
        super().__init__()
        self.delivery = delivery
        self.model = Model()
        self.stored = NOTHING_STORED
        self.processes: list[Process] = []
        self.slices: list[Slice] = []
        self._planned: dict[int, tuple[Span, ...]] = {}

    @property
    def half_published(self) -> set[int]:
        """The batches of which a process has made the first of two commits, and not the last one."""
        if self.delivery is DeliveryMode.EXACTLY_ONCE:
            return set()
        return {each.batch_id for each in self.processes if each.commits == 1}

    @property
    def at_risk(self) -> set[Place]:
        """Where the weaker modes may repeat or lose records."""
        return spell_out(span for number in self.half_published for span in self.stored.batches[number].spans)

    @invariant()
    def all_invariants_hold(self) -> None:
        """Check one after the other, and name all that are violated: one fault often breaks several.

        What was done in between is looked at once, and forgotten.
        """
        violated = []
        for keep in (
            self.i1_published_ranges_meet_from_the_origin_to_the_position,
            self.i2_published_ranges_are_disjoint,
            self.i3_rows_and_position_agree,
            self.i3_quarantine_and_position_agree,
            self.i4_superseded_attempt_changes_nothing_and_is_told_by_whom,
            self.i5_ranges_of_a_batch_never_change,
            self.i6_audit_changes_nothing_visible,
            self.i7_balance_of_every_published_range_is_what_the_log_says,
            self.i9_batch_is_published_exactly_when_its_rows_are_there,
            self.i9_lost_reply_ends_published_or_retryable,
            self.i9_what_was_acknowledged_as_published_stays_visible,
            self.refusals_have_a_reason,
        ):
            try:
                keep()
            except AssertionError as error:
                violated.append(str(error))
        assert not violated, "\n".join(violated)
        self.slices.clear()

    def i1_published_ranges_meet_from_the_origin_to_the_position(self) -> None:
        """No offset between the origin and the position is without a published batch, and none beyond has one."""
        covered: dict[int, set[int]] = {partition: set() for partition in self.stored.next_offsets}
        for batch in self.stored.published.values():
            for partition, start, until in batch.spans:
                covered[partition] |= set(range(start, until))
        for partition, next_offset in self.stored.next_offsets.items():
            origin = self.model.origin[partition]
            assert self.stored.origins[partition] == origin, f"I1: partition {partition} started at another offset"
            passed = set(range(origin, next_offset))
            assert covered[partition] == passed, f"I1: partition {partition}: {covered[partition] ^ passed}"

    def i2_published_ranges_are_disjoint(self) -> None:
        """No offset belongs to two published batches."""
        times = Counter(
            (partition, offset)
            for batch in self.stored.published.values()
            for partition, start, until in batch.spans
            for offset in range(start, until)
        )
        repeated = [place for place, count in times.items() if count > 1]
        assert not repeated, f"I2: published more than once: {repeated}"

    def i3_rows_and_position_agree(self) -> None:
        """Every good record below the position is visible once, and nothing else is; weaker modes: see the module."""
        passed = self.model.find(Kind.GOOD, self.stored.next_offsets)
        found = self.stored.target
        at_risk = {row for row in self.model.all_good_rows() if row.place in self.at_risk}
        lost, repeated, surplus = passed - found.keys(), {row for row in found if found[row] > 1}, found.keys() - passed
        if self.delivery is DeliveryMode.AT_LEAST_ONCE:
            repeated, surplus = repeated - at_risk, surplus - at_risk
        elif self.delivery is DeliveryMode.AT_MOST_ONCE:
            lost = lost - at_risk
        wrong = {what: rows for what, rows in (("lost", lost), ("repeated", repeated), ("surplus", surplus)) if rows}
        assert not wrong, f"I3 of {self.delivery}: {wrong}"

    def i3_quarantine_and_position_agree(self) -> None:
        """Every undecodable record below the position is in quarantine once, in all delivery modes."""
        passed = self.model.find(Kind.UNDECODABLE, self.stored.next_offsets)
        expected = Counter(row.place for row in passed)
        assert Counter(self.stored.quarantine) == expected, f"I3: quarantine holds {self.stored.quarantine}"

    def i4_superseded_attempt_changes_nothing_and_is_told_by_whom(self) -> None:
        """Who writes with an old attempt finds everything as it was, and an error that names the newest one."""
        for each in self.slices:
            error = each.error
            if isinstance(error, FencedError):
                owner = each.after.batches[error.fields["batch_id"]]
                names = [f"attempt {owner.attempt} of run {owner.run}"]
                if owner.run == each.process.run:
                    names.append(f"attempt {owner.attempt} of the same run")
                if owner.state == "discarded":
                    names.append("discarded by a person's decision")
                assert any(name in str(error) for name in names), f"I4: {error} does not name {names[0]}"
            elif each.is_superseded:
                assert isinstance(error, SimulatedCrashError), f"I4: {each.process} was not told: {error!r}"
            else:
                continue
            assert each.before.contents == each.after.contents, f"I4: {each.process} changed what is visible"
            assert each.before.next_offsets == each.after.next_offsets, f"I4: {each.process} moved the position"

    def i5_ranges_of_a_batch_never_change(self) -> None:
        """A batch has the ranges that it was planned with, for ever."""
        for number, batch in self.stored.batches.items():
            planned = self._planned.setdefault(number, batch.spans)
            assert batch.spans == planned, f"I5: batch {number} was planned over {planned}, now {batch.spans}"

    def i6_audit_changes_nothing_visible(self) -> None:
        """Readers see the same before and after an audit."""
        for each in self.slices:
            if each.step is Step.AUDIT:
                assert each.before.contents == each.after.contents, f"I6: {each.process} changed what is visible"
                assert each.before.next_offsets == each.after.next_offsets, f"I6: {each.process} moved the position"

    def i7_balance_of_every_published_range_is_what_the_log_says(self) -> None:
        """Each line of the balance is the number of such offsets in the log; so they add up to the range."""
        for number, batch in self.stored.published.items():
            for span in batch.spans:
                found = dict(zip(BALANCE_LINES, batch.lines[span], strict=True))
                _, start, until = span
                assert sum(found.values()) == until - start, f"I7: {span} of batch {number} does not close: {found}"
                assert found == self._balance(span), f"I7: {span} of batch {number}: {found}"

    def _balance(self, span: Span) -> dict[str, int]:
        partition, start, until = span
        lines = dict.fromkeys(BALANCE_LINES, 0)
        if (partition, start) in self.model.given_up:
            return lines | {"accepted_loss": until - start}
        kinds = self.model.count_kinds(partition, start, until)
        return lines | {
            "accepted": kinds[Kind.GOOD],
            "quarantined": kinds[Kind.UNDECODABLE],
            "aborted": kinds[Kind.ABORTED],
            "markers": kinds[Kind.MARKER],
        }

    def i9_batch_is_published_exactly_when_its_rows_are_there(self) -> None:
        """What the ledger answers when it is asked for a batch id is what the target shows."""
        visible = Counter(number for number, _ in self.stored.rows)
        accepted = Counter(
            {number: sum(lines[0] for lines in batch.lines.values()) for number, batch in self.stored.published.items()}
        )
        for number in self.half_published:
            del visible[number], accepted[number]
        assert visible == accepted, f"I9: rows by batch {visible}, published {accepted}"

    def i9_lost_reply_ends_published_or_retryable(self) -> None:
        """A run that lost the reply to its COMMIT knows that it has published, or it may try again."""
        for each in self.slices:
            if not each.has_lost_reply or each.held is None:
                continue
            error, batch = each.error, each.after.batches[each.held.batch.batch_id]
            if isinstance(error, RowsLostError):
                assert self.delivery is DeliveryMode.AT_MOST_ONCE, f"I9: {error}"
                assert batch.state == "published", f"I9: {error}"
            elif isinstance(error, BatchledgerError):
                assert error.retryable, f"I9: {error!r} is not retryable"
                assert batch.state != "published", f"I9: batch {each.held.batch.batch_id} is published, yet {error!r}"
            else:
                assert batch.state == "published", f"I9: {each.process} went on without its batch being published"

    def i9_what_was_acknowledged_as_published_stays_visible(self) -> None:
        """When a run has ended well, its records are there, for ever; at_most_once may have lost them before."""
        visible = {row.place for row in self.stored.target}
        good = {row.place for row in self.model.all_good_rows()}
        missing = (self.model.acknowledged & good) - visible
        if self.delivery is DeliveryMode.AT_MOST_ONCE:
            missing -= self.at_risk
        assert not missing, f"I9: acknowledged, but not visible: {missing}"

    def refusals_have_a_reason(self) -> None:
        """A process ends well, dies, or says in the family's words what is wrong, and it is."""
        for each in self.slices:
            match each.error:
                case TopicChangedError():
                    assert self.model.is_recreated, f"{each.process} refused a topic that is the same: {each.error}"
                case LossError():
                    assert self.model.find_losses(each.after.next_offsets), f"nothing is lost: {each.error}"
                case BatchBlockedError():
                    batches = (*each.before.batches.values(), *each.after.batches.values())
                    assert any(batch.state == "blocked" for batch in batches), f"nothing is blocked: {each.error}"
                case RowsLostError():
                    assert self.delivery is DeliveryMode.AT_MOST_ONCE, f"{each.process} may lose nothing: {each.error}"
                case None | BatchledgerError() | SimulatedCrashError():
                    pass
                case unexpected:
                    raise unexpected
