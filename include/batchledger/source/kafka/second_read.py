"""The second read: looks at offsets where the stage step saw no record. Finds evidence and judges nothing.

The stage step reads with librdkafka, this module with a client of another lineage (``second_client``), so that a fault
of one client cannot vouch for itself. It reads with read_uncommitted first. No other record can be visible with
read_committed, so only the offsets found are read again with that.
"""

from collections.abc import Mapping, Sequence
from itertools import groupby
from time import monotonic

from batchledger.model.balance import HoleEvidence
from batchledger.model.errors import ServiceUnavailableError, TopicChangedError
from batchledger.model.offsets import OffsetRange, TopicPartition, describe_ranges, merge_ranges
from batchledger.source.kafka.requests import Isolation, describe_topic_configs, kafka_call, list_bounds

READING_SECONDS = 60.0
OFFSETS_PER_SECOND = 100_000


def look_into(options: Mapping[str, str], holes: Sequence[OffsetRange]) -> HoleEvidence:
    """See ``SourceLog.look_into``."""
    # Imported here because only holes need the second client.
    from batchledger.source.kafka.second_client import find_visible

    holes = merge_ranges(holes)
    partitions = sorted({each.partition for each in holes})
    topics = sorted({each.topic for each in partitions})
    deadline = monotonic() + reading_seconds(holes)
    with kafka_call(f"look into {describe_ranges(holes, limit=3)}", options):
        configs = describe_topic_configs(options, topics)
        starts, stable_ends, ends = list_bounds(options, partitions)
        _require_within(holes, stable_ends, ends)
        kept = cut_off(holes, starts)
        uncommitted = find_visible(options, Isolation.UNCOMMITTED, kept, deadline)
        committed = find_visible(options, Isolation.COMMITTED, uncommitted, deadline)
    return HoleEvidence(
        committed=tuple(committed),
        uncommitted=tuple(uncommitted),
        log_start_by_partition=starts,
        compacted_topics=frozenset(topic for topic in configs if "compact" in configs[topic]["cleanup.policy"]),
        topics_of_unknown_policy=frozenset(topics) - frozenset(configs),
    )


def reading_seconds(ranges: Sequence[OffsetRange]) -> float:
    """Return how long reading ``ranges`` (merged, in order) may take.

    The reader reads at most what lies between the first and the last offset of each partition.
    """
    groups = [list(group) for _, group in groupby(ranges, key=lambda each: each.partition)]
    return READING_SECONDS + sum(group[-1].until - group[0].start for group in groups) / OFFSETS_PER_SECOND


def _require_within(
    holes: Sequence[OffsetRange],
    stable_end_by_partition: Mapping[TopicPartition, int],
    end_by_partition: Mapping[TopicPartition, int],
) -> None:
    """Require that the holes lie where they lay when the batch was planned: before the last stable offset."""
    for hole in holes:
        partition, end = hole.partition, end_by_partition[hole.partition]
        if hole.until > end:
            raise TopicChangedError(
                f"could not look into {hole}: the log of {partition} ends at {end}.",
                why="The log has become shorter since the batch was planned.",
                advice="Find out whether the topic was created again, or whether a broker took over without having "
                "all records.",
                subject=str(partition),
            )
    for hole in holes:
        if hole.until > stable_end_by_partition[hole.partition]:
            raise ServiceUnavailableError(
                f"could not look into {hole}: the broker shows {hole.partition} only up to offset "
                f"{stable_end_by_partition[hole.partition]}.",
                why="That is less than when the batch was planned. A broker that has just taken over does so for a "
                "moment.",
                advice="Run the step again.",
                subject=str(hole.partition),
            )


def cut_off(ranges: Sequence[OffsetRange], start_by_partition: Mapping[TopicPartition, int]) -> list[OffsetRange]:
    """Return the parts of the ranges that are not below the start of their partition."""
    starts = [(each, max(each.start, start_by_partition[each.partition])) for each in ranges]
    return [OffsetRange(each.partition, start, each.until) for each, start in starts if start < each.until]
