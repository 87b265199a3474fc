"""Kafka client options: what a connection and a pipeline file may say, and what the clients get."""

import pytest
from confluent_kafka import Consumer

from batchledger.adapters.kafka.second_client import to_settings
from batchledger.adapters.kafka.tuning import to_client_options
from batchledger.config.kafka_options import CONSUMER_OPTIONS, check_connection_options
from batchledger.model.errors import ConfigurationError

PLAIN = {"bootstrap.servers": "a:9092"}


@pytest.mark.parametrize(
    ("extra", "reason"),
    [
        ({}, "bootstrap.servers is missing"),
        ({**PLAIN, "group.id": "g"}, "group.id is refused"),
        ({**PLAIN, "enable.auto.commit": True}, "enable.auto.commit is refused"),
        ({**PLAIN, "sasl.mechanism": "OAUTHBEARER"}, "OAUTHBEARER is not one of PLAIN"),
        ({**PLAIN, "sasl.login.callback.handler.class": "Evil"}, "login modules can run code"),
        ({**PLAIN, "bootstrap.server": "b"}, "did you mean bootstrap.servers"),
    ],
)
def test_connection_with_an_unsafe_option_is_refused_by_its_id(extra: dict[str, object], reason: str) -> None:
    """S136, S137."""
    with pytest.raises(ConfigurationError, match=f"Connection 'kafka_default' .*\n.*{reason}"):
        check_connection_options("kafka_default", extra)


def test_pipeline_tunes_its_consumer_in_the_names_of_kafkas_documentation() -> None:
    """The client itself judges the names."""
    options = to_client_options(dict.fromkeys(CONSUMER_OPTIONS, "2000"))
    assert options["fetch.wait.max.ms"] == options["socket.receive.buffer.bytes"] == "2000"
    Consumer({**PLAIN, "group.id": "unused", **options}).close()


def test_consumer_that_asks_for_more_bytes_waits_for_them_as_long_as_kafka_does_by_default() -> None:
    assert to_client_options({"fetch.min.bytes": "1000000"})["fetch.wait.max.ms"] == "500"
    assert "fetch.wait.max.ms" not in to_client_options({"fetch.max.bytes": "1000000"})


def test_second_client_logs_in_as_the_first_one_does() -> None:
    extra = {
        **PLAIN,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "ana",
        "sasl.password": 'quo"te\\',
    }
    settings = to_settings(check_connection_options("kafka_default", extra))
    login = ("security_protocol", "sasl_mechanism", "sasl_plain_username", "sasl_plain_password")
    assert [settings[each] for each in login] == ["SASL_PLAINTEXT", "SCRAM-SHA-512", "ana", 'quo"te\\']
