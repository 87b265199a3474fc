"""What people do on a page: each order is shown before it can be given, and given as it was shown.

An order is asked for in a form, and shown with what it would change; what was shown is signed, and only that can be
carried out (``approval``). A replay is shown by a dry run in Airflow. What is refused is told on the page.
"""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any
from urllib.parse import parse_qsl

from airflow.api_fastapi.core_api.security import GetUserDep
from airflow.configuration import conf
from fastapi import Depends, HTTPException, Request, status
from fastapi.responses import HTMLResponse

from batchledger.batch import Decided, Decision, DecisionKind
from batchledger.config import PipelineConfig
from batchledger.database import keep_connections
from batchledger.decision_display import list_changes
from batchledger.decisions import rehearse
from batchledger.errors import BatchledgerError, DecisionRefusedError, ServiceUnavailableError
from batchledger.ledger.history import BatchHistory, list_quarantine, load_batch_history
from batchledger.ledger.overview import find_batch_of_run
from batchledger.ui import airflow_runs, approval
from batchledger.ui.access import may_act
from batchledger.ui.airflow_state import find_run_state, find_switched_off
from batchledger.ui.approval import Approval
from batchledger.ui.forms import BY_RUN, REHEARSED_BY_RUN, Fields, read_batch, read_decision, read_run
from batchledger.ui.lookout import Lookout
from batchledger.ui.pipeline_view import look_at_state
from batchledger.ui.reading import Offset, Pipeline, load
from batchledger.ui.rendering import show
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

Kind = DecisionKind
RunId = str


async def read_fields(request: Request) -> Fields:
    """Return the fields of a form; of those that come twice the last one."""
    body = await request.body()
    if len(body) > BODY_BYTES:
        raise HTTPException(status.HTTP_413_CONTENT_TOO_LARGE, "this form holds too much")
    try:
        return dict(parse_qsl(body.decode(), keep_blank_values=True))
    except ValueError as error:
        raise HTTPException(status.HTTP_400_BAD_REQUEST, "this is no form") from error


Form = Annotated[Fields, Depends(read_fields)]


@dataclass(frozen=True, slots=True)
class _Order:
    """Somebody's order about a pipeline."""

    config: PipelineConfig
    kind: DecisionKind
    user: str
    fields: Fields

    @property
    def decision(self) -> Decision:
        """Who, and why. Raises DecisionRefusedError without a reason."""
        self.require_reason()
        return Decision(self.user, self.fields["reason"].strip())

    def require_reason(self) -> None:
        """Raise DecisionRefusedError without a reason."""
        if not self.fields.get("reason", "").strip():
            raise DecisionRefusedError("give a reason; others will read it in the ledger.")

    def approve(self, effect: Any) -> str:
        """Return the signed text of what was shown."""
        shown = Approval(self.user, self.config.name, self.kind, self.fields, approval.digest(effect))
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
        opened=do,
        batch_id=asked.batch.batch_id if asked else open_batch,
        ranges="\n".join(str(each) for each in asked.batch.ranges) if asked and do in (Kind.REPLAY, None) else "",
        quarantined=quarantined.total,
        losses="\n".join(str(each) for each in state.losses),
        state=state,
        can_act=may_act(user, dag_id),
        switched_off=bool(find_switched_off([dag_id])),
    )


def preview(request: Request, dag_id: Pipeline, kind: Kind, user: GetUserDep, fields: Form) -> HTMLResponse:
    """Show what an order would change, and how to give it."""
    config = load(dag_id)
    order = _Order(config, _known(kind), user.get_name(), fields)

    def answer() -> HTMLResponse:
        if kind in REHEARSED_BY_RUN:
            order.require_reason()
            run_id = airflow_runs.trigger(request, dag_id, read_run(kind, fields, config.source.topics, dry_run=True))
            return _show_dry_run(request, order, run_id, order.approve(run_id))
        return _show_effect(request, order, _carry_out(order, is_kept=False))

    return _told(request, answer)


def carry_out(request: Request, dag_id: Pipeline, kind: Kind, user: GetUserDep, fields: Form) -> HTMLResponse:
    """Do what was shown, if it would still change the same."""
    config = load(dag_id)

    def answer() -> HTMLResponse:
        shown = approval.read(fields.get("approval", ""), _secret(), user.get_name(), dag_id)
        order = _Order(config, shown.kind, shown.user, shown.fields)
        if shown.kind is not kind:
            raise DecisionRefusedError("something else was shown; nothing was changed.")
        if kind in REHEARSED_BY_RUN:
            _require_rehearsed(config, fields.get("run", ""), shown)
        elif approval.digest(_effect(now := _carry_out(order, is_kept=False))) != shown.effect:
            return _show_effect(request, order, now, has_changed=True)
        if kind in BY_RUN:
            run = read_run(kind, shown.fields, config.source.topics, dry_run=False)
            run_id = airflow_runs.trigger(request, dag_id, run)
            logger.warning("%s of %s by %s: run %s", kind, dag_id, shown.user, run_id)
            return _show_progress(request, config, run_id)
        decided = _carry_out(order, is_kept=True)
        lookout: Lookout = request.app.state.lookout
        lookout.expire(dag_id)
        return show(request, "done.html.j2", config=config, kind=kind, decided=decided, changes=_changes(decided))

    return _told(request, answer)


