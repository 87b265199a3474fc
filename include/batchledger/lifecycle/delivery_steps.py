"""What a publication does, as a list of steps: made here, shown by a dry run, carried out by ``delivery``. Pure.

A delivery is one commit of the ledger or two, each with its steps. The modes differ in nothing else. A batch may take
offsets over from another one, as every replay may. It does so in one commit, in every mode: old rows go when the new
ones come (I8).

A sink that commits by itself does so last, just before the ledger's own commit, so the ledger refuses everything that
it refuses before. A single commit is announced first: from then on, the run that goes on asks the sink whether it has
committed (I9). The sink is never asked for a batch with two commits: its mode allows a crash between sink and ledger.
"""

from collections.abc import Sequence
from enum import StrEnum

from batchledger.model.batch import DeliveryMode


class DeliveryStep(StrEnum):
    """A step, by its name in a dry run."""

    TRY_ROWS = "try the rows"
    ANNOUNCE = "announce"
    WITHDRAW = "withdraw"
    POSITIONS = "positions"
    ROWS = "rows"
    CONFIRM = "confirm the rows"
    NUMBERS = "numbers"
    COMMIT_SINK = "commit of the sink"


Commit = tuple[DeliveryStep, ...]
"""The steps that one commit of the ledger makes visible together."""


def plan_delivery(mode: DeliveryMode, *, takes_over: bool, shares_transaction: bool) -> tuple[Commit, ...]:
    """Return the commits of a publication, in order: one or two.

    What other batches hold may change between two commits. So the list is made anew then, and its last commit is left.
    ``takes_over``: what lies in its ranges goes, other batches' rows too. ``shares_transaction``: the sink has no
    commit of its own.
    """
    sink = () if shares_transaction else (DeliveryStep.COMMIT_SINK,)
    if takes_over or mode is DeliveryMode.EXACTLY_ONCE:
        announcement: tuple[Commit, ...] = () if shares_transaction else ((DeliveryStep.ANNOUNCE,),)
        # All rows of its ranges go, even from an earlier commit of its own (at_least_once): all are written here.
        old = (DeliveryStep.WITHDRAW,) if takes_over else ()
        # Numbers come when rows and positions are there: a repetition of the batch judges its numbers once more.
        return (*announcement, (*old, DeliveryStep.POSITIONS, DeliveryStep.ROWS, DeliveryStep.NUMBERS, *sink))
    if mode is DeliveryMode.AT_LEAST_ONCE:
        return (DeliveryStep.ROWS, *sink), (DeliveryStep.POSITIONS, DeliveryStep.NUMBERS)
    # Untried, at_most_once would pass over every batch that the target refuses.
    return (DeliveryStep.TRY_ROWS, DeliveryStep.POSITIONS), (DeliveryStep.ROWS, DeliveryStep.NUMBERS, *sink)


def confirm(commit: Commit) -> Commit:
    """Return what is left of a commit that the sink has made already."""
    left = (each for each in commit if each is not DeliveryStep.COMMIT_SINK)
    return tuple(DeliveryStep.CONFIRM if each is DeliveryStep.ROWS else each for each in left)


def describe_delivery(commits: Sequence[Commit]) -> str:
    """Return the steps in words: ``rows; then positions, numbers``."""
    return "; then ".join(map(", ".join, commits))
