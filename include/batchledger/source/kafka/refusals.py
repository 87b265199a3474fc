"""Why a cluster does not let a client in: a certificate, a login, a right.

librdkafka tries again whatever the reason, and in the end says that the time is over. So this module asks what was
wrong, on connections of its own and only after a failure. It greets a broker by the one request that needs no login,
ApiVersions (KIP-35, KIP-152), sends nothing else, and reads the answer with bounds. Python's TLS says more about a
certificate than librdkafka does.
"""

import logging
import re
import socket
import ssl
import struct
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from datetime import UTC, datetime
from operator import attrgetter
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING

from confluent_kafka import Consumer, KafkaError, KafkaException

from batchledger.model.errors import (
    BatchledgerError,
    CertificateExpiredError,
    CertificateUntrustedError,
    ConfigurationError,
    LoginRefusedError,
    RightMissingError,
    ServiceUnavailableError,
)
from batchledger.source.kafka.clients import OUTSIDE_OF_GROUPS, client_options, open_tls

if TYPE_CHECKING:
    from cryptography.x509 import Certificate

_API_VERSIONS, _VERSION, _CORRELATION = 18, 3, 1
_CLIENT = b"batchledger"
_LARGEST_ANSWER_BYTES = 1024 * 1024
_DEFAULT_PORT, _LARGEST_PORT = 9092, 65_535

_log = logging.getLogger(__name__)

GREETING_SECONDS = 1.0
ASKING_SECONDS = 3.0
MOST_GREETED = 6
NOTHING_CHANGED = "Nothing was changed."

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
_OTHER_NAMES = (62, 64)
"""What OpenSSL says of a certificate: X509_V_ERR_CERT_HAS_EXPIRED, …_NOT_YET_VALID, …_HOSTNAME_MISMATCH and so on."""

# What a token endpoint refuses would be refused again (RFC 6749, 5.2).
_REFUSED_TOKEN = re.compile(
    "invalid_request|invalid_client|invalid_grant|unauthorized_client|unsupported_grant_type|invalid_scope"
)
# A listener without login answers so.
_NO_LOGIN = re.compile(r"supported mechanisms:\s*$")
_UNFETCHED = "Failed to acquire SASL OAUTHBEARER token"
# The client reports a connection that breaks during the handshake as a failed login, too.
_WEATHER = re.compile("handshake failed: Local: ")


@dataclass(frozen=True)
class _Look:
    """What the client wanted to do, and where: what every refusal says."""

    action: str
    options: Mapping[str, str] = field(repr=False)
    consequence: str
    batch_id: int | None

    def refusal(self, kind: type[ServiceUnavailableError], what: str, advice: str) -> ServiceUnavailableError:
        servers = self.options.get("bootstrap.servers")
        return kind(
            f"could not {self.action}. {self.consequence}",
            why=f"Kafka at {servers} {what}.",
            advice=advice,
            subject=servers,
            batch_id=self.batch_id,
        )


def find_cause(error: KafkaException | TimeoutError) -> KafkaError:
    """Return what the client says."""
    known = error.args[0] if error.args else None
    return known if isinstance(known, KafkaError) else KafkaError(KafkaError._TIMED_OUT, str(error) or "no answer")


def refuse(
    action: str,
    options: Mapping[str, str],
    cause: KafkaError,
    *,
    consequence: str = NOTHING_CHANGED,
    batch_id: int | None = None,
) -> BatchledgerError | None:
    """Return the error of a client that is not let in, None when that is not the reason.

    ``action`` continues "could not". Takes ``GREETING_SECONDS`` for each of up to ``MOST_GREETED`` addresses that are
    silent, and ``ASKING_SECONDS`` if a broker greets and then says no more.
    """
    look = _Look(action, options, consequence, batch_id)
    if cause.code() == KafkaError._INVALID_ARG:
        return ConfigurationError(
            f"could not {action}. {consequence}",
            why=f"The Kafka client refuses an option: {cause.str().strip().rstrip('.')}.{_name_missing_files(options)}",
            advice="Correct the extra of the Kafka connection, or source.options in the pipeline file.",
            subject=options.get("bootstrap.servers"),
            batch_id=batch_id,
        )
    if cause.code() in _RIGHT_BY_CODE:
        advice = f"Grant the user of the connection rights {_RIGHT_BY_CODE[cause.code()]}."
        return look.refusal(RightMissingError, f"says: {cause.str()}", advice)
    if cause.code() not in _SILENCE:
        return None
    try:
        return _find_refusal(look)
    except (OSError, ValueError, KafkaException) as error:
        # A second look that fails must not hide the first error.
        _log.info("why Kafka does not let this client in is unknown: %s", error)
        return None


