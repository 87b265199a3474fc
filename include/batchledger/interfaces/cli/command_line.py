"""What several commands share: their arguments, who calls, and how what a person wrote is read."""

import getpass
import socket
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from batchledger.interfaces import notation
from batchledger.model.offsets import OffsetRange
from batchledger.planning.replay import Window

if TYPE_CHECKING:
    from pathlib import Path

    from batchledger.config.pipeline_file import PipelineConfig

Name = Annotated[str, typer.Argument(metavar="PIPELINE", help="The name of a pipeline file, without .yaml.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]


def load_pipeline(name: str) -> "PipelineConfig":
    """Return the pipeline of that name; what reads files is imported only for a command that needs one."""
    from batchledger.config.pipeline_file import load_pipeline

    return load_pipeline(name)


def find_pipeline_files() -> "list[Path]":
    """Return the pipeline files, as above."""
    from batchledger.config.pipeline_file import find_pipeline_files

    return find_pipeline_files()


def read_pipeline_file(path: "Path") -> "PipelineConfig":
    """Return the pipeline of a file, as above."""
    from batchledger.config.pipeline_file import read_pipeline_file

    return read_pipeline_file(path)


def run_name() -> str:
    """Who runs this, for the ledger: ``cli__2026-11-21T10:00:00+00:00__ana@host``."""
    moment = datetime.now(UTC).isoformat(timespec="milliseconds")
    return f"cli__{moment}__{user()}"


def user() -> str:
    """Who decides: ``ana@host``."""
    return f"{getpass.getuser()}@{socket.gethostname()}"


def parse_range(text: str) -> OffsetRange:
    """Read ``orders[3] 10..25``. Raises typer.BadParameter."""
    try:
        return OffsetRange.parse(text)
    except ValueError as error:
        raise typer.BadParameter(f'{error}, in quotes: "orders[3] 10..25"') from error


def parse_bounds(since: str, until: str) -> Window | OffsetRange:
    """Read what lies between two bounds, as ``notation`` has it. Raises typer.BadParameter."""
    try:
        return notation.parse_bounds(since, until)
    except ValueError as error:
        raise typer.BadParameter(f"--from and --until: {error}") from error


def parse_target(texts: Sequence[str]) -> notation.RewindTarget:
    """Read where a rewind goes, as ``notation`` has it. Raises typer.BadParameter."""
    try:
        return notation.parse_target(texts)
    except ValueError as error:
        raise typer.BadParameter(f"--to: {error}") from error
