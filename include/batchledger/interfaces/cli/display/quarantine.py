"""What ``batchledger quarantine`` prints. Payloads only where they were asked for, and never as they are."""

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.text import Text

from batchledger.interfaces.cli.printing import new_table, print_json, print_out, range_as_json
from batchledger.interfaces.wording import escape
from batchledger.model.batch import Decided
from batchledger.model.offsets import OffsetRange, count_offsets, describe_ranges

if TYPE_CHECKING:
    from batchledger.adapters.postgres.ledger.history import BatchHistory, QuarantineLine, QuarantineList


def show_quarantine(pipeline: str, found: "QuarantineList", *, show_payload: bool, as_json: bool) -> None:
    """Print the records, one a line; their values below it where they were asked for."""
    if as_json:
        lines = [_line_as_json(each, show_payload) for each in found.lines]
        print_json({"pipeline": pipeline, "total": found.total, "records": lines})
        return
    if not found.total:
        print_out(f"{pipeline} has nothing in quarantine.")
        return
    table = new_table(f"Quarantine of {pipeline}", "record", "batch", "since UTC", "bytes", "error")
    for each in found.lines:
        error = Text(each.error)
        if show_payload:
            error.append(f"\n{escape(each.value)}", "dim")
        size = "" if each.value is None else f"{len(each.value):,}"
        table.add_row(str(each), str(each.batch_id), f"{each.quarantined_at:%m-%d %H:%M}", size, error)
    print_out(table)
    if found.total > len(found.lines):
        print_out(f"{len(found.lines):,} of {found.total:,}; more with --limit.")


def show_replayed_records(pipeline: str, done: "Sequence[BatchHistory]", as_json: bool) -> None:
    """Say how many records have moved to the target, and how many are still in quarantine."""
    outcomes = [(each.batch.batch_id, _sum(each, "accepted"), _sum(each, "quarantined")) for each in done]
    if as_json:
        names = ("batch_id", "published", "still_quarantined")
        print_json([dict(zip(names, each, strict=True)) for each in outcomes])
        return
    if not done:
        print_out(f"{pipeline}: nothing of this is in quarantine.")
    for (batch_id, published, quarantined), history in zip(outcomes, done, strict=True):
        records = count_offsets(history.batch.ranges)
        counts = f"{published:,} of {records:,} records published, {quarantined:,} still in quarantine"
        print_out(f"[green]published[/] batch {batch_id} of {pipeline}: {counts}")


def show_dropped(pipeline: str, decided: Decided, *, is_dry_run: bool, as_json: bool) -> None:
    """Say which records are in quarantine no more, or would not be."""
    before = (decided.record.before if decided.record else None) or {}
    ranges = [OffsetRange.parse(each) for each in before.get("quarantined", ())]
    dropped = count_offsets(ranges)
    if as_json:
        print_json({"dropped": dropped, "dry_run": is_dry_run, "ranges": [range_as_json(each) for each in ranges]})
    elif not dropped:
        print_out(f"{pipeline}: nothing of this is in quarantine.")
    else:
        done = "would be dropped" if is_dry_run else "dropped for good"
        print_out(Text(f"{dropped:,} records {done}: {describe_ranges(ranges)}", "yellow"))


def _line_as_json(line: "QuarantineLine", show_payload: bool) -> dict[str, object]:
    fields = {name: value for name, value in dataclasses.asdict(line).items() if name not in ("key", "value")}
    sizes = {"value_bytes": None if line.value is None else len(line.value)}
    payload = {"key": None if line.key is None else escape(line.key), "value": escape(line.value)}
    return {**fields, **sizes, **(payload if show_payload else {})}


def _sum(history: "BatchHistory", line: str) -> int:
    return sum(getattr(each, line) or 0 for each in history.ranges)
