"""What people and scripts see of a schema: differences, how far each goes, and what may be done."""

import json
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rich.text import Text

from batchledger.interfaces.cli.printing import Part, Shown, new_table, pick
from batchledger.model.counting import describe_count
from batchledger.model.records.contract import (
    Contract,
    Difference,
    Sample,
    SchemaChange,
    SchemaVersion,
    list_changes,
)
from batchledger.model.records.writer_schemas import UsedSchema

if TYPE_CHECKING:
    from batchledger.config.pipeline_file import PipelineConfig

_WAITS_FOR_A_PERSON = 3
_NOT_JSON = (
    "A proposal reads JSON alone. For Avro or Protobuf, write a pipeline file with source.format, source.registry "
    "and one column, then let the registry propose the others: batchledger schema PIPELINE --from-registry"
)
_STYLES = {SchemaChange.ADDITIVE: "green", SchemaChange.WIDENING: "yellow", SchemaChange.BREAKING: "bold red"}


def describe_contract(
    config: "PipelineConfig", contract: Contract, versions: Sequence[SchemaVersion], used: Sequence[UsedSchema] = ()
) -> Shown:
    """Show the differences, the schema that would take all sampled records, and the statements for the table.

    ``versions`` are the schemas that batches were decoded with, the newest first; ``used`` are schemas that
    records name, and the readers'.
    """
    pipeline = config.name
    differences = contract.differences
    notes = [
        _describe_sample(contract.sample) if contract.sample else None,
        *_describe_faults(contract.sample),
        None if contract.table is not None else _explain_missing_table(config.sink.target, config.transform),
        None if differences else _describe_agreement(contract),
    ]
    document = {
        "pipeline": pipeline,
        "is_broken": contract.is_broken,
        "differences": differences,
        "sample": _count(contract.sample),
        "is_table_compared": contract.table is not None,
        "proposal": contract.proposal,
        "versions": versions,
        "writer_schemas": used,
    }
    parts: list[Part] = [
        differences_table(f"Schema of {pipeline}", differences),
        *(Text(each) for each in notes if each),
    ]
    if any(each.declare for each in differences):
        but = ", but for what is breaking" if contract.is_broken else ""
        parts += [
            Text(f"A schema that takes {_name_sampled(contract.sample)}{but}:"),
            _unbroken(_yaml(contract.proposal)),
        ]
    statements = [each.statement for each in differences if each.statement]
    if statements:
        parts += [
            Text("Statements that the table would take; sink.evolve lets a publication do what is not breaking:"),
            *(_unbroken(f"{each};") for each in statements),
        ]
    shown = [*parts, _versions_table(versions), _used_table(used)]
    return Shown(document, shown, exit_code=_WAITS_FOR_A_PERSON if contract.is_broken else 0)


def describe_proposal(topic: str, connection: str, sample: Sample) -> Shown:
    """Show a pipeline file for a topic, as its newest records suggest."""
    contract = Contract((), sample)
    differences = contract.differences
    left_out = [each for each in differences if each.declare is None]
    document = {"topic": topic, "sample": _count(sample), "proposal": contract.proposal, "left_out": left_out}
    name = re.sub(r"[^a-z0-9_]", "_", topic.lower())
    name = name if name[0].isalpha() else f"t_{name}"
    sink = f"sink: {{type: postgres, table: {name}}}"
    source = f"{_yaml(contract.proposal)}\n  connection: {connection}\n  topics: [{json.dumps(topic)}]"
    file = f"name: {name}\n{source}\n{sink}"
    return Shown(
        document,
        [
            Text(_describe_sample(sample)),
            *(Text(each) for each in _describe_faults(sample)),
            differences_table("Fields that cannot be columns", left_out),
            Text("A pipeline file:" if contract.proposal else "No field was found, so there is nothing to propose."),
            _unbroken(file) if contract.proposal else None,
            Text(_NOT_JSON) if sample.unreadable and not contract.proposal else None,
        ],
    )


def differences_table(title: str, differences: Sequence[Difference]) -> Part:
    """Return a line for each difference; None without any."""
    if not differences:
        return None
    table = new_table(title, "column", "change", "finding")
    for each in differences:
        # A name comes from a record, and may look like markup.
        table.add_row(Text(each.column), Text(each.change, _STYLES[each.change]), Text(each.told))
    return table


def _versions_table(versions: Sequence[SchemaVersion]) -> Part:
    if len(versions) < 2:
        return None
    table = new_table("Schemas that records were decoded with", "batches", "since UTC", "what")
    for each, change in list_changes(versions):
        batches = f"{each.first_batch_id:,}..{each.last_batch_id:,}"
        table.add_row(batches, f"{each.first_used_at:%Y-%m-%d %H:%M}", Text(change))
    return table


def _used_table(used: Sequence[UsedSchema]) -> Part:
    if not used:
        return None
    title = "Schemas that records were written with"
    table = new_table(title, "registry", "id", "batches", "first to last", "since UTC")
    for each in used:
        span = f"{each.first_batch_id:,}..{each.last_batch_id:,}"
        since = f"{each.first_used_at:%Y-%m-%d %H:%M}"
        table.add_row(Text(each.registry), str(each.id), f"{each.batches:,}", span, since)
    return table


def _describe_sample(sample: Sample) -> str:
    unreadable = f" Values that cannot be read: {sample.unreadable:,}." if sample.unreadable else ""
    looked = describe_count(sample.records, sample.noun)
    if sample.has_values:
        return f"Looked at {looked}, the newest of each partition.{unreadable}"
    seen = (
        f"{looked}, the newest of each subject"
        if sample.noun == "schema"
        else (f"the schemas that wrote {looked}, the newest of each partition")
    )
    return f"Compared {seen}, and looked at no value: one may be absent, or not fit its column.{unreadable}"


def _describe_faults(sample: Sample | None) -> list[str]:
    """Return a line for each of the first values that cannot be read."""
    return [] if sample is None else [f"  {place}: {why}" for place, why in sample.faults]


def _name_sampled(sample: Sample | None) -> str:
    return "these records" if sample is None or sample.has_values else "the fields of these schemas"


def _describe_agreement(contract: Contract) -> str | None:
    """Say between what there is no difference; None if nothing was compared."""
    compared = [
        *([_name_sampled(contract.sample)] if contract.sample else []),
        *(["the table"] if contract.table is not None else []),
    ]
    return f"No difference between source.schema and {' and '.join(compared)}." if compared else None


def _explain_missing_table(target: str, transform: object | None) -> str:
    if transform is not None:
        return f"The target {target} is not compared: {transform} makes its rows."
    return f"The target {target} is not compared: it has no columns, or is not there yet."


def _count(sample: Sample | None) -> dict[str, Any] | None:
    return None if sample is None else pick(sample, "records", "unreadable", "faults")


def _yaml(schema: str) -> str:
    return f'source:\n  schema: "{schema}"'


def _unbroken(text: str) -> Text:
    """Return a text that a person can copy, however narrow the terminal is."""
    return Text(text, no_wrap=True)
