"""Who acts: a person as Airflow, the operating system and the database know this person."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from typing_extensions import override

from batchledger.model.offsets import OffsetRange, TopicPartition

UNKNOWN_USER = "unknown"


@dataclass(frozen=True, slots=True)
class Actor:
    """A person who decides, or looks at payloads.

    ``name`` is the name in Airflow, or on the command line the name of the operating system's user. Only the command
    line knows the number of that user (``uid``) and the ``host``. ``role`` is the role in PostgreSQL, which the
    database writes itself; it is None before that, and in rows from before version 0.3.0.
    """

    name: str
    uid: int | None = None
    host: str | None = None
    role: str | None = None

    @override
    def __str__(self) -> str:
        """Return ``ana (uid 1000 @host, role batchledger)``; what is not known is left out."""
        user = None if self.uid is None else f"uid {self.uid} @{self.host}"
        role = None if self.role is None else f"role {self.role}"
        known = ", ".join(filter(None, (user, role)))
        return f"{self.name} ({known})" if known else self.name


@dataclass(frozen=True, slots=True)
class PayloadLook:
    """A person was shown keys and values of ``records`` records within ``ranges``, and ``errors`` errors in full.

    ``batch_id`` is the batch that was shown, None if records of several were listed.
    """

    look_id: int
    pipeline: str
    batch_id: int | None
    records: int
    ranges: Sequence[str]
    errors: int
    actor: Actor
    looked_at: datetime


def cover_places(places: Iterable[tuple[TopicPartition, int]]) -> list[OffsetRange]:
    """Return for each partition the range from the first of these offsets to the last.

    Worked example: offsets 3 and 9 of ``orders[0]`` become ``orders[0] 3..10``.
    """
    offsets: dict[TopicPartition, list[int]] = {}
    for partition, offset in places:
        offsets.setdefault(partition, []).append(offset)
    return [OffsetRange(each, min(found), max(found) + 1) for each, found in sorted(offsets.items())]
