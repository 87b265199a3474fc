"""Records that stream into a topic in one transaction (ADR 0074): exact whatever breaks, and staged if unclean."""

import json
import logging
import secrets
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import psycopg
import pytest
from confluent_kafka import TopicPartition as KafkaTopicPartition

from batchledger.lifecycle import plans, run_batch
from batchledger.model.batch import Attempt, BatchState, Decision, DeliveryMode
from batchledger.model.errors import (
    BatchBlockedError,
    FencedError,
    OutcomeUnknownError,
    ServiceUnavailableError,
    TargetRefusedError,
)
from batchledger.model.presence import NO_PATIENCE
from batchledger.model.stream_address import StreamAddress
from batchledger.planning.replay import Replay
from batchledger.sinks.streaming import stream
from batchledger.sinks.streaming.door import Door
from batchledger.sinks.topic.sent import SentRecords
from batchledger.sinks.topic.streaming import READING_SHARE, TopicStream
from batchledger.sinks.topic.transaction import OutputWriter
from batchledger.wiring import verify_pipeline
from tests.fakes.crash import CrashOnce, Interrupt, SimulatedCrashError, crash_points
from tests.integration.test_streams import STREAMED, Damaging, list_given_up, send_much
from tests.support import TestPipeline, Workplace, create_topic, staging, wait_until
from tests.topics import find_ends

ANA = Decision("ana@host", "the readers were told")
WAITS = "select count(*) from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()"
POINTS = crash_points(DeliveryMode.EXACTLY_ONCE, is_foreign=True)


