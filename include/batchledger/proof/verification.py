"""Prove I1, I2, I7 and I8 over the whole history of a pipeline, and that the target holds what the ledger says. Pure.

The proof trusts nothing that a publication has checked before: it starts again from the published ranges, the positions
and the counts found in the target. It judges one look: ``proving`` looks again if something was published between
reading the ledger and counting the target.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from batchledger.model.balance import TargetCount, TargetCounts
from batchledger.model.batch import Lane, Position
from batchledger.model.counting import describe_count
from batchledger.model.offsets import OffsetRange, TopicPartition, describe_ranges, find_gaps, find_overlaps
from batchledger.model.records.rules import SinkMode
from batchledger.proof.decision_chain import DecisionChain, find_break

TargetKey = tuple[int, TopicPartition]


@dataclass(frozen=True, slots=True)
class Removed:
    """How much of one range later batches have removed, or how much of it is left."""

    rows: int = 0
    quarantined: int = 0
    duplicates: int = 0


@dataclass(frozen=True, slots=True)
class PublishedRange:
    """One range that the ledger calls published, with what its balance says is in the target and in quarantine.

    ``has_rows`` is whether the rows of its batch were committed at all, and with them the list of its ``duplicates``.
    ``replaced`` are the offsets that later batches hold by now, with what these have removed of this one's rows, lines
    of quarantine and listed duplicates; among these lines are the ``quarantine_dropped``, which were removed without
    being published again. ``rows_erased`` were erased by people, from what no later batch had replaced by then.
    Ranges of replays are in no epoch: they never moved the position.
    """

    batch_id: int
    range: OffsetRange
    accepted: int
    quarantined: int
    unexplained: int
    has_rows: bool = True
    duplicates: int = 0
    accepted_loss: int = 0
    lane: Lane = Lane.LIVE
    epoch: int = 0
    replaced: tuple[OffsetRange, ...] = ()
    removed: Removed = Removed()
    quarantine_dropped: int = 0
    rows_erased: int = 0

    @property
    def held(self) -> list[OffsetRange]:
        """The offsets that no batch has replaced. All rows that the batch has left in the target lie here."""
        return find_gaps(self.replaced, within=[self.range]) if self.replaced else [self.range]

    @property
    def accepted_loss_left(self) -> int:
        """How many offsets that a person gave up are unpublished since, at most."""
        return self._at_most_held(self.accepted_loss)

    @property
    def quarantine_dropped_left(self) -> int:
        """How many records dropped from quarantine were not published again since, at most."""
        return self._at_most_held(self.quarantine_dropped)

    def count_erased_left(self, mode: SinkMode) -> int:
        """How many erased rows were not published again since, at most.

        No offset of appended rows is counted as two things: of 45 rows one was erased, 0..30 were published again, and
        15 rows are left in 30..45. So the erased one was published again.
        """
        left = self.left
        others = left.rows + left.quarantined + left.duplicates if mode is SinkMode.APPEND else 0
        return self._at_most_held(self.rows_erased, others)

    def _at_most_held(self, offsets: int, others: int = 0) -> int:
        """``others`` are held offsets that are something else."""
        return min(offsets, max(0, sum(map(len, self.held)) - others))

    @property
    def left(self) -> "Removed":
        """What the batch should still have there: what it was accepted with, less what was removed."""
        if not self.held:
            return Removed()
        return Removed(
            self.accepted - self.removed.rows - self.rows_erased,
            self.quarantined - self.removed.quarantined,
            self.duplicates - self.removed.duplicates,
        )


@dataclass(frozen=True, slots=True)
class PublishedHistory:
    """What the ledger says of one pipeline at one moment.

    ``quarantined`` and ``duplicates`` are how many records are set aside and listed. ``visible_early`` are the open
    batches whose rows are committed while the position is not yet (at_least_once), or may be (committing); a blocked
    one is not among them: no run is about to publish it.
    """

    positions: Sequence[Position]
    ranges: Sequence[PublishedRange]
    quarantined: Mapping[TargetKey, int] = field(default_factory=dict)
    duplicates: Mapping[TargetKey, int] = field(default_factory=dict)
    epoch: int = 0
    visible_early: frozenset[int] = frozenset()
    decisions: DecisionChain = field(default_factory=DecisionChain)


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that contradicts the promise; ``invariant`` is I1, I2, I3, I7 or I8, else the table that is wrong."""

    invariant: str
    where: str
    detail: str


