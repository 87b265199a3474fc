"""What every question to the brokers has in common: a bounded wait, patience with brokers that settle, one typed error.

Needs DESCRIBE on the topics. A list of offsets takes one request to each broker for every 250 partitions, several at
once. The client looks each answer up among all that were asked for together: 10,000 partitions took 1.8 s in one
request, 0.35 s in requests of 250. A consumer asks, in no group, although it looks for the coordinator of one. The
admin client makes a future of each partition: four times the work, all of it in Python, and no page is answered
meanwhile (ADR 0022). Four of 135 lists of four partitions waited for 3 s there (librdkafka 2.16).
"""

import logging
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager
from enum import StrEnum
from time import monotonic
from typing import Any, TypeVar

from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, OFFSET_INVALID, Consumer, KafkaError, KafkaException
from confluent_kafka import TopicPartition as KafkaTopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource
from tenacity import retry, retry_if_exception, stop_after_delay, wait_fixed

from batchledger.model.errors import ServiceUnavailableError
from batchledger.model.offsets import TopicPartition
from batchledger.source.kafka.clients import OUTSIDE_OF_GROUPS, REQUEST_TIMEOUT_SECONDS, client_options
from batchledger.source.kafka.refusals import find_cause, refuse

SETTLING_ERRORS = (
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.OFFSET_NOT_AVAILABLE,
    KafkaError.UNKNOWN_LEADER_EPOCH,
    KafkaError.FENCED_LEADER_EPOCH,
    # The client itself says so if it knows no leader of a partition: its admin, and its consumer.
    KafkaError._NOENT,
    KafkaError._UNKNOWN_PARTITION,
)

PARTITIONS_IN_REQUEST = 250
REQUESTS_AT_ONCE = 8
FIRST_PATIENCE_SECONDS = 0.25
"""A new client that asks for leaders over its first connection as it gives that up asks again after 0.7 s."""

# A list of offsets is asked for these instead of a moment; the protocol has the same numbers.
EARLIEST, LATEST = OFFSET_BEGINNING, OFFSET_END

_ABSENT = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION)

_left_behind: list[AdminClient] = []

Item = TypeVar("Item")
Result = TypeVar("Result")

_log = logging.getLogger(__name__)


class Isolation(StrEnum):
    """Which records a consumer is shown."""

    COMMITTED = "read_committed"
    UNCOMMITTED = "read_uncommitted"


@contextmanager
def kafka_call(action: str, options: Mapping[str, str]) -> Iterator[None]:
    """Translate what a Kafka client raises inside the block.

    Raises ServiceUnavailableError, and AccessRefusedError or ConfigurationError when waiting would not help.
    """
    try:
        yield
    except (KafkaException, TimeoutError) as error:
        cause = find_cause(error)
        raise refuse(action, options, cause) or ServiceUnavailableError(
            f"could not {action}. Nothing was changed.",
            why=f"Kafka at {options.get('bootstrap.servers')} says: {cause.str() or 'no answer'}.",
            advice="Run the step again when the broker answers; batchledger up starts the local one.",
            subject=options.get("bootstrap.servers"),
        ) from error


class _Client(AdminClient):
    """Ends only in a thread of Python's.

    If one of its own threads destroys a client, the process aborts. Answers arrive in such a thread, and the garbage
    collector may run there and find the client: after an error it is part of a cycle of frames.
    """

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._thread = threading.get_ident()
        super().__init__(dict(options))

    def __del__(self) -> None:
        if threading.get_ident() != self._thread:
            _left_behind.append(self)


def open_admin(options: Mapping[str, Any]) -> AdminClient:
    """Return a client for questions and orders about topics; it has to live until their answers are there."""
    # These would have ended in another thread.
    _left_behind.clear()
    return _Client(options)


def wait(future: "Future[Result]") -> Result:
    """Return the answer to a request. Its client has to live as long, else it fails with "Handle is terminating"."""
    return future.result(timeout=REQUEST_TIMEOUT_SECONDS + 2)


def wait_if_present(future: "Future[Result]") -> Result | None:
    """Return the answer to a request about a topic; None if there is no such topic. Otherwise as ``wait``."""
    try:
        return wait(future)
    except KafkaException as error:
        if error.args[0].code() in _ABSENT:
            return None
        raise


def _is_settling(error: BaseException) -> bool:
    return isinstance(error, KafkaException) and error.args[0].code() in SETTLING_ERRORS


