"""One request to a registry: bounded in time, tried twice at most, and one typed error for each way to fail.

Only an answer with a code of the protocol itself means that something is unknown. A wrong path, a gateway or a server
that starts may answer 404 as well, so any other answer is an error. No error quotes an answer to a login, and none
holds a secret. A redirection is not followed: it could lead the login elsewhere.

confluent-kafka has a client for registries, too; ADR 0005 says why it is not used here.
"""

import json
import ssl
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from time import monotonic
from typing import Any

import httpx
from tenacity import retry, retry_if_exception, stop_after_attempt, wait_fixed

from batchledger.bounds.bounded_http import AnswerTooLargeError, BoundedClient, open_client
from batchledger.model.errors import (
    BatchledgerError,
    CertificateExpiredError,
    CertificateUntrustedError,
    ConfigurationError,
    LoginRefusedError,
    RightMissingError,
    SchemaRefusedError,
    ServiceUnavailableError,
)
from batchledger.model.records.registry_settings import RegistrySettings

ATTEMPTS = 2
PAUSE_SECONDS = 0.5
LARGEST_ANSWER_BYTES = 16 * 2**20
SESSION_TIMEOUTS = 6
"""All requests of a session together take no longer than so many times the bound of one."""

_CONTENT_TYPE = "application/vnd.schemaregistry.v1+json"
_REFUSALS = (409, 422)
_LONGEST_QUOTE = 1_000
_EXPIRED, _NOT_YET_VALID = 10, 9
_OTHER_NAMES = (62, 64)
"""What OpenSSL says of a certificate: X509_V_ERR_CERT_HAS_EXPIRED, …_NOT_YET_VALID, …_HOSTNAME_MISMATCH and so on."""

_OTHER_CERTIFICATE_WANTED = ("CERTIFICATE", "UNKNOWN_CA", "ALERT_DECRYPT_ERROR")
"""Parts of what a server says of a client's certificate. The last one: an authority of the same name has issued it."""


def is_worth_another_try(error: BaseException) -> bool:
    """Whether the same request may be answered at once."""
    return isinstance(error, BatchledgerError) and error.retryable


@dataclass(frozen=True)
class Session:
    """Connections to a registry for one purpose. ``action`` continues "could not"."""

    settings: RegistrySettings
    action: str
    client: BoundedClient = field(repr=False)
    ends_at: float
    """By ``monotonic``: a schema may refer to hundreds of others, and each is a request."""

    @retry(
        retry=retry_if_exception(is_worth_another_try),
        stop=stop_after_attempt(ATTEMPTS),
        wait=wait_fixed(PAUSE_SECONDS),
        reraise=True,
    )
    def ask(
        self, method: str, path: str, *, unknown: Collection[int] = (), content: Mapping[str, Any] | None = None
    ) -> Mapping[str, Any] | None:
        """Return the answer, None if it says one of the codes of ``unknown`` with the status 404.

        Raises ServiceUnavailableError, AccessRefusedError, SchemaRefusedError or ConfigurationError.
        """
        status, body = self._send(method, path, content)
        found = _read_object(body)
        if status == httpx.codes.NOT_FOUND and found is not None and found.get("error_code") in unknown:
            return None
        if status == httpx.codes.OK and found is not None:
            return found
        if method == "GET" and httpx.codes.is_redirect(status) and self.look_at("/schemas/types")[0] == httpx.codes.OK:
            # Else one record that names this schema would stop the pipeline for good.
            advice = "Let it answer by itself: a redirection could lead the login elsewhere, so none is followed."
            raise self.fail(SchemaRefusedError, "leads to another address for this one, and answers for others", advice)
        raise self._judge(status, found)

    def look_at(self, path: str) -> tuple[int, int | None]:
        """Return the status of an answer and the ``error_code`` in it, if any. Raises ServiceUnavailableError."""
        status, body = self._send("GET", path, None)
        return status, _read_code(_read_object(body))

    def fail(self, kind: Callable[..., BatchledgerError], what: str, advice: str) -> BatchledgerError:
        """Return an error that says what the registry did."""
        return kind(
            f"could not {self.action}. Nothing was changed.",
            why=f"The schema registry at {self.settings.url} {what}.",
            advice=advice,
            subject=self.settings.url,
        )

    def _send(self, method: str, path: str, content: Mapping[str, Any] | None) -> tuple[int, bytes]:
        """Return status and body."""
        left, of_one = self.ends_at - monotonic(), self.settings.timeout_seconds
        body = None if content is None else json.dumps(content).encode()
        advice = "Run the step again when it answers. If it is slow, raise timeout in the extra of its connection."
        try:
            answer = self.client.send(
                method,
                f"{self.settings.url}{path}",
                seconds=min(left, of_one),
                most_bytes=LARGEST_ANSWER_BYTES,
                content=body,
            )
        except TimeoutError:
            late = f"did not answer {'all requests ' if left < of_one else ''}within"
            seconds = of_one * SESSION_TIMEOUTS if left < of_one else of_one
            raise self.fail(ServiceUnavailableError, f"{late} {seconds:g} s", advice) from None
        except AnswerTooLargeError as error:
            large = f"sends more than {LARGEST_ANSWER_BYTES / 2**20:.0f} MiB"
            if error.status == httpx.codes.OK:
                # Its own word on this schema: nothing else has to wait for a smaller one.
                raise self.fail(SchemaRefusedError, large, "Register a smaller schema.") from None
            raise self._misfit(large) from None
        except httpx.InvalidURL as error:
            raise self.fail(ConfigurationError, f"cannot be asked: {error}", "Correct its address.") from None
        except httpx.HTTPError as error:
            raise self._judge_connection(error) from None
        return answer.status, answer.content

    def _judge(self, status: int, found: Mapping[str, Any] | None) -> BatchledgerError:
        code = _read_code(found)
        answered = f"answered with status {status}" + ("" if code is None else f" and code {code}")
        match status:
            case httpx.codes.UNAUTHORIZED:
                advice = "Correct login and password of its connection; a password without a login is a token."
                return self.fail(LoginRefusedError, f"refuses the login: it {answered}", advice)
            case httpx.codes.FORBIDDEN:
                advice = "Grant the user of its connection the right to read subjects; to register, also to write them."
                return self.fail(RightMissingError, f"refuses the request: it {answered}", advice)
            case _ if status in _REFUSALS and found is not None:
                words = " ".join(str(found.get("message", "")).split())[:_LONGEST_QUOTE]
                advice = "Change the schema, or the rule of its subject in the registry."
                return self.fail(SchemaRefusedError, f"refuses it: {words.rstrip('.') or answered}", advice)
            case httpx.codes.OK:
                return self._misfit("answered with something other than a JSON object")
            case _ if status < httpx.codes.INTERNAL_SERVER_ERROR and status != httpx.codes.TOO_MANY_REQUESTS:
                return self._misfit(answered)
        return self.fail(ServiceUnavailableError, answered, "See its log. Run the step again when it is well.")

    def _misfit(self, what: str) -> BatchledgerError:
        """Another address is likely, but a gateway or a server that starts looks the same: it may be tried again."""
        return self.fail(
            ServiceUnavailableError,
            f"{what}, as no registry does",
            "Run the step again. If it stays so, correct the address in its connection: the path of Confluent's API "
            "belongs to it, such as /apis/ccompat/v7 of Apicurio.",
        )

    def _judge_connection(self, error: httpx.HTTPError) -> BatchledgerError:
        cause = _find_tls(error)
        if isinstance(cause, ssl.SSLCertVerificationError):
            return self._judge_server(cause)
        reason = (cause.reason or "") if cause else ""
        if any(each in reason for each in _OTHER_CERTIFICATE_WANTED):
            advice = (
                "Name one that an authority of the registry has issued as ssl.certificate.location and "
                "ssl.key.location in its connection."
            )
            return self.fail(
                CertificateUntrustedError, f"does not accept the certificate of this client: {reason}", advice
            )
        what = "cannot be reached" if isinstance(error, httpx.ConnectError) else "broke the connection off"
        # A request that is wrong itself is quoted, with its headers.
        words = type(error).__name__ if isinstance(error, httpx.LocalProtocolError) else str(error)
        told = " ".join((reason or words).split()).rstrip(".")
        advice = "Check its address and whether it runs. Then run the step again."
        return self.fail(ServiceUnavailableError, f"{what}{f': {told}' if told else ''}", advice)

    def _judge_server(self, error: ssl.SSLCertVerificationError) -> BatchledgerError:
        why = f"shows a certificate that is not accepted here: {error.verify_message.rstrip('.')}"
        if error.verify_code in (_EXPIRED, _NOT_YET_VALID):
            advice = "Renew the certificate of the registry, and look at the clock of this machine."
            return self.fail(CertificateExpiredError, why, advice)
        if error.verify_code in _OTHER_NAMES:
            advice = "Name the registry by a name that its certificate has."
        else:
            advice = "Name the authority that has issued it as ssl.ca.location or ssl.ca.pem in its connection."
        return self.fail(CertificateUntrustedError, why, advice)


