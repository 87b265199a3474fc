"""Why a cluster does not let a client in: a certificate, a login, a right.

librdkafka tries again whatever the reason, and in the end says that the time is over. So this module asks what was
wrong, on connections of its own and only after a failure.
"""

import re
import ssl
import struct
from collections.abc import Mapping
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING

from confluent_kafka import Consumer, KafkaError, KafkaException

from batchledger.adapters.kafka.clients import OUTSIDE_OF_GROUPS, client_options
from batchledger.adapters.kafka.greeting import greet, list_addresses
from batchledger.model.errors import (
    BatchledgerError,
    CertificateExpiredError,
    CertificateUntrustedError,
    ConfigurationError,
    LoginRefusedError,
    RightMissingError,
    ServiceUnavailableError,
)

if TYPE_CHECKING:
    from cryptography.x509 import Certificate

ASKING_SECONDS = 3.0

_RIGHT_BY_CODE = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED: "on the topic: DESCRIBE to plan, READ to read, WRITE to write",
    KafkaError.GROUP_AUTHORIZATION_FAILED: "on the group: READ and DESCRIBE",
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: "on the cluster",
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "on the transactional id: WRITE and DESCRIBE",
}
_SILENCE = (
    KafkaError._TIMED_OUT,
    KafkaError._TRANSPORT,
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._AUTHENTICATION,
    KafkaError._SSL,
    KafkaError._RESOLVE,
)

_EXPIRED, _NOT_YET_VALID = 10, 9
"""What OpenSSL says of a certificate (X509_V_ERR_CERT_HAS_EXPIRED, X509_V_ERR_CERT_NOT_YET_VALID)."""

# What a token endpoint refuses would be refused again (RFC 6749, 5.2).
_REFUSED_TOKEN = re.compile(
    "invalid_request|invalid_client|invalid_grant|unauthorized_client|unsupported_grant_type|invalid_scope"
)
_UNFETCHED = "Failed to acquire SASL OAUTHBEARER token"


def find_cause(error: KafkaException | TimeoutError) -> KafkaError:
    """Return what the client says."""
    known = error.args[0] if error.args else None
    return known if isinstance(known, KafkaError) else KafkaError(KafkaError._TIMED_OUT, str(error) or "no answer")


def refuse(action: str, options: Mapping[str, str], cause: KafkaError) -> BatchledgerError | None:
    """Return the error of a client that is not let in, None when that is not the reason.

    ``action`` continues "could not". Takes twice ``ASKING_SECONDS`` if no broker answers.
    """
    if cause.code() == KafkaError._INVALID_ARG:
        return ConfigurationError(
            f"could not {action}. Nothing was changed.",
            why=f"The Kafka client refuses an option: {cause.str().strip()}.",
            advice="Correct the extra of the Kafka connection, or source.options in the pipeline file.",
            subject=options.get("bootstrap.servers"),
        )
    if cause.code() in _RIGHT_BY_CODE:
        return _refusal(
            RightMissingError,
            action,
            options,
            f"says: {cause.str()}",
            f"Grant the user of the connection rights {_RIGHT_BY_CODE[cause.code()]}.",
        )
    return _find_refusal(action, options) if cause.code() in _SILENCE else None


def _find_refusal(action: str, options: Mapping[str, str]) -> ServiceUnavailableError | None:
    deadline = monotonic() + ASKING_SECONDS
    for host, port in list_addresses(options["bootstrap.servers"]):
        left_seconds = deadline - monotonic()
        if left_seconds <= 0:
            break
        try:
            greet(host, port, options, left_seconds)
        except ssl.SSLCertVerificationError as error:
            return _judge_broker(action, options, error)
        except ssl.SSLError as error:
            if any(each in (error.reason or "") for each in ("CERTIFICATE", "UNKNOWN_CA")):
                return _judge_client(action, options, error)
        except (OSError, ValueError, struct.error):
            continue
        else:
            return _judge_login(action, options)
    return None


