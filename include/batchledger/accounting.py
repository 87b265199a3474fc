"""The balance of I7: every offset of a range is accounted for by exactly one line. Pure; no I/O.

    until - start = accepted + duplicates + quarantined + tombstones + filtered + holes + accepted_loss + unexplained

A batch may be published only when ``unexplained`` is 0 in each of its ranges.

Worked example, ``orders[3] 1200..1500``: 300 offsets; 296 rows staged, 1 record quarantined, 3 offsets without a
visible record. On a topic with ``holes: none`` the 3 are unexplained and the batch is blocked; on a topic with
``holes: transactional`` they are holes (commit markers, aborted records) and 296 + 1 + 3 = 300 closes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from batchledger.offsets import OffsetRange, TopicPartition


class HolePolicy(StrEnum):
    """Which holes a pipeline declares that its topic may have."""

    NONE = "none"
    TRANSACTIONAL = "transactional"
    COMPACTED = "compacted"


class IntegrityCheck(StrEnum):
    """The checks that every batch has to pass, by the names under which results are stored."""

    NO_DUPLICATE_OFFSETS = "no_duplicate_offsets"
    NO_ROWS_OUTSIDE_RANGES = "no_rows_outside_ranges"
    NO_UNEXPLAINED_HOLES = "no_unexplained_holes"
    BALANCE_CLOSES = "balance_closes"
    RANGES_MEET_POSITION = "ranges_meet_position"
    STAGED_AS_REPORTED = "staged_as_reported"


@dataclass(frozen=True, slots=True)
class WitnessedRange:
    """What the reading tasks saw of one range: offsets with a visible record, and records set aside."""

    range: OffsetRange
    visible: int
    quarantined: int


@dataclass(frozen=True, slots=True)
class StagedRange:
    """What staging holds of one range: rows, and their different offsets.

    ``outside`` counts rows that belong to no range of the batch; they are reported with its first range.
    """

    range: OffsetRange
    rows: int
    distinct_offsets: int
    outside: int = 0


@dataclass(frozen=True, slots=True)
class TargetCount:
    """What the target holds of one batch and partition."""

    rows: int
    distinct_offsets: int
    first_offset: int
    last_offset: int


@dataclass(frozen=True, slots=True)
class HoleEvidence:
    """What a second read, by another client, found where the stage step saw no record.

    ``committed`` and ``uncommitted`` are the offsets at which a record is visible under either isolation level.
    """

    committed: tuple[OffsetRange, ...]
    uncommitted: tuple[OffsetRange, ...]
    log_start_by_partition: Mapping[TopicPartition, int]
    compacted_topics: frozenset[str]


@dataclass(frozen=True, slots=True)
class RangeFacts:
    """The two witnesses of one range side by side; what every integrity check judges."""

    range: OffsetRange
    visible: int
    quarantined: int
    staged: int
    distinct: int
    outside: int


def combine_witnesses(seen: Sequence[WitnessedRange], staged: Sequence[StagedRange]) -> tuple[RangeFacts, ...]:
    """Join what was read with what was staged; both name the same ranges in the same order, else ValueError."""
    facts = []
    for witness, rows in zip(seen, staged, strict=True):
        if witness.range != rows.range:
            raise ValueError(f"evidence is about {witness.range}, staging about {rows.range}")
        facts.append(
            RangeFacts(
                range=witness.range,
                visible=witness.visible,
                quarantined=witness.quarantined,
                staged=rows.rows,
                distinct=rows.distinct_offsets,
                outside=rows.outside,
            )
        )
    return tuple(facts)


@dataclass(frozen=True, slots=True)
class Balance:
    """The accounting of one range; see the module for the equation."""

    range: OffsetRange
    accepted: int = 0
    duplicates: int = 0
    quarantined: int = 0
    tombstones: int = 0
    filtered: int = 0
    holes: int = 0
    accepted_loss: int = 0

    @property
    def unexplained(self) -> int:
        """Offsets that no line accounts for; below zero when something is counted twice."""
        explained = self.accepted + self.duplicates + self.quarantined + self.tombstones + self.filtered
        return len(self.range) - explained - self.holes - self.accepted_loss

    @property
    def is_closed(self) -> bool:
        """Whether every offset is accounted for exactly once."""
        return self.unexplained == 0


def balance_range(facts: RangeFacts, holes: HolePolicy, has_transform: bool) -> Balance:
    """Account for one range.

    Only a pipeline with a transform may drop records (``filtered``); without one, a visible record that is neither
    staged nor quarantined stays unexplained. A hole is explained when the pipeline declares that its topic has them.
    """
    missing = max(0, facts.visible - facts.quarantined - facts.distinct)
    hole_count = max(0, len(facts.range) - facts.visible)
    return Balance(
        range=facts.range,
        accepted=facts.staged,
        quarantined=facts.quarantined,
        filtered=missing if has_transform else 0,
        holes=0 if holes is HolePolicy.NONE else hole_count,
    )


def balance_batch(facts: Sequence[RangeFacts], holes: HolePolicy, has_transform: bool) -> tuple[Balance, ...]:
    """Account for every range of a batch, in the order of ``facts``."""
    return tuple(balance_range(each, holes, has_transform) for each in facts)
