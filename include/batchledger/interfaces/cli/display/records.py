"""What ``batchledger records`` prints: records with their bytes, on the terminal of who asks, and nowhere else."""

from typing import Any

from rich.text import Text

from batchledger.interfaces.cli.printing import new_table, print_json, print_out, range_as_json
from batchledger.interfaces.wording import escape
from batchledger.model.offsets import OffsetRange, describe_ranges
from batchledger.model.records.lookup import FoundRecords, Record


def show_records(pipeline: str, found: FoundRecords, as_json: bool) -> None:
    """Print the records, what is not ASCII escaped, and say of the other offsets why there is no record."""
    if as_json:
        print_json(
            {
                "pipeline": pipeline,
                "records": [_as_json(each) for each in found.records],
                "is_cut": found.is_cut,
                **{name: [range_as_json(each) for each in ranges] for name, ranges in _without_record(found).items()},
            }
        )
        return
    if found.records:
        table = new_table(f"Records of {pipeline}", "record", "time UTC", "key", "value")
        for each in found.records:
            value = Text(escape(each.value))
            for name, content in each.headers:
                value.append(f"\n{escape(name.encode())}: {escape(content)}", "dim")
            if each.error:
                value.append(f"\nin quarantine: {each.error}", "yellow")
            table.add_row(str(each), each.timestamp or "", "" if each.key is None else escape(each.key), value)
        print_out(table)
    reasons = {
        "expired": "Kafka holds no more",
        "unwritten": "not readable yet",
        "invisible": "no committed record (an aborted one, a transaction marker, or compacted)",
    }
    for name, ranges in _without_record(found).items():
        if ranges:
            print_out(Text(f"{reasons[name]}: {describe_ranges(ranges)}"))
    if found.is_cut:
        print_out(f"The first {len(found.records):,}; more with --limit.")


def _without_record(found: FoundRecords) -> dict[str, tuple[OffsetRange, ...]]:
    return {"expired": found.expired, "unwritten": found.unwritten, "invisible": found.invisible}


def _as_json(record: Record) -> dict[str, Any]:
    return {
        "topic": record.partition.topic,
        "partition": record.partition.partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        "key": None if record.key is None else escape(record.key),
        "value": None if record.value is None else escape(record.value),
        "headers": [[name, None if content is None else escape(content)] for name, content in record.headers],
        "quarantined": record.error,
    }
