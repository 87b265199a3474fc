"""What the command line shows about decisions: what one changed or would change, and the list of all."""

import dataclasses
from collections.abc import Iterator, Sequence

from rich.table import Table
from rich.text import Text

from batchledger.interfaces.cli.printing import Part, Shown, new_table
from batchledger.interfaces.wording import as_sentence, list_changes, summarise_changes
from batchledger.model.batch import Decided, DecisionKind, DecisionRecord


def describe_decided(pipeline: str, kind: DecisionKind, decided: Decided, *, dry_run: bool) -> Shown:
    """Show what a decision changed, or would change in a dry run. If it was decided before, show by whom."""
    known = {} if decided.record is None else dataclasses.asdict(decided.record)
    # A dry run stores no decision, so its number and moment do not exist.
    unreal = {"decision_id": None, "decided_at": None} if dry_run and decided.is_new else {}
    document = {"pipeline": pipeline, "kind": kind, **known, **unreal, "is_new": decided.is_new, "dry_run": dry_run}
    return Shown(document, list(_decided_parts(pipeline, kind, decided, dry_run)))


def _decided_parts(pipeline: str, kind: DecisionKind, decided: Decided, dry_run: bool) -> Iterator[Part]:
    record = decided.record
    if record is None:
        yield f"{kind} of {pipeline}: there is nothing to change."
        yield from _warning(decided, dry_run)
        return
    if not decided.is_new:
        yield Text(f"{_subject(record, kind)}: decided already, nothing was changed.")
        yield Text(f"By {record.actor}, {record.decided_at:%Y-%m-%d %H:%M} UTC: {record.reason}", "yellow")
        return
    would = "would change" if dry_run else "changed"
    table = new_table(f"{_subject(record, kind, dry_run)} {would}", "what", "before", "after")
    for change in list_changes(record):
        table.add_row(*change)
    yield table
    yield from map(Text, decided.means)
    yield from _warning(decided, dry_run)
    where = f"batches {record.pipeline}" if record.batch_id is None else f"batch {record.batch_id}"
    recorded = f"Recorded with your name and reason; see: batchledger {where}"
    yield "Dry run: nothing was changed." if dry_run else recorded


def _warning(decided: Decided, dry_run: bool) -> Iterator[Text]:
    """Yield the warning of a dry run. The log has shown the one of a decision that is kept."""
    if decided.warning and dry_run:
        yield Text(as_sentence(decided.warning), "yellow")


def decisions_table(pipeline: str, decisions: Sequence[DecisionRecord]) -> Table:
    """Return who decided what, when and why, and what it changed."""
    table = new_table(f"Decisions about {pipeline}", "decided UTC", "decision", "batch", "by", "why, and what changed")
    for each in decisions:
        why = Text(each.reason)
        if changes := summarise_changes(each):
            why.append(f"\n{changes}", "dim")
        batch = "" if each.batch_id is None else str(each.batch_id)
        table.add_row(f"{each.decided_at:%m-%d %H:%M}", each.kind, batch, Text(str(each.actor)), why)
    return table


def decision_lines(decisions: Sequence[DecisionRecord]) -> Iterator[Text]:
    """Yield the decisions about a batch: who and when, why, and what it changed."""
    for each in decisions:
        when = f"{each.decided_at:%Y-%m-%d %H:%M} UTC"
        yield Text(f"Decision: {each.kind} by {each.actor}, {when}", "yellow")
        yield Text(f"  {each.reason}", "yellow")
        if changes := summarise_changes(each):
            yield Text(f"  {changes}", "dim")


def _subject(record: DecisionRecord, kind: DecisionKind, dry_run: bool = False) -> str:
    gives_up = kind in (DecisionKind.ACCEPT_LOSS, DecisionKind.SKIP)
    if record.batch_id is None or (gives_up and dry_run):
        return f"{kind} of {record.pipeline}"
    return f"{kind} of {record.pipeline}, batch {record.batch_id}"
