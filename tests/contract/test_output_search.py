"""What became of a batch when the group does not say so: said beforehand, else the topic is searched, and that is kept.

This holds while others write to the topic, and while other processes ask for the same commit.
"""

import logging
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import count
from typing import Any

import pytest

from batchledger.model.batch import Attempt, Lane
from batchledger.model.errors import FencedError, ServiceUnavailableError
from batchledger.model.offsets import OffsetRange, TopicPartition
from batchledger.sinks.topic import transaction as output_transaction
from batchledger.sinks.topic.log import OutputLog, begin_at_ends
from batchledger.sinks.topic.transaction import OutputWriter
from batchledger.source.kafka import range_reader
from tests.contract.outputs import Output, die
from tests.support import add_partitions, wait_until

ROWS = 300


@pytest.fixture
def output(kafka: object) -> Output:
    """The topic was looked at, as it is before anything is announced: a new broker has made room for groups by then."""
    output = Output(kafka.options).create()  # type: ignore[attr-defined]
    output.topic().require_usable(output.attempt())
    return output


def announced(output: Output, batch_id: int = 1, lane: Lane = Lane.LIVE) -> Attempt:
    """An attempt as it is once its commit was announced."""
    attempt = output.attempt(batch_id, lane=lane)
    return replace(attempt, batch=replace(attempt.batch, announced_ends=output.topic().prepare_commit(attempt)))


def searched_offsets(caplog: pytest.LogCaptureFixture) -> list[int]:
    """How many offsets each search had before it, as its log says."""
    found = re.findall(r"is searched for in ([\d,]+) offsets", caplog.text)
    return [int(each.replace(",", "")) for each in found]


@contextmanager
def before_it_is_noted(monkeypatch: pytest.MonkeyPatch, act: Callable[[], Any]) -> Iterator[None]:
    """Let another writer act once, when one knows what to note in the group and has not yet done so."""
    note = OutputWriter._note
    acts = [act]

    def act_first(writer: OutputWriter, *values: Any) -> None:
        if acts:
            acts.pop()()
        note(writer, *values)

    with monkeypatch.context() as patch:
        patch.setattr(OutputWriter, "_note", act_first)
        yield
    assert not acts, "nothing was noted"


@pytest.mark.parametrize("lane", list(Lane))
def test_first_batch_of_a_lane_that_was_announced_and_not_committed_is_told_without_a_search(
    output: Output, lane: Lane
) -> None:
    attempt = announced(output, lane=lane)
    output.produce(*[b"theirs"] * 100)
    assert output.topic().find_commit(attempt) is False
    output.topic().commit(attempt, output.records(ROWS), ROWS)
    assert output.topic().find_commit(attempt) is True


def test_negative_control_first_batch_that_was_not_prepared_cannot_be_told_without_a_search(output: Output) -> None:
    assert output.topic().find_commit(output.attempt()) is None


def test_what_was_committed_before_is_not_covered_by_the_next_announcement(output: Output) -> None:
    output.topic().commit(output.attempt(1), output.records(ROWS), ROWS)
    before = output.committed("sink")
    announced(output, 2)
    assert output.committed("sink") == before


def test_group_that_says_that_nothing_was_committed_is_no_strangers(output: Output) -> None:
    """No batch of the ledger has the number that stands for none."""
    announced(output)
    output.topic_of(output.attempt()).require_usable(output.attempt())


