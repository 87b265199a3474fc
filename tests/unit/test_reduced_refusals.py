"""What PostgreSQL says is in an error if it quotes no value; all that it says is in the whole text.

The contract tests of refused rows ask a real PostgreSQL; here are the words that it has for each kind.
"""

import psycopg
import pytest
from psycopg.pq import DiagnosticField

from batchledger.database.transactions import handing_over, tell_all, translate_errors, without_values
from batchledger.model.errors import BatchledgerError, DatabaseRefusedError, RowsRefusedError, ServiceUnavailableError

CANARY = "canary-4111"
KEPT = {
    "23505": 'duplicate key value violates unique constraint "orders_pkey"',
    "23514": 'new row for relation "orders" violates check constraint "small"',
    "22001": "value too long for type character varying(3)",
    "22003": "numeric field overflow",
    "22012": "division by zero",
    "54000": 'index row size 6016 exceeds btree version 4 maximum 2704 for index "orders_id"',
}
REDUCED = {
    "22P02": (f'invalid input syntax for type integer: "{CANARY}"', "InvalidTextRepresentation (SQLSTATE 22P02)"),
    "22003": (f'value "{CANARY}" is out of range for type integer', "NumericValueOutOfRange (SQLSTATE 22003)"),
    "22008": ("date field value out of range: 4111-13-41", "DatetimeFieldOverflow (SQLSTATE 22008)"),
    "P0001": (f"no {CANARY}", "RaiseException (SQLSTATE P0001)"),
}


def refusal(sqlstate: str, said: str, function: str = "ReportError") -> psycopg.Error:
    """An error as the driver raises it, with a detail that quotes the row."""
    told = {
        DiagnosticField.SQLSTATE: sqlstate,
        DiagnosticField.MESSAGE_PRIMARY: said,
        DiagnosticField.MESSAGE_DETAIL: f"Failing row contains ({CANARY}).",
        DiagnosticField.SOURCE_FUNCTION: function,
    }
    info = {int(each): text.encode() for each, text in told.items()}
    kind = psycopg.errors.lookup(sqlstate)
    return kind(f"{said}\nDETAIL:  Failing row contains ({CANARY}).", info=info)


@pytest.mark.parametrize("sqlstate", KEPT)
def test_words_that_quote_no_value_are_kept(sqlstate: str) -> None:
    assert without_values(refusal(sqlstate, KEPT[sqlstate])) == KEPT[sqlstate]


@pytest.mark.parametrize("sqlstate", REDUCED)
def test_words_that_quote_a_value_are_reduced_to_name_and_code(sqlstate: str) -> None:
    said, told = REDUCED[sqlstate]
    assert without_values(refusal(sqlstate, said)) == told


@pytest.mark.parametrize("marks", ["„“", "«»", "»«", "“”", "「」", "''"])
def test_value_in_quotation_marks_of_another_language_is_reduced(marks: str) -> None:
    """The server has a language (lc_messages), and a login cannot change it."""
    said = f"ungültige Eingabesyntax für Typ integer: {marks[0]}{CANARY}{marks[1]}"
    assert without_values(refusal("22000", said)) == "DataException (SQLSTATE 22000)"


@pytest.mark.parametrize("function", ["exec_stmt_raise", "PLy_elog_impl"])
def test_words_of_the_author_of_a_function_are_reduced_whatever_their_code(function: str) -> None:
    assert without_values(refusal("23505", f"no {CANARY}", function)) == "UniqueViolation (SQLSTATE 23505)"


def test_words_of_the_driver_itself_are_reduced() -> None:
    assert without_values(psycopg.DataError(f"cannot write {CANARY}")) == "DataError"


@pytest.mark.parametrize("sqlstate", ["23514", "22P02"])
def test_error_of_rows_has_the_row_in_its_whole_text_alone(sqlstate: str) -> None:
    error = refusal(sqlstate, f'invalid: "{CANARY}"' if sqlstate == "22P02" else KEPT[sqlstate])
    told: list[BatchledgerError] = []
    for block in (translate_errors("publish it"), handing_over("the table", "a row")):
        with pytest.raises((DatabaseRefusedError, RowsRefusedError)) as caught, block:
            raise error
        told.append(caught.value)
    assert [each for each in told if CANARY in str(each)] == []
    assert [each.quoted for each in told] == [tell_all(error)] * 2
    assert f"Failing row contains ({CANARY})" in tell_all(error)


def test_weather_that_a_writer_meets_is_told_in_the_words_of_the_database() -> None:
    with pytest.raises(ServiceUnavailableError, match="terminating connection") as caught, handing_over("it", "a row"):
        raise refusal("57P01", "terminating connection due to administrator command", "ProcessInterrupts")
    assert caught.value.retryable
