"""Every login that a connection can name, against a broker that asks for it; and what is said if it is refused."""

import json
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest
from aws_msk_iam_sasl_signer import MSKAuthTokenProvider
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaError
from confluent_kafka.admin import AclOperation, ResourceType

from batchledger.lifecycle import plans, run_batch
from batchledger.model.batch import BatchState
from batchledger.model.errors import (
    AccessRefusedError,
    CertificateExpiredError,
    CertificateUntrustedError,
    ConfigurationError,
    LoginRefusedError,
    RightMissingError,
    ServiceUnavailableError,
)
from batchledger.model.offsets import OffsetRange, TopicPartition
from batchledger.settings.kafka_options import ALLOWED_ENDPOINTS
from batchledger.source.kafka import clients, log, refusals
from batchledger.source.kafka.records import read_share
from batchledger.wiring import choose_stage_step, verify_pipeline
from tests.conftest import SERVICES, open_workplace
from tests.secured_kafka import (
    ACCESS_KEY,
    PASSWORD,
    SECRET_KEY,
    STRANGERS,
    USER,
    Authority,
    SecuredKafka,
    broker,
)
from tests.support import TestPipeline, Workplace, admin_client, wait_until

__all__ = ["broker"]

STRANGER = STRANGERS[0]
GUESS = "correct-horse"


@pytest.fixture(autouse=True)
def identity(broker: SecuredKafka, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a deployment sets: the token endpoint that it allows, and who AWS takes this process for."""
    monkeypatch.setenv(ALLOWED_ENDPOINTS, f"https://login.example/token, {broker.tokens.url}")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", ACCESS_KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET_KEY)


@pytest.fixture
def workplace_there(broker: SecuredKafka, warehouse_dsn: str, spark: None) -> Iterator[Workplace]:
    with open_workplace(broker.operator, warehouse_dsn) as opened:
        yield opened


def connect(options: Mapping[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    connection = json.dumps({"conn_type": "kafka", "extra": dict(options)})
    monkeypatch.setenv("AIRFLOW_CONN_KAFKA_SECURED", connection)


LOGINS = {
    "PLAIN": lambda broker: broker.password("PLAIN"),
    "SCRAM-SHA-256": lambda broker: broker.password("SCRAM-SHA-256"),
    "SCRAM-SHA-512": lambda broker: broker.password("SCRAM-SHA-512"),
    "certificate in files": lambda broker: broker.certificate(),
    "certificate as text": lambda broker: broker.certificate_as_text(),
    "certificate with a password": lambda broker: broker.certificate_as_text("locked"),
    "OAUTHBEARER": lambda broker: broker.client_credentials(),
    "AWS_MSK_IAM": lambda broker: broker.machine_identity(),
}


@pytest.mark.parametrize("login", LOGINS)
def test_pipeline_logs_in_for_everything_that_it_asks_of_kafka(
    login: str, broker: SecuredKafka, workplace_there: Workplace, spark_local: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All clients log in: for plans and settings, in Spark's tasks, for holes, courtesy offsets and the target."""
    pipeline = workplace_there.create(
        into="topic",
        # The Spark server of the tests runs for all, and has no identity of AWS's.
        spark=spark_local if login == "AWS_MSK_IAM" else "spark_default",
        source={"connection": "kafka_secured", "holes": "transactional"},
        sink={"connection": "kafka_secured"},
    )
    pipeline.send(20)
    pipeline.send_in_transaction([b'{"message_id": "never"}'], partition=0, commit=False)
    pipeline.send_in_transaction([b'{"message_id": "once"}'], partition=0, commit=True)
    pipeline.sent.append("once")
    connect(LOGINS[login](broker), monkeypatch)
    batch = run_batch.run_once(pipeline.platform(), "run", stage_step=choose_stage_step(pipeline.config))
    assert batch is not None
    assert batch.state is BatchState.PUBLISHED
    assert pipeline.find_differences() == {}
    verification = verify_pipeline(pipeline.config)
    assert verification.holds, verification.findings
    assert read_courtesy(broker, pipeline) == 23 + 1


def read_courtesy(broker: SecuredKafka, pipeline: TestPipeline) -> int:
    group = f"batchledger.{pipeline.name}"
    with admin_client(broker.operator) as client:
        asked = client.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])
        return sum(each.offset for each in asked[group].result(30).topic_partitions)


