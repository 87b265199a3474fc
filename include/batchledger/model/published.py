"""What an event says of a published batch: where its rows are, what they were made of, and how many there are.

Counts, offsets and names; no value of a record. No I/O here.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from batchledger.model.batch import Batch
from batchledger.model.checks import CheckResult
from batchledger.model.datasets import Dataset
from batchledger.model.offsets import count_offsets

RANGES_TOLD = 100
"""An event names at most so many ranges: Airflow's database keeps each event. The ledger has all ranges."""


@dataclass(frozen=True, slots=True)
class PublishedBatch:
    """A published batch with the sums of its balance, and the ``checks`` of its newest audit.

    ``alias`` is its target as a pipeline file names it: a connection, ``/``, and the place there. ``sources`` are its
    topics. Its records were decoded with ``schema``, as a pipeline file declares it; the rows have
    other columns if a transform made them (``is_transformed``). ``fingerprint`` tells the schema from other schemas.
    Both are None if an older version has staged the batch. ``snapshot_id`` is the snapshot of an Iceberg table that
    holds its rows; None for other targets, and after the snapshot has expired.
    """

    batch: Batch
    target: Dataset
    alias: str
    sources: Sequence[Dataset]
    accepted: int
    duplicates: int
    quarantined: int
    checks: Sequence[CheckResult] = ()
    schema: str | None = None
    is_transformed: bool = False
    fingerprint: str | None = None
    snapshot_id: int | None = None

    def to_event(self) -> Mapping[str, Any]:
        """Return what an event says of the batch, as JSON values.

        ``ranges`` are the first ``RANGES_TOLD`` ones, as the form of a replay takes them; ``ranges_total`` counts all.
        ``snapshot_id`` is a text, because a reader of JSON may round a number of this size.
        """
        ranges = self.batch.ranges
        return {
            "pipeline": self.batch.pipeline,
            "batch_id": self.batch.batch_id,
            "lane": str(self.batch.lane),
            "alias": self.alias,
            "sources": [each.uri for each in self.sources],
            "ranges": [str(each) for each in ranges[:RANGES_TOLD]],
            "ranges_total": len(ranges),
            "offsets": count_offsets(ranges),
            "rows": self.accepted,
            "duplicates": self.duplicates,
            "quarantined": self.quarantined,
            "schema_fingerprint": self.fingerprint,
            "snapshot_id": None if self.snapshot_id is None else str(self.snapshot_id),
        }
