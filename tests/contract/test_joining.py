"""Old batches on a real PostgreSQL become spans: the proof finds the same, and all can be done to them as before."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from psycopg import sql

from batchledger.books.history import load_batch_history
from batchledger.interfaces.upkeep import join_history
from batchledger.ledger.grants import grant_role
from batchledger.ledger.housekeeping import RIGHTS_TO_JOIN, PostgresHousekeeping
from batchledger.model.balance import Balance
from batchledger.model.batch import Attempt
from batchledger.model.erasure import ErasureKey
from batchledger.model.errors import DatabaseRefusedError, UnknownBatchError
from batchledger.model.housekeeping import Bounds, Housekeeping, Leftover
from batchledger.model.offsets import OffsetRange
from batchledger.proof.verification import Verification
from tests.contract import life
from tests.contract.decided import BY_ANA, give_up, rewind
from tests.contract.life import ORDERS_0, ORDERS_1
from tests.contract.warehouses import PostgresWarehouse, create_role, open_postgres, role_of

DAY = timedelta(days=1)
TABLES = ("attempt", "attempt_writer_schema", "batch", "batch_range", "check_result", "record_schema")


@pytest.fixture
def warehouse(warehouse_dsn: str) -> Iterator[PostgresWarehouse]:
    yield from open_postgres(warehouse_dsn)


def live(warehouse: PostgresWarehouse, poison: int = 0, missing: int = 0) -> Attempt:
    """The next four offsets, and two of another partition each second time; some without a row."""
    at = life.next_offsets(warehouse)
    ranges = [OffsetRange(ORDERS_0, at.get(ORDERS_0, 0), at.get(ORDERS_0, 0) + 4)]
    if at.get(ORDERS_0, 0) % 8 == 0:
        ranges.append(OffsetRange(ORDERS_1, at.get(ORDERS_1, 0), at.get(ORDERS_1, 0) + 2))
    coordinates = life.rows_of(ranges)
    batch = life.store(warehouse, *ranges)
    rows = life.batch_of_rows(coordinates[poison + missing :])
    attempt = life.stage(warehouse, batch, poison=coordinates[:poison], rows=rows)
    balances = [Balance(each, accepted=len(each)) for each in ranges]
    balances[0] = replace(
        balances[0], accepted=4 - poison - missing, quarantined=poison, tombstones=missing // 2, aborted=missing // 2
    )
    warehouse.ledger.record_audit(attempt, balances, [life.PASSED])
    life.publish(warehouse, attempt)
    return attempt


def erase(warehouse: PostgresWarehouse, offset: int) -> None:
    key = ErasureKey.parse([f"message_id={ORDERS_0}@{offset}"])
    warehouse.decisions.erase(warehouse.pipeline, key, BY_ANA, lambda access: warehouse.sink.erase(access, key))


def replay(warehouse: PostgresWarehouse, start: int, until: int) -> None:
    run = f"again {start} {until} {len(ids(warehouse))}"
    life.publish(warehouse, life.take_replay_to_audited(warehouse, OffsetRange(ORDERS_0, start, until), run=run))


def tell(warehouse: PostgresWarehouse, story: str) -> None:
    """Let happen what the letters say, one after the other; then let it have been on one day, long ago."""
    for letter in story:
        at = life.next_offsets(warehouse).get(ORDERS_0, 0)
        match letter:
            case "l":
                live(warehouse)
            case "h":
                live(warehouse, missing=2)
            case "q":
                live(warehouse, poison=1)
            case "d":
                batch = life.store(warehouse, OffsetRange(ORDERS_0, at, at + 4))
                warehouse.decisions.discard(batch.batch_id, BY_ANA)
            case "r":
                replay(warehouse, at - 4, at)
            case "g":
                give_up(warehouse, OffsetRange(ORDERS_0, at, at + 8))
            case "e":
                erase(warehouse, at - 1)
            case "b":
                rewind(warehouse, {ORDERS_0: at - 2})
    ask(
        warehouse,
        "update batchledger.batch set published_at = timestamptz '2026-01-05 06:00Z' + batch_id * interval '1 us' "
        "where pipeline = %s and published_at is not null",
        warehouse.pipeline,
    )


def ask(warehouse: PostgresWarehouse, statement: str, *parameters: object) -> list[tuple[Any, ...]]:
    with psycopg.connect(warehouse.dsn) as connection:
        cursor = connection.execute(statement.encode(), parameters)
        return cursor.fetchall() if cursor.description else []


def ids(warehouse: PostgresWarehouse) -> list[int]:
    found = ask(warehouse, "select batch_id from batchledger.batch where pipeline = %s order by 1", warehouse.pipeline)
    return [each for (each,) in found]


def spans(warehouse: PostgresWarehouse) -> list[tuple[int, int]]:
    query = "select joined_from, batch_id from batchledger.batch where pipeline = %s and joined_from > 0 order by 1"
    return [(first, last) for first, last in ask(warehouse, query, warehouse.pipeline)]


def stored(warehouse: PostgresWarehouse) -> dict[str, list[tuple[Any, ...]]]:
    """Everything that the ledger has of the pipeline's batches."""
    return {
        table: ask(
            warehouse,
            f"select t::text from batchledger.{table} t where "  # noqa: S608
            + ("pipeline = %s" if table == "record_schema" else "batch_id = any(%s)")
            + " order by 1",
            warehouse.pipeline if table == "record_schema" else ids(warehouse),
        )
        for table in TABLES
    }


