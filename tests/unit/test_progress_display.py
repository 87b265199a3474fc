"""What the command line shows of a long batch: a bar on a terminal, and nothing but log lines anywhere else."""

import os
import re
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from io import StringIO, TextIOWrapper

import pytest
from rich.console import Console

from batchledger.interfaces.cli.display.progress import BAR_INTERVAL_SECONDS, choose_follow, show_bar
from batchledger.lifecycle.following import LOG_INTERVAL_SECONDS, log_progress
from batchledger.model.batch import Attempt, Batch, BatchState, Lane
from batchledger.model.offsets import OffsetRange, TopicPartition
from batchledger.model.progress import Progress

RANGES = (OffsetRange(TopicPartition("flights", 0), 0, 2_000_000),)
BATCH = Batch(17, "flights", Lane.LIVE, BatchState.PLANNED, 1, "run", RANGES, 0, datetime(2026, 1, 1, tzinfo=UTC))
ATTEMPT = Attempt(BATCH, 1, "run")


@contextmanager
def open_terminal() -> Iterator[TextIOWrapper]:
    """A real terminal to write to."""
    ours, theirs = os.openpty()
    with closing(os.fdopen(ours, "rb")), os.fdopen(theirs, "w") as file:
        yield file


def open_console(output: StringIO, width: int) -> Console:
    """A terminal that moves its cursor, whatever the one is that the tests were started from."""
    return Console(file=output, force_terminal=True, color_system=None, width=width, _environ={"TERM": "xterm"})


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize(
    ("progress", "text"),
    [
        (Progress(1_240_000, 2_000_000, 6.9), "62% of 2,000,000 records, 180,000/s, 5 s left"),
        (Progress(0, 2_000_000, 0.0), "0% of 2,000,000 records"),
        (Progress(0, 2_000_000, 0.0, rows=610_000), "0% of 2,000,000 records, 610,000 rows being written"),
    ],
)
def test_the_bar_is_one_line_that_a_terminal_holds(progress: Progress, text: str, width: int) -> None:
    output = StringIO()
    console = open_console(output, width)
    with show_bar(console, ATTEMPT) as tell:
        tell(progress)
    shown = [line.rstrip() for line in re.split(r"\x1b\[\S*?[A-Za-z]|\s*[\r\n]", output.getvalue()) if text in line]
    assert shown
    assert all(re.fullmatch(f"batch 17 of flights [━╸╺ ]{{5,}} {re.escape(text)}", line) for line in shown)
    assert all(len(line) <= width for line in shown)


def test_the_bar_is_gone_when_the_step_is_over() -> None:
    output = StringIO()
    console = open_console(output, 80)
    with show_bar(console, ATTEMPT) as tell:
        tell(Progress(1, 2, 1.0))
    erase_line = "\x1b[2K"
    assert output.getvalue().rstrip("\r").endswith(erase_line)


def test_a_terminal_gets_a_bar_and_everything_else_log_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    with open_terminal() as terminal:
        chosen = choose_follow(Console(file=terminal)).__self__  # type: ignore[attr-defined]
    assert chosen.interval_seconds == BAR_INTERVAL_SECONDS
    assert chosen.display is not log_progress
    for elsewhere in (Console(file=StringIO()), Console(file=StringIO(), force_terminal=True)):
        chosen = choose_follow(elsewhere).__self__  # type: ignore[attr-defined]
        assert (chosen.display, chosen.interval_seconds) == (log_progress, LOG_INTERVAL_SECONDS)


def test_a_terminal_without_control_sequences_gets_log_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")
    with open_terminal() as terminal:
        chosen = choose_follow(Console(file=terminal)).__self__  # type: ignore[attr-defined]
    assert chosen.display is log_progress
