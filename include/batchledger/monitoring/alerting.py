"""From a look at a pipeline to messages: settle its incidents, store the messages, then send them, in bounded time.

A message is stored before it is sent, so a process that dies loses none. It may repeat a message that was delivered
but not yet recorded as sent. A channel that fails, hangs or does not exist changes only its own notifications: later
runs try them again, and the other channels report the failure.
"""

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from time import monotonic

from typing_extensions import override

from batchledger.lifecycle.platform import Deadlines, Platform
from batchledger.model.errors import BatchledgerError, ChannelError, ConfigurationError
from batchledger.model.findings import PipelineState
from batchledger.model.incidents import Findings, Message, Notification, Settlement, describe_failing_channels
from batchledger.monitoring.conditions import find_conditions
from batchledger.monitoring.health import PipelineHealth, survey
from batchledger.monitoring.messages import Links, compose, compose_trial
from batchledger.ports import Channel, Incidents

logger = logging.getLogger(__name__)

CHANNEL_SECONDS = 10.0
OPENING_SECONDS = 30.0
"""Opening a channel imports what delivers there, which takes seconds on a slow machine, and looks its connection up."""

OpenChannel = Callable[[str], Channel]
MakePlatform = Callable[[], Platform]


def utc_now() -> datetime:
    """Return the present moment."""
    return datetime.now(UTC)


@dataclass(frozen=True)
class Alerting:
    """What the alerts of one pipeline need. ``open_channel`` finds a channel by the id of its Airflow connection.

    ``channel_seconds`` bounds the time of all messages of one channel together.
    """

    pipeline: str
    incidents: Incidents
    channels: tuple[str, ...]
    open_channel: OpenChannel
    deadlines: Deadlines = field(default_factory=Deadlines)
    links: Links = field(default_factory=Links)
    channel_seconds: float = CHANNEL_SECONDS
    clock: Callable[[], datetime] = utc_now


@dataclass(frozen=True, slots=True)
class Told:
    """What a report has changed and sent. ``failed`` names each channel that did not deliver, and why."""

    settlement: Settlement
    sent: int
    failed: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Report:
    """How a pipeline stands, and what a report has sent of it."""

    health: PipelineHealth
    told: Told


def look(make_platform: MakePlatform, alerting: Alerting, now: datetime) -> tuple[PipelineHealth, Findings]:
    """Return how the pipeline stands, and what people need to know of it, even if its platform cannot be built."""
    stored = alerting.incidents.load_facts(alerting.pipeline)
    try:
        health = survey(make_platform(), now)
    except ConfigurationError as error:
        health = PipelineHealth(alerting.pipeline, PipelineState.UNKNOWN, str(error), None)
    return health, find_conditions(stored, health, alerting.deadlines, now)


def report(make_platform: MakePlatform, alerting: Alerting) -> Report:
    """Look at the pipeline, and send messages about incidents that have begun or ended."""
    now = alerting.clock()
    health, findings = look(make_platform, alerting, now)
    return Report(health, tell(alerting, findings, now))


def tell(alerting: Alerting, findings: Findings, now: datetime) -> Told:
    """Settle the findings of a look that began at ``now``. Send what is due, and what earlier runs could not send.

    Whatever the channels do, it returns within twice ``OPENING_SECONDS`` and ``channel_seconds`` after the ledger has
    answered. Raises the errors of the ledger, and none because of a channel.
    """
    settlement = _settle(alerting, findings, now)
    sent, failed = _send(alerting)
    failures = alerting.incidents.find_failures(alerting.pipeline, alerting.channels)
    about_channels = describe_failing_channels(
        alerting.pipeline, failures, alerting.channels, alerting.incidents.list_open(alerting.pipeline)
    )
    changed = _settle(alerting, about_channels, alerting.clock())
    if changed.opened or changed.ended:
        sent_later, failed_later = _send(alerting)
        sent, failed = sent + sent_later, {**failed, **failed_later}
    return Told(settlement, sent, tuple(failed.items()))


def try_channel(
    open_channel: OpenChannel,
    connection_id: str,
    seconds: float = CHANNEL_SECONDS,
    opening_seconds: float = OPENING_SECONDS,
) -> None:
    """Send a trial message. Raises ChannelError if it is not delivered in time, and ConfigurationError.

    ``seconds`` begin when the channel is open and the message is on its way.
    """
    outcome: list[BatchledgerError | None] = []
    is_open = threading.Event()

    def deliver() -> None:
        try:
            _deliver(open_channel, connection_id, compose_trial(connection_id), is_open)
        except BatchledgerError as error:
            outcome.append(error)
        else:
            outcome.append(None)
        is_open.set()

    worker = threading.Thread(target=deliver, daemon=True)
    worker.start()
    was_opened = is_open.wait(opening_seconds)
    worker.join(seconds if was_opened else 0)
    late = _no_answer(connection_id, seconds) if was_opened else _not_open(connection_id, opening_seconds)
    error = outcome[0] if outcome else late
    if error is not None:
        raise error


