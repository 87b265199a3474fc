"""The rules of a pipeline file for single records, as frozen values.

Standard library only. The sinks hold the SQL that keeps these promises.
"""

from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum

from batchledger.model.checks import Severity


class TombstonePolicy(StrEnum):
    """What becomes of a record without a value.

    ``QUARANTINE``: set aside as undecodable. ``KEEP``: a row whose declared columns are all null. ``SKIP``: counted,
    and no row. ``DELETE``: a row with its key columns from the record's key, which deletes that key from the target.
    """

    QUARANTINE = "quarantine"
    KEEP = "keep"
    SKIP = "skip"
    DELETE = "delete"


class UnknownFieldPolicy(StrEnum):
    """What becomes of a record with a field that the schema does not declare.

    ``WARN``: a row without the field, and a check that fails as a warning. ``IGNORE``: a row without the field.
    ``QUARANTINE``: set aside. ``BLOCK``: as ``WARN``, and the failed check keeps the batch invisible. ``ADD``: a row
    with the field in a text column of its own; as ``WARN`` if there can be no such column. ``KEEP``: a row with all
    such fields in one column, ``REST``; set aside if that cannot hold them, and as ``WARN`` for a field without a name.
    """

    WARN = "warn"
    IGNORE = "ignore"
    QUARANTINE = "quarantine"
    BLOCK = "block"
    ADD = "add"
    KEEP = "keep"

    @property
    def counts(self) -> bool:
        """Whether such fields are counted, for the check ``no_unknown_fields``."""
        return self.severity is not None

    @property
    def severity(self) -> Severity | None:
        """How much that check matters; None without it."""
        return {
            UnknownFieldPolicy.WARN: Severity.WARNING,
            UnknownFieldPolicy.ADD: Severity.WARNING,
            UnknownFieldPolicy.BLOCK: Severity.CRITICAL,
            UnknownFieldPolicy.KEEP: Severity.WARNING,
        }.get(self)


class DuplicatePolicy(StrEnum):
    """What becomes of a record that repeats a message: it is dropped and listed, or it blocks the batch.

    If a person accepts a blocked batch, its duplicates are dropped.
    """

    DROP = "drop"
    BLOCK = "block"


@dataclass(frozen=True, slots=True)
class Deduplication:
    """The idempotent consumer: the first record of a key is accepted, later ones are duplicates.

    The key is the values of ``key`` in the row, after the transform. An earlier batch may have accepted the first one,
    if that is still remembered; else the first has the lowest (topic, partition, offset) in the batch. A key with a
    null is never a duplicate. A record is not a duplicate of itself, so its range may be published again.

    A key counts as forgotten when ``remember`` has passed between the planning of its batch and the planning of the
    batch at hand, so the audit, the publication and every retry of a batch agree.

    If a range is published again, the decision about a record stands, whatever ``remember`` says, as long as its key is
    the same. A record whose row is in the target stays accepted. A listed duplicate stays one, as long as the record
    that came first is there. Every other record is judged as above: it was not decoded before, or was left out, or has
    another key now. A first record that is read no more, or with another key, is forgotten: nothing is a duplicate of a
    row that does not exist. A replay forgets no other key, and none is remembered longer.

    Known limits. Rows that were accepted before there was a ``dedupe``, or under another key, stay accepted as well. A
    target that is updated by key shows its newest records only. For the others the remembered key decides, and a
    forgotten one is judged as new. In a table made by hand, a key column may have a type whose JSON differs from the
    rows, such as numeric for double. It hides that a record was accepted; the remembered key decides.
    """

    key: tuple[str, ...]
    remember: timedelta
    duplicates: DuplicatePolicy = DuplicatePolicy.DROP


class SinkMode(StrEnum):
    """What becomes of a row: one more row of the target, the newest state of its key, or one more record of a topic.

    Produced records stay: a replay produces its records once more.
    """

    APPEND = "append"
    UPSERT = "upsert"
    PRODUCE = "produce"

    @property
    def can_replace(self) -> bool:
        """Whether rows of the target can be taken away again."""
        return self is not SinkMode.PRODUCE


class Evolution(StrEnum):
    """What a publication may change in a table that exists, so that it takes the rows.

    ``NONE``: nothing. ``ADD``: it gets the columns that it lacks, empty in older rows. ``WIDEN``: as ``ADD``, and a
    column gets a type that holds all values of its own, as bigint does for integer.
    """

    NONE = "none"
    ADD = "add"
    WIDEN = "widen"

    @property
    def adds(self) -> bool:
        """Whether columns are added."""
        return self is not Evolution.NONE

    @property
    def widens(self) -> bool:
        """Whether columns get a wider type."""
        return self is Evolution.WIDEN


class HeaderForm(StrEnum):
    """How the headers of an output record say where it is from: in several headers, or packed into one."""

    SEPARATE = "separate"
    PACKED = "packed"


class VersionBy(StrEnum):
    """How to find the newer one of two records of one key.

    ``OFFSET``: the offset, which orders the records of one partition only. ``TIMESTAMP``: the record's timestamp, then
    topic, partition and offset, so no two records are equally new.
    """

    OFFSET = "offset"
    TIMESTAMP = "timestamp"


@dataclass(frozen=True, slots=True)
class Upsert:
    """Idempotent updates: the target holds, for each key, the row of its newest record, unless that deletes the key.

    An older record never replaces a newer one, in whatever order and however often batches are published. A row that
    the target held before the pipeline is older than any record.
    """

    key: tuple[str, ...]
    version: VersionBy = VersionBy.OFFSET
    unmatched_deletions: Severity = Severity.WARNING
    """How much it matters if a record deletes a key that the target does not have."""


@dataclass(frozen=True, slots=True)
class SequenceRule:
    """A producer's own numbering: the records of one key carry the numbers 1, 2, 3… in the column ``number``.

    The records of a batch are taken in the order of topic, partition and offset. A number is missing if a higher one of
    its series was seen and it was not, in this batch or in an earlier one. The batch that opens a gap reports it; it is
    known from then on. A number that was seen before is repeated. A new number below one of an earlier batch is late,
    and fills its gap.

    With ``starts_at`` a record of that number begins the numbering of a known key anew: a restart. Numbers that were
    missing before stay missing. Without it, a restart is a repetition. The first number of a key opens no gap: the
    numbers before the first read are unknown.

    A record that lacks its number, or a column of its key, is counted. If this is so for every record that would be
    published, all their numbers are missing. Without any record there is nothing to judge.

    Only live batches are judged, without the rows that ``Deduplication`` drops. A rewind forgets these numbers.

    Known limits. A producer that sends its first number twice seems to restart. A late record of an earlier numbering
    counts for the present one. A record that is set aside, or that the transform drops, is missing.
    """

    key: tuple[str, ...]
    number: str
    starts_at: int | None = None
    severity: Severity = Severity.CRITICAL
