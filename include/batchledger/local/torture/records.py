"""The records of a torture run, and the outcomes of writing them. Values only.

A record's payload follows from its id, and its sequence number grows within its key. So the checker can find errors by
itself. Nothing of the platform is used here.
"""

import hashlib
import json
from dataclasses import asdict, dataclass
from enum import StrEnum

SCHEMA = "record_id string, record_key string, sequence long, payload string"


class WriteKind(StrEnum):
    """How a producer writes its records."""

    IDEMPOTENT = "idempotent"
    COMMIT = "committed transaction"
    ABORT = "aborted transaction"


class WriteOutcome(StrEnum):
    """What the producer knows about a record that it tried to write."""

    ACKNOWLEDGED = "acknowledged"
    FAILED = "failed"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class IntendedRecord:
    """One record as it was meant to be."""

    record_id: str
    record_key: str
    sequence: int
    payload: str

    @classmethod
    def make(cls, record_id: str, record_key: str, sequence: int) -> "IntendedRecord":
        """A record with the payload that follows from its id."""
        return cls(record_id, record_key, sequence, payload_of(record_id))

    def encode(self) -> bytes:
        """The value that is written to Kafka."""
        return json.dumps(asdict(self)).encode()

    @classmethod
    def decode(cls, value: bytes) -> "IntendedRecord":
        """Read the value back."""
        return cls(**json.loads(value))


DEADLY = "-deadly"
"""Ends the id of a record of which the library that decodes it dies."""

LATEST_TIMESTAMP_MS = 253_402_300_799_999
"""The last millisecond of the year 9999; no table can hold a later timestamp."""


def payload_of(record_id: str) -> str:
    """The payload that a record of this id must carry."""
    return hashlib.sha256(record_id.encode()).hexdigest()[:16]
