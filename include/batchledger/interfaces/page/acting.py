"""What people do on a page: each order is shown before it can be given, and given as it was shown.

An order is asked for in a form, and shown with what it would change; what was shown is signed, and only that can be
carried out (``approval``). A replay is shown by a dry run in Airflow. The page shows what was refused, and why.
"""

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from airflow.configuration import conf
from fastapi import HTTPException, Request, status
from fastapi.responses import HTMLResponse

from batchledger.books.history import BatchHistory, list_quarantine, load_batch_history
from batchledger.books.overview import find_batch_of_run
from batchledger.config.pipeline_file import PipelineConfig
from batchledger.database.sessions import keep_connections
from batchledger.interfaces.page import airflow_runs, approval
from batchledger.interfaces.page.access import OfVisitor, Pipeline, Visitor
from batchledger.interfaces.page.airflow_state import HostDag, find_run_state, find_switched_off
from batchledger.interfaces.page.answering import Form, tell_answer
from batchledger.interfaces.page.approval import Approval
from batchledger.interfaces.page.dag_views import load
from batchledger.interfaces.page.forms import OFFERS, Fields, Order, list_verbs, read_order, write_run
from batchledger.interfaces.page.pipeline_view import look_at_state
from batchledger.interfaces.page.reading import Offset
from batchledger.interfaces.page.rendering import show
from batchledger.interfaces.page.requests import list_waiting
from batchledger.interfaces.page.rights import Verb
from batchledger.interfaces.wording import as_sentence, list_changes
from batchledger.lifecycle import execution
from batchledger.lifecycle.orders import Retake
from batchledger.lifecycle.plans import require_possible
from batchledger.lifecycle.written_orders import needs_second_person
from batchledger.looking import ledger_dsn
from batchledger.model.batch import Decided, Decision, DecisionKind
from batchledger.model.errors import DecisionRefusedError, ServiceUnavailableError
from batchledger.model.runs import RunPlace, find_place
from batchledger.planning.replay import Quarantined, Replay
from batchledger.wiring import build_platform

logger = logging.getLogger(__name__)

# How a run of Airflow ends.
OVER = ("success", "failed")
CHANGES_SHOWN = 50
Kind = DecisionKind


@dataclass(frozen=True, slots=True)
class _Asked:
    """A person's order about a pipeline; ``host`` is the DAG that gives the right, ``name`` the ledger's for them."""

    config: PipelineConfig
    host: HostDag
    kind: DecisionKind
    user_id: str
    name: str
    fields: Fields

    @property
    def order(self) -> Order:
        """What was asked for. Raises ConfigurationError."""
        return read_order(self.kind, self.fields)

    @property
    def decision(self) -> Decision:
        """Who, and why. Raises DecisionRefusedError without a reason."""
        self.require_reason()
        return Decision(self.name, self.fields["reason"].strip())

    def require_reason(self) -> None:
        """Raise DecisionRefusedError without a reason."""
        if not self.fields.get("reason", "").strip():
            raise DecisionRefusedError(
                "No reason was given. Nothing was changed.",
                why="The ledger keeps a reason with each decision, for the people who read it later.",
                advice="Give a reason.",
            )

    def approve(self, effect: Any) -> str:
        """Return the signed text of what was shown."""
        of = self.user_id, self.config.name, self.host.dag_id
        shown = Approval(*of, self.kind, self.fields, approval.digest(effect))
        return approval.sign(shown, _secret())


def show_decisions(
    request: Request,
    dag_id: Pipeline,
    visitor: OfVisitor,
    do: Kind | None = None,
    batch: Offset = None,
) -> HTMLResponse:
    """Show the forms; ``do`` opens one of them, ``batch`` fills in what it is about."""
    config, may = load(dag_id), visitor.verbs
    with keep_connections():
        state = look_at_state(request.app.state.lookout, config)
        requests = list_waiting(config, visitor.user.get_name(), may)
        asked = load_batch_history(ledger_dsn(config), batch, dag_id) if batch is not None else None
        quarantined = list_quarantine(ledger_dsn(config), dag_id, 1)
    open_batch = state.open_batch.batch_id if state.open_batch else None
    pausing = Kind.RESUME if state.pause is None else Kind.PAUSE
    return show(
        request,
        "decisions.html.j2",
        config=config,
        offers={kind: each for kind, each in OFFERS.items() if kind is not pausing and each.verb in may},
        opened=do,
        batch_id=asked.batch.batch_id if asked else open_batch,
        ranges="\n".join(map(str, asked.batch.ranges)) if asked else "",
        quarantined=quarantined.total,
        losses="\n".join(str(each) for each in state.losses),
        state=state,
        rights=may,
        switched_off=bool(find_switched_off([visitor.require(Verb.LOOK).dag_id])),
        requests=requests,
        changes_shown=CHANGES_SHOWN,
    )


