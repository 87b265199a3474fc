"""What waits for a second person: shown with what it would change, and confirmed or withdrawn on the page.

The effect that is shown is the one that the request keeps, and the ledger carries out exactly this or nothing. So no
text has to be signed here, as ``acting`` does for an order of one person.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from fastapi import HTTPException, Request, status
from fastapi.responses import HTMLResponse

from batchledger.config.pipeline_file import PipelineConfig
from batchledger.interfaces.page.access import OfVisitor, Pipeline
from batchledger.interfaces.page.answering import Form, tell_answer
from batchledger.interfaces.page.dag_views import load
from batchledger.interfaces.page.forms import list_verbs
from batchledger.interfaces.page.reading import RequestId
from batchledger.interfaces.page.rendering import show
from batchledger.interfaces.page.rights import Verb
from batchledger.interfaces.wording import list_changes
from batchledger.ledger.requests import list_requests, load_request
from batchledger.lifecycle import execution
from batchledger.lifecycle.platform import Platform
from batchledger.looking import ledger_dsn
from batchledger.model.actors import Actor
from batchledger.model.batch import Decided, Decision, DecisionKind, DecisionRecord
from batchledger.model.requests import VALID_FOR, explain_same
from batchledger.wiring import build_platform

_STEPS: Mapping[str, Callable[[Platform, DecisionRecord, Decision], Decided]] = {
    "confirm": execution.confirm,
    "withdraw": execution.withdraw,
}


@dataclass(frozen=True, slots=True)
class WaitingRequest:
    """A request as a user sees it. ``obstacle`` says why this user cannot confirm it; empty if nothing is known.

    ``means`` says in sentences what the effect does not.
    """

    record: DecisionRecord
    may_end: bool
    obstacle: str
    means: Sequence[str] = ()

    @property
    def kind(self) -> DecisionKind:
        """What was asked for."""
        return _kind_of(self.record)

    @property
    def changes(self) -> Sequence[tuple[str, str, str]]:
        """What would change: name, before, after."""
        return list(list_changes(self.record))

    @property
    def expires_at(self) -> datetime:
        """From when on it cannot be confirmed."""
        return self.record.decided_at + VALID_FOR


def list_waiting(config: PipelineConfig, name: str, rights: Collection[Verb]) -> list[WaitingRequest]:
    """Return the open requests of a pipeline as the user of that name sees them, the oldest first."""
    found = list_requests(ledger_dsn(config), config.name)
    if not found:
        return []
    platform = build_platform(config)
    return [
        # Airflow's login to PostgreSQL would record this user, too.
        WaitingRequest(
            each,
            may_end=set(_verbs_of(each)) <= set(rights),
            obstacle=explain_same(each.actor, Actor(name, role=each.database_role)),
            means=execution.describe_requested(platform, each),
        )
        for each in found
    ]


async def end(
    request: Request, dag_id: Pipeline, request_id: RequestId, visitor: OfVisitor, fields: Form
) -> HTMLResponse:
    """Carry out what another person has asked for, if it would still change what was shown; or withdraw it.

    The field ``step`` says which of the two: it is the button.
    """

    def answer() -> HTMLResponse:
        config = load(dag_id)
        asked = load_request(ledger_dsn(config), request_id)
        if asked.pipeline != dag_id:
            raise HTTPException(status.HTTP_404_NOT_FOUND, f"{dag_id} has no request {request_id}")
        visitor.require(*_verbs_of(asked))
        do = _STEPS.get(fields.get("step", ""))
        if do is None:
            raise HTTPException(status.HTTP_400_BAD_REQUEST, "the form neither confirms the request nor withdraws it")
        decision = Decision(visitor.user.get_name(), fields.get("reason", "").strip())
        decided = do(build_platform(config), asked, decision)
        request.app.state.lookout.expire(dag_id)
        kind = decided.record.subject if decided.record else ""
        return show(request, "done.html.j2", config=config, kind=kind, decided=decided)

    return await tell_answer(request, answer)


def _verbs_of(record: DecisionRecord) -> tuple[Verb, ...]:
    kind, order = _kind_of(record), record.requested_order or {}
    # The page offers no erasure, and its request is confirmed at the command line. It can be withdrawn here.
    if kind is DecisionKind.ERASE:
        return (Verb.DESTROY,)
    return list_verbs(kind, {"truncate": "yes"} if order.get("truncate") else {})


def _kind_of(record: DecisionRecord) -> DecisionKind:
    return DecisionKind((record.requested_order or {})["kind"])
