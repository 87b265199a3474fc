"""What the command line shows of records: their bytes, on the terminal of who asks, and nowhere else."""

from typing import Any

from rich.text import Text

from batchledger.interfaces.cli.printing import Shown, new_table, pick
from batchledger.interfaces.wording import escape
from batchledger.model.offsets import describe_ranges
from batchledger.model.records.lookup import FoundRecords, Record

_REASONS = {
    "expired": "Kafka holds no more",
    "unwritten": "not readable yet",
    "invisible": "no committed record (an aborted one, a transaction marker, or compacted)",
}


def describe_records(pipeline: str, found: FoundRecords) -> Shown:
    """Show the records, what is not ASCII escaped, and of the other offsets why there is no record."""
    without_record = pick(found, *_REASONS)
    table = new_table(f"Records of {pipeline}", "record", "time UTC", "key", "value")
    for each in found.records:
        value = Text(escape(each.value))
        for name, content in each.headers:
            value.append(f"\n{escape(name.encode())}: {escape(content)}", "dim")
        if each.error:
            value.append(f"\nin quarantine: {each.error}", "yellow")
        table.add_row(str(each), each.timestamp or "", "" if each.key is None else escape(each.key), value)
    records = [_as_json(each) for each in found.records]
    return Shown(
        {"pipeline": pipeline, "records": records, "is_cut": found.is_cut, **without_record},
        [
            table if found.records else None,
            *(Text(f"{_REASONS[why]}: {describe_ranges(ranges)}") for why, ranges in without_record.items() if ranges),
            f"The first {len(found.records):,}; more with --limit." if found.is_cut else None,
        ],
    )


def _as_json(record: Record) -> dict[str, Any]:
    return {
        "topic": record.partition.topic,
        "partition": record.partition.partition,
        **pick(record, "offset", "timestamp"),
        "key": None if record.key is None else escape(record.key),
        "value": None if record.value is None else escape(record.value),
        "headers": [[name, None if content is None else escape(content)] for name, content in record.headers],
        "quarantined": record.error,
    }
