"""What the reading tasks witnessed, apart from the rows they wrote."""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Protocol

from batchledger.model.balance import WitnessedRange
from batchledger.model.batch import Attempt, Batch
from batchledger.model.checks import FailedRecord
from batchledger.model.offsets import OffsetRange
from batchledger.model.records.quarantine import QuarantineContent
from batchledger.model.records.unknown_fields import UnknownFieldCounter, UnknownFields

if TYPE_CHECKING:
    # Airflow parses DAG files through this module, and importing pyarrow takes half a second.
    import pyarrow as pa


class Testimony(Protocol):
    """What one reading task writes while it reads; all of it counts when the task comes to its end, or nothing."""

    def set_aside(self, records: "pa.RecordBatch") -> None:
        """Write records that could not be decoded, with the columns of ``quarantine.QUARANTINE_SCHEMA``."""

    def finish(
        self,
        visible: Sequence[OffsetRange],
        tombstones: Sequence[OffsetRange] = (),
        unknown: UnknownFieldCounter | None = None,
    ) -> None:
        """Write the offsets that were seen, those skipped as ``tombstones``, and the fields without a column."""


class EvidenceWriter(Protocol):
    """Writes from inside Spark tasks what Kafka returned; pickled to the executors."""

    def open(self, reader: int) -> AbstractContextManager[Testimony]:
        """Begin the testimony of a reading task; leaving the block after ``finish`` makes it count.

        ``reader`` is the number of its part of the read. Repeating it changes nothing, so a repeated task attempt does
        no harm.
        """


class Evidence(Protocol):
    """What the reading tasks witnessed: which offsets Kafka returned, and the records to be quarantined.

    Kept in the ledger's database whatever the sink is, apart from the rows, so that a lost row cannot take its own
    evidence with it.
    """

    def open(self, attempt: Attempt) -> EvidenceWriter:
        """Create empty evidence for exactly this attempt."""

    def summarise(self, attempt: Attempt) -> Sequence[WitnessedRange]:
        """Return one entry per range of the batch, in their order."""

    def summarise_quarantine(self, attempt: Attempt) -> QuarantineContent:
        """Return of what kinds the records are that would be quarantined, each with the first record as an example.

        Reads all of them, so it is asked when a batch is blocked for them.
        """

    def summarise_unknown_fields(self, attempt: Attempt) -> UnknownFields:
        """Return which fields without a column were seen. What a repeated task has seen counts once."""

    def count_finished(self, attempt: Attempt) -> int:
        """Return how many parts of the read came to their end."""

    def count_seen(self, attempt: Attempt) -> int:
        """Return how many offsets were seen by the parts of the read that came to their end.

        An offset that repeated tasks have seen counts once. 0 if there is no evidence, as before it is opened.
        """

    def find_holes(self, attempt: Attempt) -> Sequence[OffsetRange]:
        """Return the maximal stretches of offsets for which no record was seen, in order."""

    def read_quarantine(self, batch: Batch) -> "pa.Table":
        """Return the published quarantine of the ranges of the batch, with the columns of ``QUARANTINE_SCHEMA``."""

    def set_aside(self, attempt: Attempt, failed: Sequence[FailedRecord], records: "pa.Table") -> Sequence[OffsetRange]:
        """Add records whose rows fail checks to the staged quarantine; ``records`` are as ``read_records`` gives them.

        All or nothing: returns the offsets that ``records`` lacks, and then nothing was written. Repeating it changes
        nothing, also at the same time.
        """

    def list_set_aside(self, attempt: Attempt) -> Sequence[FailedRecord]:
        """Return the records that were set aside because of checks, in the order of offsets."""

    def drop(self, attempt: Attempt) -> None:
        """Remove the evidence of this attempt and of every earlier one of its batch; harmless to repeat."""
