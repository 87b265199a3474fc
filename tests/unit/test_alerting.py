"""Alerts reach real endpoints, once for each incident and once for its end; what an endpoint does changes no batch."""

import logging
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from time import monotonic

import pytest

from batchledger import run_batch
from batchledger.alerting import Alerting, Told, report
from batchledger.batch import BatchState
from batchledger.checking import Severity
from batchledger.conditions import Findings
from batchledger.errors import BatchBlockedError, StagingError
from batchledger.incidents import ChannelFailure, Condition, IncidentKind
from batchledger.messages import Links
from batchledger.offsets import TopicPartition
from batchledger.ports import Channel
from batchledger.wiring import open_channel
from tests.endpoints import (
    HOST,
    Mailbox,
    Webhook,
    connect_apprise,
    connect_mail,
    connect_webhook,
    free_port,
    serve_mail,
    serve_webhook,
)
from tests.fakes.incidents import MemoryIncidents
from tests.fakes.work import Rows
from tests.fakes.world import PIPELINE, World, staged_twice

ORDERS_0 = TopicPartition("orders", 0)
BLOCKED = f"[batchledger] {PIPELINE}: blocked — no_duplicate_offsets, balance_closes"
OVER = f"{BLOCKED}: over after 5 min"
SECRET = "s3cret-payload"  # noqa: S105 -- what must not be told


@dataclass
class Desk:
    """A pipeline in memory, with a clock of its own and real channels."""

    world: World
    channels: tuple[str, ...] = ("ops",)
    now: datetime = datetime(2026, 1, 1, 12, tzinfo=UTC)
    seconds: float = 60.0
    told: list[Told] = field(default_factory=list)

    @property
    def incidents(self) -> MemoryIncidents:
        return MemoryIncidents(self.world.database)

    def report(self, more: Findings | None = None) -> Told:
        """Do what the report task does."""
        alerting = Alerting(
            PIPELINE,
            self.incidents,
            self.channels,
            open_channel,
            links=Links("http://127.0.0.1:8080"),
            channel_seconds=self.seconds,
            clock=lambda: self.now,
        )
        self.told.append(report(self.world.process(), alerting, more))
        return self.told[-1]

    def wait(self, **duration: float) -> None:
        self.now += timedelta(**duration)

    def block(self) -> None:
        """Let a batch be blocked."""
        self.world.produce(ORDERS_0, 3)
        with pytest.raises(BatchBlockedError):
            run_batch.run_once(self.world.process(alter=staged_twice), "run-1")

    def repair(self) -> None:
        """Let the open batch be published."""
        open_batch = self.world.process().ledger.find_open_batch(PIPELINE)
        assert open_batch is not None
        done = run_batch.run_once(self.world.process(), "run-2", open_batch.batch_id)
        assert done is not None
        assert done.state is BatchState.PUBLISHED

    def failures(self) -> Sequence[ChannelFailure]:
        return self.incidents.find_failures(PIPELINE, self.channels)


@pytest.fixture
def desk() -> Desk:
    world = World()
    world.broker.create_topic("orders", 1)
    return Desk(world)


@pytest.fixture
def webhook(monkeypatch: pytest.MonkeyPatch) -> Iterator[Webhook]:
    """The endpoint behind connection ``ops``."""
    with serve_webhook() as endpoint:
        connect_webhook(monkeypatch, "ops", endpoint.url)
        yield endpoint


@pytest.fixture
def mailbox(monkeypatch: pytest.MonkeyPatch) -> Iterator[Mailbox]:
    """The mail server behind connection ``mail``."""
    with serve_mail() as endpoint:
        connect_mail(monkeypatch, "mail", endpoint.port)
        yield endpoint


def test_one_message_an_incident_and_one_at_its_end_whatever_the_number_of_runs(desk: Desk, webhook: Webhook) -> None:
    desk.block()
    for _ in range(4):
        desk.report()
        desk.wait(seconds=100)
    assert webhook.titles == [BLOCKED]
    assert webhook.received[0]["run_url"] == f"http://127.0.0.1:8080/dags/{PIPELINE}/runs/run-1"
    desk.repair()
    desk.wait(seconds=-100)
    for _ in range(4):
        desk.report()
        desk.wait(minutes=30)
    assert webhook.titles == [BLOCKED, OVER]


def test_negative_control_without_the_memory_of_incidents_every_run_tells_again(desk: Desk, webhook: Webhook) -> None:
    desk.block()
    for _ in range(4):
        desk.report()
        with desk.world.database.transaction() as tables:
            tables.incidents.clear()
            tables.notifications.clear()
    assert webhook.titles == [BLOCKED] * 4