@pytest.mark.always
def test_batch_streams_into_its_topic_and_nothing_is_staged(
    workplace: Workplace, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    pipeline = workplace.create(into="topic", partitions=3, sink={"key": ["message_id"]})
    seen: list[list[str]] = []
    look = Interrupt("announced", lambda: seen.append(pipeline.list_staging()))
    for count in (30, 7):
        pipeline.send(count, partitions=3)
        batch = run_batch.run_once(pipeline.platform(crash=look), "run")
        assert batch is not None
        assert (batch.state, batch.attempt) == (BatchState.PUBLISHED, 1)
    assert caplog.text.count(STREAMED) == 2
    assert [each.rpartition("_")[2] for each in sorted(seen[0])] == ["quarantine", "visible"]
    assert list_given_up(pipeline) == [None, None]
    pipeline.assert_exact()
    assert pipeline.list_staging() == []


@pytest.mark.parametrize("point", ["staging_sealed", "audited", "announced", "rows_moved", "before_commit"])
def test_reader_of_committed_records_sees_nothing_of_an_open_stream(workplace: Workplace, point: str) -> None:
    pipeline = workplace.create(into="topic")
    pipeline.send(20)
    seen: list[list[int]] = []

    def look() -> None:
        places = [KafkaTopicPartition(f"{pipeline.name}_target", each, 0) for each in range(2)]
        isolations = ("read_committed", "read_uncommitted")
        seen.extend(find_ends(workplace.kafka_options, places, each) for each in isolations)

    run_batch.run_once(pipeline.platform(crash=Interrupt(point, look)), "run")
    assert seen == [[0, 0], [10, 10]]
    pipeline.assert_exact()


@pytest.mark.parametrize("point", POINTS)
def test_i3_batch_whose_stream_dies_at_any_point_is_produced_once(workplace: Workplace, point: str) -> None:
    pipeline = workplace.create(into="topic")
    pipeline.send(20)
    crash = CrashOnce(point)
    with pytest.raises(SimulatedCrashError):
        run_batch.run_once(pipeline.platform(crash=crash), "run")
    run_batch.run_once(pipeline.platform(), "next")
    pipeline.assert_exact()
    # What is left after the commit is housekeeping's.
    assert pipeline.list_staging() == [] or point == "committed"
    assert run_batch.run_once(pipeline.platform(), "third") is None


@pytest.mark.parametrize("is_committed", [True, False])
def test_i9_lost_reply_to_the_commit_is_resolved_by_asking_the_topic(
    workplace: Workplace, monkeypatch: pytest.MonkeyPatch, is_committed: bool
) -> None:
    pipeline = workplace.create(into="topic")
    pipeline.send(20)
    decide = OutputWriter.decide

    def lose(writer: OutputWriter, producer: Any, attempt: Attempt) -> None:
        monkeypatch.setattr(OutputWriter, "decide", decide)
        if is_committed:
            decide(writer, producer, attempt)
        raise OutcomeUnknownError("the reply got lost")

    monkeypatch.setattr(OutputWriter, "decide", lose)
    batch = run_batch.run_once(pipeline.platform(), "run")
    assert batch is not None
    assert (batch.state, batch.attempt) == (BatchState.PUBLISHED, 1 if is_committed else 2)
    pipeline.assert_exact()


def test_i9_evidence_of_a_commit_with_a_lost_reply_stays_while_the_topic_cannot_be_asked(
    workplace: Workplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = workplace.create(into="topic")
    pipeline.send(20)
    pipeline.send_raw([(0, b"no JSON")])
    decide = OutputWriter.decide

    def lose(writer: OutputWriter, producer: Any, attempt: Attempt) -> None:
        decide(writer, producer, attempt)
        raise OutcomeUnknownError("the reply got lost")

    def be_silent(*_: Any) -> None:
        raise ServiceUnavailableError("no broker answers")

    with monkeypatch.context() as patched:
        patched.setattr(OutputWriter, "decide", lose)
        patched.setattr(OutputWriter, "find_commit", be_silent)
        with pytest.raises(ServiceUnavailableError):
            run_batch.run_once(pipeline.platform(), "run")
    batch = run_batch.run_once(pipeline.platform(), "next")
    assert batch is not None
    assert (batch.state, batch.attempt) == (BatchState.PUBLISHED, 1)
    pipeline.assert_exact()


@pytest.mark.parametrize("is_committed", [True, False])
def test_lost_reply_to_the_announcement_leaves_a_batch_that_is_looked_up(
    workplace: Workplace, monkeypatch: pytest.MonkeyPatch, is_committed: bool
) -> None:
    pipeline = workplace.create(into="topic")
    pipeline.send(20)

    def lose(connection: Any, action: str) -> None:
        if is_committed:
            connection.commit()
        raise OutcomeUnknownError(f"the reply to {action} got lost")

    with monkeypatch.context() as patched:
        patched.setattr(stream, "commit", lose)
        if is_committed:
            batch = run_batch.run_once(pipeline.platform(), "run")
            assert batch is not None
            assert (batch.state, batch.attempt) == (BatchState.PUBLISHED, 2)
        else:
            with pytest.raises(OutcomeUnknownError):
                run_batch.run_once(pipeline.platform(), "run")
            assert pipeline.read_output() == []
    run_batch.run_once(pipeline.platform(), "next")
    pipeline.assert_exact()


NUMBERED = {"type": "expect_column_values_to_be_between", "column": "number", "max_value": 100}


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"checks": [NUMBERED]}, "its checks look at rows"),
        ({"transform": "tests.transforms:keep_all"}, "a transform may change the order"),
        ({"dedupe": {"key": ["message_id"], "remember": "30d"}}, "dedupe compares"),
        ({"delivery": "at_least_once"}, "at_least_once has two commits"),
    ],
)
def test_pipeline_whose_rows_are_needed_stages_and_tells_why(
    workplace: Workplace, caplog: pytest.LogCaptureFixture, changes: dict[str, Any], reason: str
) -> None:
    caplog.set_level(logging.DEBUG)
    pipeline = workplace.create(into="topic", **changes)
    pipeline.send(20)
    run_batch.run_once(pipeline.platform(), "run")
    assert f"is staged, because {reason}" in caplog.text
    assert STREAMED not in caplog.text
    assert list_given_up(pipeline) == [None]
    pipeline.assert_exact()


def leave_out_the_key(pipeline: TestPipeline) -> None:
    pipeline.send_raw([(0, b'{"message_id": "without a number"}')])


