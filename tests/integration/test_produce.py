"""Sample records reach a real broker each once and in order, whatever happens in between."""

import multiprocessing
import os
import socket
import uuid
from collections.abc import Iterator
from itertools import islice
from time import monotonic

import pytest
from confluent_kafka import Consumer, KafkaError, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource

from batchledger.local.samples import admin, delivery, producer
from batchledger.local.samples.admin import KEEP_FOREVER, ensure_topic, find_ends
from batchledger.local.samples.delivery import Deliveries, deliver, find_settled_end
from batchledger.local.samples.flights import FLIGHT_COUNT, read_flights
from batchledger.local.samples.guarantee import Guarantee, Transactions
from batchledger.local.samples.producer import Fed, SampleRecord, choose_partition, feed, produce
from batchledger.local.samples.synthetic import synthesize_records
from batchledger.model.errors import ServiceUnavailableError, SetupError
from batchledger.model.records.columns import parse_columns
from batchledger.source.kafka.requests import Isolation
from tests.conftest import Kafka
from tests.proxy import Loss, lossy_proxy
from tests.support import wait_until

PARTITIONS = 3
COLUMNS = parse_columns("message_id string, amount double")
AT_ONCE = Transactions(records=1_000)


@pytest.fixture
def options(kafka: Kafka) -> dict[str, str]:
    return kafka.options


@pytest.fixture
def topic(options: dict[str, str]) -> str:
    name = f"produce-{uuid.uuid4().hex}"
    ensure_topic(options, name, PARTITIONS, KEEP_FOREVER)
    return name


def test_every_record_is_written_once_and_in_order(options: dict[str, str], topic: str) -> None:
    records = list(synthesize_records(COLUMNS, 20_000))
    progress: list[int] = []
    assert feed(options, topic, PARTITIONS, records, progress.append) == Fed(already_there=0, sent=20_000)
    assert read_topic(options, topic) == divide(records)
    assert progress == sorted(progress)
    assert progress[-1] == 20_000


def test_feeding_again_sends_nothing(options: dict[str, str], topic: str) -> None:
    records = list(synthesize_records(COLUMNS, 1_000))
    feed(options, topic, PARTITIONS, records, ignore)
    assert feed(options, topic, PARTITIONS, records, ignore) == Fed(already_there=1_000, sent=0)
    assert read_topic(options, topic) == divide(records)


def test_feed_killed_in_the_middle_is_continued_without_loss_or_doubling(options: dict[str, str], topic: str) -> None:
    records = list(synthesize_records(COLUMNS, 300_000))
    context = multiprocessing.get_context("spawn")
    first_reports = context.Event()
    victim = context.Process(target=feed_and_report, args=(options, topic, len(records), first_reports))
    victim.start()
    assert first_reports.wait(60)
    victim.kill()
    victim.join(30)
    survived = sum(find_ends(options, topic, PARTITIONS).values())
    assert 0 < survived < len(records)
    assert feed(options, topic, PARTITIONS, records, ignore) == Fed(survived, len(records) - survived)
    assert read_topic(options, topic) == divide(records)


def test_feed_whose_input_fails_is_continued_without_loss_or_doubling(options: dict[str, str], topic: str) -> None:
    records = list(synthesize_records(COLUMNS, 100_000))

    def fail_late() -> Iterator[SampleRecord]:
        yield from islice(records, 80_000)
        raise OSError("disk gone")

    with pytest.raises(OSError, match="disk gone"):
        feed(options, topic, PARTITIONS, fail_late(), ignore)
    fed = feed(options, topic, PARTITIONS, records, ignore)
    assert 80_000 - producer.WAITING_RECORDS <= fed.already_there <= 80_000
    assert read_topic(options, topic) == divide(records)


def test_a_record_that_the_broker_refuses_leaves_no_gap(options: dict[str, str]) -> None:
    topic = f"produce-{uuid.uuid4().hex}"
    ensure_topic(options, topic, PARTITIONS, {**KEEP_FOREVER, "max.message.bytes": "200000"})
    records = list(synthesize_records(COLUMNS, 20_000))
    records[10_000] = SampleRecord(b"large", os.urandom(400_000))
    with pytest.raises(ServiceUnavailableError, match="without a gap"):
        feed(options, topic, PARTITIONS, records, ignore)
    found = read_topic(options, topic)
    for partition, expected in divide(records).items():
        assert found[partition] == expected[: len(found[partition])]


