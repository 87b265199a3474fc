"""``batchledger quarantine``: look at the records that could not be decoded, replay them, or drop them."""

from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from batchledger.interfaces.cli.command_line import Commands, Name, decide, load_pipeline, parse_range
from batchledger.interfaces.cli.commands.decisions import give
from batchledger.interfaces.cli.commands.looks import note_look
from batchledger.interfaces.cli.commands.replays import (
    DryRunOnly,
    Reason,
    count_decoded,
    publish_again,
    rehearse,
    require_reason,
)
from batchledger.interfaces.cli.display.decisions import describe_decided
from batchledger.interfaces.cli.display.payloads import find_fault, whole_bytes
from batchledger.interfaces.cli.printing import Shown, new_table, pick
from batchledger.interfaces.wording import escape
from batchledger.lifecycle.orders import DropQuarantined
from batchledger.model.batch import Decided, QuarantinedRecord
from batchledger.model.counting import describe_count
from batchledger.model.offsets import OffsetRange, count_offsets, describe_ranges, merge_ranges
from batchledger.planning.replay import Quarantined, Replay, require_payloads, split_quarantined

if TYPE_CHECKING:
    from batchledger.books.history import BatchHistory, QuarantineLine, QuarantineList

app = Commands(no_args_is_help=True, add_completion=False)


Ranges = Annotated[
    list[str] | None, typer.Argument(metavar="RANGE", help='Which offsets, for example "orders[3] 1200..1201".')
]
All = Annotated[bool, typer.Option("--all", help="All records that the pipeline has in quarantine.")]

_NOT_KEPT = "(not kept: the pipeline file protects columns)"
_NOTHING_THERE = "no such record is in quarantine."


@app.callback()
def quarantine() -> None:
    """Records that could not be decoded: list them, replay them, drop them."""


@app.command("list")
def list_records(
    pipeline: Name,
    limit: Annotated[int, typer.Option(min=1, help="How many records, in the order of offsets.")] = 100,
    show_payload: Annotated[
        bool, typer.Option(help="Also print the values; other than ASCII is escaped. The ledger keeps who has looked.")
    ] = False,
) -> Shown:
    """List the records that a pipeline has in quarantine: coordinates, error, batch and size."""
    from batchledger.books.history import list_quarantine
    from batchledger.looking import ledger_dsn

    dsn = ledger_dsn(load_pipeline(pipeline))
    found = list_quarantine(dsn, pipeline, limit)
    if show_payload:
        note_look(dsn, pipeline, [each.place for each in found.lines])
    return describe_quarantine(pipeline, found, show_payload=show_payload)


@app.command("replay")
def replay_records(
    pipeline: Name,
    ranges: Ranges = None,
    *,
    everything: All = False,
    reason: Reason = None,
    dry_run: DryRunOnly = False,
) -> Shown | list[Shown]:
    """Decode records again with the present schema and transform, and publish them. If one fails again, it stays.

    Quarantine keeps the bytes of the records, so Kafka need not have them any more.
    """
    found = _select(pipeline, ranges, everything)
    # Before the first portion is published.
    require_payloads(pipeline, found)
    portions = split_quarantined(found)
    if dry_run:
        asked = Quarantined(tuple(merge_ranges(each.range for each in found)))
        if len(portions) > 1:
            raise typer.BadParameter(
                f"one dry run covers one batch, and these would be {len(portions)}; name some of them, such as "
                f'"{portions[0].ranges[0]}"'
            )
        return rehearse(pipeline, Replay(asked), reason)
    decision = decide(require_reason(reason))
    done = publish_again(pipeline, [Replay(each) for each in portions], decision)
    shown = [describe_replayed_records(pipeline, each) for each in done]
    return shown or Shown([], [f"{pipeline}: {_NOTHING_THERE}"])


