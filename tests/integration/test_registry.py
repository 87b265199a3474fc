"""Schemas of a real registry. Whatever is not its own word that it does not know an id is an error."""

import json
import pickle
import signal
import traceback
from base64 import b64encode
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import httpx
import pytest

from batchledger.formats.registry.client import RegisteredReference, Registry
from batchledger.local.stack import processes
from batchledger.local.stack.status import look_at_stack
from batchledger.model.errors import (
    BatchledgerError,
    CertificateExpiredError,
    CertificateUntrustedError,
    ConfigurationError,
    GuidsUnknownError,
    LoginRefusedError,
    RightMissingError,
    SchemaRefusedError,
    ServiceUnavailableError,
)
from batchledger.model.records.registry_settings import RegistrySettings
from batchledger.model.records.writer_schemas import Reference, SchemaType, SubjectVersion, WriterSchema
from batchledger.settings.connections import load_connection
from batchledger.settings.registry_options import registry_settings
from tests.conftest import TestServices
from tests.endpoints import free_port
from tests.registry_gate import Answer, Drip, Gate, Silence, open_gate
from tests.secured_kafka import Authority

SECRET = "s3cret-of-the-registry"  # noqa: S105
KEY_PASSWORD = "k3y-password"  # noqa: S105
GUID = "1b4e28ba-2fa1-11d2-883f-0016d3cca427"
AVRO, PROTOBUF = SchemaType.AVRO, SchemaType.PROTOBUF


@pytest.fixture
def registry(registry_url: str) -> Registry:
    return Registry(RegistrySettings(registry_url, timeout_seconds=5))


@pytest.fixture
def gate(registry_url: str) -> Iterator[Gate]:
    with open_gate(registry_url) as opened:
        yield opened


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


def name() -> str:
    """A name that no other test has used."""
    return f"n{uuid4().hex[:12]}"


def record(name: str, **types: str) -> str:
    fields = [{"name": field, "type": type_} for field, type_ in types.items()]
    return json.dumps({"type": "record", "name": name, "namespace": "shop", "fields": fields})


def register(registry: Registry, type_: SchemaType, text: str, *references: RegisteredReference) -> tuple[str, int]:
    subject = f"{name()}-value"
    return subject, registry.register(subject, type_, text, references)


def through(gate: Gate, **settings: object) -> Registry:
    return Registry(replace(RegistrySettings(gate.url, timeout_seconds=2), **settings))


def refused(registry: Registry, kind: type[BatchledgerError], schema_id: int | str = 1) -> BatchledgerError:
    """The error of a fetch, which shows no secret anywhere."""
    with pytest.raises(BatchledgerError) as told:
        registry.fetch(schema_id)
    assert type(told.value) is kind, told.value
    traces = "".join(traceback.format_exception(told.value))
    shown = f"{traces} {told.value!r} {registry!r} {pickle.loads(pickle.dumps(told.value))} {told.value.where}"  # noqa: S301
    for secret in (SECRET, b64encode(f"ana:{SECRET}".encode()).decode(), KEY_PASSWORD):
        assert secret not in shown
    assert told.value.advice
    return told.value


def test_schema_is_fetched_as_it_was_registered(registry: Registry) -> None:
    text = record(name(), city="string")
    _, schema_id = register(registry, AVRO, text)
    found = registry.fetch(schema_id)
    assert found == WriterSchema(schema_id, AVRO, text)
    assert WriterSchema.from_stored(found.stored) == found


