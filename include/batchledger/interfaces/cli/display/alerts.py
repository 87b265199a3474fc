"""What ``batchledger alerts`` shows: incidents, and the messages about them."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.text import Text

from batchledger.interfaces.cli.printing import Shown, label_parts, new_table, pick
from batchledger.model.checks import Severity
from batchledger.model.counting import describe_count
from batchledger.model.errors import BatchledgerError
from batchledger.model.incidents import Incident

if TYPE_CHECKING:
    from batchledger.ledger.incidents import AlertRecord, DeliveryRecord
    from batchledger.monitoring.alerting import Told

_STYLE_BY_SEVERITY = {Severity.CRITICAL: "bold red", Severity.WARNING: "yellow", Severity.INFO: ""}


def describe_told(told_by_pipeline: "Mapping[str, Told]", failures: Mapping[str, BatchledgerError]) -> Shown:
    """Show which incidents are new or over, and what was sent. ``failures``: the pipelines without a look."""
    documents, failed = [], describe_failures(failures, "looked at")
    table = new_table("Alerts", "pipeline", "open", "new", "over", "sent", "error")
    for pipeline, told in told_by_pipeline.items():
        opened, ended = told.settlement.opened, told.settlement.ended
        is_open = len(opened) + len(told.settlement.continued)
        errors = "; ".join(f"{channel}: {error}" for channel, error in told.failed)
        counts = (is_open, len(opened), len(ended), told.sent)
        table.add_row(pipeline, *(str(each) for each in counts), Text(errors, "yellow"))
        documents.append(
            {
                "pipeline": pipeline,
                "opened": [each.title for each in opened],
                "ended": [each.condition.title for each in ended],
                "open": is_open,
                "sent": told.sent,
                "failed": dict(told.failed),
            }
        )
    return Shown(
        [*documents, *(each.document for each in failed)],
        [table, *(part for each in failed for part in each.parts)],
        exit_code=1 if failed else 0,
    )


def describe_open(incidents: Sequence[Incident]) -> Shown:
    """Show the open incidents; people see one line each."""
    table = new_table("Open incidents: batchledger alerts NAME", "pipeline", "what", "since UTC")
    for each in incidents:
        title = Text(each.condition.title, _STYLE_BY_SEVERITY[each.condition.severity])
        table.add_row(each.condition.pipeline, title, f"{each.opened_at:%m-%d %H:%M}")
    return Shown([_incident_as_json(each) for each in incidents], [table] if incidents else [])


def describe_alert(alert: "AlertRecord") -> Shown:
    """Show an incident and its messages."""
    document = {**_incident_as_json(alert.incident), "deliveries": alert.deliveries}
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
    return Shown(document, [text])


def describe_failures(failures: Mapping[str, BatchledgerError], what: str) -> list[Shown]:
    """Show which pipelines could not be visited, and why; ``what`` is for example ``audited``. Exit code 1."""
    return [
        Shown(
            {"pipeline": name, "error": str(error)},
            [Text(f"{name} could not be {what}.", "bold red"), *label_parts(error)],
            exit_code=1,
        )
        for name, error in failures.items()
    ]


def _incident_as_json(incident: Incident) -> dict[str, Any]:
    return {
        "incident_id": incident.incident_id,
        **dataclasses.asdict(incident.condition),
        **pick(incident, "opened_at", "seen_at", "ended_at", "ending"),
    }


def _describe_delivery(delivery: "DeliveryRecord") -> str:
    if delivery.sent_at is not None:
        return f"{delivery.channel}: {delivery.event}, sent at {delivery.sent_at:%Y-%m-%d %H:%M} UTC"
    if delivery.given_up_at is not None:
        tries = describe_count(delivery.tries, "try", "tries")
        given_up = f"given up at {delivery.given_up_at:%Y-%m-%d %H:%M} UTC after {tries}"
        return f"{delivery.channel}: {delivery.event}, {given_up}: {delivery.last_error}"
    tried = (
        f"tried {describe_count(delivery.tries, 'time')}: {delivery.last_error}"
        if delivery.last_error
        else "to be sent"
    )
    return f"{delivery.channel}: {delivery.event}, {tried}"
