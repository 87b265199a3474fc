"""How the command line shows the progress of a stage step: a bar on a terminal, lines in the log otherwise.

All of it goes to standard error. The bar disappears when the stage step is over; the log says what was staged.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, TextColumn
from rich.progress import Progress as Bars

from batchledger.interfaces.cli.printing import standard_error
from batchledger.lifecycle.following import Follow, Follower, Tell, follow_in_log
from batchledger.model.batch import Attempt
from batchledger.model.counting import describe_count
from batchledger.model.offsets import count_offsets
from batchledger.model.progress import Progress, round_rate, round_time

if TYPE_CHECKING:
    from batchledger.config.pipeline_file import PipelineConfig
    from batchledger.lifecycle.platform import Platform, StageStep

BAR_INTERVAL_SECONDS = 2.0


def build_followed(pipeline: "PipelineConfig") -> "tuple[Platform, StageStep]":
    """Return platform and stage step of a pipeline; both show their progress on standard error."""
    from batchledger.wiring import build_platform, choose_stage_step

    follow = choose_follow(standard_error)
    return build_platform(pipeline, follow=follow), choose_stage_step(pipeline, follow)


def choose_follow(console: Console) -> Follow:
    """Return what follows an attempt: a bar if the console is a terminal that can show one, else the log."""
    # If colours are forced, as in many CI jobs, rich takes a file for a terminal.
    if console.is_interactive and console.file.isatty():
        return Follower(partial(show_bar, console), BAR_INTERVAL_SECONDS).follow
    return follow_in_log()


@contextmanager
def show_bar(console: Console, attempt: Attempt) -> Iterator[Tell]:
    """Show one line with a bar of the full width; log lines on the same console appear above it."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=None, finished_style="bar.complete"),
        TextColumn("{task.fields[text]}"),
    )
    with Bars(*columns, console=console, transient=True, expand=True) as bars:
        bar = bars.add_task(attempt.batch.label, total=count_offsets(attempt.batch.ranges), text="")

        def tell(progress: Progress) -> None:
            bars.update(bar, completed=progress.read_records, text=_describe(progress))

        yield tell


def _describe(progress: Progress) -> str:
    """Return the text beside the bar, so short that both fit in 80 columns."""
    parts = [f"{progress.percent}% of {describe_count(progress.planned_records, 'record')}"]
    if progress.rows:
        parts.append(f"{describe_count(progress.rows, 'row')} being written")
    elif progress.rate is not None:
        parts.append(f"{round_rate(progress.rate)}/s")
    if progress.seconds_left:
        parts.append(f"{round_time(progress.seconds_left)} left")
    return ", ".join(parts)
