"""What Airflow reads of the package as a provider: data that fits its schema, and forms whose fields the code takes."""

import json
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import airflow
import jsonschema
import pytest
from airflow.providers_manager import ProvidersManager

from batchledger import DISTRIBUTION
from batchledger.interfaces.airflow.provider import get_provider_info
from batchledger.interfaces.page.rights import SECTION, SETTINGS
from batchledger.model.errors import ConfigurationError
from batchledger.settings.connections import Connection
from batchledger.settings.kafka_options import CONNECTION_OPTIONS, OPTIONS_BY_MECHANISM, PROTOCOLS
from batchledger.settings.registry_options import REGISTRY_OPTIONS
from batchledger.settings.tls_options import TLS_OPTIONS
from batchledger.sinks.iceberg.connection import lake_catalog

FORMS: dict[str, dict[str, Any]] = {each["connection-type"]: each for each in get_provider_info()["connection-types"]}
OF_AIRFLOW = ("airflow", "pydantic", "yaml")
HEAVY = ("airflow", "confluent_kafka", "pydantic", "pyiceberg", "pyspark", "psycopg", "yaml")
READ_INFO = "from batchledger.interfaces.airflow.provider import get_provider_info; get_provider_info()"
"""What every process of Airflow's does."""
IMPORT_HOOKS = "from batchledger.interfaces.airflow import hooks"
"""What the API server of Airflow 3.2 does besides, to list the types of connections."""


def choices(type_: str, field: str) -> set[str]:
    return set(FORMS[type_]["conn-fields"][field]["schema"]["enum"])


def load(name: str) -> Any:
    module, _, what = name.rpartition(".")
    return getattr(import_module(module), what)


def test_it_fits_the_schema_of_airflow() -> None:
    schema = json.loads(Path(airflow.__file__).with_name("provider_info.schema.json").read_text())
    jsonschema.validate(get_provider_info(), schema)


def test_options_are_the_settings_that_the_page_reads() -> None:
    (section,) = get_provider_info()["config"].values()
    assert section["options"].keys() == {*SETTINGS.values()}
    assert get_provider_info()["config"].keys() == {SECTION}


def test_every_name_in_it_can_be_imported() -> None:
    info = get_provider_info()
    assert all(map(load, info["extra-links"]))
    for part in ("hooks", "triggers"):
        assert all(import_module(each) for entry in info[part] for each in entry["python-modules"])
    for form in FORMS.values():
        hook = load(form["hook-class-name"])
        assert (hook.conn_type, hook.hook_name) == (form["connection-type"], form["hook-name"])
        assert vars(hook(**{hook.conn_name_attr: "shop"}))[hook.conn_name_attr] == "shop"


def test_airflow_has_our_types_and_warns_of_none(caplog: pytest.LogCaptureFixture) -> None:
    found = {each.connection_type: each for each in ProvidersManager().iter_connection_type_hook_ui_metadata()}
    assert {name: found[name].hook_class_name for name in FORMS} == {
        name: form["hook-class-name"] for name, form in FORMS.items()
    }
    assert all(found[name].field_behaviour for name in FORMS)
    assert [each.getMessage() for each in caplog.records if DISTRIBUTION in each.getMessage()] == []


@pytest.mark.parametrize(
    ("distribution", "left"),
    [
        ("apache_airflow_providers_apache_kafka", {"http", "iceberg"}),
        ("apache_airflow_providers_http", {"kafka", "iceberg"}),
        ("apache_airflow_providers_apache_iceberg", {"http", "kafka"}),
        ("apache_airflow_providers_amazon", {*FORMS}),
    ],
)
def test_a_type_that_another_installed_provider_brings_stays_its_own(
    distribution: str, left: set[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / f"{distribution}-1.0.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.0.0\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert {each["connection-type"] for each in get_provider_info()["connection-types"]} == left


@pytest.mark.parametrize(("program", "known"), [(READ_INFO, ()), (IMPORT_HOOKS, OF_AIRFLOW)], ids=["info", "hooks"])
def test_reading_it_and_listing_its_types_import_nothing_heavy(program: str, known: tuple[str, ...]) -> None:
    told = f"{program}; import sys; print(*[each for each in {HEAVY} if each in sys.modules])"
    done = subprocess.run([sys.executable, "-c", told], capture_output=True, text=True, check=True)
    assert set(done.stdout.split()) <= {*known}


def test_each_field_of_kafka_is_an_option_of_connections_with_the_choices_that_it_has() -> None:
    assert FORMS["kafka"]["conn-fields"].keys() <= set(CONNECTION_OPTIONS)
    assert choices("kafka", "security.protocol") == {*PROTOCOLS}
    assert choices("kafka", "sasl.mechanism") == OPTIONS_BY_MECHANISM.keys()
    needed = {option for options in OPTIONS_BY_MECHANISM.values() for option in options}
    assert needed <= FORMS["kafka"]["conn-fields"].keys()


def test_each_field_of_http_is_for_a_registry_and_for_a_webhook() -> None:
    assert FORMS["http"]["conn-fields"].keys() <= set(REGISTRY_OPTIONS) & set(TLS_OPTIONS)


def open_lake(**extra: str) -> None:
    lake_catalog(Connection("lake", "iceberg", host="https://catalog", extra=extra))


@pytest.mark.parametrize("field", sorted(FORMS["iceberg"]["conn-fields"].keys() - {"type"}))
def test_each_field_of_iceberg_is_taken_by_a_catalog_of_one_of_the_types(field: str) -> None:
    refused = []
    for type_ in choices("iceberg", "type"):
        try:
            open_lake(type=type_, **{field: "/file"})
        except ConfigurationError:
            refused.append(type_)
    assert len(refused) < len(choices("iceberg", "type"))


def test_negative_control_another_field_and_another_choice_are_taken_by_none() -> None:
    for type_ in choices("iceberg", "type"):
        with pytest.raises(ConfigurationError):
            open_lake(type=type_, warehose="/file")
    with pytest.raises(ConfigurationError, match="catalog of type 'dynamodb'"):
        open_lake(type="dynamodb")


def test_each_field_has_a_label_and_secrets_are_hidden() -> None:
    fields = {(name, key): each for name, form in FORMS.items() for key, each in form["conn-fields"].items()}
    assert [place for place, each in fields.items() if not each["label"]] == []
    hidden = {key for (_, key), each in fields.items() if each["schema"].get("format") == "password"}
    named_so = {key for _, key in fields if key.endswith(("password", "secret", "token", "secret-access-key"))}
    assert hidden == named_so


@pytest.mark.parametrize("type_", FORMS)
def test_a_form_whose_fields_are_left_empty_makes_a_connection_without_settings(type_: str) -> None:
    for empty in (None, ""):
        assert Connection("shop", type_, extra=dict.fromkeys(FORMS[type_]["conn-fields"], empty)).extra == {}
