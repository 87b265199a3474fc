"""Alerts reach real endpoints, once for each incident and once for its end; what an endpoint does changes no batch."""

import logging
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from time import monotonic

import pytest

from batchledger.checks.ledger import judge
from batchledger.lifecycle import decisions, run_batch
from batchledger.lifecycle.execution import carry_out
from batchledger.lifecycle.orders import DropQuarantined
from batchledger.lifecycle.platform import Platform
from batchledger.model.batch import BatchState, Decision
from batchledger.model.errors import BatchBlockedError, ConfigurationError, StagingError
from batchledger.model.findings import IncidentKind
from batchledger.model.incidents import ChannelFailure
from batchledger.model.offsets import TopicPartition
from batchledger.model.records.rules import SinkMode
from batchledger.monitoring.alerting import Alerting, Told, look, report, tell
from batchledger.monitoring.audit_questions import ask_proof
from batchledger.monitoring.ledger_audit import find_own
from batchledger.monitoring.messages import Links
from batchledger.ports import Channel
from batchledger.proof.newest import Coverage
from batchledger.proof.verification import Finding, Verification
from batchledger.wiring import open_channel
from tests.endpoints import (
    HOST,
    Mailbox,
    Webhook,
    connect_apprise,
    connect_mail,
    connect_webhook,
    free_port,
    serve_webhook,
)
from tests.fakes.incidents import MemoryIncidents
from tests.fakes.work import Rows
from tests.fakes.world import PIPELINE, World, staged_twice

ORDERS_0 = TopicPartition("orders", 0)
BLOCKED = f"[batchledger] {PIPELINE}: blocked — no_duplicate_offsets, balance_closes"
OVER = f"{BLOCKED}: over after 5 min, published"
SECRET = "s3cret-payload"  # noqa: S105 -- what no alert may name


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

    @property
    def alerting(self) -> Alerting:
        return Alerting(
            PIPELINE,
            self.incidents,
            self.channels,
            open_channel,
            links=Links("http://127.0.0.1:8080"),
            channel_seconds=self.seconds,
            clock=lambda: self.now,
        )

    def report(self) -> Told:
        """Do what the report task does."""
        self.told.append(report(self.world.process, self.alerting).told)
        return self.told[-1]

    def audit(self, *found: Finding) -> Told:
        """Do what an audit does whose proof of the whole history has found this."""
        proof = Verification(PIPELINE, SinkMode.APPEND, 1, 1, 3, 3, 0, 0, found)
        questions = list(ask_proof(proof, Coverage()))
        own = find_own(PIPELINE, questions, judge(questions), Coverage())
        _, shared = look(self.world.process, self.alerting, self.now)
        return tell(self.alerting, shared + own, self.now)

    def open(self) -> list[tuple[IncidentKind, str]]:
        """The incidents that are not over."""
        incidents = self.incidents.list_open(PIPELINE)
        return [(each.condition.kind, each.condition.subject) for each in incidents]

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
    assert "The endpoint of ops answered 500" in mailbox.pages[1]
    webhook.status = 200
    desk.report()
    assert webhook.titles == [BLOCKED]
    assert mailbox.titles[2].startswith(f"{failing}: over after")
    assert desk.report().sent == 0


def test_channel_that_was_mistyped_costs_no_alert_once_its_name_is_right(desk: Desk, webhook: Webhook) -> None:
    desk.channels = ("opps",)
    desk.block()
    desk.report()
    desk.channels = ("ops",)
    for _ in range(2):
        desk.wait(minutes=1)
        desk.report()
    assert webhook.titles == [BLOCKED]


def test_channel_that_is_no_longer_named_is_not_said_to_deliver_again(desk: Desk, mailbox: Mailbox) -> None:
    desk.channels = ("gone", "mail")
    desk.block()
    for _ in range(3):
        desk.report()
        desk.wait(minutes=10)
    desk.channels = ("mail",)
    desk.report()
    failing = f"[batchledger] {PIPELINE}: alert channel gone does not deliver"
    assert mailbox.titles == [BLOCKED, failing, f"{failing}: over after 10 min, the pipeline file no longer names it"]


