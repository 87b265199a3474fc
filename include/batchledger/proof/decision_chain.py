"""Prove that the decisions about a pipeline stand as they were recorded: each hash is of a decision and the one before.

The hashes are computed here again, by no function of the database. Known limit: a person who can switch off the
triggers of the table can make a whole chain anew. The end of the chain, noted elsewhere, shows that, too. Pure.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256


@dataclass(frozen=True, slots=True)
class ChainedDecision:
    """A decision as the ledger holds it: its number in its pipeline, its hash, and the text that the hash is of."""

    number: int
    decision_id: int
    hash: bytes
    content: bytes


@dataclass(frozen=True, slots=True)
class DecisionChain:
    """The decisions about a pipeline by their numbers; ``counted`` is how many the ledger says were ever recorded."""

    counted: int = 0
    decisions: Sequence[ChainedDecision] = ()

    @property
    def end(self) -> str:
        """The hash of the newest decision, in hexadecimal digits; empty without decisions."""
        return self.decisions[-1].hash.hex() if self.decisions else ""


def find_break(chain: DecisionChain) -> tuple[str, str] | None:
    """Return where the chain breaks first and what is wrong there; None if it holds.

    Example: if the second of three decisions was changed, it is the second. If its hash was computed again to fit, it
    is the third.
    """
    before = b""
    for number, each in enumerate(chain.decisions, 1):
        where = f"decision_id {each.decision_id}"
        if each.number != number:
            return where, f"its number is {each.number} and not {number}: a decision was removed or added before it"
        if each.hash != sha256(before + each.content).digest():
            return where, "its hash does not fit: it was changed since it was recorded, or the decision before it was"
        before = each.hash
    there = len(chain.decisions)
    if chain.counted != there:
        return "the newest decisions", f"{chain.counted:,} decisions were recorded, and {there:,} are there"
    return None
