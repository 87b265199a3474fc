"""What the command line shows about pipelines, batches, and the next batch."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from rich.table import Table
from rich.text import Text

from batchledger.interfaces.cli.display.decisions import decision_lines, decisions_table
from batchledger.interfaces.cli.display.dry_runs import outcome_as_json, outcome_parts, replaced_as_json, replaced_table
from batchledger.interfaces.cli.display.schemas import differences_table
from batchledger.interfaces.cli.printing import Part, Shown, new_table, number, pick
from batchledger.interfaces.wording import WORDS_BY_OUTCOME, as_sentence
from batchledger.model.balance import BALANCE_LINES
from batchledger.model.batch import Batch, BatchState, DecisionRecord, Lane
from batchledger.model.checks import CheckResult, Outcome, Severity, Suite
from batchledger.model.counting import describe_count
from batchledger.model.errors import AtWorkError
from batchledger.model.findings import PipelineState
from batchledger.model.offsets import count_offsets
from batchledger.model.records.comparison import ReplacedRows
from batchledger.model.records.contract import Difference
from batchledger.model.records.quarantine import QuarantineContent
from batchledger.model.refusals import outcome_pending, ways_out
from batchledger.monitoring.health import PipelineHealth, Threats, describe_quarantine, describe_threats
from batchledger.planning.live import Plan

if TYPE_CHECKING:
    from batchledger.books.history import BatchHistory, BatchSummary, RangeRecord, ReplacementRecord

COLUMNS_IN_BALANCE = 2
_STYLE_BY_PIPELINE_STATE = {
    PipelineState.CAUGHT_UP: "green",
    PipelineState.UNREAD: "",
    PipelineState.AWAITING: "dim",
    PipelineState.RETIRED: "dim",
}
_STYLE_BY_STATE = {"published": "green", "blocked": "bold red", "discarded": "dim"}


STREAMS = "Rows stream into the target, if nothing in it speaks against that."


def describe_plan(
    pipeline: str,
    planned: Plan | Batch,
    threats: Threats,
    now: datetime,
    *,
    replaced: Sequence[ReplacedRows] = (),
    once_more: str = "",
    differences: Sequence[Difference] = (),
    staged_because: str = "",
) -> Shown:
    """Show the ranges that the next run would take, the rows it would replace, and what threatens unread records.

    ``differences`` lie between the declared columns and the table. ``once_more`` says what the readers of a topic
    would see once more. ``staged_because`` is empty if rows stream.
    """
    open_batch = planned if isinstance(planned, Batch) else None
    document = {
        "pipeline": pipeline,
        "open_batch": open_batch and open_batch.batch_id,
        "ranges": planned.ranges,
        "lag_left_records": planned.lag_left_records,
        "replaced": replaced_as_json(replaced),
        "size": planned.size if isinstance(planned, Plan) else None,
        "threats": _threats_as_json(threats),
        "differences": differences,
        "staged_because": staged_because or None,
    }
    way = as_sentence(f"Rows are staged: {staged_because}") if staged_because else STREAMS
    parts = [
        *_plan_parts(pipeline, planned),
        way if planned.ranges else None,
        Text(as_sentence(once_more), "yellow") if once_more else None,
        replaced_table(replaced, "Rows that it would replace"),
        *(Text(line, "yellow") for line in describe_threats(threats, now)),
        differences_table("The declared columns and the table", differences),
    ]
    return Shown(document, parts)


def _plan_parts(pipeline: str, planned: Plan | Batch) -> Iterator[Part]:
    if not planned.ranges:
        yield f"{pipeline}: nothing to do, {describe_count(planned.lag_left_records, 'record')} unread."
        return
    title = f"Open: {planned.label}, {planned.state}" if isinstance(planned, Batch) else f"Next batch of {pipeline}"
    table = new_table(title, "range", "offsets")
    for each in planned.ranges:
        table.add_row(str(each), f"{len(each):,}")
    table.add_section()
    table.add_row("total", f"{count_offsets(planned.ranges):,}")
    yield table
    if planned.lag_left_records:
        yield f"{planned.lag_left_records:,} more stay for later batches."
    if isinstance(planned, Plan) and planned.size:
        yield f"Size: {planned.size}."


def _threats_as_json(threats: Threats) -> dict[str, Any]:
    expiring, oldest = threats.first_to_expire, threats.oldest_unread
    transactions = [{**dataclasses.asdict(each), "partition": str(each.partition)} for each in threats.transactions]
    return {
        "unread_records": threats.unread_records,
        "open_transactions": transactions,
        "oldest_unread_at": oldest and oldest.oldest_unread_at,
        "expires_at": expiring and expiring.expires_at,
    }


def describe_pipelines(pipelines: Sequence[PipelineHealth], now: datetime) -> Shown:
    """Show the state of each pipeline; people see the worst first."""
    table = new_table("Pipelines", "pipeline", "state", "unread", "what to know")
    for each in sorted(pipelines, key=lambda one: list(PipelineState).index(one.state)):
        style = _STYLE_BY_PIPELINE_STATE.get(each.state, "bold red")
        threats = describe_threats(each.threats, now) if each.threats else []
        detail = "see below" if each.missing_service else each.detail
        staged = f"The newest batch was written twice, not streamed: {each.given_up}" if each.given_up else ""
        notes = [detail, *threats, *describe_quarantine(each.quarantine), staged]
        unread = f"{each.threats.unread_records:,}" if each.threats else ""
        table.add_row(each.pipeline, Text(each.state, style), unread, Text("\n".join(filter(None, notes))))
    documents = [
        {
            **pick(each, "pipeline", "state", "detail", "given_up"),
            "threats": _threats_as_json(each.threats) if each.threats else None,
            "quarantine": _quarantine_as_json(each.quarantine),
        }
        for each in pipelines
    ]
    missing = sorted({each.missing_service for each in pipelines if each.missing_service})
    return Shown(documents, [table if pipelines else None, _describe_missing(missing) if missing else None])


def _describe_missing(connections: Sequence[str]) -> Text:
    """Say once which missing connections keep pipelines from being looked at."""
    names = ", ".join(map(repr, connections))
    return Text(
        f"The local services are not running: Airflow knows no connection {names}. Start them with: batchledger up. "
        "To use services of your own, define the connections: see reference/connections in the documentation.",
        "yellow",
    )


def _quarantine_as_json(content: QuarantineContent) -> dict[str, Any]:
    kinds = [pick(each, "error", "records") for each in content.most_frequent]
    return {**pick(content, "records", "kinds"), "most_frequent": kinds}


def describe_published(batch: Batch, quarantined: int) -> Shown:
    """Show a batch that a run has published, and how many records it quarantined."""
    offsets = describe_count(count_offsets(batch.ranges), "offset")
    line = f"[green]published[/] {batch.label}, attempt {batch.attempt}: {offsets}"
    look = f"batchledger quarantine list {batch.pipeline}"
    aside = f", [yellow]{describe_count(quarantined, 'record')} quarantined[/]: {look}" if quarantined else ""
    document = {**pick(batch, "batch_id", "state", "attempt"), "quarantined": quarantined, "at_work": None}
    return Shown(document, [line + aside])


def describe_left(error: AtWorkError) -> Shown:
    """Show the batch that another run is at work on."""
    at_work = {
        **pick(error.other, "run", "worker"),
        "step": error.step,
        **pick(error.other, "since", "is_handed_on"),
    }
    document = {**pick(error, "batch_id", "state", "attempt"), "quarantined": None, "at_work": at_work}
    return Shown(document, [Text(str(error))])


def describe_migrated(before: str | None, after: str | None) -> str:
    """Say from which migration to which the ledger has moved."""
    if before == after:
        return f"The ledger is up to date (migration {after})."
    return f"The ledger moved from migration {before or 'none'} to {after}."


def describe_batches(pipeline: str, batches: "Sequence[BatchSummary]", decisions: Sequence[DecisionRecord]) -> Shown:
    """Show the list of batches, and below it the list of decisions if there are any."""
    erased = ", ".join(f"batch {each.batch_id}: {each.rows_erased:,}" for each in batches if each.rows_erased)
    parts = [
        batches_table(pipeline, batches),
        Text(f"Erased of these rows: {erased}.", "yellow") if erased else None,
        decisions_table(pipeline, decisions) if decisions else None,
    ]
    return Shown({"batches": batches, "decisions": decisions}, parts)


def batches_table(pipeline: str, batches: "Sequence[BatchSummary]") -> Table:
    """Return the list of batches as a table."""
    # Without replays there is only one lane. With lanes, 80 columns have no room for attempts.
    has_replays = any(each.lane == Lane.REPLAY for each in batches)
    columns = ("offsets", "rows", "quarantined", "seconds", "planned UTC")
    table = new_table(f"Batches of {pipeline}", "batch", "lane" if has_replays else "attempt", "state", *columns)
    for each in batches:
        table.add_row(
            str(each.batch_id),
            _lane(each) if has_replays else str(each.attempt),
            Text(each.state, _STYLE_BY_STATE.get(each.state, "yellow")),
            f"{each.offsets:,}",
            number(each.rows),
            f"{each.quarantined:,}",
            "" if each.seconds is None else f"{each.seconds:.1f}",
            f"{each.planned_at:%m-%d %H:%M}",
        )
    return table


def _lane(batch: "Batch | BatchSummary") -> str:
    return "dry run" if batch.is_dry_run else batch.lane


def describe_batch(history: "BatchHistory", quoted: Mapping[int, str] | None = None) -> Shown:
    """Show everything about one batch; ``quoted`` are the whole texts of errors by attempt."""
    batch = history.batch
    document = {
        **pick(
            batch, "batch_id", "pipeline", "lane", "state", "attempt", "attempt_run", "lag_left_records", "planned_at",
            "origin", "is_dry_run",
        ),
        **pick(history, "joined_from", "decisions", "attempts", "ranges", "checks", "replaced", "replaced_by"),
        "duplicates": {"count": _count_duplicates(history), "first": history.duplicates},
        "dry_run": history.dry_run and outcome_as_json(history.dry_run),
        **({"errors": quoted} if quoted else {}),
    }  # fmt: skip
    texts = [Text(f"The error of attempt {number} in full:\n{text}") for number, text in (quoted or {}).items()]
    return Shown(document, [*_batch_parts(history), *texts])


def _batch_parts(history: "BatchHistory") -> Iterator[Part]:
    batch = history.batch
    style = _STYLE_BY_STATE.get(batch.state, "yellow")
    yield f"[bold]Batch {batch.batch_id}[/] of {batch.pipeline}, {_lane(batch)}, [{style}]{batch.state}[/]"
    if history.joined_from is not None:
        yield (
            f"Housekeeping has joined batches {history.joined_from} to {batch.batch_id} of {batch.pipeline}: ranges "
            "and balances are added up, attempts and checks are gone."
        )
    yield from decision_lines(history.decisions)
    yield balance_table(history.ranges)
    yield erased_line(history.ranges)
    if history.duplicates:
        yield _duplicates_table(history)
    for exchanged in (history.replaced, history.replaced_by):
        if exchanged:
            yield replacements_table(exchanged, batch.batch_id)
    if history.dry_run:
        yield from outcome_parts(history.dry_run)
    if history.attempts:
        yield _attempts_table(history)
        if history.schema:
            yield Text(f"Decoded with: {history.schema}")
        yield from checks_parts("Checks", history.checks)
    if batch.state is BatchState.BLOCKED:
        yield Text(ways_out(batch, history.checks), no_wrap=True)
    if batch.state is BatchState.COMMITTING:
        yield Text(str(outcome_pending(batch)), no_wrap=True)


def _attempts_table(history: "BatchHistory") -> Table:
    table = new_table("Attempts", "attempt", "run", "opened (UTC)", "outcome")
    for attempt in history.attempts:
        outcome = Text(attempt.outcome or "at work, or killed")
        if attempt.failure:
            outcome.append(f": {attempt.failure}")
        if attempt.given_up:
            outcome.append(f"\nstaged: {attempt.given_up}")
        table.add_row(str(attempt.number), Text(attempt.run), f"{attempt.opened_at:%Y-%m-%d %H:%M}", outcome)
    return table


def checks_parts(title: str, checks: Sequence[CheckResult]) -> Iterator[Part]:
    """Yield what has not passed, on lines that can be copied, then a table of the rest."""
    table = new_table(title, "", "check", "what was found")
    for check in checks:
        if check.passed or check.outcome is Outcome.EMPTY:
            outcome = Text(WORDS_BY_OUTCOME[check.outcome], "green" if check.passed else "dim")
            table.add_row(outcome, check.name, Text(check.detail))
        else:
            yield _describe_failure(check)
    if table.row_count:
        yield table


def _describe_failure(check: CheckResult) -> Text:
    words = WORDS_BY_OUTCOME[check.outcome]
    # A check of the ledger blocks no batch.
    if check.suite is not Suite.LEDGER:
        words += f", {check.severity}" + (f", {check.on_failure}" if check.severity is Severity.CRITICAL else "")
    style = "bold red" if check.blocks else "yellow"
    return Text.assemble(
        (f"{check.name}: {words}", style), *(f"\n  {line}" for line in check.detail.splitlines()), no_wrap=True
    )


def balance_table(ranges: "Sequence[RangeRecord]") -> Table:
    """Return the balance of each range as a sum; lines that are zero everywhere are left out.

    A few lines become a column each. More would not fit side by side, so they become text.
    """
    lines = [line for line in BALANCE_LINES if line == "accepted" or any(getattr(each, line) for each in ranges)]
    is_text = len(lines) > COLUMNS_IN_BALANCE
    columns = ["sum"] if is_text else [*(line.replace("_", " ") for line in lines), "+ unexplained"]
    table = new_table("Balance", "range", "offsets =", *columns)
    for each in ranges:
        style = "bold red" if each.unexplained else "green"
        if is_text:
            terms = [f"{number(getattr(each, line)) or '?'} {line.replace('_', ' ')}" for line in lines]
            unexplained = f" + {number(each.unexplained) or '?'} unexplained"
            sums = [Text(" + ".join(terms)).append(unexplained, style)]
        else:
            sums = [*(Text(number(getattr(each, line))) for line in lines), Text(number(each.unexplained), style)]
        table.add_row(_place(each), f"{each.until - each.start:,}", *sums)
    return table


def erased_line(ranges: "Sequence[RangeRecord]") -> Text | None:
    """Say how many rows of a batch were erased, since or with its publication; None if there are none."""
    erased = sum(each.rows_erased for each in ranges)
    told = describe_count(erased, "accepted row was", "accepted rows were")
    return Text(f"{told} erased.", "yellow") if erased else None


def replacements_table(exchanged: "Sequence[ReplacementRecord]", batch_id: int) -> Table:
    """Return what batch ``batch_id`` took over from others, or others from it, and how much was removed there.

    If no row was removed, as in a topic, the table speaks of publishing again and leaves out columns that are 0.
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
        other = each.replaced_batch_id if is_ours else each.batch_id
        table.add_row(str(other), _place(each), *(number(getattr(each, name)) for name in counts))
    return table


def _place(each: "RangeRecord | ReplacementRecord") -> str:
    return f"{each.topic}[{each.partition}] {each.start}..{each.until}"


def _count_duplicates(history: "BatchHistory") -> int:
    return sum(each.duplicates or 0 for each in history.ranges)


def _duplicates_table(history: "BatchHistory") -> Table:
    shown = len(history.duplicates)
    table = new_table(f"Duplicates, {shown:,} of {_count_duplicates(history):,}", "dropped", "came first")
    for each in history.duplicates:
        first = f"{each.first_topic}[{each.first_partition}]@{each.first_offset}"
        table.add_row(f"{each.topic}[{each.partition}]@{each.offset}", first)
    return table
