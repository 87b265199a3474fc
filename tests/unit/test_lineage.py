"""What OpenLineage hears of a batch: facets as the specification has them, and no value of a record."""

import json
import uuid
from dataclasses import replace
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import jsonschema
import pytest
from airflow.providers.openlineage.utils.emission_policy import OL_EMISSION_POLICY_PARAM, resolve_task_emission_policy
from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.sdk import DAG
from airflow.sdk.definitions.param import process_params
from airflow.sdk.exceptions import AirflowFailException
from airflow.sdk.execution_time.context import set_current_context
from openlineage.client.event_v2 import Job, Run, RunEvent, RunState
from openlineage.client.facet_v2 import parent_run
from openlineage.client.serde import Serde

from batchledger.interfaces.airflow import assets, lineage
from batchledger.interfaces.airflow.lineage_facets import OFFSETS_SCHEMA, PRODUCER, RANGES_SENT, describe_lineage
from batchledger.interfaces.airflow.operators import PublishOperator
from batchledger.lifecycle import plans
from batchledger.model.checks import CheckResult, Outcome, Severity
from batchledger.model.published import PublishedBatch
from tests.fakes.world import ORDERS_0, World, stage_and_audit
from tests.openlineage import OFFSETS, require_valid
from tests.unit.test_airflow_tasks import CONFIG, task_instance
from tests.unit.test_published import published

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


BATCHES = [published(2), replace(published(1, 99), checks=CHECKS, schema="id string")]


def send_event(batch: PublishedBatch) -> dict[str, Any]:
    """An event of the batch as it travels, with a parent, as Airflow's provider makes it."""
    found, run = describe_lineage(batch), str(uuid.uuid4())
    parent = parent_run.ParentRunFacet(parent_run.Run(run), parent_run.Job("default", "orders"))
    event = RunEvent(
        eventTime=datetime.now(UTC).isoformat(),
        eventType=RunState.COMPLETE,
        run=Run(str(uuid.uuid4()), {"parent": parent}),
        job=Job("default", "orders.publish"),
        inputs=found.inputs,
        outputs=found.outputs,
        producer=PRODUCER,
    )
    sent: dict[str, Any] = json.loads(Serde.to_json(event))
    return sent


@pytest.mark.parametrize("batch", BATCHES)
def test_event_is_valid_by_the_specification_and_the_own_facet_by_the_schema_that_it_names(
    batch: PublishedBatch,
) -> None:
    sent = send_event(batch)
    require_valid(sent)
    facet = sent["inputs"][0]["inputFacets"]["batchledger_offsets"]
    assert facet["_schemaURL"] == f"{OFFSETS['$id']}#/$defs/OffsetsInputDatasetFacet" == OFFSETS_SCHEMA
    jsonschema.validate(facet, OFFSETS, cls=jsonschema.Draft202012Validator)


MISSING = object()
SPOILED: list[tuple[str, object]] = [
    ("eventTime", "2026-01-01T00:00:00"), ("eventTime", "2026-01-01"), ("eventTime", MISSING),
    ("eventType", "ENDED"), ("producer", "batchledger"), ("producer", MISSING),
    ("schemaURL", "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/JobEvent"), ("schemaURL", MISSING),
    ("run.runId", "17"), ("run", MISSING), ("run.facets.parent.job.name", MISSING),
    ("run.facets.parent._producer", MISSING), ("run.facets.own", {"_producer": "urn:any"}),
    ("job.name", MISSING), ("job.namespace", MISSING), ("job", MISSING),
    ("inputs.0.name", MISSING), ("inputs.0.facets.schema._schemaURL", MISSING),
    ("inputs.0.facets.schema.fields.0.name", MISSING), ("inputs.0.facets.other", {}),
    ("inputs.0.inputFacets.dataQualityAssertions.assertions", MISSING),
    ("inputs.0.inputFacets.dataQualityAssertions.assertions.0.success", "yes"),
    ("inputs.0.inputFacets.batchledger_offsets.lane", "fast"),
    ("inputs.0.inputFacets.batchledger_offsets.ranges.0.start", -1),
    ("inputs.0.inputFacets.batchledger_offsets._schemaURL", MISSING),
    ("outputs.0.namespace", MISSING), ("outputs.0.facets.version.datasetVersion", 99),
    ("outputs.0.outputFacets.outputStatistics.rowCount", "four"),
    ("outputs.0.outputFacets.outputStatistics._schemaURL", "https://openlineage.io/spec/facets/Other.json"),
]  # fmt: skip


@pytest.mark.parametrize(("path", "value"), SPOILED, ids=[f"{path}={value!r:.20}" for path, value in SPOILED])
def test_negative_control_an_event_that_is_not_of_the_specification_is_refused(path: str, value: object) -> None:
    sent = send_event(BATCHES[1])
    *way, last = path.split(".")
    part: Any = sent
    for name in way:
        part = part[int(name)] if isinstance(part, list) else part[name]
    if value is MISSING:
        del part[last]
    else:
        part[last] = value
    with pytest.raises(jsonschema.ValidationError):
        require_valid(sent)


def test_tasks_are_silent_until_one_lets_its_events_through() -> None:
    assert lineage.EMISSION_POLICY == OL_EMISSION_POLICY_PARAM
    with DAG("orders", schedule=None, params={"reason": "none"}) as dag:
        plan, publish = EmptyOperator(task_id="plan"), EmptyOperator(task_id="publish")

    def sending() -> list[bool]:
        return [resolve_task_emission_policy(each, "orders", each.task_id).emit for each in (plan, publish)]

    assert sending() == [True, True]
    lineage.silence(dag)
    assert sending() == [False, False]
    lineage.let_through(publish)
    assert sending() == [False, True]
    assert set(plan.params) == {lineage.EMISSION_POLICY}
    assert process_params(dag, plan, {"reason": "asked"}, suppress_exception=False)["reason"] == "asked"


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
    monkeypatch.setattr(assets, "announce", lambda *_, **__: True)
    with DAG("orders", schedule=None) as dag:
        publish = PublishOperator(task_id="publish", pipeline=CONFIG)
    lineage.silence(dag)
    context: Any = {
        "dag_run": SimpleNamespace(run_id="run-1"),
        "ti": task_instance("publish", planned.batch_id),
    }

    def is_sending() -> bool:
        return resolve_task_emission_policy(publish, "orders", "publish").emit

    with set_current_context(context):
        with pytest.raises(AirflowFailException):
            publish.execute(context)
        assert not is_sending()
        stage_and_audit(world.process(), "run-1")
        publish.execute(context)
    assert is_sending()