@pytest.mark.always
def test_each_reference_comes_once_and_before_what_uses_it(registry: Registry) -> None:
    money, price, item = name(), name(), name()
    texts = {
        money: record(money, cents="long"),
        price: record(price, net=f"shop.{money}"),
        item: record(item, list=f"shop.{price}", tax=f"shop.{money}"),
    }
    first = register(registry, AVRO, texts[money])[0]
    to_money = RegisteredReference(f"shop.{money}", first, 1)
    second = register(registry, AVRO, texts[price], to_money)[0]
    to_price = RegisteredReference(f"shop.{price}", second, 1)
    _, schema_id = register(registry, AVRO, texts[item], to_price, to_money)
    found = registry.fetch(schema_id)
    assert found is not None
    assert found.text == texts[item]
    assert found.references == (
        Reference(f"shop.{money}", texts[money]),
        Reference(f"shop.{price}", texts[price]),
    )


@pytest.mark.always
def test_protobuf_comes_with_what_it_imports(registry: Registry) -> None:
    package = name()
    money = f'syntax = "proto3"; package {package}; message Money {{ int64 cents = 1; }}'
    imported = f"{package}/money.proto"
    subject, _ = register(registry, PROTOBUF, money)
    bill = f'syntax = "proto3"; package {package}; import "{imported}"; message Bill {{ Money total = 1; }}'
    _, schema_id = register(registry, PROTOBUF, bill, RegisteredReference(imported, subject, 1))
    assert registry.fetch(schema_id) == WriterSchema(schema_id, PROTOBUF, bill, (Reference(imported, money),))


def test_json_schema_says_its_type(registry: Registry) -> None:
    text = json.dumps({"$schema": "http://json-schema.org/draft-07/schema#", "title": name(), "type": "object"})
    _, schema_id = register(registry, SchemaType.JSON, text)
    assert registry.fetch(schema_id) == WriterSchema(schema_id, SchemaType.JSON, text)


@pytest.mark.always
def test_unknown_id_is_none_until_it_is_registered(registry: Registry) -> None:
    _, earlier = register(registry, AVRO, record(name(), city="string"))
    assert registry.fetch(earlier + 1) is None
    _, schema_id = register(registry, AVRO, record(name(), city="string"))
    assert schema_id == earlier + 1
    assert registry.fetch(schema_id) is not None


def test_latest_schema_of_a_subject_is_found_and_of_an_unknown_one_none(registry: Registry) -> None:
    wanted = name()
    subject, _ = register(registry, AVRO, record(wanted, city="string"))
    schema_id = registry.register(subject, AVRO, record(wanted, city="string", street="string"))
    found = registry.find_latest(subject)
    assert found is not None
    assert found == registry.fetch(schema_id)
    assert registry.find_latest(name()) is None


def test_version_of_a_subject_is_found_by_its_number_and_has_its_own_name(registry: Registry) -> None:
    wanted = name()
    subject, first = register(registry, AVRO, record(wanted, city="string"))
    registry.register(subject, AVRO, record(wanted, city="string", street="string"))
    earlier = registry.fetch(first)
    assert earlier is not None
    assert registry.fetch(SubjectVersion(subject, 1)) == replace(earlier, id=f"{subject} version 1")
    assert registry.fetch(SubjectVersion(subject, 3)) is None
    assert registry.fetch(SubjectVersion(name(), 1)) is None


def test_schema_of_a_guid_is_fetched_with_its_references(registry: Registry, gate: Gate) -> None:
    """The local registry has no GUIDs: the gate answers for it, and passes on what the schema refers to."""
    money = name()
    text = record(money, cents="long")
    subject, _ = register(registry, AVRO, text)
    bill = record(name(), total=f"shop.{money}")
    reference = {"name": f"shop.{money}", "subject": subject, "version": 1}
    gate.answers = [Answer(200, json.dumps({"guid": GUID, "schema": bill, "references": [reference]}))]
    assert through(gate).fetch(GUID) == WriterSchema(GUID, AVRO, bill, (Reference(f"shop.{money}", text),))
    assert gate.asked[0].endswith(f"/schemas/guids/{GUID}")
    gate.answers = [Answer(404, json.dumps({"error_code": 40403, "message": "Schema not found"}))]
    assert through(gate).fetch(GUID) is None