def join(warehouse: PostgresWarehouse, newest: int = 0, *, is_dry_run: bool = False) -> Housekeeping:
    house = PostgresHousekeeping(warehouse.dsn, is_dry_run)
    return join_history(house, warehouse.pipeline, warehouse.sink, DAY, newest)


def proved(verification: Verification) -> Verification:
    """What a proof says, but in how many parts the ledger has it."""
    return replace(verification, batches=0, ranges=0, newest_accepted=0, newest_found=0)


@pytest.mark.parametrize(
    ("story", "sizes"),
    [
        ("llhqlldllgll", [3, 2, 2, 2]),
        # A batch is left out if a replay has taken over from it, or an erasure.
        ("lllrlllell", [2, 2, 2]),
        # The batch after the rewind takes over offsets of the one before it.
        ("lllblll", [2, 2]),
        ("hlrqgdebl", []),
    ],
)
def test_what_is_proved_of_joined_history_stays_the_same_and_so_does_what_can_be_done_to_it(
    warehouse: PostgresWarehouse, story: str, sizes: Sequence[int]
) -> None:
    tell(warehouse, story)
    before, rows, known = warehouse.prove(), Counter(life.target_coordinates(warehouse)), ids(warehouse)
    assert before.findings == ()
    done = join(warehouse)
    assert (done.left_out, sum(each.count for each in done.removals)) == ([], sum(sizes) - len(sizes))
    assert [sum(first <= each <= last for each in known) for first, last in spans(warehouse)] == sizes
    assert proved(warehouse.prove()) == proved(before)
    assert len(ids(warehouse)) == len(known) - sum(sizes) + len(sizes)
    joined = stored(warehouse)
    assert join(warehouse).removals == ()
    assert stored(warehouse) == joined, "what was joined stays as it is"
    # Everything that changes rows of a span: a publication beside it, replays of a part and of all, an erasure.
    at = life.next_offsets(warehouse)[ORDERS_0]
    live(warehouse)
    replay(warehouse, 1, 3)
    assert warehouse.prove().findings == ()
    erase(warehouse, 4)
    replay(warehouse, 2, at)
    after = warehouse.prove()
    assert after.findings == ()
    # A replay of these stories brings a row for each offset.
    now = Counter(life.target_coordinates(warehouse))
    assert max(now.values()) == 1
    assert rows.keys() - now.keys() <= {(ORDERS_0, 4)}
    rewind(warehouse, {ORDERS_0: 1})
    assert warehouse.prove().findings == ()


def test_a_span_adds_up_its_batches_and_a_dry_run_joins_nothing(warehouse: PostgresWarehouse) -> None:
    tell(warehouse, "lhl")
    attempt = ids(warehouse)[-1]
    ask(warehouse, "update batchledger.batch_range set timestamps = int8range(batch_id * 10, batch_id * 10 + 5), "
        "untimed = 1 where batch_id = any(%s)", ids(warehouse))  # fmt: skip
    before, first = stored(warehouse), ids(warehouse)[0]
    assert sum(each.count for each in join(warehouse, is_dry_run=True).removals) == 2
    assert stored(warehouse) == before
    assert spans(warehouse) == []
    join(warehouse)
    query = (
        "select partition, offsets, held, accepted, tombstones, holes, aborted, markers, unexplained, timestamps, "
        "untimed from batchledger.batch_range where batch_id = %s order by 1"
    )
    found = [[str(value) for value in each] for each in ask(warehouse, query, attempt)]
    timed = f"[{first * 10}, {attempt * 10 + 5})"
    assert found == [
        ["0", "[0, 12)", "{[0, 12)}", "10", "1", "1", "1", "0", "0", timed, "3"],
        ["1", "[0, 4)", "{[0, 4)}", "4", "0", "0", "0", "0", "0", timed, "2"],
    ]
    ((rows,),) = ask(warehouse, "select published_rows from batchledger.batch where batch_id = %s", attempt)
    assert rows == 14


