"""What the command line prints: a table for people, or one JSON document with the same content. No decisions here."""

import dataclasses
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from rich.table import Table
from rich.text import Text

from batchledger.interfaces.cli.display.decisions import decisions_table, show_decisions
from batchledger.interfaces.cli.display.dry_runs import outcome_as_json, replaced_as_json, show_outcome, show_replaced
from batchledger.interfaces.cli.printing import as_sentence, new_table, number, print_json, print_out, range_as_json
from batchledger.model.balance import BALANCE_LINES
from batchledger.model.batch import Batch, BatchState, DecisionRecord, DeliveryMode, Lane
from batchledger.model.checks import CheckResult, Outcome, Severity
from batchledger.model.errors import AtWorkError
from batchledger.model.findings import PipelineState
from batchledger.model.offsets import count_offsets
from batchledger.model.records.comparison import ReplacedRows
from batchledger.model.records.quarantine import QuarantineContent
from batchledger.model.refusals import outcome_pending, ways_out
from batchledger.monitoring.health import PipelineHealth, Threats, describe_quarantine, describe_threats
from batchledger.planning.live import Plan
from batchledger.proof.verification import Verification

if TYPE_CHECKING:
    from batchledger.adapters.postgres.ledger.history import BatchHistory, BatchSummary, RangeRecord, ReplacementRecord

COLUMNS_IN_BALANCE = 2
_STYLE_BY_STATE = {"published": "green", "blocked": "bold red", "discarded": "dim"}


def show_migration(before: str | None, after: str | None, as_json: bool) -> None:
    """Say what a migration changed."""
    if as_json:
        print_json({"before": before, "after": after})
    elif before == after:
        print_out(f"The ledger is up to date (migration {after}).")
    else:
        print_out(f"The ledger moved from migration {before or 'none'} to {after}.")


def show_plan(
    pipeline: str,
    planned: Plan | Batch,
    threats: Threats,
    now: datetime,
    as_json: bool,
    *,
    replaced: Sequence[ReplacedRows] = (),
    once_more: str = "",
) -> None:
    """Print the ranges that the next run would take, whose rows it would replace, and what threatens unread records.

    ``once_more`` says of a target that replaces nothing what its readers would see once more.
    """
    open_batch = planned if isinstance(planned, Batch) else None
    if as_json:
        print_json(
            {
                "pipeline": pipeline,
                "open_batch": open_batch and open_batch.batch_id,
                "ranges": [range_as_json(each) for each in planned.ranges],
                "lag_left_records": planned.lag_left_records,
                "replaced": replaced_as_json(replaced),
                "size": None if isinstance(planned, Batch) else planned.size,
                "threats": threats_as_json(threats),
            }
        )
        return
    _show_ranges(pipeline, planned, open_batch)
    if once_more:
        print_out(Text(as_sentence(once_more), "yellow"))
    show_replaced(replaced, "Rows that it would replace")
    for line in describe_threats(threats, now):
        print_out(Text(line, "yellow"))


def _show_ranges(pipeline: str, planned: Plan | Batch, open_batch: Batch | None) -> None:
    if not planned.ranges:
        print_out(f"{pipeline}: nothing to do, {planned.lag_left_records:,} records unread.")
        return
    title = f"Open: {open_batch.label}, {open_batch.state}" if open_batch else f"Next batch of {pipeline}"
    table = new_table(title, "range", "offsets")
    for each in planned.ranges:
        table.add_row(str(each), f"{len(each):,}")
    table.add_section()
    table.add_row("total", f"{count_offsets(planned.ranges):,}")
    print_out(table)
    if planned.lag_left_records:
        print_out(f"{planned.lag_left_records:,} more stay for later batches.")
    if isinstance(planned, Plan) and planned.size:
        print_out(f"Size: {planned.size}.")


def threats_as_json(threats: Threats) -> dict[str, Any]:
    """What threatens the unread records, for scripts; times are ISO text."""
    expiring, oldest = threats.first_to_expire, threats.oldest_unread
    return {
        "unread_records": threats.unread_records,
        "open_transactions": [
            {**dataclasses.asdict(each), "partition": str(each.partition)} for each in threats.transactions
        ],
        "oldest_unread_at": oldest and oldest.oldest_unread_at,
        "expires_at": expiring and expiring.expires_at,
    }


