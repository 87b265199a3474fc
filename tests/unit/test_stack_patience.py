"""A service that is slow and works is waited for; one that says nothing is given up."""

import sys
from collections.abc import Iterator
from pathlib import Path
from threading import Event

import pytest
from rich.console import Console

from batchledger.local.stack import commands, local_stack, processes
from batchledger.local.stack.home import Home
from batchledger.local.stack.patience import LONGEST_SECONDS, StartPatience
from batchledger.local.stack.processes import Launch
from batchledger.local.stack.service import Service
from batchledger.model.errors import ServiceUnavailableError


def test_patience_ends_after_silence_and_not_after_a_long_time() -> None:
    patience = StartPatience.begin(60, now=0, heard=0)
    assert not patience.is_over(60)
    assert patience.is_over(61)
    for now in range(0, 3000, 50):
        patience = patience.listen(now, heard=now)
        assert not patience.is_over(now + 50)
    silent = patience.listen(2990, heard=2950)
    assert silent.heard_at == 2950
    assert silent.is_over(2950 + 61)


def test_what_repeats_itself_for_ever_is_given_up_in_the_end() -> None:
    patience = StartPatience.begin(60, now=0, heard=0).listen(LONGEST_SECONDS, heard=10**9)
    assert not patience.is_over(LONGEST_SECONDS)
    assert patience.is_over(LONGEST_SECONDS + 1)


def test_a_person_is_told_now_and_then() -> None:
    patience = StartPatience.begin(60, now=0, heard=0)
    assert [now for now in range(35) if _tells(now)] == [10, 20, 30]
    assert not patience.should_tell(9)


def _tells(now: int) -> bool:
    patience = StartPatience.begin(60, now=0, heard=0)
    for second in range(now):
        patience = patience.tell(second) if patience.should_tell(second) else patience
    return patience.should_tell(now)


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    found = Home(root=tmp_path, local=tmp_path, cache=tmp_path, pipelines=tmp_path)
    yield found
    local_stack.down(found)


def service_that(home: Home, program: str, silence_seconds: float) -> Service:
    """A process in the place of the broker; it answers when there is a file ``ready``."""
    launch = Launch([sys.executable, "-u", "-c", program], home.local, {})
    return Service("kafka", (), lambda: launch, lambda _: (home.local / "ready").exists(), silence_seconds)


RECOVERS = """
import pathlib, time
for number in range(30):
    print(f"Recovering unflushed segment {number}. {number}/30 recovered", flush=True)
    time.sleep(0.2)
pathlib.Path("ready").touch()
time.sleep(600)
"""


def test_service_that_recovers_for_longer_than_it_may_be_silent_is_waited_for(home: Home) -> None:
    """As a broker that was killed, and reads its log for minutes."""
    local_stack._start(home, service_that(home, RECOVERS, silence_seconds=3), lambda *_: None, Event())
    assert (home.local / "ready").exists()
    assert processes.measure_log(home, "kafka") == home.log_file("kafka").stat().st_size > 0


def test_service_that_says_nothing_is_given_up_with_its_last_words(home: Home) -> None:
    silent = service_that(home, "print('hello', flush=True); import time; time.sleep(600)", silence_seconds=2)
    with pytest.raises(ServiceUnavailableError, match=r"has not gone on for \d+ s\.\nIts last words: hello"):
        local_stack._start(home, silent, lambda *_: None, Event())


@pytest.mark.parametrize(
    ("waited", "error", "said"),
    [
        (10, "", "kafka is still starting (10 s)"),
        (20, "ERROR it", "kafka is still starting (20 s); its log: ERROR it"),
        (60, "", "kafka is still starting (60 s); its log: a banner"),
    ],
)
def test_log_of_a_start_is_quoted_only_when_it_says_error_or_the_start_takes_long(
    waited: int, error: str, said: str
) -> None:
    patience = StartPatience.begin(60, now=100, heard=0)
    assert patience.describe("kafka", 100 + waited, error, "a banner") == said


@pytest.mark.parametrize(
    ("line", "is_error"),
    [
        ("[2026] ERROR disk is full", True),
        ("org.apache.kafka.StorageError: no", True),
        ("WARN slow", False),
        ("INFO error.threshold=3", False),
    ],
)
def test_last_line_that_says_error_is_found_in_the_log_of_a_service(home: Home, line: str, is_error: bool) -> None:
    assert processes.find_error(home, "kafka") == ""
    file = home.log_file("kafka")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"{line}\nWARN more\n")
    assert processes.find_error(home, "kafka") == (f"{line} (log: {file})" if is_error else "")


def test_person_sees_what_is_waited_for(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commands, "standard_error", Console(file=sys.stderr, width=300))
    with commands._show_progress() as progress:
        progress("kafka", "starting")
        progress("kafka", "kafka is still starting (70 s); its log: Recovering [3/9]")
        progress("kafka", "ready")
    shown = capfd.readouterr().err
    assert "kafka is still starting (70 s); its log: Recovering [3/9]\n" in shown
    assert "ready kafka" in shown
