"""The balance of I7: every offset of a range is accounted for by exactly one line. Pure; no I/O.

    until - start = accepted + duplicates + quarantined + tombstones + filtered + holes + accepted_loss + unexplained

A batch may be published only when ``unexplained`` is 0 in each of its ranges.

A hole is an offset for which the stage step saw no record. A second, independent read finds its kind. The pipeline
declares which kinds it allows; any other hole is unexplained.

Worked example, ``orders[3] 1200..1500``: 300 offsets; 296 rows staged, 1 record quarantined, 3 offsets without a
visible record. The second read finds 2 of them under read_uncommitted only (aborted) and nothing at the third (a
marker). On a topic with ``holes: none`` the 3 are unexplained and the batch is blocked; with ``holes: transactional``
they are explained and 296 + 1 + 3 = 300 closes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum

from batchledger.model.counting import describe_count
from batchledger.model.errors import DecisionRefusedError
from batchledger.model.offsets import OffsetRange, TopicPartition, count_covered, find_gaps, merge_ranges
from batchledger.model.records.times import RecordTimes


class HolePolicy(StrEnum):
    """Which holes a pipeline declares that its topic may have."""

    NONE = "none"
    TRANSACTIONAL = "transactional"
    COMPACTED = "compacted"


# A compacted topic may have either kind, so an unclear hole is allowed there.
DECLARED_CLASSES: Mapping[HolePolicy, frozenset[str]] = {
    HolePolicy.NONE: frozenset(),
    HolePolicy.TRANSACTIONAL: frozenset({"aborted", "markers"}),
    HolePolicy.COMPACTED: frozenset({"aborted", "markers", "compacted", "unclear"}),
}

BALANCE_LINES = (
    "accepted", "duplicates", "quarantined", "tombstones", "filtered", "aborted", "markers", "compacted",
    "accepted_loss",
)  # fmt: skip
"""The lines of a balance as people read them, with holes by class."""


@dataclass(frozen=True, slots=True)
class WitnessedRange:
    """What the reading tasks saw of one range: offsets with a visible record, and records set aside.

    ``tombstones`` are records without a value that were skipped because the pipeline says so. ``times`` are the times
    of the records that were set aside.
    """

    range: OffsetRange
    visible: int
    quarantined: int
    tombstones: int = 0
    times: RecordTimes = field(default=RecordTimes(), compare=False)


@dataclass(frozen=True, slots=True)
class StagedRange:
    """What staging holds of one range: rows, and their different offsets.

    ``outside`` counts rows that belong to no range of the batch; they are reported with its first range.
    ``duplicates`` counts rows whose message id is stored already, by an earlier batch or by an earlier row;
    ``known_duplicates`` counts the ones that were listed when their range was published before. ``times`` are the
    times of its rows.
    """

    range: OffsetRange
    rows: int
    distinct_offsets: int
    outside: int = 0
    duplicates: int = 0
    known_duplicates: int = 0
    times: RecordTimes = field(default=RecordTimes(), compare=False)


@dataclass(frozen=True, slots=True)
class TargetCount:
    """What the target holds of one batch and partition.

    ``repeated_keys`` counts rows whose key another row has too, if the sink updates by key.
    """

    rows: int
    distinct_offsets: int
    first_offset: int
    last_offset: int
    repeated_keys: int = 0


@dataclass(frozen=True, slots=True)
class TargetCounts:
    """All rows of the target, counted by batch id and partition.

    The target may have removed rows of batches up to ``incomplete_until`` by its own rules, such as the retention of a
    topic; 0 if it removes nothing.
    """

    by_batch: Mapping[tuple[int, TopicPartition], TargetCount]
    incomplete_until: int = 0


@dataclass(frozen=True, slots=True)
class HoleEvidence:
    """What a second read, by another client, found where the stage step saw no record.

    ``committed`` and ``uncommitted`` are the offsets at which a record is visible under either isolation level. A
    topic is of unknown policy if its settings may not be read.
    """

    committed: tuple[OffsetRange, ...]
    uncommitted: tuple[OffsetRange, ...]
    log_start_by_partition: Mapping[TopicPartition, int]
    compacted_topics: frozenset[str]
    topics_of_unknown_policy: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class HoleCounts:
    """The holes of one range by class; every hole is in exactly one.

    ``aborted``: a record of an aborted transaction. ``markers``: nothing under either isolation level, in a topic that
    is not compacted, so a commit or abort marker. ``compacted``: the same in a compacted topic. ``unread``: a committed
    record that the stage step did not return. ``expired``: below the log start by now, so nothing is known of it.
    ``unclear``: nothing under either isolation level, in a topic that may or may not be compacted.
    """

    aborted: int = 0
    markers: int = 0
    compacted: int = 0
    unread: int = 0
    expired: int = 0
    unclear: int = 0


@dataclass(frozen=True, slots=True)
class RangeFacts:
    """The two witnesses of one range side by side, with its holes: every integrity check judges these."""

    range: OffsetRange
    visible: int
    quarantined: int
    staged: int
    distinct: int
    outside: int
    tombstones: int = 0
    duplicates: int = 0
    known_duplicates: int = 0
    holes: HoleCounts = field(default_factory=HoleCounts)
    times: RecordTimes = field(default=RecordTimes(), compare=False)


def combine_witnesses(
    seen: Sequence[WitnessedRange], staged: Sequence[StagedRange], holes: Sequence[HoleCounts]
) -> tuple[RangeFacts, ...]:
    """Join evidence, staging and holes, given for the same ranges in one order. Raises ValueError otherwise."""
    facts = []
    for witness, rows, counts in zip(seen, staged, holes, strict=True):
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
                tombstones=witness.tombstones,
                duplicates=rows.duplicates,
                known_duplicates=rows.known_duplicates,
                holes=counts,
                times=witness.times | rows.times,
            )
        )
    return tuple(facts)


def classify_holes(holes: Sequence[OffsetRange], evidence: HoleEvidence) -> Mapping[str, Sequence[OffsetRange]]:
    """Return the offsets of the holes by their class; the classes are the fields of ``HoleCounts``.

    Example: hole ``orders[0] 3..6``; a record is visible at 3 and 4 to read_uncommitted only, none at 5: aborted are
    ``orders[0] 3..5``, a marker is ``orders[0] 5..6``.
    """
    starts = evidence.log_start_by_partition
    expired = [
        OffsetRange(each.partition, each.start, min(each.until, starts[each.partition]))
        for each in holes
        if each.start < starts.get(each.partition, 0)
    ]
    readable = find_gaps(expired, within=holes)
    uncommitted = find_gaps(evidence.committed, within=readable)
    invisible = find_gaps(evidence.uncommitted, within=uncommitted)
    by_class: dict[str, list[OffsetRange]] = {
        "expired": expired,
        "unread": find_gaps(uncommitted, within=readable),
        "aborted": find_gaps(invisible, within=uncommitted),
    }
    for each in invisible:
        by_class.setdefault(_class_of_nothing(each.partition.topic, evidence), []).append(each)
    return by_class


def count_classes(
    ranges: Sequence[OffsetRange], by_class: Mapping[str, Sequence[OffsetRange]]
) -> tuple[HoleCounts, ...]:
    """Return how many holes of each class lie in each range, in the order of ranges."""
    covered = {name: count_covered(found, ranges) for name, found in by_class.items()}
    return tuple(HoleCounts(**{name: counts[at] for name, counts in covered.items()}) for at in range(len(ranges)))


def find_unexplained(by_class: Mapping[str, Sequence[OffsetRange]], policy: HolePolicy) -> list[OffsetRange]:
    """Return the holes of undeclared classes, in order: they fail the check."""
    declared = DECLARED_CLASSES[policy]
    return merge_ranges(each for name, found in by_class.items() if name not in declared for each in found)


def _class_of_nothing(topic: str, evidence: HoleEvidence) -> str:
    """Return the class of an offset without a visible record under either isolation level."""
    if topic in evidence.topics_of_unknown_policy:
        return "unclear"
    return "compacted" if topic in evidence.compacted_topics else "markers"


@dataclass(frozen=True, slots=True)
class Balance:
    """The accounting of one range; see the module for the equation. ``holes`` are the explained ones, by class.

    ``times`` are the times of its rows and of the records set aside, for searches by time. They are None until a search
    has looked, and take no part in the equation.
    """

    range: OffsetRange
    accepted: int = 0
    duplicates: int = 0
    quarantined: int = 0
    tombstones: int = 0
    filtered: int = 0
    aborted: int = 0
    markers: int = 0
    compacted: int = 0
    accepted_loss: int = 0
    times: RecordTimes | None = field(default=None, compare=False)

    @property
    def holes(self) -> int:
        """Offsets without a visible record that the pipeline allows for."""
        return self.aborted + self.markers + self.compacted

    @property
    def unexplained(self) -> int:
        """Offsets that no line accounts for; below zero if an offset is counted twice."""
        explained = self.accepted + self.duplicates + self.quarantined + self.tombstones + self.filtered
        return len(self.range) - explained - self.holes - self.accepted_loss

    @property
    def is_closed(self) -> bool:
        """Whether every offset is accounted for exactly once."""
        return self.unexplained == 0


def describe_balance(balance: Balance) -> str:
    """Say what the offsets of one range became, without the lines that are zero.

    Example: ``orders[0] 0..5: 5 offsets = 4 accepted + 1 filtered``.
    """
    lines = [each.name for each in fields(balance) if each.name not in ("range", "times")]
    counts = {name: getattr(balance, name) for name in lines}
    counts["unexplained"] = balance.unexplained
    told = [f"{count:,} {name.replace('_', ' ')}" for name, count in counts.items() if count]
    return f"{balance.range}: {describe_count(len(balance.range), 'offset')} = {' + '.join(told)}"


def balance_range(facts: RangeFacts, policy: HolePolicy, has_transform: bool) -> Balance:
    """Account for one range.

    Only a pipeline with a transform may drop records (``filtered``); without one, a visible record that is neither
    staged nor set aside stays unexplained. A hole is explained when its class is one that the pipeline declares; a
    compacted topic may be transactional too.
    """
    missing = max(0, facts.visible - facts.quarantined - facts.tombstones - facts.distinct)
    holes = {name: getattr(facts.holes, name) for name in DECLARED_CLASSES[policy]}
    return Balance(
        range=facts.range,
        accepted=facts.staged - facts.duplicates,
        duplicates=facts.duplicates,
        quarantined=facts.quarantined,
        tombstones=facts.tombstones,
        filtered=missing if has_transform else 0,
        aborted=holes.get("aborted", 0),
        markers=holes.get("markers", 0),
        compacted=holes.get("compacted", 0) + holes.get("unclear", 0),
        times=facts.times,
    )


def balance_batch(facts: Sequence[RangeFacts], policy: HolePolicy, has_transform: bool) -> tuple[Balance, ...]:
    """Account for every range of a batch, in the order of ``facts``."""
    return tuple(balance_range(each, policy, has_transform) for each in facts)


# The remark about holes that the balance does not explain.
_REMARK_BY_CLASS = {
    "aborted": "if transactions write to the topic, set source.holes: transactional",
    "markers": "if transactions write to the topic, set source.holes: transactional",
    "compacted": "the topic is compacted: set source.holes: compacted",
    "unread": "unread are committed records that the stage step did not return: stage the batch again",
    "expired": "Kafka has removed the expired ones since, so nothing is known of them",
    "unclear": "unclear are markers or compacted records: grant DESCRIBE_CONFIGS on the topic to tell",
}


def give_up_unexplained(balances: Sequence[Balance]) -> tuple[Balance, ...]:
    """Close the balances: what no line accounts for becomes an accepted loss.

    Raises DecisionRefusedError if an offset is counted twice: no decision makes wrong rows right.
    """
    too_much = [f"{each.range} by {-each.unexplained:,}" for each in balances if each.unexplained < 0]
    if too_much:
        raise DecisionRefusedError(
            f"More is staged than there are offsets in {', '.join(too_much)}. No decision makes wrong rows right.",
            advice="Take the batch again: batchledger run PIPELINE --batch NUMBER\n"
            "Or discard it: batchledger discard NUMBER --reason WHY",
        )
    return tuple(replace(each, accepted_loss=each.accepted_loss + each.unexplained) for each in balances)


def count_holes(facts: Sequence[RangeFacts]) -> dict[str, int]:
    """Return the holes of all ranges by class, without the classes that have none."""
    totals = {name: sum(getattr(each.holes, name) for each in facts) for name in _REMARK_BY_CLASS}
    return {name: total for name, total in totals.items() if total}


def describe_holes(facts: Sequence[RangeFacts], balances: Sequence[Balance]) -> str:
    """Count the holes of all ranges by class: ``holes: aborted 2, markers 1``; empty if there is none.

    Unexplained classes come with a remark in parentheses: what to do about them.
    """
    found = count_holes(facts)
    if not found:
        return ""
    explained = {name: sum(getattr(each, name, 0) for each in balances) for name in found}
    remarks = dict.fromkeys(_REMARK_BY_CLASS[name] for name, total in found.items() if explained[name] < total)
    counts = ", ".join(f"{name} {total:,}" for name, total in found.items())
    return f"holes: {counts} ({'; '.join(remarks)})" if remarks else f"holes: {counts}"