def test_registry_without_guids_says_so_and_one_that_is_away_or_elsewhere_does_not(
    registry: Registry, gate: Gate
) -> None:
    told = refused(registry, GuidsUnknownError, GUID)
    assert "knows schemas by their ids alone" in told.why
    for answer in (Answer(404, "<html>not here</html>"), Answer(503, "busy")):
        gate.answers = [answer] * 6
        assert refused(through(gate), ServiceUnavailableError, GUID).retryable
    # The negative control: once the gateway passes requests for ids on, the registry is there, and only GUIDs are not.
    gate.answers = [Answer(404, "<html>not here</html>")] * 3
    refused(through(gate), GuidsUnknownError, GUID)


JERSEY = '{"error_code": 404, "message": "HTTP 404 Not Found"}'
FORBIDDEN = Answer(403, '{"error_code": 40301, "message": "User is denied operation Read on Subject"}')


@pytest.mark.parametrize("status", [400, 404, 405])
@pytest.mark.parametrize("probe", [None, FORBIDDEN])
def test_no_way_to_guids_is_told_also_to_a_login_that_may_not_read_the_first_schema(
    gate: Gate, status: int, probe: Answer | None
) -> None:
    gate.answers = [*[Answer(status, JERSEY)] * 3, probe, probe]
    refused(through(gate), GuidsUnknownError, GUID)


def test_wrong_path_and_a_gateway_that_forbids_all_are_no_registry_without_guids(gate: Gate) -> None:
    gate.answers = [Answer(404, JERSEY)] * 6
    assert refused(through(gate), ServiceUnavailableError, GUID).retryable
    gate.answers = [*[Answer(404, JERSEY)] * 3, *[Answer(403, "<html>no</html>")] * 2]
    refused(through(gate), RightMissingError, GUID)


def test_guid_that_is_forbidden_is_refused_alone_while_ids_can_be_read(gate: Gate) -> None:
    gate.answers = [FORBIDDEN]
    assert "refuses it by its GUID" in refused(through(gate), SchemaRefusedError, GUID).why
    gate.answers = [FORBIDDEN] * 2
    refused(through(gate), RightMissingError, GUID)


def test_subject_may_have_any_character(registry: Registry) -> None:
    subject = f"{name()}/a b?c#d%é"
    schema_id = registry.register(subject, AVRO, record(name(), city="string"))
    assert registry.find_latest(subject) == registry.fetch(schema_id)


def test_registering_twice_is_registering_once(registry: Registry) -> None:
    text = record(name(), city="string")
    subject, schema_id = register(registry, AVRO, text)
    assert registry.register(subject, AVRO, text) == schema_id


@pytest.mark.always
def test_incompatible_schema_is_refused_in_the_words_of_the_registry(registry: Registry) -> None:
    wanted = name()
    subject, _ = register(registry, AVRO, record(wanted, city="string"))
    rule = f"{registry.settings.url}/config/{subject}"
    httpx.put(rule, json={"compatibility": "BACKWARD"}, trust_env=False).raise_for_status()
    with pytest.raises(SchemaRefusedError, match="reader type: INT not compatible with writer type: STRING") as told:
        registry.register(subject, AVRO, record(wanted, city="int"))
    assert subject in told.value.message


def test_text_that_is_no_schema_is_refused(registry: Registry) -> None:
    with pytest.raises(SchemaRefusedError):
        registry.register(name(), AVRO, '{"type": "recor')


def test_connection_of_the_local_services_leads_to_the_registry(registry: Registry) -> None:
    text = record(name(), city="string")
    _, schema_id = register(registry, AVRO, text)
    local = Registry(registry_settings(load_connection("registry_default")))
    assert local.fetch(schema_id) == WriterSchema(schema_id, AVRO, text)
    assert pickle.loads(pickle.dumps(local)) == local  # noqa: S301