def test_runs_and_audits_do_not_end_what_the_other_has_found(desk: Desk) -> None:
    """A finding of an audit is over with an audit that proves the same without it."""
    wrong = Finding("I1", f"{ORDERS_0} 0..3", "no batch published them")
    finding = (IncidentKind.LEDGER_FINDING, "published_ranges_meet")
    blocked = (IncidentKind.BLOCKED, "batch 1")
    desk.channels = ()
    desk.block()
    for look_again in (lambda: desk.audit(wrong), desk.report, lambda: desk.audit(wrong)):
        look_again()
        assert set(desk.open()) >= {blocked}
        desk.wait(minutes=5)
    assert [kind for kind, _ in desk.open()] == [blocked[0], finding[0]]
    desk.audit()
    assert desk.open() == [blocked]
    desk.repair()
    desk.wait(minutes=5)
    desk.audit()
    assert desk.open() == []


def test_loss_is_not_over_because_the_topic_is_another_one_by_now(desk: Desk) -> None:
    desk.channels = ()
    desk.world.produce(ORDERS_0, 3)
    run_batch.run_once(desk.world.process(), "run-1")
    desk.world.produce(ORDERS_0, 3)
    desk.world.broker.expire(ORDERS_0, before=5)
    desk.report()
    desk.world.broker.create_topic("orders", 1)
    desk.wait(minutes=5)
    desk.report()
    assert [kind for kind, _ in desk.open()] == [IncidentKind.LOSS, IncidentKind.SOURCE_CHANGED]


def test_blocked_batch_is_not_over_while_the_attempt_that_takes_it_again_is_not_judged(
    desk: Desk, webhook: Webhook
) -> None:
    desk.block()
    desk.report()
    run_batch.stage(desk.world.process(alter=staged_twice), 1, "run-2")
    desk.wait(minutes=1)
    desk.report()
    (open_incident,) = desk.incidents.list_open(PIPELINE)
    assert "attempt 2 has taken it again and is not judged yet" in open_incident.condition.lines
    with pytest.raises(BatchBlockedError):
        run_batch.audit(desk.world.process(), 1, "run-2")
    desk.wait(minutes=1)
    desk.report()
    desk.repair()
    desk.wait(minutes=3)
    desk.report()
    assert webhook.titles == [BLOCKED, OVER]


def test_end_says_whether_a_person_accepted_or_discarded_the_batch(desk: Desk, webhook: Webhook) -> None:
    for number, decide in enumerate((decisions.accept, decisions.discard), start=1):
        desk.world.broker.append_holes(ORDERS_0, 1)
        with pytest.raises(BatchBlockedError):
            run_batch.run_once(desk.world.process(), f"run-{number}")
        desk.report()
        decide(desk.world.process(), number, Decision("ana", "known"))
        desk.wait(minutes=5)
        desk.report()
    ends = [title.rpartition("over after ")[2] for title in webhook.titles if "over after" in title]
    assert ends == ["5 min, accepted by a person and published", "5 min, discarded"]


def test_pipeline_whose_connection_does_not_exist_is_told_once_it_lasts(desk: Desk, webhook: Webhook) -> None:
    """Its plan is red at every run, before there is a batch."""

    def build() -> Platform:
        raise ConfigurationError("connection kafka_prod does not exist")

    for _ in range(3):
        report(build, desk.alerting)
        desk.wait(minutes=5)
    assert webhook.titles == [f"[batchledger] {PIPELINE}: the source cannot be asked"]
    assert webhook.received[0]["lines"] == ["connection kafka_prod does not exist"]


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
    assert "alert channel ops: The endpoint of ops answered 500" in caplog.text


def test_pipeline_that_quarantines_a_record_in_each_batch_is_one_incident_and_told_once(
    desk: Desk, webhook: Webhook
) -> None:
    """For as long as something is in quarantine, however many batches that are."""
    for batch in range(5):
        desk.world.produce(ORDERS_0, 3)
        if batch:
            desk.world.broker.append(ORDERS_0, SECRET.encode())
        assert run_batch.run_once(desk.world.process(), f"run-{batch}") is not None
        desk.report()
        desk.wait(hours=8)
    assert desk.open() == [(IncidentKind.QUARANTINED, "")]
    assert webhook.titles == [f"[batchledger] {PIPELINE}: 1 record in quarantine"]
    assert webhook.received[0]["severity"] == "warning"
    assert webhook.received[0]["lines"][0].startswith("1 record: not decodable: ")
    carry_out(desk.world.process(), DropQuarantined(), Decision("ana", "never to be read"))
    desk.report()
    assert desk.open() == []
    over = "4 records in quarantine: over after 1 d 8 h, nothing is in quarantine any more"
    assert webhook.titles[1:] == [f"[batchledger] {PIPELINE}: {over}"]
    assert SECRET not in repr(webhook.received)
