"""What the checked options of a connection mean for clients: for librdkafka, and for a client without it.

librdkafka fetches tokens of OAuth by itself. Tokens of AWS come from Amazon's signer, an extra of this package.
"""

import json
import logging
import os
import ssl
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from batchledger.model.errors import ConfigurationError, LoginRefusedError, ServiceUnavailableError, advise_extra

REQUEST_TIMEOUT_SECONDS = 10.0
LARGEST_TOKEN_ANSWER_BYTES = 2**20
OUTSIDE_OF_GROUPS: Mapping[str, Any] = {
    # The client insists on a name; nothing is ever committed under it.
    "group.id": "batchledger-unused",
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
}


def client_options(options: Mapping[str, str]) -> dict[str, Any]:
    """Return the options of any client of librdkafka.

    Requests are bounded. A client has no log of its own, because our errors say it once. Raises ConfigurationError and
    LoginRefusedError.
    """
    # Half of that, by default 50 ms, is what a new client waits before it looks for a coordinator.
    swift = {"reconnect.backoff.ms": 20}
    return {**swift, **_to_login(options), "socket.timeout.ms": int(REQUEST_TIMEOUT_SECONDS * 1000), "log_level": 0}


def _to_login(options: Mapping[str, str]) -> dict[str, Any]:
    match options.get("sasl.mechanism"):
        case "OAUTHBEARER":
            # Otherwise the client looks for authorities at one place only, which Debian does not have.
            trust = {} if "https.ca.pem" in options else {"https.ca.location": "probe"}
            return {**trust, **options, "sasl.oauthbearer.method": "oidc"}
        case "AWS_MSK_IAM":
            region = options["aws.region"]
            # Raised in the client's own call, an error would end the client without a word.
            sign_for_aws(region)
            others = {option: value for option, value in options.items() if option != "aws.region"}
            return {**others, "sasl.mechanism": "OAUTHBEARER", "oauth_cb": lambda _: sign_for_aws(region)}
        case _:
            return dict(options)


def fetch_token(options: Mapping[str, str]) -> str:
    """Return a token of the connection, for a client that cannot fetch one by itself.

    Raises LoginRefusedError when the token endpoint refuses (RFC 6749, 5.2), ServiceUnavailableError when it has no
    token, and what ``sign_for_aws`` raises.
    """
    if options["sasl.mechanism"] == "AWS_MSK_IAM":
        return sign_for_aws(options["aws.region"])[0]
    import httpx

    from batchledger.bounds.bounded_http import AnswerTooLargeError, open_client

    url = options["sasl.oauthbearer.token.endpoint.url"]
    form = {"grant_type": "client_credentials"}
    if scope := options.get("sasl.oauthbearer.scope"):
        form["scope"] = scope
    login = options["sasl.oauthbearer.client.id"], options["sasl.oauthbearer.client.secret"]
    kind: type[ServiceUnavailableError] = ServiceUnavailableError
    try:
        trust = _trust(options.get("https.ca.location"), options.get("https.ca.pem"))
        with open_client(verify=trust, auth=login) as client:
            answer = client.send(
                "POST", url, seconds=REQUEST_TIMEOUT_SECONDS, most_bytes=LARGEST_TOKEN_ANSWER_BYTES, data=form
            )
        if answer.status == httpx.codes.OK:
            return str(json.loads(answer.content)["access_token"])
        if answer.status in (httpx.codes.BAD_REQUEST, httpx.codes.UNAUTHORIZED):
            kind = LoginRefusedError
        why = f"It answered with status {answer.status}."
    except TimeoutError:
        why = f"It did not answer within {REQUEST_TIMEOUT_SECONDS:g} s."
    except AnswerTooLargeError:
        why = f"It sends more than {LARGEST_TOKEN_ANSWER_BYTES / 2**20:.0f} MiB."
    except (httpx.HTTPError, httpx.InvalidURL, OSError, ValueError, LookupError, TypeError, RecursionError) as error:
        why = f"{type(error).__name__}: {error}."
    raise kind(
        f"could not get a token from {url}. Nothing was changed.",
        why=why,
        advice="Run the step again when it answers, or correct the sasl.oauthbearer options of the connection.",
        subject=url,
    )


