"""What the command line prints of decisions: what one changed or would change, and the list of them."""

import dataclasses
from collections.abc import Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

from batchledger.interfaces.cli.printing import new_table, print_json, print_out
from batchledger.interfaces.wording import as_sentence, list_changes, summarise_changes
from batchledger.model.batch import Decided, DecisionKind, DecisionRecord


def show_decided(pipeline: str, kind: DecisionKind, decided: Decided, *, dry_run: bool, as_json: bool) -> None:
    """Say what a decision changed or, in a dry run, would change; and if nothing, who has decided it before."""
    record = decided.record
    if as_json:
        print_json(decided_as_json(pipeline, kind, decided, dry_run=dry_run))
        return
    if record is None:
        print_out(f"{kind} of {pipeline}: there is nothing to change.")
    elif not decided.is_new:
        print_out(Text(f"{_subject(record, kind)}: decided already, nothing was changed."))
        print_out(Text(f"By {record.decided_by}, {record.decided_at:%Y-%m-%d %H:%M} UTC: {record.reason}", "yellow"))
    else:
        would = "would change" if dry_run else "changed"
        print_out(_changes_table(f"{_subject(record, kind, dry_run)} {would}", record))
        for each in decided.means:
            print_out(Text(each))
        if decided.warning and dry_run:
            print_out(Text(as_sentence(decided.warning), "yellow"))
        print_out("Dry run: nothing was changed." if dry_run else _where_to_see(record))


def decided_as_json(pipeline: str, kind: DecisionKind, decided: Decided, *, dry_run: bool) -> dict[str, Any]:
    """What ``show_decided`` says, for programs."""
    known = {} if decided.record is None else dataclasses.asdict(decided.record)
    # What a rehearsal gives numbers to does not exist.
    unreal = {"decision_id": None, "decided_at": None} if dry_run and decided.is_new else {}
    return {"pipeline": pipeline, "kind": kind, **known, **unreal, "is_new": decided.is_new, "dry_run": dry_run}


def decisions_table(pipeline: str, decisions: Sequence[DecisionRecord]) -> Table:
    """Who decided what, when and why, and what it changed."""
    table = new_table(f"Decisions about {pipeline}", "decided UTC", "decision", "batch", "by", "why, and what changed")
    for each in decisions:
        why = Text(each.reason)
        if changes := summarise_changes(each):
            why.append(f"\n{changes}", "dim")
        batch = "" if each.batch_id is None else str(each.batch_id)
        table.add_row(f"{each.decided_at:%m-%d %H:%M}", each.kind, batch, Text(each.decided_by), why)
    return table


def show_decisions(decisions: Sequence[DecisionRecord]) -> None:
    """Print what was decided about a batch, a line or two each."""
    for each in decisions:
        when = f"{each.decided_at:%Y-%m-%d %H:%M} UTC"
        print_out(Text(f"Decision: {each.kind} by {each.decided_by}, {when}: {each.reason}", "yellow"))
        if changes := summarise_changes(each):
            print_out(Text(f"  {changes}", "dim"))


def _changes_table(title: str, record: DecisionRecord) -> Table:
    table = new_table(title, "what", "before", "after")
    for change in list_changes(record):
        table.add_row(*change)
    return table


def _subject(record: DecisionRecord, kind: DecisionKind, dry_run: bool = False) -> str:
    gives_up = kind in (DecisionKind.ACCEPT_LOSS, DecisionKind.SKIP)
    if record.batch_id is None or (gives_up and dry_run):
        return f"{kind} of {record.pipeline}"
    return f"{kind} of {record.pipeline}, batch {record.batch_id}"


def _where_to_see(record: DecisionRecord) -> str:
    where = f"batches {record.pipeline}" if record.batch_id is None else f"batch {record.batch_id}"
    return f"Recorded with your name and reason; see: batchledger {where}"
