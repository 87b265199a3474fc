"""What OpenLineage hears of a published batch: topics with exact offsets, the target, and what the audit has found.

A look that has proved a watched table names the topics and the table.

Counts, coordinates and names; no value of a record. The provider calls this in a process beside the task, when Airflow
has stored how the task has ended. Whatever goes wrong here is a warning in the log of the task.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import attrs
from airflow.providers.openlineage.api.core import emit
from airflow.providers.openlineage.extractors import OperatorLineage
from airflow.providers.openlineage.plugins.macros import lineage_job_name, lineage_job_namespace, lineage_run_id
from openlineage.client.event_v2 import InputDataset, Job, OutputDataset, Run, RunEvent, RunState
from openlineage.client.facet_v2 import (
    DatasetFacet,
    InputDatasetFacet,
    data_quality_assertions_dataset,
    dataset_version_dataset,
    output_statistics_output_dataset,
    schema_dataset,
)
from typing_extensions import override

from batchledger.model.checks import Outcome, Severity
from batchledger.model.datasets import Dataset
from batchledger.model.published import PublishedBatch
from batchledger.model.records.columns import parse_columns

if TYPE_CHECKING:
    from airflow.sdk.types import RuntimeTaskInstanceProtocol

RANGES_SENT = 1_000
"""The facet of a topic names at most so many ranges, and counts them all; the ledger has them all."""
OFFSETS_FACET = "batchledger_offsets"
PRODUCER = "urn:batchledger:openlineage"
OFFSETS_SCHEMA = "urn:batchledger:openlineage:1-0-0:OffsetsInputDatasetFacet.json#/$defs/OffsetsInputDatasetFacet"
"""Names the schema that docs/reference/openlineage has; a release that changes the facet changes the name."""


@attrs.define
class OffsetRangeEntry:
    """One offset range of a topic: ``[start, until)``."""

    partition: int
    start: int
    until: int


@attrs.define
class OffsetsInputDatasetFacet(InputDatasetFacet):
    """The exact offsets of a topic that a batch consists of; ``rangesTotal`` counts those that are left out, too."""

    batchId: int  # noqa: N815 -- OpenLineage's way to write names
    lane: str
    ranges: list[OffsetRangeEntry]
    rangesTotal: int  # noqa: N815

    @staticmethod
    @override
    def _get_schema() -> str:
        return OFFSETS_SCHEMA


def describe_lineage(published: PublishedBatch) -> "OperatorLineage[Any, Any]":
    """Return the topics as inputs and the target as output, with their facets."""
    return OperatorLineage(
        inputs=[_describe_topic(published, each) for each in published.sources],
        outputs=[_describe_target(published)],
    )


def describe_proof(topics: Sequence[Dataset], table: Dataset | None) -> "OperatorLineage[Any, Any]":
    """Return topics and table as inputs of a look that has proved the table; None if its name is not known."""
    proof = data_quality_assertions_dataset.Assertion("each record has one row", success=True, severity="error")
    proved = data_quality_assertions_dataset.DataQualityAssertionsDatasetFacet([proof], producer=PRODUCER)
    inputs = [InputDataset(each.namespace, each.name) for each in topics]
    if table is not None:
        inputs.append(InputDataset(table.namespace, table.name, inputFacets={"dataQualityAssertions": proved}))
    return OperatorLineage(inputs=inputs)


def send_start(ti: "RuntimeTaskInstanceProtocol") -> None:
    """Send the START event of a task that has ended; each run in OpenLineage has to have one."""
    emit(
        RunEvent(
            eventTime=ti.start_date.isoformat(),
            eventType=RunState.START,
            run=Run(lineage_run_id(ti)),
            job=Job(lineage_job_namespace(), lineage_job_name(ti)),  # type: ignore[no-untyped-call] # The provider's.
            producer=PRODUCER,
        )
    )


def _describe_topic(published: PublishedBatch, topic: Dataset) -> InputDataset:
    batch = published.batch
    ranges = [each for each in batch.ranges if each.partition.topic == topic.name]
    entries = [OffsetRangeEntry(each.partition.partition, each.start, each.until) for each in ranges[:RANGES_SENT]]
    offsets = OffsetsInputDatasetFacet(batch.batch_id, str(batch.lane), entries, len(ranges), producer=PRODUCER)
    return InputDataset(
        topic.namespace,
        topic.name,
        facets={**_describe_schema(published.schema)},
        inputFacets={OFFSETS_FACET: offsets, "dataQualityAssertions": _describe_checks(published)},
    )


def _describe_target(published: PublishedBatch) -> OutputDataset:
    facets = {} if published.is_transformed else _describe_schema(published.schema)
    if published.snapshot_id is not None:
        version = dataset_version_dataset.DatasetVersionDatasetFacet(str(published.snapshot_id), producer=PRODUCER)
        facets["version"] = version
    rows = output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet(published.accepted, producer=PRODUCER)
    target = published.target
    return OutputDataset(target.namespace, target.name, facets=facets, outputFacets={"outputStatistics": rows})


def _describe_schema(schema: str | None) -> dict[str, DatasetFacet]:
    if schema is None:
        return {}
    fields = [schema_dataset.SchemaDatasetFacetFields(each.name, str(each.type)) for each in parse_columns(schema)]
    return {"schema": schema_dataset.SchemaDatasetFacet(fields, producer=PRODUCER)}


def _describe_checks(published: PublishedBatch) -> data_quality_assertions_dataset.DataQualityAssertionsDatasetFacet:
    """Return the checks that have judged something, each by its name: its detail may hold a mean or a bound."""
    judged: Sequence[data_quality_assertions_dataset.Assertion] = [
        data_quality_assertions_dataset.Assertion(
            each.name, each.passed, severity="error" if each.severity is Severity.CRITICAL else "warn"
        )
        for each in published.checks
        if each.outcome in (Outcome.PASSED, Outcome.FAILED)
    ]
    return data_quality_assertions_dataset.DataQualityAssertionsDatasetFacet(list(judged), producer=PRODUCER)