@dataclass(frozen=True, slots=True)
class Verification:
    """The outcome of one proof: how much was looked at, what a person gave up (``accepted_loss``), and every finding.

    ``offsets`` counts what is published now, each offset once however often it was published; ``taken_over`` counts
    the offsets that an earlier batch had published, once for each time; ``quarantine_dropped`` counts the records that
    were removed from quarantine on purpose, and ``rows_erased`` the rows that people erased.

    With ``mode`` upsert the proof does not show that no row is missing: the target holds only the newest state of each
    key, so a lost row looks like one that was replaced or deleted. The same holds for batches up to
    ``incomplete_until``, of which the target may have removed rows by itself. What was lost there shows in numbers at
    most. The ledger accepted ``accepted`` rows that no later batch has replaced, and the target holds ``rows``. The
    newest batch that has brought some is ``newest_accepted``, and the newest of which there is any is ``newest_found``
    (0: none).

    ``decisions`` is how many decisions about the pipeline there are, and ``chain_end`` the hash of the newest one in
    hexadecimal digits. ``not_compared`` says why the ledger alone was proved; it is empty if the target was counted.
    """

    pipeline: str
    mode: SinkMode
    batches: int
    ranges: int
    offsets: int
    rows: int
    quarantined: int
    accepted_loss: int
    findings: tuple[Finding, ...]
    incomplete_until: int = 0
    taken_over: int = 0
    accepted: int = 0
    newest_accepted: int = 0
    newest_found: int = 0
    quarantine_dropped: int = 0
    decisions: int = 0
    chain_end: str = ""
    rows_erased: int = 0
    not_compared: str = ""

    @property
    def holds(self) -> bool:
        """Whether nothing contradicts the promise."""
        return not self.findings

    @property
    def offsets_without_row(self) -> int:
        """How many offsets are left if each row, erased row, quarantined, dropped and lost record takes one."""
        set_aside = self.quarantined + self.quarantine_dropped
        return self.offsets - self.rows - self.rows_erased - set_aside - self.accepted_loss

    @property
    def may_lack_rows(self) -> bool:
        """Whether rows of the target may be missing without a finding."""
        return self.mode is SinkMode.UPSERT or self.incomplete_until > 0

    @property
    def proved_of_target(self) -> str:
        """What is proved of the target when nothing was found there; the last sentence has no full stop."""
        if self.not_compared:
            return f"the target was not compared: {self.not_compared}"
        match self.mode:
            case SinkMode.UPSERT:
                return (
                    "the target holds nothing that the ledger does not account for. Not proved: that no row is "
                    "missing; a target that is updated by key holds only the newest state, so a missing row looks like "
                    "one that was replaced or deleted"
                )
            case SinkMode.PRODUCE if self.taken_over:
                again = describe_count(self.taken_over, "offset was", "offsets were")
                again += " published again, and what was produced before stays"
                return f"the target holds what the ledger says; {again}"
            case SinkMode.APPEND | SinkMode.PRODUCE:
                return "the target holds what the ledger says"


def check_target(
    history: PublishedHistory, target: TargetCounts, mode: SinkMode
) -> dict[TargetKey, tuple[Finding, ...]]:
    """Return what contradicts the promise in the target, by batch and partition; only those that have findings.

    A target that is updated by key holds at most the rows that a batch accepted: later ones may have replaced them.
    A target that cannot replace holds what was ever produced. Rows of a batch that is between its two commits are left
    to the next proof.
    """
    claims = _sum_claims(history.ranges, mode)
    none = TargetCount(0, 0, 0, 0)
    found = {
        key: tuple(_check_claim(key, claim, target.by_batch.get(key, none), _may_lack(key, claim, target, mode)))
        for key, claim in claims.items()
    }
    for key, count in target.by_batch.items():
        batch_id, partition = key
        if key not in claims and batch_id not in history.visible_early:
            detail = f"{describe_count(count.rows, 'row')} that no published batch accounts for"
            found[key] = (Finding("target", f"batch {batch_id}, {partition}", detail),)
    return {key: findings for key, findings in found.items() if findings}


