"""What the command line shows of quarantine. Payloads only where they were asked for, and never as they are."""

from typing import TYPE_CHECKING

from rich.text import Text

from batchledger.interfaces.cli.printing import Shown, new_table, pick
from batchledger.interfaces.wording import escape
from batchledger.model.batch import Decided
from batchledger.model.offsets import OffsetRange, count_offsets, describe_ranges

if TYPE_CHECKING:
    from batchledger.adapters.postgres.ledger.history import BatchHistory, QuarantineLine, QuarantineList


def describe_quarantine(pipeline: str, found: "QuarantineList", *, show_payload: bool) -> Shown:
    """Show the records, one a line; their values below it where they were asked for."""
    document = {
        "pipeline": pipeline,
        "total": found.total,
        "records": [_line_as_json(each, show_payload) for each in found.lines],
    }
    if not found.total:
        return Shown(document, [f"{pipeline} has nothing in quarantine."])
    table = new_table(f"Quarantine of {pipeline}", "record", "batch", "since UTC", "bytes", "error")
    for each in found.lines:
        error = Text(each.error)
        if show_payload:
            error.append(f"\n{escape(each.value)}", "dim")
        size = "" if each.value is None else f"{len(each.value):,}"
        table.add_row(str(each), str(each.batch_id), f"{each.quarantined_at:%m-%d %H:%M}", size, error)
    is_cut = found.total > len(found.lines)
    return Shown(document, [table, f"{len(found.lines):,} of {found.total:,}; more with --limit." if is_cut else None])


def describe_replayed_records(pipeline: str, history: "BatchHistory") -> Shown:
    """Show how many records have moved to the target, and how many are still in quarantine."""
    batch = history.batch
    published, left = (sum(getattr(each, line) or 0 for each in history.ranges) for line in ("accepted", "quarantined"))
    counts = f"{published:,} of {count_offsets(batch.ranges):,} records published, {left:,} still in quarantine"
    return Shown(
        {"batch_id": batch.batch_id, "published": published, "still_quarantined": left},
        [f"[green]published[/] batch {batch.batch_id} of {pipeline}: {counts}"],
    )


def nothing_there(pipeline: str) -> str:
    """Say that nothing of what was named is in quarantine."""
    return f"{pipeline}: nothing of this is in quarantine."


def describe_dropped(pipeline: str, decided: Decided, *, is_dry_run: bool) -> Shown:
    """Show which records are in quarantine no more, or would not be."""
    before = (decided.record.before if decided.record else None) or {}
    ranges = [OffsetRange.parse(each) for each in before.get("quarantined", ())]
    dropped = count_offsets(ranges)
    done = "would be dropped" if is_dry_run else "dropped for good"
    told = Text(f"{dropped:,} records {done}: {describe_ranges(ranges)}", "yellow")
    document = {"dropped": dropped, "dry_run": is_dry_run, "ranges": ranges}
    return Shown(document, [told if dropped else nothing_there(pipeline)])


def _line_as_json(line: "QuarantineLine", show_payload: bool) -> dict[str, object]:
    size = None if line.value is None else len(line.value)
    payload = {"key": None if line.key is None else escape(line.key), "value": escape(line.value)}
    return {
        **pick(line, "topic", "partition", "offset", "timestamp", "error", "batch_id", "quarantined_at"),
        "value_bytes": size,
        **(payload if show_payload else {}),
    }
