"""Whether what was sent is as OpenLineage's specification has it.

The client's classes are generated from the JSON schemas of the specification, so their fields, types and what is
required are the specification's. No file of it comes with the client.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from openlineage.client.event_v2 import InputDataset, OutputDataset, RunEvent
from openlineage.client.facet_v2 import (
    BaseFacet,
    data_quality_assertions_dataset,
    dataset_version_dataset,
    output_statistics_output_dataset,
    schema_dataset,
)

from batchledger.interfaces.airflow.lineage_facets import OffsetsInputDatasetFacet

FACETS: Mapping[str, type[BaseFacet]] = {
    "batchledger_offsets": OffsetsInputDatasetFacet,
    "dataQualityAssertions": data_quality_assertions_dataset.DataQualityAssertionsDatasetFacet,
    "outputStatistics": output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet,
    "schema": schema_dataset.SchemaDatasetFacet,
    "version": dataset_version_dataset.DatasetVersionDatasetFacet,
}


def require_valid(event: Mapping[str, Any]) -> None:
    """Raise ValidationError, or KeyError for a facet of a dataset that Batchledger does not send."""
    msgspec.convert(event, RunEvent)
    require_valid_datasets(event)


def require_valid_datasets(event: Mapping[str, Any]) -> None:
    """Raise as ``require_valid`` does for the datasets of an event."""
    msgspec.convert(event["inputs"], Sequence[InputDataset])
    msgspec.convert(event["outputs"], Sequence[OutputDataset])
    for dataset in (*event["inputs"], *event["outputs"]):
        for kind in ("facets", "inputFacets", "outputFacets"):
            for name, facet in (dataset.get(kind) or {}).items():
                msgspec.convert(facet, FACETS[name])
