"""Which run is at work on a batch, and for how long that keeps others from starting an attempt of their own.

Only progress depends on it, never the published rows: a run that starts nevertheless fences the attempt before its own
(I4), as if this module did not exist.
"""

from dataclasses import dataclass
from datetime import datetime

BEATS_BEFORE_STALLED = 6
BEAT_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Patience:
    """After how much silence other runs start.

    ``stalled_seconds`` is for a run at work whose process is paused or unreachable; if a process dies, its session is
    gone at once. ``handed_on_seconds`` is for a run between two steps: as long as Airflow waits for a sign of life of a
    task.
    """

    stalled_seconds: float = BEATS_BEFORE_STALLED * BEAT_SECONDS
    handed_on_seconds: float = 300.0

    @property
    def beat_seconds(self) -> float:
        """How often a run at work gives a sign of life. Without patience no other run needs it often."""
        return self.stalled_seconds / BEATS_BEFORE_STALLED or BEAT_SECONDS


NO_PATIENCE = Patience(0.0, 0.0)
"""Every run starts at once, as if no other run were alive. Fencing alone has to cope."""


@dataclass(frozen=True, slots=True)
class Presence:
    """The run that was last at work on a batch, as the ledger's database sees it now.

    ``worker`` is the person and the machine, ``ana@host``. ``is_held``: the session of its process lives.
    ``is_handed_on``: its last step ended well, ``silent_seconds`` ago. Otherwise it gave its last sign of life then.
    """

    batch_id: int
    run: str
    worker: str
    since: datetime
    silent_seconds: float
    is_held: bool
    is_handed_on: bool = False

    def lasts(self, patience: Patience) -> bool:
        """Whether other runs leave the batch to it.

        A session alone is not enough: the session of a paused process lives on, and a pool of connections may have lent
        it to another process. A sign of life alone is not enough either: its process may have been killed since.
        """
        if self.is_handed_on:
            return self.silent_seconds < patience.handed_on_seconds
        return self.is_held and self.silent_seconds < patience.stalled_seconds
