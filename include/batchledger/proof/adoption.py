"""Whether a target that was restored or moved is the one that a pipeline has published to. Pure.

A target's name proves nothing, and its own identity does not survive a restore. Its content proves it: ``verify``
compares it with every batch of the ledger.
"""

from batchledger.model.batch import Target
from batchledger.model.errors import DecisionRefusedError
from batchledger.proof.verification import Verification

FINDINGS_SHOWN = 3


def require_proved(target: Target, found: Verification) -> str:
    """Return what the proof leaves open, empty when nothing. Raises DecisionRefusedError with what differs.

    A target that may lack rows, because newer ones take their place or retention removes them, is refused when it holds
    nothing at all: it would pass for one that was made anew.
    """
    if not found.holds:
        shown = "; ".join(f"{each.invariant}, {each.where}: {each.detail}" for each in found.findings[:FINDINGS_SHOWN])
        more = len(found.findings) - FINDINGS_SHOWN
        raise _refusal(
            target,
            found,
            f"verify does not hold against it: {shown}{f'; and {more} more' if more > 0 else ''}. Restore ledger and "
            "target as of one moment, or let the newer one follow the older one (see the documentation: "
            "guides/backup-and-restore)",
        )
    if not found.may_lack_rows:
        return ""
    if found.accepted and not found.rows:
        raise _refusal(
            target,
            found,
            f"it holds no row of the {found.accepted:,} that the ledger accepted, so it is one that was made anew. "
            "Restore the old one, or read the source again under a new pipeline name",
        )
    behind = (
        ""
        if found.newest_found == found.newest_accepted
        else (
            f" The newest batch with a row there is {found.newest_found}, the newest with rows in the ledger is "
            f"{found.newest_accepted}. If the target is older than the ledger, replay what it lacks."
        )
    )
    return (
        f"the proof does not show that {target.name} lacks no row: it holds {found.rows:,} of the {found.accepted:,} "
        f"rows that were accepted, and newer rows or retention may have taken the others.{behind}"
    )


def _refusal(target: Target, found: Verification, reason: str) -> DecisionRefusedError:
    return DecisionRefusedError(
        f"{target.name} (id {target.identity}) cannot be adopted for {found.pipeline}. Nothing was changed.",
        why=f"{reason}.",
        pipeline=found.pipeline,
        subject=target.identity,
    )
