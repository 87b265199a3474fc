"""What a pipeline file decides about single records, as frozen values.

Standard library only; the sinks hold the SQL that keeps these promises.
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


class DuplicatePolicy(StrEnum):
    """What a record does that repeats a message: it is dropped and listed, or it blocks the batch.

    A person who accepts a blocked batch lets its duplicates be dropped.
    """

    DROP = "drop"
    BLOCK = "block"


@dataclass(frozen=True, slots=True)
class Deduplication:
    """The idempotent consumer: of the records with one key only the first is accepted, later ones are duplicates.

    The key is the values of ``key`` in the row, after the transform. The first is the one that an earlier batch has
    accepted, if that is remembered still; else the one with the lowest (topic, partition, offset) in the batch. A key
    that holds a null is never a duplicate. A record is not a duplicate of itself, so its range may be published again.

    A key counts as forgotten when ``remember`` has passed between the planning of its batch and the planning of the
    batch at hand, so the audit, the publication and every retry of a batch agree.

    What was decided about a record stands when its range is published again, whatever ``remember`` says, as long as its
    key is the same: a record whose row is in the target stays accepted; one that was listed as a duplicate stays one,
    as long as the record that came first is there. Every other record is judged as above: one that was not decoded
    before, or left out, or has another key now. A first record that is not read any more, or with another key, is
    forgotten, so nothing is a duplicate of a row that does not exist. A replay forgets no other key, and none is
    remembered longer.

    Known limits. Rows that were accepted before there was a ``dedupe``, or under another key, stay accepted as well. A
    target that is updated by key shows its newest records only: of the others the remembered key decides, and one that
    is forgotten is judged as a new one. In a table made by hand, a key column of a type whose JSON differs from that of
    the rows (such as numeric for double) hides that a record was accepted; the remembered key decides.
    """

    key: tuple[str, ...]
    remember: timedelta
    duplicates: DuplicatePolicy = DuplicatePolicy.DROP


class SinkMode(StrEnum):
    """What becomes of a row: one more row of the target, the newest state of its key, or one more record of a topic.

    What was produced stays: a replay produces its records once more.
    """

    APPEND = "append"
    UPSERT = "upsert"
    PRODUCE = "produce"

    @property
    def can_replace(self) -> bool:
        """Whether rows of the target can be taken away again."""
        return self is not SinkMode.PRODUCE


class VersionBy(StrEnum):
    """What tells which of two records of one key is the newer one.

    ``OFFSET``: the offset, which orders the records of one partition only. ``TIMESTAMP``: the record's timestamp, then
    topic, partition and offset, so that no two records are equally new.
    """

    OFFSET = "offset"
    TIMESTAMP = "timestamp"


@dataclass(frozen=True, slots=True)
class Upsert:
    """Idempotent updates: the target holds, for each key, the row of its newest record, unless that deletes the key.

    An older record never replaces a newer one, in whatever order and however often batches are published. A row that no
    record has written, because the target held it before, is older than any record.
    """

    key: tuple[str, ...]
    version: VersionBy = VersionBy.OFFSET


@dataclass(frozen=True, slots=True)
class SequenceRule:
    """A producer's own numbering: the records of one key carry the numbers 1, 2, 3… in the column ``number``.

    The records of a batch are taken in the order of topic, partition and offset. A number is missing when a higher one
    of its series is there and it is not, in this batch or in an earlier one; a gap is told by the batch that opens it,
    and known from then on. A number that was seen comes again. A new number below one that an earlier batch has brought
    is late, and fills its gap.

    With ``starts_at`` a record of that number begins the numbering of a known key anew: a restart. What was missing
    before it stays so. Without, a restart is a repetition. The first number that is ever seen of a key opens no gap:
    what was before the reading began, nobody can know.

    A record that lacks its number, or a column of its key, is counted. When no record that would be published has them,
    all their numbers are missing; without any number and any record there is nothing to judge.

    Live batches only are judged, without what ``Deduplication`` drops. A rewind forgets the numbers of its pipeline.

    Known limits. A producer that sends its first number twice seems to restart. A late record of an earlier numbering
    counts for the present one. A record that is set aside, or that the transform drops, is missing.
    """

    key: tuple[str, ...]
    number: str
    starts_at: int | None = None
    severity: Severity = Severity.CRITICAL
