"""``batchledger metrics``: what Prometheus would read, also when Airflow is down, and what comes with it."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from batchledger.interfaces.cli.command_line import load_pipeline
from batchledger.model.errors import ConfigurationError

if TYPE_CHECKING:
    from batchledger.interfaces.metrics.families import Look


def metrics(
    pipelines: Annotated[
        list[str] | None, typer.Argument(metavar="PIPELINE", help="Some pipelines; otherwise all of the folder.")
    ] = None,
    partitions: Annotated[bool, typer.Option("--partitions", help="Add the lag of each partition.")] = False,
    textfile: Annotated[
        Path | None, typer.Option(help="Write this file, FOLDER/NAME.prom, at once, for the node exporter.")
    ] = None,
    rules: Annotated[bool, typer.Option("--rules", help="Print the alert rules for Prometheus instead.")] = False,
    board: Annotated[bool, typer.Option("--board", help="Print the board for Grafana instead.")] = False,
) -> None:
    """Print the metrics of the pipelines in Prometheus' text format, as the page in Airflow serves them.

    It asks the ledgers and Kafka itself, as status does.
    """
    from prometheus_client.exposition import generate_latest, write_to_textfile

    from batchledger.interfaces.metrics.families import Families, build_families, build_partition_families
    from batchledger.interfaces.metrics.shipped import BOARD, RULES, read_shipped

    if rules or board:
        typer.echo(read_shipped(RULES if rules else BOARD), nl=False)
        return
    if textfile is not None and textfile.suffix != ".prom":
        raise typer.BadParameter(f"the node exporter reads only files whose name ends in .prom: {textfile}")
    found = _look(pipelines or [])
    now = datetime.now(UTC)
    families = Families(build_families(found, now) + (build_partition_families(found, now) if partitions else []))
    if textfile is None:
        typer.echo(generate_latest(families).decode(), nl=False)
        return
    try:
        write_to_textfile(str(textfile), families)
    except OSError as error:
        raise ConfigurationError(
            f"The file {textfile} cannot be written: {error.strerror}. It is as it was.",
            advice="Name a file in a folder that is there, and that you may write to.",
            subject=str(textfile),
        ) from error


def _look(names: Sequence[str]) -> "Look":
    """Look at these pipelines, or at all. Raises UnknownPipelineError and ConfigurationError for a name."""
    from batchledger.config.pipeline_files import watch_files
    from batchledger.interfaces.metrics.families import Look
    from batchledger.interfaces.metrics.totals import ask_ledgers
    from batchledger.interfaces.surveys import survey_pipelines, survey_watches

    for name in names:
        load_pipeline(name)
    surveyed = survey_pipelines(datetime.now(UTC), names)
    totals = ask_ledgers({each.name: each.dsn for each in surveyed if each.dsn})
    found = (replace(each, totals=totals.get(each.name)) for each in surveyed)
    watched = () if names else survey_watches(*watch_files().read())
    looks = {each.name: each.current_look for each in watched if each.current_look}
    return Look(tuple(found), datetime.now(UTC), is_current=True, watches=looks)
