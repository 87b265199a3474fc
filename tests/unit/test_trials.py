"""Questions behind connections: each has its answer, whatever becomes of the others."""

import threading

import pytest

from batchledger.interfaces.trials import Question, ask, prepare_question, try_connection
from batchledger.model.errors import BatchledgerError, ConfigurationError, ServiceUnavailableError
from batchledger.settings.connections import Connection

SECRET = "s3cret"  # noqa: S105 -- what no answer may name


def fail(error: Exception) -> Question:
    def question() -> str:
        raise error

    return question


def test_a_question_that_hangs_and_one_that_fails_keep_no_other_from_its_answer() -> None:
    ends = threading.Event()
    refused = ServiceUnavailableError("no broker")

    def hang() -> str:
        ends.wait()
        return "late"

    questions = {"hangs": hang, "refused": fail(refused), "breaks": fail(KeyError(SECRET)), "good": lambda: "there"}
    found = ask(questions, seconds=2)
    ends.set()
    assert list(found) == ["hangs", "refused", "breaks", "good"]
    assert {name: each.words for name, each in found.items()} == {
        "hangs": "",
        "refused": "",
        "breaks": "",
        "good": "there",
    }
    assert str(found["hangs"].error) == "Connection 'hangs' gave no answer within 2 s."
    assert found["refused"].error is refused
    assert str(found["breaks"].error) == "Connection 'breaks' could not be tested: KeyError."
    assert found["good"].error is None


def test_negative_control_the_question_that_hangs_is_answered_when_it_is_waited_for() -> None:
    assert ask({"late": lambda: "late"})["late"].words == "late"


@pytest.mark.parametrize(
    ("connection", "key", "words"),
    [
        (Connection("pager", "http", host="https://hooks", password=SECRET), "alerts", "Not tested: only a message"),
        (Connection("chat", "apprise"), "alerts", "Not tested: only a message would show it, batchledger alerts test"),
        (Connection("keys", "generic", password=SECRET * 6), "source.protect", "A secret of 36 bytes"),
        (Connection("shop", "mongo"), "", "Not tested: nothing is known of type 'mongo'."),
    ],
)  # fmt: skip
def test_what_is_not_asked_says_why(connection: Connection, key: str, words: str) -> None:
    told = prepare_question(connection, key)
    assert isinstance(told, str)
    assert told.startswith(words)
    assert SECRET not in told


@pytest.mark.parametrize(
    ("connection", "key"),
    [
        (Connection("keys", "generic", password=SECRET), "source.protect"),
        (Connection("pager", "http", host="hooks", extra={"verify": False}), "alerts"),
        (Connection("shop", "kafka"), "source.connection"),
        (Connection("lake", "iceberg", host="db", extra={"werehouse": SECRET}), "sink.catalog"),
    ],
)
def test_a_connection_that_cannot_be_used_is_refused_before_anything_is_asked(connection: Connection, key: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        prepare_question(connection, key)
    assert SECRET not in str(refused.value)


def test_a_connection_of_spark_submit_names_the_program_that_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    question = prepare_question(Connection("submit", "spark", extra={"spark-binary": "spark3-submit"}))
    assert not isinstance(question, str)
    with pytest.raises(BatchledgerError, match="spark3-submit is not on the PATH"):
        question()


def test_a_connection_that_is_nowhere_is_an_answer_too() -> None:
    answer = try_connection("nowhere_at_all")
    assert answer.error is not None
    assert str(answer.error).startswith("Airflow knows no connection 'nowhere_at_all'.")