def be_too_large(pipeline: TestPipeline) -> None:
    pipeline.send_raw([(0, json.dumps({"message_id": secrets.token_hex(20_000), "number": 1}).encode())])


def be_no_json(pipeline: TestPipeline) -> None:
    pipeline.send_raw([(0, b"no JSON")])


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (leave_out_the_key, "no partition would keep its order"),
        (be_too_large, "Message size too large"),
        (be_no_json, "blocked"),
    ],
)
def test_what_is_not_clean_is_aborted_and_blocks_with_staged_rows(
    workplace: Workplace, spoil: Callable[[TestPipeline], None], why: str
) -> None:
    pipeline = workplace.create(into="topic", sink={"key": ["number"]}, quarantine={"max_share": 0})
    create_topic(workplace.kafka_options, f"{pipeline.name}_target", 2, {"max.message.bytes": "20000"})
    pipeline.send(5)
    spoil(pipeline)
    with pytest.raises(BatchBlockedError) as blocked:
        run_batch.run_once(pipeline.platform(), "run")
    assert blocked.value.batch_id is not None
    assert pipeline.read_output() == []
    assert any(each.endswith("_rows") for each in pipeline.list_staging())
    (found,) = list_given_up(pipeline)
    assert why in str(found)
    assert pipeline.platform().ledger.load_batch(blocked.value.batch_id).attempt == 1


