"""What a producer's errors mean for a batch: refused for good, fenced, or no answer. Translation only."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from confluent_kafka import KafkaError, KafkaException

from batchledger.model.batch import Attempt
from batchledger.model.errors import BatchledgerError, FencedError, ServiceUnavailableError, TargetRefusedError
from batchledger.sinks.topic.commits import group_of
from batchledger.source.kafka.refusals import find_cause, refuse

_FENCED = (KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH)
_CONSEQUENCES = (KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT)
_ABSENT = (KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION, KafkaError.UNKNOWN_TOPIC_OR_PART)

# What brokers answer for a while only. Their other errors, which have positive numbers, would come again.
_PASSING = frozenset(
    {
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.REQUEST_TIMED_OUT,
        KafkaError.BROKER_NOT_AVAILABLE,
        KafkaError.REPLICA_NOT_AVAILABLE,
        KafkaError.NETWORK_EXCEPTION,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.NOT_COORDINATOR,
        KafkaError.NOT_CONTROLLER,
        KafkaError.NOT_ENOUGH_REPLICAS,
        KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER,
        KafkaError.UNKNOWN_PRODUCER_ID,
        KafkaError.INVALID_PRODUCER_ID_MAPPING,
        KafkaError.CONCURRENT_TRANSACTIONS,
        KafkaError.TRANSACTION_COORDINATOR_FENCED,
        KafkaError.KAFKA_STORAGE_ERROR,
        KafkaError.FENCED_LEADER_EPOCH,
        KafkaError.UNKNOWN_LEADER_EPOCH,
        KafkaError.UNSTABLE_OFFSET_COMMIT,
        KafkaError.THROTTLING_QUOTA_EXCEEDED,
    }
)


NOTHING_VISIBLE = "Nothing of the batch is visible."


class RefusedRecordError(Exception):
    """The client or the broker has given a record up; ``explaining`` makes a typed error of it."""

    def __init__(self, cause: KafkaError, where: str) -> None:
        super().__init__(cause, where)
        self.cause = cause
        self.where = where


def is_fenced(error: KafkaError) -> bool:
    """Whether the broker says that this producer is not the latest of its transactional id."""
    return error.code() in _FENCED


def is_refused(error: KafkaError) -> bool:
    """Whether the same request would be refused again."""
    code = error.code()
    return code in _ABSENT or (code > 0 and code not in _PASSING and code not in _FENCED)


def is_passing(error: BaseException) -> bool:
    """Whether brokers answer so for a while only, as they do when they take up a partition or a group."""
    return isinstance(error, KafkaException) and error.args[0].code() in _PASSING


def is_retriable(error: BaseException) -> bool:
    """Whether the client says that the same call may succeed if it is made again."""
    return isinstance(error, KafkaException) and error.args[0].retriable()


def is_consequence(error: KafkaError) -> bool:
    """Whether the client gave the record up because of another one, or because it was asked to."""
    return error.code() in _CONSEQUENCES


def explain(
    error: KafkaError, topic: str, servers: str, attempt: Attempt, where: str, *, consequence: str = NOTHING_VISIBLE
) -> BatchledgerError:
    """Return what to raise for a batch that is not committed. ``where`` names what was being done.

    Example of ``where``: ``record orders[3]@1207``.
    """
    subject = f"{attempt.batch.label} could not be written to topic {topic} on {servers} ({where})"
    if is_fenced(error):
        return FencedError(
            f"{subject}: attempt {attempt.number} commits nothing any more.",
            why="Kafka says that a newer producer of the pipeline has taken over.",
            advice="The newer attempt finds out whether the batch was committed.",
            batch_id=attempt.batch.batch_id,
        )
    if is_refused(error):
        return TargetRefusedError(
            f"{subject}. {consequence}",
            why=f"Kafka refused: {_say(error)}.",
            advice=_advise(error, topic, attempt),
            batch_id=attempt.batch.batch_id,
            subject=topic,
        )
    return ServiceUnavailableError(
        f"{subject}. {consequence}",
        why=f"Kafka says: {_say(error)}.",
        advice="Run the step again when the broker answers; batchledger up starts the local one.",
        subject=servers,
    )


def _say(error: KafkaError) -> str:
    """Return what the client says; its text may lack the reason at its end."""
    text = str(error.str())
    return f"{text}{error.name()}" if text.endswith(": ") else text


@contextmanager
def explaining(
    options: Mapping[str, str], topic: str, attempt: Attempt, where: str, *, consequence: str = NOTHING_VISIBLE
) -> Iterator[None]:
    """Translate what a Kafka client raises inside the block. Use it only while the batch is not committed."""
    try:
        yield
    except (KafkaException, RefusedRecordError, TimeoutError) as error:
        cause, place = _find_cause(error, where)
        servers = options["bootstrap.servers"]
        if not (is_fenced(cause) or is_refused(cause)):
            action, batch_id = f"write {attempt.batch.label} to topic {topic}", attempt.batch.batch_id
            refusal = refuse(action, options, cause, consequence=consequence, batch_id=batch_id)
            if refusal is not None:
                raise refusal from error
        raise explain(cause, topic, servers, attempt, place, consequence=consequence) from error


def _find_cause(error: KafkaException | RefusedRecordError | TimeoutError, where: str) -> tuple[KafkaError, str]:
    match error:
        case RefusedRecordError():
            return error.cause, error.where
        case _:
            return find_cause(error), where


_GONE = "The topic, or a source topic, was deleted meanwhile: find out by whom, and run the step again."
_TOO_LARGE = "Raise max.message.bytes of topic {topic}, or let the transform leave the record out."
_JOINED = "A consumer has joined group {group}, which is the pipeline's own: end it."
_ADVICE = {
    KafkaError.MSG_SIZE_TOO_LARGE: _TOO_LARGE,
    KafkaError.RECORD_LIST_TOO_LARGE: _TOO_LARGE,
    KafkaError.TOPIC_AUTHORIZATION_FAILED: (
        "Grant WRITE and DESCRIBE on topic {topic}, and READ on the source topics, to the sink's user."
    ),
    KafkaError.GROUP_AUTHORIZATION_FAILED: "Grant READ on group {group} to the sink's user.",
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: (
        "Grant WRITE and DESCRIBE on transactional id batchledger.{pipeline} to the sink's user."
    ),
    KafkaError.INVALID_RECORD: "A compacted topic takes no record without a key; the broker's log says more.",
    KafkaError.INVALID_TRANSACTION_TIMEOUT: (
        "Lower sink.transaction_timeout, or raise transaction.max.timeout.ms of the brokers."
    ),
    KafkaError.UNKNOWN_MEMBER_ID: _JOINED,
    KafkaError.ILLEGAL_GENERATION: _JOINED,
    **dict.fromkeys(_ABSENT, _GONE),
}
_OTHERWISE = "The broker's log says more; run the step again when the reason is gone."


def _advise(error: KafkaError, topic: str, attempt: Attempt) -> str:
    advice = _ADVICE.get(error.code(), _OTHERWISE)
    return advice.format(topic=topic, group=group_of(attempt.batch), pipeline=attempt.batch.pipeline)
