"""The four guarantees that Kafka's producers can give, as people choose them."""

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
        """What the guarantee means for who reads the topic, in one line."""
        match self:
            case Guarantee.ACKS_0:
                return "No answer was asked for: a lost record looks like a written one. Only the offsets gained tell."
            case Guarantee.PLAIN:
                return (
                    "Acknowledged records are in the topic; one whose answer was lost was sent again, so maybe twice."
                )
            case Guarantee.IDEMPOTENT:
                return "The broker drops what this producer repeats: each acknowledged record is there once, in order."
            case Guarantee.TRANSACTIONAL:
                return (
                    "read_committed shows whole transactions or nothing; aborted records, and a marker for each "
                    "transaction and partition, take offsets all the same."
                )


@dataclass(frozen=True, slots=True)
class Transactions:
    """How records are divided into transactions; each ``abort_every``-th is aborted, none when it is None."""

    records: int = RECORDS_PER_TRANSACTION
    abort_every: int | None = None

    def is_aborted(self, number: int) -> bool:
        """Whether the transaction of that number, counted from 1, is aborted."""
        return self.abort_every is not None and number % self.abort_every == 0