@pytest.mark.always
def test_killed_registry_is_an_error_and_then_knows_its_schemas_again(
    registry: Registry, services: TestServices
) -> None:
    _, schema_id = register(registry, AVRO, record(name(), city="string"))
    found = registry.fetch(schema_id)
    assert found is not None
    home = services.home
    processes.stop(lambda: processes.find_members(home, ["registry"])["registry"], 30, first_signal=signal.SIGKILL)
    for asked in (schema_id, schema_id + 1):
        told = refused(registry, ServiceUnavailableError, asked)
        assert told.retryable
        assert "cannot be reached" in told.why
    services.up("registry")
    assert registry.fetch(schema_id) == found
    shown = look_at_stack(home, services.ports)
    assert shown.registry == {"url": registry.settings.url}
    assert "registry" in {each.name for each in shown.services}


@pytest.mark.always
@pytest.mark.parametrize("path", ["", "/apis", "/apis/ccompat", "/apis/ccompat/v9", "/apis/registry/v3"])
def test_wrong_path_is_not_an_unknown_id(registry_url: str, path: str) -> None:
    url = registry_url.replace("/apis/ccompat/v7", path)
    told = refused(Registry(RegistrySettings(url)), ServiceUnavailableError)
    assert "path of Confluent's API" in told.advice
    # Both say 404: the status alone would not tell them apart.
    unknown = f"{registry_url}/schemas/ids/{2**31 - 1}"
    for asked in (f"{url}/schemas/ids/1", unknown):
        assert httpx.get(asked, trust_env=False).status_code == 404


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (Answer(404, "<html>not here</html>"), "status 404"),
        (Answer(404, '{"error_code": 40401, "message": "no such subject"}'), "code 40401"),
        (Answer(404, '{"error_code": 404, "message": "HTTP 404 Not Found"}'), "code 404"),
        (Answer(404, '{"error_code": "40403"}'), "status 404"),
        (Answer(404, "[40403]"), "status 404"),
        (Answer(200, '{"error_code": 40403}'), "without the text of a schema"),
        (Answer(200, "<html>log in</html>"), "other than a JSON object"),
        (Answer(200, '{"schema": "{'), "other than a JSON object"),
        (Answer(200, ""), "other than a JSON object"),
        (Answer(200, '{"schema": "{}", "references": [{"name": "x"}]}'), "references that cannot be read"),
        (Answer(200, '{"schema": "{}", "references": 7}'), "references that cannot be read"),
        (Answer(400, '{"error_code": 40403}'), "status 400"),
        (Answer(429, ""), "status 429"),
        (Answer(500, '{"error_code": 50001, "message": "store"}'), "status 500 and code 50001"),
        (Answer(502, "<html>bad gateway</html>"), "status 502"),
        (Answer(503, '{"error_code": 40403}'), "status 503"),
    ],
    ids=lambda value: f"{value.status}-{len(value.body)}" if isinstance(value, Answer) else None,
)
def test_any_other_answer_may_pass_and_is_asked_for_twice_at_most(gate: Gate, answer: Answer, words: str) -> None:
    gate.answers = [answer] * 3
    told = refused(through(gate), ServiceUnavailableError)
    assert told.retryable
    assert words in told.why
    assert len(gate.asked) <= 2


def test_id_that_is_led_elsewhere_is_refused_alone_while_the_registry_answers_by_itself(gate: Gate) -> None:
    led_away = Answer(302, "", (("Location", "http://127.0.0.1:1/elsewhere"),))
    gate.answers = [led_away]
    assert "leads to another address" in refused(through(gate), SchemaRefusedError).why
    gate.answers = [led_away] * 4
    told = refused(through(gate), ServiceUnavailableError)
    assert told.retryable
    assert "status 302" in told.why


