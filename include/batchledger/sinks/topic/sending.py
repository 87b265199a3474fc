"""Sends records through a producer: in order, memory and waiting bounded; names the record that is refused."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from logging import CRITICAL, getLogger
from time import monotonic
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer

from batchledger.sinks.topic.errors import RefusedRecordError, is_consequence
from batchledger.sinks.topic.records import CHOSEN_BY_KEY, HeaderWriter, OutputBlock
from batchledger.source.kafka.clients import client_options

SILENCE_SECONDS = 15.0
LOOK_SECONDS = 0.1
# After so long a silence the sender looks whether the client has given the transaction up: then no answer comes.
_SUSPICIOUS_SECONDS = 0.5
# The client gives the transaction up before it reports the record that is the reason.
_REPORT_SECONDS = 2.0
_RECORDS_BETWEEN_LOOKS = 256
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


@dataclass(frozen=True)
class _Report:
    """The delivery report of a block.

    One for each record would cost a fifth of the speed: the garbage collector would visit all that wait, again and
    again. So a record that failed is looked for in its block, by its key and value.
    """

    block: OutputBlock
    fail: Callable[[KafkaError, str, bool], None]

    def __call__(self, error: KafkaError | None, message: Any) -> None:
        if error is not None and not is_consequence(error):
            # A topic refuses a valid record only if it is compacted and the record has no key.
            is_suspect = error.code() == KafkaError.INVALID_RECORD and message.key() is None
            place = self._place_by_content.get((message.key(), message.value()), 0)
            self.fail(error, _name(self.block, place), is_suspect)

    @cached_property
    def _place_by_content(self) -> Mapping[tuple[bytes | None, bytes | None], int]:
        columns = (reversed(self.block.records[name].to_pylist()) for name in ("key", "value"))
        places = reversed(range(self.block.records.num_rows))
        return dict(zip(zip(*columns, strict=True), places, strict=True))


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
        headers: HeaderWriter,
        *,
        look: Callable[[int], None] = lambda _: None,
        probe: Callable[[], None] = lambda: None,
    ) -> None:
        self.sent = 0
        self._producer = producer
        self._topic = topic
        self._partitions = partitions
        self._headers = headers
        self._look = look
        self._probe = probe
        self._refused: RefusedRecordError | None = None
        self._failed = 0
        self._is_found = False
        self._acknowledged = 0
        self._looked_at = self._look_at = monotonic()
        self._silent_seconds = 0.0

    def send(self, blocks: Iterable[OutputBlock]) -> None:
        """Send the records and return once all of them are acknowledged.

        Raises RefusedRecordError, TimeoutError after ``SILENCE_SECONDS`` without an answer, and KafkaException.
        """
        for block in blocks:
            self.send_block(block)
        self.finish()

    def finish(self) -> None:
        """Return once all records are acknowledged; raises as ``send`` does."""
        while len(self._producer):
            # Faster than waiting for each answer.
            self._producer.flush(LOOK_SECONDS)
            self._take_answers(0)
        self._take_answers(0)
        # A client that has given up has nothing left to send, either.
        self._require_hope()

    def send_block(self, block: OutputBlock) -> None:
        """Hand the records to the client, which sends them when it likes.

        The timestamp of a record is the moment of sending, and a header has the source's: retention by time would
        delete a record with an old timestamp at once. Without a key, a record goes by its source partition, which keeps
        its order.
        """
        report = _Report(block, self._fail)
        keys, values = (block.records[name].to_pylist() for name in ("key", "value"))
        by_source = block.source.partition % self._partitions
        # Looked up once: this loop is most of the time of a publication.
        produce, topic, before = self._producer.produce, self._topic, self.sent
        for place, (key, value, headers) in enumerate(zip(keys, values, self._headers.write(block), strict=True)):
            partition = by_source if key is None else CHOSEN_BY_KEY
            if not place % _RECORDS_BETWEEN_LOOKS:
                self.sent = before + place
                self._look_around()
            while True:
                try:
                    produce(topic, value, key, partition, report, headers=headers)
                except BufferError:
                    self.sent = before + place
                    self._take_answers(LOOK_SECONDS)
                except KafkaException as error:
                    # What the client says now may be the consequence of a record that was refused before.
                    self._take_answers(LOOK_SECONDS)
                    self._require_hope()
                    raise RefusedRecordError(error.args[0], _name(block, place)) from error
                else:
                    break
        self.sent = before + len(keys)

    def _look_around(self) -> None:
        if monotonic() >= self._look_at:
            self._take_answers(0)
            self._look_at = monotonic() + LOOK_SECONDS

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
        self._require_no_refusal()
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
            self._require_hope()
        if self._silent_seconds > SILENCE_SECONDS:
            raise TimeoutError(f"no record was acknowledged for {SILENCE_SECONDS:.0f} s")

    def _require_hope(self) -> None:
        """Raise why the client has given up, if it has: the record that was refused, else what the client says."""
        try:
            self._probe()
        except KafkaException:
            until = monotonic() + _REPORT_SECONDS
            while self._refused is None and monotonic() < until:
                self._producer.poll(LOOK_SECONDS)
            self._require_no_refusal()
            raise

    def _require_no_refusal(self) -> None:
        if self._refused is None:
            return
        if self._failed > 1 and not self._is_found:
            where = f"{self._failed:,} records that were sent together; the first is {self._refused.where}"
            raise RefusedRecordError(self._refused.cause, where)
        raise self._refused


def _name(block: OutputBlock, place: int) -> str:
    """Name the source of a record of the block."""
    return f"record {block.source}@{block.records['offset'][place].as_py()}"
