"""Kafka client options: what a connection may say, and what Spark's consumer gets."""

import pytest

from batchledger.adapters.kafka.spark_options import to_spark_options
from batchledger.config.kafka_options import SASL_MECHANISMS, check_connection_options
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


def test_consumer_is_tuned_for_bulk_reads_and_a_pipeline_may_tune_it_otherwise() -> None:
    options = to_spark_options(PLAIN, {"max.poll.records": "5"})
    assert options["kafka.bootstrap.servers"] == "a:9092"
    assert options["kafka.max.poll.records"] == "5"
    assert options["kafka.max.partition.fetch.bytes"] == str(16 * 1024 * 1024)
    assert options["kafka.fetch.max.wait.ms"] == "10"
    assert "kafka.fetch.max.wait.ms" not in to_spark_options(PLAIN, {"fetch.min.bytes": "1000000"})


@pytest.mark.parametrize(
    ("mechanism", "module"),
    [(each, "PlainLoginModule" if each == "PLAIN" else "ScramLoginModule") for each in SASL_MECHANISMS],
)
def test_password_reaches_spark_in_the_only_login_module_that_fits(mechanism: str, module: str) -> None:
    extra = {
        **PLAIN,
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": mechanism,
        "sasl.username": "ana",
        "sasl.password": 'quo"te\\',
        "ssl.ca.location": "/etc/ca.pem",
    }
    options = to_spark_options(check_connection_options("kafka_default", extra), {})
    login = options["kafka.sasl.jaas.config"]
    assert f".{module} required " in login
    assert 'username="ana" password="quo\\"te\\\\";' in login
    assert options["kafka.ssl.truststore.location"] == "/etc/ca.pem"
    assert "kafka.sasl.password" not in options