def _name_missing_files(options: Mapping[str, str]) -> str:
    """Say which files are not there: the client says only that it cannot read one."""
    missing = [
        f"{option} is {place}, and there is no such file here"
        for option, place in options.items()
        if option.endswith(".location") and not Path(place).exists()
    ]
    return f" {'; '.join(missing)}." if missing else ""


def _find_refusal(look: _Look) -> ServiceUnavailableError | None:
    """Ask the brokers that the connection names; if one of them greets, log in there, and ask all that it knows."""
    named = list(list_addresses(look.options["bootstrap.servers"]))[:MOST_GREETED]
    is_greeted, refusal = _greet_all(look, named)
    if not is_greeted:
        return refusal
    known, login = _log_in(look)
    # The brokers themselves may have other names and certificates than a load balancer before them.
    others = [each for each in known if each not in named][:MOST_GREETED]
    found = filter(None, (login, refusal, _greet_all(look, others)[1]))
    # What may pass must not hide what would be refused again.
    return min(found, key=attrgetter("retryable"), default=None)


def _greet_all(look: _Look, addresses: Sequence[tuple[str, int]]) -> tuple[bool, ServiceUnavailableError | None]:
    """Return whether any address greets, and the first refusal of the others; a misfit only if none greets."""
    is_greeted, refusal, misfit = False, None, None
    for host, port in addresses:
        try:
            greet(host, port, look.options, GREETING_SECONDS)
            is_greeted = True
        except ssl.SSLCertVerificationError as error:
            refusal = refusal or _judge_broker(look, error)
        except ssl.SSLError as error:
            if any(each in (error.reason or "") for each in ("CERTIFICATE", "UNKNOWN_CA")):
                refusal = refusal or _judge_client(look, error)
            else:
                misfit = misfit or _judge_protocol(look, f"does not answer by TLS ({error.reason})")
        except (ValueError, BrokenPipeError, ConnectionResetError):
            misfit = misfit or _judge_protocol(look, "does not answer as a Kafka broker does")
        except OSError:
            continue
    return is_greeted, refusal or (None if is_greeted else misfit)


def _judge_protocol(look: _Look, what: str) -> ServiceUnavailableError:
    """Another listener is likely, but a broker that starts or ends looks the same, so the step may be tried again."""
    protocol = look.options.get("security.protocol", "PLAINTEXT")
    return look.refusal(
        ServiceUnavailableError,
        f"{what}; the connection has security.protocol {protocol}",
        "Run the step again. If it stays so, set security.protocol as the broker's listener of that port has it.",
    )


def _judge_broker(look: _Look, error: ssl.SSLCertVerificationError) -> ServiceUnavailableError:
    why = f"shows a certificate that is not accepted here: {error.verify_message.rstrip('.')}"
    if error.verify_code in (_EXPIRED, _NOT_YET_VALID):
        advice = "Renew the certificate of the broker, and look at the clock of this machine."
        return look.refusal(CertificateExpiredError, why, advice)
    if error.verify_code in _OTHER_NAMES:
        advice = "Name the broker by a name that its certificate has, in bootstrap.servers and in its own listeners."
    else:
        advice = "Name the authority that has issued it as ssl.ca.location or ssl.ca.pem in the connection."
    return look.refusal(CertificateUntrustedError, why, advice)


