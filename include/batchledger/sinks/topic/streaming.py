"""Streams the records of an attempt into a topic, in one transaction that is judged before it is announced (ADR 0074).

While Spark reads, a transaction of the producer is open and takes what comes through the door. The records of each
source partition have to come in their order, each once: so counts tell the audit all that it asks of staged rows. What
is not clean is aborted, and staged.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from time import monotonic
from typing import ClassVar

import pyarrow as pa
from confluent_kafka import KafkaException
from typing_extensions import override

from batchledger.database.sessions import connect
from batchledger.database.transactions import translate_errors
from batchledger.model.attempt_facts import UnmatchedDeletions
from batchledger.model.balance import StagedRange
from batchledger.model.batch import Attempt
from batchledger.model.checks import IntegrityCheck, Offender
from batchledger.model.claims import PreparedRows
from batchledger.model.errors import BatchledgerError, FencedError
from batchledger.model.records.numbering import NumberFacts
from batchledger.model.stream_address import StreamAddress
from batchledger.ports import RowsToCheck, RowsToPublish, RowStream, StagedRows, StagingWriter
from batchledger.sinks.streaming.stream import OpenStream, StreamedStaging
from batchledger.sinks.topic.errors import RefusedRecordError
from batchledger.sinks.topic.pace import USABLE_SHARE
from batchledger.sinks.topic.record_frames import RecordFrames, read_frame
from batchledger.sinks.topic.records import UnfitRecordsError
from batchledger.sinks.topic.sending import RecordSender
from batchledger.sinks.topic.sent import SentRecords
from batchledger.sinks.topic.sink import TopicSink
from batchledger.sinks.topic.transaction import OpenedOutput

READING_SHARE = 0.6
"""So much of the timeout of a transaction may pass until all records have come: the audit and the commit come after."""

_ENDS_SOON = "Kafka ends the transaction soon"


class _UncommittedError(Exception):
    """The stream has ended without a commit."""


@contextmanager
def open_stream(sink: TopicSink, address: StreamAddress, attempt: Attempt) -> Iterator["TopicStream"]:
    """Yield a stream into the topic of a sink; what is not committed in it is aborted.

    Every earlier producer of the pipeline is fenced, so no publication of it may go on meanwhile.
    """
    ends, identity, opened = sink.prepare_commit(attempt), sink.topic.identify(), sink.topic.open(attempt)
    transaction = ExitStack()
    sender = transaction.enter_context(sink.topic.begun(opened, attempt))
    stream = TopicStream(
        sink, attempt, address, ends=ends, identity=identity, opened=opened, sender=sender, transaction=transaction
    )
    with stream.used():
        yield stream


@dataclass(eq=False)
class TopicStream(OpenStream, RowStream):
    """One transaction. ``ends`` is where the topic's partitions ended before it began. ``identity`` tells the topic."""

    in_order: ClassVar[bool] = True

    plain: TopicSink
    ends: Sequence[int] = field(kw_only=True)
    identity: str | None = field(kw_only=True)
    opened: OpenedOutput = field(kw_only=True, repr=False)
    sender: RecordSender = field(kw_only=True, repr=False)
    transaction: ExitStack = field(kw_only=True, repr=False)
    _began_at: float = 0.0

    def __post_init__(self) -> None:
        self.records = SentRecords(self.attempt.batch.ranges)
        self.sink = self.make_sink(StreamingTopicSink)

    @contextmanager
    @override
    def joined(self) -> Iterator[None]:
        with translate_errors(f"publish {self.attempt.batch.label}", self.attempt):
            connection = connect(self.plain.dsn)
            # From here on it has a transaction, of which each transaction of the block is a part.
            connection.execute("select 1")
        with connection, self.join(connection):
            yield

    @override
    def open(self, schema: pa.Schema) -> StagingWriter:
        """To Kafka the transaction begins with its first record."""
        encoder = self.plain.open_encoder(self.attempt, schema)
        self._began_at = monotonic()
        return self.listen(self._take, partial(RecordFrames, encoder), self._timeout_seconds * READING_SHARE)

    @property
    def _timeout_seconds(self) -> float:
        return self.plain.topic.transaction_timeout_seconds

    @override
    def end(self) -> None:
        """Leave Kafka no reason to end the transaction. What comes after the last record looks at the time itself."""
        if self.door is not None and self.door.error is None:
            self.ended = f"records have come for {self._timeout_seconds * READING_SHARE:g} s; {_ENDS_SOON}"

    def _take(self, data: memoryview) -> None:
        for block in read_frame(data):
            self.records.note(block)
            if self.plain.key and block.records["key"].null_count:
                raise UnfitRecordsError("a record has no key, so no partition would keep its order")
            self.sender.send_block(block)

    @override
    def seal(self, accepted_tasks: Sequence[int]) -> None:
        """Also wait until Kafka has all records."""
        found = self.shut()
        with self._explaining():
            self.sender.finish()
        self.require_whole(found, accepted_tasks, self.sender.sent)

    def count(self) -> int:
        """Return how many records of its ranges the batch has."""
        return sum(each.rows for each in self.records.summarise())

    def hand_in(self) -> Sequence[int]:
        """Do what may fail before the commit is announced, and return ``ends``. Raises StagingError."""
        age_seconds = monotonic() - self._began_at
        if age_seconds > self._timeout_seconds * USABLE_SHARE:
            self.refuse(f"{age_seconds:.0f} s are over; {_ENDS_SOON}")
        if self.plain.topic.identify() != self.identity:
            self.refuse("the topic was created anew meanwhile")
        with self._explaining():
            self.plain.topic.hand_in(self.opened, self.attempt, self.sender.sent, self.count())
        return self.ends

    def commit(self) -> None:
        """Commit what was announced; as ``CommittingSink.commit``."""
        # From now on nothing is to be aborted: it may be committed.
        self.transaction.close()
        self.plain.topic.decide(self.opened.producer, self.attempt)

    @contextmanager
    def _explaining(self) -> Iterator[None]:
        try:
            with self.plain.topic.explaining(self.attempt):
                yield
        except FencedError as error:
            # The attempt may be the newest nevertheless: a replay of the pipeline has the same producer.
            self.refuse(f"another publication of the pipeline has begun: {error.message}")

    @override
    def explain(self, broken: Exception) -> None:
        if isinstance(broken, UnfitRecordsError):
            self.refuse(str(broken))
        if isinstance(broken, KafkaException | RefusedRecordError):
            with self._explaining():
                raise broken

    @override
    def close(self) -> None:
        """Abort what was not committed."""
        self.shut()
        with suppress(_UncommittedError, BatchledgerError), self.transaction:
            raise _UncommittedError


