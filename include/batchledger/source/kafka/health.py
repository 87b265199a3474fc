"""What threatens the records that a pipeline has not read: open transactions that hold them back, and retention.

Stateless: one look, whatever the number of partitions. It looks for the first unread record with read_uncommitted,
which finds one at once, also in front of a long stretch of aborted records. Retention sees no difference.
"""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from time import monotonic

from batchledger.model.batch import PartitionHealth
from batchledger.model.offsets import OffsetRange, TopicPartition
from batchledger.source.kafka.range_reader import RangeReader
from batchledger.source.kafka.requests import Isolation, describe_topic_configs, kafka_call, list_bounds

READING_SECONDS = 30.0

# One record of each partition is enough. A batch that is larger than a fetch still arrives, but one by one.
_SMALL_FETCHES = {"queued.min.messages": "1", "fetch.message.max.bytes": "262144"}


def read_health(
    options: Mapping[str, str], next_offset_by_partition: Mapping[TopicPartition, int]
) -> tuple[PartitionHealth, ...]:
    """See ``SourceLog.read_health``."""
    partitions = sorted(next_offset_by_partition)
    topics = sorted({each.topic for each in partitions})
    with kafka_call(f"look at what is unread of {', '.join(topics)}", options):
        config_by_topic = describe_topic_configs(options, topics)
        starts, ends, watermarks = list_bounds(options, partitions)
        deadline = monotonic() + READING_SECONDS
        unread = {each: max(next_offset_by_partition[each], starts[each]) for each in partitions}
        oldest_unread = _find_moments(options, unread, ends, deadline)
    return tuple(
        PartitionHealth(
            partition=each,
            next_offset=next_offset_by_partition[each],
            end=ends[each],
            high_watermark=watermarks[each],
            oldest_unread_at=oldest_unread.get(each),
            expires_at=_find_expiry(oldest_unread.get(each), config_by_topic.get(each.topic, {})),
        )
        for each in partitions
    )


def _find_moments(
    options: Mapping[str, str],
    start_by_partition: Mapping[TopicPartition, int],
    end_by_partition: Mapping[TopicPartition, int],
    deadline: float,
) -> dict[TopicPartition, datetime]:
    """Return the timestamp of the first record between start and end; absent if there is none, or it has no time."""
    ranges = [
        OffsetRange(each, start, end_by_partition[each])
        for each, start in start_by_partition.items()
        if start < end_by_partition[each]
    ]
    found: dict[TopicPartition, datetime | None] = {}
    if ranges:
        with RangeReader({**options, **_SMALL_FETCHES}, Isolation.UNCOMMITTED, ranges, deadline) as reader:
            for partition, _, timestamp_ms in reader:
                found.setdefault(partition, _to_moment(timestamp_ms))
                reader.leave(partition)
    return {partition: moment for partition, moment in found.items() if moment is not None}


def _to_moment(timestamp_ms: int | None) -> datetime | None:
    """Return the moment, None when it is unknown or beyond the years that Python knows."""
    try:
        return None if timestamp_ms is None else datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=timestamp_ms)
    except OverflowError:
        return None


def _find_expiry(oldest: datetime | None, config: Mapping[str, str]) -> datetime | None:
    """Return when retention by time may delete a record of that age, None when never, or when it is unknown."""
    retention_ms = int(config.get("retention.ms", -1))
    if oldest is None or retention_ms < 0 or "delete" not in config["cleanup.policy"]:
        return None
    try:
        return oldest + timedelta(milliseconds=retention_ms)
    except OverflowError:
        return None
