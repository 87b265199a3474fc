"""What the cluster has agreed on is read before anybody has logged in, on every kind of listener."""

import secrets
import struct
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from batchledger.local.stack import kafka_broker, local_stack, processes
from batchledger.local.stack.machine import HOST
from batchledger.model.errors import (
    CertificateUntrustedError,
    ConfigurationError,
    ServiceUnavailableError,
    TargetRefusedError,
)
from batchledger.sinks.topic import features
from batchledger.sinks.topic.features import _parse, read_features
from batchledger.source.kafka.refusals import list_addresses
from tests.conftest import SERVICES, choose_ports
from tests.contract.outputs import Output
from tests.secured_kafka import Authority, wait_for_broker
from tests.support import admin_client

PASSWORD = secrets.token_hex(12)
LISTENERS = ("SASL_PLAINTEXT", "SSL", "SASL_SSL")
OLDER_VERSION = 1


@dataclass(frozen=True)
class OldBroker:
    """A broker with transactions from before KIP-890, and a listener of every kind."""

    plain: str
    server_by_protocol: dict[str, str]
    certificate: Path

    def options(self, protocol: str) -> dict[str, str]:
        if protocol == "PLAINTEXT":
            return {"bootstrap.servers": self.plain}
        options = {"bootstrap.servers": self.server_by_protocol[protocol], "security.protocol": protocol}
        if "SASL" in protocol:
            options |= {"sasl.mechanism": "PLAIN", "sasl.username": "nobody", "sasl.password": "wrong"}
        return options | ({"ssl.ca.location": str(self.certificate)} if "SSL" in protocol else {})


def settings_with_listeners(plain: str, ports: dict[str, int], keystore: Path) -> str:
    """The settings of the local broker, with more listeners. Its own ones ask for no login."""
    settings = dict(line.split("=", 1) for line in plain.replace("CLIENT://", "PLAINTEXT://").splitlines())
    more = ",".join(f"{protocol}://{HOST}:{port}" for protocol, port in ports.items())
    login = f'org.apache.kafka.common.security.plain.PlainLoginModule required user_somebody="{PASSWORD}";'
    settings |= {
        "listeners": f"{settings['listeners']},{more}",
        "advertised.listeners": f"{settings['advertised.listeners']},{more}",
        "listener.security.protocol.map": ",".join(f"{each}:{each}" for each in ("PLAINTEXT", *LISTENERS))
        + ",CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(keystore),
        **{f"listener.name.{each.lower()}.plain.sasl.jaas.config": login for each in ports if "SASL" in each},
    }
    return "".join(f"{key}={value}\n" for key, value in settings.items())


@pytest.fixture(scope="module")
def old_broker() -> Iterator[OldBroker]:
    home = replace(SERVICES.home, local=SERVICES.home.local / "old-kafka")
    ports, others = choose_ports(), choose_ports()
    port_by_protocol = dict(zip(LISTENERS, (others.kafka, others.kafka_controller, others.postgres), strict=True))
    folder = home.local / "kafka"
    folder.mkdir(parents=True)
    authority = Authority(folder)
    keystore = authority.issue_for_broker()
    properties = folder / "server.properties"
    launch = kafka_broker.kafka_service(home, ports, SERVICES.credentials).prepare()
    properties.write_text(settings_with_listeners(properties.read_text(), port_by_protocol, keystore))
    # Its data is formatted once more, with the older feature.
    version = f"transaction.version={OLDER_VERSION}"
    tool = ("kafka.tools.StorageTool", "format", "--cluster-id=MkU3OEVBNTcwNTJENDM2Qk", f"--feature={version}")
    (folder / "data" / "meta.properties").unlink()
    for left in (folder / "data").rglob("*.checkpoint"):
        left.unlink()
    arguments = launch.argv[: launch.argv.index("kafka.Kafka")]
    format_data = replace(launch, argv=(*arguments, *tool, "--config", str(properties)))
    processes.run(home, "kafka", format_data, deadline_seconds=60)
    processes.start(home, "kafka", launch)
    servers = {protocol: f"{HOST}:{port}" for protocol, port in port_by_protocol.items()}
    broker = OldBroker(f"{HOST}:{ports.kafka}", servers, authority.path)
    try:
        with admin_client(broker.options("PLAINTEXT") | {"log_level": "0"}) as client:
            wait_for_broker(home, client)
        yield broker
    finally:
        local_stack.down(home)


@pytest.mark.parametrize("protocol", ["PLAINTEXT", *LISTENERS])
def test_features_are_read_from_every_kind_of_listener_without_logging_in(old_broker: OldBroker, protocol: str) -> None:
    found = read_features(old_broker.options(protocol))
    assert found is not None
    assert found["transaction.version"] == OLDER_VERSION
    assert found["metadata.version"] > 0


def test_certificate_that_nobody_vouches_for_is_not_believed(old_broker: OldBroker) -> None:
    options = old_broker.options("SSL")
    del options["ssl.ca.location"]
    with pytest.raises(CertificateUntrustedError, match="unable to get local issuer certificate"):
        read_features(options)


