"""What the command line shows about decisions: what one changed or would change, and the list of all."""

import dataclasses
from collections.abc import Iterator, Sequence

from rich.table import Table
from rich.text import Text

from batchledger.interfaces.cli.printing import Part, Shown, new_table, pick
from batchledger.interfaces.wording import as_sentence, list_changes, summarise_changes
from batchledger.model.batch import Decided, DecisionKind, DecisionRecord
from batchledger.model.requests import VALID_FOR


def describe_decided(pipeline: str, kind: DecisionKind, decided: Decided, *, dry_run: bool) -> Shown:
    """Show what a decision changed, or would change in a dry run. If it was decided before, show by whom.

    A request has changed nothing: show what it would change, and who can confirm it.
    """
    known = {} if decided.record is None else dataclasses.asdict(decided.record)
    # A dry run stores no decision, so its number and moment do not exist.
    unreal = {"decision_id": None, "decided_at": None} if dry_run and decided.is_new else {}
    document = {"pipeline": pipeline, "kind": kind, **known, **unreal, "is_new": decided.is_new, "dry_run": dry_run}
    if decided.code:
        document["code"] = decided.code
    return Shown(document, list(_decided_parts(pipeline, kind, decided, dry_run)))


def _decided_parts(pipeline: str, kind: DecisionKind, decided: Decided, dry_run: bool) -> Iterator[Part]:
    record = decided.record
    if record is None:
        yield f"{kind} of {pipeline}: there is nothing to change."
        yield from _warning(decided, dry_run)
        return
    if not decided.is_new:
        done = "asked for already" if decided.is_requested else "decided already"
        yield Text(f"{_subject(record, kind)}: {done}, nothing was changed.")
        yield Text(f"By {record.people}, {record.decided_at:%Y-%m-%d %H:%M} UTC: {record.reason}", "yellow")
        if decided.is_requested:
            yield how_to_confirm(record)
        return
    would = "would change" if dry_run or decided.is_requested else "changed"
    table = new_table(f"{_subject(record, kind, dry_run)} {would}", "what", "before", "after")
    for change in list_changes(record):
        table.add_row(*change)
    yield table
    yield from map(Text, decided.means)
    yield from _warning(decided, dry_run)
    if decided.is_requested:
        yield how_to_confirm(record)
        if decided.code:
            yield Text(f"The other person repeats the key, with this code: {decided.code}", "yellow")
            yield "Nothing keeps the code. If it is lost, withdraw the request and ask again."
        return
    where = f"batches {record.pipeline}" if record.batch_id is None else f"batch {record.batch_id}"
    recorded = f"Recorded with your name and reason; see: batchledger {where}"
    yield "Dry run: nothing was changed." if dry_run else recorded


def how_to_confirm(request: DecisionRecord) -> str:
    """Say how another person confirms a request, and until when."""
    until = request.decided_at + VALID_FOR
    repeated = " --key COLUMN=VALUE --code CODE" if (request.requested_order or {}).get("kind") == "erase" else ""
    return (
        f"Request {request.decision_id}: nothing was changed. Another person confirms it until {until:%Y-%m-%d %H:%M} "
        f"UTC:\nbatchledger confirm {request.decision_id}{repeated} --reason WHY"
    )


def describe_withdrawn(request: DecisionRecord, decided: Decided) -> Shown:
    """Show that a request is over, and since when if it was before."""
    record = dataclasses.asdict(decided.record) if decided.record else {}
    done = "is withdrawn" if decided.is_new else "was withdrawn already"
    told = f"Request {request.decision_id} of {request.pipeline} {done}. Nothing else was changed."
    return Shown({**record, "is_new": decided.is_new}, [told])


def describe_requests(requests: Sequence[DecisionRecord]) -> Shown:
    """Show what waits for a second person: who asked, why, and what it would change."""
    fields = ("decision_id", "pipeline", "batch_id", "decided_by", "reason", "decided_at", "before", "after")
    document = [
        {**pick(each, *fields), "order": each.requested_order, "expires_at": each.decided_at + VALID_FOR}
        for each in requests
    ]
    if not requests:
        return Shown(document, ["No request waits for a second person."])
    table = new_table("Requests", "request", "what", "by", "expires UTC", "why")
    for each in requests:
        order = (each.requested_order or {})["kind"]
        subject = each.pipeline if each.batch_id is None else f"{each.pipeline}, batch {each.batch_id}"
        why = Text(each.reason)
        why.append(f"\n{summarise_changes(each)}", "dim")
        table.add_row(
            str(each.decision_id),
            Text(f"{order} of {subject}"),
            Text(str(each.actor)),
            f"{each.decided_at + VALID_FOR:%m-%d %H:%M}",
            why,
        )
    parts: list[Part] = [table, "Look, then confirm: batchledger confirm REQUEST --reason WHY [--dry-run]"]
    if any((each.requested_order or {})["kind"] == "erase" for each in requests):
        parts.append("An erasure also needs what the first person was shown: --key COLUMN=VALUE --code CODE")
    return Shown(document, parts)


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
        table.add_row(f"{each.decided_at:%m-%d %H:%M}", each.subject, batch, Text(each.people), why)
    return table


def decision_lines(decisions: Sequence[DecisionRecord]) -> Iterator[Text]:
    """Yield the decisions about a batch: who and when, why, and what it changed."""
    for each in decisions:
        when = f"{each.decided_at:%Y-%m-%d %H:%M} UTC"
        yield Text(f"Decision: {each.subject} by {each.people}, {when}", "yellow")
        yield Text(f"  {each.reason}", "yellow")
        if changes := summarise_changes(each):
            yield Text(f"  {changes}", "dim")


def _subject(record: DecisionRecord, kind: DecisionKind, dry_run: bool = False) -> str:
    gives_up = kind in (DecisionKind.ACCEPT_LOSS, DecisionKind.SKIP)
    if record.batch_id is None or (gives_up and dry_run):
        return f"{kind} of {record.pipeline}"
    return f"{kind} of {record.pipeline}, batch {record.batch_id}"
