"""What lasts is said once, and again every ten minutes with how often it came."""

import logging

import pytest

from batchledger.interfaces.airflow.troubles import AGAIN_SECONDS, TEXTS_KNOWN, Troubles

logger = logging.getLogger(__name__)
AWAY = "no run is started for now: away"


class Clock:
    """A clock that a test sets."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def troubles(clock: Clock) -> Troubles:
    return Troubles(logger, clock)


def test_trouble_that_lasts_is_said_once_and_then_every_ten_minutes_with_its_count(
    troubles: Troubles, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    for second in range(1201):
        clock.now = float(second)
        troubles.tell("kafka", "away")
    again = "no run is started for now (600 times since this was said last): away"
    assert caplog.messages == [AWAY, again, again]


def test_another_text_is_said_at_once_and_two_that_take_turns_are_said_once_each(
    troubles: Troubles, caplog: pytest.LogCaptureFixture
) -> None:
    for text in ("away", "silent") * 100:
        troubles.tell("kafka", text)
    assert caplog.messages == [AWAY, "no run is started for now: silent"]


def test_trouble_that_has_ended_is_said_anew_and_the_troubles_of_others_go_on(
    troubles: Troubles, caplog: pytest.LogCaptureFixture
) -> None:
    for source in ("kafka", "warehouse"):
        troubles.tell(source, "away")
    troubles.end("kafka")
    for source in ("kafka", "warehouse"):
        troubles.tell(source, "away")
    assert caplog.messages == [AWAY] * 3


def test_text_that_is_another_one_each_time_fills_neither_log_nor_memory(
    troubles: Troubles, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(1000):
        troubles.tell("kafka", f"error {number}")
    assert len(caplog.messages) == TEXTS_KNOWN + 1
    clock.now = AGAIN_SECONDS
    troubles.tell("kafka", "error 1000")
    count = 1000 - TEXTS_KNOWN
    assert caplog.messages[-1] == f"no run is started for now ({count} times since this was said last): error 1000"


def test_error_that_was_not_foreseen_comes_with_its_traceback(
    troubles: Troubles, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(2):
        try:
            raise ZeroDivisionError  # noqa: TRY301 -- there is no function in between
        except ZeroDivisionError as error:
            troubles.tell("kafka", "away", unforeseen=error)
    (said,) = caplog.records
    assert said.levelno == logging.ERROR
    assert said.exc_text is not None or said.exc_info is not None
