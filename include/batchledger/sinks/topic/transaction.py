"""Writes a batch and the ends of its ranges in one Kafka transaction, and finds out what became of a batch.

All transactions of a pipeline have one id. A producer that begins with this id, to write or to ask, ends what an
earlier one has left open: that is committed by then, or Kafka aborts it and fences its producer (S71, S93). So an
outcome stays once it has been asked for.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass, field, replace
from itertools import chain, islice
from time import monotonic

from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka import TopicPartition as KafkaTopicPartition

from batchledger.model.batch import Attempt, Batch
from batchledger.model.errors import (
    BatchledgerError,
    FencedError,
    OutcomeUnknownError,
    ServiceUnavailableError,
    StagingLostError,
    TargetRefusedError,
)
from batchledger.model.offsets import OffsetRange
from batchledger.model.records.rules import HeaderForm
from batchledger.model.refusals import stage_again
from batchledger.sinks.topic.aborting import abort, require_open
from batchledger.sinks.topic.commits import (
    KnowsBatch,
    is_named,
    judge,
    open_group,
    read_metadata,
    write_nothing,
    write_offsets,
)
from batchledger.sinks.topic.errors import NOTHING_VISIBLE, explain, explaining, is_fenced
from batchledger.sinks.topic.log import describe_topics, list_ends, look_at
from batchledger.sinks.topic.pace import SendingPace, Verdict
from batchledger.sinks.topic.records import HeaderWriter, OutputBlock
from batchledger.sinks.topic.search import find_start, search
from batchledger.sinks.topic.sending import RecordSender, open_producer
from batchledger.source.kafka.clients import REQUEST_TIMEOUT_SECONDS
from batchledger.source.kafka.requests import Isolation, describe_topic_configs, kafka_call

# Their sum, with the silence that a sender bears, stays below a minute. The database ends the transaction that reads
# the rows if it is idle for longer.
BEGIN_SECONDS = 12.0
OFFSETS_SECONDS = 8.0
COMMIT_SECONDS = 10.0
# What a single record takes beside key and value: the batch around it, and headers, the longest with a topic's name.
_OVERHEAD_BYTES = 500
SEARCHES = 5
"""At most so many. Each goes on where the last one has ended, if another producer has begun meanwhile."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class OpenedOutput:
    """The pipeline's only producer, what it is to write to, and the offsets that it commits with a batch."""

    producer: Producer
    partitions: int
    offsets: list[KafkaTopicPartition]