def conclude(
    pipeline: str,
    history: PublishedHistory,
    target: TargetCounts,
    mode: SinkMode,
    in_target: Iterable[Finding],
    *,
    not_compared: str = "",
) -> Verification:
    """Put what was found in the target together with what the ledger itself shows, which is of one moment.

    ``not_compared``: why the target was not counted.
    """
    live = [each for each in history.ranges if each.lane is Lane.LIVE]
    claims = _sum_claims(history.ranges, mode)
    findings = (
        *_check_contiguous(history.positions, live, history.epoch),
        *_check_disjoint(live),
        *_check_held_once(history.ranges, [each.range for each in live if each.epoch == history.epoch]),
        *_check_balances(history.ranges),
        *in_target,
        *_check_quarantine(claims, history.quarantined),
        *_check_duplicates(claims, history.duplicates),
        *_check_decisions(history.decisions),
    )
    return Verification(
        pipeline=pipeline,
        mode=mode,
        batches=len({each.batch_id for each in history.ranges}),
        ranges=len(history.ranges),
        offsets=sum(len(part) for each in history.ranges for part in each.held),
        rows=sum(
            count.rows for (batch_id, _), count in target.by_batch.items() if batch_id not in history.visible_early
        ),
        incomplete_until=target.incomplete_until,
        quarantined=sum(history.quarantined.values()),
        accepted_loss=sum(each.accepted_loss_left for each in history.ranges),
        findings=findings,
        taken_over=sum(len(part) for each in history.ranges for part in each.replaced),
        accepted=sum(each.left.rows for each in claims.values()),
        newest_accepted=max((key[0] for key, each in claims.items() if each.left.rows), default=0),
        newest_found=max((key[0] for key in claims if key in target.by_batch), default=0),
        quarantine_dropped=sum(each.quarantine_dropped_left for each in history.ranges),
        decisions=len(history.decisions.decisions),
        chain_end=history.decisions.end,
        rows_erased=sum(each.count_erased_left(mode) for each in history.ranges),
        not_compared=not_compared,
    )


@dataclass(frozen=True, slots=True)
class _Claim:
    """What one batch should have left in one partition, over all of its ranges there; ``held``: where its rows lie."""

    held: tuple[OffsetRange, ...]
    left: Removed
    has_rows: bool
    lane: Lane

    @property
    def where(self) -> str:
        return describe_ranges(self.held)


def _sum_claims(published: Sequence[PublishedRange], mode: SinkMode) -> dict[TargetKey, _Claim]:
    claims: dict[TargetKey, _Claim] = {}
    for each in published:
        key = (each.batch_id, each.range.partition)
        known = claims.get(key, _Claim((), Removed(), each.has_rows, each.lane))
        held, rows = (each.held, each.left.rows) if mode.can_replace else ([each.range], each.accepted)
        left = Removed(
            known.left.rows + rows,
            known.left.quarantined + each.left.quarantined,
            known.left.duplicates + each.left.duplicates,
        )
        claims[key] = _Claim((*known.held, *held), left, each.has_rows, each.lane)
    return claims


def _may_lack(key: TargetKey, claim: _Claim, target: TargetCounts, mode: SinkMode) -> bool:
    """Whether rows of the batch may be missing: replaced by key, or removed by the target itself.

    A replay is in the log at another place than its number says.
    """
    is_early = target.incomplete_until > 0 and (key[0] <= target.incomplete_until or claim.lane is Lane.REPLAY)
    return mode is SinkMode.UPSERT or is_early


