"""What the command line shows about a dry run: the rows that would go, and how the new ones differ."""

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

from batchledger.interfaces.cli.printing import Part, new_table, range_as_json
from batchledger.interfaces.wording import as_sentence
from batchledger.model.offsets import describe_ranges
from batchledger.model.records.comparison import DryRunOutcome, ReplacedRows


def replaced_table(replaced: Sequence[ReplacedRows], title: str) -> Table | None:
    """Return the rows that would go, by batch; None if there are none, as in a topic."""
    if not any(each.rows for each in replaced):
        return None
    table = new_table(title, "batch", "range", "rows")
    for each in replaced:
        table.add_row(str(each.held.batch_id), str(each.held.range), f"{each.rows:,}")
    return table


def replaced_as_json(replaced: Sequence[ReplacedRows]) -> list[dict[str, Any]]:
    """Return the rows that would go, for a document."""
    return [{"batch_id": each.held.batch_id, **range_as_json(each.held.range), "rows": each.rows} for each in replaced]


def outcome_parts(found: DryRunOutcome) -> Iterator[Part]:
    """Yield what a dry run has found: the rows that go, how the new rows differ, and the objections."""
    yield replaced_table(found.replaced, "Would be replaced")
    for note in found.notes:
        yield Text(as_sentence(note), "yellow")
    if found.expired:
        yield Text(f"Kafka no longer has {describe_ranges(found.expired)}: their rows would stay.", "yellow")
    if compared := found.comparison:
        yield Text(as_sentence(str(compared)), "green" if compared.is_same else "yellow")
        if compared.absent_columns:
            names = ", ".join(compared.absent_columns)
            yield Text(f"Not in the rows, so they would get their default: {names}.", "yellow")
        if compared.examples:
            title = f"Changed, {len(compared.examples):,} of {compared.changed:,}"
            table = new_table(title, "record", "columns that differ")
            for each in compared.examples:
                table.add_row(str(each), ", ".join(each.columns))
            yield table
    for objection in found.objections:
        yield Text(f"It would not be published: {objection}", "bold red")


def outcome_as_json(found: DryRunOutcome) -> dict[str, Any]:
    """Return what a dry run has found, for a document."""
    comparison = None
    if found.comparison is not None:
        examples = [{"record": str(each), "columns": each.columns} for each in found.comparison.examples]
        comparison = {**dataclasses.asdict(found.comparison), "examples": examples}
    return {
        "expired": found.expired,
        "replaced": replaced_as_json(found.replaced),
        "comparison": comparison,
        "objections": found.objections,
        "notes": found.notes,
    }