def _judge_client(look: _Look, error: ssl.SSLError) -> ServiceUnavailableError:
    certificate = _read_own_certificate(look.options)
    now = datetime.now(UTC)
    if certificate and not certificate.not_valid_before_utc <= now <= certificate.not_valid_after_utc:
        until = certificate.not_valid_after_utc.isoformat(" ", "minutes")
        return look.refusal(
            CertificateExpiredError,
            f"does not accept the certificate of this client, which is valid until {until}",
            "Renew it, and name the new one as ssl.certificate.location or ssl.certificate.pem in the connection.",
        )
    owner = certificate.subject.rfc4514_string() if certificate else "it has none"
    return look.refusal(
        CertificateUntrustedError,
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


def _log_in(look: _Look) -> tuple[Sequence[tuple[str, int]], ServiceUnavailableError | None]:
    """Return the brokers that a client learns of when it has logged in, or why it is not let in."""
    reported: list[KafkaError] = []
    settings = {**client_options(look.options), **OUTSIDE_OF_GROUPS, "error_cb": reported.append}
    with closing(Consumer(settings)) as consumer:
        try:
            known = consumer.list_topics(timeout=ASKING_SECONDS)
        except KafkaException:
            # Reports wait for a call.
            consumer.poll(0)
        else:
            return [(each.host, each.port) for each in known.brokers.values()], None
    refused = [each.str() for each in reported if each.code() == KafkaError._AUTHENTICATION]
    refused = [each for each in refused if not _WEATHER.search(each)]
    if refused:
        return (), _judge_login(look, refused[0])
    # Brokers that ask for a login close the connection at the first request without one.
    is_closed = any(each.code() == KafkaError._ALL_BROKERS_DOWN for each in reported)
    return (), _judge_protocol(look, "greets, and then closes the connection") if is_closed else None


def _judge_login(look: _Look, report: str) -> ServiceUnavailableError:
    text = re.sub(r" \(after \d+ms in state \w+\)", "", report)
    if _NO_LOGIN.search(text):
        advice = (
            "Set security.protocol as the broker's listener of that port has it, without SASL; or name the port of a "
            "listener that takes logins."
        )
        return look.refusal(LoginRefusedError, "takes no login at that port", advice)
    if not text.startswith(_UNFETCHED):
        advice = "Correct mechanism, name and password, or the identity, in the connection; the broker's log says more."
        return look.refusal(LoginRefusedError, f"refuses the login: {text}", advice)
    why = f"was not asked, because there is no token: {text}"
    if _REFUSED_TOKEN.search(text):
        return look.refusal(LoginRefusedError, why, "Correct the sasl.oauthbearer options of the connection.")
    if "certificate" in text or "trust anchors" in text:
        advice = "Name the authority of the token endpoint as https.ca.location or https.ca.pem in the connection."
        return look.refusal(CertificateUntrustedError, why, advice)
    return look.refusal(ServiceUnavailableError, why, "Run the step again when the token endpoint answers.")


def list_addresses(servers: str) -> Iterator[tuple[str, int]]:
    """Yield host and port of each: ``a``, ``a:9092``, ``[::1]:9092`` or ``SSL://a:9092``, as librdkafka takes them.

    Raises ConfigurationError.
    """
    for each in servers.split(","):
        address = each.strip().rpartition("://")[2].rstrip("/")
        host, colon, port = address.rpartition(":")
        if not colon or port.endswith("]"):
            host, port = address, str(_DEFAULT_PORT)
        if address:
            if not port.isascii() or not port.isdigit() or int(port) > _LARGEST_PORT:
                raise ConfigurationError(
                    f"bootstrap.servers names {address!r}, whose port is no number up to {_LARGEST_PORT}.",
                    advice="Write each broker as host:port in the connection.",
                    subject=servers,
                )
            yield host.strip("[]"), int(port)


def greet(host: str, port: int, options: Mapping[str, str], seconds: float) -> bytes:
    """Return the body of the broker's answer. Raises OSError, ssl.SSLError among them, and ValueError."""
    deadline = monotonic() + seconds
    with socket.create_connection((host, port), seconds) as plain, _secure(plain, host, options) as stream:
        request = struct.pack(">hhih", _API_VERSIONS, _VERSION, _CORRELATION, len(_CLIENT)) + _CLIENT
        # No tagged fields; the name of the client, its version, no tagged fields.
        request += b"\0" + bytes([len(_CLIENT) + 1]) + _CLIENT + b"\x02" + b"1" + b"\0"
        stream.sendall(struct.pack(">i", len(request)) + request)
        (length,) = struct.unpack(">i", _receive(stream, 4, deadline))
        if not 4 < length <= _LARGEST_ANSWER_BYTES:
            raise ValueError(f"{host}:{port} does not answer as a Kafka broker does")
        answer = _receive(stream, length, deadline)
    if struct.unpack_from(">i", answer) != (_CORRELATION,):
        raise ValueError(f"{host}:{port} answers another request")
    return answer[4:]


def _secure(plain: socket.socket, host: str, options: Mapping[str, str]) -> socket.socket:
    """Return the connection that requests go through, as the options say."""
    if options.get("security.protocol", "PLAINTEXT").upper().endswith("SSL"):
        return open_tls(options).wrap_socket(plain, server_hostname=host)
    return plain


def _receive(stream: socket.socket, count: int, deadline: float) -> bytes:
    parts = bytearray()
    while len(parts) < count:
        stream.settimeout(max(0.001, deadline - monotonic()))
        part = stream.recv(count - len(parts))
        if not part:
            raise ConnectionResetError("the broker closed the connection")
        parts += part
    return bytes(parts)