def show_pipelines(pipelines: Sequence[PipelineHealth], now: datetime) -> None:
    """Print how each pipeline stands, the worst first."""
    table = new_table("Pipelines", "pipeline", "state", "unread", "what to know")
    for each in sorted(pipelines, key=lambda one: list(PipelineState).index(one.state)):
        style = {PipelineState.CAUGHT_UP: "green", PipelineState.LAGGING: "yellow"}.get(each.state, "bold red")
        threats = describe_threats(each.threats, now) if each.threats else []
        notes = [each.detail, *threats, *describe_quarantine(each.quarantine)]
        unread = f"{each.threats.unread_records:,}" if each.threats else ""
        table.add_row(each.pipeline, Text(each.state, style), unread, Text("\n".join(filter(None, notes))))
    print_out(table)


def pipeline_as_json(health: PipelineHealth) -> dict[str, Any]:
    """How one pipeline stands, for scripts."""
    threats = threats_as_json(health.threats) if health.threats else None
    return {
        "pipeline": health.pipeline,
        "state": health.state,
        "detail": health.detail,
        "threats": threats,
        "quarantine": quarantine_as_json(health.quarantine),
    }


def quarantine_as_json(content: QuarantineContent) -> dict[str, Any]:
    """What is in quarantine, for scripts: the number of records and of kinds of error, and the most frequent kinds."""
    kinds = [{"error": each.error, "records": each.records} for each in content.most_frequent]
    return {"records": content.records, "kinds": content.kinds, "most_frequent": kinds}


_PRINTED_OF_BATCH = ("batch_id", "state", "attempt")


def show_run(pipeline: str, published: Sequence[tuple[Batch, int]], as_json: bool) -> None:
    """Say which batches a run published, each with the number of records that it quarantined."""
    if as_json:
        batches = [({key: getattr(each, key) for key in _PRINTED_OF_BATCH}, count) for each, count in published]
        print_json([batch | {"quarantined": count, "at_work": None} for batch, count in batches])
        return
    if not published:
        print_out(f"{pipeline}: nothing to do.")
    for each, count in published:
        line = f"[green]published[/] {each.label}, attempt {each.attempt}: {count_offsets(each.ranges):,} offsets"
        aside = f", [yellow]{count:,} records quarantined[/]: batchledger quarantine list {pipeline}" if count else ""
        print_out(line + aside)


def show_left(error: AtWorkError, as_json: bool) -> None:
    """Say at which batch another run is at work."""
    if not as_json:
        print_out(Text(str(error)))
        return
    at_work = {
        "run": error.other.run,
        "worker": error.other.worker,
        "step": error.step,
        "since": error.other.since.isoformat(),
        "is_handed_on": error.other.is_handed_on,
    }
    batch = {"batch_id": error.batch_id, "state": error.state, "attempt": error.attempt}
    print_json([{**batch, "quarantined": None, "at_work": at_work}])


def show_published_already(batch: Batch, as_json: bool) -> None:
    """Say that there is nothing to do for a batch that was asked for."""
    if as_json:
        print_json([])
    else:
        print_out(f"{batch.label} is published already, by attempt {batch.attempt} of run {batch.attempt_run}.")


def show_batches(
    pipeline: str, batches: "Sequence[BatchSummary]", decisions: Sequence[DecisionRecord], as_json: bool
) -> None:
    """Print the list of batches, and below it that of decisions if there are some."""
    if as_json:
        print_json({"batches": list(batches), "decisions": list(decisions)})
        return
    print_out(batches_table(pipeline, batches))
    if decisions:
        print_out(decisions_table(pipeline, decisions))


def batches_table(pipeline: str, batches: "Sequence[BatchSummary]") -> Table:
    """The list of batches as a table."""
    # Without replays there is nothing to tell of lanes; with them, 80 columns have no room for attempts.
    has_replays = any(each.lane == Lane.REPLAY for each in batches)
    columns = ("offsets", "rows", "quarantined", "seconds", "planned UTC")
    table = new_table(f"Batches of {pipeline}", "batch", "lane" if has_replays else "attempt", "state", *columns)
    for each in batches:
        table.add_row(
            str(each.batch_id),
            _lane(each.lane, each.is_dry_run) if has_replays else str(each.attempt),
            Text(each.state, _STYLE_BY_STATE.get(each.state, "yellow")),
            f"{each.offsets:,}",
            number(each.rows),
            f"{each.quarantined:,}",
            "" if each.seconds is None else f"{each.seconds:.1f}",
            f"{each.planned_at:%m-%d %H:%M}",
        )
    return table


