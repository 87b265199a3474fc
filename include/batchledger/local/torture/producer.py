"""Write records with unique ids, and note what is known about each: acknowledged, failed or unknown.

The journal is a file of JSON lines that outlives the run. Within a key, records are written in the order of their
sequence numbers. A key belongs to one partition, so that its order holds if partitions are added. After a failure the
keys are given up, because a record that is still on its way could arrive after later ones.
"""

import json
import secrets
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from batchledger.local.torture.records import DEADLY, IntendedRecord, WriteKind, WriteOutcome
from batchledger.local.torture.schedule import Chunk

_KEYS_PER_PARTITION = 3
_DELIVERY_SECONDS = 20.0
_OPTIONS = {
    "enable.idempotence": True,
    "acks": "all",
    "linger.ms": 5,
    "message.timeout.ms": int(_DELIVERY_SECONDS * 1000),
    "socket.timeout.ms": 5000,
    "reconnect.backoff.max.ms": 1000,
    "log_level": 0,
}


@dataclass
class Journal:
    """A file with what is known about every record; safe to use from several threads."""

    path: Path
    _ids: dict[tuple[str, WriteOutcome], set[str]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def write(self, topic: str, guarantee: WriteKind, outcome_by_id: Mapping[str, WriteOutcome]) -> None:
        """Append one line for each record."""
        lines = [
            json.dumps({"id": record_id, "topic": topic, "guarantee": guarantee, "outcome": outcome}) + "\n"
            for record_id, outcome in outcome_by_id.items()
        ]
        with self._lock, self.path.open("a") as file:
            file.writelines(lines)
            for record_id, outcome in outcome_by_id.items():
                self._ids.setdefault((topic, outcome), set()).add(record_id)

    def acknowledged(self, topic: str) -> set[str]:
        """The ids that the broker has promised to keep."""
        return self._of(topic, WriteOutcome.ACKNOWLEDGED)

    def failed(self, topic: str) -> set[str]:
        """The ids that no reader may ever see: the ids of aborted transactions.

        A record that the client reports as not delivered is not among them, because the broker may still have it.
        """
        return self._of(topic, WriteOutcome.FAILED)

    def _of(self, topic: str, outcome: WriteOutcome) -> set[str]:
        with self._lock:
            return set(self._ids.get((topic, outcome), ()))


@dataclass
class Writer:
    """Writes chunks into one topic. ``name`` keeps its ids and keys apart from other writers."""

    name: str
    topic: str
    options: Mapping[str, str]
    journal: Journal
    _partitions: int = 0
    _sent: int = 0
    _generation: int = 0
    _sequence_by_key: dict[str, int] = field(default_factory=dict)
    _producers: dict[bool, Producer] = field(default_factory=dict, repr=False)

    def write(self, chunk: Chunk, partitions: int) -> bool:
        """Write a chunk and commit or abort its transaction, if it has one; whether all went well."""
        is_transactional = chunk.guarantee is not WriteKind.IDEMPOTENT
        try:
            reports = self.begin(chunk.records, partitions, is_transactional=is_transactional)
        except KafkaException:
            self._give_up(is_transactional=is_transactional)
            return False
        if is_transactional:
            return self.end(chunk.guarantee, reports)
        return self._conclude(chunk.guarantee, reports, WriteOutcome.ACKNOWLEDGED)

    def write_poison(self, partitions: int) -> bool:
        """Write records that cannot become rows, and one that the target may refuse; whether all arrived.

        The last one has a key of 700 kB. It is too large for an index, and twice in a record it is too large for a
        topic.
        """
        self._sent += 1
        spoilt = IntendedRecord.make(f"{self.topic}-{self.name}-{self._sent:07d}-late", f"{self.name}-late", self._sent)
        large = IntendedRecord.make(f"{self.topic}-{self.name}-{self._sent:07d}-large", secrets.token_hex(350_000), 0)
        reports: dict[str, KafkaError | None] = {large.record_id: KafkaError(KafkaError._TIMED_OUT)}
        producer = Producer({**_OPTIONS, **self.options})
        for place in range(partitions):
            producer.produce(self.topic, value=b'{"record_id": "cut o', partition=place)
            producer.produce(self.topic, value=b"\xff\xfe", partition=place)
        for nanoseconds in (time.time_ns(), time.time_ns() // 1000):
            producer.produce(self.topic, value=spoilt.encode(), partition=0, timestamp=nanoseconds)
        producer.produce(
            self.topic,
            value=large.encode(),
            partition=0,
            on_delivery=lambda error, _message: reports.update({large.record_id: error}),
        )
        left = producer.flush(_DELIVERY_SECONDS)
        return self._conclude(WriteKind.IDEMPOTENT, reports, WriteOutcome.ACKNOWLEDGED) and not left

    def write_deadly(self, places: int) -> bool:
        """Write a record into each of so many partitions that nothing decodes and lives; whether all arrived."""
        producer = Producer({**_OPTIONS, **self.options})
        for place in range(places):
            self._sent += 1
            record = IntendedRecord.make(f"{self.topic}-{self.name}-{self._sent:07d}{DEADLY}", "deadly", self._sent)
            producer.produce(self.topic, value=record.encode(), partition=place)
        return producer.flush(_DELIVERY_SECONDS) == 0

    def begin(self, records: int, partitions: int, *, is_transactional: bool = True) -> dict[str, KafkaError | None]:
        """Write records, in a transaction that is left open if that is asked for. Raises KafkaException."""
        if partitions != self._partitions:
            # A client learns of new partitions only after minutes; a new client knows them from the start.
            self._producers.clear()
            self._partitions = partitions
        producer = self._producer(is_transactional=is_transactional)
        if is_transactional:
            producer.begin_transaction()
        reports = self._send(producer, records)
        producer.flush(_DELIVERY_SECONDS)
        return reports

    def end(self, guarantee: WriteKind, reports: dict[str, KafkaError | None]) -> bool:
        """Commit or abort the open transaction."""
        producer = self._producer(is_transactional=True)
        try:
            if guarantee is WriteKind.ABORT:
                producer.abort_transaction(_DELIVERY_SECONDS)
                return self._conclude(guarantee, reports, WriteOutcome.FAILED)
            producer.commit_transaction(_DELIVERY_SECONDS)
            return self._conclude(guarantee, reports, WriteOutcome.ACKNOWLEDGED)
        except KafkaException:
            self._give_up(is_transactional=True)
            # The commit may have happened; an abort may still happen later.
            outcome = WriteOutcome.FAILED if guarantee is WriteKind.ABORT else WriteOutcome.UNKNOWN
            self.journal.write(self.topic, guarantee, dict.fromkeys(reports, outcome))
            return False

    def settle(self) -> None:
        """End a transaction that a failure may have left open; readers would wait for it. Raises KafkaException."""
        if self._generation:
            self._producer(is_transactional=True)

    def _producer(self, *, is_transactional: bool) -> Producer:
        if is_transactional not in self._producers:
            settings = {**_OPTIONS, **self.options}
            if is_transactional:
                settings |= {"transactional.id": f"{self.topic}-{self.name}", "transaction.timeout.ms": 60_000}
            producer = Producer(settings)
            if is_transactional:
                # Aborts what an earlier producer of the same id has left open.
                producer.init_transactions(30)
            self._producers[is_transactional] = producer
        return self._producers[is_transactional]

    def _send(self, producer: Producer, records: int) -> dict[str, KafkaError | None]:
        """Return the outcome of each record; a record without an answer has an error too."""
        unknown = KafkaError(KafkaError._TIMED_OUT)
        reports: dict[str, KafkaError | None] = {}

        def reporter(record_id: str) -> Callable[[KafkaError | None, Message], None]:
            return lambda error, _message: reports.update({record_id: error})

        for _ in range(records):
            turn, partition = divmod(self._sent, self._partitions)
            key = f"{self.name}-{self._generation}-{partition}-{turn % _KEYS_PER_PARTITION}"
            sequence = self._sequence_by_key.get(key, 0)
            self._sequence_by_key[key] = sequence + 1
            record = IntendedRecord.make(f"{self.topic}-{self.name}-{self._sent:07d}", key, sequence)
            self._sent += 1
            reports[record.record_id] = unknown
            try:
                producer.produce(
                    self.topic,
                    value=record.encode(),
                    key=key.encode(),
                    partition=partition,
                    on_delivery=reporter(record.record_id),
                )
            except (BufferError, KafkaException):
                break
            producer.poll(0)
        return reports

    def _conclude(self, guarantee: WriteKind, reports: Mapping[str, KafkaError | None], good: WriteOutcome) -> bool:
        outcomes = {
            record_id: good if error is None or good is WriteOutcome.FAILED else WriteOutcome.UNKNOWN
            for record_id, error in reports.items()
        }
        self.journal.write(self.topic, guarantee, outcomes)
        is_good = all(error is None for error in reports.values())
        if not is_good:
            self._give_up(is_transactional=guarantee is not WriteKind.IDEMPOTENT)
        return is_good

    def _give_up(self, *, is_transactional: bool) -> None:
        """Go on with a new producer and new keys."""
        self._generation += 1
        producer = self._producers.pop(is_transactional, None)
        if producer is not None:
            producer.purge()


def new_topic_name(mode: str) -> str:
    """A name that no earlier run has used."""
    return f"torture_{mode}_{uuid.uuid4().hex[:8]}"


def write_all(writer: Writer, chunks: Sequence[Chunk], partitions: int) -> None:
    """Write the chunks one after the other, even if one fails."""
    for chunk in chunks:
        writer.write(chunk, partitions)