def test_every_kind_of_channel_is_told_at_once(
    desk: Desk, webhook: Webhook, mailbox: Mailbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serve_webhook() as slack:
        connect_apprise(monkeypatch, "slack", f"json://{HOST}:{slack.port}/hook")
        desk.channels = ("ops", "mail", "slack")
        desk.block()
        assert desk.report().sent == 3
        assert webhook.titles == mailbox.titles == slack.titles == [BLOCKED]


@pytest.mark.parametrize("fault", ["down", "holds the connection", "answers 500", "no such connection", "wrong type"])
def test_channel_that_fails_changes_nothing_about_the_batch_and_is_tried_again(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    port = free_port()
    desk.seconds = 0.5
    desk.block()
    before = desk.world.database.committed
    with serve_webhook() as broken:
        match fault:
            case "down":
                connect_webhook(monkeypatch, "ops", f"http://{HOST}:{port}/")
            case "holds the connection":
                broken.may_answer.clear()
                connect_webhook(monkeypatch, "ops", broken.url)
            case "answers 500":
                broken.status = 500
                connect_webhook(monkeypatch, "ops", broken.url)
            case "wrong type":
                connect_webhook(monkeypatch, "ops", broken.url, conn_type="ftp")
            case _:
                monkeypatch.delenv("AIRFLOW_CONN_OPS", raising=False)
        started = monotonic()
        told = desk.report()
        assert monotonic() - started < 7
        assert (told.sent, [channel for channel, _ in told.failed]) == (0, ["ops"])
        after = desk.world.database.committed
        assert (after.batches, after.positions, after.checks) == (before.batches, before.positions, before.checks)
        assert [each.channel for each in desk.failures()] == ["ops"]
        broken.status = 599
    desk.repair()
    desk.seconds = 60
    with serve_webhook() as repaired:
        connect_webhook(monkeypatch, "ops", repaired.url)
        desk.wait(minutes=5)
        desk.report()
        assert repaired.titles == [f"{BLOCKED}", OVER]
        assert list(desk.failures()) == []


def test_channel_that_keeps_failing_is_told_through_the_others_and_so_is_its_recovery(
    desk: Desk, webhook: Webhook, mailbox: Mailbox
) -> None:
    desk.channels = ("ops", "mail")
    webhook.status = 500
    desk.block()
    for _ in range(4):
        desk.report()
        desk.wait(minutes=10)
    failing = f"[batchledger] {PIPELINE}: alert channel ops does not deliver"
    assert mailbox.titles == [BLOCKED, failing]
    assert "the endpoint of ops answered 500" in mailbox.pages[1]
    webhook.status = 200
    desk.report()
    assert webhook.titles == [BLOCKED]
    assert mailbox.titles[2].startswith(f"{failing}: over after")
    assert desk.report().sent == 0


def test_what_an_audit_finds_besides_is_told_and_does_not_contradict_the_look(desk: Desk) -> None:
    """An audit that names a lag by partition would otherwise end the one of the runs, and they its own, for ever."""

    def condition(kind: IncidentKind, subject: str) -> Condition:
        return Condition(PIPELINE, kind, subject, Severity.WARNING, kind)

    found = (condition(IncidentKind.BLOCKED, "another name"), condition(IncidentKind.LEDGER_FINDING, "I1"))
    audited = Findings(found, frozenset({IncidentKind.BLOCKED, IncidentKind.LEDGER_FINDING}))
    desk.channels = ()
    desk.block()
    for more in (audited, None, audited):
        desk.report(more)
        desk.wait(minutes=5)
    assert [each.condition.subject for each in desk.incidents.list_open(PIPELINE)] == ["batch 1", "I1"]
    desk.report(replace(audited, found=()))
    assert [each.condition.subject for each in desk.incidents.list_open(PIPELINE)] == ["batch 1"]


def test_incident_is_stored_before_anything_is_sent(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that dies while it sends leaves the message to the next one."""
    seen: list[tuple[list[IncidentKind], int]] = []

    class Witness:
        def send(self, message: object) -> None:
            kinds = [each.condition.kind for each in desk.incidents.list_open(PIPELINE)]
            seen.append((kinds, len(desk.world.database.committed.notifications)))

    def open_witness(connection_id: str) -> Channel:
        return Witness()

    desk.block()
    monkeypatch.setattr("tests.unit.test_alerting.open_channel", open_witness)
    desk.report()
    assert seen == [([IncidentKind.BLOCKED], 1)]


def test_pipeline_without_channels_keeps_its_incidents(desk: Desk) -> None:
    desk.channels = ()
    desk.block()
    assert desk.report().sent == 0
    assert [each.condition.kind for each in desk.incidents.list_open(PIPELINE)] == [IncidentKind.BLOCKED]


def test_no_payload_and_no_secret_in_what_is_sent_stored_or_logged(
    desk: Desk, mailbox: Mailbox, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The secrets: a record that is quarantined, one that the table refuses, one that breaks a transform, a URL."""

    def break_down(rows: Rows) -> Rows:
        raise StagingError(f"cannot convert {SECRET}")

    desk.channels = ("ops", "mail")
    monkeypatch.setattr(logging.getLogger("batchledger"), "handlers", [caplog.handler])
    caplog.set_level(logging.DEBUG, "batchledger")
    with serve_webhook() as webhook:
        webhook.status = 500
        url = f"http://{HOST}:{webhook.port}/{SECRET}"
        connect_webhook(monkeypatch, "ops", url, login="ana", password=SECRET, extra={"X-Key": SECRET})
        connect_mail(monkeypatch, "mail", mailbox.port)
        desk.world.broker.append(ORDERS_0, f'{{"message_id": "{SECRET}"}}'.encode(), f"{SECRET}: poison".encode())
        for run in ("run-1", "run-2"):
            with pytest.raises(StagingError):
                run_batch.run_once(desk.world.process(alter=break_down), run)
        desk.report()
        with suppress(BatchBlockedError):
            run_batch.run_once(desk.world.process(alter=staged_twice), "run-3")
        for _ in range(4):
            desk.wait(minutes=20)
            desk.report()
        webhook.status = 200
        desk.wait(minutes=20)
        desk.report()
    assert len(webhook.received) >= 3
    assert len(mailbox.received) >= 4
    committed = desk.world.database.committed
    told = [*map(repr, webhook.received), *mailbox.titles, *mailbox.pages]
    stored = [repr(committed.incidents), repr(committed.notifications), repr(desk.told), caplog.text]
    assert not [text for text in (*told, *stored) if SECRET in text]
    # The control: it lies where the text of an alert would have come from.
    assert SECRET in repr(committed.failures)
    assert "alert channel ops: the endpoint of ops answered 500" in caplog.text
