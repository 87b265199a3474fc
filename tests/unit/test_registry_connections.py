"""Connections of schema registries: what they say to the client, and what is refused before anything is opened."""

import re
from typing import Any

import pytest

from batchledger.model.errors import ConfigurationError, ConnectionMissingError
from batchledger.model.records.registry_settings import RegistrySettings
from batchledger.settings.connections import Connection, load_connection
from batchledger.settings.registry_options import REGISTRY_OPTIONS, registry_settings
from tests.conftest import ROOT

SECRET = "s3cret"  # noqa: S105
ENCRYPTED = "https://registry:8081"


def read(**fields: Any) -> RegistrySettings:
    return registry_settings(Connection("registry", **{"type": "http", **fields}))


@pytest.mark.parametrize(
    ("fields", "url"),
    [
        ({"host": "registry", "port": 8081}, "http://registry:8081"),
        ({"host": "registry", "port": 8081, "schema": "https"}, "https://registry:8081"),
        ({"host": "https://registry"}, "https://registry"),
        ({"host": "https://registry/", "schema": "https"}, "https://registry"),
        ({"host": "http://registry:8080/apis/ccompat/v7/"}, "http://registry:8080/apis/ccompat/v7"),
        ({"host": "http://registry/apis/ccompat/v7", "port": 8080}, "http://registry:8080/apis/ccompat/v7"),
        ({"host": "http://[::1]", "port": 8080}, "http://[::1]:8080"),
    ],
)
def test_address_is_made_of_the_fields(fields: dict[str, Any], url: str) -> None:
    assert read(**fields) == RegistrySettings(url)


def test_login_and_password_log_in_and_a_password_alone_is_a_token() -> None:
    assert read(host="registry", login="ana", password=SECRET) == RegistrySettings(
        "http://registry", login="ana", password=SECRET
    )
    assert read(host="registry", login="ana") == RegistrySettings("http://registry", login="ana")
    assert read(host=ENCRYPTED, password=SECRET) == RegistrySettings(ENCRYPTED, token=SECRET)


def test_every_option_reaches_the_client() -> None:
    certificate = {"ssl.certificate.location": "/etl.pem", "ssl.key.location": "/etl.key", "ssl.key.password": SECRET}
    first = read(host=ENCRYPTED, extra={"ssl.ca.location": "/ca.pem", "timeout": 3, **certificate})
    assert first == RegistrySettings(
        ENCRYPTED,
        authority_file="/ca.pem",
        certificate_file="/etl.pem",
        key_file="/etl.key",
        key_password=SECRET,
        timeout_seconds=3.0,
    )
    second = read(host=ENCRYPTED, extra={"ssl.ca.pem": "PEM", "timeout": "0.5"})
    assert second == RegistrySettings(ENCRYPTED, authority_text="PEM", timeout_seconds=0.5)
    assert {"ssl.ca.location", "ssl.ca.pem", "timeout", *certificate} == set(REGISTRY_OPTIONS)


def test_no_secret_is_shown() -> None:
    settings = [
        read(host="registry", login="ana", password=SECRET),
        read(host=ENCRYPTED, password=SECRET),
        read(
            host=ENCRYPTED,
            extra={"ssl.certificate.location": "c", "ssl.key.location": "k", "ssl.key.password": SECRET},
        ),
    ]
    assert SECRET not in repr(settings)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({}, "no address of a schema registry"),
        ({"host": "ftp://registry"}, "no address of a schema registry"),
        ({"host": "registry", "schema": "apis/ccompat/v7"}, "no address of a schema registry"),
        ({"host": "https://registry", "schema": "http"}, "Its schema is http, and its host says https"),
        ({"host": "http://registry:8081", "port": 8081}, "no address"),
        ({"host": "registry:x"}, "no address"),
        ({"host": "http://[::1"}, "no address"),
        ({"host": f"http://ana:{SECRET}@registry"}, "give it as login and password"),
        ({"host": f"http://registry?key={SECRET}"}, "more than scheme, host, port and path"),
        ({"host": "http://registry/a b"}, "more than scheme, host, port and path"),
        ({"host": "registry", "extra": {"ssl.ca.locatoin": "x"}}, r"did you mean ssl\.ca\.location\?"),
        ({"host": "registry", "extra": {"headers": {}}}, "allowed are ssl.ca.location, "),
        ({"host": "registry", "extra": {"sslmode": "verify-full"}}, "sslmode is not an allowed option"),
        ({"host": "registry", "extra": {"bearer.auth.token": SECRET}}, "bearer.auth.token is not an allowed option"),
        ({"host": "registry", "extra": {"ssl.ca.location": "x"}}, "has no effect with an address of http"),
        ({"host": ENCRYPTED, "extra": {"ssl.ca.location": "x", "ssl.ca.pem": "y"}}, "same thing twice"),
        ({"host": ENCRYPTED, "extra": {"ssl.certificate.location": "x"}}, "A client certificate needs"),
        ({"host": ENCRYPTED, "extra": {"ssl.key.location": "x"}}, "A client certificate needs"),
        ({"host": ENCRYPTED, "extra": {"ssl.key.password": SECRET}}, "no effect without ssl.key.location"),
        ({"host": "registry", "login": "a:b", "password": SECRET}, "a colon"),
        ({"host": "registry", "password": SECRET}, "needs https"),
        ({"host": ENCRYPTED, "password": f"{SECRET}\n"}, "a character that HTTP does not allow"),
        ({"host": ENCRYPTED, "password": f"{SECRET}é"}, "a character that HTTP does not allow"),
        ({"host": "registry", "extra": {"timeout": "soon"}}, "not a number of seconds up to 60"),
        ({"host": "registry", "extra": {"timeout": 0}}, "not a number of seconds up to 60"),
        ({"host": "registry", "extra": {"timeout": 61}}, "not a number of seconds up to 60"),
        ({"host": "registry", "extra": {"timeout": "inf"}}, "not a number of seconds up to 60"),
    ],
)
def test_what_would_have_no_effect_or_is_not_known_is_refused(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigurationError, match=re.compile(words)) as refused:
        read(**fields)
    assert refused.value.subject == "registry"
    assert SECRET not in str(refused.value)


def test_another_type_is_refused_with_the_page_that_shows_one() -> None:
    with pytest.raises(ConfigurationError, match=r"(?s)has type 'kafka'.*'http' is needed.*reference/connections"):
        read(type="kafka")


def test_missing_registry_is_told_with_the_command_that_starts_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("airflow.sdk.BaseHook.get_connection", _know_nothing)
    with pytest.raises(ConnectionMissingError, match="services: batchledger up --registry") as told:
        load_connection("registry_default", ("http",), "orders.yaml: source.registry")
    assert "shows one: reference/connections" in told.value.advice


def test_every_option_is_on_the_page() -> None:
    text = (ROOT / "docs" / "reference" / "connections.md").read_text(encoding="utf-8")
    section = text.partition("\n## Schema registry\n")[2].partition("\n## ")[0]
    accepted = section.partition("The extra may have")[2].partition("All others are refused")[0]
    assert tuple(re.findall(r"`([a-z.]+)`", accepted)) == REGISTRY_OPTIONS


def _know_nothing(connection_id: str) -> None:
    from airflow.sdk.exceptions import AirflowNotFoundException

    raise AirflowNotFoundException(connection_id)
