"""What a delivery mode allows, and after which faults. Decisions only.

A weaker mode may repeat or lose the rows of a batch if its publication was interrupted between its two commits. With
at_most_once, a process that sleeps there has moved the position, so the next batch may appear before its rows. If no
fault can have done that, the mode has to be exact. Otherwise a mode that never writes anything would pass.
"""

from collections.abc import Iterable, Mapping, Sequence

from batchledger.local.torture.checker import Differences
from batchledger.local.torture.schedule import (
    AT_LEAST_ONCE,
    AT_MOST_ONCE,
    BETWEEN_COMMITS,
    EXACTLY_ONCE,
    PUBLISHING_POINTS,
    SINK_COMMITTED,
    Fault,
    FaultKind,
    SinkKind,
    Way,
)

ALLOWED_BY_MODE: Mapping[str, tuple[str, ...]] = {
    EXACTLY_ONCE: (),
    AT_LEAST_ONCE: ("duplicated",),
    AT_MOST_ONCE: ("lost", "out_of_order"),
}
"""What a mode may do if its publication is interrupted, its anomaly first; everything else breaks its promise."""

_PUBLISHING = (*PUBLISHING_POINTS, BETWEEN_COMMITS, SINK_COMMITTED)
_OF_WORKERS = (FaultKind.KILL_WORKER, FaultKind.STOP_WORKER, FaultKind.PAUSE_WORKER)
_OF_WAREHOUSE = (
    FaultKind.CRASH_POSTGRES,
    FaultKind.RESTART_POSTGRES,
    FaultKind.PAUSE_POSTGRES,
    FaultKind.LOSE_COMMIT_REPLY,
)
_OF_BROKER = (FaultKind.KILL_BROKER, FaultKind.RESTART_BROKER, FaultKind.PAUSE_BROKER)
_OF_CONNECTIONS = (FaultKind.CUT, FaultKind.BLACK_HOLE)
_AT_ANY_MOMENT = (FaultKind.KILL_WORKER_AT_RANDOM, FaultKind.KILL_AIRFLOW_TASK)


def can_interrupt_publication(fault: Fault, sink: SinkKind = SinkKind.POSTGRES) -> bool:
    """Whether a fault can fall between the first commit of a batch and its last.

    A fault cannot if it strikes while the worker stands at an earlier point; it can if it strikes some time later.
    Records that are sent to a topic one by one are many commits.
    """
    if fault.kind in _AT_ANY_MOMENT:
        return True
    concerned = (
        fault.kind in _OF_WORKERS
        or fault.kind in _OF_WAREHOUSE
        or (fault.kind in _OF_CONNECTIONS and fault.way is Way.WAREHOUSE)
        or (sink is SinkKind.KAFKA and (fault.kind in _OF_BROKER or fault.kind in _OF_CONNECTIONS))
    )
    return concerned and (fault.seconds > 0 or fault.point in _PUBLISHING or fault.successor_point in _PUBLISHING)


def find_unexplained(
    mode: str,
    before: Differences,
    after: Differences,
    struck: Iterable[Fault],
    sink: SinkKind = SinkKind.POSTGRES,
) -> dict[str, Sequence[str]]:
    """Return the ids of new differences, by kind, that the mode allows, but that no fault explains."""
    faults = tuple(struck)
    new = {
        kind: sorted(set(getattr(after, kind)) - set(getattr(before, kind)))
        for kind in ALLOWED_BY_MODE[mode]
        if not any(_explains(fault, kind, sink) for fault in faults)
    }
    return {kind: ids for kind, ids in new.items() if ids}


def _explains(fault: Fault, kind: str, sink: SinkKind) -> bool:
    if kind == "out_of_order":
        return fault.kind is FaultKind.PAUSE_WORKER and fault.point == BETWEEN_COMMITS
    return can_interrupt_publication(fault, sink)
