"""The Incidents port in memory."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from typing_extensions import override

from batchledger.model.batch import Batch, BatchState, DecisionKind, Lane, Step
from batchledger.model.checks import permit_publication
from batchledger.model.incidents import (
    ChannelFailure,
    Event,
    Findings,
    Incident,
    Notification,
    Settlement,
    choose_channels,
    settle,
    wait_after,
)
from batchledger.model.stored_facts import JudgedBatch, OpenIncident, StoredFacts
from batchledger.ports import Incidents
from tests.fakes.database import MemoryDatabase, StoredBatch, StoredNotification, Tables
from tests.fakes.stored import summarise_quarantine


@dataclass
class MemoryIncidents(Incidents):
    database: MemoryDatabase

    @override
    def load_facts(self, pipeline: str) -> StoredFacts:
        tables = self.database.committed
        mine = [each for each in tables.batches.values() if each.batch.pipeline == pipeline]
        newest = [found for lane in Lane if (found := _find_newest(mine, lane))]
        live = next((each for each in newest if each.batch.lane is Lane.LIVE), None)
        return StoredFacts(
            tuple(_facts(tables, each) for each in mine if not each.batch.state.is_final and not each.batch.is_dry_run),
            tuple(_facts(tables, each) for each in newest),
            live.published_at if live else None,
            min((each.batch.planned_at for each in mine), default=None),
            tuple(_track(tables, each) for each in _list_open(tables, pipeline)),
            summarise_quarantine(tables, pipeline),
        )

    @override
    def settle(
        self,
        pipeline: str,
        findings: Findings,
        channels: Sequence[str],
        now: datetime,
    ) -> Settlement:
        with self.database.transaction() as tables:
            settlement = settle(_list_open(tables, pipeline), findings, now)
            first = len(tables.incidents) + 1
            opened = [Incident(first + at, each, now, now) for at, each in enumerate(settlement.opened)]
            for incident in (*opened, *settlement.continued, *settlement.ended):
                tables.incidents[incident.incident_id] = incident
            for incident in (*opened, *settlement.continued):
                due_at = max(now, incident.opened_at + incident.condition.kind.row.patience)
                told = {(each.incident_id, each.channel) for each in tables.notifications.values()}
                for channel in choose_channels(incident.condition, channels):
                    if (incident.incident_id, channel) not in told:
                        _notify(tables, incident.incident_id, channel, Event.OPENED, due_at)
            for incident in settlement.ended:
                _notify_of_end(tables, incident, now)
            return settlement

    @override
    def claim(self, pipeline: str, channel: str, now: datetime) -> Notification | None:
        with self.database.transaction() as tables:
            blocked: set[int] = set()
            for number, stored in tables.notifications.items():
                incident = tables.incidents[stored.incident_id]
                if stored.channel != channel or not stored.is_due or incident.condition.pipeline != pipeline:
                    continue
                if stored.next_try_at <= now and stored.incident_id not in blocked:
                    tries = stored.tries + 1
                    tables.notifications[number] = replace(stored, tries=tries, next_try_at=now + wait_after(tries))
                    return Notification(number, incident, channel, stored.event, tries)
                blocked.add(stored.incident_id)
            return None

    @override
    def mark_sent(self, notification: Notification, now: datetime) -> None:
        pipeline = notification.incident.condition.pipeline
        with self.database.transaction() as tables:
            sent = tables.notifications[notification.notification_id]
            tables.notifications[notification.notification_id] = replace(sent, sent_at=now, last_error=None)
            for number, each in tables.notifications.items():
                owner = tables.incidents[each.incident_id].condition.pipeline
                if (owner, each.channel) == (pipeline, sent.channel) and each.last_error and each.is_due:
                    tables.notifications[number] = replace(each, next_try_at=now)

    @override
    def mark_failed(self, notification: Notification, error: str, now: datetime) -> None:
        with self.database.transaction() as tables:
            failed = tables.notifications[notification.notification_id]
            if failed.sent_at is None:
                last = _find_last_sent(tables, notification.incident.condition.pipeline, notification.channel)
                is_over = notification.is_old(now) and last is not None and last > notification.since
                given_up_at = now if is_over else None
                tables.notifications[notification.notification_id] = replace(
                    failed, last_error=error, given_up_at=given_up_at
                )

    @override
    def find_failures(self, pipeline: str, channels: Sequence[str]) -> Sequence[ChannelFailure]:
        tables = self.database.committed
        failed: dict[str, list[StoredNotification]] = defaultdict(list)
        for each in tables.notifications.values():
            is_mine = tables.incidents[each.incident_id].condition.pipeline == pipeline
            if is_mine and each.channel in channels and each.last_error and each.is_due:
                failed[each.channel].append(each)
        return [_describe_failure(tables, pipeline, failed[channel]) for channel in sorted(failed)]

    @override
    def list_open(self, pipeline: str) -> Sequence[Incident]:
        return _list_open(self.database.committed, pipeline)


def _list_open(tables: Tables, pipeline: str) -> list[Incident]:
    mine = (each for each in tables.incidents.values() if each.condition.pipeline == pipeline)
    return [each for each in mine if each.ended_at is None]


def end_incidents(tables: Tables, pipeline: str, ending: str, now: datetime) -> None:
    for each in _list_open(tables, pipeline):
        tables.incidents[each.incident_id] = replace(each, ended_at=now, ending=ending)
        _notify_of_end(tables, each, now)


def _notify(tables: Tables, incident_id: int, channel: str, event: Event, now: datetime) -> None:
    number = max(tables.notifications, default=0) + 1
    tables.notifications[number] = StoredNotification(incident_id, channel, event, now)


def _notify_of_end(tables: Tables, incident: Incident, now: datetime) -> None:
    for number, each in list(tables.notifications.items()):
        if each.incident_id == incident.incident_id:
            if incident.condition.kind.row.patience and not each.tries:
                del tables.notifications[number]
            else:
                _notify(tables, incident.incident_id, each.channel, Event.ENDED, now)


def _describe_failure(tables: Tables, pipeline: str, failed: Sequence[StoredNotification]) -> ChannelFailure:
    worst = max(failed, key=lambda each: each.tries)
    last_sent_at = _find_last_sent(tables, pipeline, worst.channel)
    return ChannelFailure(worst.channel, worst.tries, len(failed), worst.last_error or "", last_sent_at)


def _find_last_sent(tables: Tables, pipeline: str, channel: str) -> datetime | None:
    mine = [each for each in tables.notifications.values() if each.channel == channel and each.sent_at]
    of_pipeline = (each for each in mine if tables.incidents[each.incident_id].condition.pipeline == pipeline)
    return max((each.sent_at for each in of_pipeline if each.sent_at), default=None)


def _facts(tables: Tables, stored: StoredBatch) -> JudgedBatch:
    batch = stored.batch
    judged = max((number for batch_id, number in tables.checks if batch_id == batch.batch_id), default=None)
    return JudgedBatch(
        batch,
        tables.checks.get((batch.batch_id, judged), ()) if judged else (),
        judged,
        _count_failures(tables, batch),
        stored.opened_at if batch.state is BatchState.BLOCKED else None,
        judged is not None and _is_accepted(tables, batch.batch_id, judged),
        _find_failed_step(tables, batch),
    )


def _find_failed_step(tables: Tables, batch: Batch) -> Step | None:
    numbers = range(batch.attempt, 0, -1)
    failures = (tables.failures.get((batch.batch_id, number)) for number in numbers)
    return next((each.step for each in failures if each is not None), None)


def _is_accepted(tables: Tables, batch_id: int, attempt: int) -> bool:
    accepted = (each for each in tables.decisions.values() if each.kind == DecisionKind.ACCEPT)
    return any((each.batch_id, each.after["attempt"]) == (batch_id, attempt) for each in accepted)


def _find_newest(batches: Sequence[StoredBatch], lane: Lane) -> StoredBatch | None:
    published = [each for each in batches if each.batch.lane is lane and each.published_at and each.batch.attempt]
    return max(published, key=lambda each: each.published_at or datetime.min, default=None)  # noqa: DTZ901


def _track(tables: Tables, incident: Incident) -> OpenIncident:
    batch_id = incident.condition.batch_id
    if batch_id is None:
        return OpenIncident(incident.condition.key)
    batch = tables.batches[batch_id].batch
    return OpenIncident(incident.condition.key, batch_id, batch.state, _is_accepted(tables, batch_id, batch.attempt))


def _count_failures(tables: Tables, batch: Batch) -> int:
    """Go back from the newest attempt; one that was superseded has failed unless its checks blocked it."""
    failures = 0
    for number in range(batch.attempt, 0, -1):
        key = (batch.batch_id, number)
        checks = tables.checks.get(key, ())
        if checks and not permit_publication(checks):
            break
        failures += key in tables.failures or number < batch.attempt
    return failures
