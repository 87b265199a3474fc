"""What torture changes in a database is real while its block lasts, and gone afterwards."""

from collections.abc import Iterator

import psycopg
import pytest

from batchledger.database.sessions import connect
from batchledger.local.torture.changed_database import FOREIGN_SETTINGS, change_database
from batchledger.local.torture.schedule import FaultKind
from tests.conftest import as_superuser, lend_database

STATE = """
select (select array_agg(pg_get_functiondef(oid) order by oid) from pg_proc where proname ~ 'now$|clock_timestamp$'),
    (select array_agg(setconfig) from pg_db_role_setting d join pg_database b on b.oid = d.setdatabase
     where b.datname = current_database())
"""
NOTE = """
with noted as (insert into noted default values returning at)
select extract(epoch from at - transaction_timestamp())::int, extract(epoch from clock_timestamp() - at)::int / 60
from noted
"""


@pytest.fixture
def dsn(warehouse_dsn: str) -> Iterator[str]:
    """A database for this test alone, with a table whose rows know when they were written; for its owner."""
    with lend_database(warehouse_dsn) as found:
        with psycopg.connect(as_superuser(found)) as connection:
            connection.execute("create table public.noted (at timestamptz default now())")
            connection.execute("grant all on public.noted to public")
        yield found


def read_state(dsn: str) -> object:
    with psycopg.connect(dsn) as connection:
        return connection.execute(STATE).fetchone()


@pytest.mark.parametrize(("kind", "seconds"), [(FaultKind.CLOCK_AHEAD, 36_000), (FaultKind.CLOCK_BEHIND, -36_000)])
def test_clock_is_moved_for_defaults_and_statements_of_every_session_and_moved_back(
    dsn: str, kind: FaultKind, seconds: int
) -> None:
    before = read_state(dsn)
    with connect(dsn) as began_before:
        with change_database(as_superuser(dsn), kind) as is_noticed, connect(dsn) as begun:
            assert is_noticed
            for each in (began_before, begun):
                assert each.execute(NOTE).fetchone() == (seconds, 0)
                each.commit()
        assert began_before.execute(NOTE).fetchone() == (0, 0)
    assert read_state(dsn) == before


def test_settings_are_others_for_sessions_that_do_not_say_what_they_mean(dsn: str) -> None:
    before = read_state(dsn)
    with change_database(as_superuser(dsn), FaultKind.CHANGE_SETTINGS) as is_noticed:
        assert is_noticed
        with psycopg.connect(dsn) as session:
            found = {name: session.execute(f"show {name}").fetchall()[0][0] for name in FOREIGN_SETTINGS}
            assert found == {**FOREIGN_SETTINGS, "datestyle": "German, DMY"}
            with pytest.raises(NotImplementedError, match="DateStyle"):
                session.execute("select now()").fetchone()
        with connect(dsn) as session:
            assert session.execute("select now() > 'yesterday'").fetchone() == (True,)
    assert read_state(dsn) == before
