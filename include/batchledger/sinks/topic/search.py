"""Searches an output topic for the records of a batch, when the group's offsets do not say whether it was committed.

Known limit: a batch counts as not committed if it had no records, or if retention or compaction has removed them.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from batchledger.model.batch import Batch
from batchledger.model.errors import ServiceUnavailableError
from batchledger.model.offsets import count_offsets
from batchledger.model.progress import Progress
from batchledger.sinks.topic.log import OutputLog, begin_at_ends
from batchledger.sinks.topic.records import read_batch, read_number, read_origin
from batchledger.source.kafka.range_reader import read_chunks
from batchledger.source.kafka.records import list_headers
from batchledger.source.kafka.requests import Isolation

TELL_EACH_SECONDS = 10.0

_log = logging.getLogger(__name__)


def find_start(log: OutputLog, batch: Batch) -> OutputLog:
    """Return the part of the log in which records of the batch may lie.

    That is what was written from the announcement of its commit up to the end of ``log``. A checkout before
    version 0.2.0 has announced no ends: then it is the whole log.
    """
    return begin_at_ends(log, batch.announced_ends or ())


def search(options: Mapping[str, str], topic: str, log: OutputLog, batch: Batch, clock: Callable[[], float]) -> bool:
    """Return whether the log shows a record of the batch, whose transaction has ended. Raises KafkaException.

    Takes as long as reading does, and logs each ``TELL_EACH_SECONDS`` how far it is. Open transactions of other
    producers may hide a commit of the batch only if they hold back records of it: it is unknown yet, by
    ServiceUnavailableError. The next search finds these records decided, or finds other ones, however many transactions
    other producers begin until then.
    """
    total = count_offsets([*log.ranges, *log.hidden])
    _log.warning("%s is searched for in %s offsets of topic %s", batch.label, f"{total:,}", topic)
    tell = _Teller(batch, topic, total, clock)
    if _has_record(tell.count(read_chunks(options, log.ranges, Isolation.COMMITTED)), batch):
        return True
    if _has_record(tell.count(read_chunks(options, log.hidden, Isolation.UNCOMMITTED)), batch):
        raise ServiceUnavailableError(
            f"It is unknown whether {batch.label} was committed.",
            why=f"The group of its pipeline has no offsets, and {log.held_back:,} offsets of topic {topic} lie "
            "behind an open transaction of another producer.",
            advice="Ask again when it has ended; Kafka ends it after its transaction.timeout.ms.",
            subject=topic,
        )
    return False


class _Teller:
    """Says now and then how far a search is."""

    def __init__(self, batch: Batch, topic: str, total: int, clock: Callable[[], float]) -> None:
        self._batch, self._topic, self._total, self._clock = batch, topic, total, clock
        self._read = 0
        self._began_at = self._told_at = clock()

    def count(self, chunks: Iterable[list[Any]]) -> Iterator[list[Any]]:
        """Let the messages pass."""
        for chunk in chunks:
            self._read += len(chunk)
            now = self._clock()
            if now - self._told_at >= TELL_EACH_SECONDS:
                self._told_at = now
                progress = Progress(self._read, self._total, now - self._began_at)
                _log.info("%s is searched for in topic %s: %s", self._batch.label, self._topic, progress)
            yield chunk


def _has_record(chunks: Iterable[list[Any]], batch: Batch) -> bool:
    batch_id = str(batch.batch_id).encode()
    return any(_belong(headers, batch, batch_id) for chunk in chunks for headers in list_headers(chunk))


def _belong(headers: Any, batch: Batch, batch_id: bytes) -> bool:
    """Return whether a record with these headers is one of the batch."""
    if not headers:
        # As most records of other producers; what follows costs several times as much.
        return False
    origin = read_origin(headers)
    if origin is None or origin.batch_id != batch_id:
        return False
    found, offset = read_batch(origin), read_number(origin.offset)
    return found is not None and any(each.partition == found[1] and offset in each for each in batch.ranges)
