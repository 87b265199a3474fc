"""The Incidents port in memory."""

from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from batchledger.batch import Batch, BatchState, DecisionKind, Lane
from batchledger.checking import permit_publication
from batchledger.incidents import (
    ChannelFailure,
    Condition,
    Event,
    Incident,
    IncidentKind,
    Notification,
    Settlement,
    choose_channels,
    settle,
    wait_after,
)
from batchledger.stored_facts import BatchFacts, StoredFacts
from tests.fakes.database import MemoryDatabase, StoredBatch, StoredNotification, Tables


@dataclass
class MemoryIncidents:
    """See the port."""

    database: MemoryDatabase

    def load_facts(self, pipeline: str) -> StoredFacts:
        """See the port."""
        tables = self.database.committed
        mine = [each for each in tables.batches.values() if each.batch.pipeline == pipeline]
        live = [each for each in mine if each.batch.lane is Lane.LIVE and each.published_at and each.batch.attempt]
        newest = max(live, key=lambda each: each.published_at or datetime.min, default=None)  # noqa: DTZ901
        return StoredFacts(
            tuple(_facts(tables, each) for each in mine if not each.batch.state.is_final and not each.batch.is_dry_run),
            _facts(tables, newest) if newest else None,
            newest.published_at if newest else None,
        )

    def settle(
        self,
        pipeline: str,
        found: Sequence[Condition],
        looked_for: Collection[IncidentKind],
        channels: Sequence[str],
        now: datetime,
    ) -> Settlement:
        """See the port."""
        with self.database.transaction() as tables:
            settlement = settle(_list_open(tables, pipeline), found, looked_for, now)
            for condition in settlement.opened:
                number = len(tables.incidents) + 1
                tables.incidents[number] = Incident(number, condition, now, now)
                for channel in choose_channels(condition, channels):
                    _notify(tables, number, channel, Event.OPENED, now)
            for incident in (*settlement.continued, *settlement.ended):
                tables.incidents[incident.incident_id] = incident
            ended = {each.incident_id for each in settlement.ended}
            for each in list(tables.notifications.values()):
                if each.incident_id in ended:
                    _notify(tables, each.incident_id, each.channel, Event.ENDED, now)
            return settlement

    def claim(self, pipeline: str, channel: str, now: datetime) -> Notification | None:
        """See the port."""
        with self.database.transaction() as tables:
            blocked: set[int] = set()
            for number, stored in tables.notifications.items():
                incident = tables.incidents[stored.incident_id]
                if stored.channel != channel or stored.sent_at or incident.condition.pipeline != pipeline:
                    continue
                if stored.next_try_at <= now and stored.incident_id not in blocked:
                    tries = stored.tries + 1
                    tables.notifications[number] = replace(stored, tries=tries, next_try_at=now + wait_after(tries))
                    return Notification(number, incident, channel, stored.event, tries)
                blocked.add(stored.incident_id)
            return None

    def mark_sent(self, notification: Notification, now: datetime) -> None:
        """See the port."""
        pipeline = notification.incident.condition.pipeline
        with self.database.transaction() as tables:
            sent = tables.notifications[notification.notification_id]
            tables.notifications[notification.notification_id] = replace(sent, sent_at=now, last_error=None)
            for number, each in tables.notifications.items():
                owner = tables.incidents[each.incident_id].condition.pipeline
                if (owner, each.channel) == (pipeline, sent.channel) and each.last_error and not each.sent_at:
                    tables.notifications[number] = replace(each, next_try_at=now)

    def mark_failed(self, notification: Notification, error: str) -> None:
        """See the port."""
        with self.database.transaction() as tables:
            failed = tables.notifications[notification.notification_id]
            if failed.sent_at is None:
                tables.notifications[notification.notification_id] = replace(failed, last_error=error)

    def find_failures(self, pipeline: str, channels: Sequence[str]) -> Sequence[ChannelFailure]:
        """See the port."""
        tables = self.database.committed
        failed: dict[str, list[StoredNotification]] = defaultdict(list)
        for each in tables.notifications.values():
            is_mine = tables.incidents[each.incident_id].condition.pipeline == pipeline
            if is_mine and each.channel in channels and each.last_error and not each.sent_at:
                failed[each.channel].append(each)
        return [_describe_failure(channel, failed[channel]) for channel in sorted(failed)]

    def list_open(self, pipeline: str) -> Sequence[Incident]:
        """See the port."""
        return _list_open(self.database.committed, pipeline)


def _list_open(tables: Tables, pipeline: str) -> list[Incident]:
    mine = (each for each in tables.incidents.values() if each.condition.pipeline == pipeline)
    return [each for each in mine if each.ended_at is None]


def _notify(tables: Tables, incident_id: int, channel: str, event: Event, now: datetime) -> None:
    tables.notifications[len(tables.notifications) + 1] = StoredNotification(incident_id, channel, event, now)


def _describe_failure(channel: str, failed: Sequence[StoredNotification]) -> ChannelFailure:
    worst = max(failed, key=lambda each: each.tries)
    return ChannelFailure(channel, worst.tries, len(failed), worst.last_error or "")


def _facts(tables: Tables, stored: StoredBatch) -> BatchFacts:
    batch = stored.batch
    accepted = {each.batch_id for each in tables.decisions.values() if each.kind == DecisionKind.ACCEPT}
    return BatchFacts(
        batch,
        tables.checks.get((batch.batch_id, batch.attempt), ()),
        _count_failures(tables, batch),
        stored.opened_at if batch.state is BatchState.BLOCKED else None,
        batch.batch_id in accepted,
    )


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
