"""The local broker lets no other user of the machine in: not to its records, and not to its controller."""

import socket
import struct
from collections.abc import Iterator, Mapping
from contextlib import closing, suppress
from pathlib import Path
from uuid import uuid4

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from batchledger.local.stack import local_stack, processes
from batchledger.local.stack.home import Credentials, Home, Ports
from batchledger.local.stack.kafka_broker import client_options, kafka_service
from batchledger.local.stack.machine import HOST
from tests.conftest import ROOT, SERVICES, Kafka, TestServices, choose_ports
from tests.support import admin_client, create_topic, wait_until

TOPIC = "orders"
"""On a broker of the test's own."""
_DESCRIBE_QUORUM, _CORRELATION = 55, 1
_LOG_OF_THE_CONTROLLERS = b"__cluster_metadata"
_ADDED_BY_THE_LOGIN = ("inter.broker.listener.name", "listener.security.protocol.map", "listener.name.", "sasl.")


def list_topics(options: Mapping[str, str]) -> set[str] | None:
    """The topics that a client sees; None if it gets no answer."""
    with admin_client({**options, "log_level": "0"}) as client:
        try:
            return set(client.list_topics(timeout=5).topics)
        except KafkaException:
            return None


def is_answered(port: int) -> bool:
    """Whether a port answers a client that has not logged in; brokers and controllers know this request."""
    request = struct.pack(">hhih", _DESCRIBE_QUORUM, 0, _CORRELATION, len(b"any")) + b"any" + b"\0"
    # One topic with one partition; lengths are one more than they are, and a zero stands for no tagged fields.
    request += b"\x02" + bytes([len(_LOG_OF_THE_CONTROLLERS) + 1]) + _LOG_OF_THE_CONTROLLERS
    request += b"\x02" + struct.pack(">i", 0) + b"\0\0\0"
    answer = b""
    with socket.create_connection((HOST, port), timeout=20) as connection, suppress(ConnectionError):
        connection.sendall(struct.pack(">i", len(request)) + request)
        answer = connection.recv(8, socket.MSG_WAITALL)
    return answer[4:] == struct.pack(">i", _CORRELATION)


def without_login(options: Mapping[str, str]) -> dict[str, str]:
    return {"bootstrap.servers": options["bootstrap.servers"]}


@pytest.mark.parametrize("change", [None, {"sasl.password": "guess"}, {"sasl.username": "admin"}])
def test_client_without_the_login_gets_nothing(kafka: Kafka, change: Mapping[str, str] | None) -> None:
    topic = f"strangers-{uuid4().hex}"
    create_topic(kafka.options, topic, 1)
    assert topic in (list_topics(kafka.options) or ())
    assert list_topics(without_login(kafka.options) if change is None else {**kafka.options, **change}) is None


@pytest.mark.usefixtures("kafka")
def test_neither_broker_nor_controller_answers_before_a_login(services: TestServices) -> None:
    assert not is_answered(services.ports.kafka)
    assert not is_answered(services.ports.kafka_controller)


@pytest.fixture
def open_broker(tmp_path: Path) -> Iterator[tuple[Home, Ports]]:
    """A broker with the settings of earlier versions, which asks for no login."""
    home, ports = Home(root=ROOT, local=tmp_path, cache=SERVICES.home.cache, pipelines=tmp_path), choose_ports()
    credentials = Credentials.of(home)
    service = kafka_service(home, ports, credentials)
    launch = service.prepare()
    properties = launch.folder / "server.properties"
    lines = properties.read_text().replace("CLIENT://", "PLAINTEXT://").splitlines(keepends=True)
    properties.write_text("".join(line for line in lines if not line.startswith(_ADDED_BY_THE_LOGIN)))
    processes.start(home, service.name, launch)
    try:
        stranger = without_login(client_options(ports, credentials))
        wait_until(lambda: list_topics(stranger) is not None, service.silence_seconds)
        yield home, ports
    finally:
        local_stack.down(home)


def test_broker_that_asks_for_no_login_shows_everything_to_a_stranger(open_broker: tuple[Home, Ports]) -> None:
    """Negative control."""
    home, ports = open_broker
    stranger = without_login(client_options(ports, Credentials.of(home)))
    create_topic(stranger, TOPIC, 1)
    assert TOPIC in (list_topics(stranger) or ())
    assert is_answered(ports.kafka)
    assert is_answered(ports.kafka_controller)


def test_records_of_a_broker_that_asked_for_no_login_are_kept(open_broker: tuple[Home, Ports]) -> None:
    """The data of an earlier version."""
    home, ports = open_broker
    options = client_options(ports, Credentials.of(home))
    stranger = without_login(options)
    create_topic(stranger, TOPIC, 1)
    producer = Producer(stranger)
    producer.produce(TOPIC, b"kept", partition=0)
    assert producer.flush(30) == 0
    local_stack.down(home)
    local_stack.up(home, ports, services=["kafka"])
    with closing(Consumer({**options, "group.id": "unused", "enable.auto.commit": False})) as consumer:
        consumer.assign([TopicPartition(TOPIC, 0, 0)])
        message = consumer.poll(30)
    assert message is not None
    assert message.value() == b"kept"
    assert list_topics(stranger) is None
