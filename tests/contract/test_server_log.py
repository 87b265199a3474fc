"""What a statement is refused for quotes rows and values. The log of the local PostgreSQL holds none of them."""

from collections.abc import Iterator
from contextlib import suppress
from uuid import uuid4

import psycopg
import pytest

from tests.conftest import TestServices, as_superuser
from tests.contract.warehouses import create_role, role_of
from tests.support import wait_until


@pytest.fixture
def login(warehouse_dsn: str) -> Iterator[str]:
    """A role of the test's own."""
    with create_role(warehouse_dsn) as dsn:
        yield dsn


def be_refused(dsn: str, canary: str) -> None:
    """Let PostgreSQL quote a value in a message, a row in a detail, a line in a context, and a statement."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("create temporary table refusing (number int check (number > 0), text text)")
        for statement in (
            f"select '{canary}'::int",
            f"insert into refusing values (-1, '{canary}')",  # noqa: S608
            f"do $$ begin raise warning '{canary}'; end $$",
        ):
            with suppress(psycopg.Error):
                connection.execute(statement.encode())
        with suppress(psycopg.Error), connection.cursor().copy("copy refusing (number) from stdin") as copy:
            copy.write_row((canary,))


def read_log_behind(services: TestServices, dsn: str) -> str:
    """Return the log once it says what comes after all before: a refused login, which a server has to log."""
    stranger = f"stranger_{uuid4().hex}"
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(dsn, user=stranger)
    log = services.home.log_file("postgres")
    wait_until(lambda: stranger in log.read_text(errors="replace"))
    return log.read_text(errors="replace")


def test_log_of_the_local_postgresql_holds_no_value_of_a_refused_row(login: str, services: TestServices) -> None:
    canary = f"canary-{uuid4().hex}"
    be_refused(login, canary)
    assert canary not in read_log_behind(services, login)


def test_with_postgresqls_own_settings_the_log_holds_them(login: str, services: TestServices) -> None:
    """The negative control."""
    canary = f"canary-{uuid4().hex}"
    with psycopg.connect(as_superuser(login), autocommit=True) as connection:
        for name in ("log_min_messages", "log_min_error_statement", "log_error_verbosity"):
            ((default,),) = connection.execute("select boot_val from pg_settings where name = %s", [name]).fetchall()
            connection.execute(f"alter role {role_of(login)} set {name} = '{default}'".encode())
    be_refused(login, canary)
    assert read_log_behind(services, login).count(canary) > 4