def test_tokens_are_asked_for_with_the_scope(
    broker: SecuredKafka, workplace_there: Workplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = workplace_there.create(source={"connection": "kafka_secured"})
    connect(broker.client_credentials(), monkeypatch)
    assert plans.preview(pipeline.platform()) is not None
    assert broker.tokens.served[-1] == {"grant_type": "client_credentials", "scope": "kafka", "user": USER}


@pytest.fixture
def short_tokens(broker: SecuredKafka, monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """Let tokens last three seconds; return what counts the tokens that were issued since."""
    signed: list[str] = []
    sign_once = clients.sign_for_aws

    def sign(region: str) -> tuple[str, float]:
        signed.append(region)
        return sign_once(region)

    monkeypatch.setattr(clients, "sign_for_aws", sign)
    monkeypatch.setattr(MSKAuthTokenProvider, "DEFAULT_TOKEN_EXPIRY_SECONDS", 3)
    monkeypatch.setattr(broker.tokens, "lifetime_seconds", 3)
    before = len(broker.tokens.served)
    return lambda: len(signed) + len(broker.tokens.served) - before


@pytest.mark.parametrize("login", ["OAUTHBEARER", "AWS_MSK_IAM"])
def test_read_outlives_its_token(
    login: str, broker: SecuredKafka, workplace_there: Workplace, short_tokens: Callable[[], int]
) -> None:
    """The broker ends a session with its token (KIP-368)."""
    pipeline = workplace_there.create()
    pipeline.send(1, partitions=1)
    both = OffsetRange(TopicPartition(pipeline.name, 0), 0, 2)
    with ThreadPoolExecutor(1) as pool:
        read = pool.submit(list, read_share(LOGINS[login](broker), [both]))
        wait_until(lambda: short_tokens() >= 5)
        pipeline.send(1, partitions=1)
        assert sum(each.num_rows for each in read.result(30)) == 2


def test_client_that_keeps_its_token_is_not_let_in_any_longer(
    broker: SecuredKafka, short_tokens: Callable[[], int]
) -> None:
    """Negative control: the broker of the tests looks at the end of a token."""
    options = broker.client_credentials()
    token, troubles = clients.fetch_token(options), []
    settings = broker.trusting("sasl", "SASL_SSL") | {
        "sasl.mechanism": "OAUTHBEARER",
        "oauth_cb": lambda _: (token, time.time() + 60),
        "error_cb": lambda trouble: troubles.append(trouble.code()),
        "group.id": "unused",
        "log_level": 0,
    }
    with closing(Consumer(settings)) as consumer:
        assert consumer.list_topics(timeout=20).brokers
        wait_until(lambda: consumer.poll(0.1) is None and KafkaError._AUTHENTICATION in troubles)
    assert short_tokens() == 1


def refuse(
    options: Mapping[str, str], workplace_there: Workplace, monkeypatch: pytest.MonkeyPatch
) -> ServiceUnavailableError:
    """What a person reads who triggers a pipeline."""
    monkeypatch.setattr(log, "REQUEST_TIMEOUT_SECONDS", 1.0)
    pipeline = workplace_there.create(source={"connection": "kafka_secured"})
    connect(options, monkeypatch)
    with pytest.raises(ServiceUnavailableError) as refused:
        run_batch.run_once(pipeline.platform(), "run")
    text = str(refused.value)
    assert "timed out" not in text.lower()
    assert "in time" not in text
    assert "Correct" in text or "Name" in text or "Renew" in text or "Grant" in text
    return refused.value


def test_wrong_authority_is_an_error_of_its_own(
    broker: SecuredKafka, workplace_there: Workplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = SERVICES.home.local / "another-authority"
    folder.mkdir(exist_ok=True)
    options = broker.password("PLAIN") | {"ssl.ca.location": str(Authority(folder).path)}
    refused = refuse(options, workplace_there, monkeypatch)
    assert type(refused) is CertificateUntrustedError
    assert "ssl.ca.location" in refused.advice


def test_certificate_for_another_name_is_an_untrusted_one(
    broker: SecuredKafka, workplace_there: Workplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    servers = broker.servers("sasl").replace("127.0.0.1", "localhost")
    options = broker.password("PLAIN") | {"bootstrap.servers": servers}
    refused = refuse(options, workplace_there, monkeypatch)
    assert type(refused) is CertificateUntrustedError
    assert "localhost" in refused.why
    assert ".." not in str(refused)
    assert "bootstrap.servers" in refused.advice


@pytest.mark.parametrize("side", ["broker", "client"])
def test_expired_certificate_is_an_error_of_its_own(
    side: str, broker: SecuredKafka, workplace_there: Workplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = broker.trusting("expired", "SSL") if side == "broker" else broker.certificate(expired=True)
    refused = refuse(options, workplace_there, monkeypatch)
    assert type(refused) is CertificateExpiredError
    assert ("of this client" in refused.why) is (side == "client")


def test_client_without_a_certificate_learns_that_the_broker_wants_one(
    broker: SecuredKafka, workplace_there: Workplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = refuse(broker.trusting("mutual", "SSL"), workplace_there, monkeypatch)
    assert type(refused) is CertificateUntrustedError
    assert "it has none" in refused.why


def test_certificate_of_another_authority_is_not_accepted_by_the_broker(
    broker: SecuredKafka, workplace_there: Workplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = SERVICES.home.local / "foreign-authority"
    folder.mkdir(exist_ok=True)
    certificate, key = Authority(folder).issue(USER)
    foreign = {"ssl.certificate.location": str(certificate), "ssl.key.location": str(key)}
    refused = refuse(broker.trusting("mutual", "SSL") | foreign, workplace_there, monkeypatch)
    assert type(refused) is CertificateUntrustedError
    assert f"CN={USER}" in refused.why


@pytest.mark.parametrize(
    ("login", "change"),
    [
        ("PLAIN", {"sasl.password": GUESS}),
        ("SCRAM-SHA-512", {"sasl.password": GUESS}),
        ("OAUTHBEARER", {"sasl.oauthbearer.client.secret": GUESS}),
        ("AWS_MSK_IAM", {"aws.region": "eu-other-1"}),
    ],
)
def test_wrong_login_is_an_error_of_its_own(
    login: str,
    change: Mapping[str, str],
    broker: SecuredKafka,
    workplace_there: Workplace,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    refused = refuse(LOGINS[login](broker) | change, workplace_there, monkeypatch)
    assert type(refused) is LoginRefusedError
    assert not any(each in str(refused) for each in (GUESS, PASSWORD, SECRET_KEY))


def test_address_that_does_not_answer_hides_no_wrong_password(
    broker: SecuredKafka, workplace_there: Workplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    servers = f"127.0.0.1:1,{broker.servers('sasl')}"
    options = broker.password("PLAIN") | {"bootstrap.servers": servers, "sasl.password": GUESS}
    assert type(refuse(options, workplace_there, monkeypatch)) is LoginRefusedError


@pytest.mark.parametrize(
    ("listener", "protocol"), [("operator", "SSL"), ("mutual", "PLAINTEXT"), ("sasl", "PLAINTEXT"), ("sasl", "SSL")]
)
def test_protocol_of_another_listener_is_named_and_may_be_weather(
    listener: str, protocol: str, broker: SecuredKafka
) -> None:
    refused = refusals.refuse("read", broker.trusting(listener, protocol), KafkaError(KafkaError._TIMED_OUT))
    assert type(refused) is ServiceUnavailableError
    assert refused.retryable
    assert f"has security.protocol {protocol}" in refused.why


@pytest.mark.parametrize("login", ["PLAIN", "SCRAM-SHA-512"])
def test_listener_that_takes_no_login_is_named_and_no_password_is_blamed(login: str, broker: SecuredKafka) -> None:
    options = {
        "bootstrap.servers": broker.servers("operator"),
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": login,
        "sasl.username": USER,
        "sasl.password": PASSWORD,
    }
    refused = refusals.refuse("read", options, KafkaError(KafkaError._TIMED_OUT))
    assert type(refused) is LoginRefusedError
    assert "takes no login at that port" in refused.why
    assert "security.protocol" in refused.advice
    assert "password" not in refused.advice


def test_broker_that_closes_the_connection_hides_no_expired_certificate_of_another(broker: SecuredKafka) -> None:
    servers = f"{broker.servers('expired')},{broker.servers('sasl')}"
    options = broker.trusting("sasl", "SSL") | {"bootstrap.servers": servers}
    refused = refusals.refuse("read", options, KafkaError(KafkaError._TIMED_OUT))
    assert type(refused) is CertificateExpiredError


@pytest.mark.parametrize("order", [("mutual", "expired"), ("expired", "mutual")])
def test_one_broker_of_several_with_an_expired_certificate_names_itself(
    order: tuple[str, str], broker: SecuredKafka
) -> None:
    options = broker.certificate() | {"bootstrap.servers": ",".join(map(broker.servers, order))}
    refused = refusals.refuse("read", options, KafkaError(KafkaError._TIMED_OUT))
    assert type(refused) is CertificateExpiredError


@pytest.mark.parametrize("login", LOGINS)
def test_client_that_is_let_in_is_not_taken_for_a_refused_one(login: str, broker: SecuredKafka) -> None:
    """Negative control: a call may time out for other reasons."""
    assert refusals.refuse("read", LOGINS[login](broker), KafkaError(KafkaError._TIMED_OUT)) is None


def test_second_look_that_fails_hides_no_error(broker: SecuredKafka, tmp_path: Path) -> None:
    """A certificate that is being renewed may be half of a file."""
    options = broker.trusting("mutual", "SSL")
    half = tmp_path / "half.pem"
    half.write_text("-----BEGIN CERTIFICATE-----\n")
    silence = KafkaError(KafkaError._TIMED_OUT)
    with pytest.raises(ConfigurationError, match="cannot be read"):
        refusals.refuse("read", options | {"ssl.certificate.location": str(half), "ssl.key.location": "/"}, silence)
    assert refusals.refuse("read", options | {"bootstrap.servers": "127.0.0.1:1"}, silence) is None


def test_missing_right_is_an_error_of_its_own_and_goes_with_the_grant(
    broker: SecuredKafka, workplace_there: Workplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = refuse(broker.password("SCRAM-SHA-256", STRANGER), workplace_there, monkeypatch)
    assert type(refused) is RightMissingError
    assert "DESCRIBE" in refused.advice
    pipeline = workplace_there.create(source={"connection": "kafka_secured"})
    pipeline.send(4)
    broker.grant(STRANGER, ResourceType.TOPIC, pipeline.name, AclOperation.READ, AclOperation.DESCRIBE)
    run_batch.run_once(pipeline.platform(), "run")
    pipeline.assert_exact()


def test_right_that_is_missing_for_records_only_reaches_the_driver_with_its_name(
    broker: SecuredKafka, workplace_there: Workplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = workplace_there.create(source={"connection": "kafka_secured"})
    pipeline.send(4)
    broker.grant(STRANGER, ResourceType.TOPIC, pipeline.name, AclOperation.DESCRIBE)
    connect(broker.password("PLAIN", STRANGER), monkeypatch)
    with pytest.raises(RightMissingError, match="READ to read") as refused:
        run_batch.run_once(pipeline.platform(), "run")
    assert not refused.value.retryable
    assert pipeline.count_target_rows() == 0


def test_token_endpoint_that_is_down_may_be_up_again(
    broker: SecuredKafka, workplace_there: Workplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(ALLOWED_ENDPOINTS, "https://127.0.0.1:1/token")
    options = broker.client_credentials() | {"sasl.oauthbearer.token.endpoint.url": "https://127.0.0.1:1/token"}
    pipeline = workplace_there.create(source={"connection": "kafka_secured"})
    connect(options, monkeypatch)
    with pytest.raises(ServiceUnavailableError, match="Could not connect to server") as refused:
        plans.preview(pipeline.platform())
    assert refused.value.retryable
    assert not isinstance(refused.value, AccessRefusedError)


def test_token_endpoint_with_an_unknown_certificate_is_not_believed(
    broker: SecuredKafka, workplace_there: Workplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = broker.client_credentials()
    del options["https.ca.location"]
    refused = refuse(options, workplace_there, monkeypatch)
    assert type(refused) is CertificateUntrustedError
    assert "https.ca.location" in refused.advice


def test_machine_without_an_identity_is_refused_before_anything_is_opened(
    broker: SecuredKafka, workplace_there: Workplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/dev/null")
    pipeline = workplace_there.create(source={"connection": "kafka_secured"})
    connect(broker.machine_identity(), monkeypatch)
    with pytest.raises(LoginRefusedError, match="AWS knows no identity here"):
        plans.preview(pipeline.platform())


def test_worker_without_an_identity_is_refused_by_the_reason(
    broker: SecuredKafka, workplace_there: Workplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = workplace_there.create(source={"connection": "kafka_secured"})
    pipeline.send(4)
    connect(broker.machine_identity(), monkeypatch)
    with pytest.raises(LoginRefusedError, match="to Spark's workers, too"):
        run_batch.run_once(pipeline.platform(), "run")
    assert pipeline.count_target_rows() == 0


UNUSABLE: Mapping[str, tuple[Callable[[SecuredKafka], Mapping[str, str]], str]] = {
    "a key that does not open": (
        lambda broker: broker.certificate_as_text("locked") | {"ssl.key.password": "other"},
        r"ssl\.key\.pem failed",
    ),
    "a file that is not there": (
        lambda broker: broker.password("PLAIN") | {"ssl.ca.location": "/nowhere/ca.pem"},
        r"ssl\.ca\.location is /nowhere/ca\.pem, and there is no such file",
    ),
}


@pytest.mark.parametrize("what", UNUSABLE)
def test_login_that_the_client_cannot_use_is_a_matter_of_the_connection(
    what: str, broker: SecuredKafka, workplace_there: Workplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    options, why = UNUSABLE[what]
    pipeline = workplace_there.create(source={"connection": "kafka_secured"})
    connect(options(broker), monkeypatch)
    with pytest.raises(ConfigurationError, match=why):
        plans.preview(pipeline.platform())
