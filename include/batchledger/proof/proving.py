"""Prove a pipeline that goes on publishing meanwhile.

The ledger is read first, then the target is counted, each as of a moment of its own; a sink outside of the ledger's
database could not do it otherwise. What is committed in between makes them differ, and has moved both sides when one
looks again: a batch only ever gives up more of its offsets, so no difference that such a commit makes comes back the
same. A wrong target stays as it is. So a difference is a finding once it was seen twice in a row.

Known limit: rows that no audit has accepted are overlooked when a replay of the same batch takes over just as many rows
between the two reads; the next proof finds them.
"""

from collections.abc import Callable, Mapping

from batchledger.model.balance import TargetCounts
from batchledger.model.errors import UnsettledError
from batchledger.model.records.rules import SinkMode
from batchledger.proof.verification import Finding, PublishedHistory, TargetKey, Verification, check_target, conclude

LOOKS = 10


def prove(
    pipeline: str,
    load_history: Callable[[], PublishedHistory],
    count_target: Callable[[], TargetCounts],
    mode: SinkMode,
) -> Verification:
    """Compare ledger and target, and report every contradiction that is not just a publication passing by.

    One look is enough when nothing is found. Otherwise those batches and partitions that differ, and only those, are
    looked at again: gone means that it was a publication, unchanged that it is wrong, another difference that they were
    replaced once more. What is published after the first look is left to the next proof, so this one ends although the
    pipeline never rests. The numbers come from the last look. Raises UnsettledError after ``LOOKS`` looks.
    """
    history, target = load_history(), count_target()
    doubts = check_target(history, target, mode)
    confirmed: dict[TargetKey, tuple[Finding, ...]] = {}
    for _ in range(1, LOOKS):
        if not doubts:
            break
        history, target = load_history(), count_target()
        found = check_target(history, target, mode)
        confirmed |= {key: doubt for key, doubt in doubts.items() if found.get(key) == doubt}
        doubts = {key: found[key] for key in doubts if key in found and key not in confirmed}
    if doubts:
        raise _unsettled(pipeline, doubts, confirmed)
    return conclude(pipeline, history, target, mode, [each for found in confirmed.values() for each in found])


def prove_ledger(pipeline: str, history: PublishedHistory, mode: SinkMode, why: str) -> Verification:
    """Prove what the ledger itself shows: nothing is compared with the target, and ``why`` says so."""
    return conclude(pipeline, history, TargetCounts({}), mode, (), not_compared=why)


def _unsettled(
    pipeline: str, doubts: Mapping[TargetKey, tuple[Finding, ...]], confirmed: Mapping[TargetKey, tuple[Finding, ...]]
) -> UnsettledError:
    where = "; ".join(f"batch {batch_id}, {partition}" for batch_id, partition in doubts)
    certain = "; ".join(f"{each.where}: {each.detail}" for found in confirmed.values() for each in found)
    return UnsettledError(
        f"{pipeline} could not be proved: its rows were published again at each of {LOOKS} looks ({where}).",
        why=f"Certain so far: {certain or 'no finding'}.",
        advice=f"When its replays are over, repeat: batchledger verify {pipeline}",
        pipeline=pipeline,
    )
