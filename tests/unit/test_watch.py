"""What a page shows is found beside it: once for everybody who looks, and an error takes nothing away.

No test waits for a time here: finding is held up by events, and ends when the test says so.
"""

import logging
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import pytest

from batchledger.interfaces.page import watch as watching
from batchledger.interfaces.page.watch import Sight, Watch
from batchledger.model.errors import ServiceUnavailableError
from tests.support import wait_until

LONG, NOT_AT_ALL = 3600.0, 0.0
PATIENCE = 60.0


@dataclass
class Finder:
    """Finds 1, 2, 3 …, or raises its ``error``; while it is held up, it does not come to its end."""

    begun: int = 0
    at_once: int = 0
    most_at_once: int = 0
    given: list[int | None] = field(default_factory=list)
    error: Exception | None = None
    may_end: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self.may_end.set()

    def find(self, before: int | None) -> int:
        self.begun += 1
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        self.given.append(before)
        try:
            assert self.may_end.wait(PATIENCE)
            if self.error is not None:
                raise self.error
            return self.begun
        finally:
            self.at_once -= 1


@pytest.fixture
def finder() -> Iterator[Finder]:
    finder = Finder()
    yield finder
    finder.may_end.set()


def look_until(watch: Watch[int], holds: Callable[[Sight[int]], bool]) -> Sight[int]:
    """Look again and again without waiting, until what is seen is as it should be; return that."""
    wait_until(lambda: holds(watch.look(NOT_AT_ALL)), PATIENCE)
    return watch.look(NOT_AT_ALL)


def test_nothing_is_found_before_somebody_looks(finder: Finder) -> None:
    Watch(finder.find, LONG)
    assert finder.begun == 0


def test_first_look_waits_for_the_value(finder: Finder) -> None:
    watch = Watch(finder.find, LONG)
    sight = watch.look(PATIENCE)
    assert (sight.value, sight.error) == (1, None)
    assert sight.found_at is not None


def test_look_that_has_no_patience_says_that_nothing_is_known_yet(finder: Finder) -> None:
    finder.may_end.clear()
    watch = Watch(finder.find, LONG)
    assert watch.look(NOT_AT_ALL) == Sight(None, None, None)
    finder.may_end.set()
    assert watch.look(PATIENCE).value == 1


def test_fresh_value_is_not_found_again(finder: Finder) -> None:
    watch = Watch(finder.find, LONG)
    first = watch.look(PATIENCE)
    assert [watch.look(PATIENCE) for _ in range(5)] == [first] * 5
    assert finder.begun == 1


def test_value_is_found_once_for_everybody_who_looks(finder: Finder) -> None:
    finder.may_end.clear()
    watch = Watch(finder.find, NOT_AT_ALL)
    seen: list[Sight[int]] = []
    visitors = [threading.Thread(target=lambda: seen.append(watch.look(PATIENCE))) for _ in range(8)]
    for each in visitors:
        each.start()
    wait_until(lambda: finder.begun)
    finder.may_end.set()
    for each in visitors:
        each.join(PATIENCE)
    assert len(seen) == 8
    assert None not in [each.value for each in seen]
    assert finder.most_at_once == 1


def test_stale_value_is_returned_while_it_is_found_again(finder: Finder) -> None:
    watch = Watch(finder.find, NOT_AT_ALL)
    first = watch.look(PATIENCE)
    finder.may_end.clear()
    look_until(watch, lambda sight: finder.begun == 2)
    assert watch.look(NOT_AT_ALL) == first
    assert finder.begun == 2
    finder.may_end.set()
    assert look_until(watch, lambda sight: sight.value != 1).found_at != first.found_at


def test_each_search_is_given_the_value_before(finder: Finder) -> None:
    watch = Watch(finder.find, NOT_AT_ALL)
    watch.look(PATIENCE)
    look_until(watch, lambda sight: sight.value is not None and sight.value >= 3)
    assert finder.given[:3] == [None, 1, 2]


def test_value_stays_when_it_cannot_be_found_again_and_the_error_stands_beside_it(finder: Finder) -> None:
    watch = Watch(finder.find, NOT_AT_ALL)
    first = watch.look(PATIENCE)
    finder.error = ServiceUnavailableError("no broker answered")
    sight = look_until(watch, lambda sight: sight.error is not None)
    assert sight == Sight(first.value, first.found_at, "no broker answered")
    finder.error = None
    assert look_until(watch, lambda sight: sight.error is None).value != first.value