def test_all_flights_of_2013_stay_in_the_topic(options: dict[str, str]) -> None:
    topic = f"flights-{uuid.uuid4().hex}"
    ensure_topic(options, topic, 4, KEEP_FOREVER)
    assert feed(options, topic, 4, read_flights(), ignore) == Fed(0, FLIGHT_COUNT)
    assert find_ends(options, topic, 4) == {0: 78543, 1: 86969, 2: 86054, 3: 85210}
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
    client = AdminClient(options)
    assert client.describe_configs([resource])[resource].result()["retention.ms"].value == "-1"


def test_ensuring_a_topic_twice_keeps_its_records(options: dict[str, str], topic: str) -> None:
    produce(options, topic, PARTITIONS, synthesize_records(COLUMNS, 10), ignore)
    ensure_topic(options, topic, PARTITIONS, KEEP_FOREVER)
    assert sum(find_ends(options, topic, PARTITIONS).values()) == 10


def test_topic_with_another_number_of_partitions_is_refused(options: dict[str, str], topic: str) -> None:
    with pytest.raises(SetupError, match="has 3 partitions, expected 4") as refused:
        ensure_topic(options, topic, 4, KEEP_FOREVER)
    assert refused.value.subject == topic


def test_topic_whose_beginning_was_deleted_is_named(options: dict[str, str], topic: str) -> None:
    produce(options, topic, PARTITIONS, synthesize_records(COLUMNS, 100), ignore)
    client = AdminClient(options)
    for deleted in client.delete_records([TopicPartition(topic, 1, 5)]).values():
        deleted.result()
    with pytest.raises(SetupError, match=rf"{topic}\[1\] begins at 5, expected 0"):
        feed(options, topic, PARTITIONS, synthesize_records(COLUMNS, 100), ignore)


def test_broker_that_is_down_is_a_typed_error_in_bounded_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admin, "ANSWER_SECONDS", 0.5)
    monkeypatch.setattr(producer, "ANSWER_SECONDS", 0.5)
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        nobody = {"bootstrap.servers": f"127.0.0.1:{closed.getsockname()[1]}"}
        for attempt in (
            lambda: ensure_topic(nobody, "flights", PARTITIONS, KEEP_FOREVER),
            lambda: find_ends(nobody, "flights", PARTITIONS),
            lambda: produce(nobody, "flights", PARTITIONS, synthesize_records(COLUMNS, 10), ignore),
        ):
            with pytest.raises(ServiceUnavailableError, match=nobody["bootstrap.servers"]):
                attempt()


def deliver_made_up(
    options: dict[str, str], topic: str, guarantee: Guarantee, count: int = 100, transactions: Transactions = AT_ONCE
) -> tuple[Deliveries, int]:
    """Write ``count`` records to a topic; return what the producer knows and how many offsets the topic gained."""
    made = synthesize_records(COLUMNS, count)
    deliveries = deliver(
        options, topic, PARTITIONS, made, guarantee=guarantee, transactions=transactions, report=ignore
    )
    return deliveries, find_settled_end(options, topic, PARTITIONS, deliveries.sent)


def test_producer_without_acknowledgements_knows_nothing_of_its_records(options: dict[str, str], topic: str) -> None:
    known, gained = deliver_made_up(options, topic, Guarantee.ACKS_0)
    assert known == Deliveries(sent=100, acknowledged=0, failed=0, unknown=100)
    assert gained == 100


@pytest.mark.parametrize("guarantee", [Guarantee.PLAIN, Guarantee.IDEMPOTENT])
def test_producer_with_acknowledgements_knows_that_its_records_are_there(
    options: dict[str, str], topic: str, guarantee: Guarantee
) -> None:
    assert deliver_made_up(options, topic, guarantee) == (Deliveries(sent=100, acknowledged=100), 100)


