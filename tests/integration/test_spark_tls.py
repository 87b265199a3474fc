"""A real Spark Connect server behind a proxy that ends TLS: whom the session believes, and who gets its token."""

from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from batchledger.model.errors import (
    BatchledgerError,
    CertificateExpiredError,
    CertificateUntrustedError,
    ConfigurationError,
    LoginRefusedError,
    ServiceUnavailableError,
)
from batchledger.settings.connections import Connection, spark_server
from batchledger.source.spark.session import open_connect_session
from tests.conftest import TestServices
from tests.secured_kafka import Authority
from tests.tls_proxy import HOST, TlsProxy, serve_tls_proxy


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("ours"))


@pytest.fixture(scope="module")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("theirs"))


@pytest.fixture(scope="module")
def proxy(services: TestServices, spark: None, ours: Authority) -> Iterator[TlsProxy]:
    with serve_tls_proxy(services.ports.spark, ours.issue("server")) as served:
        yield served


def connect(
    services: TestServices, port: int, authority: Path | None, host: str = HOST, token: str = "", **extra: Any
) -> AbstractContextManager[SparkSession]:
    """A session over a connection as people write it."""
    files = {"use_ssl": True, "ssl.ca.location": str(authority or ""), **extra}
    token = token or services.credentials.spark_token
    url, tls = spark_server(Connection("spark", "spark_connect", f"sc://{host}", port, password=token, extra=files))
    return open_connect_session(url, "over TLS", tls=tls)


def refuse(kind: type[BatchledgerError], session: AbstractContextManager[SparkSession], says: str) -> None:
    """See that there is no session, that a person hears what to do, and that only what may pass is tried again."""
    with pytest.raises(BatchledgerError) as caught, session:
        pass
    assert type(caught.value) is kind
    assert says in str(caught.value)
    assert caught.value.retryable == (kind is ServiceUnavailableError)


def test_session_over_tls_runs_jobs_if_the_authority_is_named(
    services: TestServices, proxy: TlsProxy, ours: Authority
) -> None:
    with connect(services, proxy.port, ours.path) as session:
        assert session.range(3).count() == 3
    assert services.credentials.spark_token.encode() in proxy.received, "the negative control of the tests below"


@pytest.mark.parametrize(("authority", "host"), [("theirs", HOST), ("the machine's", HOST), ("ours", "localhost")])
def test_server_of_another_authority_or_name_gets_no_token(
    services: TestServices, proxy: TlsProxy, ours: Authority, theirs: Authority, authority: str, host: str
) -> None:
    proxy.received.clear()
    path = {"ours": ours.path, "theirs": theirs.path}.get(authority)
    says = "by a name that its certificate has" if host == "localhost" else "as ssl.ca.location in its connection"
    refuse(CertificateUntrustedError, connect(services, proxy.port, path, host), says)
    assert services.credentials.spark_token.encode() not in proxy.received


def test_server_with_a_certificate_that_has_expired_is_refused(services: TestServices, ours: Authority) -> None:
    with serve_tls_proxy(services.ports.spark, ours.issue("server", expired=True)) as expired:
        refuse(CertificateExpiredError, connect(services, expired.port, ours.path), "Renew the certificate")


def test_wrong_token_is_a_login_that_is_refused_and_not_told(
    services: TestServices, proxy: TlsProxy, ours: Authority
) -> None:
    """Base64 has characters that mean something in an address."""
    session = connect(services, proxy.port, ours.path, token="wr0ng/;a=b+c==")  # noqa: S106 -- made up
    refuse(LoginRefusedError, session, "Invalid authentication token.\nWrite the token")


@pytest.mark.usefixtures("spark")
def test_server_without_tls_is_refused_if_the_connection_wants_it(services: TestServices, ours: Authority) -> None:
    refuse(ConfigurationError, connect(services, services.ports.spark, ours.path), "This port does not speak TLS.")
    # A token alone is enough to want it.
    url, tls = spark_server(Connection("spark", "spark_connect", HOST, services.ports.spark, None, "t0ken"))
    refuse(ConfigurationError, open_connect_session(url, "plain", tls=tls), "This port does not speak TLS.")


def test_connection_without_tls_to_a_server_that_wants_it_says_what_may_be_missing(proxy: TlsProxy) -> None:
    url, tls = spark_server(Connection("spark", "spark_connect", HOST, proxy.port))
    refuse(ServiceUnavailableError, open_connect_session(url, "plain", tls=tls), "the server may want use_ssl")


def test_proxy_that_asks_for_a_client_certificate_takes_the_one_of_its_authority(
    services: TestServices, spark: None, ours: Authority, theirs: Authority
) -> None:
    def files(authority: Authority) -> dict[str, str]:
        certificate, key = authority.issue("client")
        return {"ssl.certificate.location": str(certificate), "ssl.key.location": str(key)}

    with serve_tls_proxy(services.ports.spark, ours.issue("server"), ours.path) as strict:
        with connect(services, strict.port, ours.path, **files(ours)) as session:
            assert session.range(3).count() == 3
        for given in ({}, files(theirs)):
            refuse(ServiceUnavailableError, connect(services, strict.port, ours.path, **given), "ssl.key.location")


@pytest.mark.parametrize(("content", "says"), [(None, "No such file"), ("nonsense", "names a file in PEM")])
def test_authority_that_cannot_be_read_is_refused(
    services: TestServices, proxy: TlsProxy, tmp_path: Path, content: str | None, says: str
) -> None:
    path = tmp_path / "authority.pem"
    if content is not None:
        path.write_text(content)
    refuse(ConfigurationError, connect(services, proxy.port, path), says)
