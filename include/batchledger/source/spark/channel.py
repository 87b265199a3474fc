"""The channel to a Spark Connect server: whom it believes, and why a server is not used.

Spark's client sends a token without TLS to a host that is literally ``localhost`` and nowhere else, and gRPC then
refuses a server that is not on this machine. So a token never leaves the machine unencrypted.

gRPC also tries ``::1`` for ``localhost``. A server that listens on 127.0.0.1 alone leaves that port to any user of the
machine, who would get the token. So ``localhost`` is 127.0.0.1 here.
"""

import re

import grpc
from pyspark.errors.exceptions.connect import SparkConnectGrpcException
from pyspark.sql.connect.client import DefaultChannelBuilder
from typing_extensions import override

from batchledger.model.errors import (
    BatchledgerError,
    CertificateExpiredError,
    CertificateUntrustedError,
    ConfigurationError,
    LoginRefusedError,
    ServiceUnavailableError,
)
from batchledger.model.tls_files import TlsFiles
from batchledger.source.spark.call_deadline import explain_deadline

_NAME_AUTHORITY = "Name the authority that has issued its certificate as ssl.ca.location in its connection."
_BY_WORDS: tuple[tuple[str, type[BatchledgerError], str], ...] = (
    (
        "certificate has expired",
        CertificateExpiredError,
        "Renew the certificate of the server, and look at the clock of this machine.",
    ),
    (
        "certificate is not yet valid",
        CertificateExpiredError,
        "Look at the clock of this machine, and at the certificate of the server.",
    ),
    (
        "Hostname Verification Check failed",
        CertificateUntrustedError,
        "Name the server in its connection by a name that its certificate has.",
    ),
    (
        "WRONG_VERSION_NUMBER",
        ConfigurationError,
        "This port does not speak TLS. Name the one of the proxy that does in its connection.",
    ),
    (
        "Failed to create security handshaker",
        ConfigurationError,
        "Each of ssl.ca.location, ssl.certificate.location and ssl.key.location in its connection names a file in PEM.",
    ),
    ("CERTIFICATE_VERIFY_FAILED", CertificateUntrustedError, _NAME_AUTHORITY),
    # Another authority has the same name.
    ("certificate signature failure", CertificateUntrustedError, _NAME_AUTHORITY),
)
"""What gRPC says of a connection that it could not make, the kind of it, and what to do. The first that fits counts."""
_UNKNOWN = (
    "Run it again. If it stays so: the server may want use_ssl, or ssl.certificate.location and ssl.key.location."
)
"""A server that wants TLS or a certificate closes the connection, in the same ways as one that restarts."""


class CertifiedChannelBuilder(DefaultChannelBuilder):
    """Believes the authority and shows the certificate of ``tls``; without such files it is Spark's own.

    gRPC by itself believes what the variable ``GRPC_DEFAULT_SSL_ROOTS_FILE_PATH`` names when the first channel of the
    process is made, or what it was built with.
    """

    def __init__(self, url: str, tls: TlsFiles) -> None:
        super().__init__(url)
        self._tls = tls

    @property
    @override
    def endpoint(self) -> str:
        return f"ipv4:127.0.0.1:{self._port}" if self._host == "localhost" and not self.use_ssl else super().endpoint

    @override
    def toChannel(self) -> grpc.Channel:
        """Return the channel. Raises ConfigurationError if a file cannot be read."""
        if self._tls == TlsFiles():
            return super().toChannel()
        credentials = grpc.ssl_channel_credentials(
            *(self._read(path) for path in (self._tls.authority, self._tls.key, self._tls.certificate))
        )
        if self.token is not None:
            credentials = grpc.composite_channel_credentials(
                credentials, grpc.access_token_call_credentials(self.token)
            )
        return self._secure_channel(self.endpoint, credentials)

    def _read(self, path: str | None) -> bytes | None:
        if path is None:
            return None
        try:
            with open(path, "rb") as file:
                return file.read()
        except OSError as error:
            raise ConfigurationError(
                f"The certificates for Spark Connect at {self.endpoint} cannot be read. Nothing was opened.",
                why=f"{path}: {error.strerror}.",
                advice="Correct the extra of its connection.",
                subject=self.endpoint,
            ) from None


def explain_refusal(error: BaseException, address: str) -> BatchledgerError:
    """Return why the server at ``address`` opened no session. What may pass by itself is retryable."""
    reason = explain_deadline(error) or _find_details(error)
    kind, advice = next(
        ((kind, advice) for words, kind, advice in _BY_WORDS if words in reason), (ServiceUnavailableError, "")
    )
    code = _find_code(error)
    if code is grpc.StatusCode.UNAUTHENTICATED:
        kind = LoginRefusedError
        advice = "Write the token that the server was started with as the password of its connection."
    elif code is grpc.StatusCode.UNAVAILABLE:
        advice = advice or _UNKNOWN
    return kind(
        f"Spark Connect at {address} opened no session. Nothing was done.",
        why=f"{reason}.",
        advice=advice,
        subject=address,
    )


def _find_code(error: BaseException) -> object:
    if isinstance(error, SparkConnectGrpcException):
        return error.getGrpcStatusCode()
    return error.code() if isinstance(error, grpc.Call) else None


def _find_details(error: BaseException) -> str:
    if isinstance(error, grpc.RpcError) and isinstance(error, grpc.Call):
        return f"{error.code().name}: {error.details()}"
    # Spark's client passes on the text of a call that ended so.
    told = re.search(r'^\s*details = "(.*)"$', str(error), re.MULTILINE)
    return told[1].rstrip(".") if told else str(error).strip().partition("\n")[0]