def _lane(lane: str, is_dry_run: bool) -> str:
    return "dry run" if is_dry_run else lane


def show_batch(history: "BatchHistory", as_json: bool) -> None:
    """Print everything about one batch."""
    batch = history.batch
    if as_json:
        names = ("decisions", "attempts", "ranges", "checks", "replaced", "replaced_by")
        parts = {name: getattr(history, name) for name in names}
        duplicates = {"count": _count_duplicates(history), "first": history.duplicates}
        dry_run = history.dry_run and outcome_as_json(history.dry_run)
        print_json({**_batch_as_json(batch), **parts, "duplicates": duplicates, "dry_run": dry_run})
        return
    style = _STYLE_BY_STATE.get(batch.state, "yellow")
    lane = _lane(batch.lane, batch.is_dry_run)
    print_out(f"[bold]Batch {batch.batch_id}[/] of {batch.pipeline}, {lane}, [{style}]{batch.state}[/]")
    show_decisions(history.decisions)
    print_out(balance_table(history.ranges))
    if history.duplicates:
        print_out(_duplicates_table(history))
    for exchanged in (history.replaced, history.replaced_by):
        if exchanged:
            print_out(replacements_table(exchanged, history.batch.batch_id))
    if history.dry_run:
        show_outcome(history.dry_run)
    if history.attempts:
        _show_attempts(history)
    if batch.state is BatchState.BLOCKED:
        print_out(Text(f"{ways_out(batch, history.checks)}."))
    if batch.state is BatchState.COMMITTING:
        print_out(Text(str(outcome_pending(batch))))


def _show_attempts(history: "BatchHistory") -> None:
    attempts = new_table("Attempts", "attempt", "run", "opened (UTC)", "outcome")
    for attempt in history.attempts:
        outcome = Text(attempt.outcome or "at work, or killed")
        if attempt.failure:
            outcome.append(f": {attempt.failure}")
        attempts.add_row(str(attempt.number), Text(attempt.run), f"{attempt.opened_at:%Y-%m-%d %H:%M}", outcome)
    print_out(attempts)
    checks = new_table("Checks", "", "check", "what was found")
    for check in history.checks:
        checks.add_row(_outcome_of(check), check.name, Text(check.detail))
    print_out(checks)


def _outcome_of(check: CheckResult) -> Text:
    """What came of a check, as red as it matters."""
    if check.passed or check.outcome is Outcome.EMPTY:
        return Text(check.outcome.value, "green" if check.passed else "dim")
    policy = f", {check.on_failure}" if check.severity is Severity.CRITICAL else ""
    outcome = check.outcome.value.replace("_", " ")
    return Text(f"{outcome}\n{check.severity}{policy}", "bold red" if check.blocks else "yellow")


def balance_table(ranges: "Sequence[RangeRecord]") -> Table:
    """The balance of each range as a sum that closes; lines that are zero everywhere are left out.

    A column for each line, as long as there are few of them: more would not fit side by side, and become text.
    """
    lines = [line for line in BALANCE_LINES if line == "accepted" or any(getattr(each, line) for each in ranges)]
    if len(lines) > COLUMNS_IN_BALANCE:
        return _balance_as_text(ranges, lines)
    table = new_table("Balance", "range", "offsets =", *(line.replace("_", " ") for line in lines), "+ unexplained")
    for each in ranges:
        unexplained = Text(number(each.unexplained), "bold red" if each.unexplained else "green")
        table.add_row(
            f"{each.topic}[{each.partition}] {each.start}..{each.until}",
            f"{each.until - each.start:,}",
            *(number(getattr(each, line)) for line in lines),
            unexplained,
        )
    return table


