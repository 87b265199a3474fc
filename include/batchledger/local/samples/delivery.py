"""Write records with one of the four guarantees of Kafka's producers, and count what became of them.

The weaker ones are here to be looked at. Exactly once begins with the record in the topic: if a producer has lost a
record or written it twice, it stays lost or doubled.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from time import monotonic, sleep
from typing import Any

from confluent_kafka import KafkaError, KafkaException

from batchledger.local.samples.admin import ANSWER_SECONDS
from batchledger.local.samples.guarantee import Guarantee, Transactions
from batchledger.local.samples.producer import BULK_OPTIONS, ReportProgress, SampleRecord, produce, send, writing
from batchledger.model.offsets import TopicPartition
from batchledger.source.kafka.requests import LATEST, Isolation, kafka_call, list_offsets

SETTLING_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Deliveries:
    """What the producer knows of its records; ``sent = acknowledged + failed + unknown``.

    ``failed`` were refused. ``unknown`` were not acknowledged in time, and may be in the topic. With transactions also
    ``sent = committed + aborted``.
    """

    sent: int
    acknowledged: int
    failed: int = 0
    unknown: int = 0
    committed: int | None = None
    aborted: int | None = None


_OPTIONS: Mapping[Guarantee, Mapping[str, Any]] = {
    Guarantee.ACKS_0: {"acks": "0", "enable.idempotence": False},
    Guarantee.PLAIN: {"acks": "all", "enable.idempotence": False},
}
# Some errors of the broker leave open whether it has the record.
_UNDECIDED = (KafkaError.REQUEST_TIMED_OUT, KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND)


def deliver(
    options: Mapping[str, str],
    topic: str,
    partitions: int,
    records: Iterable[SampleRecord],
    *,
    guarantee: Guarantee,
    transactions: Transactions,
    report: ReportProgress,
) -> Deliveries:
    """Append ``records`` and return what became of them.

    Raises ServiceUnavailableError if the broker does not answer for ``ANSWER_SECONDS``. Idempotent and transactional
    producers also raise it, and stop, if a record could not be written.
    """
    match guarantee:
        case Guarantee.ACKS_0 | Guarantee.PLAIN:
            return _deliver_singly(options, topic, partitions, records, guarantee=guarantee, report=report)
        case Guarantee.IDEMPOTENT:
            sent = produce(options, topic, partitions, records, report)
            return Deliveries(sent, acknowledged=sent)
        case Guarantee.TRANSACTIONAL:
            return _deliver_in_transactions(
                options, topic, partitions, records, transactions=transactions, report=report
            )


def find_settled_end(options: Mapping[str, str], topic: str, partitions: int, expected: int) -> int:
    """Return the sum of the end offsets, once it is ``expected`` or more and every transaction has its marker.

    Markers and records without an acknowledgement may arrive late, or never: the wait ends after
    ``SETTLING_SECONDS``.
    """
    keys = [TopicPartition(topic, partition) for partition in range(partitions)]
    deadline = monotonic() + SETTLING_SECONDS
    with kafka_call(f"find the end of topic {topic}", options):
        while True:
            ends = list_offsets(options, keys, LATEST, Isolation.UNCOMMITTED)
            is_settled = sum(ends.values()) >= expected and list_offsets(options, keys, LATEST) == ends
            if is_settled or monotonic() > deadline:
                return sum(ends.values())
            sleep(0.05)


def _deliver_singly(
    options: Mapping[str, str],
    topic: str,
    partitions: int,
    records: Iterable[SampleRecord],
    *,
    guarantee: Guarantee,
    report: ReportProgress,
) -> Deliveries:
    bad = Counter[bool]()

    def note(error: KafkaError, _: object) -> None:
        """Count a record that was not acknowledged; with acks=0, one that did not leave the client."""
        bad[_is_refusal(error)] += 1

    # Each record times out, and is reported, before the wait for all of them ends.
    more = {"message.timeout.ms": int(ANSWER_SECONDS * 500), "on_delivery": note}
    with writing(options, topic, {**BULK_OPTIONS, **_OPTIONS[guarantee], **more}) as producer:
        sent = send(producer, topic, partitions, records, report)
    acknowledged = 0 if guarantee is Guarantee.ACKS_0 else sent - bad.total()
    return Deliveries(sent, acknowledged, failed=bad[True], unknown=sent - acknowledged - bad[True])


def _is_refusal(error: KafkaError) -> bool:
    """Whether the broker said no; errors of the client itself (negative codes) mean that no broker answered."""
    return error.code() > 0 and error.code() not in _UNDECIDED


def _deliver_in_transactions(
    options: Mapping[str, str],
    topic: str,
    partitions: int,
    records: Iterable[SampleRecord],
    *,
    transactions: Transactions,
    report: ReportProgress,
) -> Deliveries:
    """Write and decide one transaction after the other. All its records are in the log before it is decided.

    The id contains the topic. So a new start aborts what a killed producer left open, and fences one that still runs.
    """
    done = Deliveries(sent=0, acknowledged=0, committed=0, aborted=0)
    more = {"transactional.id": f"batchledger-produce-{topic}"}
    consequence = " What was committed stays; readers of committed records see nothing of the open transaction."
    with writing(options, topic, {**BULK_OPTIONS, **more}, consequence) as producer:
        producer.init_transactions(ANSWER_SECONDS)
        remaining, number = iter(records), 0
        while chunk := list(islice(remaining, transactions.records)):
            number += 1
            producer.begin_transaction()
            send(producer, topic, partitions, chunk, lambda _: None)
            if transactions.is_aborted(number):
                _decide(producer.abort_transaction)
                done = replace(done, aborted=(done.aborted or 0) + len(chunk))
            else:
                _decide(producer.commit_transaction)
                done = replace(done, committed=(done.committed or 0) + len(chunk))
            sent = done.sent + len(chunk)
            done = replace(done, sent=sent, acknowledged=sent)
            report(sent)
    return done


def _decide(commit_or_abort: Callable[[float], None]) -> None:
    """Commit or abort; ask again if the answer was lost. A repetition changes nothing (S104)."""
    deadline = monotonic() + ANSWER_SECONDS
    while True:
        try:
            commit_or_abort(ANSWER_SECONDS)
        except KafkaException as error:
            if not error.args[0].retriable() or monotonic() > deadline:
                raise
        else:
            return