def _deliver(open_channel: OpenChannel, connection_id: str, message: Message, is_open: threading.Event) -> None:
    """Deliver. The error of a library is named by its class alone, because its words may hold a secret."""
    try:
        channel = open_channel(connection_id)
        is_open.set()
        channel.send(message)
    except BatchledgerError:
        raise
    except Exception as error:
        raise ChannelError(
            f"Alert channel {connection_id} could not be used.",
            why=f"Its library raised {type(error).__name__}.",
            advice=f"Correct connection {connection_id!r}, then try it: batchledger alerts test {connection_id}",
            subject=connection_id,
        ) from error


def _no_answer(connection_id: str, seconds: float) -> ChannelError:
    return ChannelError(
        f"Alert channel {connection_id} did not answer within {seconds:g} s. The message may be there.",
        advice=f"Look whether its server is up, then try it: batchledger alerts test {connection_id}",
        subject=connection_id,
    )


def _not_open(connection_id: str, seconds: float) -> ChannelError:
    return ChannelError(
        f"Alert channel {connection_id} was not open after {seconds:g} s. Nothing was sent.",
        why="The connection was being looked up, or the libraries that deliver there were being imported.",
        advice=f"Look at the load of this machine, then try it: batchledger alerts test {connection_id}",
        subject=connection_id,
    )


def _in_one_line(error: BatchledgerError) -> str:
    """Say what happened and why: the message about a failing channel has a command of its own."""
    return " ".join(f"{error.message}\n{error.why}".split())


def _settle(alerting: Alerting, findings: Findings, now: datetime) -> Settlement:
    settlement = alerting.incidents.settle(alerting.pipeline, findings, alerting.channels, now)
    for condition in settlement.opened:
        logger.warning("%s: %s", condition.pipeline, condition.title)
    for incident in settlement.ended:
        title, how = incident.condition.title, f" ({incident.ending})" if incident.ending else ""
        logger.info("%s: over: %s%s", incident.condition.pipeline, title, how)
    return settlement


def _send(alerting: Alerting) -> tuple[int, dict[str, str]]:
    """Send what is due through all channels at once. Return how much was sent, and why a channel did not deliver."""
    workers = [_Delivery(alerting, channel) for channel in alerting.channels]
    for worker in workers:
        worker.start()
    opened_by = monotonic() + OPENING_SECONDS
    for worker in workers:
        worker.is_open.wait(max(0.0, opened_by - monotonic()))
    deadline = monotonic() + alerting.channel_seconds
    for worker in workers:
        worker.join(max(0.0, deadline - monotonic()))
        worker.give_up_if_alive()
    for worker in workers:
        if worker.mistake is not None:
            raise worker.mistake
    failed = {worker.channel: worker.error for worker in workers if worker.error is not None}
    for channel, error in failed.items():
        logger.warning("%s: alert channel %s: %s", alerting.pipeline, channel, error)
    return sum(worker.sent for worker in workers), failed


class _Delivery(threading.Thread):
    """Sends what is due through one channel, one message after the other, until one fails or the time is over.

    It is a daemon: a channel that hangs keeps no process from ending.
    """

    def __init__(self, alerting: Alerting, channel: str) -> None:
        super().__init__(name=f"alerts through {channel}", daemon=True)
        self.channel = channel
        self.sent = 0
        self.error: str | None = None
        self.mistake: Exception | None = None
        self._alerting = alerting
        self.is_open = threading.Event()
        """Set when the channel is open, or when there is nothing more to wait for."""
        self._present: Notification | None = None
        self._is_over = False

    @override
    def run(self) -> None:
        """Send."""
        alerting = self._alerting
        try:
            while not self._is_over:
                claimed = alerting.incidents.claim(alerting.pipeline, self.channel, alerting.clock())
                if claimed is None:
                    return
                self._present = claimed
                message = compose(claimed.incident, claimed.event, alerting.links)
                _deliver(alerting.open_channel, self.channel, message, self.is_open)
                alerting.incidents.mark_sent(claimed, alerting.clock())
                self.sent += 1
                self._present = None
        except BatchledgerError as error:
            self._fail(_in_one_line(error))
        except Exception as error:  # noqa: BLE001 -- a mistake of ours, raised again by the thread that waits
            self.mistake = error
        finally:
            self.is_open.set()

    def give_up_if_alive(self) -> None:
        """Record that the channel was not open or not done in time. If it still delivers, that is recorded then."""
        if self.is_alive():
            self._is_over = True
            seconds = self._alerting.channel_seconds
            late = (
                _no_answer(self.channel, seconds) if self.is_open.is_set() else _not_open(self.channel, OPENING_SECONDS)
            )
            self._fail(_in_one_line(late))

    def _fail(self, reason: str) -> None:
        self.error, claimed = reason, self._present
        if claimed is None:
            return
        try:
            self._alerting.incidents.mark_failed(claimed, reason, self._alerting.clock())
        except BatchledgerError as error:
            logger.warning("what became of notification %d is not recorded: %s", claimed.notification_id, error)
