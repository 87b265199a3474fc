"""A topic is refused before anything is written to it, with the reason and what to do; each refusal has its control."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from datetime import timedelta

import pytest
from confluent_kafka import Consumer

from batchledger.model.batch import Lane
from batchledger.model.errors import TargetRefusedError
from batchledger.sinks.topic.log import describe_topics
from tests.contract.outputs import PARTITIONS, Output
from tests.support import create_topic, delete_topic, wait_until


@pytest.fixture
def output(kafka: object) -> Output:
    return Output(kafka.options)  # type: ignore[attr-defined]


def test_missing_topic_is_created_as_wide_as_the_widest_source_topic(output: Output) -> None:
    create_topic(output.options, output.source, PARTITIONS + 2)
    identity = output.topic().require_usable(output.attempt())
    facts = describe_topics(output.options, [output.name])[output.name]
    assert facts.partitions == PARTITIONS + 2
    assert identity.endswith(f" {facts.topic_id}")
    output.topic().commit(output.attempt(), output.records(30), 30)
    assert len(output.read(partitions=PARTITIONS + 2)) == 30


def test_missing_topic_is_as_wide_as_the_batch_where_the_source_is_on_another_cluster(output: Output) -> None:
    output.topic().require_usable(output.attempt())
    assert describe_topics(output.options, [output.name])[output.name].partitions == PARTITIONS


def test_existing_topic_stays_as_it_is_and_one_that_was_created_again_is_told(output: Output) -> None:
    output.create(partitions=1)
    identity = output.topic().require_usable(output.attempt())
    assert output.topic().require_usable(output.attempt(2)) == identity
    assert describe_topics(output.options, [output.name])[output.name].partitions == 1
    delete_topic(output.options, output.name)
    assert output.topic().require_usable(output.attempt()) != identity
    assert output.topic().require_usable(output.attempt()).split()[0] == identity.split()[0]


def test_topic_that_the_broker_does_not_create_is_refused_with_its_reason(output: Output) -> None:
    name = "x" * 250
    with pytest.raises(TargetRefusedError, match=r"x{250}"):
        output.topic(name=name).require_usable(output.attempt())


def test_topic_of_the_same_name_as_a_source_topic_of_another_cluster_is_made(output: Output) -> None:
    output.topic(name=output.source).require_usable(output.attempt())
    assert output.source in describe_topics(output.options, [output.source])


@contextmanager
def member(output: Output, group: str) -> Iterator[Consumer]:
    """A consumer that has joined a group, and leaves it at the end."""
    with closing(Consumer({**output.options, "group.id": group, "enable.auto.commit": False})) as consumer:
        consumer.subscribe([output.source])

        def has_joined() -> bool:
            consumer.poll(0.1)
            return bool(consumer.assignment())

        wait_until(has_joined)
        yield consumer


def test_group_that_somebody_else_has_joined_is_refused_in_its_lane_only(output: Output) -> None:
    output.create()
    with member(output, output.group("sink")):
        with pytest.raises(TargetRefusedError, match=r"\.sink, .* has 1 members"):
            output.topic().require_usable(output.attempt())
        output.topic().require_usable(output.attempt(lane=Lane.REPLAY))
    output.topic().require_usable(output.attempt())


def test_group_in_which_somebody_else_has_committed_is_refused(output: Output) -> None:
    output.create()
    output.commit_as_somebody_else(metadata="mine")
    with pytest.raises(TargetRefusedError, match=r"-in\[0\]: 'mine'"):
        output.topic().require_usable(output.attempt())
    output.forget_offsets()
    output.topic().commit(output.attempt(), output.records(3), 3)
    output.topic().require_usable(output.attempt(2))


@pytest.mark.parametrize(("theirs", "ours"), [(2, 1), (1, 1)], ids=["higher number", "same number"])
def test_group_of_a_ledger_that_knows_more_is_refused_before_anything_is_staged(
    output: Output, theirs: int, ours: int
) -> None:
    """This ledger may be an old copy of the other: it would produce the same records again."""
    output.create()
    output.topic().commit(output.attempt(theirs), output.records(3), 3)
    attempt = output.attempt(ours)
    planned_at = attempt.batch.planned_at + timedelta(hours=1)
    attempt = replace(attempt, batch=replace(attempt.batch, planned_at=planned_at))
    with pytest.raises(TargetRefusedError, match="restored from a backup") as refused:
        output.topic_of(attempt).require_usable(attempt)
    assert (refused.value.batch_id, refused.value.subject) == (ours, output.name)
    assert "delete the group" in str(refused.value)
    output.topic().require_usable(output.attempt(theirs + 1))


@pytest.mark.parametrize("lane", list(Lane))
def test_group_of_earlier_batches_is_its_own_as_long_as_the_ledger_knows_them(output: Output, lane: Lane) -> None:
    output.create()
    earlier, attempt = output.attempt(1, lane=lane), output.attempt(40, lane=lane)
    output.topic().commit(earlier, output.records(3), 3)
    output.topic_of(earlier, attempt).require_usable(attempt)
    with pytest.raises(TargetRefusedError, match=r"(?s)batch=1 .*restored from a backup"):
        output.topic_of(attempt).require_usable(attempt)
