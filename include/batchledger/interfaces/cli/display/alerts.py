"""What ``batchledger alerts`` prints: incidents, and what became of the messages about them."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.text import Text

from batchledger.interfaces.cli.printing import new_table, print_json, print_out
from batchledger.model.checks import Severity
from batchledger.model.errors import BatchledgerError
from batchledger.model.incidents import Incident

if TYPE_CHECKING:
    from batchledger.adapters.postgres.ledger.incidents import AlertRecord, DeliveryRecord
    from batchledger.monitoring.alerting import Told

_STYLE_BY_SEVERITY = {Severity.CRITICAL: "bold red", Severity.WARNING: "yellow", Severity.INFO: ""}


def show_alerts(
    alerts_by_pipeline: "Mapping[str, Sequence[AlertRecord]]", failures: Mapping[str, BatchledgerError], as_json: bool
) -> None:
    """Print the incidents, the open ones first, with what was sent; ``failures``: what could not be asked."""
    alerts = [each for found in alerts_by_pipeline.values() for each in found]
    if as_json:
        print_json([*map(_as_json, alerts), *_failures_as_json(failures)])
        return
    if not alerts and not failures:
        print_out("No incident has been found.")
    for each in alerts:
        print_out(_describe(each))
    _show_failures(failures)


def show_told(told_by_pipeline: "Mapping[str, Told]", failures: Mapping[str, BatchledgerError], as_json: bool) -> None:
    """Say what a look has changed, and what was sent; ``failures``: which pipelines could not be looked at."""
    if as_json:
        print_json(
            [
                {
                    "pipeline": pipeline,
                    "opened": [each.title for each in told.settlement.opened],
                    "ended": [each.condition.title for each in told.settlement.ended],
                    "open": len(told.settlement.opened) + len(told.settlement.continued),
                    "sent": told.sent,
                    "failed": dict(told.failed),
                }
                for pipeline, told in told_by_pipeline.items()
            ]
            + _failures_as_json(failures)
        )
        return
    table = new_table("Alerts", "pipeline", "open", "new", "over", "sent", "error")
    for pipeline, told in told_by_pipeline.items():
        opened, continued, ended = told.settlement.opened, told.settlement.continued, told.settlement.ended
        counts = (len(opened) + len(continued), len(opened), len(ended), told.sent)
        errors = "; ".join(f"{channel}: {error}" for channel, error in told.failed)
        table.add_row(pipeline, *(str(each) for each in counts), Text(errors, "yellow"))
    print_out(table)
    _show_failures(failures)


def show_open(incidents: Sequence[Incident]) -> None:
    """Print the open incidents in a line each; nothing when there are none."""
    if not incidents:
        return
    table = new_table("Open incidents: batchledger alerts PIPELINE", "pipeline", "what", "since UTC")
    for each in incidents:
        title = Text(each.condition.title, _STYLE_BY_SEVERITY[each.condition.severity])
        table.add_row(each.condition.pipeline, title, f"{each.opened_at:%m-%d %H:%M}")
    print_out(table)


def incident_as_json(incident: Incident) -> dict[str, Any]:
    """One incident, for scripts."""
    return {
        "incident_id": incident.incident_id,
        **dataclasses.asdict(incident.condition),
        "opened_at": incident.opened_at,
        "seen_at": incident.seen_at,
        "ended_at": incident.ended_at,
        "ending": incident.ending,
    }


def _failures_as_json(failures: Mapping[str, BatchledgerError]) -> list[dict[str, Any]]:
    return [{"pipeline": name, "error": str(error)} for name, error in failures.items()]


def _show_failures(failures: Mapping[str, BatchledgerError]) -> None:
    for name, error in failures.items():
        print_out(Text(f"{name} could not be looked at: {error}", "bold red"))


def _describe(alert: "AlertRecord") -> Text:
    incident, condition = alert.incident, alert.incident.condition
    style = "green" if incident.ended_at else _STYLE_BY_SEVERITY[condition.severity]
    text = Text(f"{condition.pipeline}: {condition.title}", style)
    over = f", over since {incident.ended_at:%Y-%m-%d %H:%M}" if incident.ended_at else ""
    how = f", {incident.ending}" if incident.ending else ""
    text.append(f"  incident {incident.incident_id}, since {incident.opened_at:%Y-%m-%d %H:%M}{over} UTC{how}", "dim")
    for line in condition.lines:
        text.append(f"\n  {line}", "default")
    if condition.command and not incident.ended_at:
        text.append(f"\n  {condition.command}", "bold default")
    for delivery in alert.deliveries:
        text.append(f"\n  {_describe_delivery(delivery)}", "dim" if delivery.sent_at else "yellow")
    return text


def _describe_delivery(delivery: "DeliveryRecord") -> str:
    if delivery.sent_at is not None:
        return f"{delivery.channel}: {delivery.event}, sent at {delivery.sent_at:%Y-%m-%d %H:%M} UTC"
    if delivery.given_up_at is not None:
        given_up = f"given up at {delivery.given_up_at:%Y-%m-%d %H:%M} UTC after {delivery.tries} tries"
        return f"{delivery.channel}: {delivery.event}, {given_up}: {delivery.last_error}"
    tried = f"tried {delivery.tries} times: {delivery.last_error}" if delivery.last_error else "to be sent"
    return f"{delivery.channel}: {delivery.event}, {tried}"


def _as_json(alert: "AlertRecord") -> dict[str, Any]:
    return {
        **incident_as_json(alert.incident),
        "deliveries": [dataclasses.asdict(each) for each in alert.deliveries],
    }
