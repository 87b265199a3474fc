"""Sends records through a producer: in order, memory and waiting bounded; names the record that is refused."""

from collections.abc import Callable, Iterable, Mapping
from logging import CRITICAL, getLogger
from time import monotonic
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer

from batchledger.adapters.kafka.clients import client_options
from batchledger.adapters.kafka.output.errors import RefusedRecordError, is_consequence
from batchledger.adapters.kafka.output.records import HeaderWriter, choose_partition
from batchledger.ports.output import OutputRecord

SILENCE_SECONDS = 15.0
LOOK_SECONDS = 0.1
# After so long a silence the sender looks whether the client has given the transaction up: then no answer comes.
_SUSPICIOUS_SECONDS = 0.5
_RECORDS_IN_REPORT = 64
_SHORTEST_BATCH_BYTES, _BATCH_BYTES = 1024, 1024 * 1024

_PRODUCER_OPTIONS: Mapping[str, Any] = {
    "acks": "all",
    "enable.idempotence": True,
    # A key goes where Java's clients send it, so that topics can be joined by it.
    "partitioner": "murmur2_random",
    "compression.type": "lz4",
    "linger.ms": 20,
    # Bounds what waits to be sent, so that memory does not grow with the batch.
    "queue.buffering.max.messages": 100_000,
    "queue.buffering.max.kbytes": 128 * 1024,
    # Brokers take no larger request by default; they say whether the topic takes the record.
    "message.max.bytes": 100 * 1024 * 1024,
    "delivery.report.only.error": True,
    # Else the client may have no connection to ask for the coordinator, and asks again up to a second later: a small
    # batch would take as long. The client's table of properties does not list this one.
    "enable.sparse.connections": False,
    # By default the client waits for a deleted topic as long as the caller may be silent.
    "topic.metadata.propagation.max.ms": 5_000,
}


def open_producer(options: Mapping[str, str], largest_batch_bytes: int, more: Mapping[str, Any]) -> Producer:
    """Return a producer, not connected yet. A batch larger than ``largest_batch_bytes`` would be refused as a whole."""
    quiet = getLogger(f"{__name__}.client")
    # Errors are raised. The client would also write fatal ones to the console, whatever its log level.
    quiet.setLevel(CRITICAL + 1)
    batch_bytes = max(_SHORTEST_BATCH_BYTES, min(_BATCH_BYTES, largest_batch_bytes))
    return Producer({**client_options(options), **_PRODUCER_OPTIONS, "batch.size": batch_bytes, **more}, logger=quiet)


class _Report:
    """The delivery report of some records that follow one another.

    One for each record would cost a fifth of the speed: the garbage collector would visit all that wait, again and
    again. So a record that failed is looked for among its neighbours, by its key and value.
    """

    def __init__(self, fail: Callable[[KafkaError, str, bool], None]) -> None:
        self._fail = fail
        self._places: list[tuple[int, tuple[str, int, int]]] = []

    def cover(self, record: OutputRecord) -> bool:
        """Take a record in, and return whether there is room for more."""
        self._places.append((hash((record.key, record.value)), (record.topic, record.partition, record.offset)))
        return len(self._places) < _RECORDS_IN_REPORT

    def __call__(self, error: KafkaError | None, message: Any) -> None:
        if error is not None and not is_consequence(error):
            wanted = hash((message.key(), message.value()))
            found = [place for mark, place in self._places if mark == wanted]
            # A topic refuses a valid record only if it is compacted and the record has no key.
            is_suspect = error.code() == KafkaError.INVALID_RECORD and message.key() is None
            self._fail(error, _name((found or [self._places[0][1]])[0]), is_suspect)


class RecordSender:
    """Sends one batch's records.

    ``look`` gets the number of acknowledged records now and then. ``probe`` raises KafkaException when the client has
    given up and acknowledges nothing any more.
    """

    def __init__(
        self,
        producer: Producer,
        topic: str,
        partitions: int,
        batch_id: int,
        *,
        look: Callable[[int], None] = lambda _: None,
        probe: Callable[[], None] = lambda: None,
    ) -> None:
        self.sent = 0
        self._producer = producer
        self._topic = topic
        self._partitions = partitions
        self._headers = HeaderWriter(batch_id)
        self._look = look
        self._probe = probe
        self._refused: RefusedRecordError | None = None
        self._failed = 0
        self._is_found = False
        self._acknowledged = 0
        self._looked_at = monotonic()
        self._silent_seconds = 0.0

    def send(self, records: Iterable[OutputRecord]) -> None:
        """Send the records and return once all of them are acknowledged.

        Raises RefusedRecordError, TimeoutError after ``SILENCE_SECONDS`` without an answer, and KafkaException.
        """
        look_at = monotonic()
        report = _Report(self._fail)
        for record in records:
            is_open = report.cover(record)
            self._put(record, report)
            if not is_open:
                report = _Report(self._fail)
            self.sent += 1
            if monotonic() >= look_at:
                self._take_answers(0)
                look_at = monotonic() + LOOK_SECONDS
        while len(self._producer):
            # Faster than waiting for each answer.
            self._producer.flush(LOOK_SECONDS)
            self._take_answers(0)
        self._take_answers(0)

    def _put(self, record: OutputRecord, report: _Report) -> None:
        """Hand a record to the client, which sends it when it likes.

        Its timestamp is the moment of sending, and a header has the source's: retention by time would delete a record
        with an old timestamp at once.
        """
        partition = choose_partition(record, self._partitions)
        headers: Any = self._headers.write(record)
        while True:
            try:
                self._producer.produce(self._topic, record.value, record.key, partition, report, headers=headers)
            except BufferError:
                self._take_answers(LOOK_SECONDS)
            except KafkaException as error:
                # What the client says now may be the consequence of a record that was refused before.
                self._take_answers(LOOK_SECONDS)
                self._probe()
                place = (record.topic, record.partition, record.offset)
                raise RefusedRecordError(error.args[0], _name(place)) from error
            else:
                return

    def _fail(self, error: KafkaError, where: str, is_suspect: bool) -> None:
        """Take note that a record has failed.

        The broker refuses all records that were sent together because of one, and the client does not say which. The
        first stands for them, or one that is the likely reason.
        """
        self._failed += 1
        if self._refused is None or (is_suspect and not self._is_found):
            self._refused = RefusedRecordError(error, where)
            self._is_found = is_suspect

    def _take_answers(self, seconds: float) -> None:
        self._producer.poll(seconds)
        if self._refused is not None:
            if self._failed > 1 and not self._is_found:
                where = f"{self._failed:,} records that were sent together; the first is {self._refused.where}"
                raise RefusedRecordError(self._refused.cause, where)
            raise self._refused
        waiting, now = len(self._producer), monotonic()
        acknowledged = self.sent - waiting
        if acknowledged > self._acknowledged or not waiting:
            self._acknowledged, self._silent_seconds = acknowledged, 0.0
        else:
            # A long wait for the next record to send is not the broker's silence.
            self._silent_seconds += min(now - self._looked_at, 10 * LOOK_SECONDS)
        self._looked_at = now
        self._look(acknowledged)
        if self._silent_seconds > _SUSPICIOUS_SECONDS:
            self._probe()
        if self._silent_seconds > SILENCE_SECONDS:
            raise TimeoutError(f"no record was acknowledged for {SILENCE_SECONDS:.0f} s")


def _name(place: tuple[str, int, int]) -> str:
    topic, partition, offset = place
    return f"record {topic}[{partition}]@{offset}"
