"""What holds after every step, computed from the stored state and the model, without a line of the platform's proof.

The weaker delivery modes keep as much as exactly_once, except for the batches of which a process has made the first
commit and not the last: it died there, was overtaken, lost a reply, or still sleeps. Their records may be repeated in
at_least_once, and lost in at_most_once, until a batch that is one commit, as every replay is, has published the same
offsets after it: these are exact again.

A sink that commits by itself shows a batch before the ledger does. It may show the old records or the new ones of the
offsets of a committing batch, each once; afterwards there is no difference.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from hypothesis.stateful import RuleBasedStateMachine, invariant

from batchledger.model.batch import Attempt, DeliveryMode, Lane
from batchledger.model.errors import (
    BatchBlockedError,
    BatchledgerError,
    ExpiredError,
    FencedError,
    LossError,
    PositionConflictError,
    ReplayRefusedError,
    RowsLostError,
    TopicChangedError,
)
from tests.fakes.crash import SimulatedCrashError
from tests.machine.model import RECORDS, Kind, Model, Place, spell_out
from tests.machine.processes import FENCED_WRITES, Process, Step
from tests.machine.stored import BALANCE_LINES, NOTHING_STORED, Span, Stored


@dataclass(frozen=True)
class Slice:
    """What one process did between two of its pauses, with the state before and after it.

    ``paused_at`` and ``held`` belong to its beginning, the next three to its end. ``is_repeated`` is
    whether it has published only what releases that decode the same had published before.
    """

    process: Process
    paused_at: str | None
    held: Attempt | None
    step: Step
    error: BaseException | None
    is_over: bool
    has_lost_reply: bool
    is_repeated: bool
    before: Stored
    after: Stored

    @property
    def asked(self) -> Iterable[Span]:
        """What a replay is to publish again."""
        if self.process.batch_id is not None:
            return self.after.batches[self.process.batch_id].spans
        what = self.process.request.replay.what
        return [(each.partition.partition, each.start, each.until) for each in what]

    @property
    def is_superseded(self) -> bool:
        """Whether it was about to write with an attempt that the ledger no longer wants."""
        if self.paused_at not in FENCED_WRITES or self.held is None:
            return False
        found = self.before.batches[self.held.batch.batch_id]
        return found.attempt != self.held.number or found.state == "discarded"

    @property
    def confirmed(self) -> dict[int, int]:
        """The positions to which the confirmation of a live batch moves, by partition."""
        return {
            partition: until
            for number, batch in self.before.batches.items()
            if (batch.lane, batch.state) == (Lane.LIVE, "committing") and number in self.after.published
            for partition, _, until in batch.spans
        }


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
        return {each.batch_id for each in self.processes if each.at_risk}

    @property
    def at_risk(self) -> set[Place]:
        """Where the weaker modes may repeat or lose records."""
        return set().union(*(each.at_risk for each in self.processes))

    def is_expired(self, spans: Iterable[Span]) -> bool:
        """Whether Kafka has removed something of these ranges."""
        return any(start < self.model.log_start[partition] for partition, start, _ in spans)

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
            self.i8_every_record_is_that_of_the_batch_that_published_it_last,
            self.i8_each_offset_is_held_by_the_batch_that_published_it_last,
            self.i8_no_record_disappears_before_another_takes_its_place,
            self.i8_publishing_the_same_again_changes_nothing_but_the_owner,
            self.i8_replay_moves_no_position,
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
        for batch in self.stored.published_live.values():
            for partition, start, until in batch.spans:
                covered[partition] |= set(range(start, until))
        for partition, next_offset in self.stored.next_offsets.items():
            origin = self.model.origin[partition]
            assert self.stored.origins[partition] == origin, f"I1: partition {partition} started at another offset"
            passed = set(range(origin, next_offset))
            assert covered[partition] == passed, f"I1: partition {partition}: {covered[partition] ^ passed}"

    def i2_published_ranges_are_disjoint(self) -> None:
        """No offset belongs to two published live batches."""
        times = Counter(
            (partition, offset)
            for batch in self.stored.published_live.values()
            for partition, start, until in batch.spans
            for offset in range(start, until)
        )
        repeated = [place for place, count in times.items() if count > 1]
        assert not repeated, f"I2: published more than once: {repeated}"

    def i3_rows_and_position_agree(self) -> None:
        """Every record that a published batch covers is visible once if its release decodes it, and nothing else is.

        With I1 these are all records below the position, and what replays have published elsewhere. Weaker modes: see
        the module.
        """
        passed = self.model.find_rows().keys()
        found, at_risk = self.stored.target, self.at_risk
        lost, repeated, surplus = passed - found.keys(), {row for row in found if found[row] > 1}, found.keys() - passed
        if self.delivery is DeliveryMode.AT_LEAST_ONCE:
            repeated = {row for row in repeated if row.place not in at_risk}
            surplus = {row for row in surplus if row.place not in at_risk}
        elif self.delivery is DeliveryMode.AT_MOST_ONCE:
            lost = {row for row in lost if row.place not in at_risk}
        unsettled = self.stored.unsettled
        lost = {row for row in lost if row.place not in unsettled}
        surplus = {row for row in surplus if row.place not in unsettled}
        wrong = {what: rows for what, rows in (("lost", lost), ("repeated", repeated), ("surplus", surplus)) if rows}
        assert not wrong, f"I3 of {self.delivery}: {wrong}"

    def i3_quarantine_and_position_agree(self) -> None:
        """Every undecodable record that a published batch covers is in quarantine once, in all delivery modes."""
        expected = Counter(self.model.find_quarantined().keys())
        found = Counter(place for _, place in self.stored.quarantine)
        assert found == expected, f"I3: quarantine holds {found}, not {expected}"

    def i4_superseded_attempt_changes_nothing_and_is_told_by_whom(self) -> None:
        """Who writes with an old attempt finds everything as it was, and an error that names the newest one."""
        for each in self.slices:
            error = each.error
            if isinstance(error, FencedError):
                owner = each.after.batches[error.batch_id]
                names = [f"attempt {owner.attempt} of run {owner.run}".lower()]
                if owner.run == each.process.run:
                    names.append(f"attempt {owner.attempt} of the same run")
                if owner.state == "discarded":
                    names.append("discarded by a person's decision")
                assert any(name in str(error).lower() for name in names), f"I4: {error} does not name {names[0]}"
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
                assert found == self._balance(number, span), f"I7: {span} of batch {number}: {found}"

    def _balance(self, number: int, span: Span) -> dict[str, int]:
        partition, start, until = span
        lines = dict.fromkeys(BALANCE_LINES, 0)
        if number in self.model.losses:
            return lines | {"accepted_loss": until - start}
        kinds, decoded = self.model.count_kinds(partition, start, until), self.model.decoded_by[number]
        return lines | {
            "accepted": kinds[decoded],
            "quarantined": sum(kinds[each] for each in RECORDS - {decoded}),
            "aborted": kinds[Kind.ABORTED],
            "markers": kinds[Kind.MARKER],
        }

    def i8_every_record_is_that_of_the_batch_that_published_it_last(self) -> None:
        """Rows and lines of quarantine name their owner."""
        owners, at_risk = self.model.owners, self.at_risk | self.stored.unsettled
        found = [*((number, row.place) for number, row in self.stored.rows), *self.stored.quarantine]
        wrong = [(number, place) for number, place in found if owners.get(place) != number and place not in at_risk]
        assert not wrong, f"I8: {wrong} name another batch than {[owners.get(place) for _, place in wrong]}"

    def i8_each_offset_is_held_by_the_batch_that_published_it_last(self) -> None:
        """The ledger says that a batch holds what no other has published after it."""
        held = Counter((place, n) for n, batch in self.stored.published.items() for place in spell_out(batch.held))
        owned = Counter(self.model.owners.items())
        assert held == owned, f"I8: held, but not owned: {held - owned}; owned, but not held: {owned - held}"

    def i8_no_record_disappears_before_another_takes_its_place(self) -> None:
        """Readers never see old rows gone and new ones not yet there, in no mode."""
        for each in self.slices:
            gone = each.before.places - each.after.places - each.after.unsettled
            assert not gone, f"I8: after {each.process} went on, readers miss {gone}"

    def i8_publishing_the_same_again_changes_nothing_but_the_owner(self) -> None:
        """A replay is idempotent."""
        for each in self.slices:
            if each.is_repeated:
                before, after = each.before.records, each.after.records
                assert before == after, f"I8: {each.process} took away {before - after} and brought {after - before}"

    def i8_replay_moves_no_position(self) -> None:
        """It may store where the pipeline begins, when it is the first to look at a partition.

        And it may confirm what a sink has committed of a live batch whose run was killed.
        """
        for each in self.slices:
            if each.process.lane is Lane.REPLAY:
                first = {partition: self.model.origin[partition] for partition in each.after.next_offsets}
                expected = first | each.before.next_offsets | each.confirmed
                assert each.after.next_offsets == expected, f"I8: {each.process} moved the position"

    def i9_batch_is_published_exactly_when_its_rows_are_there(self) -> None:
        """What the ledger answers when it is asked for a batch id is what the target shows, less what was replaced."""
        visible = Counter(number for number, _ in self.stored.rows)
        accepted = Counter({number: self._count_left(number) for number in self.stored.published})
        shared = {self.model.owners[place] for place in self.stored.unsettled & self.model.owners.keys()}
        for number in self.half_published | self.stored.unconfirmed | shared:
            del visible[number], accepted[number]
        assert visible == accepted, f"I9: rows by batch {visible}, published {accepted}"

    def _count_left(self, number: int) -> int:
        """How many of the rows that the audit has accepted no other batch has replaced."""
        batch = self.stored.batches[number]
        replaced = [place for place in spell_out(batch.spans) if self.model.owners[place] != number]
        accepted = sum(lines[0] for lines in batch.lines.values())
        return accepted - sum(self.model.is_decoded(place, number) for place in replaced)

    def i9_lost_reply_ends_published_or_retryable(self) -> None:
        """A run that lost the reply to its COMMIT knows that it has published, or it may try again."""
        for each in self.slices:
            if not each.has_lost_reply or each.held is None or each.held.batch.batch_id != each.process.batch_id:
                continue
            error, batch = each.error, each.after.batches[each.held.batch.batch_id]
            if isinstance(error, RowsLostError):
                assert self.delivery is DeliveryMode.AT_MOST_ONCE, f"I9: {error}"
                assert batch.state == "published", f"I9: {error}"
            elif isinstance(error, BatchledgerError):
                assert error.retryable, f"I9: {error!r} is not retryable"
                assert batch.state != "published", f"I9: batch {each.held.batch.batch_id} is published, yet {error!r}"
            else:
                # It knows enough of an announcement to ask the sink.
                known = ("published",) if each.is_over else ("published", "committing")
                assert batch.state in known, f"I9: {each.process} went on without its batch being published"

    def i9_what_was_acknowledged_as_published_stays_visible(self) -> None:
        """When a run has ended well, its records are there or in quarantine, for ever; at_most_once may lose some."""
        acknowledged = self.model.acknowledged - self.stored.unsettled
        missing = {place for place in acknowledged if self.model.is_record(place)} - self.stored.places
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
                    assert each.process.lane is Lane.LIVE, f"{each.process} reads what is left: {each.error}"
                    assert self.model.find_losses(each.after.next_offsets), f"nothing is lost: {each.error}"
                case ExpiredError():
                    assert self.is_expired(each.asked), f"nothing has expired: {each.error}"
                case PositionConflictError():
                    assert each.process.lane is Lane.LIVE, f"I8: {each.process} needs no position: {each.error}"
                case BatchBlockedError():
                    batches = (*each.before.batches.values(), *each.after.batches.values())
                    assert any(batch.state == "blocked" for batch in batches), f"nothing is blocked: {each.error}"
                case RowsLostError():
                    assert self.delivery is DeliveryMode.AT_MOST_ONCE, f"{each.process} may lose nothing: {each.error}"
                case ReplayRefusedError():
                    raise each.error
                case None | BatchledgerError() | SimulatedCrashError():
                    pass
                case unexpected:
                    raise unexpected