@contextmanager
def open_session(settings: RegistrySettings, action: str) -> Iterator[Session]:
    """Make connections for one purpose. Raises ConfigurationError if a certificate cannot be read."""
    headers = {"Accept": f"{_CONTENT_TYPE}, application/json", "Content-Type": _CONTENT_TYPE}
    if settings.token is not None:
        headers["Authorization"] = f"Bearer {settings.token}"
    login = None if settings.login is None else (settings.login, settings.password)
    with open_client(verify=_trust(settings), auth=login, headers=headers) as client:
        yield Session(settings, action, client, monotonic() + SESSION_TIMEOUTS * settings.timeout_seconds)


@lru_cache(maxsize=16)
def _trust(settings: RegistrySettings) -> ssl.SSLContext:
    """Return which servers are believed: what the authority has issued, or one of the machine's own."""
    try:
        context = ssl.create_default_context(cafile=settings.authority_file, cadata=settings.authority_text)
        if settings.certificate_file is not None:
            # Without any password OpenSSL would ask for one at the terminal.
            context.load_cert_chain(settings.certificate_file, settings.key_file, settings.key_password or "")
    except (OSError, ValueError) as error:
        named = {
            "ssl.ca.location": settings.authority_file,
            "ssl.certificate.location": settings.certificate_file,
            "ssl.key.location": settings.key_file,
        }
        missing = [
            f"{option} is {place}, and there is no such file here"
            for option, place in named.items()
            if place is not None and not Path(place).exists()
        ]
        told = getattr(error, "reason", None) or getattr(error, "strerror", None) or type(error).__name__
        raise ConfigurationError(
            "The certificates for the schema registry cannot be read. Nothing was opened.",
            why=f"{'; '.join(missing) or told}.",
            advice="Correct the extra of its connection.",
            subject=settings.url,
        ) from None
    return context


def _read_object(body: bytes) -> Mapping[str, Any] | None:
    """Return the JSON object that a body is, None if it is anything else."""
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _read_code(found: Mapping[str, Any] | None) -> int | None:
    code = found.get("error_code") if found else None
    return code if isinstance(code, int) else None


def _find_tls(error: BaseException | None) -> ssl.SSLError | None:
    """Return what TLS has said, found among the causes of an error."""
    while error is not None and not isinstance(error, ssl.SSLError):
        error = error.__cause__ or error.__context__
    return error