@dataclass(frozen=True)
class OutputWriter:
    """Writes the batches of one pipeline to one topic. ``clock`` (seconds) tells the age of a transaction.

    ``options`` are checked librdkafka options (``clients.client_options``). ``knows`` says whether the ledger has a
    batch of the pipeline: others are not to write to the topic.
    """

    options: Mapping[str, str] = field(repr=False)
    name: str
    pipeline: str
    knows: KnowsBatch = field(repr=False)
    transaction_timeout_seconds: float = 60.0
    headers: HeaderForm = HeaderForm.SEPARATE
    clock: Callable[[], float] = field(default=monotonic, repr=False)

    def require_room(self, attempt: Attempt, origin: OffsetRange, size_bytes: int) -> None:
        """Raise TargetRefusedError, which names the source record, when the topic takes no record of this size.

        ``size_bytes`` are the bytes of key and value. Writes nothing.
        """
        with self.explaining(attempt, f"record {origin.partition}@{origin.start}"):
            _, largest_batch_bytes = self._find_shape(attempt)
            if size_bytes + _OVERHEAD_BYTES > largest_batch_bytes:
                raise KafkaException(KafkaError(KafkaError.MSG_SIZE_TOO_LARGE))

    def commit(self, attempt: Attempt, blocks: Iterable[OutputBlock], count: int) -> None:
        """Make all ``count`` records visible together with the end of the batch's ranges, in one transaction.

        Records of one key stay in order. Returns once that is decided; readers see it a moment later, when the topic
        holds nothing back any more. Raises FencedError when a newer attempt has
        taken over, TargetRefusedError and ServiceUnavailableError when nothing is visible nor ever will be, and
        OutcomeUnknownError when ``find_commit`` has to be asked. What ``blocks`` raises leaves nothing visible either.
        """
        opened = self.open(attempt)
        # The first block may take long; the transaction begins to age only after it.
        waiting = iter(blocks)
        waiting = chain(list(islice(waiting, 1)), waiting)
        pace = SendingPace(count, self.transaction_timeout_seconds, self.clock())
        with self.begun(opened, attempt, lambda sent: self._require_pace(attempt, pace, sent)) as sender:
            sender.send(waiting)
            self.hand_in(opened, attempt, sender.sent, count)
            self._require_pace(attempt, pace, count)
        self.decide(opened.producer, attempt)

    def open(self, attempt: Attempt) -> OpenedOutput:
        """Return the pipeline's only producer: every earlier one is fenced, and its transaction has ended."""
        with self.explaining(attempt, "before the transaction began"):
            partitions, largest_batch_bytes = self._find_shape(attempt)
            offsets = write_offsets(self.options, self.name, attempt)
            return OpenedOutput(self._open(largest_batch_bytes), partitions, offsets)

    def hand_in(self, opened: OpenedOutput, attempt: Attempt, sent: int, count: int) -> None:
        """Let the ends of the batch's ranges be part of a transaction of ``count`` records; ``decide`` is next.

        Raises StagingLostError if it has not, and OutcomeUnknownError if the batch was committed before.
        """
        if sent != count:
            raise StagingLostError(
                f"{attempt.batch.label} was not handed over to topic {self.name} as a whole. Nothing of it is visible.",
                why=f"It has {count:,} rows, and {sent:,} were handed over.",
                advice=stage_again(attempt.batch),
            )
        with closing(open_group(self.options, attempt.batch)) as group:
            metadata = group.consumer_group_metadata()
            opened.producer.send_offsets_to_transaction(opened.offsets, metadata, OFFSETS_SECONDS)
        self._require_first(attempt)

    def send(self, attempt: Attempt, blocks: Iterable[OutputBlock]) -> None:
        """Write the records, each once and in order, outside of a transaction; some are visible when it raises."""
        with self.explaining(attempt, "before the first record"):
            partitions, largest_batch_bytes = self._find_shape(attempt)
        # The sender bounds the waiting. If a record timed out by itself, the client would still write the next ones.
        producer = open_producer(self.options, largest_batch_bytes, {"message.timeout.ms": 0})
        sender = RecordSender(producer, self.name, partitions, HeaderWriter(self.headers, attempt.batch.batch_id))
        consequence = "What was sent before stays visible: nothing takes it back."
        try:
            with explaining(self.options, self.name, attempt, "while sending", consequence=consequence):
                sender.send(blocks)
        finally:
            producer.purge()

    def prepare_commit(self, attempt: Attempt) -> tuple[int, ...]:
        """See that ``find_commit`` will have an answer, and return the end of each partition, for ``search_commit``.

        To be called before the commit is announced: what is committed then lies behind these ends.
        """
        batch = attempt.batch
        with self.explaining(attempt, "before its commit is announced"):
            if not read_metadata(self.options, self.name, batch, Isolation.UNCOMMITTED):
                producer = self._open(0)
                # A producer that commits from now on fences this one, so the note hides no commit.
                if not read_metadata(self.options, self.name, batch):
                    offsets = write_nothing(self.options, self.name, batch)
                    self._note(producer, attempt, offsets, "noting that nothing was committed")
            return list_ends(self.options, self.name)

    def find_commit(self, attempt: Attempt) -> bool | None:
        """Return whether an attempt of the batch has been committed; what has not been never will be.

        None when the cluster has forgotten the offsets in which the answer was kept: ``search_commit`` has to be called
        before. Takes the time of some requests. Only the latest batch of its lane may be asked for. Raises
        TargetRefusedError when another client has written to the group that keeps the answer.
        """
        with self.explaining(attempt, "asking whether it was committed"):
            self._open(0).purge()
        batch = attempt.batch
        with self._asking(batch):
            return judge(read_metadata(self.options, self.name, batch), batch, self.knows)

    def search_commit(self, attempt: Attempt) -> None:
        """Find out from the topic's records what ``find_commit`` cannot tell, and note it for ``find_commit``.

        Reads what was written since the batch was announced, however much that is, so no transaction may wait for it.
        Raises FencedError when another process keeps beginning to write, and ServiceUnavailableError also while an open
        transaction of another producer hides whether records of the batch are committed.
        """
        batch = attempt.batch
        for tries_left in reversed(range(SEARCHES)):
            with self.explaining(attempt, "asking whether it was committed"):
                producer = self._open(0)
            with self._asking(batch):
                if judge(read_metadata(self.options, self.name, batch), batch, self.knows) is not None:
                    return
                # By now every other producer is fenced, so the log holds all that they have written.
                log = look_at(self.options, self.name)
                is_there = search(self.options, self.name, find_start(log, batch), batch, self.clock)
                offsets = (
                    write_offsets(self.options, self.name, attempt)
                    if is_there
                    else write_nothing(self.options, self.name, batch)
                )
            try:
                self._note(producer, attempt, offsets, "noting what became of it")
            except FencedError:
                if not tries_left:
                    raise
                # Another producer has begun to write, or to search, and may have been faster. Its commit lies behind
                # what was looked at.
                batch = replace(batch, announced_ends=tuple(each.until for each in log.hidden))
            else:
                found = "was committed" if is_there else "was not committed"
                _log.info("%s %s, as topic %s shows", batch.label, found, self.name)
                return

    def _note(self, producer: Producer, attempt: Attempt, offsets: list[KafkaTopicPartition], where: str) -> None:
        """Commit offsets alone. Raises FencedError when another producer has begun since."""
        try:
            with (
                explaining(self.options, self.name, attempt, where, consequence="No record was written."),
                closing(open_group(self.options, attempt.batch)) as group,
            ):
                producer.begin_transaction()
                producer.send_offsets_to_transaction(offsets, group.consumer_group_metadata(), OFFSETS_SECONDS)
                producer.commit_transaction(COMMIT_SECONDS)
        except BaseException:
            abort(producer, attempt)
            raise

    def _require_first(self, attempt: Attempt) -> None:
        """Raise OutcomeUnknownError when the batch was committed before this transaction.

        The process that announced it may have slept while another committed it and died. By now no other can.
        """
        if is_named(read_metadata(self.options, self.name, attempt.batch, Isolation.UNCOMMITTED), attempt.batch):
            raise OutcomeUnknownError(
                f"{attempt.batch.label} has been committed to topic {self.name} before.",
                advice="The next step looks up its outcome.",
                batch_id=attempt.batch.batch_id,
            )

    def _asking(self, batch: Batch) -> AbstractContextManager[None]:
        return kafka_call(f"find out whether {batch.label} was committed to topic {self.name}", self.options)

    def _open(self, largest_batch_bytes: int) -> Producer:
        """Return the pipeline's only producer: every earlier one is fenced, and its transaction has ended."""
        timeout_ms = int(self.transaction_timeout_seconds * 1000)
        settings = {
            "transactional.id": f"batchledger.{self.pipeline}",
            "transaction.timeout.ms": timeout_ms,
            # The client wants it below the timeout of the transaction.
            "socket.timeout.ms": min(int(REQUEST_TIMEOUT_SECONDS * 1000), timeout_ms),
        }
        producer = open_producer(self.options, largest_batch_bytes, settings)
        deadline = monotonic() + BEGIN_SECONDS
        while True:
            try:
                producer.init_transactions(max(0.1, deadline - monotonic()))
            except KafkaException as error:
                # Ask again: the answer may only have come too late.
                if not error.args[0].retriable() or monotonic() > deadline:
                    raise
            else:
                return producer

    def _find_shape(self, attempt: Attempt) -> tuple[int, int]:
        """Return how many partitions the topic has, and how many bytes it takes at once."""
        facts = describe_topics(self.options, [self.name]).get(self.name)
        if facts is None:
            absent = KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)
            raise explain(absent, self.name, self.options["bootstrap.servers"], attempt, "before the first record")
        configs = describe_topic_configs(self.options, [self.name]).get(self.name, {})
        return facts.partitions, int(configs.get("max.message.bytes", 1024 * 1024))

    def explaining(self, attempt: Attempt, where: str = "in the transaction") -> AbstractContextManager[None]:
        """Let the errors of the client be typed ones, which say where it was."""
        return explaining(self.options, self.name, attempt, where)

    @contextmanager
    def begun(
        self, opened: OpenedOutput, attempt: Attempt, look: Callable[[int], None] = lambda _: None
    ) -> Iterator[RecordSender]:
        """Begin a transaction, and abort it when the block raises: nothing was committed. ``look`` as for a sender."""
        producer = opened.producer
        with self.explaining(attempt, "beginning the transaction"):
            producer.begin_transaction()
        began_at = self.clock()
        sender = RecordSender(
            producer,
            self.name,
            opened.partitions,
            HeaderWriter(self.headers, attempt.batch.batch_id),
            look=look,
            probe=lambda: require_open(producer),
        )
        try:
            with self.explaining(attempt):
                yield sender
        except BaseException as error:
            abort(producer, attempt)
            elapsed_seconds = self.clock() - began_at
            if isinstance(error, FencedError) and elapsed_seconds > self.transaction_timeout_seconds:
                # The broker also fences the producer of a transaction that is too old (S105). The records were not too
                # slow: else the transaction would have been given up before.
                found = f"After {elapsed_seconds:.1f} s Kafka had ended the transaction of {sender.sent:,} records"
                raise self._give_up(attempt, Verdict.STOOD_STILL, found) from error
            raise

    def _require_pace(self, attempt: Attempt, pace: SendingPace, acknowledged: int) -> None:
        now = self.clock()
        verdict = pace.look(now, acknowledged)
        if verdict is not Verdict.IN_TIME:
            found = f"{acknowledged:,} of {pace.count:,} records took {now - pace.began_at:.1f} s"
            raise self._give_up(attempt, verdict, found)

    def _give_up(self, attempt: Attempt, verdict: Verdict, found: str) -> BatchledgerError:
        label, batch_id = attempt.batch.label, attempt.batch.batch_id
        within = (
            f"written to topic {self.name} within the transaction timeout of {self.transaction_timeout_seconds:g} s"
        )
        given_up = f"{found}. The transaction was given up."
        advice = (
            "Lower limits.max_records, so that batches are smaller. Or raise sink.transaction_timeout: readers of "
            "committed records may then have to wait as long."
        )
        if verdict is Verdict.STOOD_STILL:
            return ServiceUnavailableError(
                f"{label} was not {within}. {NOTHING_VISIBLE}",
                why=f"{given_up} Broker, database or this process stood still meanwhile.",
                advice=f"Run the step again.\nIf that does not help: {advice}",
                batch_id=batch_id,
                subject=self.name,
            )
        return TargetRefusedError(
            f"{label} cannot be {within}. {NOTHING_VISIBLE}",
            why=given_up,
            advice=advice,
            batch_id=batch_id,
            subject=self.name,
        )

    def decide(self, producer: Producer, attempt: Attempt) -> None:
        """Commit what was handed in. If the answer is lost it asks again: once decided, that changes nothing (S104)."""
        deadline = monotonic() + COMMIT_SECONDS
        while True:
            try:
                producer.commit_transaction(max(0.1, deadline - monotonic()))
            except KafkaException as error:
                cause = error.args[0]
                # What can still be aborted was not committed.
                if is_fenced(cause) or (cause.txn_requires_abort() and abort(producer, attempt)):
                    servers = self.options["bootstrap.servers"]
                    raise explain(cause, self.name, servers, attempt, "committing") from error
                if cause.retriable() and monotonic() < deadline:
                    continue
                self._resolve(attempt, error)
            return

    def _resolve(self, attempt: Attempt, trouble: KafkaException) -> None:
        """Return if the batch was committed after all, else raise its outcome."""
        reason = trouble.args[0].str()
        try:
            is_committed = self.find_commit(attempt)
        except BatchledgerError as error:
            raise OutcomeUnknownError(
                f"It is unknown whether {attempt.batch.label} was committed to topic {self.name}.",
                why=f"Kafka at {self.options['bootstrap.servers']} answered neither the commit ({reason}) nor the "
                f"question about it ({error.message}).",
                advice="The next step asks first.",
                batch_id=attempt.batch.batch_id,
            ) from error
        if is_committed is None:
            raise OutcomeUnknownError(
                f"It is unknown whether {attempt.batch.label} was committed to topic {self.name}.",
                why=f"Kafka did not answer the commit ({reason}), and has forgotten the offsets of its group.",
                advice="The next step searches the topic.",
                batch_id=attempt.batch.batch_id,
            )
        if not is_committed:
            raise ServiceUnavailableError(
                f"{attempt.batch.label} was not committed to topic {self.name}: its transaction was aborted.",
                why=f"{reason}.",
                advice="Run the step again.",
                batch_id=attempt.batch.batch_id,
            ) from trouble