def test_the_newest_batches_and_those_of_the_last_day_stay(warehouse: PostgresWarehouse) -> None:
    tell(warehouse, "llllll")
    known = ids(warehouse)
    join(warehouse, newest=2)
    assert spans(warehouse) == [(known[0], known[3])]
    live(warehouse)
    live(warehouse)
    join(warehouse)
    assert spans(warehouse) == [(known[0], known[3]), (known[4], known[5])]


def test_what_checks_and_patience_compare_are_batches_and_as_many_of_them_stay_as_are_asked_for(
    warehouse: PostgresWarehouse,
) -> None:
    # The discarded batches and the replay are none of the newest two.
    tell(warehouse, "llllldldr")
    ask(warehouse, "update batchledger.attempt set opened_at = timestamptz '2026-01-01 00:00Z' "
        "where batch_id = any(%s)", ids(warehouse))  # fmt: skip
    ledger, pipeline = warehouse.ledger, warehouse.pipeline
    recent, paces = ledger.load_recent(pipeline, 9), ledger.load_paces(pipeline, 9)
    assert len(recent) == len(paces) == 6
    known = ids(warehouse)
    join(warehouse, newest=2)
    assert spans(warehouse) == [(known[0], known[3])]
    assert ledger.load_recent(pipeline, 9) == recent[:2]
    assert ledger.load_paces(pipeline, 9) == paces[:2]


def test_batches_of_which_a_row_is_lost_are_not_joined_and_are_named(warehouse: PostgresWarehouse) -> None:
    tell(warehouse, "lll")
    before = stored(warehouse)
    warehouse.lose_row(ORDERS_0, 5)
    done = join(warehouse)
    assert "the ledger accepted 4 rows, the target holds 3" in done.left_out[0]
    assert f"batchledger verify {warehouse.pipeline}" in done.left_out[0]
    assert stored(warehouse) == before


def test_batches_that_are_not_joined_keep_no_newer_ones_from_it_and_a_run_joins_no_more_than_its_bound(
    warehouse: PostgresWarehouse,
) -> None:
    tell(warehouse, "llllllll")
    known = ids(warehouse)
    warehouse.lose_row(ORDERS_0, 5)
    house = PostgresHousekeeping(warehouse.dsn, bounds={Leftover.BATCH: Bounds(2, 2)})
    joined = [(known[start], known[start + 1]) for start in (2, 4, 6)]
    for number, has_more in ((1, True), (2, True), (3, True), (3, False)):
        done = join_history(house, warehouse.pipeline, warehouse.sink, DAY, 0)
        assert len(done.left_out) == 1
        assert spans(warehouse) == joined[:number]
        assert done.is_complete is not has_more


def test_verify_finds_in_a_span_a_lost_row_and_one_that_takes_its_place(warehouse: PostgresWarehouse) -> None:
    tell(warehouse, "lll")
    first, last = ids(warehouse)[0], ids(warehouse)[-1]
    join(warehouse)
    warehouse.lose_row(ORDERS_0, 5)
    assert "the ledger accepted 12 rows, the target holds 11" in warehouse.prove().findings[0].detail
    # The number is right again. Offset 0 is there twice, of two batches of the span.
    target = sql.Identifier(warehouse.schema, "orders")
    with psycopg.connect(warehouse.dsn) as connection:
        copy = sql.SQL("insert into {0} select * from {0} where _partition = 0 and _offset = 0").format(target)
        connection.execute(copy)
        move = sql.SQL("update {0} set _batch_id = {1} where ctid = (select max(ctid) from {0})")
        connection.execute(move.format(target, sql.Literal(last)))
    assert ids(warehouse) == [last]
    assert first < last
    assert [each.detail for each in warehouse.prove().findings] == ["rows that repeat an offset: 1"]