def test_one_failure_of_a_gateway_is_not_noticed(registry: Registry, gate: Gate) -> None:
    _, schema_id = register(registry, AVRO, record(name(), city="string"))
    gate.answers = [Answer(503)]
    assert through(gate).fetch(schema_id) == registry.fetch(schema_id)
    assert len(gate.asked) == 2


@pytest.mark.parametrize("how", [Silence, Drip])
def test_wait_for_an_answer_is_bounded(gate: Gate, how: type[Silence] | type[Drip]) -> None:
    gate.answers = [how] * 3
    told = refused(through(gate, timeout_seconds=0.4), ServiceUnavailableError)
    assert "did not answer within 0.4 s" in told.why
    assert len(gate.asked) == 2


def test_answer_without_end_is_given_up(gate: Gate) -> None:
    gate.answers = [Answer(200, " " * (17 * 2**20))]
    assert "more than 16 MiB" in refused(through(gate, timeout_seconds=20), SchemaRefusedError).why
    gate.answers = [Answer(502, " " * (17 * 2**20))] * 2
    assert "more than 16 MiB" in refused(through(gate, timeout_seconds=20), ServiceUnavailableError).why


def test_lost_reference_is_not_an_unknown_id(registry: Registry, gate: Gate) -> None:
    used = name()
    subject, _ = register(registry, AVRO, record(used, cents="long"))
    to_used = RegisteredReference(f"shop.{used}", subject, 1)
    _, schema_id = register(registry, AVRO, record(name(), net=f"shop.{used}"), to_used)
    lost = Answer(404, '{"error_code": 40402, "message": "Version 1 not found."}')
    gate.answers = [None, lost]
    told = refused(through(gate), SchemaRefusedError, schema_id)
    assert f"version 1 of subject {subject}" in told.why


def schema(*references: tuple[str, str]) -> Answer:
    listed = [{"name": name, "subject": subject, "version": 1} for name, subject in references]
    return Answer(200, json.dumps({"schema": json.dumps(references), "references": listed}))


def test_references_in_a_circle_are_refused(gate: Gate) -> None:
    gate.answers = [schema(("a", "a")), schema(("b", "b")), schema(("a", "a"))]
    assert "refers to itself: 'a'" in refused(through(gate), SchemaRefusedError).why


def test_one_name_for_two_schemas_is_refused(gate: Gate) -> None:
    gate.answers = [schema(("a", "x"), ("b", "y")), schema(), schema(("a", "z")), schema(("c", "x"))]
    assert "two schemas that this one calls 'a'" in refused(through(gate), SchemaRefusedError).why


def test_references_without_end_are_refused(gate: Gate) -> None:
    gate.answers = [schema((f"n{each}", f"s{each}")) for each in range(600)]
    assert "more than 500 references" in refused(through(gate, timeout_seconds=10), SchemaRefusedError).why


def test_schema_of_another_type_is_refused(gate: Gate) -> None:
    gate.answers = [Answer(200, '{"schema": "<a/>", "schemaType": "XSD"}')]
    assert "type 'XSD'" in refused(through(gate), SchemaRefusedError).why


def test_password_lets_in_and_a_wrong_one_does_not(registry: Registry, gate: Gate) -> None:
    _, schema_id = register(registry, AVRO, record(name(), city="string"))
    gate.authorization = f"Basic {b64encode(f'ana:{SECRET}'.encode()).decode()}"
    assert through(gate, login="ana", password=SECRET).fetch(schema_id) == registry.fetch(schema_id)
    gate.authorization = "Basic another"
    refused(through(gate, login="ana", password=SECRET), LoginRefusedError, schema_id)
    refused(through(gate), LoginRefusedError, schema_id)
    # A refused login is not tried again: it could lock the user out.
    assert len(gate.asked) == 3


