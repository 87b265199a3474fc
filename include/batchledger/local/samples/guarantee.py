"""The four guarantees that Kafka's producers can give."""

from dataclasses import dataclass
from enum import StrEnum

RECORDS_PER_TRANSACTION = 1_000


class Guarantee(StrEnum):
    """What a producer asks of the broker."""

    ACKS_0 = "acks_0"
    PLAIN = "plain"
    IDEMPOTENT = "idempotent"
    TRANSACTIONAL = "transactional"

    @property
    def explanation(self) -> str:
        """What the guarantee means for a reader of the topic, in one line."""
        match self:
            case Guarantee.ACKS_0:
                return "No answer is sent: a lost record looks like a written one. Only the offsets gained show it."
            case Guarantee.PLAIN:
                return "Acknowledged records are in the topic. If an answer was lost, the record may be there twice."
            case Guarantee.IDEMPOTENT:
                return (
                    "The broker drops repetitions of this producer: each acknowledged record is there once, in order."
                )
            case Guarantee.TRANSACTIONAL:
                return (
                    "read_committed shows whole transactions or nothing. Aborted records take offsets too, and so does "
                    "one marker for each transaction and partition."
                )


@dataclass(frozen=True, slots=True)
class Transactions:
    """How records are divided into transactions; every ``abort_every``-th is aborted, or none if it is None."""

    records: int = RECORDS_PER_TRANSACTION
    abort_every: int | None = None

    def is_aborted(self, number: int) -> bool:
        """Whether the transaction with this number, counted from 1, is aborted."""
        return self.abort_every is not None and number % self.abort_every == 0
