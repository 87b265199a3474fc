"""What a pipeline file decides about single records, as frozen values.

Standard library only; the sinks hold the SQL that keeps these promises.
"""

from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum


class TombstonePolicy(StrEnum):
    """What becomes of a record without a value.

    ``QUARANTINE``: set aside as undecodable. ``KEEP``: a row whose declared columns are all null. ``SKIP``: counted,
    and no row. ``DELETE``: a row with its key columns from the record's key, which deletes that key from the target.
    """

    QUARANTINE = "quarantine"
    KEEP = "keep"
    SKIP = "skip"
    DELETE = "delete"


@dataclass(frozen=True, slots=True)
class Deduplication:
    """The idempotent consumer: of the records with one key only the first is accepted, later ones are duplicates.

    The key is the values of ``key`` in the row, after the transform. The first is the one that an earlier batch has
    accepted, if that is remembered still; else the one with the lowest (topic, partition, offset) in the batch. A key
    that holds a null is never a duplicate. A record is not a duplicate of itself, so its range may be published again.

    A key counts as forgotten when ``remember`` has passed between the planning of its batch and the planning of the
    batch at hand, so the audit, the publication and every retry of a batch agree.
    """

    key: tuple[str, ...]
    remember: timedelta


class SinkMode(StrEnum):
    """What becomes of a row: one more row of the target, or the newest state of its key."""

    APPEND = "append"
    UPSERT = "upsert"


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
