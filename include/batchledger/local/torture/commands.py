"""``batchledger torture``."""

import json
import signal
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from batchledger.interfaces.cli.command_line import AsJson
from batchledger.interfaces.cli.printing import Shown, show
from batchledger.local.torture.schedule import AT_LEAST_ONCE, AT_MOST_ONCE, EXACTLY_ONCE, MODES, Protection, SinkKind


class ModeChoice(StrEnum):
    """The delivery modes under torture."""

    EXACTLY_ONCE = EXACTLY_ONCE
    AT_LEAST_ONCE = AT_LEAST_ONCE
    AT_MOST_ONCE = AT_MOST_ONCE
    ALL = "all"


def torture(
    *,
    rounds: Annotated[int, typer.Option(min=1, help="How many rounds. From 100 on, Airflow takes part.")] = 20,
    mode: Annotated[
        ModeChoice, typer.Option(help="The delivery mode. With all, the modes take turns.")
    ] = ModeChoice.ALL,
    sink: Annotated[SinkKind, typer.Option(help="Where the rows go.")] = SinkKind.POSTGRES,
    seed: Annotated[int | None, typer.Option(min=0, help="Repeat the schedule of an earlier run.")] = None,
    without: Annotated[
        Protection | None,
        typer.Option(help="Take a protection out of exactly_once: the checker has to notice."),
    ] = None,
    report: Annotated[Path | None, typer.Option(help="Also write the report to this file, as JSON.")] = None,
    as_json: AsJson = False,
) -> None:
    """Kill, pause and cut off real services at random, then compare log and target.

    Exit code 1 if a promise is broken.
    """
    from batchledger.local.torture.report import explanations, verdict_table
    from batchledger.local.torture.run import choose_seed, run_torture

    if without is not None and sink is not SinkKind.POSTGRES:
        raise typer.BadParameter("protections can be taken out of the sink postgres only", param_hint="--without")
    console = Console(stderr=True)
    seed = choose_seed() if seed is None else seed
    console.print(
        f"seed {seed}; to repeat: {_repeat(rounds, mode, sink, seed, without)}", highlight=False, soft_wrap=True
    )
    # SIGTERM ends the services, too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    modes = MODES if mode is ModeChoice.ALL else (mode.value,)
    found = run_torture(rounds, modes, seed, console, without=without, sink=sink)
    document = found.as_document()
    if report is not None:
        report.write_text(json.dumps(document, indent=2) + "\n")
    lines = [Text(line, no_wrap=True) for line in explanations(found)]
    show(Shown(document, [verdict_table(found), *lines]), as_json)
    if not found.keeps_promises:
        raise typer.Exit(1)


def _repeat(rounds: int, mode: ModeChoice, sink: SinkKind, seed: int, without: Protection | None) -> str:
    sabotage = f" --without {without}" if without else ""
    into = f" --sink {sink}" if sink is not SinkKind.POSTGRES else ""
    return f"batchledger torture --rounds {rounds} --mode {mode}{into} --seed {seed}{sabotage}"
