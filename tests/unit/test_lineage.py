"""What OpenLineage hears of a batch: facets as the specification has them, and no value of a record."""

import json
from collections.abc import Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import jsonschema
import msgspec
import pytest
from airflow.providers.openlineage.utils.emission_policy import OL_EMISSION_POLICY_PARAM, resolve_task_emission_policy
from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.sdk import DAG
from airflow.sdk.exceptions import AirflowFailException
from airflow.sdk.execution_time.context import set_current_context
from openlineage.client.serde import Serde

from batchledger.interfaces.airflow import assets, lineage
from batchledger.interfaces.airflow.lineage_facets import OFFSETS_SCHEMA, RANGES_SENT, describe_lineage
from batchledger.interfaces.airflow.tasks import PublishOperator
from batchledger.lifecycle import plans
from batchledger.model.checks import CheckResult, Outcome, Severity
from batchledger.model.published import PublishedBatch
from tests.conftest import ROOT
from tests.fakes.world import ORDERS_0, World, stage_and_audit
from tests.openlineage import require_valid_datasets
from tests.unit.test_airflow_tasks import CONFIG
from tests.unit.test_published import published

SCHEMA = json.loads((ROOT / "docs" / "reference" / "openlineage" / "OffsetsInputDatasetFacet.json").read_text())
CHECKS = (
    CheckResult("no_duplicate_offsets", Outcome.PASSED, "none"),
    CheckResult("expect_column_mean_to_be_between(amount)", Outcome.FAILED, "s3cret", severity=Severity.WARNING),
    CheckResult("expect_column_max_to_be_between(amount)", Outcome.NOT_RUN, "s3cret", severity=Severity.INFO),
    CheckResult("expect_column_values_to_be_unique(id)", Outcome.EMPTY, "no row"),
)


def send(batch: PublishedBatch) -> dict[str, Any]:
    """The datasets as they travel."""
    found = describe_lineage(batch)
    sent = {"inputs": found.inputs, "outputs": found.outputs}
    return {name: [json.loads(Serde.to_json(each)) for each in datasets] for name, datasets in sent.items()}


def test_topic_is_the_input_with_exact_offsets_its_schema_and_what_the_audit_has_judged() -> None:
    batch = replace(published(2), checks=CHECKS, schema="id string, amount double")
    (topic,) = send(batch)["inputs"]
    assert (topic["namespace"], topic["name"]) == ("kafka://broker:9092", "orders")
    offsets = topic["inputFacets"]["batchledger_offsets"]
    assert (offsets["batchId"], offsets["lane"], offsets["rangesTotal"]) == (17, "live", 2)
    assert offsets["ranges"] == [{"partition": number, "start": 10, "until": 15} for number in (0, 1)]
    fields = topic["facets"]["schema"]["fields"]
    assert [(each["name"], each["type"]) for each in fields] == [("id", "string"), ("amount", "double")]
    judged = topic["inputFacets"]["dataQualityAssertions"]["assertions"]
    assert [(each["assertion"], each["success"], each["severity"]) for each in judged] == [
        ("no_duplicate_offsets", True, "error"), ("expect_column_mean_to_be_between(amount)", False, "warn")
    ]  # fmt: skip
    assert "s3cret" not in json.dumps(topic)


def test_target_is_the_output_with_its_rows_and_the_snapshot_of_an_iceberg_table() -> None:
    (table,) = send(replace(published(1), schema="id string"))["outputs"]
    assert (table["namespace"], table["name"]) == ("postgres://db:5432", "shop.public.orders")
    assert table["outputFacets"]["outputStatistics"]["rowCount"] == 4
    assert list(table["facets"]) == ["schema"]
    (lake,) = send(replace(published(1, snapshot_id=99), schema="id string", is_transformed=True))["outputs"]
    assert list(lake["facets"]) == ["version"]
    assert lake["facets"]["version"]["datasetVersion"] == "99"


def test_event_of_ten_thousand_partitions_is_cut_and_says_so() -> None:
    (topic,) = send(published(10_000))["inputs"]
    offsets = topic["inputFacets"]["batchledger_offsets"]
    assert (len(offsets["ranges"]), offsets["rangesTotal"]) == (RANGES_SENT, 10_000)


@pytest.mark.parametrize("batch", [published(2), replace(published(1, 99), checks=CHECKS, schema="id string")])
def test_datasets_are_valid_by_the_specification_and_the_own_facet_by_the_schema_that_it_names(
    batch: PublishedBatch,
) -> None:
    sent = send(batch)
    require_valid_datasets(sent)
    facet = sent["inputs"][0]["inputFacets"]["batchledger_offsets"]
    jsonschema.validate(facet, SCHEMA, cls=jsonschema.Draft202012Validator)
    assert facet["_schemaURL"] == f"{SCHEMA['$id']}#/$defs/OffsetsInputDatasetFacet" == OFFSETS_SCHEMA


@pytest.mark.parametrize("spoil", [{"rowCount": "four"}, {"_schemaURL": None}])
def test_negative_control_a_facet_that_is_not_of_the_specification_is_refused(spoil: Mapping[str, Any]) -> None:
    sent = send(published(1))
    sent["outputs"][0]["outputFacets"]["outputStatistics"] |= spoil
    with pytest.raises(msgspec.ValidationError):
        require_valid_datasets(sent)


def test_tasks_are_silent_until_one_lets_its_events_through() -> None:
    assert lineage.EMISSION_POLICY == OL_EMISSION_POLICY_PARAM
    with DAG("orders", schedule=None) as dag:
        plan, publish = EmptyOperator(task_id="plan"), EmptyOperator(task_id="publish")

    def sending() -> list[bool]:
        return [resolve_task_emission_policy(each, "orders", each.task_id).emit for each in (plan, publish)]

    assert sending() == [True, True]
    lineage.silence(dag)
    assert sending() == [False, False]
    lineage.let_through(publish)
    assert sending() == [False, True]


def test_publication_that_fails_stays_silent_because_its_event_would_hold_the_words_of_the_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The words may quote a row. The same task sends once it has published."""
    world = World()
    world.broker.create_topic("orders", 1)
    world.produce(ORDERS_0, 10)
    planned = plans.plan(world.process(), "run-1")
    assert planned is not None
    monkeypatch.setattr("batchledger.wiring.build_platform", lambda _: world.process())
    monkeypatch.setattr("batchledger.interfaces.published.describe_published", lambda *_: published(1))
    monkeypatch.setattr(assets, "announce", lambda *_: True)
    with DAG("orders", schedule=None) as dag:
        publish = PublishOperator(task_id="publish", pipeline=CONFIG, batch_id=planned.batch_id)
    lineage.silence(dag)
    context: Any = {"dag_run": SimpleNamespace(run_id="run-1")}

    def is_sending() -> bool:
        return resolve_task_emission_policy(publish, "orders", "publish").emit

    with set_current_context(context):
        with pytest.raises(AirflowFailException):
            publish.execute(context)
        assert not is_sending()
        stage_and_audit(world.process(), "run-1")
        publish.execute(context)
    assert is_sending()
