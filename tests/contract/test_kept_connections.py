"""Transactions that come after each other share a connection, and nothing else."""

import os
import threading
from collections.abc import Callable, Iterator
from contextvars import Context, copy_context
from uuid import uuid4

import psycopg
import pytest
from psycopg import sql

from batchledger.database.sessions import keep_connections, use_connection, write_and_commit
from batchledger.database.transactions import transaction
from batchledger.model.errors import DatabaseRefusedError, ServiceUnavailableError
from tests.support import wait_until


@pytest.fixture(autouse=True)
def _kept() -> Iterator[None]:
    with keep_connections():
        yield


def server_process(dsn: str) -> int:
    with transaction(dsn, "ask who serves") as cursor:
        cursor.execute("select pg_backend_pid()")
        return int(cursor.fetchall()[0][0])


def is_gone(dsn: str, *processes: int) -> bool:
    with psycopg.connect(dsn) as other:
        left = other.execute("select count(*) from pg_stat_activity where pid = any (%s)", [[*processes]]).fetchone()
    return left == (0,)


def end_process(dsn: str, process: int) -> None:
    with psycopg.connect(dsn, autocommit=True) as other:
        other.execute("select pg_terminate_backend(%s, 10000)", [process])


def test_transactions_after_each_other_share_a_connection(warehouse_dsn: str) -> None:
    first = server_process(warehouse_dsn)
    with keep_connections():
        assert server_process(warehouse_dsn) == first
    assert server_process(warehouse_dsn) == first


def test_transaction_within_another_one_has_a_connection_of_its_own(warehouse_dsn: str) -> None:
    with transaction(warehouse_dsn, "begin") as cursor:
        cursor.execute("select pg_backend_pid()")
        assert cursor.fetchall() != [(server_process(warehouse_dsn),)]


def test_transactions_within_others_share_one_more_connection(warehouse_dsn: str) -> None:
    found = set[int]()

    def nest_three_times() -> None:
        with keep_connections():
            for _ in range(3):
                with transaction(warehouse_dsn, "begin") as cursor:
                    cursor.execute("select pg_backend_pid()")
                    found.update((int(cursor.fetchall()[0][0]), server_process(warehouse_dsn)))

    Context().run(nest_three_times)
    assert len(found) == 2
    wait_until(lambda: is_gone(warehouse_dsn, *found), 10)


def write_and_fail(dsn: str, table: sql.Identifier) -> None:
    with write_and_commit(dsn) as connection:
        connection.execute(sql.SQL("insert into {} values (1)").format(table))
        with connection.cursor().copy(sql.SQL("copy {} from stdin").format(table)) as copy:
            copy.write("2\nno number\n")


def test_what_is_written_is_committed_at_the_end_and_not_after_an_error(warehouse_dsn: str) -> None:
    table = sql.Identifier("public", f"written_{uuid4().hex[:8]}")
    with write_and_commit(warehouse_dsn) as connection:
        connection.execute(sql.SQL("create table {} (number int)").format(table))
    with pytest.raises(psycopg.DataError):
        write_and_fail(warehouse_dsn, table)
    with use_connection(warehouse_dsn) as connection:
        assert connection.execute(sql.SQL("select count(*) from {}").format(table)).fetchone() == (0,)


def test_thread_has_connections_of_its_own_although_it_has_our_context(warehouse_dsn: str) -> None:
    first, found = server_process(warehouse_dsn), list[int]()
    thread = threading.Thread(target=copy_context().run, args=[lambda: found.append(server_process(warehouse_dsn))])
    thread.start()
    thread.join()
    assert len(found) == 1
    assert found != [first]


def test_connection_is_not_used_again_after_an_error(warehouse_dsn: str) -> None:
    first = server_process(warehouse_dsn)
    with pytest.raises(DatabaseRefusedError, match="division by zero"), transaction(warehouse_dsn, "fail") as cursor:
        cursor.execute("select 1 / 0")
    assert server_process(warehouse_dsn) != first


def test_connection_that_was_lost_meanwhile_is_replaced(warehouse_dsn: str) -> None:
    first = server_process(warehouse_dsn)
    end_process(warehouse_dsn, first)
    assert server_process(warehouse_dsn) != first


def lose_the_connection(dsn: str) -> None:
    with transaction(dsn, "be interrupted") as cursor:
        cursor.execute("select pg_backend_pid()")
        end_process(dsn, int(cursor.fetchall()[0][0]))
        cursor.execute("select 1")


def test_connection_that_is_lost_in_the_middle_is_told_and_not_replaced(warehouse_dsn: str) -> None:
    """The statements before it are gone; only their caller can repeat them."""
    server_process(warehouse_dsn)
    with pytest.raises(ServiceUnavailableError, match="be interrupted"):
        lose_the_connection(warehouse_dsn)


def test_nothing_of_a_session_is_left_to_the_next_transaction(warehouse_dsn: str) -> None:
    with transaction(warehouse_dsn, "leave things behind") as cursor:
        cursor.execute("create temporary table left_behind (number int)")
        cursor.execute("set work_mem = '77MB'")
        cursor.execute("select pg_advisory_lock(77)")
        cursor.execute("select pg_backend_pid()")
        first = cursor.fetchall()
    with transaction(warehouse_dsn, "look for them") as cursor:
        cursor.execute("select pg_backend_pid()")
        assert cursor.fetchall() == first
        cursor.execute("select to_regclass('left_behind'), current_setting('work_mem') = '77MB'")
        assert cursor.fetchall() == [(None, False)]
        cursor.execute("select count(*) from pg_locks where locktype = 'advisory' and pid = pg_backend_pid()")
        assert cursor.fetchall() == [(0,)]
        cursor.execute("select current_setting('lock_timeout'), current_setting('timezone')")
        assert cursor.fetchall() == [("20s", "UTC")]


def create_a_table(dsn: str) -> None:
    with use_connection(dsn) as connection:
        connection.execute("create table public.kept_connections (number int)")


@pytest.mark.parametrize("run", [lambda create: create(), lambda create: Context().run(create)], ids=["kept", "new"])
def test_what_was_not_committed_is_rolled_back(warehouse_dsn: str, run: Callable[[Callable[[], None]], None]) -> None:
    run(lambda: create_a_table(warehouse_dsn))
    with transaction(warehouse_dsn, "look for it") as cursor:
        cursor.execute("select to_regclass('public.kept_connections')")
        assert cursor.fetchall() == [(None,)]


def test_forked_process_has_connections_of_its_own_and_leaves_ours_alone(warehouse_dsn: str) -> None:
    first = server_process(warehouse_dsn)
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(write, str(server_process(warehouse_dsn)).encode())
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    found = os.read(read, 100)
    os.close(read)
    os.close(write)
    assert found.isdigit()
    assert int(found) != first
    assert server_process(warehouse_dsn) == first


def test_connections_are_closed_when_the_block_ends(warehouse_dsn: str) -> None:
    found: list[int] = []

    def keep_one() -> None:
        with keep_connections():
            found.append(server_process(warehouse_dsn))

    thread = threading.Thread(target=keep_one)
    thread.start()
    thread.join()
    with psycopg.connect(warehouse_dsn, autocommit=True) as other:
        count = "select count(*) from pg_stat_activity where pid = any(%s)"
        wait_until(lambda: other.execute(count, [found]).fetchall() == [(0,)])
