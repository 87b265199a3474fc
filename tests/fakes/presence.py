"""Who is at work on a batch, in memory."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime

from typing_extensions import override

from batchledger.model.batch import BatchState
from batchledger.model.presence import Patience, Presence
from batchledger.ports import Presences
from tests.fakes.database import MemoryDatabase, StoredPresence

_OVER = (BatchState.PUBLISHED, BatchState.BLOCKED, BatchState.DISCARDED)


def now() -> datetime:
    return datetime.now(UTC)


@dataclass(frozen=True)
class MemoryPresences(Presences):
    """A process gives its signs of life by being in the block: only the clock lets it stall."""

    database: MemoryDatabase
    worker: str = "ana@host"
    clock: Callable[[], datetime] = now

    @override
    def find(self, batch_id: int) -> Presence | None:
        stored = self.database.presences.get(batch_id)
        if stored is None:
            return None
        silent_seconds = (self.clock() - stored.seen_at).total_seconds()
        is_held = stored.holder in self.database.sessions
        return Presence(batch_id, stored.run, stored.worker, stored.since, silent_seconds, is_held, stored.is_handed_on)

    @contextmanager
    @override
    def hold(self, batch_id: int, run: str, patience: Patience) -> Iterator[Presence | None]:
        found = self.find(batch_id)
        if found is not None and found.run != run and found.lasts(patience):
            yield found
            return
        holder, presences, sessions = object(), self.database.presences, self.database.sessions
        presences[batch_id] = StoredPresence(run, self.worker, holder, self.clock(), self.clock())
        sessions.add(holder)
        has_ended_well = False
        try:
            yield None
            has_ended_well = True
        finally:
            sessions.discard(holder)
            if (mine := presences.get(batch_id)) is not None and mine.holder is holder:
                batch = self.database.committed.batches.get(batch_id)
                del presences[batch_id]
                if has_ended_well and batch is not None and batch.batch.state not in _OVER:
                    presences[batch_id] = StoredPresence(run, self.worker, holder, mine.since, self.clock(), True)
