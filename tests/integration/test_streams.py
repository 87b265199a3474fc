"""Rows that stream into a table in one write (ADR 0073): exact whatever breaks, and staged if they are not clean."""

import json
import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import psycopg
import pytest
from psycopg import sql

from batchledger.database.sessions import connect
from batchledger.lifecycle import plans, run_batch, streaming
from batchledger.model.balance import StagedRange
from batchledger.model.batch import BatchState
from batchledger.model.errors import BatchBlockedError, FencedError, OutcomeUnknownError
from batchledger.model.stream_address import StreamAddress, name_session
from batchledger.sinks.staging.lending import LentConnection, QueryCursor
from batchledger.sinks.staging.staged_rows import PostgresStagedRows
from batchledger.sinks.streaming import stream
from batchledger.sinks.streaming.door import Door, ShareError
from batchledger.sinks.table import streaming as module
from batchledger.wiring import verify_pipeline
from tests.fakes.crash import Interrupt
from tests.support import TestPipeline, Workplace, staging, wait_until

STREAMED = "has streamed into its target"
GIVEN_UP = (
    "select a.given_up from batchledger.attempt a join batchledger.batch using (batch_id) "
    "where pipeline = %s order by batch_id"
)


def list_given_up(pipeline: TestPipeline) -> list[str | None]:
    """Why each batch did not stream; None for one that did."""
    return [why for (why,) in pipeline.query(GIVEN_UP, pipeline.name)]


def count_in_staging(pipeline: TestPipeline) -> list[str]:
    """The tables and views that are left of any attempt."""
    return pipeline.list_staging() + [
        name for (name,) in pipeline.query("select viewname from pg_views where schemaname = 'batchledger_staging'")
    ]


@pytest.mark.always
def test_batch_streams_once_into_a_new_table_and_into_one_that_is_there_and_nothing_is_staged(
    workplace: Workplace, caplog: pytest.LogCaptureFixture
) -> None:
    pipeline = workplace.create(partitions=3)
    seen: list[Sequence[str]] = []
    look = Interrupt("audited", lambda: seen.append(pipeline.list_staging()))
    with caplog.at_level(logging.INFO):
        for count in (30, 7):
            pipeline.send(count, partitions=3)
            batch = run_batch.run_once(pipeline.platform(crash=look), "run")
            assert batch is not None
            assert (batch.state, batch.attempt) == (BatchState.PUBLISHED, 1)
    assert caplog.text.count(STREAMED) == 2
    assert list_given_up(pipeline) == [None, None]
    assert sorted(each.rpartition("_")[2] for each in seen[0]) == ["quarantine", "visible"]
    pipeline.assert_exact()
    assert count_in_staging(pipeline) == []
    names = pipeline.query(
        "select column_name from information_schema.columns where table_name = %s", f"{pipeline.name}_target"
    )
    assert ("_task",) not in names


@pytest.mark.parametrize("point", ["staging_sealed", "staged", "audited", "rows_moved", "before_commit"])
def test_reader_sees_nothing_of_an_open_stream_also_if_it_asks_for_uncommitted_rows(
    workplace: Workplace, point: str, caplog: pytest.LogCaptureFixture
) -> None:
    pipeline = workplace.create()
    pipeline.send(10)
    run_batch.run_once(pipeline.platform(), "before")
    pipeline.send(20)
    caplog.set_level(logging.INFO)
    seen: list[Any] = []

    def look() -> None:
        with psycopg.connect(workplace.dsn) as connection:
            connection.execute("set transaction isolation level read uncommitted")
            table = sql.Identifier(f"{pipeline.name}_target")
            seen.extend(connection.execute(sql.SQL("select count(*) from {}").format(table)).fetchall())

    run_batch.run_once(pipeline.platform(crash=Interrupt(point, look)), "run")
    assert seen == [(10,)]
    assert STREAMED in caplog.text
    pipeline.assert_exact()


def convert(pipeline: TestPipeline) -> None:
    with psycopg.connect(pipeline.workplace.dsn) as connection:
        connection.execute(f'alter table "{pipeline.name}_target" alter column number type bigint')


def swallow(pipeline: TestPipeline) -> None:
    with psycopg.connect(pipeline.workplace.dsn) as connection:
        connection.execute(
            f"create function eat_{pipeline.name}() returns trigger language plpgsql as "
            "'begin if new.number = 3 then return null; end if; return new; end'"
        )
        connection.execute(
            f'create trigger eat before insert on "{pipeline.name}_target" for each row '
            f"execute function eat_{pipeline.name}()"
        )


