"""The contract of the SourceLog port."""

from datetime import timedelta
from time import monotonic

import pytest

from batchledger.batch import PartitionLog
from batchledger.errors import ServiceUnavailableError
from batchledger.offsets import TopicPartition
from tests.contract.sources import Source
from tests.fakes.source import DEFAULT_TIMESTAMP

HOUR = timedelta(hours=1)


def test_ends_of_every_partition_are_read(source: Source) -> None:
    first, second = source.create_topic(2)
    source.append(first, 3)
    log = source.log.read_log([source.topic])
    assert dict(log.log_by_partition) == {first: PartitionLog(0, 3), second: PartitionLog(0, 0)}
    assert list(log.identity_by_topic) == [source.topic]


def test_reading_the_log_twice_gives_the_same(source: Source) -> None:
    (first,) = source.create_topic(1)
    source.append(first, 3)
    assert source.log.read_log([source.topic]) == source.log.read_log([source.topic])


def test_s22_missing_topic_is_absent_and_not_created(source: Source) -> None:
    source.create_topic(1)
    for _ in range(2):
        log = source.log.read_log([source.topic, f"{source.topic}-missing"])
        assert list(log.identity_by_topic) == [source.topic]
        assert {each.topic for each in log.log_by_partition} == {source.topic}


def test_s37_log_start_follows_retention(source: Source) -> None:
    (first,) = source.create_topic(1)
    source.append(first, 5)
    source.expire(first, before=2)
    assert source.log.read_log([source.topic]).log_by_partition[first] == PartitionLog(2, 5)


def test_s7_added_partition_appears_and_the_identity_stays(source: Source) -> None:
    source.create_topic(1)
    before = source.log.read_log([source.topic])
    added = source.add_partition()
    after = source.log.read_log([source.topic])
    assert after.log_by_partition[added] == PartitionLog(0, 0)
    assert after.identity_by_topic == before.identity_by_topic


def test_s24_recreated_topic_has_another_identity_on_the_same_cluster(source: Source) -> None:
    source.create_topic(1)
    before = source.log.read_log([source.topic]).identity_by_topic[source.topic]
    source.delete_topic()
    source.create_topic(1)
    after = source.log.read_log([source.topic]).identity_by_topic[source.topic]
    assert after.cluster_id == before.cluster_id
    assert after.topic_id != before.topic_id


def test_s14_first_offset_at_or_after_a_time_is_found_and_absent_where_there_is_none(source: Source) -> None:
    first, second, empty = source.create_topic(3)
    source.append(first, 2, DEFAULT_TIMESTAMP)
    source.append(first, 2, DEFAULT_TIMESTAMP + HOUR)
    source.append(second, 2, DEFAULT_TIMESTAMP)
    partitions = [first, second, empty]
    assert dict(source.log.find_offsets(partitions, DEFAULT_TIMESTAMP)) == {first: 0, second: 0}
    assert dict(source.log.find_offsets(partitions, DEFAULT_TIMESTAMP + HOUR)) == {first: 2}
    assert dict(source.log.find_offsets(partitions, DEFAULT_TIMESTAMP + 2 * HOUR)) == {}


def test_courtesy_offsets_are_committed_and_moved_on(source: Source) -> None:
    (first,) = source.create_topic(1)
    source.append(first, 5)
    for next_offset in (2, 5):
        source.log.commit_courtesy(f"group-{source.topic}", {first: next_offset})
        assert source.committed(f"group-{source.topic}", first) == next_offset


def test_broker_that_does_not_answer_is_reported_within_thirty_seconds(source: Source) -> None:
    partition = TopicPartition(source.topic, 0)
    started = monotonic()
    with pytest.raises(ServiceUnavailableError):
        source.unreachable_log.read_log([source.topic])
    with pytest.raises(ServiceUnavailableError):
        source.unreachable_log.find_offsets([partition], DEFAULT_TIMESTAMP)
    assert monotonic() - started < 2 * 30