def test_token_lets_in_and_a_wrong_one_does_not(registry: Registry, gate: Gate) -> None:
    _, schema_id = register(registry, AVRO, record(name(), city="string"))
    gate.authorization = f"Bearer {SECRET}"
    assert through(gate, token=SECRET).fetch(schema_id) == registry.fetch(schema_id)
    gate.authorization = "Bearer another"
    refused(through(gate, token=SECRET), LoginRefusedError, schema_id)
    refused(through(gate, token=f"{SECRET}\n"), ServiceUnavailableError, schema_id)


def test_missing_right_is_not_tried_again(gate: Gate) -> None:
    gate.answers = [Answer(403, f'{{"error_code": 40301, "message": "ana with {SECRET}"}}')]
    told = refused(through(gate), RightMissingError)
    assert not told.retryable
    assert len(gate.asked) == 1


def test_registry_of_an_own_authority_is_believed_once_that_is_named(
    registry: Registry, registry_url: str, authority: Authority
) -> None:
    _, schema_id = register(registry, AVRO, record(name(), city="string"))
    with open_gate(registry_url, certificate=authority.issue("registry")) as gate:
        told = refused(through(gate), CertificateUntrustedError, schema_id)
        assert "ssl.ca.location" in told.advice
        named = (
            through(gate, authority_file=str(authority.path)),
            through(gate, authority_text=authority.path.read_text()),
        )
        for each in named:
            assert each.fetch(schema_id) == registry.fetch(schema_id)
        other = replace(named[0].settings, url=gate.url.replace("127.0.0.1", "localhost"))
        assert "by a name that its certificate has" in refused(Registry(other), CertificateUntrustedError).advice


def test_expired_certificate_says_so(registry_url: str, authority: Authority) -> None:
    with open_gate(registry_url, certificate=authority.issue("registry", expired=True)) as gate:
        told = refused(through(gate, authority_file=str(authority.path)), CertificateExpiredError)
    assert "Renew the certificate" in told.advice


def test_client_certificate_lets_in_and_a_missing_or_foreign_one_does_not(
    registry: Registry, registry_url: str, authority: Authority, tmp_path: Path
) -> None:
    _, schema_id = register(registry, AVRO, record(name(), city="string"))
    place = str(authority.path)
    with open_gate(registry_url, certificate=authority.issue("registry"), clients=place) as gate:
        for password in ("", KEY_PASSWORD):
            certificate, key = map(str, authority.issue("etl", password=password))
            own = {"certificate_file": certificate, "key_file": key, "key_password": password or None}
            assert through(gate, authority_file=place, **own).fetch(schema_id) == registry.fetch(schema_id)
        (tmp_path / "other").mkdir()
        certificate, key = map(str, Authority(tmp_path / "other").issue("etl"))
        foreign = {"certificate_file": certificate, "key_file": key}
        for each in ({}, foreign):
            told = refused(through(gate, authority_file=place, **each), CertificateUntrustedError, schema_id)
            assert "certificate of this client" in told.why


def test_certificates_that_cannot_be_read_are_named(authority: Authority, tmp_path: Path) -> None:
    certificate, key = map(str, authority.issue("etl", password=KEY_PASSWORD))
    settings = RegistrySettings("https://127.0.0.1:1")
    missing = str(tmp_path / "missing.pem")
    told = refused(Registry(replace(settings, authority_file=missing)), ConfigurationError)
    assert told.why == f"ssl.ca.location is {missing}, and there is no such file here."
    refused(Registry(replace(settings, authority_text="no certificate")), ConfigurationError)
    for password in (None, "another"):
        locked = replace(settings, certificate_file=certificate, key_file=key, key_password=password)
        refused(Registry(locked), ConfigurationError)


def test_registry_that_does_not_run_is_an_error_with_its_address() -> None:
    url = f"http://127.0.0.1:{free_port()}"
    told = refused(Registry(RegistrySettings(url, login="ana", password=SECRET)), ServiceUnavailableError)
    assert told.subject == url
    assert url in told.why
    refused(Registry(RegistrySettings("http://registry.invalid:8081")), ServiceUnavailableError)