async def preview(request: Request, dag_id: Pipeline, kind: Kind, visitor: OfVisitor, fields: Form) -> HTMLResponse:
    """Show what an order would change, and how to give it."""

    def answer() -> HTMLResponse:
        host = visitor.require(*list_verbs(_known(kind), fields))
        asked = _Asked(load(dag_id), host, kind, visitor.user.get_id(), visitor.user.get_name(), fields)
        order = asked.order
        if not isinstance(order, Replay):
            return _show_effect(request, asked, execution.explain(build_platform(asked.config), order, asked.decision))
        run = write_run(order, asked.decision.reason, asked.config.source.topics, is_dry_run=True)
        require_possible(build_platform(asked.config), order)
        return _show_dry_run(request, asked, _trigger(request, asked, run))

    return await tell_answer(request, answer)


async def carry_out(request: Request, dag_id: Pipeline, kind: Kind, visitor: OfVisitor, fields: Form) -> HTMLResponse:
    """Do what was shown, if it would still change the same."""

    def answer() -> HTMLResponse:
        asked, shown = _read_shown(load(dag_id), visitor, fields)
        if shown.kind is not kind:
            raise DecisionRefusedError(
                "This was not shown to you. Nothing was changed.",
                why=f"You were shown what {shown.kind} would change, and confirmed {kind}.",
                advice="Let the page show again what would change, then confirm it.",
            )
        topics, order = asked.config.source.topics, asked.order
        if isinstance(order, Replay):
            rehearsed = fields.get("run", "")
            run = write_run(_find_the_same(asked, rehearsed, shown), asked.decision.reason, topics)
            return _start(request, asked, run, f"{_find_place(asked.config, rehearsed, [asked.host]).run_id}__{kind}")
        platform = build_platform(asked.config)
        now = execution.explain(platform, order, asked.decision)
        if approval.digest(_effect(now)) != shown.effect:
            return _show_effect(request, asked, now, has_changed=True)
        if isinstance(order, Retake):
            run = write_run(order, asked.decision.reason, topics)
            return _start(request, asked, run, f"{kind}__{order.batch_id}__{shown.effect[:8]}")
        decided = execution.carry_out(platform, order, asked.decision)
        request.app.state.lookout.expire(dag_id)
        return show(request, "done.html.j2", config=asked.config, kind=kind, decided=decided)

    return await tell_answer(request, answer)


async def follow_dry_run(
    request: Request, dag_id: Pipeline, run_id: str, visitor: OfVisitor, fields: Form
) -> HTMLResponse:
    """Show how far a dry run is, and in the end what it has found."""

    def answer() -> HTMLResponse:
        asked, shown = _read_shown(load(dag_id), visitor, fields)
        if approval.digest(run_id) != shown.effect:
            raise DecisionRefusedError(
                f"Run {run_id} is not the dry run that you started. Nothing was changed.",
                advice="Start the dry run again.",
            )
        return _show_dry_run(request, asked, run_id)

    return await tell_answer(request, answer)


def follow_run(request: Request, dag_id: Pipeline, run_id: str, visitor: OfVisitor) -> HTMLResponse:
    """Show how far a run is that was started here."""
    with keep_connections():
        return _show_progress(request, load(dag_id), run_id, visitor.verbs_by_host)


def _read_shown(config: PipelineConfig, visitor: Visitor, fields: Fields) -> tuple[_Asked, Approval]:
    """Return what was shown to the user, who may still do it, and what was signed. Raises DecisionRefusedError."""
    shown = approval.read(fields.get("approval", ""), _secret(), visitor.user.get_id(), config.name)
    host = visitor.require(*list_verbs(shown.kind, shown.fields))
    if host.dag_id != shown.dag_id:
        raise DecisionRefusedError(
            "What you confirmed was shown for another DAG. Nothing was changed.",
            why=f"It was for {shown.dag_id}, and now {host.dag_id} gives you the right to it.",
            advice="Let the page show again what would change, then confirm it.",
        )
    return _Asked(config, host, shown.kind, visitor.user.get_id(), visitor.user.get_name(), shown.fields), shown


def _start(request: Request, asked: _Asked, run: Mapping[str, Any], run_id: str) -> HTMLResponse:
    """Start the run that does it, once, however often it is asked for, and show how far it is."""
    name = _trigger(request, asked, run, run_id)
    logger.warning("%s of %s by %s: run %s", asked.kind, asked.config.name, asked.name, name)
    return _show_progress(request, asked.config, name, [asked.host])


def _trigger(request: Request, asked: _Asked, run: Mapping[str, Any], run_id: str | None = None) -> str:
    """Start a run, and return what the names begin with that the ledger will have for its work on the pipeline."""
    host = asked.host
    return host.name_run(airflow_runs.trigger(request, host.dag_id, host.write_conf(run), run_id))


def _sentences(decided: Decided) -> list[str]:
    warning = [as_sentence(decided.warning)] if decided.warning and decided.is_new and decided.record else []
    return [*decided.means, *warning]


def _tell_of_host(asked: _Asked) -> list[str]:
    is_told = asked.host.is_own and isinstance(asked.order, Retake)
    return [f"It starts a run of the DAG {asked.host.dag_id}, with all other tasks of it."] if is_told else []


