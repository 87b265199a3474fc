"""Prove I1, I2 and I7 over the whole history of a pipeline, and that the target holds what the ledger says. Pure.

The proof trusts nothing that a publication has checked before: it starts again from the published ranges, the positions
and the counts found in the target.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from batchledger.accounting import TargetCount
from batchledger.batch import Position
from batchledger.offsets import OffsetRange, TopicPartition, find_gaps, find_overlaps
from batchledger.record_rules import SinkMode

TargetKey = tuple[int, TopicPartition]


@dataclass(frozen=True, slots=True)
class PublishedRange:
    """One range that the ledger calls published, with what its balance says is in the target and in quarantine.

    ``has_rows`` is whether the rows of its batch were committed at all, and with them the list of its ``duplicates``.
    """

    batch_id: int
    range: OffsetRange
    accepted: int
    quarantined: int
    unexplained: int
    has_rows: bool = True
    duplicates: int = 0
    accepted_loss: int = 0


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that contradicts the promise; ``invariant`` is I1, I2, I3 or I7, else the table that is wrong."""

    invariant: str
    where: str
    detail: str


@dataclass(frozen=True, slots=True)
class Verification:
    """The outcome of one proof: how much was looked at, what a person gave up (``accepted_loss``), and every finding.

    With ``mode`` upsert it is not proved that no row is missing: the target holds only the newest state of each key, so
    a lost row cannot be told from one that was replaced or deleted.
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

    @property
    def holds(self) -> bool:
        """Whether nothing contradicts the promise."""
        return not self.findings


def verify_history(
    pipeline: str,
    positions: Sequence[Position],
    published: Sequence[PublishedRange],
    target: Mapping[TargetKey, TargetCount],
    quarantined: Mapping[TargetKey, int],
    *,
    duplicates: Mapping[TargetKey, int],
    mode: SinkMode = SinkMode.APPEND,
) -> Verification:
    """Compare positions, published ranges, target, quarantine and duplicates; report every contradiction.

    A target that is updated by key holds at most the rows that a batch accepted: later ones may have replaced them.
    """
    findings = (
        *_check_contiguous(positions, published),
        *_check_disjoint(published),
        *_check_balances(published),
        *_check_target(published, target, mode),
        *_check_quarantine(published, quarantined),
        *_check_duplicates(published, duplicates),
    )
    return Verification(
        pipeline=pipeline,
        mode=mode,
        batches=len({each.batch_id for each in published}),
        ranges=len(published),
        offsets=sum(len(each.range) for each in published),
        rows=sum(count.rows for count in target.values()),
        quarantined=sum(quarantined.values()),
        accepted_loss=sum(each.accepted_loss for each in published),
        findings=findings,
    )


def _check_contiguous(positions: Sequence[Position], published: Sequence[PublishedRange]) -> Iterator[Finding]:
    claimed = [OffsetRange(each.partition, each.origin_offset, each.next_offset) for each in positions]
    ranges = [each.range for each in published]
    for gap in find_gaps(ranges, within=claimed) if claimed else ():
        yield Finding("I1", str(gap), "the position has passed these offsets, but no batch published them")
    for beyond in find_gaps(claimed, within=ranges) if ranges else ():
        yield Finding("I1", str(beyond), "published, but outside of what the position claims")


def _check_disjoint(published: Sequence[PublishedRange]) -> Iterator[Finding]:
    for overlap in find_overlaps(each.range for each in published):
        yield Finding("I2", str(overlap), "published by more than one batch")


def _check_balances(published: Sequence[PublishedRange]) -> Iterator[Finding]:
    for each in published:
        if each.unexplained:
            yield Finding("I7", str(each.range), f"batch {each.batch_id} leaves {each.unexplained} offsets unexplained")


def _check_target(
    published: Sequence[PublishedRange], target: Mapping[TargetKey, TargetCount], mode: SinkMode
) -> Iterator[Finding]:
    known: set[TargetKey] = set()
    for each in published:
        key = (each.batch_id, each.range.partition)
        known.add(key)
        found = target.get(key, TargetCount(0, 0, each.range.start, each.range.start))
        where = f"batch {each.batch_id}, {each.range}"
        if each.accepted and not each.has_rows:
            lost = f"the position has moved, but its {each.accepted} rows were never written"
            yield Finding("I3", where, f"{lost}, or are being written right now")
            continue
        if found.rows > each.accepted or (mode is SinkMode.APPEND and found.rows != each.accepted):
            yield Finding("target", where, f"the ledger accepted {each.accepted} rows, the target holds {found.rows}")
        if found.distinct_offsets != found.rows:
            yield Finding("target", where, f"{found.rows - found.distinct_offsets} rows repeat an offset")
        if found.repeated_keys:
            yield Finding("target", where, f"{found.repeated_keys} rows have a key that another row has too")
        if found.rows and not (found.first_offset in each.range and found.last_offset in each.range):
            yield Finding(
                "target", where, f"rows from {found.first_offset} to {found.last_offset} lie outside of the range"
            )
    for (batch_id, partition), found in target.items():
        if (batch_id, partition) not in known:
            yield Finding(
                "target", f"batch {batch_id}, {partition}", f"{found.rows} rows that no published batch accounts for"
            )


def _check_quarantine(published: Sequence[PublishedRange], quarantined: Mapping[TargetKey, int]) -> Iterator[Finding]:
    for each in published:
        found = quarantined.get((each.batch_id, each.range.partition), 0)
        if found != each.quarantined:
            yield Finding(
                "quarantine",
                f"batch {each.batch_id}, {each.range}",
                f"the ledger accounted for {each.quarantined} records, quarantine holds {found}",
            )


def _check_duplicates(published: Sequence[PublishedRange], duplicates: Mapping[TargetKey, int]) -> Iterator[Finding]:
    for each in published:
        listed = duplicates.get((each.batch_id, each.range.partition), 0)
        if each.has_rows and listed != each.duplicates:
            yield Finding(
                "duplicate",
                f"batch {each.batch_id}, {each.range}",
                f"the ledger accounted for {each.duplicates} duplicates, {listed} are listed",
            )