def test_without_the_order_of_records_damage_is_published_and_verify_says_so(
    workplace: Workplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The negative control: with one partition, all frames have as many records of its range."""
    pipeline = workplace.create(into="topic", partitions=1)
    pipeline.send(60_000, partitions=1)
    note = SentRecords.note

    def forget_and_note(sent: SentRecords, block: Any) -> None:
        sent._newest.clear()
        note(sent, block)

    monkeypatch.setattr(stream, "Door", Damaging)
    monkeypatch.setattr(Damaging, "damage", "another one's")
    monkeypatch.setattr(SentRecords, "note", forget_and_note)
    run_batch.run_once(pipeline.platform(), "run")
    assert list_given_up(pipeline) == [None]
    assert pipeline.find_differences() != {}
    assert not verify_pipeline(pipeline.config).holds


def plan_replay(pipeline: TestPipeline, ranges: Any) -> int:
    replay = plans.plan_replay(pipeline.platform(), Replay(ranges), "again", ANA, "again")
    assert replay is not None
    return replay.batch_id


@pytest.mark.parametrize("is_sealed", [True, False], ids=["all records have come", "records are coming"])
def test_replay_that_is_published_meanwhile_ends_the_stream_and_both_are_produced(
    workplace: Workplace, monkeypatch: pytest.MonkeyPatch, is_sealed: bool
) -> None:
    pipeline = workplace.create(into="topic", partitions=1)
    pipeline.send(10, partitions=1)
    first = run_batch.run_once(pipeline.platform(), "run")
    assert first is not None
    replay = plan_replay(pipeline, first.ranges)
    pipeline.send(10, partitions=1)
    publish = Interrupt("", lambda: run_batch.take_through(staging(pipeline.platform()), replay, "again"))
    publish.point = "staging_sealed" if is_sealed else "a record"
    note = SentRecords.note

    def note_later(sent: SentRecords, block: Any) -> None:
        publish("a record")
        note(sent, block)

    monkeypatch.setattr(SentRecords, "note", note_later)
    batch = run_batch.run_once(pipeline.platform(crash=publish), "live")
    assert batch is not None
    assert (batch.state, batch.attempt) == (BatchState.PUBLISHED, 1)
    assert "another publication of the pipeline has begun" in str(list_given_up(pipeline))
    assert sorted(pipeline.count_copies().values()) == [1] * 10 + [2] * 10
    assert verify_pipeline(pipeline.config).holds


def test_stream_does_not_begin_while_a_replay_is_being_published(
    workplace: Workplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its producer would end the transaction of the replay."""
    pipeline = workplace.create(into="topic", partitions=1)
    pipeline.send(10, partitions=1)
    first = run_batch.run_once(pipeline.platform(), "run")
    assert first is not None
    replay = plan_replay(pipeline, first.ranges)
    pipeline.send(10, partitions=1)
    hand_in = OutputWriter.hand_in
    with ThreadPoolExecutor(1) as thread:

        def let_it_wait(writer: OutputWriter, *arguments: Any) -> None:
            monkeypatch.setattr(OutputWriter, "hand_in", hand_in)
            live.append(thread.submit(run_batch.run_once, pipeline.platform(), "live"))
            wait_until(lambda: pipeline.query(WAITS) == [(1,)])
            hand_in(writer, *arguments)

        live: list[Future[Any]] = []
        monkeypatch.setattr(OutputWriter, "hand_in", let_it_wait)
        assert run_batch.take_through(pipeline.platform(), replay, "again").attempt == 1
        assert live[0].result().state is BatchState.PUBLISHED
    assert list_given_up(pipeline) == [None, None, None]
    assert sorted(pipeline.count_copies().values()) == [1] * 10 + [2] * 10


def test_stream_that_takes_too_long_is_staged_before_kafka_ends_its_transaction(
    workplace: Workplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = workplace.create(into="topic")
    send_much(pipeline)

    class Late(Door):
        def __init__(self, take: Callable[[memoryview], None], address: StreamAddress) -> None:
            super().__init__(lambda view: self._end(take, view), address)

        def _end(self, take: Callable[[memoryview], None], view: memoryview) -> None:
            (timer,) = timers
            assert (timer.interval, timer.is_alive()) == (READING_SHARE * 60, True)
            timer.function(*timer.args, **timer.kwargs)
            take(view)

    timers: list[Any] = []
    make_timer = stream.threading.Timer

    def remember(*arguments: Any) -> Any:
        timers.append(make_timer(*arguments))
        return timers[-1]

    monkeypatch.setattr(stream, "Door", Late)
    monkeypatch.setattr(stream.threading, "Timer", remember)
    run_batch.run_once(pipeline.platform(), "run")
    assert "Kafka ends the transaction soon" in str(list_given_up(pipeline))
    pipeline.assert_exact()


@pytest.mark.parametrize(
    ("spoil", "why"), [("age", "Kafka ends the transaction soon"), ("topic", "created anew meanwhile")]
)
def test_stream_that_cannot_be_committed_any_more_is_staged_before_it_is_announced(
    workplace: Workplace, monkeypatch: pytest.MonkeyPatch, spoil: str, why: str
) -> None:
    pipeline = workplace.create(into="topic")
    pipeline.send(20)
    streams: list[TopicStream] = []
    hand_in = TopicStream.hand_in

    def hand_in_late(found: TopicStream) -> Any:
        streams.append(found)
        if spoil == "age":
            found._began_at -= 60.0
        else:
            found.identity = "another"
        return hand_in(found)

    monkeypatch.setattr(TopicStream, "hand_in", hand_in_late)
    batch = run_batch.run_once(pipeline.platform(), "run")
    assert batch is not None
    assert (batch.state, batch.attempt, len(streams)) == (BatchState.PUBLISHED, 1, 1)
    assert why in str(list_given_up(pipeline))
    pipeline.assert_exact()


def test_commit_that_kafka_refuses_after_the_announcement_is_tried_again_by_the_next_attempt(
    workplace: Workplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = workplace.create(into="topic")
    pipeline.send(20)

    def refuse(*_: Any) -> None:
        raise TargetRefusedError("the broker says no")

    with monkeypatch.context() as patched:
        patched.setattr(OutputWriter, "decide", refuse)
        with pytest.raises(TargetRefusedError):
            run_batch.run_once(pipeline.platform(), "run")
    assert pipeline.read_output() == []
    batch = run_batch.run_once(pipeline.platform(), "next")
    assert batch is not None
    assert (batch.state, batch.attempt) == (BatchState.PUBLISHED, 2)
    pipeline.assert_exact()


@pytest.mark.parametrize("point", ["staging_sealed", "announced", "before_commit"])
def test_s75_zombie_whose_attempt_is_over_produces_nothing(workplace: Workplace, point: str) -> None:
    """Before the announcement the ledger refuses it; after it, the topic's answer to the run that has taken over."""
    pipeline = workplace.create(into="topic")
    pipeline.send(20)
    planned = plans.plan(pipeline.platform(), "first")
    assert planned is not None
    with ThreadPoolExecutor(1) as thread:

        def be_overtaken() -> None:
            taken = thread.submit(run_batch.run_once, pipeline.platform(patience=NO_PATIENCE), "second")
            if point == "before_commit":
                # The zombie has the lock of the pipeline.
                wait_until(lambda: pipeline.query(WAITS) == [(1,)])
                overtaken.append(taken)
            else:
                assert taken.result().state is BatchState.PUBLISHED

        overtaken: list[Future[Any]] = []
        zombie = pipeline.platform(crash=Interrupt(point, be_overtaken))
        if point == "before_commit":
            assert run_batch.stream_or_stage(zombie, planned.batch_id, "first").state is BatchState.PUBLISHED
            with pytest.raises(FencedError, match="has it published"):
                overtaken[0].result()
        else:
            with pytest.raises(FencedError):
                run_batch.stream_or_stage(zombie, planned.batch_id, "first")
    pipeline.assert_exact()
    assert run_batch.run_once(pipeline.platform(), "third") is None


def test_i9_batch_without_keys_is_confirmed_after_its_staging_was_lost(workplace: Workplace) -> None:
    """A crash of the database empties unlogged tables; what the topic has is confirmed by what the audit said."""
    pipeline = workplace.create(into="topic")
    pipeline.send(20)
    with pytest.raises(SimulatedCrashError):
        run_batch.run_once(staging(pipeline.platform(crash=CrashOnce("sink_committed"))), "run")
    names = pipeline.list_staging()
    listed = pipeline.query("select relname, relpersistence::text from pg_class where relname = any(%s)", names)
    kinds = {name.rpartition("_")[2]: kind for name, kind in listed}
    assert kinds == {"rows": "u", "records": "u", "visible": "p", "quarantine": "p"}
    with psycopg.connect(workplace.dsn) as connection:
        for each in names:
            if each.endswith(("_rows", "_records")):
                connection.execute(f"truncate batchledger_staging.{each}")
    batch = run_batch.run_once(pipeline.platform(), "next")
    assert batch is not None
    assert (batch.state, batch.attempt) == (BatchState.PUBLISHED, 1)
    pipeline.assert_exact()


def test_both_ways_leave_the_same_in_the_ledger(workplace: Workplace, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    told = []
    for change in (lambda each: each, staging):
        pipeline = workplace.create(into="topic", topic_config={"retention.ms": "-1"})
        for number in range(20):
            value = json.dumps({"message_id": str(number), "number": number}).encode()
            pipeline.send_raw([(number % 2, value)], timestamp=1_700_000_000_000 + number)
        pipeline.send_raw([(0, b"no JSON")], timestamp=1_700_000_000_000)
        run_batch.run_once(change(pipeline.platform()), "run")
        found = pipeline.query(
            "select state, published_rows, reported_rows from batchledger.batch where pipeline = %s", pipeline.name
        )
        found += pipeline.query(
            "select partition, offsets::text, accepted, duplicates, quarantined, unexplained, untimed, "
            "timestamps::text from batchledger.batch_range where pipeline = %s order by partition",
            pipeline.name,
        )
        found += pipeline.query(
            "select name, outcome, replace(detail, %s, 'it') from batchledger.check_result "
            "join batchledger.batch using (batch_id) where pipeline = %s order by name",
            pipeline.name,
            pipeline.name,
        )
        told.append(json.loads(json.dumps(found, default=str)))
        assert list_given_up(pipeline) == [None]
    assert told[0] == told[1]
    assert caplog.text.count(STREAMED) == 1