def sign_for_aws(region: str) -> tuple[str, float]:
    """Return a token of the identity that AWS's own chain of credentials finds, and when it ends, in Unix seconds.

    Raises ConfigurationError when the extra is not installed, LoginRefusedError when AWS finds no identity, and
    ServiceUnavailableError when AWS does not give its credentials.
    """
    try:
        from aws_msk_iam_sasl_signer import MSKAuthTokenProvider
        from botocore.exceptions import BotoCoreError, ClientError
        from botocore.session import Session
    except ImportError as error:
        raise ConfigurationError(
            "sasl.mechanism AWS_MSK_IAM needs a package that is missing here. Nothing was opened.",
            why=f"Python says: {error}.",
            advice=advise_extra("aws"),
        ) from error
    # It says with each token where it has found an identity.
    logging.getLogger("botocore.credentials").setLevel(logging.WARNING)
    try:
        if Session().get_credentials() is None:
            raise LoginRefusedError(
                "AWS knows no identity here. Nothing was opened.",
                why="sasl.mechanism AWS_MSK_IAM logs in as the identity of the machine or of AWS's own settings.",
                advice="Give it one: a role of the machine, or AWS's environment variables; to Spark's workers, too.",
            )
        token, end_ms = MSKAuthTokenProvider.generate_auth_token(region)
    except (BotoCoreError, ClientError) as error:
        raise ServiceUnavailableError(
            "AWS did not give credentials for a token. Nothing was opened.",
            why=f"It says: {type(error).__name__}: {error}.",
            advice="Run the step again. If it stays so, look at the role and at AWS's settings of this machine.",
        ) from error
    return token, end_ms / 1000


def open_tls(options: Mapping[str, str]) -> ssl.SSLContext:
    """Return what Python's own TLS needs to be as strict as librdkafka is with these options.

    Raises ConfigurationError when a certificate or key cannot be read.
    """
    try:
        context = _trust(options.get("ssl.ca.location"), options.get("ssl.ca.pem"))
        context.check_hostname = options.get("ssl.endpoint.identification.algorithm", "https") != "none"
        with ExitStack() as files:
            # Python reads a certificate of its own only from files.
            certificate = _as_file(files, options.get("ssl.certificate.location"), options.get("ssl.certificate.pem"))
            key = _as_file(files, options.get("ssl.key.location"), options.get("ssl.key.pem"))
            if certificate is not None:
                # Without this, Python would ask for a password on the terminal.
                context.load_cert_chain(certificate, key, password=options.get("ssl.key.password", ""))
    except (OSError, ValueError) as error:
        servers = options.get("bootstrap.servers")
        raise ConfigurationError(
            f"A certificate or key for Kafka at {servers} cannot be read. Nothing was opened.",
            why=f"{type(error).__name__}: {error}.",
            advice="Correct the ssl options of the Kafka connection, or the files that they name.",
            subject=servers,
        ) from error
    return context


def _trust(location: str | None, pem: str | None) -> ssl.SSLContext:
    # librdkafka's word for the authorities that the machine knows.
    place = None if location == "probe" else location
    is_folder = place is not None and Path(place).is_dir()
    context = ssl.create_default_context(
        cafile=None if is_folder else place, capath=place if is_folder else None, cadata=pem
    )
    # Python 3.13 refuses authorities that librdkafka accepts.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return context


def _as_file(files: ExitStack, location: str | None, pem: str | None) -> str | None:
    """Return the path of a certificate or key. PEM text lies in memory only, so a kill leaves no file behind."""
    if pem is None:
        return location
    number = os.memfd_create("pem")
    files.callback(os.close, number)
    os.write(number, pem.encode())
    return f"/proc/self/fd/{number}"


_OTHER_NAMES: Mapping[str, str] = {
    "fetch.max.wait.ms": "fetch.wait.max.ms",
    "receive.buffer.bytes": "socket.receive.buffer.bytes",
}
_DEFAULT_WAIT_MS = "500"
_LEAST_MESSAGE_BYTES = 1_000


def to_client_options(tuning: Mapping[str, str]) -> dict[str, str]:
    """Return the options of librdkafka that mean the same.

    If a pipeline asks for more bytes at once, Kafka's default wait applies. The reader's own would give up before. The
    client refuses fetches that are smaller than the largest message that it would send itself, which it never does.
    """
    implied = {}
    if "fetch.min.bytes" in tuning:
        implied["fetch.wait.max.ms"] = _DEFAULT_WAIT_MS
    if "fetch.max.bytes" in tuning:
        implied["message.max.bytes"] = str(_LEAST_MESSAGE_BYTES)
    return implied | {_OTHER_NAMES.get(option, option): value for option, value in tuning.items()}
