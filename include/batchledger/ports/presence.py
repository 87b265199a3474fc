"""Who is at work on a batch: a hint for those who would start another attempt, never a condition of safety."""

from contextlib import AbstractContextManager
from typing import Protocol

from batchledger.model.presence import Patience, Presence


class Presences(Protocol):
    """One run at most is present at a batch. Raises ServiceUnavailableError when the database does not answer."""

    def find(self, batch_id: int) -> Presence | None:
        """Return which run was last at work on the batch; None when none was, or when that run has ended its work."""

    def hold(self, batch_id: int, run: str, patience: Patience) -> AbstractContextManager[Presence | None]:
        """Be present at the batch for the duration of the block, in which None is yielded.

        If another run is present, and its presence ``lasts``, that presence is yielded, and nothing is stored. If
        several runs come at once, one is present. A run takes over from itself.

        After an error, and when the batch is published, blocked or discarded, no run is present any more; otherwise the
        batch is handed on to the run's next step. A process that is killed, or whose machine is lost, leaves at once,
        or within half a minute. While the database cannot be reached the block goes on; it is present again when the
        database answers.
        """
