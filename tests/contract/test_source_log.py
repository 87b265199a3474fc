"""The contract of the SourceLog port."""

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import pytest

from batchledger.formats.records import QUARANTINE_SCHEMA
from batchledger.local.samples.admin import KEEP_FOREVER
from batchledger.model.balance import HoleEvidence
from batchledger.model.batch import PartitionHealth, PartitionLog
from batchledger.model.errors import ServiceUnavailableError, TopicChangedError
from batchledger.model.offsets import OffsetRange, TopicPartition
from batchledger.model.records.times import to_milliseconds
from batchledger.source.kafka import log as kafka_log
from batchledger.source.kafka import requests
from tests.contract.sources import Source
from tests.fakes.source import DEFAULT_TIMESTAMP

HOUR = timedelta(hours=1)
DAY_MS = 24 * 60 * 60 * 1000


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
    assert dict(source.log.find_offsets(partitions, datetime(1, 1, 1, tzinfo=UTC))) == {first: 0, second: 0}


def test_courtesy_offsets_are_committed_and_moved_on(source: Source) -> None:
    (first,) = source.create_topic(1)
    source.append(first, 5)
    for next_offset in (2, 5):
        source.log.commit_courtesy(f"group-{source.topic}", {first: next_offset})
        assert source.committed(f"group-{source.topic}", first) == next_offset


@pytest.mark.parametrize("partitions", [4, 5])
def test_no_partition_is_left_out_where_one_request_holds_only_some(
    source: Source, monkeypatch: pytest.MonkeyPatch, partitions: int
) -> None:
    monkeypatch.setattr(requests, "PARTITIONS_IN_REQUEST", 2)
    monkeypatch.setattr(kafka_log, "OFFSETS_IN_COMMIT", 2)
    counts = {each: count for count, each in enumerate(source.create_topic(partitions))}
    for each, count in counts.items():
        source.append(each, count)
    found = source.log.read_log([source.topic]).log_by_partition
    assert dict(found) == {each: PartitionLog(0, count) for each, count in counts.items()}
    source.log.commit_courtesy(f"group-{source.topic}", counts)
    assert {each: source.committed(f"group-{source.topic}", each) for each in counts} == counts


def test_second_read_finds_committed_records_under_both_isolation_levels(source: Source) -> None:
    (first,) = source.create_topic(1)
    source.append(first, 3)
    source.commit(first, 3)
    evidence = source.log.look_into([OffsetRange(first, 1, 7)])
    assert evidence == HoleEvidence(
        committed=(OffsetRange(first, 1, 6),),
        uncommitted=(OffsetRange(first, 1, 6),),
        log_start_by_partition={first: 0},
        compacted_topics=frozenset(),
    )


def test_records_are_read_again_at_exactly_their_offsets(source: Source) -> None:
    first, second = source.create_topic(2)
    source.append(first, 5)
    source.append(second, 3)
    wanted = [OffsetRange(first, 1, 2), OffsetRange(first, 3, 5), OffsetRange(second, 0, 1)]
    found = source.log.read_records(wanted, 1_000_000)
    assert found.schema == QUARANTINE_SCHEMA
    assert sorted((row["partition"], row["offset"]) for row in found.to_pylist()) == [(0, 1), (0, 3), (0, 4), (1, 0)]
    assert {(row["value"], row["headers"], row["error"]) for row in found.to_pylist()} == {(b"{}", "[]", None)}
    assert {row["timestamp_ms"] for row in found.to_pylist()} == {to_milliseconds(DEFAULT_TIMESTAMP)}


def test_records_that_are_gone_or_aborted_are_missing_from_those_read_again(source: Source) -> None:
    (first,) = source.create_topic(1)
    source.append(first, 4)
    source.abort(first, 2)
    source.append(first, 1)
    source.expire(first, 2)
    found = source.log.read_records([OffsetRange(first, 0, 8)], 1_000_000)
    assert [row["offset"] for row in found.to_pylist()] == [2, 3, 7]
    assert source.log.read_records([OffsetRange(first, 0, 2)], 1_000_000).num_rows == 0