def refuse(pipeline: TestPipeline) -> None:
    with psycopg.connect(pipeline.workplace.dsn) as connection:
        connection.execute(f'alter table "{pipeline.name}_target" add check (number is distinct from 3) not valid')


def secure(pipeline: TestPipeline) -> None:
    with psycopg.connect(pipeline.workplace.dsn) as connection:
        connection.execute(f'alter table "{pipeline.name}_target" enable row level security')


def log(pipeline: TestPipeline) -> None:
    with psycopg.connect(pipeline.workplace.dsn) as connection:
        connection.execute(f"create table log_{pipeline.name} (number int)")
        rule = "create rule log as on insert to {} do also insert into {} values (new.number)"
        names = (sql.Identifier(f"{pipeline.name}_target"), sql.Identifier(f"log_{pipeline.name}"))
        connection.execute(sql.SQL(rule).format(*names))


def leave(_: TestPipeline) -> None:
    """Change nothing."""


POSITIVE = {"type": "expect_column_values_to_be_between", "column": "number", "max_value": 8}
CAUSES: dict[str, tuple[Callable[[TestPipeline], None], dict[str, Any], str, str]] = {
    "a conversion": (convert, {}, "column number is bigint", ""),
    "a trigger that swallows": (swallow, {}, "it has taken 9", "accepted_by_target"),
    "a row that is refused": (refuse, {}, "refuses", "accepted_by_target"),
    "a check that fails": (leave, {"checks": [POSITIVE]}, "blocked", "number"),
    "a new column": (
        leave,
        {"source": {"unknown_fields": "add"}, "sink": {"evolve": "add"}},
        "have brought columns: note",
        "",
    ),
    "row security": (secure, {}, "row security", ""),
    "a rule": (log, {}, "a rule", ""),
    "a check that quarantines": (leave, {"checks": [{**POSITIVE, "on_failure": "quarantine"}]}, "set aside", ""),
}


@pytest.mark.parametrize("cause", CAUSES)
def test_what_is_not_clean_is_rolled_back_and_staged_by_the_same_attempt(workplace: Workplace, cause: str) -> None:
    """The outcome is the one that staging alone would have had."""
    change, keys, why, blocked_for = CAUSES[cause]
    pipeline = workplace.create(**keys)
    pipeline.send(2)
    run_batch.run_once(pipeline.platform(), "before")
    change(pipeline)
    pipeline.send(9)
    record = {"message_id": "with a note", "number": 9, "amount": 0.5, "note": "n"}
    pipeline.send_raw([(0, json.dumps(record).encode())])
    if blocked_for:
        with pytest.raises(BatchBlockedError) as told:
            run_batch.run_once(pipeline.platform(), "run")
        assert blocked_for in str(told.value)
        assert pipeline.count_target_rows() == 2
        assert any(each.endswith("_rows") for each in pipeline.list_staging())
    else:
        batch = run_batch.run_once(pipeline.platform(), "run")
        assert batch is not None
        assert (batch.state, batch.attempt) == (BatchState.PUBLISHED, 1)
        aside = pipeline.query("select count(*) from batchledger.quarantine where pipeline = %s", pipeline.name)[0][0]
        assert pipeline.count_target_rows() == 12 - aside
        assert verify_pipeline(pipeline.config).holds
    first, second = list_given_up(pipeline)
    assert first is None
    assert second is not None
    assert why in second


@pytest.mark.parametrize(("at_the_start", "given_up"), [("approve", None), ("", "must not be visible yet: a mark")])
def test_rows_that_a_person_holds_back_before_the_commit_are_only_staged(
    workplace: Workplace, at_the_start: str, given_up: str | None
) -> None:
    pipeline = workplace.create()
    pipeline.send(10)
    found = iter([at_the_start, "a mark"])
    held = replace(pipeline.platform(), find_gate=lambda: next(found))
    planned = plans.plan(held, "run")
    assert planned is not None
    batch = run_batch.stream_or_stage(held, planned.batch_id, "run")
    assert (batch.state, batch.attempt, pipeline.count_target_rows()) == (BatchState.STAGED, 1, 0)
    assert str(given_up) in str(list_given_up(pipeline))
    run_batch.audit(held, planned.batch_id, "run")
    run_batch.publish(held, planned.batch_id, "run")
    pipeline.assert_exact()


