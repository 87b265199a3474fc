"""``batchledger records``: show the records that a failed check names, on your own terminal."""

from collections.abc import Iterator
from typing import Annotated, Any

import typer
from rich.text import Text

from batchledger.interfaces.cli.command_line import Name, load_pipeline, parse_range
from batchledger.interfaces.cli.commands.looks import note_look
from batchledger.interfaces.cli.display.payloads import find_fault, whole, whole_bytes
from batchledger.interfaces.cli.printing import Shown, pick
from batchledger.interfaces.notation import parse_coordinate
from batchledger.interfaces.wording import escape, escape_json
from batchledger.model.offsets import OffsetRange, describe_ranges
from batchledger.model.records.lookup import FoundRecords, Record

Ranges = Annotated[
    list[str], typer.Argument(metavar="RANGE", help='Which records: "orders[3] 1200..1201", or orders[3]@1200.')
]


_REASONS = {
    "expired": "Kafka holds no more",
    "unwritten": "not readable yet",
    "invisible": "no committed record (an aborted one, a transaction marker, or compacted)",
}


def records(
    pipeline: Name,
    ranges: Ranges,
    *,
    limit: Annotated[int, typer.Option(min=1, help="How many records, in the order of offsets.")] = 20,
) -> Shown:
    """Show records with key, value and headers, from Kafka or from quarantine.

    A value in Avro or Protobuf is shown as JSON of all its fields, with its
    bytes below. The ledger keeps who has looked: see batchledger looks.
    """
    from batchledger.looking import ledger_dsn
    from batchledger.wiring import find_records

    config = load_pipeline(pipeline)
    found = find_records(config, [_parse(each) for each in ranges], limit)
    note_look(ledger_dsn(config), pipeline, [(each.partition, each.offset) for each in found.records])
    return describe_records(pipeline, found)


def describe_records(pipeline: str, found: FoundRecords) -> Shown:
    """Show the records, and why other offsets have none. Bytes other than ASCII are escaped.

    Key, headers and value stand on lines of their own, which are not wrapped: a person copies them whole.
    """
    without_record = pick(found, *_REASONS)
    records = [_as_json(each) for each in found.records]
    return Shown(
        {"pipeline": pipeline, "records": records, "is_cut": found.is_cut, **without_record},
        [
            Text(f"Records of {pipeline}", "bold") if found.records else None,
            *(line for each in found.records for line in _describe(each)),
            *(Text(f"{_REASONS[why]}: {describe_ranges(ranges)}") for why, ranges in without_record.items() if ranges),
            f"The first {len(found.records):,}; more with --limit." if found.is_cut else None,
        ],
    )


def _describe(record: Record) -> Iterator[Text]:
    yield Text()
    yield Text.assemble((str(record), "bold"), f"  {record.timestamp}" if record.timestamp else "")
    if record.error:
        yield Text(f"in quarantine: {record.error}", "yellow")
    if (fault := find_fault(record.error, record.value)) is not None:
        yield Text(fault, "yellow")
    if record.undecoded is not None:
        yield Text(f"not decoded: {escape_json(record.undecoded)}", "yellow")
    if record.key is not None:
        yield whole_bytes("key: ", record.key)
    for name, content in record.headers:
        yield whole_bytes(f"header {escape(name.encode())}: ", content)
    if record.decoded is not None:
        yield whole("", escape_json(record.decoded))
    yield whole_bytes("" if record.decoded is None else "bytes: ", record.value)


def _as_json(record: Record) -> dict[str, Any]:
    return {
        "topic": record.partition.topic,
        "partition": record.partition.partition,
        **pick(record, "offset", "timestamp"),
        "key": None if record.key is None else escape(record.key),
        "value": None if record.value is None else escape(record.value),
        "headers": [[name, None if content is None else escape(content)] for name, content in record.headers],
        "quarantined": record.error,
        "fault": find_fault(record.error, record.value),
        **pick(record, "decoded", "undecoded"),
    }


def _parse(text: str) -> OffsetRange:
    found = parse_coordinate(text)
    return parse_range(text) if found is None else OffsetRange(found[0], found[1], found[1] + 1)