def test_records_beyond_the_bound_of_bytes_are_missing_from_those_read_again(source: Source) -> None:
    (first,) = source.create_topic(1)
    source.append(first, 4)
    size = sum(
        len(row["key"] or b"") + 2 for row in source.log.read_records([OffsetRange(first, 0, 2)], 99).to_pylist()
    )
    found = source.log.read_records([OffsetRange(first, 0, 4)], size)
    assert [row["offset"] for row in found.to_pylist()] == [0, 1]


def test_s31_s35_aborted_records_are_visible_only_under_read_uncommitted(source: Source) -> None:
    (first,) = source.create_topic(1)
    source.abort(first, 3)
    source.append(first, 1)
    evidence = source.log.look_into([OffsetRange(first, 0, 5)])
    assert evidence.committed == (OffsetRange(first, 4, 5),)
    assert evidence.uncommitted == (OffsetRange(first, 0, 3), OffsetRange(first, 4, 5))


def test_range_that_holds_only_markers_shows_nothing_also_at_the_very_end_of_the_log(source: Source) -> None:
    (first,) = source.create_topic(1)
    source.commit(first, 1)
    source.append(first, 1)
    source.abort(first, 1)
    evidence = source.log.look_into([OffsetRange(first, 1, 2), OffsetRange(first, 4, 5)])
    assert (evidence.committed, evidence.uncommitted) == ((), ())


def test_s108_holes_that_the_broker_no_longer_shows_are_not_judged_but_looked_into_again(source: Source) -> None:
    """A broker that has just taken over may show less than the one before; an aborted record looks the same then."""
    (first,) = source.create_topic(1)
    source.abort(first, 1)
    with source.open_transaction(first, 2):
        source.append(first, 1)
        assert source.log.look_into([OffsetRange(first, 0, 2)]).uncommitted == (OffsetRange(first, 0, 1),)
        with pytest.raises(ServiceUnavailableError, match=r"could not look into \S+\[0\] 0\.\.5"):
            source.log.look_into([OffsetRange(first, 0, 5)])


def test_hole_below_the_log_start_is_not_seen_and_the_log_start_tells(source: Source) -> None:
    (first,) = source.create_topic(1)
    source.append(first, 5)
    source.expire(first, before=3)
    for hole, found in ((OffsetRange(first, 1, 4), (OffsetRange(first, 3, 4),)), (OffsetRange(first, 0, 2), ())):
        evidence = source.log.look_into([hole])
        assert (evidence.committed, evidence.uncommitted) == (found, found)
        assert dict(evidence.log_start_by_partition) == {first: 3}


def test_holes_far_apart_in_several_partitions_are_all_looked_into(source: Source) -> None:
    first, second, other = source.create_topic(3)
    source.append(first, 25_000)
    source.append(second, 10)
    source.append(other, 10)
    holes = [OffsetRange(second, 3, 5), *(OffsetRange(first, each, each + 2) for each in (0, 12_345, 24_998))]
    evidence = source.log.look_into(holes)
    assert evidence.committed == evidence.uncommitted == tuple(sorted(holes))
    assert dict(evidence.log_start_by_partition) == {first: 0, second: 0}


def test_no_hole_needs_no_evidence(source: Source) -> None:
    assert source.log.look_into([]) == HoleEvidence((), (), {}, frozenset())


def test_topic_with_compaction_is_named_by_the_second_read(source: Source) -> None:
    (first,) = source.create_topic(1, {"cleanup.policy": "compact,delete", **KEEP_FOREVER})
    source.append(first, 1)
    assert source.log.look_into([OffsetRange(first, 0, 1)]).compacted_topics == {source.topic}


def test_hole_beyond_the_log_end_is_no_evidence_but_a_changed_topic(source: Source) -> None:
    (first,) = source.create_topic(1)
    source.append(first, 5)
    with pytest.raises(TopicChangedError, match=r"4\.\.6.* ends at 5"):
        source.log.look_into([OffsetRange(first, 4, 6)])


