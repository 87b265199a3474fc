"""What people do on a page: each order is shown before it can be given, and given as it was shown.

An order is asked for in a form, and shown with what it would change; what was shown is signed, and only that can be
carried out (``approval``). A replay is shown by a dry run in Airflow. What is refused is told on the page.
"""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any
from urllib.parse import parse_qsl

import anyio.to_thread
from airflow.api_fastapi.core_api.security import GetUserDep
from airflow.configuration import conf
from fastapi import Depends, HTTPException, Request, status
from fastapi.responses import HTMLResponse

from batchledger.adapters.postgres.database import keep_connections
from batchledger.adapters.postgres.ledger.history import BatchHistory, list_quarantine, load_batch_history
from batchledger.adapters.postgres.ledger.overview import find_batch_of_run
from batchledger.config.pipeline_file import PipelineConfig
from batchledger.interfaces.cli.display.decisions import list_changes
from batchledger.interfaces.cli.printing import as_sentence
from batchledger.interfaces.page import airflow_runs, approval
from batchledger.interfaces.page.access import may_act
from batchledger.interfaces.page.airflow_state import find_run_state, find_switched_off
from batchledger.interfaces.page.approval import Approval
from batchledger.interfaces.page.forms import BY_RUN, REHEARSED_BY_RUN, Fields, read_batch, read_decision, read_run
from batchledger.interfaces.page.pipeline_view import look_at_state
from batchledger.interfaces.page.reading import Offset, Pipeline, load
from batchledger.interfaces.page.rendering import show
from batchledger.interfaces.trigger_form import Rehearse, RunFacts, read_order
from batchledger.lifecycle.decisions import rehearse
from batchledger.lifecycle.plans import require_possible
from batchledger.lifecycle.platform import Platform
from batchledger.model.batch import Decided, Decision, DecisionKind, Lane
from batchledger.model.errors import BatchledgerError, DecisionRefusedError, ServiceUnavailableError
from batchledger.model.offsets import count_offsets
from batchledger.wiring import build_platform, ledger_dsn

logger = logging.getLogger(__name__)

BODY_BYTES = 200_000
OF_BATCH = (DecisionKind.ACCEPT, DecisionKind.DISCARD, DecisionKind.RETRY)
# How a run of Airflow ends.
OVER = ("success", "failed")
CHANGES_SHOWN = 50
TITLES: Mapping[DecisionKind, str] = {
    DecisionKind.REPLAY: "Publish records again",
    DecisionKind.RETRY: "Take a batch again",
    DecisionKind.ACCEPT: "Accept a blocked batch",
    DecisionKind.DISCARD: "Discard a batch",
    DecisionKind.QUARANTINE_REPLAY: "Publish records of quarantine again",
    DecisionKind.QUARANTINE_DROP: "Drop records of quarantine",
    DecisionKind.ACCEPT_LOSS: "Accept a loss",
    DecisionKind.SKIP: "Skip records",
    DecisionKind.REWIND: "Rewind",
    DecisionKind.PAUSE: "Pause",
    DecisionKind.RESUME: "Resume",
}
"""What can be decided here, in the order of the page."""
HINTS: dict[DecisionKind, str] = {
    DecisionKind.REPLAY: "Reads these offsets from Kafka again, and replaces exactly their rows in one transaction.",
    DecisionKind.RETRY: "When its cause is removed: the same offsets are read and audited by a new attempt.",
    DecisionKind.ACCEPT: "Publishes it as it is staged, although checks have failed. Take it again instead if you can.",
    DecisionKind.DISCARD: "Closes it. Of the live lane, the next run plans its offsets again; a replay is over.",
    DecisionKind.QUARANTINE_REPLAY: "Decodes the kept bytes again, with the pipeline of today; what fails again stays.",
    DecisionKind.QUARANTINE_DROP: "Removes them for good; the balance keeps how many there were.",
    DecisionKind.ACCEPT_LOSS: "Goes on without offsets that Kafka removed before they were read; recorded for ever.",
    DecisionKind.SKIP: "Goes on without offsets that could be read; recorded for ever.",
    DecisionKind.REWIND: "Reads again from further back. What is read replaces the rows that are there.",
    DecisionKind.PAUSE: "Nothing new is planned, whoever asks, until somebody resumes; what is planned may end.",
    DecisionKind.RESUME: "Ends the pause.",
}
"""What each of them does, in a line."""
HINTS_WHERE_NOTHING_IS_REPLACED: Mapping[DecisionKind, str] = HINTS | {
    DecisionKind.REPLAY: "Reads these offsets from Kafka again. A topic replaces nothing: readers see them once more.",
    DecisionKind.REWIND: "Reads again from further back. A topic replaces nothing: readers see that once more.",
}
"""The same where the target is a topic."""

