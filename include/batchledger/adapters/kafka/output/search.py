"""Searches an output topic for the records of a batch, where the group's offsets do not tell whether it was committed.

Known limit: a batch whose records retention or compaction has removed since, or that had none, counts as not committed.
Where a version before this one has announced it, so does one that was sent by a clock that is more than
``CLOCKS_DIFFER_BY`` behind the database's: the search begins at a moment then, and not at the ends of that time.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import timedelta
from typing import Any

from batchledger.adapters.kafka.output.log import OutputLog, begin_at, begin_at_ends
from batchledger.adapters.kafka.output.records import read_batch, read_number, read_origin
from batchledger.adapters.kafka.range_reader import read_messages
from batchledger.adapters.kafka.requests import Isolation
from batchledger.model.batch import Batch
from batchledger.model.errors import ServiceUnavailableError
from batchledger.model.offsets import count_offsets
from batchledger.model.progress import Progress

CLOCKS_DIFFER_BY = timedelta(hours=1)
"""At most: of the database, which says when a batch was planned and may move to another machine, and of whoever stamps
the records."""
TELL_EACH_SECONDS = 10.0

_log = logging.getLogger(__name__)


def find_start(options: Mapping[str, str], log: OutputLog, batch: Batch) -> OutputLog:
    """Return the part of the log in which records of the batch may lie. Raises KafkaException.

    That is what was written since its commit was announced; no more than was written then is read.
    """
    if batch.announced_ends is not None:
        return begin_at_ends(log, batch.announced_ends)
    return begin_at(options, log, batch.planned_at - CLOCKS_DIFFER_BY)


def search(options: Mapping[str, str], topic: str, log: OutputLog, batch: Batch, clock: Callable[[], float]) -> bool:
    """Return whether the log shows a record of the batch, whose transaction has ended. Raises KafkaException.

    Takes as long as reading takes, and says in the log each ``TELL_EACH_SECONDS`` how far it is. What open transactions
    of others hold back may hold a commit of the batch only if it holds records of it: then ServiceUnavailableError says
    that it cannot be told yet. These records are the batch's own, so the next search finds them decided or looks at
    other ones: it does not matter how many transactions others have begun until then.
    """
    total = count_offsets([*log.ranges, *log.hidden])
    _log.warning("%s is searched for in %s offsets of topic %s", batch.label, f"{total:,}", topic)
    tell = _Teller(batch, topic, total, clock)
    if _has_record(tell.count(read_messages(options, log.ranges, Isolation.COMMITTED)), batch):
        return True
    if _has_record(tell.count(read_messages(options, log.hidden, Isolation.UNCOMMITTED)), batch):
        raise ServiceUnavailableError(
            f"whether {batch.label} was committed cannot be told yet: the group of its pipeline has no offsets, and "
            f"records of it lie among {log.held_back:,} offsets of topic {topic} behind an open transaction of "
            "somebody else. Ask again when it has ended; Kafka ends it after its transaction.timeout.ms.",
            subject=topic,
        )
    return False


class _Teller:
    """Says now and then how far a search is."""

    def __init__(self, batch: Batch, topic: str, total: int, clock: Callable[[], float]) -> None:
        self._batch, self._topic, self._total, self._clock = batch, topic, total, clock
        self._read = 0
        self._began_at = self._told_at = clock()

    def count(self, messages: Iterable[Any]) -> Iterator[Any]:
        """Let the messages pass."""
        for message in messages:
            self._read += 1
            now = self._clock()
            if now - self._told_at >= TELL_EACH_SECONDS:
                self._told_at = now
                progress = Progress(self._read, self._total, now - self._began_at)
                _log.info("%s is searched for in topic %s: %s", self._batch.label, self._topic, progress)
            yield message


def _has_record(messages: Iterable[Any], batch: Batch) -> bool:
    batch_id = str(batch.batch_id).encode()
    return any(_belongs(message, batch, batch_id) for message in messages)


def _belongs(message: Any, batch: Batch, batch_id: bytes) -> bool:
    headers = message.headers()
    if not headers:
        # Most records of others; what follows costs several times as much.
        return False
    origin = read_origin(headers)
    if origin is None or origin.batch_id != batch_id:
        return False
    found, offset = read_batch(origin), read_number(origin.offset)
    return found is not None and any(each.partition == found[1] and offset in each for each in batch.ranges)