def test_health_of_unread_records_tells_when_retention_may_delete_them(source: Source) -> None:
    """S26."""
    (first,) = source.create_topic(1, {"retention.ms": str(36_500 * DAY_MS)})
    source.append(first, 2, DEFAULT_TIMESTAMP)
    source.append(first, 2, DEFAULT_TIMESTAMP + HOUR)
    (health,) = source.log.read_health({first: 2})
    assert health == PartitionHealth(
        partition=first,
        next_offset=2,
        end=4,
        high_watermark=4,
        oldest_unread_at=DEFAULT_TIMESTAMP + HOUR,
        expires_at=DEFAULT_TIMESTAMP + HOUR + timedelta(days=36_500),
    )


def test_s21_open_transaction_is_told_by_what_it_holds_back(source: Source) -> None:
    (first,) = source.create_topic(1)
    source.append(first, 3)
    with source.open_transaction(first, 2, DEFAULT_TIMESTAMP + HOUR):
        source.append(first, 1, DEFAULT_TIMESTAMP + 2 * HOUR)
        (held_back,) = source.log.read_health({first: 3})
        assert source.log.read_log([first.topic]).log_by_partition == {first: PartitionLog(0, 3, held_back=3)}
    (decided,) = source.log.read_health({first: 3})
    assert held_back == PartitionHealth(first, 3, 3, 6, None, None)
    assert (decided.end, decided.high_watermark) == (7, 7)
    assert source.log.read_log([first.topic]).log_by_partition == {first: PartitionLog(0, 7)}


@pytest.mark.parametrize(
    "config", [{"retention.ms": "-1"}, {"cleanup.policy": "compact", "retention.ms": str(36_500 * DAY_MS)}]
)
def test_records_that_are_kept_for_ever_do_not_expire(source: Source, config: Mapping[str, str]) -> None:
    (first,) = source.create_topic(1, config)
    source.append(first, 1)
    (health,) = source.log.read_health({first: 0})
    assert (health.oldest_unread_at, health.expires_at) == (DEFAULT_TIMESTAMP, None)


def test_partition_with_nothing_unread_has_no_oldest_record(source: Source) -> None:
    empty, read, markers = source.create_topic(3)
    source.append(read, 2)
    source.commit(markers, 1)
    found = source.log.read_health({markers: 1, empty: 0, read: 2})
    assert [(each.partition, each.oldest_unread_at) for each in found] == [(empty, None), (read, None), (markers, None)]


def test_first_unread_record_is_found_behind_markers_and_from_the_log_start(source: Source) -> None:
    behind_marker, behind_start = source.create_topic(2)
    source.commit(behind_marker, 1)
    source.append(behind_marker, 2, DEFAULT_TIMESTAMP + HOUR)
    source.append(behind_start, 2)
    source.append(behind_start, 2, DEFAULT_TIMESTAMP + HOUR)
    source.expire(behind_start, before=2)
    found = source.log.read_health({behind_marker: 1, behind_start: 0})
    assert [each.oldest_unread_at for each in found] == [DEFAULT_TIMESTAMP + HOUR] * 2
    assert [each.next_offset for each in found] == [1, 0]


def test_broker_that_does_not_answer_is_a_retryable_error_of_every_question(source: Source) -> None:
    """S103. ``test_s103_broker_that_is_down_is_a_retryable_error_of_every_step_that_needs_it`` shows the bound."""
    partition = TopicPartition(source.topic, 0)
    log = source.unreachable_log
    questions = [
        lambda: log.read_log([source.topic]),
        lambda: log.find_offsets([partition], DEFAULT_TIMESTAMP),
        lambda: log.look_into([OffsetRange(partition, 0, 1)]),
        lambda: log.read_health({partition: 0}),
        lambda: log.read_records([OffsetRange(partition, 0, 1)], 1_000_000),
    ]
    with ThreadPoolExecutor(len(questions)) as threads:
        for answer in [threads.submit(each) for each in questions]:
            failure = answer.exception()
            assert isinstance(failure, ServiceUnavailableError)
            assert failure.retryable
