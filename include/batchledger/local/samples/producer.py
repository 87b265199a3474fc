"""Write sample records into a topic: in order, and each once even if the work is interrupted and started again.

The producer is idempotent and leaves no gap, so a partition always holds the beginning of the records meant for it.
The partition of a record follows from its key alone, so a second run can tell from the end offsets what is there
already. This does not hold for a topic that others write to, or that two feeds fill at the same time.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from time import monotonic
from typing import Any
from zlib import crc32

from confluent_kafka import KafkaError, KafkaException, Producer

from batchledger.local.samples.admin import ANSWER_SECONDS, describe, find_ends, require_beginning
from batchledger.model.errors import ServiceUnavailableError

RECORDS_PER_CHECK = 5_000
WAITING_RECORDS = 50_000

BULK_OPTIONS: Mapping[str, Any] = {
    "compression.type": "lz4",
    "linger.ms": 50,
    "batch.size": 1024 * 1024,
    "queue.buffering.max.messages": 2 * WAITING_RECORDS,
    "delivery.report.only.error": True,
    "log_level": 0,
}
"""The settings of every producer here: for many records, with reports only about those that failed."""

_GAPLESS_OPTIONS: Mapping[str, Any] = {
    **BULK_OPTIONS,
    "acks": "all",
    "enable.idempotence": True,
    # Otherwise records that follow a refused one would still be written, and a second run would skip the wrong ones.
    "enable.gapless.guarantee": True,
    # That guarantee does not cover records that time out. So none does: ANSWER_SECONDS bounds the wait instead.
    "message.timeout.ms": 0,
}

ReportProgress = Callable[[int], None]
"""Called now and then with how many records the broker has acknowledged so far."""


@dataclass(frozen=True, slots=True)
class SampleRecord:
    """One record to write. A ``timestamp_ms`` of 0 means the moment of sending."""

    key: bytes
    value: bytes
    timestamp_ms: int = 0


@dataclass(frozen=True, slots=True)
class Fed:
    """How many records a feed found and sent."""

    already_there: int
    sent: int


def choose_partition(key: bytes, partitions: int) -> int:
    """Return the partition of a key: the same in every process, on every platform."""
    return crc32(key) % partitions


def feed(
    options: Mapping[str, str], topic: str, partitions: int, records: Iterable[SampleRecord], report: ReportProgress
) -> Fed:
    """Bring the topic to hold exactly ``records``, each once, wherever an earlier feed of the same records stopped.

    It is safe to run again at any time; if everything is there, nothing is sent. Raises SetupError if the beginning of
    the topic was deleted, and ServiceUnavailableError if the broker does not answer in time.
    """
    require_beginning(options, topic, partitions)
    end_by_partition = find_ends(options, topic, partitions)
    already_there = sum(end_by_partition.values())
    missing = skip_present(records, end_by_partition)
    sent = produce(options, topic, partitions, missing, lambda sent: report(already_there + sent))
    return Fed(already_there, sent)


def skip_present(records: Iterable[SampleRecord], end_by_partition: Mapping[int, int]) -> Iterator[SampleRecord]:
    """Yield, in order, the records that a topic does not hold yet. It has to hold the beginning of each partition.

    Example: with ends ``{0: 2, 1: 0}`` the first two records meant for partition 0 are left out, and no other.
    """
    present_by_partition = dict(end_by_partition)
    for record in records:
        partition = choose_partition(record.key, len(present_by_partition))
        if present_by_partition[partition] > 0:
            present_by_partition[partition] -= 1
        else:
            yield record


def produce(
    options: Mapping[str, str], topic: str, partitions: int, records: Iterable[SampleRecord], report: ReportProgress
) -> int:
    """Append ``records`` and return how many, all acknowledged by the broker.

    Raises ServiceUnavailableError if the broker acknowledges nothing for ``ANSWER_SECONDS`` or refuses a record.
    Each partition then holds the beginning of its records without a gap.
    """
    whole = " What was written is whole: each partition holds its first records without a gap."
    with writing(options, topic, _GAPLESS_OPTIONS, whole) as producer:
        return send(producer, topic, partitions, records, report)


@contextmanager
def writing(
    options: Mapping[str, str], topic: str, producer_options: Mapping[str, Any], consequence: str = ""
) -> Iterator[Producer]:
    """Lend a producer. Its errors become ServiceUnavailableError with the last trouble and the ``consequence``."""
    reported: list[KafkaError] = []
    producer = Producer({**options, **producer_options, "error_cb": reported.append})
    try:
        yield producer
    except (KafkaException, TimeoutError) as error:
        cause = describe(reported[-1] if reported and isinstance(error, TimeoutError) else error)
        raise ServiceUnavailableError(
            f"Not every record could be written to topic {topic} on {options['bootstrap.servers']}.{consequence}",
            why=cause,
            advice="Check the broker's log. Start the local one: batchledger up\nThen write again.",
            subject=topic,
        ) from error
    finally:
        producer.purge()


def send(
    producer: Producer, topic: str, partitions: int, records: Iterable[SampleRecord], report: ReportProgress
) -> int:
    """Send ``records`` and return how many, once the producer has every answer.

    Raises KafkaException after a fatal error, TimeoutError if nothing is answered for ``ANSWER_SECONDS``.
    """
    sent = 0
    for record in records:
        partition = choose_partition(record.key, partitions)
        producer.produce(topic, record.value, record.key, partition, timestamp=record.timestamp_ms)
        sent += 1
        if sent % RECORDS_PER_CHECK == 0:
            _wait_for_broker(producer, WAITING_RECORDS)
            # The client counts its own requests, too.
            report(max(0, sent - len(producer)))
    _wait_for_broker(producer, 0)
    report(sent)
    return sent


def _wait_for_broker(producer: Producer, waiting_records: int) -> None:
    """Return when at most ``waiting_records`` are unacknowledged. Raises TimeoutError if their number stands still.

    A fatal error raises KafkaException by itself: with the next record, or here.
    """
    waiting, deadline = len(producer), monotonic() + ANSWER_SECONDS
    while waiting > waiting_records:
        left = producer.flush(0.1)
        if left < waiting:
            waiting, deadline = left, monotonic() + ANSWER_SECONDS
        elif monotonic() > deadline:
            raise TimeoutError(f"no record was acknowledged for {ANSWER_SECONDS:.0f} s")
