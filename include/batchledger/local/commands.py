"""``batchledger status`` and ``demo``: the local services together with the pipelines that use them."""

import dataclasses
from datetime import UTC, datetime
from typing import Annotated

import typer

from batchledger.interfaces.cli.command_line import AsJson, load_pipeline
from batchledger.interfaces.cli.display import alerts as alert_display
from batchledger.interfaces.cli.display import batches as display
from batchledger.interfaces.cli.printing import print_json, standard_error
from batchledger.local.stack import commands


def status(as_json: AsJson = False) -> None:
    """Show the local services, how each pipeline stands, whatever services it uses, and what people were told of."""
    from batchledger.wiring import list_open_incidents, survey_pipelines

    found, now = commands.look(), datetime.now(UTC)
    if not as_json:
        commands.show(found)
    pipelines, incidents = survey_pipelines(now), list_open_incidents()
    if as_json:
        surveyed = [display.pipeline_as_json(each) for each in pipelines]
        told = [alert_display.incident_as_json(each) for each in incidents]
        print_json({**dataclasses.asdict(found), "pipelines": surveyed, "incidents": told})
        return
    if pipelines:
        display.show_pipelines(pipelines, now)
    alert_display.show_open(incidents)


def demo(pipeline: Annotated[str, typer.Argument(hidden=True)] = "flights") -> None:
    """Feed 336,776 flights into Kafka, trigger the pipeline in Airflow, follow it until it has caught up."""
    from batchledger.local.demo import run_demo

    raise typer.Exit(run_demo(load_pipeline(pipeline), standard_error))
