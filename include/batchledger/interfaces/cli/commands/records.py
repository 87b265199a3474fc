"""``batchledger records``: show the records that a failed check names."""

from typing import Annotated

import typer

from batchledger.interfaces.cli.command_line import AsJson, Name, load_pipeline, parse_range
from batchledger.interfaces.cli.display.records import describe_records
from batchledger.interfaces.cli.printing import show
from batchledger.interfaces.notation import parse_coordinate
from batchledger.model.offsets import OffsetRange

Ranges = Annotated[
    list[str], typer.Argument(metavar="RANGE...", help='Which offsets: "orders[3] 1200..1201", or orders[3]@1200.')
]


def records(
    pipeline: Name,
    ranges: Ranges,
    *,
    limit: Annotated[int, typer.Option(min=1, help="How many, in the order of offsets.")] = 20,
    as_json: AsJson = False,
) -> None:
    """Show records with key, value and headers, from Kafka, or from quarantine where they lie. Changes nothing."""
    from batchledger.wiring import find_records

    found = find_records(load_pipeline(pipeline), [_parse(each) for each in ranges], limit)
    show(describe_records(pipeline, found), as_json)


def _parse(text: str) -> OffsetRange:
    found = parse_coordinate(text)
    return parse_range(text) if found is None else OffsetRange(found[0], found[1], found[1] + 1)