Kind = DecisionKind


async def read_fields(request: Request) -> Fields:
    """Return the fields of a form; of those that come twice the last one."""
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > BODY_BYTES:
            raise HTTPException(status.HTTP_413_CONTENT_TOO_LARGE, "this form holds too much")
    try:
        fields = dict(parse_qsl(body.decode(), keep_blank_values=True))
    except ValueError as error:
        raise HTTPException(status.HTTP_400_BAD_REQUEST, "this is no form") from error
    if any("\0" in each for each in fields.values()):
        raise HTTPException(status.HTTP_400_BAD_REQUEST, "a field holds a character that no database can store")
    return fields


Form = Annotated[Fields, Depends(read_fields)]


@dataclass(frozen=True, slots=True)
class _Order:
    """Somebody's order about a pipeline; ``name`` is the one that the ledger keeps."""

    config: PipelineConfig
    kind: DecisionKind
    user_id: str
    name: str
    fields: Fields

    @property
    def decision(self) -> Decision:
        """Who, and why. Raises DecisionRefusedError without a reason."""
        self.require_reason()
        return Decision(self.name, self.fields["reason"].strip())

    def require_reason(self) -> None:
        """Raise DecisionRefusedError without a reason."""
        if not self.fields.get("reason", "").strip():
            raise DecisionRefusedError("give a reason; others will read it in the ledger.")

    def approve(self, effect: Any) -> str:
        """Return the signed text of what was shown."""
        shown = Approval(self.user_id, self.config.name, self.kind, self.fields, approval.digest(effect))
        return approval.sign(shown, _secret())


def show_decisions(
    request: Request, dag_id: Pipeline, user: GetUserDep, do: Kind | None = None, batch: Offset = None
) -> HTMLResponse:
    """Show the forms; ``do`` opens one of them, ``batch`` fills in what it is about."""
    config = load(dag_id)
    with keep_connections():
        state = look_at_state(request.app.state.lookout, config)
        asked = load_batch_history(ledger_dsn(config), batch) if batch is not None else None
        quarantined = list_quarantine(ledger_dsn(config), dag_id, 1)
    if asked is not None and asked.batch.pipeline != dag_id:
        asked = None
    open_batch = state.open_batch.batch_id if state.open_batch else None
    pausing = Kind.RESUME if state.pause is None else Kind.PAUSE
    return show(
        request,
        "decisions.html.j2",
        config=config,
        titles={kind: title for kind, title in TITLES.items() if kind is not pausing},
        hints=HINTS if config.sink.sink_mode.can_replace else HINTS_WHERE_NOTHING_IS_REPLACED,
        opened=do,
        batch_id=asked.batch.batch_id if asked else open_batch,
        ranges="\n".join(map(str, asked.batch.ranges)) if asked else "",
        quarantined=quarantined.total,
        losses="\n".join(str(each) for each in state.losses),
        state=state,
        can_act=may_act(user, dag_id),
        switched_off=bool(find_switched_off([dag_id])),
    )


async def preview(request: Request, dag_id: Pipeline, kind: Kind, user: GetUserDep, fields: Form) -> HTMLResponse:
    """Show what an order would change, and how to give it."""

    def answer() -> HTMLResponse:
        order = _Order(load(dag_id), _known(kind), user.get_id(), user.get_name(), fields)
        if kind not in REHEARSED_BY_RUN:
            return _show_effect(request, order, _rehearse(order))
        order.require_reason()
        asked = read_run(kind, fields, order.config.source.topics, dry_run=True)
        _require_possible(order, asked)
        return _show_dry_run(request, order, airflow_runs.trigger(request, dag_id, asked))

    return await _told(request, answer)


async def carry_out(request: Request, dag_id: Pipeline, kind: Kind, user: GetUserDep, fields: Form) -> HTMLResponse:
    """Do what was shown, if it would still change the same."""

    def answer() -> HTMLResponse:
        order, shown = _read_shown(load(dag_id), user, fields)
        if shown.kind is not kind:
            raise DecisionRefusedError("something else was shown; nothing was changed.")
        if kind in REHEARSED_BY_RUN:
            rehearsed = fields.get("run", "")
            asked = _ask_for_the_same(order, rehearsed, shown)
            return _start(request, order, asked, f"{rehearsed}__{kind}")
        now = _rehearse(order)
        if approval.digest(_effect(now)) != shown.effect:
            return _show_effect(request, order, now, has_changed=True)
        if kind in BY_RUN:
            asked = read_run(kind, order.fields, order.config.source.topics, dry_run=False)
            return _start(request, order, asked, f"{kind}__{read_batch(order.fields)}__{shown.effect[:8]}")
        decided = _decide(order, build_platform(order.config))
        request.app.state.lookout.expire(dag_id)
        return show(request, "done.html.j2", config=order.config, kind=kind, decided=decided)

    return await _told(request, answer)


