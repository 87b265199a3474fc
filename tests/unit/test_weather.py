"""Which errors of PostgreSQL pass by themselves, which wait for an operator, and which are about what was asked."""

import psycopg
import pytest

from batchledger.database.transactions import cause_of
from batchledger.database.weather import CONNECTION_CLASS, LIMITS, WEATHER, Cause, find_cause

REFUSED = {
    "22003": "numeric field overflow",
    "22001": "value too long for type character varying(3)",
    "22012": "division by zero in a generated column",
    "22021": "invalid byte sequence",
    "23502": "not-null constraint",
    "23505": "unique constraint",
    "23514": "check constraint, or no partition for the row",
    "25001": "a mistake of ours about transactions",
    "40002": "integrity constraint violation",
    "42501": "row security with check",
    "42601": "syntax error",
    "44000": "with check option of a view",
    "54000": "index row too large",
    "54011": "too many columns",
    "55000": "a view that takes no rows",
    "57P04": "the database was dropped",
    "58P01": "the library of an extension behind a trigger is not there",
    "P0001": "raise in a trigger",
    "XX000": "internal error, as of a value of more than a gigabyte",
    "ZZ123": "a code that a function has made up",
}


@pytest.mark.parametrize("sqlstate", [None, "08006", "08P01", *WEATHER])
def test_weather_is_tried_again(sqlstate: str | None) -> None:
    assert find_cause(sqlstate) is Cause.WEATHER


@pytest.mark.parametrize("sqlstate", LIMITS)
def test_limit_that_somebody_has_set_is_neither_weather_nor_about_a_row(sqlstate: str) -> None:
    assert find_cause(sqlstate) is Cause.LIMIT


@pytest.mark.parametrize("sqlstate", REFUSED)
def test_everything_else_is_refused_for_good(sqlstate: str) -> None:
    assert find_cause(sqlstate) is Cause.REFUSAL


@pytest.mark.parametrize("sqlstate", ["57P01", "08006", "40001", "55P03", "57014", "P0001"])
def test_what_a_function_raises_by_itself_is_a_refusal_whatever_code_it_carries(sqlstate: str) -> None:
    assert find_cause(sqlstate, is_raised=True) is Cause.REFUSAL


def test_every_code_is_listed_once_with_its_reason() -> None:
    assert not WEATHER.keys() & LIMITS.keys()
    assert not [each for each in {**WEATHER, **LIMITS} if each.startswith(CONNECTION_CLASS)]
    assert all({**WEATHER, **LIMITS}.values())


@pytest.mark.parametrize(
    ("error", "cause"),
    [
        (psycopg.OperationalError("server closed the connection unexpectedly"), Cause.WEATHER),
        (psycopg.InterfaceError("the connection is closed"), Cause.WEATHER),
        (psycopg.errors.ProgramLimitExceeded("index row size 10032 exceeds btree maximum"), Cause.REFUSAL),
        (psycopg.errors.TooManyColumns("tables can have at most 1600 columns"), Cause.REFUSAL),
        (psycopg.errors.ReadOnlySqlTransaction("cannot execute INSERT in a read-only transaction"), Cause.WEATHER),
        (psycopg.errors.DiskFull("could not extend file"), Cause.WEATHER),
        (psycopg.errors.QueryCanceled("canceling statement due to statement timeout"), Cause.LIMIT),
        (psycopg.DataError("PostgreSQL text fields cannot contain NUL (0x00) bytes"), Cause.REFUSAL),
        (psycopg.ProgrammingError("the query has 1 placeholder but 0 parameters were passed"), Cause.REFUSAL),
    ],
    ids=lambda each: type(each).__name__ if isinstance(each, Exception) else None,
)
def test_code_decides_and_not_the_class_that_the_driver_made_of_it(error: psycopg.Error, cause: Cause) -> None:
    """Psycopg makes an OperationalError of a whole class 54, which is about a row or a schema."""
    assert cause_of(error) is cause
