"""The Incidents port on PostgreSQL: incidents, their outbox, and the facts that they are derived from."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from typing import Any, LiteralString

from typing_extensions import override

from batchledger.database.transactions import read_statement
from batchledger.ledger.rows import Cursor, load_batch, load_checks, load_quarantine_contents
from batchledger.ledger.schema import snapshot, transaction
from batchledger.model.batch import BatchState, Lane, Step
from batchledger.model.checks import Severity
from batchledger.model.findings import IncidentKind
from batchledger.model.incidents import (
    ChannelFailure,
    Condition,
    Event,
    Findings,
    Incident,
    Notification,
    Settlement,
    choose_channels,
    settle,
    wait_after,
)
from batchledger.model.records.quarantine import NOTHING
from batchledger.model.stored_facts import JudgedBatch, OpenIncident, StoredFacts
from batchledger.ports import Incidents

_COLUMNS = (
    "incident_id, pipeline, kind, subject, severity, title, lines, command, batch_id, run, opened_at, seen_at, "
    "ended_at, ending"
)


@dataclass(frozen=True)
class PostgresIncidents(Incidents):
    """The incidents in the database that ``dsn`` (a libpq connection string) names."""

    dsn: str = field(repr=False)

    @override
    def load_facts(self, pipeline: str) -> StoredFacts:
        with snapshot(self.dsn, f"look at the batches of {pipeline}") as cursor:
            cursor.execute(read_statement(__package__, "list_open_batches"), {"pipeline": pipeline})
            open_batches = [
                JudgedBatch(
                    load_batch(cursor, batch_id),
                    tuple(load_checks(cursor, batch_id, judged)),
                    judged,
                    failures,
                    blocked_since,
                    is_accepted,
                    None if step is None else Step(step),
                )
                for batch_id, judged, failures, blocked_since, is_accepted, step in cursor.fetchall()
            ]
            cursor.execute(read_statement(__package__, "find_newest_published"), {"pipeline": pipeline})
            published = cursor.fetchall()
            cursor.execute("select created_at from batchledger.pipeline where name = %s", [pipeline])
            known = cursor.fetchall()
            return StoredFacts(
                tuple(open_batches),
                tuple(_load_published(cursor, batch_id, is_accepted) for batch_id, _, _, is_accepted in published),
                next((published_at for _, lane, published_at, _ in published if lane == Lane.LIVE), None),
                known[0][0] if known else None,
                _load_open_incidents(cursor, pipeline),
                load_quarantine_contents(cursor, [pipeline]).get(pipeline, NOTHING),
            )

    @override
    def settle(
        self,
        pipeline: str,
        findings: Findings,
        channels: Sequence[str],
        now: datetime,
    ) -> Settlement:
        with transaction(self.dsn, f"settle the incidents of {pipeline}") as cursor:
            _lock_incidents(cursor, pipeline)
            settlement = settle(_list_open(cursor, pipeline), findings, now)
            opened = [_open(cursor, each, now) for each in settlement.opened]
            for incident in (*settlement.continued, *settlement.ended):
                _update(cursor, incident)
            for incident in (*opened, *settlement.continued):
                _notify(cursor, incident, channels, now)
            _notify_of_ends(cursor, settlement.ended, now)
            return settlement

    @override
    def claim(self, pipeline: str, channel: str, now: datetime) -> Notification | None:
        parameters = {"pipeline": pipeline, "channel": channel, "now": now}
        with transaction(self.dsn, f"claim an alert of {pipeline}") as cursor:
            cursor.execute(read_statement(__package__, "find_due_notification"), parameters)
            for notification_id, incident_id, event, tries in cursor.fetchall():
                cursor.execute(
                    "update batchledger.notification set tries = %s, next_try_at = %s where notification_id = %s",
                    [tries + 1, now + wait_after(tries + 1), notification_id],
                )
                (incident,) = _read_incidents(cursor, "incident_id = %s", [incident_id])
                return Notification(notification_id, incident, channel, Event(event), tries + 1)
            return None

    @override
    def mark_sent(self, notification: Notification, now: datetime) -> None:
        with transaction(self.dsn, "record that an alert was sent") as cursor:
            cursor.execute(
                "update batchledger.notification set sent_at = %s, given_up_at = null, last_error = null "
                "where notification_id = %s",
                [now, notification.notification_id],
            )
            cursor.execute(
                "update batchledger.notification n set next_try_at = %s from batchledger.incident i "
                "where i.incident_id = n.incident_id and i.pipeline = %s and n.channel = %s and n.sent_at is null "
                "and n.given_up_at is null and n.last_error is not null",
                [now, notification.incident.condition.pipeline, notification.channel],
            )

    @override
    def mark_failed(self, notification: Notification, error: str, now: datetime) -> None:
        values = {
            "notification_id": notification.notification_id,
            "pipeline": notification.incident.condition.pipeline,
            "error": error,
            "is_old": notification.is_old(now),
            "since": notification.since,
            "now": now,
        }
        with transaction(self.dsn, "record that an alert was not sent") as cursor:
            cursor.execute(read_statement(__package__, "mark_failed"), values)

    @override
    def find_failures(self, pipeline: str, channels: Sequence[str]) -> Sequence[ChannelFailure]:
        with transaction(self.dsn, f"look at the alert channels of {pipeline}") as cursor:
            parameters = {"pipeline": pipeline, "channels": list(channels)}
            cursor.execute(read_statement(__package__, "find_failing_channels"), parameters)
            return [ChannelFailure(*row) for row in cursor]

    @override
    def list_open(self, pipeline: str) -> Sequence[Incident]:
        with transaction(self.dsn, f"list the incidents of {pipeline}") as cursor:
            return _list_open(cursor, pipeline)


@dataclass(frozen=True, slots=True)
class DeliveryRecord:
    """What became of one message through one channel.

    ``sent_at`` and ``given_up_at`` are None while it is still to be delivered.
    """

    channel: str
    event: str
    tries: int
    sent_at: datetime | None
    last_error: str | None
    given_up_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class AlertRecord:
    """One incident with all its messages, sent or to be sent."""

    incident: Incident
    deliveries: Sequence[DeliveryRecord]


def list_alerts(dsn: str, pipeline: str, limit: int) -> list[AlertRecord]:
    """Return the open incidents of a pipeline and those that ended last, up to ``limit``; the open ones first."""
    with snapshot(dsn, f"list the alerts of {pipeline}") as cursor:
        newest = "pipeline = %s order by ended_at is not null, incident_id desc limit %s"
        incidents = _read_incidents(cursor, newest, [pipeline, limit])
        cursor.execute(
            "select incident_id, channel, event, tries, sent_at, last_error, given_up_at from batchledger.notification "
            "where incident_id = any(%s) order by notification_id",
            [[each.incident_id for each in incidents]],
        )
        deliveries: dict[int, list[DeliveryRecord]] = defaultdict(list)
        for incident_id, *values in cursor:
            deliveries[incident_id].append(DeliveryRecord(*values))
        return [AlertRecord(each, deliveries[each.incident_id]) for each in incidents]


def _load_published(cursor: Cursor, batch_id: int, is_accepted: bool) -> JudgedBatch:
    batch = load_batch(cursor, batch_id)
    checks = tuple(load_checks(cursor, batch_id, batch.attempt))
    return JudgedBatch(batch, checks, batch.attempt, is_accepted=is_accepted)


def _load_open_incidents(cursor: Cursor, pipeline: str) -> tuple[OpenIncident, ...]:
    cursor.execute(read_statement(__package__, "list_open_incidents"), {"pipeline": pipeline})
    return tuple(
        OpenIncident((owner, IncidentKind(kind), subject), batch_id, BatchState(state) if state else None, is_accepted)
        for owner, kind, subject, batch_id, state, is_accepted in cursor
    )


def _list_open(cursor: Cursor, pipeline: str) -> list[Incident]:
    return _read_incidents(cursor, "pipeline = %s and ended_at is null order by incident_id", [pipeline])


def _read_incidents(cursor: Cursor, condition: LiteralString, parameters: Sequence[Any]) -> list[Incident]:
    cursor.execute(f"select {_COLUMNS} from batchledger.incident where {condition}", parameters)  # noqa: S608 -- constants
    return [_read_incident(row) for row in cursor.fetchall()]


def _open(cursor: Cursor, condition: Condition, now: datetime) -> Incident:
    cursor.execute(read_statement(__package__, "insert_incident"), {**_as_row(condition), "now": now})
    ((incident_id,),) = cursor.fetchall()
    return Incident(incident_id, condition, now, now)


def end_incidents(cursor: Cursor, pipeline: str, ending: str, now: datetime) -> None:
    """End every incident of a pipeline; a look that goes on meanwhile comes before it or after it."""
    _lock_incidents(cursor, pipeline)
    ended = [replace(each, ended_at=now, ending=ending) for each in _list_open(cursor, pipeline)]
    for incident in ended:
        _update(cursor, incident)
    _notify_of_ends(cursor, ended, now)


def _lock_incidents(cursor: Cursor, pipeline: str) -> None:
    """The lock is released with the transaction."""
    cursor.execute("select pg_advisory_xact_lock(hashtextextended(%s, 0))", [f"batchledger incidents of {pipeline}"])


def _update(cursor: Cursor, incident: Incident) -> None:
    values = {
        "incident_id": incident.incident_id,
        "seen_at": incident.seen_at,
        "ended_at": incident.ended_at,
        "ending": incident.ending,
    }
    cursor.execute(read_statement(__package__, "update_incident"), {**_as_row(incident.condition), **values})


def _notify(cursor: Cursor, incident: Incident, channels: Sequence[str], now: datetime) -> None:
    """Leave a message for each channel without one of the incident: all at first, later the channels named since."""
    due_at = max(now, incident.opened_at + incident.condition.kind.row.patience)
    cursor.executemany(
        "insert into batchledger.notification (incident_id, channel, event, next_try_at) values (%s, %s, 'opened', %s) "
        "on conflict do nothing",
        [(incident.incident_id, channel, due_at) for channel in choose_channels(incident.condition, channels)],
    )


def _notify_of_ends(cursor: Cursor, ended: Sequence[Incident], now: datetime) -> None:
    """Leave the end for each channel that got, or is getting, the beginning. A blip sends nothing."""
    blips = [each.incident_id for each in ended if each.condition.kind.row.patience]
    cursor.execute(
        "delete from batchledger.notification where incident_id = any(%s) and event = 'opened' and tries = 0", [blips]
    )
    cursor.execute(
        "insert into batchledger.notification (incident_id, channel, event, next_try_at) "
        "select incident_id, channel, 'ended', %s from batchledger.notification "
        "where incident_id = any(%s) and event = 'opened' order by notification_id",
        [now, [each.incident_id for each in ended]],
    )


def _as_row(condition: Condition) -> dict[str, Any]:
    return {**asdict(condition), "lines": list(condition.lines)}


def _read_incident(row: tuple[Any, ...]) -> Incident:
    incident_id, pipeline, kind, subject, severity, title, lines, command, batch_id, run, *times = row
    condition = Condition(
        pipeline, IncidentKind(kind), subject, Severity(severity), title, tuple(lines), command, batch_id, run
    )
    return Incident(incident_id, condition, *times)