def _effect(decided: Decided) -> Any:
    record = decided.record
    return None if record is None else [decided.is_new, record.before, record.after]


def _show_effect(request: Request, asked: _Asked, decided: Decided, *, has_changed: bool = False) -> HTMLResponse:
    order = asked.order
    is_of_one = isinstance(order, Replay | Retake) or not needs_second_person(order, asked.config.rules.second_person)
    return show(
        request,
        "effect.html.j2",
        config=asked.config,
        kind=asked.kind,
        title=OFFERS[asked.kind].title,
        decided=decided,
        changes=list(list_changes(decided.record)) if decided.record else [],
        changes_shown=CHANGES_SHOWN,
        means=[*_sentences(decided), *_tell_of_host(asked)],
        has_changed=has_changed,
        is_of_two=not is_of_one,
        approval=asked.approve(_effect(decided)),
    )


def _show_dry_run(request: Request, asked: _Asked, run_id: str) -> HTMLResponse:
    """Show what a dry run has found; while it goes on, or cannot be looked at, that it does."""
    seen = _look_at_run(asked.config, run_id, [asked.host])
    found = seen.history.dry_run if seen.history else None
    return show(
        request,
        "dry_run.html.j2",
        config=asked.config,
        kind=asked.kind,
        title=OFFERS[asked.kind].title,
        run_id=run_id,
        seen=seen,
        found=found,
        is_over=found is not None or seen.is_over,
        # Signed anew each time, so that the hour counts from what was found.
        approval=asked.approve(run_id),
    )


def _find_the_same(asked: _Asked, run_id: str, shown: Approval) -> Replay:
    """Return the replay of what a dry run has compared: exactly its offsets.

    Not what the form says: a window may hold more by now, and so may ranges of a quarantine. What was gone is asked for
    again, so that the ledger keeps that it was left out. Raises DecisionRefusedError unless that dry run came to its
    end, and nothing spoke against publishing.
    """
    history = _look_at_run(asked.config, run_id, [asked.host]).history
    found = history.dry_run if history else None
    if approval.digest(run_id) != shown.effect or history is None or found is None:
        raise DecisionRefusedError(
            "No dry run of this replay has ended. Nothing was changed.",
            why="A replay publishes exactly the offsets of its dry run.",
            advice="Wait for the end of the dry run, or start another one.",
        )
    if found.objections:
        raise DecisionRefusedError(
            "This replay would not be published. Nothing was changed.",
            why="\n".join(map(as_sentence, found.objections)),
            advice="Remove the cause, then start another dry run.",
        )
    ranges = (*history.batch.ranges, *found.expired)
    if asked.kind is DecisionKind.QUARANTINE_REPLAY:
        return Replay(Quarantined(ranges))
    return Replay(ranges, allow_expired=bool(found.expired))


@dataclass(frozen=True, slots=True)
class _SeenRun:
    """A run that was started here: its state in Airflow, what the ledger has of its batch, and why that is not known.

    ``is_waiting``: no run of the DAG begins before a person switches it on.
    """

    place: RunPlace
    state: str | None
    history: BatchHistory | None
    is_waiting: bool
    error: str | None = None

    @property
    def is_over(self) -> bool:
        """Whether nothing more will come of it."""
        return self.error is None and self.state in OVER


def _look_at_run(config: PipelineConfig, run_id: str, hosts: Iterable[HostDag]) -> _SeenRun:
    place = _find_place(config, run_id, hosts)
    # In this order: a run that ends in between has its batch by then.
    state, is_waiting = find_run_state(place.dag_id, place.run_id), bool(find_switched_off([place.dag_id]))
    try:
        dsn = ledger_dsn(config)
        batch_id = find_batch_of_run(dsn, config.name, run_id)
        history = None if batch_id is None else load_batch_history(dsn, batch_id)
    except ServiceUnavailableError as error:
        return _SeenRun(place, state, None, is_waiting, str(error))
    return _SeenRun(place, state, history, is_waiting)


def _find_place(config: PipelineConfig, run_id: str, hosts: Iterable[HostDag]) -> RunPlace:
    """Return where a run is that was started here. Raises 404 for a DAG that is none of these."""
    place = find_place(config.name, run_id)
    if place is None or place.dag_id not in {each.dag_id for each in hosts}:
        raise HTTPException(status.HTTP_404_NOT_FOUND, f"{config.name} has no such run")
    return place


def _show_progress(request: Request, config: PipelineConfig, run_id: str, hosts: Iterable[HostDag]) -> HTMLResponse:
    seen = _look_at_run(config, run_id, hosts)
    return show(request, "progress.html.j2", config=config, run_id=run_id, seen=seen)


def _known(kind: DecisionKind) -> DecisionKind:
    if kind not in OFFERS:
        raise HTTPException(status.HTTP_404_NOT_FOUND, f"{kind} is not decided here")
    return kind


def _secret() -> str:
    return str(conf.get("api", "secret_key"))
