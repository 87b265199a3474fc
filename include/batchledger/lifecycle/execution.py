"""Orders that are done at once: explain what one would change, or carry it out.

If the pipeline file asks for a second person, an order is only recorded as a request. Another person confirms it.
"""

import logging
import secrets
from dataclasses import dataclass, field, replace

from batchledger.lifecycle import decisions, erasing, run_batch
from batchledger.lifecycle.orders import (
    Accept,
    AcceptLoss,
    AdoptTarget,
    AtOnce,
    Discard,
    DropQuarantined,
    Erase,
    Pause,
    Rename,
    Resume,
    Retake,
    Retire,
    Skip,
)
from batchledger.lifecycle.ownership import load_batch
from batchledger.lifecycle.platform import Platform
from batchledger.lifecycle.written_orders import (
    TwoPerson,
    needs_second_person,
    read_order,
    write_erasure,
    write_order,
)
from batchledger.model.batch import Decided, Decision, DecisionKind, DecisionRecord, Lane
from batchledger.model.counting import describe_count
from batchledger.model.effects import Effect
from batchledger.model.erasure import ErasureKey
from batchledger.model.errors import DecisionRefusedError
from batchledger.model.offsets import count_offsets
from batchledger.model.refusals import never_published
from batchledger.model.requests import ended_already, has_moved
from batchledger.planning.rewind import Rewind
from batchledger.ports import Decisions

logger = logging.getLogger(__name__)

# A code of 16 characters: nothing that can be tried.
_CODE_BYTES = 12


def carry_out(platform: Platform, order: AtOnce, decision: Decision) -> Decided:
    """Do what a person has ordered. Raises what the order's own function raises.

    An order that needs a second person changes nothing: it becomes a request, which is the ``record`` then. Repeated,
    it finds that request. An order that would change nothing is no request; an acceptance that stands is published.
    """
    if not needs_second_person(order, platform.rules.second_person):
        return _do(platform, order, decision)
    found = explain(platform, order, decision)
    if found.warning:
        # As an order of one person logs it: the rehearsal did not.
        logger.warning("%s of %s: %s", order.kind, platform.rules.name, found.warning)
    if found.record is None or not found.is_new:
        if isinstance(order, Accept):
            _publish_accepted(platform, order)
        return found
    effect = Effect(found.record.before or {}, found.record.after or {})
    batch_id = order.batch_id if isinstance(order, Accept) else None
    code = secrets.token_urlsafe(_CODE_BYTES) if isinstance(order, Erase) else ""
    written = write_erasure(order.key, code) if isinstance(order, Erase) else write_order(order)
    requested = platform.decisions.request(platform.rules.name, written, decision, effect, batch_id)
    return decisions.log_decided(
        platform.decisions, replace(requested, means=found.means, warning=found.warning, code=code)
    )


@dataclass(frozen=True, slots=True)
class RepeatedKey:
    """The key of an erasure as the second person names it, with the code that the first one was given."""

    key: ErasureKey
    code: str = field(repr=False)


def confirm(
    platform: Platform, request: DecisionRecord, decision: Decision, repeated: RepeatedKey | None = None
) -> Decided:
    """Carry out what another person has asked for, as one decision that names both.

    An erasure needs its key ``repeated``: the request keeps none.
    Repeated, it changes nothing. Raises DecisionRefusedError if the request is over, if the two may be one person, or
    if the order would change something else by now; and what the order's own function raises.
    """
    decisions.require_reason(decision)
    order = _read_requested(request, repeated)
    end = platform.decisions.find_end(request.decision_id)
    if end is not None:
        if end.kind == DecisionKind.WITHDRAW:
            raise ended_already(request, end)
        if isinstance(order, Accept) and platform.decisions.is_kept:
            _publish_accepted(platform, order)
        return Decided(end, is_new=False)
    named = replace(decision, request_id=request.decision_id)
    # The acceptance of another request may stand. It would be published before this request is refused.
    if isinstance(order, Accept) and not _do(decisions.rehearse(platform), order, named).is_new:
        raise _overtaken(platform, request)
    decided = _do(platform, order, named)
    if decided.record is None or decided.record.request_id != request.decision_id:
        raise _overtaken(platform, request)
    return decided


def _overtaken(platform: Platform, request: DecisionRecord) -> DecisionRefusedError:
    """Say who has ended the request in between, or that another decision has left nothing of it to do."""
    end = platform.decisions.find_end(request.decision_id)
    return has_moved(request) if end is None else ended_already(request, end)


def explain_confirmation(
    platform: Platform, request: DecisionRecord, decision: Decision, repeated: RepeatedKey | None = None
) -> Decided:
    """Return what a confirmation would change, and change nothing. Refuses what ``confirm`` would refuse."""
    decided = confirm(decisions.rehearse(platform), request, decision, repeated)
    return replace(decided, means=describe_requested(platform, request)) if decided.is_new else decided


def describe_requested(platform: Platform, request: DecisionRecord) -> tuple[str, ...]:
    """Return in sentences what a request means, as the person who asked was shown it; empty if its effect says all."""
    kind = (request.requested_order or {}).get("kind")
    return (_describe(platform, Accept(int(request.batch_id or 0))),) if kind == DecisionKind.ACCEPT else ()