def test_name_of_the_broker_is_compared_unless_it_is_switched_off(old_broker: OldBroker) -> None:
    options = old_broker.options("SSL")
    options["bootstrap.servers"] = options["bootstrap.servers"].replace(HOST, "localhost")
    with pytest.raises(ServiceUnavailableError, match="localhost"):
        read_features(options)
    assert read_features({**options, "ssl.endpoint.identification.algorithm": "none"}) is not None


def test_older_transactions_are_refused_unless_they_are_accepted(old_broker: OldBroker) -> None:
    output = Output(old_broker.options("PLAINTEXT"))
    with pytest.raises(TargetRefusedError, match="expected 2 or more, is 1:") as refused:
        output.topic().require_usable(output.attempt())
    assert refused.value.subject == output.name
    assert "sink.accept_older_transactions" in str(refused.value)
    accepting = output.topic(accepts_older_transactions=True)
    accepting.require_usable(output.attempt())
    accepting.commit(output.attempt(), output.records(30), 30)
    assert len(output.values()) == 30


def test_transactions_of_the_brokers_own_default_are_not_refused(kafka: object) -> None:
    output = Output(kafka.options)  # type: ignore[attr-defined]
    output.topic().require_usable(output.attempt())


def test_brokers_are_asked_in_turn_until_one_answers(kafka: object) -> None:
    servers = kafka.options["bootstrap.servers"]  # type: ignore[attr-defined]
    assert read_features({"bootstrap.servers": f"{HOST}:1,{servers}"}) is not None
    with pytest.raises(ServiceUnavailableError, match=r"127\.0\.0\.1:1 for its features"):
        read_features({"bootstrap.servers": f"{HOST}:1"})


@pytest.mark.parametrize("protocol", ["SSL", "PLAINTEXT"])
def test_wrong_protocol_is_a_typed_error_in_bounded_time(
    old_broker: OldBroker, protocol: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(features, "ANSWER_SECONDS", 1.0)
    servers = old_broker.plain if protocol == "SSL" else old_broker.server_by_protocol["SSL"]
    with pytest.raises(ServiceUnavailableError, match="could not ask Kafka"):
        read_features({"bootstrap.servers": servers, "security.protocol": protocol})


@pytest.mark.parametrize(
    ("servers", "addresses"),
    [
        ("a", [("a", 9092)]),
        ("a:1, b:2", [("a", 1), ("b", 2)]),
        ("SASL_SSL://a:1/,,PLAINTEXT://b", [("a", 1), ("b", 9092)]),
        ("[::1]:3,[fe80::1]", [("::1", 3), ("fe80::1", 9092)]),
    ],
)
def test_addresses_are_those_that_the_client_takes(servers: str, addresses: list[tuple[str, int]]) -> None:
    assert list(list_addresses(servers)) == addresses


@pytest.mark.parametrize("servers", ["a:port", "a:1,b:", "a:65536", "a:²"])
def test_address_without_a_number_of_a_port_is_a_matter_of_configuration(servers: str) -> None:
    with pytest.raises(ConfigurationError, match=r"bootstrap\.servers names '[ab]:"):
        list(list_addresses(servers))


def answer(*tags: tuple[int, bytes], error: int = 0) -> bytes:
    """The body of a broker that knows one kind of request."""
    known = b"\x02" + struct.pack(">hhh", 18, 0, 4) + b"\x00"
    fields = b"".join(bytes([number, len(content)]) + content for number, content in tags)
    return struct.pack(">h", error) + known + struct.pack(">i", 0) + bytes([len(tags)]) + fields


EPOCH = (1, struct.pack(">q", 7))
FEATURES = (2, b"\x02" + b"\x14transaction.version" + struct.pack(">hh", 2, 0) + b"\x00")


@pytest.mark.parametrize(
    ("body", "found"),
    [
        (answer(EPOCH, FEATURES), {"transaction.version": 2}),
        (answer((0, b"\x01"), EPOCH, FEATURES, (9, b"later")), {"transaction.version": 2}),
        (answer(EPOCH), {}),
        (answer(), None),
        (answer((1, struct.pack(">q", -1))), None),
        (struct.pack(">hi", 35, 0), None),
    ],
    ids=["one", "among others", "none", "untold", "not known yet", "older broker"],
)
def test_what_a_broker_does_not_tell_is_told_from_what_is_not_there(body: bytes, found: object) -> None:
    assert _parse(body) == found


def test_answer_that_is_cut_off_is_refused() -> None:
    whole = answer(EPOCH, FEATURES)
    for length in range(2, len(whole)):
        with pytest.raises(ValueError, match="cut off"):
            _parse(whole[:length])


def test_cluster_that_does_not_tell_is_refused_unless_accepted(kafka: object, monkeypatch: pytest.MonkeyPatch) -> None:
    output = Output(kafka.options)  # type: ignore[attr-defined]
    monkeypatch.setattr(features, "greet", lambda *_: answer())
    with pytest.raises(TargetRefusedError, match="is unknown"):
        output.topic().require_usable(output.attempt())
    output.topic(accepts_older_transactions=True).require_usable(output.attempt())
