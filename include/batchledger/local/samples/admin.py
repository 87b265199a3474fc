"""Create topics for sample data, and ask where their partitions end. Translation only.

Each function waits for its futures while the AdminClient is alive: a future that outlives the client fails with
"Handle is terminating". Raises ServiceUnavailableError within ``ANSWER_SECONDS`` if no broker answers.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from time import monotonic, sleep
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec
from tenacity import retry, retry_if_exception, stop_after_delay, wait_fixed

from batchledger.model.errors import ServiceUnavailableError, SetupError
from batchledger.source.kafka.requests import SETTLING_ERRORS, open_admin

ANSWER_SECONDS = 20.0
KEEP_FOREVER: Mapping[str, str] = {"retention.ms": "-1"}
"""For records with timestamps in the past: the default retention deletes them at once."""


def ensure_topic(options: Mapping[str, str], topic: str, partitions: int, config: Mapping[str, str]) -> None:
    """Make the topic exist with that many partitions, all of them ready for writes.

    A missing topic gets one replica and ``config``; an existing topic keeps its configuration. Raises SetupError if it
    exists with another number of partitions, because keys would then map elsewhere.
    """
    with _admin_client(options) as client:
        if _count_partitions(client, topic) is None:
            _create_topic(client, topic, partitions, config)
        found = _wait_until_led(client, topic)
    if found != partitions:
        raise SetupError(
            f"Topic {topic} on {options['bootstrap.servers']} has {found} partitions, expected {partitions}.",
            why="With another number of partitions, keys map to other partitions.",
            advice="Use a topic of another name, or delete it and let it be created again.",
            subject=topic,
        )


def find_ends(options: Mapping[str, str], topic: str, partitions: int) -> dict[int, int]:
    """Return the end offset (high watermark) of every partition."""
    keys = [TopicPartition(topic, partition) for partition in range(partitions)]
    with _admin_client(options) as client:
        return _list_offsets(client, keys, OffsetSpec.latest())


def require_beginning(options: Mapping[str, str], topic: str, partitions: int) -> None:
    """Raise SetupError unless every partition begins at offset 0: otherwise its end does not say what it has held."""
    keys = [TopicPartition(topic, partition) for partition in range(partitions)]
    with _admin_client(options) as client:
        starts = _list_offsets(client, keys, OffsetSpec.earliest())
    shortened = [f"{topic}[{partition}] begins at {start}" for partition, start in starts.items() if start > 0]
    if shortened:
        raise SetupError(
            f"The beginning of topic {topic} was deleted. Nothing was written.",
            why=f"{', '.join(shortened)}, expected 0. So the end offsets do not say which records are missing.",
            advice="Delete the topic, create it with retention.ms=-1 and feed it again.\n"
            "Or add made-up records: --records 10000",
            subject=topic,
        )


def describe(error: Exception | KafkaError) -> str:
    """Return the words of Kafka or its client about an error, without the wrapping of the client."""
    cause = error.args[0] if isinstance(error, KafkaException) else error
    return cause.str() if isinstance(cause, KafkaError) else str(cause)


@contextmanager
def _admin_client(options: Mapping[str, str]) -> Iterator[AdminClient]:
    """Lend a client. Its errors become a typed error that names the brokers and the last trouble with them."""
    reported: list[KafkaError] = []
    settings: dict[str, Any] = {**options, "log_level": 0, "error_cb": reported.append}
    client = open_admin(settings)
    try:
        yield client
    except (KafkaException, TimeoutError) as error:
        cause = describe(reported[-1] if reported else error)
        raise ServiceUnavailableError(
            f"Kafka at {options['bootstrap.servers']} did not do what was asked.",
            why=cause,
            advice="Check the address and the broker. Start the local one: batchledger up",
        ) from error


def _knows_no_broker(error: BaseException) -> bool:
    """Whether the cluster has no broker for this moment: its only one registers again after a stall."""
    return isinstance(error, KafkaException) and error.args[0].code() == KafkaError._PARTIAL


@retry(
    retry=retry_if_exception(_knows_no_broker),
    stop=stop_after_delay(ANSWER_SECONDS),
    wait=wait_fixed(0.2),
    reraise=True,
)
def _count_partitions(client: AdminClient, topic: str) -> int | None:
    """Return how many partitions the topic has, None if there is no such topic. The lookup creates nothing."""
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

    A new partition is announced before its leader takes it up; until then the leader refuses.
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
