"""Whether what a connection leads to answers: for the command line, and for *Test* in Airflow. Changes nothing there.

A question has the bound of its client, and all of them together have ``TRIAL_SECONDS``: one that hangs keeps no other
from being shown. What is imported for a question is imported before, in the thread that asks for it.
"""

import shutil
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from time import monotonic

from typing_extensions import override

from batchledger.config.extras import MODULE_BY_EXTRA, require_extra
from batchledger.config.named_connections import KEYS_OF_SECRETS
from batchledger.model.errors import BatchledgerError, ConfigurationError, ServiceUnavailableError
from batchledger.settings.connections import (
    Connection,
    check_extra,
    hashing_secret,
    http_request,
    kafka_options,
    load_connection,
    postgres_dsn,
    spark_server,
    webhook_tls,
)
from batchledger.settings.registry_options import registry_settings
from batchledger.sinks.kinds import KINDS

TRIAL_SECONDS = 30.0
_CALL_SECONDS = 10.0
"""How long one call to a Spark Connect server may take."""

Question = Callable[[], str]
"""Asks, and returns in words what has answered. Raises BatchledgerError."""


@dataclass(frozen=True, slots=True)
class TrialAnswer:
    """What became of one question: ``words`` say what has answered, or what is known without a question.

    ``milliseconds`` is None if nothing was asked. An ``error`` says why there was no good answer.
    """

    words: str = ""
    milliseconds: int | None = None
    error: BatchledgerError | None = None


def prepare_question(connection: Connection, key: str = "") -> Question | str:
    """Return the question behind a connection that ``key`` of a pipeline file names, or why there is none, in words.

    Raises ConfigurationError if the connection cannot be used there.
    """
    if connection.type in MODULE_BY_EXTRA:
        require_extra(connection.type, f"Connection {connection.connection_id!r} of type {connection.type!r}")
    if key == "alerts":
        return _prepare_channel(connection)
    if key in KEYS_OF_SECRETS:
        return f"A secret of {len(hashing_secret(connection))} bytes"
    return _prepare_by_type(connection)


def _prepare_by_type(connection: Connection) -> Question | str:
    match connection.type:
        case "kafka":
            from batchledger.source.kafka.log import describe_cluster

            return partial(describe_cluster, kafka_options(connection))
        case "postgres":
            from batchledger.ledger.schema import describe_database

            return partial(describe_database, postgres_dsn(connection))
        case "spark_connect":
            return _prepare_spark(connection)
        case "spark":
            return partial(_find_program, connection)
        case "http":
            return _prepare_registry(connection)
        case _:
            found = filter(None, (each.prepare_question(connection) for each in KINDS))
            return next(found, None) or f"Not tested: nothing is known of type {connection.type!r}."


def ask(questions: Mapping[str, Question], seconds: float = TRIAL_SECONDS) -> dict[str, TrialAnswer]:
    """Ask all questions at once, by the name of each, and return the answers in the same order."""
    trials = {name: _Trial(name, question) for name, question in questions.items()}
    ends_at = monotonic() + seconds
    for trial in trials.values():
        trial.start()
    for trial in trials.values():
        trial.join(max(0.0, ends_at - monotonic()))
    return {name: trial.answer or _no_answer(name, seconds) for name, trial in trials.items()}


def try_connection(connection_id: str) -> TrialAnswer:
    """Return what a connection answers, whatever pipelines name it for. Its id may be one for this moment alone."""
    try:
        prepared = prepare_question(load_connection(connection_id))
    except BatchledgerError as error:
        return TrialAnswer(error=error)
    if isinstance(prepared, str):
        return TrialAnswer(prepared)
    return ask({connection_id: prepared})[connection_id]


class _Trial(threading.Thread):
    """One question. It is a daemon: one that hangs keeps no process from ending."""

    def __init__(self, name: str, question: Question) -> None:
        super().__init__(name=f"test of {name}", daemon=True)
        self.answer: TrialAnswer | None = None
        self._tried, self._question = name, question

    @override
    def run(self) -> None:
        """Ask. The error of a library is named by its class alone, because its words may hold a secret."""
        begun = monotonic()
        words, error = "", None
        try:
            words = self._question()
        except BatchledgerError as known:
            error = known
        except Exception as unknown:  # noqa: BLE001 -- the edge of the thread
            told = f"Connection {self._tried!r} could not be tested: {type(unknown).__name__}."
            error = BatchledgerError(told, subject=self._tried)
        self.answer = TrialAnswer(words, round((monotonic() - begun) * 1000), error)


def _no_answer(name: str, seconds: float) -> TrialAnswer:
    return TrialAnswer(
        milliseconds=round(seconds * 1000),
        error=ServiceUnavailableError(f"Connection {name!r} gave no answer within {seconds:g} s.", subject=name),
    )


def _prepare_channel(connection: Connection) -> Question | str:
    """Mail servers answer a login. The others take a message, or nothing: their settings are looked at."""
    if check_extra(connection).type == "smtp":
        from batchledger.channels.mail import greet

        return partial(greet, connection.connection_id)
    if connection.type == "http":
        http_request(connection)
        webhook_tls(connection)
    return f"Not tested: only a message would show it, batchledger alerts test {connection.connection_id}"


def _prepare_spark(connection: Connection) -> Question:
    from batchledger.source.spark.versions import require_one_version

    require_one_version()
    from batchledger.source.spark.session import open_connect_session

    url, tls = spark_server(connection)

    def open_session() -> str:
        name = f"{connection.connection_id}/test"
        with open_connect_session(url, name, call_timeout_seconds=_CALL_SECONDS, tls=tls) as session:
            return f"Spark {session.version}"

    return open_session


def _find_program(connection: Connection) -> str:
    program = str(check_extra(connection).extra.get("spark-binary", "spark-submit"))
    path = shutil.which(program)
    if path is None:
        raise ConfigurationError(
            f"{program} is not on the PATH of this process.",
            advice="Put the bin folder of Spark, or of the environment that has pyspark, on the PATH.",
            subject=connection.connection_id,
        )
    return f"{program} is {path}"


def _prepare_registry(connection: Connection) -> Question:
    from batchledger.formats.registry.client import Registry

    registry = Registry(registry_settings(connection))

    def require_answer() -> str:
        registry.require_answer()
        return f"A schema registry at {registry.settings.url}"

    return require_answer