def _balance_as_text(ranges: "Sequence[RangeRecord]", lines: Sequence[str]) -> Table:
    table = new_table("Balance", "range", "offsets =", "sum")
    for each in ranges:
        terms = [f"{number(getattr(each, line)) or '?'} {line.replace('_', ' ')}" for line in lines]
        total = Text(" + ".join(terms))
        total.append(f" + {number(each.unexplained) or '?'} unexplained", "bold red" if each.unexplained else "green")
        table.add_row(
            f"{each.topic}[{each.partition}] {each.start}..{each.until}", f"{each.until - each.start:,}", total
        )
    return table


def replacements_table(exchanged: "Sequence[ReplacementRecord]", batch_id: int) -> Table:
    """What batch ``batch_id`` took over from others, or others from it, with how much was removed there.

    Where no row was removed, as of a topic never is, nothing is called replaced, and numbers that are 0 are left out.
    """
    has_replaced = any(each.rows for each in exchanged)
    counts = [
        name
        for name in ("rows", "quarantined", "duplicates")
        if has_replaced or any(getattr(each, name) for each in exchanged)
    ]
    done = "Replaced" if has_replaced else "Published again"
    is_ours = exchanged[0].batch_id == batch_id
    table = new_table(done if is_ours else f"{done} by", "batch", "range", *counts)
    for each in exchanged:
        place = f"{each.topic}[{each.partition}] {each.start}..{each.until}"
        other = each.replaced_batch_id if is_ours else each.batch_id
        table.add_row(str(other), place, *(number(getattr(each, name)) for name in counts))
    return table


def _count_duplicates(history: "BatchHistory") -> int:
    return sum(each.duplicates or 0 for each in history.ranges)


def _duplicates_table(history: "BatchHistory") -> Table:
    shown = len(history.duplicates)
    table = new_table(f"Duplicates, {shown:,} of {_count_duplicates(history):,}", "dropped", "came first")
    for each in history.duplicates:
        first = f"{each.first_topic}[{each.first_partition}]@{each.first_offset}"
        table.add_row(f"{each.topic}[{each.partition}]@{each.offset}", first)
    return table


def show_verification(verification: Verification, delivery: DeliveryMode, as_json: bool) -> None:
    """Say what was proved, or every finding."""
    if as_json:
        document = {**dataclasses.asdict(verification), "delivery": delivery, "holds": verification.holds}
        # Part of a sentence only: the keys of the document are what scripts rely on.
        del document["taken_over"]
        print_json(document)
        return
    size = (
        f"{verification.batches:,} batches, {verification.ranges:,} ranges, {verification.offsets:,} offsets, "
        f"{verification.rows:,} rows, {verification.quarantined:,} quarantined"
    )
    if verification.accepted_loss:
        size += f", {verification.accepted_loss:,} accepted as lost"
    if not verification.batches and verification.holds:
        print_out(f"[yellow]{verification.pipeline} has published nothing yet[/]: there is nothing to prove.")
        return
    if verification.holds:
        print_out(f"[green]{verification.pipeline} is exact[/]: {size}.")
        print_out("Contiguous (I1), disjoint (I2), balanced (I7), each offset held once (I8);")
        print_out(f"{verification.proved_of_target}.")
        if verification.incomplete_until:
            print_out(
                f"Not proved: that no record of batches up to {verification.incomplete_until} is missing, nor of any "
                "replay; the topic removes records by its own retention or compaction."
            )
        return
    if delivery is not DeliveryMode.EXACTLY_ONCE:
        anomaly = "repeat rows" if delivery is DeliveryMode.AT_LEAST_ONCE else "lose rows"
        print_out(f"[yellow]delivery: {delivery}[/] allows a crash to {anomaly}; only exactly_once promises neither.")
    table = new_table(
        f"{verification.pipeline}: {len(verification.findings)} findings in {size}", "breaks", "where", "finding"
    )
    for finding in verification.findings:
        table.add_row(Text(finding.invariant, "bold red"), Text(finding.where), Text(finding.detail))
    print_out(table)


def _batch_as_json(batch: Batch) -> dict[str, Any]:
    fields = (
        "batch_id", "pipeline", "lane", "state", "attempt", "attempt_run", "lag_left_records", "planned_at", "origin",
        "is_dry_run",
    )  # fmt: skip
    return {name: getattr(batch, name) for name in fields}
