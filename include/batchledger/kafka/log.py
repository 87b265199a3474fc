"""The SourceLog port on a Kafka cluster: identity and readable ends of partitions, read as metadata only.

Needs DESCRIBE on the topics and no group rights (S133, S134), except for the courtesy commit. Two requests to each
broker answer for all partitions, so that 10,000 of them cost about as much as one.
"""

from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, TypeVar

from confluent_kafka import Consumer, IsolationLevel, KafkaError, KafkaException, TopicCollection
from confluent_kafka import TopicPartition as KafkaTopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec
from tenacity import retry, retry_if_exception, stop_after_delay, wait_fixed

from batchledger.batch import LogState, PartitionLog, TopicIdentity
from batchledger.errors import ServiceUnavailableError
from batchledger.kafka.settling import SETTLING_ERRORS
from batchledger.offsets import TopicPartition

REQUEST_TIMEOUT_SECONDS = 10.0

_ABSENT = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION)

Result = TypeVar("Result")


def _is_settling(error: BaseException) -> bool:
    return isinstance(error, KafkaException) and error.args[0].code() in SETTLING_ERRORS


@dataclass(frozen=True)
class KafkaLog:
    """See the port. ``options`` are checked librdkafka options (``kafka.client_options``)."""

    options: Mapping[str, str] = field(repr=False)

    def read_log(self, topics: Sequence[str]) -> LogState:
        """See the port. Ends are last stable offsets (read_committed, S21)."""
        with _KafkaCall(f"read the state of {', '.join(topics)}", self.options):
            admin = self._admin()
            cluster = admin.describe_cluster(request_timeout=REQUEST_TIMEOUT_SECONDS)
            described = admin.describe_topics(TopicCollection(list(topics)), request_timeout=REQUEST_TIMEOUT_SECONDS)
            cluster_id = _wait(cluster).cluster_id
            found = {topic: answer for topic, future in described.items() if (answer := _wait_if_present(future))}
            partitions = [
                TopicPartition(topic, partition.id)
                for topic, answer in found.items()
                for partition in answer.partitions
            ]
            starts = self._list_offsets(admin, partitions, OffsetSpec.earliest())
            ends = self._list_offsets(admin, partitions, OffsetSpec.latest())
        return LogState(
            {topic: TopicIdentity(cluster_id, str(answer.topic_id)) for topic, answer in found.items()},
            {each: PartitionLog(starts[each], ends[each]) for each in partitions},
        )

    def find_offsets(self, partitions: Sequence[TopicPartition], at: datetime) -> Mapping[TopicPartition, int]:
        """See the port."""
        with _KafkaCall(f"find the offsets at {at.isoformat()}", self.options):
            milliseconds = int(at.timestamp() * 1000)
            found = self._list_offsets(self._admin(), partitions, OffsetSpec.for_timestamp(milliseconds))
        return {partition: offset for partition, offset in found.items() if offset >= 0}

    def commit_courtesy(self, group: str, next_offset_by_partition: Mapping[TopicPartition, int]) -> None:
        """See the port."""
        with _KafkaCall(f"commit the offsets of group {group}", self.options):
            moved = [
                KafkaTopicPartition(each.topic, each.partition, offset)
                for each, offset in next_offset_by_partition.items()
            ]
            # A commit waits for its coordinator as long as a session lasts, by default 45 s.
            session = {"session.timeout.ms": int(REQUEST_TIMEOUT_SECONDS * 1000), "enable.auto.commit": False}
            consumer = Consumer({**self._client_options(), **session, "group.id": group})
            try:
                consumer.commit(offsets=moved, asynchronous=False)
            finally:
                consumer.close()

    def _admin(self) -> AdminClient:
        return AdminClient(self._client_options())

    def _client_options(self) -> dict[str, Any]:
        # librdkafka reports every failed connection on its own; our error says it once.
        return {**self.options, "socket.timeout.ms": int(REQUEST_TIMEOUT_SECONDS * 1000), "log_level": 0}

    @retry(
        retry=retry_if_exception(_is_settling),
        stop=stop_after_delay(REQUEST_TIMEOUT_SECONDS),
        wait=wait_fixed(0.2),
        reraise=True,
    )
    def _list_offsets(
        self, admin: AdminClient, partitions: Sequence[TopicPartition], spec: OffsetSpec
    ) -> dict[TopicPartition, int]:
        if not partitions:
            return {}
        answers = admin.list_offsets(
            {KafkaTopicPartition(each.topic, each.partition): spec for each in partitions},
            isolation_level=IsolationLevel.READ_COMMITTED,
            request_timeout=REQUEST_TIMEOUT_SECONDS,
        )
        return {TopicPartition(each.topic, each.partition): _wait(future).offset for each, future in answers.items()}


class _KafkaCall:
    """Translates what a Kafka client raises inside the block into ServiceUnavailableError."""

    def __init__(self, action: str, options: Mapping[str, str]) -> None:
        self._action = action
        self._servers = options.get("bootstrap.servers")

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, KafkaException | TimeoutError):
            reason = error.args[0].str() if error.args and isinstance(error.args[0], KafkaError) else str(error)
            raise ServiceUnavailableError(
                f"could not {self._action}: Kafka at {self._servers} says: {reason or 'no answer'}. Nothing was "
                "changed; the step can be run again when the broker answers.",
                bootstrap_servers=self._servers,
            ) from error


def _wait(future: "Future[Result]") -> Result:
    return future.result(timeout=REQUEST_TIMEOUT_SECONDS + 2)


def _wait_if_present(future: "Future[Result]") -> Result | None:
    try:
        return _wait(future)
    except KafkaException as error:
        if error.args[0].code() in _ABSENT:
            return None
        raise
