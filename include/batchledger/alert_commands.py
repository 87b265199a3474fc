"""``batchledger alerts``: what people are to know, what was sent of it, and trial messages. Works without Airflow."""

import logging
from collections.abc import Iterator
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from batchledger import alert_display
from batchledger.command_line import AsJson
from batchledger.config import PipelineConfig, find_pipeline_files, load_pipeline, read_pipeline_file
from batchledger.errors import ConfigurationError
from batchledger.printing import print_json, print_out

logger = logging.getLogger(__name__)

MaybeName = Annotated[
    str | None, typer.Argument(metavar="[PIPELINE]", help="One pipeline; without it all in the folder.")
]


class _ListByDefault(TyperGroup):
    """``batchledger alerts orders`` stands for ``batchledger alerts list orders``."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """See the base class."""
        if not args or args[0] not in (*self.commands, "--help"):
            args = ["list", *args]
        return super().parse_args(ctx, args)


app = typer.Typer(help="What people are to know, and what was sent of it: list, send, test.", cls=_ListByDefault)


@app.command("list")
def list_incidents(
    pipeline: MaybeName = None,
    limit: Annotated[int, typer.Option(min=1, help="How many of each pipeline.")] = 20,
    as_json: AsJson = False,
) -> None:
    """List the open incidents and those that ended last, and what was sent. The default."""
    from batchledger.ledger.incidents import list_alerts
    from batchledger.wiring import ledger_dsn

    found = {each.name: list_alerts(ledger_dsn(each), each.name, limit) for each in _select(pipeline)}
    alert_display.show_alerts(found, as_json)


@app.command("send")
def send_due(pipeline: MaybeName = None, as_json: AsJson = False) -> None:
    """Look at the pipelines and send what is due, as the report task of each Airflow run does."""
    from batchledger.alerting import report
    from batchledger.wiring import build_alerting, build_platform

    told = {each.name: report(build_platform(each), build_alerting(each)) for each in _select(pipeline)}
    alert_display.show_told(told, as_json)


@app.command("test")
def send_trial(
    connection: Annotated[str, typer.Argument(metavar="CONNECTION", help="The id of an Airflow connection.")],
    as_json: AsJson = False,
) -> None:
    """Send a trial message through a connection; 1 when it is not delivered within 10 seconds."""
    from batchledger.alerting import try_channel
    from batchledger.wiring import open_channel

    try_channel(open_channel, connection)
    if as_json:
        print_json({"connection": connection, "delivered": True})
    else:
        print_out(f"A trial message was delivered through {connection}.")


def _select(pipeline: str | None) -> Iterator[PipelineConfig]:
    """Return the named pipeline, or all whose file is accepted; a refused file harms no other."""
    if pipeline is not None:
        yield load_pipeline(pipeline)
        return
    for path in find_pipeline_files():
        try:
            yield read_pipeline_file(path)
        except ConfigurationError as error:
            logger.warning("%s", error)
