"""A real Airflow, and what it sends to. It runs for the tests of this folder only: idle, it takes a third of a core."""

import json
from collections.abc import Iterator

import pytest

from batchledger.local.airflow_api import AirflowAccount, AirflowApi, open_airflow
from batchledger.local.stack import local_stack, processes
from batchledger.local.stack.airflow_components import ADMIN, VIEWER, airflow_url
from tests.conftest import Kafka, TestServices
from tests.e2e.own_dags import OwnDags
from tests.endpoints import Webhook, serve_webhook
from tests.otlp import OtlpReceiver, serve_otlp


@pytest.fixture(scope="package")
def lineage() -> Iterator[Webhook]:
    """The server to which Airflow sends what OpenLineage shall hear."""
    with serve_webhook() as endpoint:
        yield endpoint


@pytest.fixture(scope="package")
def otlp() -> Iterator[OtlpReceiver]:
    """The receiver to which Airflow sends traces and metrics."""
    with serve_otlp() as receiver:
        yield receiver


@pytest.fixture(scope="package")
def airflow(
    services: TestServices, kafka: Kafka, warehouse_dsn: str, spark: None, lineage: Webhook, otlp: OtlpReceiver
) -> Iterator[AirflowApi]:
    """A real Airflow with this project's DAGs, logged in as its administrator."""
    # As the command line has it, which is quiet itself.
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("AIRFLOW__LOGGING__LOGGING_LEVEL", "ERROR")
        environment.setenv("AIRFLOW__OPENLINEAGE__TRANSPORT", json.dumps({"type": "http", "url": lineage.url}))
        for name, value in otlp.settings.items():
            environment.setenv(name, value)
        services.up(*local_stack.AIRFLOW_SERVICES)
    try:
        account = AirflowAccount(airflow_url(services.ports), ADMIN, services.home.airflow_password_file)
        with open_airflow(account) as api:
            yield api
    finally:
        for name in local_stack.AIRFLOW_SERVICES:
            processes.stop(lambda name=name: processes.find_members(services.home, [name])[name], 10)


@pytest.fixture(scope="package")
def viewer(services: TestServices, airflow: AirflowApi) -> Iterator[AirflowApi]:
    """The same Airflow, logged in as a user who may look at everything and act on nothing."""
    with open_airflow(AirflowAccount(airflow.url, VIEWER, services.home.airflow_password_file)) as api:
        yield api


@pytest.fixture
def own_dags(airflow: AirflowApi, services: TestServices) -> Iterator[OwnDags]:
    """A person's own DAGs, which are gone after the test."""
    own = OwnDags(airflow, services)
    yield own
    for dag_id in own.added:
        (services.home.more_dags / f"{dag_id}.py").unlink()
