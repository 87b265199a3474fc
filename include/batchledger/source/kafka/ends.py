"""The ends of many topics, asked for again and again with one client: it reads no record and commits nothing.

A topic that is missing, or that this user may not describe, is left out, and harms no other.
"""

import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from confluent_kafka import Consumer, KafkaException, TopicCollection
from confluent_kafka import TopicPartition as KafkaTopicPartition

from batchledger.model.offsets import TopicPartition
from batchledger.source.kafka.clients import REQUEST_TIMEOUT_SECONDS, client_options
from batchledger.source.kafka.requests import (
    LATEST,
    PARTITIONS_IN_REQUEST,
    Isolation,
    kafka_call,
    open_admin,
    open_consumer,
    split,
    to_kafka,
    wait_if_present,
)

logger = logging.getLogger(__name__)


@dataclass
class LogEnds:
    """``options`` are checked librdkafka options. Needs DESCRIBE on the topics and no group rights."""

    options: Mapping[str, str] = field(repr=False)
    # It is never closed: another thread may still wait for an answer. It ends with the last reference.
    _consumer: Consumer | None = None
    _partitions: list[TopicPartition] = field(default_factory=list)
    _questions: list[list[KafkaTopicPartition]] = field(default_factory=list)
    _refused: frozenset[str] = frozenset()

    def list_partitions(self, topics: Collection[str]) -> Sequence[TopicPartition]:
        """Return the partitions that the topics have now; none of a topic that is absent or refused.

        Raises ServiceUnavailableError, and AccessRefusedError if every topic is refused.
        """
        found: list[TopicPartition] = []
        if not topics:
            return found
        with kafka_call("list the partitions of topics", self.options):
            admin = open_admin(client_options(self.options))
            asked = admin.describe_topics(TopicCollection(sorted(topics)), request_timeout=REQUEST_TIMEOUT_SECONDS)
            refused: dict[str, KafkaException] = {}
            for topic, future in asked.items():
                try:
                    answer = wait_if_present(future)
                except KafkaException as error:
                    refused[topic] = error
                else:
                    found += [] if answer is None else [TopicPartition(topic, each.id) for each in answer.partitions]
            if refused and len(refused) == len(asked):
                raise next(iter(refused.values()))
        if refused.keys() - self._refused:
            logger.warning("no record of topic %s starts a run: Kafka refuses to describe it", ", ".join(refused))
        self._refused = frozenset(refused)
        if found != self._partitions:
            # A client that has seen a topic would not learn of its new partitions for minutes.
            self._consumer = open_consumer(self.options, Isolation.COMMITTED)
            self._partitions = found
            self._questions = list(split([to_kafka(each, LATEST) for each in found], PARTITIONS_IN_REQUEST))
        return found

    def read(self) -> list[int | None]:
        """Return the last stable offset of each listed partition, in their order; None if it does not answer (S21).

        Raises ServiceUnavailableError.
        """
        if self._consumer is None:
            return []
        with kafka_call("read the ends of topics", self.options):
            return [
                each.offset if each.error is None and each.offset >= 0 else None
                for part in self._questions
                for each in self._consumer.offsets_for_times(part, timeout=REQUEST_TIMEOUT_SECONDS)
            ]
