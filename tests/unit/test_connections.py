"""What people read when a pipeline file names a connection that Airflow does not know."""

import os
from pathlib import Path
from typing import Any

import pytest

from batchledger.config.pipeline_file import PipelineConfig
from batchledger.model.errors import ConnectionMissingError
from batchledger.settings import connections
from batchledger.settings.connections import find_missing_service, load_connection
from batchledger.settings.lookup import PREFIX
from batchledger.wiring import build_platform, choose_stage_step, open_channel
from tests.conftest import ROOT


@pytest.fixture(autouse=True)
def names(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that a variable defines, beside those that Airflow's file does; services that run define others so."""
    for each in [each for each in os.environ if each.startswith(PREFIX)]:
        monkeypatch.delenv(each)
    monkeypatch.setenv("AIRFLOW_CONN_PAGER", '{"conn_type": "http", "host": "pager"}')


def pipeline(**changes: Any) -> PipelineConfig:
    content = {
        "name": "orders",
        "source": {"topics": ["orders"], "schema": "id string"},
        "sink": {"type": "iceberg", "table": "shop.orders"},
        **changes,
    }
    return PipelineConfig.model_validate(content, context={"folder": Path("/etc/pipelines")})


def test_message_names_file_and_key_the_type_the_nearest_name_and_where_an_example_is() -> None:
    config = pipeline(sink={"type": "iceberg", "table": "shop.orders", "catalog": "lakehouse"})
    with pytest.raises(ConnectionMissingError) as told:
        build_platform(config)
    assert str(told.value) == (
        "/etc/pipelines/orders.yaml: sink.catalog: Airflow knows no connection 'lakehouse'.\n"
        "Airflow looked in the secrets backend LocalFilesystemBackend; the environment (AIRFLOW_CONN_LAKEHOUSE).\n"
        "Did you mean 'lake'?\n"
        "Define one of type iceberg: airflow connections add lakehouse "
        """--conn-json '{"conn_type": "iceberg", "host": "HOST"}'\n"""
        "Or set the environment variable AIRFLOW_CONN_LAKEHOUSE. The documentation shows one: guides/iceberg"
    )


@pytest.mark.parametrize(
    ("changes", "key", "type_", "defined"),
    [
        (
            {"source": {"topics": ["orders"], "schema": "id string", "connection": "x"}},
            "source.connection",
            "kafka",
            "kafka_default",
        ),
        ({"sink": {"table": "orders", "connection": "x"}}, "sink.connection", "postgres", "ledger_owner, warehouse"),
        (
            {"sink": {"type": "kafka", "topic": "clean", "connection": "x"}},
            "sink.connection",
            "kafka",
            "kafka_default",
        ),
        ({"ledger": "x"}, "ledger", "postgres", "ledger_owner, other_warehouse, warehouse"),
        ({"spark": "x"}, "spark", "spark-connect or spark", "spark_default"),
    ],
)
def test_every_key_that_names_a_connection_is_told_with_what_would_fit(
    changes: dict[str, Any], key: str, type_: str, defined: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if key == "ledger":
        monkeypatch.setenv("AIRFLOW_CONN_OTHER_WAREHOUSE", "postgres://etl:secret@db/warehouse")
    with pytest.raises(ConnectionMissingError) as told:
        choose_stage_step(pipeline(**changes)) if key == "spark" else build_platform(pipeline(**changes))
    assert str(told.value).startswith(f"/etc/pipelines/orders.yaml: {key}: Airflow knows no connection 'x'.\n")
    assert f"Defined there: {defined}.\nDefine one of type {type_}: airflow connections add x " in str(told.value)


def test_channel_of_alerts_is_told_too() -> None:
    with pytest.raises(ConnectionMissingError, match=r"(?s)^alerts: .*Did you mean 'pager'\?") as told:
        open_channel("pagers")
    assert told.value.subject == "pagers"
    assert "of type apprise or smtp or http: airflow connections add pagers --conn-json" in str(told.value)


def test_local_services_are_named_only_for_a_connection_that_they_define(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("airflow.sdk.BaseHook.get_connection", _know_nothing)
    with pytest.raises(ConnectionMissingError, match="services: batchledger up") as told:
        load_connection("lake")
    assert find_missing_service(told.value) == told.value.subject == "lake"
    with pytest.raises(ConnectionMissingError) as told:
        load_connection("elsewhere")
    assert told.value.subject == "elsewhere"
    assert find_missing_service(told.value) == ""
    assert "batchledger up" not in str(told.value)


def test_pages_that_are_named_are_in_the_documentation() -> None:
    for page in {*connections._PAGE_BY_TYPE.values(), connections._OTHER_PAGE}:
        assert (ROOT / "docs" / f"{page}.md").exists()


def _know_nothing(connection_id: str) -> None:
    from airflow.sdk.exceptions import AirflowNotFoundException

    raise AirflowNotFoundException(connection_id)