def test_an_error_at_any_statement_leaves_the_batches_as_they_were(warehouse: PostgresWarehouse) -> None:
    tell(warehouse, "lll")
    before, known = stored(warehouse), ids(warehouse)
    ask(warehouse, "create or replace function batchledger.fail_here() returns trigger language plpgsql as "
        "$$ begin raise exception 'here'; end $$")  # fmt: skip
    points = [("delete", "batch_range"), ("insert", "batch_range"), ("delete", "check_result")]
    for event, table in [*points, ("delete", "attempt"), ("delete", "batch"), ("update", "batch")]:
        ask(warehouse, f"create trigger fail_here after {event} on batchledger.{table} for each row "
            f"execute function batchledger.fail_here()")  # fmt: skip
        try:
            with pytest.raises(DatabaseRefusedError, match="RaiseException"):
                join(warehouse)
        finally:
            ask(warehouse, f"drop trigger fail_here on batchledger.{table}")
        assert stored(warehouse) == before
    ask(warehouse, "drop function batchledger.fail_here()")
    join(warehouse)
    assert spans(warehouse) == [(known[0], known[-1])]
    assert warehouse.prove().holds


def test_what_happens_to_a_batch_after_its_proof_keeps_the_span_from_being_made(warehouse: PostgresWarehouse) -> None:
    tell(warehouse, "lll")
    span, house = tuple(ids(warehouse)), PostgresHousekeeping(warehouse.dsn)
    assert house.find_spans(warehouse.pipeline, DAY, 0) == [span]
    replay(warehouse, 5, 6)
    assert not house.join(warehouse.pipeline, DAY, span)
    # A publication has the pipeline.
    attempt = life.take_replay_to_audited(warehouse, OffsetRange(ORDERS_1, 0, 1), run="third")
    with warehouse.ledger.publication(attempt):
        assert not house.join(warehouse.pipeline, DAY, span[:1])
    assert spans(warehouse) == []
    assert warehouse.prove().holds


def test_an_incident_that_comes_while_its_batch_is_joined_keeps_the_span_from_being_made(
    warehouse: PostgresWarehouse,
) -> None:
    tell(warehouse, "lll")
    before, span, house = stored(warehouse), tuple(ids(warehouse)), PostgresHousekeeping(warehouse.dsn)
    insert = (
        "insert into batchledger.incident (pipeline, kind, subject, severity, title, lines, command, batch_id, "
        "opened_at, seen_at) select pipeline, 'blocked', '', 'info', 'one', '{}', '', batch_id, now(), now() "
    )
    with psycopg.connect(warehouse.dsn) as other:
        other.execute(f"{insert} from batchledger.batch where batch_id = %s".encode(), [span[0]])
        assert not house.join(warehouse.pipeline, DAY, span)
        other.rollback()
    # It is there before the batch goes, and after it was looked for.
    ask(warehouse, "create or replace function batchledger.tell_here() returns trigger language plpgsql as "
        f"$$ begin {insert} from batchledger.batch where batch_id = {span[0]}; return null; end $$")  # fmt: skip
    ask(warehouse, "create trigger tell_here after delete on batchledger.attempt for each statement "
        "execute function batchledger.tell_here()")  # fmt: skip
    try:
        assert not house.join(warehouse.pipeline, DAY, span)
    finally:
        ask(warehouse, "drop trigger tell_here on batchledger.attempt")
    ask(warehouse, "drop function batchledger.tell_here()")
    assert stored(warehouse) == before
    assert house.join(warehouse.pipeline, DAY, span)


def test_a_replay_that_was_staged_before_its_batches_were_joined_is_published_after(
    warehouse: PostgresWarehouse,
) -> None:
    tell(warehouse, "lll")
    attempt = life.take_replay_to_audited(warehouse, OffsetRange(ORDERS_0, 2, 6))
    join(warehouse)
    assert len(spans(warehouse)) == 1
    held = warehouse.ledger.find_held(warehouse.pipeline, attempt.batch.ranges)
    assert list(warehouse.sink.count_held(warehouse.pipeline, held)) == [4]
    assert life.publish(warehouse, attempt) == 4
    assert warehouse.prove().findings == ()


