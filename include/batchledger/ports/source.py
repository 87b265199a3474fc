"""Where records come from."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Protocol

from batchledger.model.balance import HoleEvidence
from batchledger.model.batch import Attempt, LogState, PartitionHealth, Staged
from batchledger.model.offsets import OffsetRange, TopicPartition
from batchledger.model.records.times import Searched, TimeSpan

if TYPE_CHECKING:
    # Airflow parses DAG files through this module, and importing pyarrow takes half a second.
    import pyarrow as pa

    from batchledger.ports.sink import RowStream


class SourceLog(Protocol):
    """What Kafka holds, read without a consumer group and without changing anything.

    Raises ServiceUnavailableError within 30 s when no broker answers.
    """

    def read_log(self, topics: Sequence[str]) -> LogState:
        """Return identity and readable ends of the topics; topics that do not exist are absent from the result."""

    def find_offsets(self, partitions: Sequence[TopicPartition], at: datetime) -> Mapping[TopicPartition, int]:
        """Return the first offset whose timestamp is at or after ``at``; absent when there is none."""

    def search(self, ranges: Sequence[OffsetRange], span: TimeSpan) -> Sequence[Searched]:
        """Look through the committed records of the ranges for records of the span; one answer a range, in their order.

        The ranges are disjoint, lie between log start and readable end, and are read whole: as much as reading them
        costs without decoding. Takes as long as ``look_into`` at most, and raises ServiceUnavailableError as it does.
        """

    def find_records(self, ranges: Sequence[OffsetRange]) -> Sequence[OffsetRange]:
        """Return the offsets of the ranges that have a committed record, as the client of the stage step reads them.

        What lies below the log start has none. Reads all records, without decoding. Takes as long as ``look_into`` at
        most, and raises ServiceUnavailableError as it does.
        """

    def commit_courtesy(self, group: str, next_offset_by_partition: Mapping[TopicPartition, int]) -> None:
        """Commit group offsets so that lag tools show the pipeline. Nothing ever reads them back."""

    def look_into(self, holes: Sequence[OffsetRange]) -> HoleEvidence:
        """Read the given offsets again, by another client than the stage step used, under both isolation levels.

        A hole below the log start is not seen; the log start tells. Returns or raises within 60 s of reading, plus 1 s
        for each 100,000 offsets between the first and the last hole of a partition: ServiceUnavailableError when they
        could not be read in that time or lie behind the last stable offset, TopicChangedError when the log ends before
        a hole does. Needs READ and DESCRIBE on the topics, and DESCRIBE_CONFIGS, without which it is unknown whether a
        topic is compacted.
        """

    def read_health(self, next_offset_by_partition: Mapping[TopicPartition, int]) -> Sequence[PartitionHealth]:
        """Return what threatens the unread records, one entry a partition, in the order of partitions.

        A few requests, whatever the number of partitions. Returns or raises ServiceUnavailableError within 60 s. Needs
        READ and DESCRIBE on the topics, and DESCRIBE_CONFIGS, without which no expiry is known.
        """

    def read_records(self, records: Sequence[OffsetRange], limit_bytes: int) -> "pa.Table":
        """Return the committed records at exactly these offsets, with the columns of ``QUARANTINE_SCHEMA``, no error.

        Missing are records that Kafka has removed, and those after ``limit_bytes`` of keys and values were read. Takes
        as long as ``look_into`` at most, and raises ServiceUnavailableError as it does.
        """


class Stager(Protocol):
    """Reads exactly the stored ranges and writes them to staging."""

    def stage(self, attempt: Attempt) -> Staged:
        """Read, decode, transform, write and seal. Raises StagingError or ServiceUnavailableError, both retryable."""

    def into(self, stream: "RowStream") -> "Stager":
        """Return the stager that reads into a stream instead of staging."""
        kind = type(self).__name__
        raise NotImplementedError(f"{kind} has one sink.")