def test_announcement_that_sleeps_covers_no_commit_of_another_one(
    output: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempt = output.attempt()

    def commit() -> None:
        output.topic().commit(attempt, output.records(ROWS), ROWS)

    with (
        before_it_is_noted(monkeypatch, commit),
        pytest.raises(FencedError, match="a newer producer of the pipeline") as fenced,
    ):
        output.topic().prepare_commit(attempt)
    assert fenced.value.batch_id == attempt.batch.batch_id
    assert output.topic().find_commit(attempt) is True


def test_topic_is_searched_when_the_offsets_of_the_group_are_lost_and_what_was_found_is_kept(
    output: Output, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    first = announced(output, 1)
    output.topic().commit(first, output.records(ROWS), ROWS)
    second = announced(output, 2)
    die(output, "before_commit", second, ROWS)
    output.topic().find_commit(second)
    for attempt, is_committed in ((first, True), (second, False)):
        output.forget_offsets()
        assert output.topic().find_commit(attempt) is None
        assert output.find_out(attempt) is is_committed
        # The next attempt that asks finds it, too.
        assert output.find_out(replace(attempt, number=2)) is is_committed
    assert len(searched_offsets(caplog)) == 2
    assert "batch 1" in caplog.messages[1]
    assert caplog.messages[1].endswith(f"was committed, as topic {output.name} shows")


def test_search_begins_where_the_topic_ended_when_the_commit_was_announced(
    output: Output, caplog: pytest.LogCaptureFixture
) -> None:
    """Others have written before, after the batch was planned."""
    output.produce(*[b"theirs"] * 5_000)
    attempt = announced(output)
    output.produce(*[b"theirs"] * 70)
    output.forget_offsets()
    assert output.find_out(attempt) is False
    assert searched_offsets(caplog) == [70]
    output.topic().commit(attempt, output.records(ROWS), ROWS)
    output.forget_offsets()
    assert output.find_out(attempt) is True


def test_batch_is_found_whatever_the_clocks_say(output: Output) -> None:
    """The clock of the database that announces is far ahead of the clock that stamps the records."""
    attempt = announced(output)
    later = replace(attempt.batch, planned_at=datetime.now(UTC) + timedelta(hours=2))
    attempt = replace(attempt, batch=later)
    output.topic().commit(attempt, output.records(ROWS), ROWS)
    output.forget_offsets()
    assert output.find_out(attempt) is True


def test_what_an_older_version_has_announced_is_found_whatever_the_clocks_say(output: Output) -> None:
    """It knew no ends, so the whole topic is read."""
    attempt = output.attempt()
    planned_at = datetime.now(UTC) + timedelta(hours=2)
    planned = replace(attempt, batch=replace(attempt.batch, planned_at=planned_at))
    output.topic().commit(planned, output.records(ROWS), ROWS)
    output.forget_offsets()
    assert output.find_out(planned) is True


@pytest.mark.parametrize(("offset", "is_found"), [(99, True), (100, False)])
def test_only_records_of_the_batchs_own_offsets_tell_that_it_was_committed(
    output: Output, offset: int, is_found: bool
) -> None:
    place = [("_topic", output.source.encode()), ("_partition", b"0"), ("_offset", b"%d" % offset)]
    output.produce(b"theirs", headers=[*place, ("_batch_id", b"17")])
    assert output.find_out(output.attempt(17, until=100)) is is_found


def test_partition_that_was_added_since_is_searched(output: Output) -> None:
    attempt = announced(output)
    add_partitions(output.options, output.name, 8)
    wait_until(lambda: len(output.topic().prepare_commit(attempt)) == 8)
    records = [each._replace(key=b"%d" % at) for at, each in enumerate(output.records(ROWS))]
    output.topic().commit(attempt, records, ROWS)
    output.forget_offsets()
    assert output.find_out(attempt) is True


def test_open_transactions_of_others_keep_nobody_from_knowing_that_a_batch_was_not_committed(output: Output) -> None:
    """On a busy topic there is always one: an answer that waits until there is none would never come."""
    attempt = announced(output)
    with output.foreign_transaction():
        output.forget_offsets()
        assert output.held_back() > 0
        assert output.find_out(attempt) is False


def test_batch_whose_own_records_are_held_back_by_another_transaction_cannot_be_told_before_that_ends(
    output: Output,
) -> None:
    attempt = announced(output)
    # All of them in the partition in which the other transaction is open.
    records = [each._replace(key=None, partition=0) for each in output.records(ROWS)]
    with output.foreign_transaction():
        output.unsettled_topic().commit(attempt, records, ROWS)
        output.forget_offsets()
        with pytest.raises(ServiceUnavailableError, match="behind an open transaction") as held_back:
            output.find_out(attempt)
        assert held_back.value.subject == output.name
        assert output.topic().find_commit(attempt) is None
    wait_until(lambda: output.held_back() == 0)
    with output.foreign_transaction():
        assert output.find_out(attempt) is True


def test_commit_while_the_topic_is_searched_is_found(
    output: Output, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A twin has begun after the search had; what the search says was true, and is not any more."""
    output.produce(*[b"theirs"] * 50)
    attempt = announced(output)
    output.produce(*[b"theirs"] * 70)
    output.forget_offsets()

    def commit() -> None:
        output.topic().commit(attempt, output.records(ROWS), ROWS)

    with before_it_is_noted(monkeypatch, commit):
        assert output.find_out(attempt) is True
    assert searched_offsets(caplog) == [70], "the group tells of a commit"


def test_negative_control_answer_that_is_noted_by_a_producer_of_now_covers_the_commit_of_another_one(
    output: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempt = announced(output)
    output.forget_offsets()

    def commit() -> None:
        output.topic().commit(attempt, output.records(ROWS), ROWS)

    note = OutputWriter._note

    def note_by_a_new_one(writer: OutputWriter, _: Any, *values: Any) -> None:
        note(writer, writer._open(0), *values)

    monkeypatch.setattr(OutputWriter, "_note", note_by_a_new_one)
    with before_it_is_noted(monkeypatch, commit):
        assert output.find_out(attempt) is False
    assert len(output.values()) == ROWS


def test_two_who_search_at_once_read_each_part_once(
    output: Output, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The second one fences the first, dies, and so again: each time only what is new is read."""
    attempt = announced(output)
    output.produce(*[b"theirs"] * 70)
    output.forget_offsets()
    arrivals = [30, 20]

    def begin_and_die(writer: OutputWriter, *values: Any) -> None:
        if arrivals:
            output.produce(*[b"theirs"] * arrivals.pop(0))
            writer._open(0).purge()
        note(writer, *values)

    note = OutputWriter._note
    with monkeypatch.context() as patch:
        patch.setattr(OutputWriter, "_note", begin_and_die)
        assert output.find_out(attempt) is False
    assert searched_offsets(caplog) == [70, 30, 20]


def test_search_that_is_overtaken_again_and_again_leaves_it_to_the_others(
    output: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    note = OutputWriter._note

    def begin(writer: OutputWriter, *values: Any) -> None:
        writer._open(0).purge()
        note(writer, *values)

    monkeypatch.setattr(OutputWriter, "_note", begin)
    monkeypatch.setattr(output_transaction, "SEARCHES", 2)
    with pytest.raises(FencedError):
        output.find_out(output.attempt())
    assert output.topic().find_commit(output.attempt()) is None


def test_long_search_says_each_ten_seconds_how_far_it_is(
    output: Output, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.INFO)
    monkeypatch.setattr(range_reader, "RECORDS_PER_POLL", 1)
    attempt = announced(output)
    output.produce(*[b"theirs"] * 99)
    output.forget_offsets()
    # Each record takes a second.
    output.topic(clock=partial(next, count(0.0))).search_commit(attempt)
    told = [each for each in caplog.messages if " records read " in each]
    assert len(told) == 9
    assert "batch 1" in told[0]
    assert told[0].endswith(f"topic {output.name}: 10 of 99 records read (10%), 1 a second, about 89 s left")


PARTITIONS_OF_A_LOG = [OffsetRange(TopicPartition("out", 0), 2, 8), OffsetRange(TopicPartition("out", 1), 0, 7)]
HIDDEN = [OffsetRange(TopicPartition("out", 0), 8, 8), OffsetRange(TopicPartition("out", 1), 7, 20)]


@pytest.mark.parametrize(
    ("ends", "left"),
    [
        pytest.param((5, 7), ["out[0] 5..8", "out[1] 7..7", "out[0] 8..8", "out[1] 7..20"], id="as announced"),
        pytest.param((8, 15), ["out[0] 8..8", "out[1] 7..7", "out[0] 8..8", "out[1] 15..20"], id="behind what is open"),
        pytest.param((1, 0), ["out[0] 2..8", "out[1] 0..7", "out[0] 8..8", "out[1] 7..20"], id="removed since"),
        pytest.param((9, 21), ["out[0] 2..8", "out[1] 0..7", "out[0] 8..8", "out[1] 7..20"], id="cut since"),
        pytest.param((5,), ["out[0] 5..8", "out[1] 0..7", "out[0] 8..8", "out[1] 7..20"], id="added since"),
    ],
)
def test_log_without_what_lies_below_its_ends(ends: tuple[int, ...], left: list[str]) -> None:
    found = begin_at_ends(OutputLog(tuple(PARTITIONS_OF_A_LOG), tuple(HIDDEN)), ends)
    assert [str(each) for each in (*found.ranges, *found.hidden)] == left
