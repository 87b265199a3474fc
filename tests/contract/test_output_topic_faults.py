"""An output topic when something dies or is lost: the outcome is known, and nothing is left that holds readers back."""

import struct
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from functools import partial
from itertools import count

import pytest

from batchledger.model.batch import Attempt, Lane
from batchledger.model.errors import FencedError, OutcomeUnknownError, ServiceUnavailableError, TargetRefusedError
from batchledger.sinks.topic import aborting
from batchledger.sinks.topic import sending as output_sending
from batchledger.sinks.topic import transaction as output_transaction
from batchledger.sinks.topic.commits import group_of
from batchledger.sinks.topic.transaction import OutputWriter
from tests import proxy
from tests.contract.outputs import Output, OutputRecord, die
from tests.proxy import Loss, lossy_proxy
from tests.support import wait_until

END_TRANSACTION = struct.pack(">h", 26)
ROWS = 300


def planned_later(attempt: Attempt, minutes: int) -> Attempt:
    planned_at = attempt.batch.planned_at + timedelta(minutes=minutes)
    return replace(attempt, batch=replace(attempt.batch, planned_at=planned_at))


@pytest.fixture
def output(kafka: object) -> Output:
    return Output(kafka.options).create()  # type: ignore[attr-defined]


@pytest.mark.parametrize("rows_before", [ROWS // 2, ROWS])
def test_s71_producer_that_wakes_up_after_a_newer_one_is_fenced_and_its_rows_stay_invisible(
    output: Output, rows_before: int
) -> None:
    def sleep_through_the_next_attempt() -> Iterator[OutputRecord]:
        yield from output.records(rows_before, b"old")
        output.wait_for_open_transaction()
        output.topic().commit(output.attempt(number=2), output.records(ROWS, b"new"), ROWS)
        yield from output.records(ROWS - rows_before, b"old")

    with pytest.raises(FencedError, match=r"(?s)attempt 1 commits nothing.*newer producer"):
        output.topic().commit(output.attempt(), sleep_through_the_next_attempt(), ROWS)
    assert sorted(output.values()) == sorted(each.value for each in output.records(ROWS, b"new"))
    assert output.held_back() == 0
    assert output.topic().find_commit(output.attempt(number=2))


def test_negative_control_producers_that_do_not_share_an_id_both_commit_unless_they_look(
    output: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    def sleep_through_the_next_attempt() -> Iterator[OutputRecord]:
        yield from output.records(ROWS, b"old")
        output.unsettled_topic(pipeline="another").commit(output.attempt(number=2), output.records(ROWS, b"new"), ROWS)

    with pytest.raises(OutcomeUnknownError, match=r"has been committed to topic .* before"):
        output.topic().commit(output.attempt(), sleep_through_the_next_attempt(), ROWS)
    assert len(output.values()) == ROWS
    monkeypatch.setattr(OutputWriter, "_require_first", lambda *_: None)
    output.topic().commit(output.attempt(), output.records(ROWS), ROWS)
    assert len(output.values()) == 2 * ROWS


def test_asking_for_the_outcome_fences_whoever_is_still_writing(output: Output) -> None:
    def be_given_up() -> Iterator[OutputRecord]:
        yield from output.records(ROWS)
        output.wait_for_open_transaction()
        assert not output.topic().find_commit(output.attempt())

    with pytest.raises(FencedError):
        output.topic().commit(output.attempt(), be_given_up(), ROWS)
    assert output.values() == []
    assert output.held_back() == 0


@pytest.mark.parametrize("moment", ["sending", "before_commit"])
@pytest.mark.parametrize("lane", list(Lane))
def test_s93_s98_producer_killed_in_its_transaction_is_cleaned_up_by_the_next_attempt(
    output: Output, moment: str, lane: Lane
) -> None:
    die(output, moment, output.attempt(lane=lane), ROWS)
    assert output.held_back() > 0
    assert not output.topic().find_commit(output.attempt(number=2, lane=lane))
    assert output.held_back() == 0
    output.topic().commit(output.attempt(number=2, lane=lane), output.records(ROWS, b"new"), ROWS)
    assert sorted(output.values()) == sorted(each.value for each in output.records(ROWS, b"new"))


def test_next_attempt_cleans_up_also_when_it_does_not_ask_first(output: Output) -> None:
    die(output, "before_commit", output.attempt(), ROWS)
    output.topic().commit(output.attempt(number=2), output.records(ROWS, b"new"), ROWS)
    assert sorted(output.values()) == sorted(each.value for each in output.records(ROWS, b"new"))
    assert output.held_back() == 0


@pytest.mark.parametrize("lane", list(Lane))
def test_commit_of_a_killed_producer_is_found_in_its_own_lane_only(output: Output, lane: Lane) -> None:
    (other,) = set(Lane) - {lane}
    die(output, "after_commit", output.attempt(1, lane=lane), ROWS)
    assert output.topic().find_commit(output.attempt(1, number=2, lane=lane))
    assert not output.topic().find_commit(output.attempt(2, lane=lane))
    assert not output.topic().find_commit(output.attempt(2, lane=other))
    assert len(output.values()) == ROWS


@pytest.mark.parametrize("lane", list(Lane))
def test_batch_of_the_same_number_in_another_ledger_is_no_answer(output: Output, lane: Lane) -> None:
    output.topic().commit(output.attempt(lane=lane), output.records(3), 3)
    attempt = planned_later(output.attempt(lane=lane), -1)
    with pytest.raises(TargetRefusedError, match="restored from a backup") as refused:
        output.topic_of(attempt).find_commit(attempt)
    assert refused.value.subject == group_of(attempt.batch)
    assert "It is unknown whether" in str(refused.value)


@pytest.mark.parametrize(
    ("theirs", "minutes"), [(18, 0), (5, 61), (5, -61)], ids=["higher number", "planned later", "planned earlier"]
)
def test_commit_that_another_ledger_has_covered_with_its_own_is_no_answer(
    output: Output, theirs: int, minutes: int
) -> None:
    attempt = output.attempt(17, number=2)
    output.topic().commit(output.attempt(17), output.records(3), 3)
    output.topic().commit(planned_later(output.attempt(theirs), minutes), output.records(3), 3)
    with pytest.raises(TargetRefusedError, match="restored from a backup") as refused:
        output.topic_of(attempt).find_commit(attempt)
    assert refused.value.subject == output.group("sink")
    assert "delete the group" in str(refused.value)
    output.forget_offsets()
    assert output.find_out(output.attempt(17, number=2))


def test_earlier_batches_and_replays_that_overtook_one_another_are_no_strangers(output: Output) -> None:
    output.topic().commit(output.attempt(17), output.records(3), 3)
    assert not output.topic().find_commit(planned_later(output.attempt(18), 1))
    output.topic().commit(planned_later(output.attempt(20, lane=Lane.REPLAY), 3), output.records(3), 3)
    assert not output.topic().find_commit(output.attempt(19, lane=Lane.REPLAY))


@pytest.mark.parametrize("lane", list(Lane))
def test_batch_that_was_planned_while_the_clock_was_ahead_stops_no_later_one(output: Output, lane: Lane) -> None:
    ahead, attempt = planned_later(output.attempt(1, lane=lane), 600), output.attempt(2, lane=lane)
    topic = output.create().topic_of(ahead, attempt)
    topic.commit(ahead, output.records(3), 3)
    topic.require_usable(attempt)
    assert not topic.find_commit(attempt)
    topic.commit(attempt, output.records(3), 3)
    assert topic.find_commit(attempt)


@pytest.mark.parametrize("metadata", [None, "batchledger/1 batch=9 attempt=1 planned=1"])
def test_offsets_that_somebody_else_has_committed_are_no_answer(output: Output, metadata: str | None) -> None:
    output.topic().commit(output.attempt(), output.records(3), 3)
    output.commit_as_somebody_else(metadata=metadata)
    with pytest.raises(TargetRefusedError, match=r"-in\[0\]: .*-in\[1\]: .*batch=1 ") as refused:
        output.topic().find_commit(output.attempt())
    assert refused.value.subject == output.group("sink")
    assert "delete the group" in str(refused.value)
    output.forget_offsets()
    assert output.find_out(output.attempt())


def test_s104_commit_whose_answer_is_lost_is_asked_for_again(output: Output, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proxy, "PRODUCE", END_TRANSACTION)
    with lossy_proxy(output.options, Loss.ANSWER) as between:
        output.topic(options=between.options).commit(output.attempt(), output.records(ROWS), ROWS)
        assert between.lost == 1
    assert len(output.values()) == ROWS


def test_commit_that_is_never_answered_is_looked_up_and_found(output: Output, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proxy, "PRODUCE", END_TRANSACTION)
    monkeypatch.setattr(output_transaction, "COMMIT_SECONDS", 1.0)
    with lossy_proxy(output.options, *[Loss.ANSWER] * 100) as between:
        output.topic(options=between.options).commit(output.attempt(), output.records(ROWS), ROWS)
        assert between.lost > 0
    assert len(output.values()) == ROWS
    assert output.held_back() == 0


def test_commit_that_never_arrives_is_looked_up_and_will_never_be(
    output: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(proxy, "PRODUCE", END_TRANSACTION)
    monkeypatch.setattr(output_transaction, "COMMIT_SECONDS", 1.0)
    output.topic().prepare_commit(output.attempt())
    with lossy_proxy(output.options, *[Loss.REQUEST] * 100) as between:
        with pytest.raises(ServiceUnavailableError, match=r"was not committed .* was aborted") as raised:
            output.topic(options=between.options).commit(output.attempt(), output.records(ROWS), ROWS)
        assert between.lost > 0
    assert not isinstance(raised.value, OutcomeUnknownError)
    assert output.values() == []
    assert output.held_back() == 0


def test_i9_outcome_is_unknown_when_nobody_can_be_asked_and_is_found_later(
    output: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(proxy, "PRODUCE", END_TRANSACTION)
    monkeypatch.setattr(output_transaction, "COMMIT_SECONDS", 1.0)
    monkeypatch.setattr(output_transaction, "BEGIN_SECONDS", 1.0)
    with lossy_proxy(output.options, *[Loss.ANSWER] * 100) as between:

        def be_the_last_to_begin() -> Iterator[OutputRecord]:
            yield from output.records(ROWS)
            # From now on no other connection is made.
            monkeypatch.setattr(output_transaction, "open_producer", unreachable)

        def unreachable(options: object, *more: object) -> object:
            return output_sending.open_producer({"bootstrap.servers": "127.0.0.1:1"}, *more)  # type: ignore[arg-type]

        with pytest.raises(OutcomeUnknownError, match="The next step asks first"):
            output.topic(options=between.options).commit(output.attempt(), be_the_last_to_begin(), ROWS)
    monkeypatch.undo()
    assert output.topic().find_commit(output.attempt(number=2))
    assert len(output.values()) == ROWS


def test_records_that_nobody_acknowledges_are_given_up_in_bounded_time_and_never_committed(
    output: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(output_sending, "SILENCE_SECONDS", 1.0)
    monkeypatch.setattr(aborting, "ABORT_SECONDS", 1.0)
    with lossy_proxy(output.options, *[Loss.REQUEST] * 100) as between:
        # However large a part of the timeout is over: that is not the batch's pace.
        topic = output.topic(options=between.options, clock=partial(next, count(0.0, 20.0)))
        with pytest.raises(ServiceUnavailableError, match="no record was acknowledged"):
            topic.commit(output.attempt(), output.records(ROWS), ROWS)
        assert between.lost > 0
    assert not output.topic().find_commit(output.attempt())
    assert output.held_back() == 0
    assert output.values() == []


def test_s105_transaction_that_outlives_its_timeout_says_so_and_blames_no_newer_producer(output: Output) -> None:
    age_seconds = [0.0]

    def sleep_until_the_broker_gives_up() -> Iterator[OutputRecord]:
        yield from output.records(ROWS)
        output.wait_for_open_transaction()
        wait_until(lambda: output.held_back() == 0)
        age_seconds[0] = 30.0
        yield from output.records(ROWS)

    slow = output.topic(transaction_timeout_seconds=1, clock=lambda: age_seconds[0])
    with pytest.raises(ServiceUnavailableError, match="transaction timeout of 1 s") as told:
        slow.commit(output.attempt(), sleep_until_the_broker_gives_up(), 2 * ROWS)
    assert told.value.batch_id == 1
    assert "sink.transaction_timeout" in str(told.value)
    assert output.values() == []
    assert output.held_back() == 0