def follow_dry_run(request: Request, dag_id: Pipeline, run_id: RunId, user: GetUserDep, fields: Form) -> HTMLResponse:
    """Show how far a dry run is, and in the end what it has found."""
    config = load(dag_id)

    def answer() -> HTMLResponse:
        signed = fields.get("approval", "")
        shown = approval.read(signed, _secret(), user.get_name(), dag_id)
        return _show_dry_run(request, _Order(config, shown.kind, shown.user, shown.fields), run_id, signed)

    return _told(request, answer)


def follow_run(request: Request, dag_id: Pipeline, run_id: RunId) -> HTMLResponse:
    """Show how far a run is that was started here."""
    config = load(dag_id)
    return _told(request, lambda: _show_progress(request, config, run_id))


def _told(request: Request, answer: Callable[[], HTMLResponse]) -> HTMLResponse:
    """Return the answer, or what is said against it."""
    try:
        with keep_connections():
            return answer()
    except ServiceUnavailableError as error:
        return show(request, "refused.html.j2", status.HTTP_503_SERVICE_UNAVAILABLE, text=str(error))
    except BatchledgerError as error:
        return show(request, "refused.html.j2", status.HTTP_409_CONFLICT, text=str(error))


def _carry_out(order: _Order, *, is_kept: bool) -> Decided:
    """Carry an order out, or rehearse it, which changes nothing."""
    decide = read_decision(order.kind, order.fields)
    platform = build_platform(order.config)
    if order.kind in OF_BATCH:
        batch = platform.ledger.load_batch(read_batch(order.fields))
        if batch.pipeline != order.config.name:
            raise DecisionRefusedError(f"{order.config.name} has no batch {batch.batch_id}; nothing was changed.")
    return decide(platform if is_kept else rehearse(platform), order.decision)


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
        has_changed=has_changed,
        approval=order.approve(_effect(decided)),
    )


def _show_dry_run(request: Request, order: _Order, run_id: str, signed: str) -> HTMLResponse:
    """Show what a dry run has found; while it goes on, that it does."""
    name = order.config.name
    state, history = _look_at_run(order.config, run_id)
    found = history.dry_run if history else None
    is_over = found is not None or state in OVER
    return show(
        request,
        "dry_run.html.j2",
        config=order.config,
        kind=order.kind,
        title=TITLES[order.kind],
        run_id=run_id,
        state=state,
        history=history,
        found=found,
        is_over=is_over,
        switched_off=bool(find_switched_off([name])),
        approval=signed,
    )


def _require_rehearsed(config: PipelineConfig, run_id: str, shown: Approval) -> None:
    """Raise DecisionRefusedError unless that dry run came to its end, and nothing spoke against publishing."""
    _, history = _look_at_run(config, run_id)
    found = history.dry_run if history else None
    if approval.digest(run_id) != shown.effect or found is None:
        raise DecisionRefusedError("no dry run of this has come to its end; have it shown first. Nothing was changed.")
    if found.objections:
        raise DecisionRefusedError(f"it would not be published: {'; '.join(found.objections)}. Nothing was changed.")


def _look_at_run(config: PipelineConfig, run_id: str) -> tuple[str | None, BatchHistory | None]:
    """Return the state of a run in Airflow, and what the ledger has of its batch."""
    # In this order: a run that ends in between has its batch by then.
    state = find_run_state(config.name, run_id)
    dsn = ledger_dsn(config)
    batch_id = find_batch_of_run(dsn, config.name, run_id)
    return state, None if batch_id is None else load_batch_history(dsn, batch_id)


def _show_progress(request: Request, config: PipelineConfig, run_id: str) -> HTMLResponse:
    state, history = _look_at_run(config, run_id)
    is_over = state in OVER
    switched_off = bool(find_switched_off([config.name]))
    return show(
        request,
        "progress.html.j2",
        config=config,
        run_id=run_id,
        state=state,
        history=history,
        is_over=is_over,
        switched_off=switched_off,
    )


def _known(kind: DecisionKind) -> DecisionKind:
    if kind not in TITLES:
        raise HTTPException(status.HTTP_404_NOT_FOUND, f"{kind} is not decided here")
    return kind


def _secret() -> str:
    return str(conf.get("api", "secret_key"))
