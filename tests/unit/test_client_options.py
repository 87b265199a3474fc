"""Kafka client options: what a connection and a pipeline file may say, and what the clients get."""

import pytest
from confluent_kafka import Consumer

from batchledger.model.errors import ConfigurationError
from batchledger.settings.connections import Connection, kafka_options
from batchledger.settings.kafka_options import ALLOWED_ENDPOINTS, CONSUMER_OPTIONS, check_connection_options
from batchledger.source.kafka.clients import client_options, to_client_options
from batchledger.source.kafka.second_client import to_settings

PLAIN = {"bootstrap.servers": "a:9092"}
TLS = {**PLAIN, "security.protocol": "SSL"}
SASL = {**PLAIN, "security.protocol": "SASL_SSL"}
ENDPOINT = "sasl.oauthbearer.token.endpoint.url"
ALLOWED = ("https://login.example/token", "http://login.example/token")
OAUTH = {
    **SASL,
    "sasl.mechanism": "OAUTHBEARER",
    ENDPOINT: ALLOWED[0],
    "sasl.oauthbearer.client.id": "etl",
    "sasl.oauthbearer.client.secret": "quiet",
    "sasl.oauthbearer.extensions": "logicalCluster=lkc-1,identityPoolId=pool-2",
}


AWS = {**SASL, "sasl.mechanism": "AWS_MSK_IAM", "aws.region": "eu-west-1"}


@pytest.mark.parametrize(
    ("extra", "reason"),
    [
        ({}, "bootstrap.servers is missing"),
        ({**PLAIN, "group.id": "g"}, "group.id is refused"),
        ({**PLAIN, "enable.auto.commit": True}, "enable.auto.commit is refused"),
        ({**PLAIN, "sasl.mechanism": "GSSAPI"}, "GSSAPI is not one of PLAIN.*; Kerberos is not supported"),
        ({**PLAIN, "sasl.kerberos.service.name": "kafka"}, "Kerberos is not supported"),
        ({**PLAIN, "security.protocol": "TLS"}, "TLS is not one of PLAINTEXT, SSL"),
        ({**PLAIN, "sasl.mechanism": "PLAIN"}, "sasl.mechanism PLAIN needs security.protocol SASL_SSL or"),
        ({**PLAIN, "security.protocol": "sasl_ssl"}, "SASL_SSL needs sasl.mechanism: one of PLAIN, SCRAM"),
        ({**PLAIN, "sasl.username": "ana", "sasl.password": "x"}, r"sasl.username has no effect with .* \(none\)"),
        ({**PLAIN, "https.ca.location": "ca.pem"}, "https.ca.location has no effect"),
        ({**OAUTH, "sasl.password": "x"}, "sasl.password has no effect with sasl.mechanism OAUTHBEARER"),
        ({**AWS, "sasl.oauthbearer.scope": "x"}, "sasl.oauthbearer.scope has no effect"),
        ({**AWS, "security.protocol": "SASL_PLAINTEXT"}, "AWS_MSK_IAM needs security.protocol SASL_SSL"),
        ({**OAUTH, "security.protocol": "SASL_PLAINTEXT"}, "OAUTHBEARER needs security.protocol SASL_SSL"),
        ({"bootstrap.servers": None}, "bootstrap.servers is missing"),
        ({"bootstrap.servers": "", "group.id": None}, "bootstrap.servers is missing"),
        ({**SASL, "sasl.mechanism": "PLAIN", "sasl.username": "a", "sasl.password": None}, "needs sasl.password"),
        ({**PLAIN, "ssl.ca.location": "ca.pem"}, "ssl.ca.location has no effect with security.protocol PLAINTEXT"),
        ({**SASL, "sasl.mechanism": "SCRAM-SHA-256", "sasl.username": "ana"}, "SCRAM-SHA-256 needs sasl.password"),
        ({**SASL, "sasl.mechanism": "AWS_MSK_IAM"}, "AWS_MSK_IAM needs aws.region"),
        ({**SASL, "sasl.mechanism": "OAUTHBEARER"}, "OAUTHBEARER needs sasl.oauthbearer.token.endpoint.url"),
        ({**OAUTH, ENDPOINT: "https://evil.example/token"}, "https://evil.example/token is not among the ones"),
        ({**OAUTH, ENDPOINT: "https://login.example/token/"}, "is not among the ones"),
        ({**OAUTH, ENDPOINT: "file:///etc/passwd"}, "is not https"),
        ({**OAUTH, ENDPOINT: "http://login.example/token"}, "http://login.example/token is not https"),
        ({**PLAIN, "sasl.oauthbearer.config": "principal=admin"}, "it makes up a token that nothing has signed"),
        ({**TLS, "ssl.certificate.location": "a.pem"}, "needs ssl.certificate.location or .pem, and ssl.key.location"),
        ({**TLS, "ssl.ca.location": "a.pem", "ssl.ca.pem": "-"}, "ssl.ca.location and ssl.ca.pem say the same"),
        ({**PLAIN, "sasl.login.callback.handler.class": "Evil"}, "login modules can run code"),
        ({**PLAIN, "bootstrap.server": "b"}, "did you mean bootstrap.servers"),
    ],
)
def test_connection_with_an_unsafe_option_is_refused_by_its_id(extra: dict[str, object], reason: str) -> None:
    """S136, S137."""
    with pytest.raises(ConfigurationError, match=f"Connection 'kafka_default' .*\n.*{reason}"):
        check_connection_options("kafka_default", Connection("kafka_default", "kafka", extra=extra).extra, ALLOWED)


@pytest.mark.parametrize(
    "value", ["", "https://login.example/token", " https://other.example, https://login.example/token"]
)
def test_deployment_lists_the_token_endpoints_that_a_connection_may_name(
    value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(ALLOWED_ENDPOINTS, value)
    connection = Connection("kafka_default", "kafka", extra=OAUTH)
    if value:
        assert kafka_options(connection)[ENDPOINT] == ALLOWED[0]
    else:
        with pytest.raises(ConfigurationError, match=ALLOWED_ENDPOINTS):
            kafka_options(connection)


def test_extensions_of_a_token_are_the_same_for_both_clients() -> None:
    """Librdkafka takes them as they are: Confluent Cloud asks for them."""
    options = check_connection_options("kafka_default", OAUTH, ALLOWED)
    Consumer({**client_options(options), "group.id": "unused"}).close()
    tokens = to_settings(options)["sasl_oauth_token_provider"]
    assert tokens.extensions() == {"logicalCluster": "lkc-1", "identityPoolId": "pool-2"}


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