def test_aborted_records_take_offsets_that_only_read_uncommitted_shows(options: dict[str, str], topic: str) -> None:
    """S31, S35: of ten transactions the 3rd, 6th and 9th are aborted."""
    transactions = Transactions(records=10, abort_every=3)
    known, gained = deliver_made_up(options, topic, Guarantee.TRANSACTIONAL, 100, transactions)
    assert known == Deliveries(sent=100, acknowledged=100, committed=70, aborted=30)
    made = list(synthesize_records(COLUMNS, 100))
    chunks = [made[first : first + 10] for first in range(0, 100, 10)]
    markers = sum(len({choose_partition(each.key, PARTITIONS) for each in chunk}) for chunk in chunks)
    assert gained == 100 + markers
    committed = [record for number, chunk in enumerate(chunks, 1) if number % 3 for record in chunk]
    assert read_visible(options, topic, Isolation.COMMITTED) == divide_keys(committed)
    assert read_visible(options, topic, Isolation.UNCOMMITTED) == divide_keys(made)


def test_transaction_left_open_by_a_killed_producer_is_aborted_by_the_next(options: dict[str, str], topic: str) -> None:
    """S93: it pins the last stable offset until then."""
    context = multiprocessing.get_context("spawn")
    in_transaction = context.Event()
    victim = context.Process(target=produce_and_hold, args=(options, topic, in_transaction))
    victim.start()
    assert in_transaction.wait(60)
    victim.kill()
    victim.join(30)
    known, _ = deliver_made_up(options, topic, Guarantee.TRANSACTIONAL, 20)
    assert known.committed == 20
    assert read_visible(options, topic, Isolation.COMMITTED) == divide_keys(list(synthesize_records(COLUMNS, 20)))


@pytest.mark.parametrize(
    ("guarantee", "copies"), [(Guarantee.PLAIN, 2), (Guarantee.IDEMPOTENT, 1), (Guarantee.TRANSACTIONAL, 1)]
)
def test_lost_acknowledgement_doubles_the_record_of_a_plain_producer_only(
    options: dict[str, str], guarantee: Guarantee, copies: int
) -> None:
    """The broker has written the record when the connection is cut before its answer; the producer sends it again."""
    topic = f"produce-{uuid.uuid4().hex}"
    ensure_topic(options, topic, 1, KEEP_FOREVER)
    made = list(synthesize_records(COLUMNS, 1))
    with lossy_proxy(options, Loss.ANSWER) as proxy:
        known = deliver(proxy.options, topic, 1, made, guarantee=guarantee, transactions=AT_ONCE, report=ignore)
        assert proxy.lost == 1
    assert (known.acknowledged, known.failed, known.unknown) == (1, 0, 0)
    find_settled_end(options, topic, 1, copies)
    assert read_visible(options, topic, Isolation.COMMITTED, partitions=1) == {0: [each.key for each in made] * copies}


def test_lost_request_is_a_lost_record_that_a_producer_without_acknowledgements_never_misses(
    options: dict[str, str], topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delivery, "SETTLING_SECONDS", 0.5)
    with lossy_proxy(options, Loss.REQUEST) as proxy:
        made = synthesize_records(COLUMNS, 100)
        known = deliver(
            proxy.options, topic, PARTITIONS, made, guarantee=Guarantee.ACKS_0, transactions=AT_ONCE, report=ignore
        )
        wait_until(lambda: proxy.lost == 1)
    assert (known.sent, known.failed) == (100, 0)
    assert find_settled_end(options, topic, PARTITIONS, known.sent) < 100


def test_refused_records_are_counted_as_failed_and_the_others_stay(options: dict[str, str]) -> None:
    topic = f"produce-{uuid.uuid4().hex}"
    ensure_topic(options, topic, PARTITIONS, {**KEEP_FOREVER, "max.message.bytes": "2000"})
    records = [SampleRecord(b"large", os.urandom(50_000)), *synthesize_records(COLUMNS, 5)]
    known = deliver(options, topic, PARTITIONS, records, guarantee=Guarantee.PLAIN, transactions=AT_ONCE, report=ignore)
    assert known.failed > 0
    assert known.unknown == 0
    assert known.acknowledged == find_settled_end(options, topic, PARTITIONS, known.acknowledged)