def test_rows_are_counted_for_those_who_held_them_before_their_batches_were_joined(
    warehouse: PostgresWarehouse,
) -> None:
    tell(warehouse, "llll")
    # The last one first: it is the span, and the others are not there any more.
    ranges = [OffsetRange(ORDERS_0, start, start + 3) for start in (12, 0, 4, 8)]
    held = [part for each in ranges for part in warehouse.ledger.find_held(warehouse.pipeline, [each])]
    join(warehouse)
    assert [each.batch_id in ids(warehouse) for each in held] == [True, False, False, False]
    assert list(warehouse.sink.count_held(warehouse.pipeline, held)) == [3] * 4


def test_a_batch_that_was_joined_is_shown_as_its_span_and_work_on_it_is_refused_with_the_span_named(
    warehouse: PostgresWarehouse,
) -> None:
    tell(warehouse, "lll")
    first, second, last = ids(warehouse)
    join(warehouse)
    history = load_batch_history(warehouse.dsn, second)
    assert (history.batch.batch_id, history.joined_from) == (last, first)
    assert sum(each.until - each.start for each in history.ranges) == 12 + 4
    with pytest.raises(UnknownBatchError) as refused:
        warehouse.ledger.load_batch(second)
    assert f"joined it into batch {last}, of batches {first} to {last} of {warehouse.pipeline}" in refused.value.why
    assert refused.value.advice == f"See what it became: batchledger batch {last}"


def test_each_pipeline_has_its_own_span_over_an_id_and_hears_of_no_other(
    warehouse: PostgresWarehouse, warehouse_dsn: str
) -> None:
    for other in open_postgres(warehouse_dsn):
        for each in (warehouse, other, warehouse, other):
            live(each)
        gone = ids(other)[0]
        for each in (warehouse, other):
            tell(each, "")
            join(each)
        for each in (warehouse, other):
            ((first, last),) = spans(each)
            history = load_batch_history(warehouse_dsn, gone, each.pipeline)
            assert (history.batch.batch_id, history.joined_from) == (last, first)
            with pytest.raises(UnknownBatchError) as refused:
                each.ledger.load_batch(gone, each.pipeline)
            assert str(refused.value).startswith(f"{each.pipeline} has no batch {gone}.")
            where = f"batch {last}, of batches {first} to {last} of {each.pipeline}"
            assert refused.value.why == f"Housekeeping has joined it into {where}."
        # Who asks for none of them sees all of the ledger.
        with pytest.raises(UnknownBatchError, match=f"{warehouse.pipeline} or batch .* of {other.pipeline}"):
            load_batch_history(warehouse_dsn, gone)
        for number in (gone, ids(other)[0], ids(other)[0] + 10**9):
            with pytest.raises(UnknownBatchError) as refused:
                load_batch_history(warehouse_dsn, number, "third")
            assert str(refused.value) == (f"third has no batch {number}.\nList the batches: batchledger batches third")


def test_a_role_joins_only_with_the_right_that_its_owner_is_told_to_grant_and_runs_go_on_either_way(
    warehouse: PostgresWarehouse, warehouse_dsn: str
) -> None:
    live(warehouse)
    with create_role(warehouse_dsn) as dsn:
        role = role_of(dsn)
        grant_role(warehouse_dsn, warehouse.pipeline, role, (warehouse.schema, "orders"), is_applied=True)
        mine = replace(warehouse, dsn=dsn)
        for _ in range(2):
            live(mine)
        first = ids(mine)[0]
        ask(
            mine,
            "insert into batchledger.record_schema (pipeline, fingerprint, definition, first_batch_id, last_batch_id) "
            "values (%s, 'a', 'id string', %s, %s)",
            *(mine.pipeline, first, first),
        )
        live(mine)
        tell(warehouse, "")
        done = join(mine)
        (told,) = done.left_out
        assert told.startswith(f"batches of {mine.pipeline} were not joined: {role} may not delete them.")
        assert told.endswith(f"grant {RIGHTS_TO_JOIN} to {role}")
        assert spans(mine) == []
        ask(warehouse, f"grant {RIGHTS_TO_JOIN} to {role}")
        assert join(mine).left_out == []
        assert len(spans(mine)) == 1
        # A policy refuses a change of a row that names a batch that is not there.
        used = "update batchledger.record_schema set last_used_at = now() where pipeline = %s returning first_batch_id"
        assert ask(mine, used, mine.pipeline) == [(spans(mine)[0][1],)]
        live(mine)
        assert mine.prove().holds