async def follow_dry_run(
    request: Request, dag_id: Pipeline, run_id: str, user: GetUserDep, fields: Form
) -> HTMLResponse:
    """Show how far a dry run is, and in the end what it has found."""

    def answer() -> HTMLResponse:
        order, shown = _read_shown(load(dag_id), user, fields)
        if approval.digest(run_id) != shown.effect:
            raise DecisionRefusedError("another dry run was asked for.")
        return _show_dry_run(request, order, run_id)

    return await _told(request, answer)


def follow_run(request: Request, dag_id: Pipeline, run_id: str) -> HTMLResponse:
    """Show how far a run is that was started here."""
    with keep_connections():
        return _show_progress(request, load(dag_id), run_id)


async def _told(request: Request, answer: Callable[[], HTMLResponse]) -> HTMLResponse:
    """Return the answer, or what is said against it.

    In threads of their own: an order may wait for a run that Airflow's routes start, and they need theirs.
    """

    def tell() -> HTMLResponse:
        try:
            with keep_connections():
                return answer()
        except ServiceUnavailableError as error:
            return show(request, "refused.html.j2", status.HTTP_503_SERVICE_UNAVAILABLE, text=str(error))
        except BatchledgerError as error:
            return show(request, "refused.html.j2", status.HTTP_409_CONFLICT, text=str(error))

    return await anyio.to_thread.run_sync(tell, limiter=request.app.state.orders)


def _read_shown(config: PipelineConfig, user: Any, fields: Fields) -> tuple[_Order, Approval]:
    """Return the order that was shown to the user, and what was signed. Raises DecisionRefusedError."""
    shown = approval.read(fields.get("approval", ""), _secret(), user.get_id(), config.name)
    return _Order(config, shown.kind, user.get_id(), user.get_name(), shown.fields), shown


def _rehearse(order: _Order) -> Decided:
    return _decide(order, rehearse(build_platform(order.config)))


def _decide(order: _Order, platform: Platform) -> Decided:
    """Carry an order out; with a platform that rehearses nothing is changed."""
    decide = read_decision(order.kind, order.fields)
    if order.kind in OF_BATCH:
        batch = platform.ledger.load_batch(read_batch(order.fields))
        if batch.pipeline != order.config.name:
            raise DecisionRefusedError(f"{order.config.name} has no batch {batch.batch_id}; nothing was changed.")
    return decide(platform, order.decision)


def _require_possible(order: _Order, asked: Mapping[str, Any]) -> None:
    """Raise at once what would fail the dry run's first task, as far as that needs no record of Kafka."""
    config = order.config
    run = read_order(asked, RunFacts("asked for on the page"), config.source.topics)
    if isinstance(run, Rehearse):
        require_possible(build_platform(config), run.replay)


def _explain(order: _Order, decided: Decided) -> list[str]:
    """Return in sentences what an order comes to that would change something."""
    if order.kind not in OF_BATCH:
        return [as_sentence(decided.warning)] if decided.warning else []
    history = load_batch_history(ledger_dsn(order.config), read_batch(order.fields))
    batch, offsets = history.batch, count_offsets(history.batch.ranges)
    rows = sum(each.accepted or 0 for each in history.ranges)
    failed = ", ".join(each.name for each in history.checks if each.blocks)
    match order.kind:
        case DecisionKind.ACCEPT:
            moves = f", and the position moves past {offsets:,} offsets" if batch.lane is Lane.LIVE else ""
            told = f" Checks that have failed: {failed}." if failed else ""
            return [f"{rows:,} rows become visible in {order.config.sink.target}{moves}.{told}"]
        case DecisionKind.DISCARD if batch.lane is Lane.LIVE:
            return [f"Nothing of it becomes visible; the next run plans its {offsets:,} offsets again."]
        case DecisionKind.DISCARD:
            return ["Nothing of it becomes visible; the target stays as it is."]
        case _:
            return [f"A run reads its {offsets:,} offsets again, and publishes them if no check fails."]