def test_records_that_nobody_acknowledges_in_time_are_unknown(
    options: dict[str, str], topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delivery, "ANSWER_SECONDS", 2.0)
    with lossy_proxy(options, *[Loss.REQUEST] * 100) as proxy:
        made = synthesize_records(COLUMNS, 100)
        known = deliver(
            proxy.options, topic, PARTITIONS, made, guarantee=Guarantee.PLAIN, transactions=AT_ONCE, report=ignore
        )
    assert known == Deliveries(sent=100, acknowledged=0, failed=0, unknown=100)


def ignore(count: int) -> None:
    """Report nothing."""


def feed_and_report(options: dict[str, str], topic: str, count: int, first_reports: object) -> None:
    """Feed until killed: holds its breath after some reports, so that the end is never reached."""
    feed(options, topic, PARTITIONS, synthesize_records(COLUMNS, count), lambda done: hold(done, first_reports))


def produce_and_hold(options: dict[str, str], topic: str, in_transaction: object) -> None:
    """Write a transaction's records and hold breath where it would be decided."""

    def never_decide(_: object) -> None:
        in_transaction.set()  # type: ignore[attr-defined]
        multiprocessing.Event().wait()

    delivery._decide = never_decide
    deliver_made_up(options, topic, Guarantee.TRANSACTIONAL, 30)


def hold(done: int, first_reports: object) -> None:
    if done >= 100_000:
        first_reports.set()  # type: ignore[attr-defined]
        multiprocessing.Event().wait()


def divide(records: list[SampleRecord]) -> dict[int, list[tuple[bytes, bytes]]]:
    """What each partition should hold, in order."""
    expected: dict[int, list[tuple[bytes, bytes]]] = {partition: [] for partition in range(PARTITIONS)}
    for record in records:
        expected[choose_partition(record.key, PARTITIONS)].append((record.key, record.value))
    return expected


def read_topic(options: dict[str, str], topic: str) -> dict[int, list[tuple[bytes, bytes]]]:
    """What each partition holds, in order."""
    ends = find_ends(options, topic, PARTITIONS)
    found: dict[int, list[tuple[bytes, bytes]]] = {partition: [] for partition in ends}
    consumer = Consumer({**options, "group.id": "unused", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, partition, 0) for partition in ends])
    deadline = monotonic() + 60
    try:
        while any(len(found[partition]) < end for partition, end in ends.items()):
            assert monotonic() < deadline, f"read {sum(map(len, found.values()))} of {sum(ends.values())} records"
            for message in consumer.consume(1_000, timeout=0.2):
                assert message.error() is None, message.error()
                found[message.partition()].append((message.key(), message.value()))
    finally:
        consumer.close()
    return found


def divide_keys(records: list[SampleRecord]) -> dict[int, list[bytes]]:
    """The keys that each partition should show, in order."""
    return {partition: [key for key, _ in pairs] for partition, pairs in divide(records).items()}


def read_visible(
    options: dict[str, str], topic: str, isolation: Isolation, partitions: int = PARTITIONS
) -> dict[int, list[bytes]]:
    """The keys that each partition shows under an isolation level, up to its end."""
    more = {"isolation.level": isolation, "enable.partition.eof": True, "enable.auto.commit": False}
    consumer = Consumer({**options, **more, "group.id": "unused"})
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(partitions)])
    found: dict[int, list[bytes]] = {partition: [] for partition in range(partitions)}
    ended: set[int] = set()
    deadline = monotonic() + 60
    try:
        while len(ended) < partitions:
            assert monotonic() < deadline, f"read to the end of {ended} only"
            for message in consumer.consume(1_000, timeout=0.2):
                if message.error() is None:
                    found[message.partition()].append(message.key())
                else:
                    assert message.error().code() == KafkaError._PARTITION_EOF
                    ended.add(message.partition())
    finally:
        consumer.close()
    return found
