"""``batchledger status`` and ``demo``: the local services together with the pipelines that use them."""

from datetime import UTC, datetime
from typing import Annotated

import typer
from rich.text import Text

from batchledger.interfaces.cli.command_line import AsJson, load_pipeline
from batchledger.interfaces.cli.display.alerts import describe_open
from batchledger.interfaces.cli.display.batches import describe_pipelines
from batchledger.interfaces.cli.printing import Shown, show, standard_error
from batchledger.local.stack import commands


def status(as_json: AsJson = False) -> None:
    """Show the local services, the state of each pipeline, what each watch has said last, and the open incidents.

    It also names the connections whose login travels unencrypted to another
    machine.
    """
    from batchledger.config.exposure import warn_of_exposed
    from batchledger.config.pipeline_files import watch_files
    from batchledger.interfaces.cli.display.watches import describe_watches
    from batchledger.interfaces.surveys import list_open_incidents, survey_pipelines, survey_watches

    services, now = commands.look(), datetime.now(UTC)
    if not as_json:
        # The services are known at once; asking the pipelines takes seconds.
        show(services, as_json)
    surveyed = survey_pipelines(now)
    pipelines = describe_pipelines([each.health for each in surveyed], now)
    watched = survey_watches(*watch_files().read())
    watches = describe_watches(watched)
    incidents = describe_open(list_open_incidents([*surveyed, *watched]))
    warnings = warn_of_exposed()
    document = {
        **services.document,
        "pipelines": pipelines.document,
        "watches": watches.document,
        "incidents": incidents.document,
        "warnings": warnings,
    }
    told = [Text(each, "yellow") for each in warnings]
    show(Shown(document, [*pipelines.parts, *watches.parts, *incidents.parts, *told]), as_json)


def demo(pipeline: Annotated[str, typer.Argument(hidden=True)] = "flights") -> None:
    """Write 336,776 flights into Kafka, trigger the pipeline in Airflow, and follow it until it has caught up."""
    from batchledger.local.demo import add_pipeline_file, run_demo

    add_pipeline_file(pipeline)
    raise typer.Exit(run_demo(load_pipeline(pipeline), standard_error))
