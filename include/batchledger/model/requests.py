"""Decisions that need two people: one asks, another one confirms what was shown to the first. Pure.

A request is a decision of the kind ``request``. It keeps the order, and as its effect what the order would change. The
decision that carries it out names it, has exactly that effect, and is another person's. The ledger's trigger
``confirm_request`` refuses every other one; the functions here say the same earlier, and in words.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from batchledger.model.actors import Actor
from batchledger.model.batch import DecisionKind, DecisionRecord
from batchledger.model.effects import Effect
from batchledger.model.errors import DecisionRefusedError

VALID_FOR = timedelta(hours=24)


class TwoPersonOrder(StrEnum):
    """The orders for which a pipeline may ask for a second person: what they take is gone for good."""

    ACCEPT = "accept"
    ACCEPT_LOSS = "accept-loss"
    SKIP = "skip"
    TRUNCATE = "truncate"
    QUARANTINE_DROP = "quarantine-drop"
    ERASE = "erase"


@dataclass(frozen=True, slots=True)
class Confirmation:
    """What would carry out a request: who decides it, when, which kind of decision it is, and what it changes."""

    actor: Actor
    at: datetime
    kind: DecisionKind
    effect: Effect | None


def require_confirmable(request: DecisionRecord, end: DecisionRecord | None, by: Confirmation) -> None:
    """Raise DecisionRefusedError unless the confirmation carries the request out.

    ``end`` is the decision that has ended the request; None while it is open.
    """
    if end is not None:
        raise ended_already(request, end)
    if by.at >= request.decided_at + VALID_FOR:
        hours = VALID_FOR // timedelta(hours=1)
        raise _refused(request, f"It has expired: a request is valid for {hours} hours.", "Ask again.")
    same = explain_same(request.actor, by.actor)
    if same:
        raise _refused(request, same, "Let another person confirm it.")
    asked = (request.requested_order or {}).get("kind")
    if by.effect is None or (by.kind, by.effect.before, by.effect.after) != (asked, request.before, request.after):
        raise has_moved(request)


def explain_same(asking: Actor, confirming: Actor) -> str:
    """Say why these may be one person; empty if they are two.

    People at the page are two if their names differ, and Airflow's own login to PostgreSQL has recorded both. People at
    the command line are two if their names, their users of the operating system and their logins to PostgreSQL differ.
    """
    is_of_page = asking.uid is None
    if asking.name == confirming.name:
        same = f"{asking.name} has asked for it."
    elif is_of_page != (confirming.uid is None):
        place = "page" if is_of_page else "command line"
        same = f"It was asked for at the {place}: at another place, the same person may have another name."
    elif is_of_page:
        logins = f"{asking.role} and {confirming.role}"
        same = "" if asking.role == confirming.role else f"Two logins to PostgreSQL have recorded the names: {logins}."
    elif (asking.uid, asking.host) == (confirming.uid, confirming.host):
        same = f"Both are one user of the operating system: uid {asking.uid} @{asking.host}."
    elif asking.role == confirming.role:
        same = f"Both are logged in to PostgreSQL as {asking.role}, so the database cannot tell two people apart."
    else:
        same = ""
    return same


def has_moved(request: DecisionRecord) -> DecisionRefusedError:
    """Say that the order would not change any more what the request has shown."""
    return _refused(
        request,
        "It would not change any more what was shown to the person who asked for it.",
        "Ask again, and compare what is shown.",
    )


def ended_already(request: DecisionRecord, end: DecisionRecord) -> DecisionRefusedError:
    """Say who has confirmed or withdrawn a request."""
    done = "withdrew" if end.kind == DecisionKind.WITHDRAW else "confirmed"
    why = f"{end.actor} {done} it on {end.decided_at:%Y-%m-%d %H:%M} UTC: {end.reason}"
    return _refused(request, why, f"See the decisions: batchledger batches {request.pipeline}")


def _refused(request: DecisionRecord, why: str, advice: str) -> DecisionRefusedError:
    return DecisionRefusedError(
        f"Request {request.decision_id} of {request.pipeline} is not carried out. Nothing was changed.",
        why=why,
        advice=advice,
        pipeline=request.pipeline,
    )