@app.command("drop")
def drop_records(
    pipeline: Name,
    ranges: Ranges = None,
    *,
    everything: All = False,
    reason: Reason = None,
    dry_run: DryRunOnly = False,
) -> Shown:
    """Remove records from quarantine for good. The balance still counts them; the ledger says who dropped them."""
    order = DropQuarantined(_read_ranges(ranges, everything))
    why = (reason or "a dry run") if dry_run else require_reason(reason)
    decided = give(load_pipeline(pipeline), order, why, dry_run=dry_run)
    if decided.is_requested:
        return describe_decided(pipeline, order.kind, decided, dry_run=dry_run)
    return describe_dropped(pipeline, decided, is_dry_run=dry_run)


def describe_quarantine(pipeline: str, found: "QuarantineList", *, show_payload: bool) -> Shown:
    """Show one record a line; with ``show_payload`` the values below, each on a line that no terminal wraps."""
    document = {
        "pipeline": pipeline,
        "total": found.total,
        "records": [_line_as_json(each, show_payload) for each in found.lines],
    }
    if not found.total:
        return Shown(document, [f"{pipeline} has nothing in quarantine."])
    table = new_table(f"Quarantine of {pipeline}", "record", "batch", "since UTC", "bytes", "error")
    payloads: list[Text] = []
    for each in found.lines:
        error = Text(": ".join(filter(None, (each.error, find_fault(each.error, each.value)))))
        size = "" if each.value is None else f"{len(each.value):,}"
        table.add_row(str(each), str(each.batch_id), f"{each.quarantined_at:%m-%d %H:%M}", size, error)
        shown = whole_bytes("", each.value) if each.payload_kept else Text(_NOT_KEPT, "dim")
        payloads += [Text(str(each), "bold"), shown, Text()]
    is_cut = found.total > len(found.lines)
    more = f"{len(found.lines):,} of {found.total:,}; more with --limit." if is_cut else None
    return Shown(document, [table, *(payloads if show_payload else ()), more])


def describe_replayed_records(pipeline: str, history: "BatchHistory") -> Shown:
    """Show how many records were published, and how many are still in quarantine."""
    batch = history.batch
    published, left = count_decoded(history)
    counts = f"{published:,} of {describe_count(count_offsets(batch.ranges), 'record')} published"
    return Shown(
        {"batch_id": batch.batch_id, "published": published, "still_quarantined": left},
        [f"[green]published[/] batch {batch.batch_id} of {pipeline}: {counts}, {left:,} still in quarantine"],
    )


def describe_dropped(pipeline: str, decided: Decided, *, is_dry_run: bool) -> Shown:
    """Show which records were dropped, or would be."""
    before = (decided.record.before if decided.record else None) or {}
    ranges = [OffsetRange.parse(each) for each in before.get("quarantined", ())]
    dropped = count_offsets(ranges)
    done = "would be dropped" if is_dry_run else "dropped for good"
    told = Text(f"{describe_count(dropped, 'record')} {done}: {describe_ranges(ranges)}", "yellow")
    document = {"dropped": dropped, "dry_run": is_dry_run, "ranges": ranges}
    return Shown(document, [told if dropped else f"{pipeline}: {_NOTHING_THERE}"])


def _line_as_json(line: "QuarantineLine", show_payload: bool) -> dict[str, object]:
    size = None if line.value is None else len(line.value)
    payload = {"key": None if line.key is None else escape(line.key), "value": escape(line.value)}
    return {
        **pick(
            line, "topic", "partition", "offset", "timestamp", "error", "batch_id", "quarantined_at", "payload_kept"
        ),
        "value_bytes": size,
        "fault": find_fault(line.error, line.value),
        **(payload if show_payload else {}),
    }


def _select(pipeline: str, ranges: list[str] | None, everything: bool) -> list[QuarantinedRecord]:
    """Return the named records that are in quarantine; there may be none."""
    from batchledger.wiring import build_platform

    named = _read_ranges(ranges, everything)
    return list(build_platform(load_pipeline(pipeline)).ledger.find_quarantined(pipeline, named))


def _read_ranges(ranges: list[str] | None, everything: bool) -> tuple[OffsetRange, ...] | None:
    if everything == bool(ranges):
        raise typer.BadParameter("name ranges, as 'quarantine list' shows them, or --all")
    return None if everything else tuple(parse_range(each) for each in ranges or ())
