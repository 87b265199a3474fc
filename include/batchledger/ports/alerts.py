"""Incidents, and who carries word of them."""

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol

from batchledger.model.incidents import ChannelFailure, Findings, Incident, Message, Notification, Settlement
from batchledger.model.stored_facts import StoredFacts


class Incidents(Protocol):
    """Incidents, and the outbox of their messages. Every method is one transaction.

    ``now`` is when the caller looked. Raises what Ledger does.
    """

    def load_facts(self, pipeline: str) -> StoredFacts:
        """Return what the ledger says of the pipeline, as of one moment; of an unknown one that there is nothing.

        The cost does not depend on how many batches there have been.
        """

    def settle(
        self,
        pipeline: str,
        findings: Findings,
        channels: Sequence[str],
        now: datetime,
    ) -> Settlement:
        """Store what ``incidents.settle`` makes of a look, and the messages for each channel (an outbox).

        Two looks at a pipeline are settled one after the other. A channel that was named after an incident had begun
        gets its opening while it goes on. An end goes through the channels that get the opening. If the opening was not
        due yet (``KindRow.patience``), neither is sent.
        """

    def claim(self, pipeline: str, channel: str, now: datetime) -> Notification | None:
        """Return the oldest unsent notification that is due, and put its next try off (``incidents.wait_after``).

        Two callers never get the same one at the same time. The end of an incident comes after its opening.
        """

    def mark_sent(self, notification: Notification, now: datetime) -> None:
        """Record the delivery. What else the channel has of the pipeline is due now: it works again."""

    def mark_failed(self, notification: Notification, error: str, now: datetime) -> None:
        """Record why a try failed, unless it was delivered after all.

        One that ``is_old`` is given up if the channel has delivered something of the pipeline since; if it has not, it
        is down, and gets everything when it works again.
        """

    def find_failures(self, pipeline: str, channels: Sequence[str]) -> Sequence[ChannelFailure]:
        """Return which of the channels have something unsent that was tried and failed, in the order of names."""

    def list_open(self, pipeline: str) -> Sequence[Incident]:
        """Return the incidents that are not over, the oldest first."""


class Channel(Protocol):
    """Something that carries messages to people."""

    def send(self, message: Message) -> None:
        """Deliver a message. Raises ChannelError, whose text holds no secret."""
