"""What OpenLineage's specification asks of an event, and whether what was sent is so.

The specification (2-0-2) is a set of JSON schemas, and no package has them. Two things stand for them. The client's
classes are generated from them, with all fields and types; but a class fills in what is missing. So here is stated what
is required, and in which format, of the parts that Batchledger and Airflow's provider send. The facet of Batchledger's
own has the schema of the documentation.
"""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any
from urllib.parse import urlsplit
from uuid import UUID

import msgspec
from jsonschema import Draft202012Validator, FormatChecker
from openlineage.client.event_v2 import InputDataset, OutputDataset, RunEvent
from openlineage.client.facet_v2 import (
    BaseFacet,
    data_quality_assertions_dataset,
    dataset_version_dataset,
    output_statistics_output_dataset,
    schema_dataset,
)

from batchledger.interfaces.airflow.lineage_facets import OffsetsInputDatasetFacet
from tests.conftest import ROOT

Schema = Mapping[str, Any]

OFFSETS = json.loads((ROOT / "docs" / "reference" / "openlineage" / "OffsetsInputDatasetFacet.json").read_text())
CLASSES: Mapping[str, type[BaseFacet]] = {
    "batchledger_offsets": OffsetsInputDatasetFacet,
    "dataQualityAssertions": data_quality_assertions_dataset.DataQualityAssertionsDatasetFacet,
    "outputStatistics": output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet,
    "schema": schema_dataset.SchemaDatasetFacet,
    "version": dataset_version_dataset.DatasetVersionDatasetFacet,
}

FORMATS = FormatChecker(formats=())


@FORMATS.checks("date-time", raises=ValueError)
def _is_moment(text: object) -> bool:
    """RFC 3339: date, time and zone."""
    return "T" in str(text) and datetime.fromisoformat(str(text)).tzinfo is not None


@FORMATS.checks("uuid", raises=ValueError)
def _is_uuid(text: object) -> bool:
    return str(UUID(str(text))) == text


@FORMATS.checks("uri", raises=ValueError)
def _is_uri(text: object) -> bool:
    return bool(urlsplit(str(text)).scheme)


def _object(*required: str, **properties: Schema) -> Schema:
    return {"type": "object", "required": list(required), "properties": properties}


def _list(items: Schema) -> Schema:
    return {"type": "array", "items": items}


def _named(schema: str, folder: str = "") -> Schema:
    """Return what the address of a schema of the specification looks like; it has a version."""
    file, _, definition = schema.partition("#")
    address = rf"^https://openlineage\.io/spec/{folder}\d+-\d+-\d+/{file}\.json#/\$defs/{definition or file}$"
    return {"type": "string", "pattern": address}


TEXT: Schema = {"type": "string"}
COUNT: Schema = {"type": "integer"}
TRUTH: Schema = {"type": "boolean"}
MOMENT: Schema = {"type": "string", "format": "date-time"}
URI: Schema = {"type": "string", "format": "uri"}

ANY_FACET = _object("_producer", "_schemaURL", _producer=URI, _schemaURL=URI)


def _facet(name: str, /, *required: str, **properties: Schema) -> Schema:
    own = _object(*required, _schemaURL=_named(name, "facets/"), **properties)
    return {"allOf": [ANY_FACET, own]}


def _facets(known: Mapping[str, Schema], others: Schema | bool = ANY_FACET) -> Schema:
    return {"type": "object", "properties": known, "additionalProperties": others}


RUN = _object("runId", runId={"type": "string", "format": "uuid"})
JOB = _object("namespace", "name", namespace=TEXT, name=TEXT)
RUN_FACETS = {
    "parent": _facet("ParentRunFacet", "run", "job", run=RUN, job=JOB, root=_object("run", "job", run=RUN, job=JOB)),
    "nominalTime": _facet("NominalTimeRunFacet", "nominalStartTime", nominalStartTime=MOMENT, nominalEndTime=MOMENT),
    "processing_engine": _facet("ProcessingEngineRunFacet", "version", version=TEXT, name=TEXT),
    "errorMessage": _facet(
        "ErrorMessageRunFacet", "message", "programmingLanguage", message=TEXT, programmingLanguage=TEXT
    ),
}
JOB_FACETS = {
    "jobType": _facet(
        "JobTypeJobFacet", "processingType", "integration", processingType=TEXT, integration=TEXT, jobType=TEXT
    ),
    "documentation": _facet("DocumentationJobFacet", "description", description=TEXT),
    "ownership": _facet("OwnershipJobFacet", owners=_list(_object("name", name=TEXT))),
}
DATASET_FACETS = {
    "schema": _facet("SchemaDatasetFacet", fields=_list(_object("name", name=TEXT, type=TEXT))),
    "version": _facet("DatasetVersionDatasetFacet", "datasetVersion", datasetVersion=TEXT),
}
INPUT_FACETS = {
    "dataQualityAssertions": _facet(
        "DataQualityAssertionsDatasetFacet",
        "assertions",
        assertions=_list(_object("assertion", "success", assertion=TEXT, success=TRUTH, severity=TEXT)),
    ),
    "batchledger_offsets": {"allOf": [ANY_FACET, OFFSETS["$defs"]["OffsetsInputDatasetFacet"]]},
}
OUTPUT_FACETS = {
    "outputStatistics": _facet("OutputStatisticsOutputDatasetFacet", rowCount=COUNT, size=COUNT, fileCount=COUNT)
}


def _dataset(**facets: Schema) -> Schema:
    """Batchledger sends no other facet of a dataset than the known ones."""
    return _object(
        "namespace", "name", namespace=TEXT, name=TEXT, facets=_facets(DATASET_FACETS, others=False), **facets
    )


EVENT = _object(
    *("eventTime", "producer", "schemaURL", "run", "job"),
    eventTime=MOMENT,
    producer=URI,
    schemaURL=_named("OpenLineage#RunEvent"),
    eventType={"enum": ["START", "RUNNING", "COMPLETE", "ABORT", "FAIL", "OTHER"]},
    run={"allOf": [RUN, _object(facets=_facets(RUN_FACETS))]},
    job={"allOf": [JOB, _object(facets=_facets(JOB_FACETS))]},
    inputs=_list(_dataset(inputFacets=_facets(INPUT_FACETS, others=False))),
    outputs=_list(_dataset(outputFacets=_facets(OUTPUT_FACETS, others=False))),
)
_VALIDATOR = Draft202012Validator(EVENT, format_checker=FORMATS)


def require_valid(event: Mapping[str, Any]) -> None:
    """Raise jsonschema's or msgspec's ValidationError unless the event is one of the specification."""
    _VALIDATOR.validate(event)
    msgspec.convert(event, RunEvent)
    inputs, outputs = event.get("inputs", ()), event.get("outputs", ())
    msgspec.convert(inputs, Sequence[InputDataset])
    msgspec.convert(outputs, Sequence[OutputDataset])
    for dataset in (*inputs, *outputs):
        for kind in ("facets", "inputFacets", "outputFacets"):
            for name, facet in (dataset.get(kind) or {}).items():
                msgspec.convert(facet, CLASSES[name])