def test_two_of_ten_batches_that_gave_up_let_the_pipeline_stage_until_they_are_past(workplace: Workplace) -> None:
    pipeline = workplace.create()
    pipeline.send(2)
    run_batch.run_once(pipeline.platform(), "before")
    convert(pipeline)
    for number in range(4):
        pipeline.send(2)
        run_batch.run_once(pipeline.platform(), f"run {number}")
    assert [each is not None for each in list_given_up(pipeline)] == [False, True, True, False, False]
    reason, _ = streaming.choose_way(pipeline.platform(), plans.preview(pipeline.platform()), 1)
    assert reason == "batches before it gave up their streams"
    with psycopg.connect(workplace.dsn) as connection:
        connection.execute(f'alter table "{pipeline.name}_target" alter column number type int')
    seen: list[list[str]] = []

    def look(point: str) -> None:
        if point == "staged":
            seen.append(pipeline.list_staging())

    for number in range(8):
        pipeline.send(2)
        run_batch.run_once(pipeline.platform(crash=look), f"later {number}")
    has_rows = [any(name.endswith("_rows") for name in names) for names in seen]
    assert has_rows == [True] * 7 + [False]
    pipeline.assert_exact()


class Damaging(Door):
    """Does to the third frame what a broken way would do."""

    damage = "none"

    def __init__(self, take: Callable[[memoryview], None], address: StreamAddress) -> None:
        self.frames: list[bytes] = []
        super().__init__(lambda view: self._damage(take, bytes(view)), address)

    def _damage(self, take: Callable[[memoryview], None], data: bytes) -> None:
        self.frames.append(data)
        if len(self.frames) != 3:
            take(memoryview(data))
            return
        match self.damage:
            case "lost":
                return
            case "twice":
                take(memoryview(data))
                take(memoryview(data))
            case "another one's":
                take(memoryview(self.frames[0]))
            case "cut":
                take(memoryview(data[: len(data) // 2 + 3]))
            case "miscounted":
                raise ShareError("task 1 has sent 1 of 2 rows")
            case "unforeseen":
                raise KeyError("a value of a record")
            case _:
                take(memoryview(data))

    def close(self) -> dict[int, int]:
        found = super().close()
        return dict([*found.items()][1:]) if self.damage == "a share lost" else found


def send_much(pipeline: TestPipeline) -> None:
    """So many records that each of two parts of the read sends several frames of the same number of rows."""
    pipeline.send(60_000)


DAMAGES = {
    ("table", "lost"): "and it has taken",
    ("table", "twice"): "and it has taken",
    ("table", "another one's"): "no_duplicate_offsets",
    ("table", "cut"): "refuses",
    ("table", "a share lost"): "a part of the read came twice, or not at all",
    ("table", "miscounted"): "broke: task 1 has sent 1 of 2 rows.",
    ("table", "unforeseen"): "broke: KeyError.",
    ("topic", "lost"): "it has taken",
    ("topic", "twice"): "come twice",
    ("topic", "another one's"): "come twice",
    ("topic", "cut"): "no records",
}


@pytest.mark.parametrize(("into", "damage"), DAMAGES)
def test_rows_that_are_damaged_on_the_way_are_noticed_and_staged(
    workplace: Workplace, monkeypatch: pytest.MonkeyPatch, into: str, damage: str
) -> None:
    pipeline = workplace.create(into=into)
    send_much(pipeline)
    monkeypatch.setattr(stream, "Door", Damaging)
    monkeypatch.setattr(Damaging, "damage", damage)
    run_batch.run_once(pipeline.platform(), "run")
    (why,) = list_given_up(pipeline)
    assert why is not None
    assert DAMAGES[into, damage] in why
    pipeline.assert_exact()


@pytest.mark.parametrize("into", ["table", "topic"])
def test_without_damage_the_same_way_streams(
    workplace: Workplace, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, into: str
) -> None:
    """The negative control of the test above."""
    caplog.set_level(logging.INFO)
    pipeline = workplace.create(into=into)
    send_much(pipeline)
    monkeypatch.setattr(stream, "Door", Damaging)
    run_batch.run_once(pipeline.platform(), "run")
    assert STREAMED in caplog.text
    pipeline.assert_exact()


def test_without_the_question_about_the_rows_damage_is_published_and_verify_says_so(
    workplace: Workplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The negative control of the audit: it believes the tasks."""

    def believe(rows: PostgresStagedRows) -> Sequence[StagedRange]:
        return [StagedRange(each, len(each), len(each)) for each in rows.attempt.batch.ranges]

    pipeline = workplace.create()
    send_much(pipeline)
    monkeypatch.setattr(stream, "Door", Damaging)
    monkeypatch.setattr(Damaging, "damage", "another one's")
    monkeypatch.setattr(PostgresStagedRows, "summarise", believe)
    run_batch.run_once(pipeline.platform(), "run")
    assert list_given_up(pipeline) == [None]
    assert pipeline.find_differences() != {}
    assert not verify_pipeline(pipeline.config).holds


@pytest.mark.parametrize("is_committed", [True, False])
def test_i9_lost_reply_to_the_commit_of_a_stream_is_resolved_by_the_batch_id(
    workplace: Workplace, monkeypatch: pytest.MonkeyPatch, is_committed: bool
) -> None:
    pipeline = workplace.create()
    pipeline.send(50)

    def lose(connection: psycopg.Connection[Any], action: str) -> None:
        if is_committed:
            connection.commit()
        raise OutcomeUnknownError(f"the reply to {action} got lost")

    with monkeypatch.context() as patched:
        patched.setattr(stream, "commit", lose)
        if is_committed:
            batch = run_batch.run_once(pipeline.platform(), "run")
            assert batch is not None
            assert batch.state is BatchState.PUBLISHED
        else:
            with pytest.raises(OutcomeUnknownError):
                run_batch.run_once(pipeline.platform(), "run")
            assert pipeline.count_target_rows() == 0
    run_batch.run_once(pipeline.platform(), "next")
    pipeline.assert_exact()
    assert count_in_staging(pipeline) == []


@pytest.mark.parametrize("point", ["staging_sealed", "audited"])
def test_session_that_is_ended_leaves_nothing_and_the_same_attempt_stages(workplace: Workplace, point: str) -> None:
    pipeline = workplace.create()
    pipeline.send(50)

    def cut() -> None:
        pipeline.query(
            "select pg_terminate_backend(pid) from pg_stat_activity "
            "where state = 'idle in transaction' and datname = current_database()"
        )

    batch = run_batch.run_once(pipeline.platform(crash=Interrupt(point, cut)), "run")
    assert batch is not None
    assert (batch.state, batch.attempt) == (BatchState.PUBLISHED, 1)
    assert list_given_up(pipeline) != [None]
    pipeline.assert_exact()


def test_batch_whose_streams_end_their_process_is_staged_by_the_third_attempt(
    workplace: Workplace, caplog: pytest.LogCaptureFixture
) -> None:
    """What ends each stream of a batch must not end the batch for ever."""
    pipeline = workplace.create()
    pipeline.send(50)

    def die(point: str) -> None:
        if point == "audited":
            raise KeyboardInterrupt

    for number in range(streaming.MOST_ATTEMPTS):
        with pytest.raises(KeyboardInterrupt):
            run_batch.run_once(pipeline.platform(crash=die), f"run {number}")
        assert pipeline.count_target_rows() == 0
    caplog.set_level(logging.INFO)
    batch = run_batch.run_once(pipeline.platform(), "next")
    assert batch is not None
    assert (batch.state, batch.attempt) == (BatchState.PUBLISHED, streaming.MOST_ATTEMPTS + 1)
    assert STREAMED not in caplog.text
    pipeline.assert_exact()


@pytest.mark.parametrize("ending", ["the session is ended", "it is too old", "it is too old before the commit"])
def test_stream_that_ends_is_staged_with_the_reason(
    workplace: Workplace, monkeypatch: pytest.MonkeyPatch, ending: str
) -> None:
    pipeline = workplace.create()
    send_much(pipeline)

    class Ending(Door):
        def __init__(self, take: Callable[[memoryview], None], address: StreamAddress) -> None:
            self.frames = 0
            super().__init__(lambda view: self._end(take, view), address)

        def _end(self, take: Callable[[memoryview], None], view: memoryview) -> None:
            self.frames += 1
            if self.frames == 2 and ending == "the session is ended":
                copying = "select pg_terminate_backend(pid) from pg_stat_activity where query like %s"
                assert pipeline.query(copying, f"copy%{pipeline.name}%") == [(True,)]
            if self.frames == 2 and ending == "it is too old":
                opened[0].end()
            take(view)

    opened: list[module.TableStream] = []
    begin = module.TableStream.__post_init__

    def begin_and_tell(stream: module.TableStream) -> None:
        begin(stream)
        opened.append(stream)

    monkeypatch.setattr(module.TableStream, "__post_init__", begin_and_tell)

    def end_late(point: str) -> None:
        if point == "audited" and ending == "it is too old before the commit" and not opened[0].ended:
            opened[0].end()

    monkeypatch.setattr(stream, "Door", Ending)
    run_batch.run_once(pipeline.platform(crash=end_late), "run")
    (why,) = list_given_up(pipeline)
    assert why is not None
    assert ("warehouse database" if ending == "the session is ended" else "VACUUM may wait no longer") in why
    pipeline.assert_exact()


@pytest.mark.parametrize("is_known", [True, False], ids=["its session is known", "negative control"])
def test_next_attempt_ends_the_session_of_a_stream_that_stands_still(
    workplace: Workplace, monkeypatch: pytest.MonkeyPatch, is_known: bool
) -> None:
    """Within the stream, because a process that stands still does nothing against it. The table is a new one."""
    pipeline = workplace.create()
    send_much(pipeline)
    planned = plans.plan(pipeline.platform(), "run")
    assert planned is not None
    left: list[int] = []

    def count_sessions() -> int:
        counted = "select count(*) from pg_stat_activity where application_name = %s"
        return int(pipeline.query(counted, name_session(planned.batch_id))[0][0])

    class Standing(Door):
        def __init__(self, take: Callable[[memoryview], None], address: StreamAddress) -> None:
            super().__init__(self._stand, address)

        def _stand(self, _: memoryview) -> None:
            if not left:
                left.append(count_sessions())
                # As a replay, which may create the table, too.
                assert pipeline.count_target_rows() == 0
                pipeline.platform().ledger.open_attempt(planned.batch_id, "next")
                if is_known:
                    wait_until(lambda: count_sessions() == 0)
                left.append(count_sessions())

    if not is_known:
        monkeypatch.setattr("batchledger.ledger.ledger.name_session", lambda _: "another one")
    monkeypatch.setattr(stream, "Door", Standing)
    with pytest.raises(FencedError):
        run_batch.stream_or_stage(pipeline.platform(), planned.batch_id, "run")
    assert left == ([1, 0] if is_known else [1, 1])
    run_batch.run_once(pipeline.platform(), "next")
    pipeline.assert_exact()


def test_stream_that_breaks_while_its_table_waits_for_a_lock_does_not_wait_for_it(
    workplace: Workplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = workplace.create()
    pipeline.send(1)
    run_batch.run_once(pipeline.platform(), "before")
    send_much(pipeline)
    copying = "select count(*) from pg_stat_activity where query like %s and wait_event_type = 'Lock'"
    with psycopg.connect(workplace.dsn) as held:
        held.execute(
            f"create function wait_{pipeline.name}() returns trigger language plpgsql as "
            f"'begin perform pg_advisory_xact_lock({len(pipeline.name)}); return new; end'"
        )
        held.execute(
            f'create trigger wait before insert on "{pipeline.name}_target" for each row '
            f"execute function wait_{pipeline.name}()"
        )
        held.commit()
        held.execute(f"select pg_advisory_xact_lock({len(pipeline.name)})")

        class Breaking(Door):
            def __init__(self, take: Callable[[memoryview], None], address: StreamAddress) -> None:
                super().__init__(lambda view: self._take_for_ever(take, view), address)

            def _take_for_ever(self, take: Callable[[memoryview], None], view: memoryview) -> None:
                """Fill all buffers on the way to the table; meanwhile the connections of the tasks break."""
                threading.Thread(target=self._break).start()
                while True:
                    take(view)

            def _break(self) -> None:
                wait_until(lambda: pipeline.query(copying, f"copy%{pipeline.name}%") == [(1,)])
                self.break_off(ConnectionError("a machine has gone"))

        monkeypatch.setattr(stream, "Door", Breaking)
        planned = plans.plan(pipeline.platform(), "run")
        assert planned is not None
        batch = run_batch.stream_or_stage(pipeline.platform(), planned.batch_id, "run")
        assert batch.state is BatchState.STAGED
    assert "could not stream its rows" in str(list_given_up(pipeline))


@contextmanager
def lent(dsn: str) -> Iterator[tuple[psycopg.Connection[Any], LentConnection]]:
    """A transaction with an uncommitted row, and what checks get of it."""
    owner = connect(dsn)
    with owner:
        owner.execute("create temporary table rows (n int)")
        owner.execute("insert into rows values (1)")
        borrowed = LentConnection(owner.pgconn)
        borrowed.cursor_factory = QueryCursor
        yield owner, borrowed
        assert owner.execute("select count(*) from rows").fetchall() == [(1,)]
        owner.rollback()
        assert owner.execute("select to_regclass('pg_temp.rows')").fetchall() == [(None,)]


@pytest.mark.parametrize(
    "text",
    [
        "commit",
        "rollback",
        "abort and chain",
        "select 1; commit",
        "select 1; select 2",
        "insert into rows values (2)",
        "with more as (insert into rows values (2) returning n) select * from more",
        "select 1 -- a comment\n; commit",
        "show timezone; commit",
        "set transaction read write",
        "savepoint mine",
        "prepare transaction 'mine'",
        "copy rows from stdin",
        "do $$ begin commit; end $$",
        "call pg_catalog.pg_sleep(0)",
        "select set_config('transaction_read_only', 'off', true) from (values (1)) v",
    ],
)
def test_i6_check_can_neither_end_nor_change_the_transaction_that_it_reads_in(warehouse_dsn: str, text: str) -> None:
    with lent(warehouse_dsn) as (_, borrowed), pytest.raises(psycopg.Error):
        borrowed.execute(text)


def test_i6_check_reads_with_parameters_and_ends_nothing_by_what_libraries_do(warehouse_dsn: str) -> None:
    with lent(warehouse_dsn) as (_, borrowed):
        for _ in range(2):
            assert borrowed.execute("select n + %s from rows -- one", [41]).fetchall() == [(42,)]
            assert borrowed.execute("values (1), (2)").fetchall() == [(1,), (2,)]
            assert borrowed.execute("show timezone").fetchall() == [("UTC",)]
        for refused in (
            borrowed.cursor,
            borrowed.cursor().executemany,
            borrowed.cursor().copy,
            borrowed.cursor().stream,
        ):
            with pytest.raises(psycopg.NotSupportedError):
                refused("select 1")
        borrowed.autocommit = True
        borrowed.rollback()
        borrowed.commit()
        borrowed.close()
        del borrowed


def test_session_that_has_lost_its_transaction_refuses_checks(warehouse_dsn: str) -> None:
    owner = connect(warehouse_dsn)
    with owner:
        borrowed = LentConnection(owner.pgconn)
        borrowed.cursor_factory = QueryCursor
        with pytest.raises(psycopg.OperationalError, match="has ended"):
            borrowed.execute("select 1")


def test_both_ways_leave_the_same_in_the_ledger(workplace: Workplace, caplog: pytest.LogCaptureFixture) -> None:
    """Balance, times, checks and their figures: what the audit of a stream says is what it says of staged rows."""
    caplog.set_level(logging.INFO)
    told = []
    for change in (lambda each: each, staging):
        pipeline = workplace.create(checks=[{**POSITIVE, "max_value": 100}])
        pipeline.send(20)
        pipeline.send_raw([(0, b"no JSON")])
        run_batch.run_once(change(pipeline.platform()), "run")
        found = pipeline.query(
            "select state, published_rows, reported_rows from batchledger.batch where pipeline = %s", pipeline.name
        )
        found += pipeline.query(
            "select partition, offsets::text, accepted, duplicates, quarantined, unexplained, untimed "
            "from batchledger.batch_range where pipeline = %s order by partition",
            pipeline.name,
        )
        found += pipeline.query(
            "select name, outcome, replace(detail, %s, 'it'), replace(observed::text, %s, 'it') "
            "from batchledger.check_result join batchledger.batch using (batch_id) where pipeline = %s order by name",
            pipeline.name,
            pipeline.name,
            pipeline.name,
        )
        told.append(json.loads(json.dumps(found, default=str)))
        assert list_given_up(pipeline) == [None]
    assert told[0] == told[1]
    assert caplog.text.count(STREAMED) == 1


def test_ledger_that_knows_less_than_its_table_is_found_by_a_stream_too(workplace: Workplace) -> None:
    pipeline = workplace.create()
    pipeline.send(10)
    run_batch.run_once(pipeline.platform(), "before")
    with psycopg.connect(workplace.dsn) as connection:
        connection.execute("update batchledger.pipeline set ledger_mark = null where name = %s", [pipeline.name])
        moved = sql.SQL("update {} set _offset = 100, _batch_id = 999999 where _offset = 4")
        connection.execute(moved.format(sql.Identifier(f"{pipeline.name}_target")))
    pipeline.send(10)
    with pytest.raises(BatchBlockedError, match="no batch of this ledger has published"):
        run_batch.run_once(pipeline.platform(), "run")
    assert pipeline.count_target_rows() == 10
