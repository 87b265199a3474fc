"""What the streams of all sinks have: a door that is open for a bounded time, and a staging that is the stream."""

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from typing import Any, NoReturn, Self, TypeVar, cast

import pyarrow as pa
from typing_extensions import override

from batchledger.database.sessions import Connection, joining, require_open
from batchledger.database.transactions import commit, translate_errors
from batchledger.model.batch import Attempt
from batchledger.model.claims import Withdrawn
from batchledger.model.errors import ServiceUnavailableError, StagingError
from batchledger.model.offsets import OffsetRange
from batchledger.model.stream_address import StreamAddress
from batchledger.ports import RowsToPublish, StagingWriter
from batchledger.sinks.staging.staging import PostgresStaging
from batchledger.sinks.streaming.door import Door, RowEncoder, ShareError

SinkT = TypeVar("SinkT", bound="StreamedStaging")


@dataclass(eq=False)
class OpenStream(ABC):
    """A stream into the target of a sink; ``door`` is open from ``listen`` on.

    ``ended`` is why it has taken too long, if it has.
    """

    plain: PostgresStaging
    attempt: Attempt
    address: StreamAddress
    door: Door | None = None
    ended: str = ""
    _timer: threading.Timer | None = None

    @contextmanager
    def used(self) -> Iterator[Self]:
        """Yield it, and close it. Raises why it broke, if a failure of its tasks is only the consequence."""
        try:
            yield self
        except (StagingError, ServiceUnavailableError) as error:
            if self.ended:
                raise StagingError(f"The stream of {self.attempt.batch.label} was ended: {self.ended}.") from error
            broken = self.door.error if self.door else None
            # A task that ends closes its socket, and says itself why.
            if broken is None or (isinstance(broken, OSError) and not isinstance(broken, ShareError)):
                raise
            self.explain(broken)
            said = str(broken) if isinstance(broken, ShareError) else type(broken).__name__
            raise StagingError(f"The stream of {self.attempt.batch.label} broke: {said}.") from broken
        finally:
            self.close()
            if self._timer is not None:
                self._timer.cancel()
                self._timer.join()

    @abstractmethod
    def explain(self, broken: Exception) -> None:
        """Raise what the target says in ``broken``; return if it says nothing."""

    @abstractmethod
    def close(self) -> None:
        """Take nothing more, and leave nothing of what was not committed."""

    def make_sink(self, kind: Callable[..., SinkT]) -> SinkT:
        """Return the sink whose staging is this stream."""
        parts = {each.name: getattr(self.plain, each.name) for each in fields(cast("Any", self.plain))}
        return kind(**parts, stream=self)

    @abstractmethod
    def open(self, schema: pa.Schema) -> StagingWriter:
        """Begin to take rows of the schema. Raises StagingError if the target does not take them as they are."""

    @abstractmethod
    def seal(self, accepted_tasks: Sequence[int]) -> None:
        """End the stream, and hold it against what the tasks have sent. Raises StagingError."""

    def listen(
        self, take: Callable[[memoryview], None], make_encoder: Callable[[], RowEncoder], seconds: float
    ) -> StagingWriter:
        """Let tasks send frames to ``take`` for at most so long."""
        try:
            self.door = Door(take, self.address)
        except OSError as error:
            self.refuse(f"this process cannot listen on {self.address.host}, {error}")
        self._timer = threading.Timer(seconds, self._end)
        self._timer.daemon = True
        self._timer.start()
        return self.door.writer(make_encoder)

    def _end(self) -> None:
        self.end()
        if self.door is not None and self.ended:
            self.door.break_off(TimeoutError(self.ended))

    @abstractmethod
    def end(self) -> None:
        """End a stream that has taken too long, and say in ``ended`` why."""

    def shut(self) -> dict[int, int]:
        """Listen no more. Returns how many rows came of each task."""
        return self.door.close() if self.door else {}

    def require_whole(self, found: dict[int, int], accepted_tasks: Sequence[int], taken: int) -> None:
        """Raise StagingError unless each part of the read came once, and the target took as many rows as were sent."""
        if found.keys() != set(accepted_tasks):
            self.refuse("a part of the read came twice, or not at all")
        if taken != sum(found.values()):
            self.refuse(f"the tasks have sent {sum(found.values()):,} rows, and it has taken {taken:,}")

    def refuse(self, why: str) -> NoReturn:
        """Raise StagingError."""
        raise StagingError(
            f"The rows of {self.attempt.batch.label} do not stream into {self.plain.name}: {why}.",
            batch_id=self.attempt.batch.batch_id,
        )

    @contextmanager
    def join(self, connection: Connection) -> Iterator[None]:
        """Let what the block does in the database of the ledger be part of the transaction; commit it at its end."""
        action = f"publish {self.attempt.batch.label}"
        with translate_errors(action, self.attempt):
            with joining(self.plain.dsn, connection):
                yield
            require_open(connection)
            commit(connection, action)


class StreamedStaging(PostgresStaging):
    """Has the rows of its attempt in a stream. What cannot be done to them there is done to staged rows."""

    stream: OpenStream

    @override
    def open_staging(self, attempt: Attempt, schema: pa.Schema) -> StagingWriter:
        self.require_columns(schema)
        return self.stream.open(schema)

    @override
    def count_arriving(self, attempt: Attempt) -> int:
        return self.stream.door.arriving if self.stream.door else 0

    @override
    def seal_staging(self, attempt: Attempt, accepted_tasks: Sequence[int]) -> None:
        self.stream.seal(accepted_tasks)

    @override
    def remove_staged(self, attempt: Attempt, records: Sequence[OffsetRange]) -> None:
        self.stream.refuse("records are set aside")

    def withdraw(self, rows: RowsToPublish) -> Withdrawn:  # noqa: ARG002
        """See ``Sink.withdraw``."""
        self.stream.refuse("it takes over what another batch has published")