def _check_contiguous(positions: Sequence[Position], live: Sequence[PublishedRange], epoch: int) -> Iterator[Finding]:
    everything, present = [each.range for each in live], [each.range for each in live if each.epoch == epoch]
    earlier = [OffsetRange(each.partition, each.origin_offset, each.epoch_start) for each in positions]
    claimed = [OffsetRange(each.partition, each.epoch_start, each.next_offset) for each in positions]
    for gap in (*find_gaps(everything, within=earlier), *find_gaps(present, within=claimed)):
        yield Finding("I1", str(gap), "the position has passed these offsets, but no batch published them")
    for beyond in find_gaps(claimed, within=present):
        yield Finding("I1", str(beyond), "published, but outside of what the position claims")


def _check_disjoint(live: Sequence[PublishedRange]) -> Iterator[Finding]:
    for epoch in sorted({each.epoch for each in live}):
        for overlap in find_overlaps(each.range for each in live if each.epoch == epoch):
            yield Finding("I2", str(overlap), "published by more than one batch")


def _check_held_once(published: Sequence[PublishedRange], present: Sequence[OffsetRange]) -> Iterator[Finding]:
    held = [part for each in published for part in each.held]
    for overlap in find_overlaps(held):
        yield Finding("I8", str(overlap), "held by more than one batch: their rows may be there twice")
    for nobodys in find_gaps(held, within=present):
        yield Finding("I8", str(nobodys), "published, but no batch holds the rows")


def _check_balances(published: Sequence[PublishedRange]) -> Iterator[Finding]:
    for each in published:
        if each.unexplained:
            left = describe_count(each.unexplained, "offset")
            yield Finding("I7", str(each.range), f"batch {each.batch_id} leaves {left} unexplained")


def _check_claim(key: TargetKey, claim: _Claim, found: TargetCount, may_lack: bool) -> Iterator[Finding]:
    expected = claim.left.rows
    where = f"batch {key[0]}, {claim.where or key[1]}"
    if found.rows < expected and not claim.has_rows:
        lost = f"the position has moved, but its {expected} rows were never written"
        yield Finding("I3", where, f"{lost}, or are being written right now")
        return
    if found.rows > expected or (found.rows < expected and not may_lack):
        yield Finding(
            "target", where, f"the ledger accepted {describe_count(expected, 'row')}, the target holds {found.rows:,}"
        )
    if found.distinct_offsets != found.rows:
        yield Finding("target", where, f"rows that repeat an offset: {found.rows - found.distinct_offsets}")
    if found.repeated_keys:
        yield Finding("target", where, f"rows with a key that another row has too: {found.repeated_keys}")
    is_inside = claim.held and all(
        min(each.start for each in claim.held) <= offset < max(each.until for each in claim.held)
        for offset in (found.first_offset, found.last_offset)
    )
    if found.rows and not is_inside:
        yield Finding(
            "target", where, f"rows from {found.first_offset} to {found.last_offset} lie outside of the range"
        )


def _check_quarantine(claims: Mapping[TargetKey, _Claim], quarantined: Mapping[TargetKey, int]) -> Iterator[Finding]:
    for key, claim in claims.items():
        found = quarantined.get(key, 0)
        if found != claim.left.quarantined:
            records = describe_count(claim.left.quarantined, "record")
            yield Finding(
                "quarantine",
                f"batch {key[0]}, {claim.where or key[1]}",
                f"the ledger accounted for {records}, quarantine holds {found:,}",
            )


def _check_duplicates(claims: Mapping[TargetKey, _Claim], duplicates: Mapping[TargetKey, int]) -> Iterator[Finding]:
    for key, claim in claims.items():
        listed = duplicates.get(key, 0)
        if claim.has_rows and listed != claim.left.duplicates:
            yield Finding(
                "duplicate",
                f"batch {key[0]}, {claim.where or key[1]}",
                f"the ledger accounted for {claim.left.duplicates} duplicates, {listed} are listed",
            )


def _check_decisions(chain: DecisionChain) -> Iterator[Finding]:
    broken = find_break(chain)
    if broken is not None:
        yield Finding("decision", *broken)
