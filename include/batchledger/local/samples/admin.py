"""Creates topics for sample data and asks where their partitions end. Translation only.

Every future is waited for while its AdminClient is alive: a future that outlives the client fails with "Handle is
terminating". Raises ServiceUnavailableError within ``ANSWER_SECONDS`` when no broker answers.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from time import monotonic, sleep
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

from batchledger.adapters.kafka.requests import open_admin
from batchledger.adapters.kafka.settling import SETTLING_ERRORS
from batchledger.model.errors import ServiceUnavailableError, SetupError

ANSWER_SECONDS = 20.0
KEEP_FOREVER: Mapping[str, str] = {"retention.ms": "-1"}
"""For records whose timestamps lie in the past: the default retention would delete them at once."""


def ensure_topic(options: Mapping[str, str], topic: str, partitions: int, config: Mapping[str, str]) -> None:
    """Make the topic exist with that many partitions, every one of them ready to be written to.

    Creates it with one replica and ``config`` when it is missing; an existing topic keeps the configuration it has.
    Raises SetupError when it exists with another number of partitions, because keys would then map elsewhere.
    """
    with _admin_client(options) as client:
        if _count_partitions(client, topic) is None:
            _create_topic(client, topic, partitions, config)
        found = _wait_until_led(client, topic)
    if found != partitions:
        raise SetupError(
            f"topic {topic} on {options['bootstrap.servers']} has {found} partitions, expected {partitions}. Use the "
            "topic of another name, or delete it and let it be created again.",
            subject=topic,
        )


def find_ends(options: Mapping[str, str], topic: str, partitions: int) -> dict[int, int]:
    """Return the end offset (high watermark) of every partition."""
    keys = [TopicPartition(topic, partition) for partition in range(partitions)]
    with _admin_client(options) as client:
        return _list_offsets(client, keys, OffsetSpec.latest())


def require_beginning(options: Mapping[str, str], topic: str, partitions: int) -> None:
    """Raise SetupError unless every partition begins at offset 0: else its end does not tell what it ever held."""
    keys = [TopicPartition(topic, partition) for partition in range(partitions)]
    with _admin_client(options) as client:
        starts = _list_offsets(client, keys, OffsetSpec.earliest())
    shortened = [f"{topic}[{partition}] begins at {start}" for partition, start in starts.items() if start > 0]
    if shortened:
        raise SetupError(
            f"the beginning of topic {topic} was deleted: {', '.join(shortened)}, expected 0. What is missing cannot "
            "be told any more; delete the topic, create it with retention.ms=-1 and feed it again. To add made-up "
            "records instead: add --records 10000.",
            subject=topic,
        )


def describe(error: Exception | KafkaError) -> str:
    """Return what Kafka or its client says went wrong, without the wrapping of the client's error objects."""
    cause = error.args[0] if isinstance(error, KafkaException) else error
    return cause.str() if isinstance(cause, KafkaError) else str(cause)


@contextmanager
def _admin_client(options: Mapping[str, str]) -> Iterator[AdminClient]:
    """Lend a client; what it raises becomes a typed error that names the brokers and the last trouble with them."""
    reported: list[KafkaError] = []
    settings: dict[str, Any] = {**options, "log_level": 0, "error_cb": reported.append}
    client = open_admin(settings)
    try:
        yield client
    except (KafkaException, TimeoutError) as error:
        cause = describe(reported[-1] if reported else error)
        raise ServiceUnavailableError(
            f"Kafka at {options['bootstrap.servers']} did not do what was asked: {cause}. Check the address and the "
            "broker; the local one is started with: batchledger up.",
        ) from error


def _count_partitions(client: AdminClient, topic: str) -> int | None:
    """Return how many partitions the topic has, None when there is no such topic. The lookup creates nothing."""
    found = client.list_topics(timeout=ANSWER_SECONDS).topics.get(topic)
    return None if found is None else len(found.partitions)


def _create_topic(client: AdminClient, topic: str, partitions: int, config: Mapping[str, str]) -> None:
    new = NewTopic(topic, num_partitions=partitions, replication_factor=1, config=dict(config))
    try:
        client.create_topics([new], request_timeout=ANSWER_SECONDS)[topic].result()
    except KafkaException as error:
        if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
            raise


def _wait_until_led(client: AdminClient, topic: str) -> int:
    """Return how many partitions the topic has, once each is led by a broker that knows it.

    A partition that was just created is announced before its leader takes it up: until then the leader refuses.
    """
    deadline = monotonic() + ANSWER_SECONDS
    while monotonic() < deadline:
        try:
            keys = [TopicPartition(topic, each) for each in range(_count_partitions(client, topic) or 0)]
            if keys and _list_offsets(client, keys, OffsetSpec.latest()):
                return len(keys)
        except KafkaException as error:
            if error.args[0].code() not in SETTLING_ERRORS:
                raise
        sleep(0.05)
    raise TimeoutError(f"topic {topic} has had partitions without a leader for {ANSWER_SECONDS:.0f} s")


def _list_offsets(client: AdminClient, keys: list[TopicPartition], spec: OffsetSpec) -> dict[int, int]:
    futures = client.list_offsets(dict.fromkeys(keys, spec), request_timeout=ANSWER_SECONDS)
    return {key.partition: future.result().offset for key, future in futures.items()}
