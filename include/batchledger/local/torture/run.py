"""One torture from start to report: what ``batchledger torture`` does."""

import secrets
import time
from collections.abc import Sequence
from dataclasses import replace

from rich.console import Console
from rich.markup import escape
from rich.status import Status

from batchledger.local.stack.home import Home
from batchledger.local.torture.campaign import Campaign, RoundResult
from batchledger.local.torture.report import TortureReport, find_violations, make_report
from batchledger.local.torture.rig import Rig, build_rig
from batchledger.local.torture.schedule import Protection, Round, SinkKind, plan_control, plan_rounds
from batchledger.local.torture.worker import Crew

_LARGEST_SEED = 2**32
WORKERS_LOG = "workers"


def torture_home(home: Home) -> Home:
    """The folders of torture's own stack, inside the local folder of the stack that people work with."""
    local = home.local / "torture"
    return replace(home, local=local, pipelines=local / "pipelines")


def choose_seed() -> int:
    """Return a random seed."""
    return secrets.randbelow(_LARGEST_SEED)


def run_torture(
    rounds: int,
    modes: Sequence[str],
    seed: int,
    console: Console,
    *,
    without: Protection | None = None,
    sink: SinkKind = SinkKind.POSTGRES,
) -> TortureReport:
    """Run so many rounds on a stack of their own, with progress on ``console``; return the report."""
    home = torture_home(Home.of_project())
    planned = plan_rounds(seed, rounds, modes, sink) if without is None else plan_control(seed, rounds, without)
    with console.status("") as status, build_rig(home, lambda words: _say(status, words)) as rig:
        console.print(f"[dim]Logs and the producer's journal are in {home.local}.[/]", highlight=False, soft_wrap=True)
        return run_rounds(rig, planned, seed, console, without=without, sink=sink)


def run_rounds(
    rig: Rig,
    planned: Sequence[Round],
    seed: int,
    console: Console,
    *,
    without: Protection | None = None,
    sink: SinkKind = SinkKind.POSTGRES,
) -> TortureReport:
    """Run rounds on their own pipelines on a running rig. Print one line for each; return the report."""
    started = time.monotonic()
    results: list[RoundResult] = []
    crew = Crew.assemble(rig.home.log_file(WORKERS_LOG))
    campaign = Campaign.prepare(rig, crew, without, sink)
    try:
        for result in campaign.run(planned):
            results.append(result)
            console.print(_describe(result), highlight=False, soft_wrap=True)
        differences = campaign.compare_all()
    finally:
        crew.end_all()
    seconds = time.monotonic() - started
    return make_report(seed, results, differences, campaign.tormentor.surprises, seconds, without=without)


def _say(status: Status, words: str) -> None:
    status.update(f"[dim]{words}[/]")


def _describe(result: RoundResult) -> str:
    """Return one line for a round."""
    faults = [*map(str, result.struck), *(f"[dim]{each} (too late)[/]" for each in result.missed)]
    notes = [f"[bold red]stuck: {escape(result.stuck)}[/]"] if result.stuck else []
    for mode, differences in result.differences_by_mode.items():
        violations = find_violations(mode, differences)
        notes.extend(f"[bold red]{mode}: {count} {kind}[/]" for kind, count in violations.items())
    if result.differences_by_mode and not notes:
        notes.append("[green]log and target compared[/]")
    notes.extend(f"[bold red]unexplained: {len(ids)} {kind}[/]" for kind, ids in result.unexplained.items())
    notes.extend(f"[dim]drained after {escape(error)}[/]" for error in result.drain_errors)
    name = f"{result.round.number:>4}" if result.round.number else "warm"
    return (
        f"{name} {result.round.mode:<14} {result.seconds:>5.1f} s  {result.batches} batches  "
        f"{'; '.join([*(faults or ['[dim]quiet[/]']), *notes])}"
    )
