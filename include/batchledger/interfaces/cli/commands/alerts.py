"""``batchledger alerts``: list incidents, send alerts, and try a channel. Works without Airflow."""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer
from typer.core import TyperGroup
from typing_extensions import override

from batchledger.interfaces.cli.command_line import Commands, MaybeName, select_pipelines
from batchledger.interfaces.cli.display.alerts import describe_alert, describe_failures, describe_told
from batchledger.interfaces.cli.printing import Shown
from batchledger.model.errors import BatchledgerError

if TYPE_CHECKING:
    from batchledger.config.pipeline_file import PipelineConfig

Visited = TypeVar("Visited")

_NOTHING_FOUND = (
    "No incident has been found.",
    "Only runs in Airflow and these commands look for incidents: batchledger alerts send, batchledger audit.",
)


class _ListByDefault(TyperGroup):
    """``batchledger alerts orders`` stands for ``batchledger alerts list orders``."""

    @override
    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if not args or args[0] not in (*self.commands, "--help"):
            args = ["list", *args]
        return super().parse_args(ctx, args)


app = Commands(cls=_ListByDefault, add_completion=False)


@app.callback()
def alerts() -> None:
    """The incidents and the messages about them: list, send, test."""


@app.command("list")
def list_incidents(
    pipeline: MaybeName = None,
    limit: Annotated[int, typer.Option(min=1, help="How many incidents of each pipeline.")] = 20,
) -> Shown | list[Shown]:
    """List the open incidents, the newest ended ones, and the messages about them. The default command.

    Exit code 1 if a ledger does not answer.
    """
    from batchledger.ledger.incidents import list_alerts
    from batchledger.looking import ledger_dsn

    found, failures = _visit(pipeline, lambda each: list_alerts(ledger_dsn(each), each.name, limit))
    alerts = [describe_alert(alert) for of_pipeline in found.values() for alert in of_pipeline]
    return [*alerts, *describe_failures(failures, "looked at")] or Shown([], _NOTHING_FOUND)


@app.command("send")
def send_due(pipeline: MaybeName = None) -> Shown:
    """Look at the pipelines and send the messages that are due, as the report task of each Airflow run does.

    Exit code 1 if a ledger does not answer.
    The pipelines of other ledgers are looked at all the same.
    """
    from batchledger.monitoring.alerting import report
    from batchledger.wiring import build_alerting, build_platform

    told, failures = _visit(pipeline, lambda each: report(partial(build_platform, each), build_alerting(each)).told)
    return describe_told(told, failures)


@app.command("test")
def send_trial(
    connection: Annotated[str, typer.Argument(metavar="CONNECTION", help="The id of an Airflow connection.")],
) -> Shown:
    """Send a trial message through a connection.

    Exit code 1 if it is not delivered within 10 seconds after the channel is open.
    """
    from batchledger.monitoring.alerting import try_channel
    from batchledger.wiring import open_channel

    try_channel(open_channel, connection)
    delivered = f"A trial message was delivered through {connection}."
    return Shown({"connection": connection, "delivered": True}, [delivered])


def _visit(
    pipeline: str | None, visit: "Callable[[PipelineConfig], Visited]"
) -> tuple[dict[str, Visited], dict[str, BatchledgerError]]:
    """Return the result of each visit, and the errors of the others. A pipeline that is named raises its error."""
    done: dict[str, Visited] = {}
    failures: dict[str, BatchledgerError] = {}
    for each in select_pipelines([pipeline] if pipeline else ()):
        try:
            done[each.name] = visit(each)
        except BatchledgerError as error:
            if pipeline is not None:
                raise
            failures[each.name] = error
    return done, failures