def list_offsets(
    options: Mapping[str, str],
    partitions: Sequence[TopicPartition],
    at: int,
    isolation: Isolation = Isolation.COMMITTED,
) -> dict[TopicPartition, int]:
    """Return one offset of each partition: the first of a record that is not older than ``at``, in milliseconds.

    It is negative if there is no such record. ``EARLIEST`` asks for the log start, and ``LATEST`` for the last
    stable offset, or the high watermark, as ``isolation`` says (S21).
    """
    with closing(open_consumer(options, isolation)) as consumer:
        return ask_offsets(consumer, partitions, at)


def open_consumer(options: Mapping[str, str], isolation: Isolation) -> Consumer:
    """Return a consumer in no group, which asks and commits nothing."""
    return Consumer({**client_options(options), **OUTSIDE_OF_GROUPS, "isolation.level": isolation})


@retry(
    retry=retry_if_exception(_is_settling),
    stop=stop_after_delay(REQUEST_TIMEOUT_SECONDS),
    wait=wait_fixed(0.2),
    reraise=True,
)
def ask_offsets(consumer: Consumer, partitions: Sequence[TopicPartition], at: int) -> dict[TopicPartition, int]:
    """See ``list_offsets``; the isolation is the consumer's."""
    deadline = monotonic() + REQUEST_TIMEOUT_SECONDS

    def ask(part: Sequence[TopicPartition]) -> list[KafkaTopicPartition]:
        asked, patience = [to_kafka(each, at) for each in part], FIRST_PATIENCE_SECONDS
        while (left_seconds := deadline - monotonic()) > 0:
            try:
                return consumer.offsets_for_times(asked, timeout=min(left_seconds, patience))
            except KafkaException as error:
                if left_seconds <= patience or error.args[0].code() != KafkaError._TIMED_OUT:
                    raise
            patience *= 2
        raise TimeoutError(f"no answer within {REQUEST_TIMEOUT_SECONDS:.0f} s")

    with ThreadPoolExecutor(REQUESTS_AT_ONCE) as pool:
        found = [each for answer in pool.map(ask, split(partitions, PARTITIONS_IN_REQUEST)) for each in answer]
    for each in found:
        if each.error is not None:
            raise KafkaException(each.error)
    return {TopicPartition(each.topic, each.partition): each.offset for each in found}


def list_bounds(
    options: Mapping[str, str], partitions: Sequence[TopicPartition]
) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int], dict[TopicPartition, int]]:
    """Return the log start, the last stable offset and the high watermark of each partition.

    The high watermark is never below the last stable offset.
    """
    with (
        closing(open_consumer(options, Isolation.COMMITTED)) as committed,
        closing(open_consumer(options, Isolation.UNCOMMITTED)) as uncommitted,
        # Most of the time goes into the start of the consumers.
        ThreadPoolExecutor(1) as pool,
    ):
        starts = pool.submit(ask_offsets, committed, partitions, EARLIEST)
        # In this order: records that arrive in between would otherwise look as if a transaction held them back.
        watermarks = ask_offsets(uncommitted, partitions, LATEST)
        ends = ask_offsets(committed, partitions, LATEST)
    return starts.result(), ends, {each: max(watermarks[each], ends[each]) for each in ends}


def split(partitions: Sequence[Item], size: int) -> Iterator[list[Item]]:
    """Yield the partitions, ``size`` at a time."""
    for at in range(0, len(partitions), size):
        yield list(partitions[at : at + size])


def describe_topic_configs(options: Mapping[str, str], topics: Sequence[str]) -> dict[str, dict[str, str]]:
    """Return the settings in force of each topic, the cluster's defaults included.

    A topic is absent, and named in the log, if this user may not DESCRIBE_CONFIGS of it.
    """
    if not topics:
        return {}
    admin = open_admin(client_options(options))
    answers = admin.describe_configs(
        [ConfigResource(ConfigResource.Type.TOPIC, topic) for topic in topics], request_timeout=REQUEST_TIMEOUT_SECONDS
    )
    found = {}
    for resource, future in answers.items():
        try:
            found[resource.name] = {name: entry.value for name, entry in wait(future).items()}
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_AUTHORIZATION_FAILED:
                raise
            _log.warning("settings of topic %s stay unknown: grant DESCRIBE_CONFIGS on it", resource.name)
    return found


def to_kafka(partition: TopicPartition, offset: int = OFFSET_INVALID) -> KafkaTopicPartition:
    """Return the client's own form of a partition, at an offset if one is given."""
    return KafkaTopicPartition(partition.topic, partition.partition, offset)