def _start(request: Request, order: _Order, asked: Mapping[str, Any], run_id: str) -> HTMLResponse:
    """Start the run that does it, once, however often it is asked for, and show how far it is."""
    run_id = airflow_runs.trigger(request, order.config.name, asked, run_id)
    logger.warning("%s of %s by %s: run %s", order.kind, order.config.name, order.name, run_id)
    return _show_progress(request, order.config, run_id)


def _effect(decided: Decided) -> Any:
    record = decided.record
    return None if record is None else [decided.is_new, record.before, record.after]


def _changes(decided: Decided) -> list[tuple[str, str, str]]:
    return list(list_changes(decided.record)) if decided.record else []


def _show_effect(request: Request, order: _Order, decided: Decided, *, has_changed: bool = False) -> HTMLResponse:
    return show(
        request,
        "effect.html.j2",
        config=order.config,
        kind=order.kind,
        title=TITLES[order.kind],
        decided=decided,
        changes=_changes(decided),
        changes_shown=CHANGES_SHOWN,
        means=_explain(order, decided) if decided.is_new and decided.record else [],
        has_changed=has_changed,
        approval=order.approve(_effect(decided)),
    )


def _show_dry_run(request: Request, order: _Order, run_id: str) -> HTMLResponse:
    """Show what a dry run has found; while it goes on, or cannot be looked at, that it does."""
    seen = _look_at_run(order.config, run_id)
    found = seen.history.dry_run if seen.history else None
    return show(
        request,
        "dry_run.html.j2",
        config=order.config,
        kind=order.kind,
        title=TITLES[order.kind],
        run_id=run_id,
        seen=seen,
        found=found,
        is_over=found is not None or seen.is_over,
        # Signed anew each time, so that the hour counts from what was found.
        approval=order.approve(run_id),
    )


def _ask_for_the_same(order: _Order, run_id: str, shown: Approval) -> dict[str, Any]:
    """Return what a run is to be asked for that publishes what a dry run has compared: exactly its offsets.

    Not what the form says: a window may hold more by now, and so may ranges of a quarantine. Raises
    DecisionRefusedError unless that dry run came to its end, and nothing spoke against publishing.
    """
    history = _look_at_run(order.config, run_id).history
    found = history.dry_run if history else None
    if approval.digest(run_id) != shown.effect or history is None or found is None:
        raise DecisionRefusedError("no dry run of this has come to its end; have it shown first. Nothing was changed.")
    if found.objections:
        raise DecisionRefusedError(f"it would not be published: {'; '.join(found.objections)}. Nothing was changed.")
    same = {"reason": order.fields["reason"], "ranges": "\n".join(map(str, (*history.batch.ranges, *found.expired)))}
    # What was gone is asked for again, so that the ledger keeps that it was left out.
    allowed = {"allow_expired": "yes"} if found.expired else {}
    return read_run(order.kind, {**same, **allowed}, order.config.source.topics, dry_run=False)


@dataclass(frozen=True, slots=True)
class _SeenRun:
    """A run that was started here: its state in Airflow, what the ledger has of its batch, and why that is not known.

    ``is_waiting``: no run of the DAG begins before somebody switches it on.
    """

    state: str | None
    history: BatchHistory | None
    is_waiting: bool
    error: str | None = None

    @property
    def is_over(self) -> bool:
        """Whether nothing more will come of it."""
        return self.error is None and self.state in OVER


def _look_at_run(config: PipelineConfig, run_id: str) -> _SeenRun:
    # In this order: a run that ends in between has its batch by then.
    state, is_waiting = find_run_state(config.name, run_id), bool(find_switched_off([config.name]))
    try:
        dsn = ledger_dsn(config)
        batch_id = find_batch_of_run(dsn, config.name, run_id)
        history = None if batch_id is None else load_batch_history(dsn, batch_id)
    except ServiceUnavailableError as error:
        return _SeenRun(state, None, is_waiting, str(error))
    return _SeenRun(state, history, is_waiting)


def _show_progress(request: Request, config: PipelineConfig, run_id: str) -> HTMLResponse:
    seen = _look_at_run(config, run_id)
    return show(request, "progress.html.j2", config=config, run_id=run_id, seen=seen)


def _known(kind: DecisionKind) -> DecisionKind:
    if kind not in TITLES:
        raise HTTPException(status.HTTP_404_NOT_FOUND, f"{kind} is not decided here")
    return kind


def _secret() -> str:
    return str(conf.get("api", "secret_key"))