def _judge_broker(
    action: str, options: Mapping[str, str], error: ssl.SSLCertVerificationError
) -> ServiceUnavailableError:
    why = f"shows a certificate that is not accepted here: {error.verify_message}"
    if error.verify_code in (_EXPIRED, _NOT_YET_VALID):
        advice = "Renew the certificate of the broker, and look at the clock of this machine."
        return _refusal(CertificateExpiredError, action, options, why, advice)
    advice = (
        "Name the authority that has issued it as ssl.ca.location or ssl.ca.pem in the connection, and the broker by "
        "a name that its certificate has."
    )
    return _refusal(CertificateUntrustedError, action, options, why, advice)


def _judge_client(action: str, options: Mapping[str, str], error: ssl.SSLError) -> ServiceUnavailableError:
    certificate = _read_own_certificate(options)
    now = datetime.now(UTC)
    if certificate and not certificate.not_valid_before_utc <= now <= certificate.not_valid_after_utc:
        until = certificate.not_valid_after_utc.isoformat(" ", "minutes")
        return _refusal(
            CertificateExpiredError,
            action,
            options,
            f"does not accept the certificate of this client, which is valid until {until}",
            "Renew it, and name the new one as ssl.certificate.location or ssl.certificate.pem in the connection.",
        )
    owner = certificate.subject.rfc4514_string() if certificate else "it has none"
    return _refusal(
        CertificateUntrustedError,
        action,
        options,
        f"does not accept the certificate of this client ({owner}): {error.reason}",
        "Name one that an authority of the broker has issued as ssl.certificate.location and ssl.key.location in the "
        "connection.",
    )


def _read_own_certificate(options: Mapping[str, str]) -> "Certificate | None":
    from cryptography import x509

    place, pem = options.get("ssl.certificate.location"), options.get("ssl.certificate.pem")
    if place is not None:
        return x509.load_pem_x509_certificate(Path(place).read_bytes())
    return None if pem is None else x509.load_pem_x509_certificate(pem.encode())


def _judge_login(action: str, options: Mapping[str, str]) -> ServiceUnavailableError | None:
    reported: list[KafkaError] = []
    settings = {**client_options(options), **OUTSIDE_OF_GROUPS, "error_cb": reported.append}
    with closing(Consumer(settings)) as consumer:
        try:
            consumer.list_topics(timeout=ASKING_SECONDS)
        except KafkaException:
            # Reports wait for a call.
            consumer.poll(0)
    refused = next((each for each in reported if each.code() == KafkaError._AUTHENTICATION), None)
    if refused is None:
        return None
    text = re.sub(r" \(after \d+ms in state \w+\)", "", refused.str())
    if not text.startswith(_UNFETCHED):
        advice = "Correct mechanism, name and password, or the identity, in the connection; the broker's log says more."
        return _refusal(LoginRefusedError, action, options, f"refuses the login: {text}", advice)
    if _REFUSED_TOKEN.search(text):
        advice = "Correct the sasl.oauthbearer options of the connection."
        return _refusal(LoginRefusedError, action, options, f"was not asked, because there is no token: {text}", advice)
    if "certificate" in text or "trust anchors" in text:
        advice = "Name the authority of the token endpoint as https.ca.location or https.ca.pem in the connection."
        return _refusal(CertificateUntrustedError, action, options, f"was not asked: {text}", advice)
    return _refusal(
        ServiceUnavailableError,
        action,
        options,
        f"was not asked, because there is no token: {text}",
        "Run the step again when the token endpoint answers.",
    )


def _refusal(
    kind: type[ServiceUnavailableError], action: str, options: Mapping[str, str], what: str, advice: str
) -> ServiceUnavailableError:
    servers = options.get("bootstrap.servers")
    return kind(
        f"could not {action}. Nothing was changed.", why=f"Kafka at {servers} {what}.", advice=advice, subject=servers
    )