@dataclass(frozen=True)
class StreamingTopicSink(StreamedStaging, TopicSink):
    """Has the records of its attempt in an open transaction of the topic; nothing of it is staged."""

    stream: TopicStream = field(kw_only=True, repr=False)

    @contextmanager
    @override
    def read_staged(self, attempt: Attempt) -> Iterator[StagedRows]:
        yield _SentRows(self.stream)

    @override
    def find_offenders(
        self, attempt: Attempt, checks: Collection[IntegrityCheck], limit: int
    ) -> Mapping[IntegrityCheck, Sequence[Offender]]:
        """Nothing: what is not clean is staged, and named then."""
        return {}

    @override
    def prepare_commit(self, attempt: Attempt) -> Sequence[int]:
        """The other part was done before the stream: another producer of the pipeline would end it."""
        return self.stream.hand_in()

    @override
    def publish(self, rows: RowsToPublish) -> PreparedRows:
        return PreparedRows(self.stream.count(), 0)

    @override
    def commit(self, rows: RowsToPublish) -> None:
        self.stream.commit()


@dataclass(frozen=True)
class _SentRows(StagedRows):
    """What was handed over, as the audit asks for it. No check of a pipeline file looks at it."""

    stream: TopicStream

    @override
    def show(self) -> RowsToCheck:
        self.stream.refuse("its rows are to be checked")

    @override
    def summarise(self) -> Sequence[StagedRange]:
        return self.stream.records.summarise()

    @override
    def count_numbers(self) -> NumberFacts | None:
        return None

    @override
    def count_unmatched(self) -> UnmatchedDeletions | None:
        return None