def withdraw(platform: Platform, request: DecisionRecord, decision: Decision) -> Decided:
    """End a request without carrying it out: who asked takes it back, or another person rejects it.

    Raises DecisionRefusedError if it was confirmed.
    """
    decisions.require_reason(decision)
    return decisions.log_decided(platform.decisions, platform.decisions.withdraw(request, decision))


def _read_requested(request: DecisionRecord, repeated: RepeatedKey | None) -> TwoPerson | Erase:
    """Return the order of a request. Raises DecisionRefusedError unless the key of an erasure was repeated."""
    written = request.requested_order or {}
    if written.get("kind") != Erase.kind:
        return read_order(written)
    if repeated is None or write_erasure(repeated.key, repeated.code) != written:
        missing = "needs a key and a code" if repeated is None else "erases another key, or its code is another one"
        raise DecisionRefusedError(
            f"Request {request.decision_id} of {request.pipeline} {missing}. Nothing was erased.",
            why=f"The request keeps no value. Its columns: {', '.join(written['columns'])}.",
            advice="Ask the first person for the key and the code, then repeat both: batchledger confirm "
            f"{request.decision_id} --key COLUMN=VALUE --code CODE --reason WHY",
            pipeline=request.pipeline,
        )
    return Erase(repeated.key)


def _publish_accepted(platform: Platform, order: Accept) -> None:
    """Publish what a person has accepted, if its process died before."""
    batch = load_batch(platform, order.batch_id)
    run_batch.publish(platform, batch.batch_id, str(batch.attempt_run))


def _do(platform: Platform, order: AtOnce, decision: Decision) -> Decided:  # noqa: C901, PLR0911 -- one an order
    match order:
        case Accept(batch_id):
            return decisions.accept(platform, batch_id, decision)
        case Discard(batch_id):
            return decisions.discard(platform, batch_id, decision)
        case AcceptLoss(ranges, discarded):
            return decisions.accept_loss(platform, ranges, decision, discarded)
        case Skip(ranges, discarded):
            return decisions.skip(platform, ranges, decision, discarded)
        case Rewind():
            return decisions.rewind(platform, order, decision)
        case AdoptTarget():
            return decisions.adopt_target(platform, decision)
        case Pause():
            return decisions.pause(platform, decision)
        case Resume():
            return decisions.resume(platform, decision)
        case DropQuarantined(ranges):
            return decisions.drop_quarantined(platform, ranges, decision)
        case Erase(key):
            return erasing.erase(platform, key, decision)


def retire(ledger: Decisions, pipeline: str, order: Retire, decision: Decision) -> Decided:
    """End a pipeline by its ledger alone: its file may be gone, and with it what a platform is built from.

    Housekeeping removes the staging of what it discards. With the rehearsal of the port it changes nothing. Raises what
    ``Decisions.retire`` raises.
    """
    decisions.require_reason(decision)
    decided = ledger.retire(pipeline, decision, discard=order.discard, free_target=order.free_target)
    return decisions.log_decided(ledger, decided)


def rename(ledger: Decisions, pipeline: str, order: Rename, decision: Decision) -> Decided:
    """Give a pipeline another name by its ledger alone: its file has the old name, the new one already, or is gone.

    With the rehearsal of the port it changes nothing. Raises what ``Decisions.rename`` raises.
    """
    decisions.require_reason(decision)
    return decisions.log_decided(ledger, ledger.rename(pipeline, order.to, decision))


def explain(platform: Platform, order: AtOnce | Retake, decision: Decision) -> Decided:
    """Return what an order would change, and change nothing. Refuses what ``carry_out`` would refuse.

    A run that takes a batch again may also find another run at work on it.
    """
    rehearsal = decisions.rehearse(platform)
    decided = _retake(rehearsal, order, decision) if isinstance(order, Retake) else _do(rehearsal, order, decision)
    if isinstance(order, Accept | Discard | Retake) and decided.is_new and decided.record:
        return replace(decided, means=(_describe(platform, order),))
    return decided


def _retake(platform: Platform, order: Retake, decision: Decision) -> Decided:
    decisions.require_reason(decision)
    batch = load_batch(platform, order.batch_id)
    if batch.is_dry_run:
        raise never_published(batch)
    return platform.decisions.retake(batch.batch_id, "a run of its own", decision)


def _describe(platform: Platform, order: Accept | Discard | Retake) -> str:
    """Say in a sentence what an order about a batch would do."""
    batch = load_batch(platform, order.batch_id)
    offsets = describe_count(count_offsets(batch.ranges), "offset")
    match order:
        case Accept():
            rows = sum(each.accepted for each in platform.decisions.load_balances(batch.batch_id))
            moves = f", and the position moves past {offsets}" if batch.lane is Lane.LIVE else ""
            failed = ", ".join(each.name for each in platform.ledger.load_checks(batch.batch_id) if each.blocks)
            told = f" Checks that have failed: {failed}." if failed else ""
            visible = describe_count(rows, "row becomes visible", "rows become visible")
            return f"{visible}{_where(platform)}{moves}.{told}"
        case Discard() if batch.lane is Lane.LIVE:
            return f"Nothing of it becomes visible; the next run plans its {offsets} again."
        case Discard():
            return "Nothing of it becomes visible; the target stays as it is."
        case Retake():
            return f"A run reads its {offsets} again, and publishes them if no check fails."


def _where(platform: Platform) -> str:
    """Name the target. Before the first publication only the pipeline file knows it."""
    target = platform.ledger.list_targets().get(platform.rules.name)
    return "" if target is None else f" in {target.name}"
