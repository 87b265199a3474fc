"""Who is at work on a batch, as PostgreSQL knows it.

A session advisory lock dies with its process. A paused process keeps its session, so there is a sign of life, too.

The process locks a number of its own, never the batch's, so a lock that stays behind is in no other process's way. A
pool that hands connections on after each transaction leaves one behind: there the sign of life alone says who has died.
Needs no rights except on the ledger's tables.
"""

import logging
import os
import pwd
import secrets
import socket
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from threading import Event, Lock, Thread
from typing import Any

import psycopg
from typing_extensions import override

from batchledger.database.sessions import LOST_IS_NOTICED, Connection, connect
from batchledger.database.transactions import read_statement, translate_errors
from batchledger.ledger.rows import Cursor
from batchledger.ledger.schema import require_known_schema, transaction
from batchledger.model.presence import Patience, Presence
from batchledger.ports import Presences

logger = logging.getLogger(__name__)

LEAVE_WITHIN_SECONDS = 2.0

# It may be silent for as long as it likes between two signs of life.
_SESSION = {**LOST_IS_NOTICED, "idle_session_timeout": "0"}


@dataclass(frozen=True)
class PostgresPresences(Presences):
    """The presences in the database that ``dsn`` (a libpq connection string) names."""

    dsn: str = field(repr=False)

    @override
    def find(self, batch_id: int) -> Presence | None:
        with transaction(self.dsn, f"look who is at work on batch {batch_id}") as cursor:
            return _find(cursor, batch_id)

    @contextmanager
    @override
    def hold(self, batch_id: int, run: str, patience: Patience) -> Iterator[Presence | None]:
        require_known_schema(self.dsn)
        with closing(_Holder(self.dsn, batch_id, run)) as holder:
            other = holder.begin(patience)
            if other is not None:
                holder.close()
                yield other
                return
            over = Event()
            thread = Thread(
                target=holder.beat_until, args=(over, patience.beat_seconds), name=f"at work on {batch_id}", daemon=True
            )
            thread.start()
            has_ended_well = False
            try:
                yield None
                has_ended_well = True
            finally:
                over.set()
                thread.join(LEAVE_WITHIN_SECONDS)
                holder.end(has_ended_well)


@dataclass
class _Holder:
    """One process that is present at one batch, with a connection for nothing else."""

    dsn: str = field(repr=False)
    batch_id: int
    run: str
    number: int = field(default_factory=lambda: secrets.randbits(63))
    connection: Connection | None = field(default=None, repr=False)
    turn: Lock = field(default_factory=Lock, repr=False)
    is_over: bool = False

    def begin(self, patience: Patience) -> Presence | None:
        """Be present from now on. If another run is, return that one."""
        with translate_errors(f"be at work on batch {self.batch_id}"):
            connection = self._connect()
            with connection.transaction(), connection.cursor() as cursor:
                # Processes come one after the other, and each holds its number before others can see it.
                name = f"batchledger presence at batch {self.batch_id}"
                cursor.execute("select pg_advisory_xact_lock(hashtextextended(%s, 0))", [name])
                found = _find(cursor, self.batch_id)
                if found is not None and found.run != self.run and found.lasts(patience):
                    return found
                cursor.execute(read_statement(__package__, "store_presence"), self._parameters(worker=_worker()))
        return None

    def beat_until(self, over: Event, seconds: float) -> None:
        """Give a sign of life each so many seconds; if one fails, the next one tries again."""
        while not over.wait(seconds):
            with self.turn:
                try:
                    self._execute("beat_presence")
                except psycopg.Error as error:
                    logger.debug("no sign of life at batch %d: %s", self.batch_id, error)

    def end(self, has_ended_well: bool) -> None:
        """Hand the batch on to the run's next step, or leave it to any run."""
        # A sign of life that does not come back must not hold the step up.
        if not self.turn.acquire(timeout=LEAVE_WITHIN_SECONDS):
            return
        try:
            self._execute("end_presence", has_ended_well=has_ended_well)
        except psycopg.Error as error:
            # Its session is gone, so for others this process has died.
            logger.debug("the end of the work on batch %d was not stored: %s", self.batch_id, error)
        finally:
            self.turn.release()

    def close(self) -> None:
        """Give the lock back with the session; a sign of life that comes later leaves no session open."""
        self.is_over = True
        self._disconnect()

    def _disconnect(self) -> None:
        if self.connection is not None:
            self.connection.close()

    def _connect(self) -> Connection:
        """Open the connection and hold the number on it."""
        self._disconnect()
        connection = connect(self.dsn, **_SESSION)
        connection.autocommit = True
        connection.prepare_threshold = None
        connection.execute("select pg_advisory_lock(%s)", [self.number])
        self.connection = connection
        if self.is_over:
            self._disconnect()
        return connection

    def _execute(self, name: str, **more: Any) -> None:
        connection = self.connection
        if connection is None or connection.closed:
            connection = self._connect()
        connection.execute(read_statement(__package__, name), self._parameters(**more))

    def _parameters(self, **more: Any) -> dict[str, Any]:
        return {"batch_id": self.batch_id, "run": self.run, "holder": self.number, **more}


def find_presences(cursor: Cursor, batch_ids: Sequence[int]) -> dict[int, Presence]:
    """Return who was last at work on each of the batches, by batch."""
    cursor.execute(read_statement(__package__, "find_presences"), {"batch_ids": list(batch_ids)})
    return {row[0]: Presence(*row) for row in cursor}


def _find(cursor: Cursor, batch_id: int) -> Presence | None:
    return find_presences(cursor, [batch_id]).get(batch_id)


def _worker() -> str:
    """The user and the machine of this process; in a container a user need not have a name."""
    try:
        return f"{pwd.getpwuid(os.getuid()).pw_name}@{socket.gethostname()}"
    except KeyError:
        return socket.gethostname()