def test_error_before_the_first_value_is_told_and_finding_is_tried_again_only_when_it_is_due(finder: Finder) -> None:
    finder.error = ServiceUnavailableError("no broker answered")
    watch = Watch(finder.find, LONG)
    assert watch.look(PATIENCE) == Sight(None, None, "no broker answered")
    assert watch.look(PATIENCE).error == "no broker answered"
    assert finder.begun == 1


def test_unexpected_error_is_told_without_its_text_which_only_the_log_has(
    finder: Finder, caplog: pytest.LogCaptureFixture
) -> None:
    finder.error = RuntimeError("password=secret")
    watch = Watch(finder.find, LONG)
    with caplog.at_level(logging.ERROR):
        sight = watch.look(PATIENCE)
    assert sight.error is not None
    assert "secret" not in sight.error
    assert "the log of Airflow's API server has it" in sight.error
    assert "password=secret" in caplog.text


def test_expired_value_is_found_again_by_the_next_look(finder: Finder) -> None:
    watch = Watch(finder.find, LONG)
    watch.look(PATIENCE)
    watch.expire()
    assert finder.begun == 1
    assert look_until(watch, lambda sight: sight.value == 2).error is None
    assert finder.begun == 2


def test_value_that_was_being_found_when_it_expired_is_found_once_more(finder: Finder) -> None:
    """It may have been read before the change."""
    finder.may_end.clear()
    watch = Watch(finder.find, LONG)
    watch.look(NOT_AT_ALL)
    wait_until(lambda: finder.begun == 1)
    watch.expire()
    assert watch.look(NOT_AT_ALL).value is None
    finder.may_end.set()
    assert look_until(watch, lambda sight: sight.value == 2)
    assert finder.most_at_once == 1


def test_everybody_waits_a_little_for_what_is_from_long_ago(finder: Finder) -> None:
    watch = Watch(finder.find, LONG)
    assert watch.look(PATIENCE).value == 1
    watch.expire()
    finder.may_end.clear()
    assert watch.look(NOT_AT_ALL).value == 1
    with ThreadPoolExecutor(1) as pool:
        second = pool.submit(watch.look, PATIENCE)
        with pytest.raises(TimeoutError):
            second.result(0.05)
        finder.may_end.set()
        assert second.result().value == 2


def test_values_are_found_one_after_the_other(finder: Finder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "LONGEST_WAIT_SECONDS", PATIENCE)
    turn, taken = threading.Lock(), []

    def find(before: int | None) -> int:
        taken.append(turn.locked())
        return finder.find(before)

    watches = [Watch(find, LONG, turn) for _ in range(4)]
    for watch in watches:
        watch.look(NOT_AT_ALL)
    assert {watch.look(PATIENCE).value for watch in watches} == {1, 2, 3, 4}
    assert (taken, finder.most_at_once) == ([True] * 4, 1)
    wait_until(lambda: not turn.locked(), PATIENCE)


def test_search_that_does_not_end_holds_up_no_other_for_long(finder: Finder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "LONGEST_WAIT_SECONDS", 0.01)
    turn, other = threading.Lock(), Finder()
    finder.may_end.clear()
    hanging = Watch(finder.find, LONG, turn)
    hanging.look(NOT_AT_ALL)
    wait_until(lambda: finder.begun == 1, PATIENCE)
    assert Watch(other.find, LONG, turn).look(PATIENCE).value == 1
    assert (hanging.look(NOT_AT_ALL).value, turn.locked()) == (None, True)


def test_search_that_has_failed_waits_for_no_other_and_holds_up_none(
    finder: Finder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watching, "LONGEST_WAIT_SECONDS", PATIENCE)
    turn = threading.Lock()
    watch = Watch(finder.find, LONG, turn)
    finder.error = ServiceUnavailableError("nobody answers")
    assert watch.look(PATIENCE).error == "nobody answers"
    finder.error = None
    watch.expire()
    with turn:
        assert watch.look(PATIENCE).value == 2
