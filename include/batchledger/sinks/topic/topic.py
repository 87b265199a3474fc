"""The OutputTopic port on a Kafka cluster. Opens nothing when it is made; the modules beside it do the work.

Needs, for the sink's user: WRITE, DESCRIBE and READ on the topic (CREATE to make it, DESCRIBE_CONFIGS to know its
largest record and its cleanup), WRITE and DESCRIBE on transactional id ``batchledger.<pipeline>``, READ and DESCRIBE on
groups ``batchledger.<pipeline>.sink`` and ``.replay``, and READ on the source topics if they are on this cluster.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from time import monotonic

from typing_extensions import override

from batchledger.model.batch import Attempt
from batchledger.model.offsets import OffsetRange
from batchledger.model.records.rules import HeaderForm
from batchledger.ports import OutputTopic
from batchledger.ports.output import OutputBlock, OutputCounts
from batchledger.sinks.topic.commits import KnowsBatch
from batchledger.sinks.topic.counts import count_output
from batchledger.sinks.topic.requirements import OutputRequirements
from batchledger.sinks.topic.transaction import OutputWriter


@dataclass(frozen=True)
class KafkaOutputTopic(OutputTopic):
    """``options`` are checked librdkafka options (``clients.client_options``).

    ``knows`` says whether the ledger has a batch of the pipeline: others are not to write to the topic.
    ``accepts_older_transactions``: the cluster need not have the transactions of KIP-890.
    """

    options: Mapping[str, str] = field(repr=False)
    name: str
    pipeline: str
    knows: KnowsBatch = field(repr=False)
    transaction_timeout_seconds: float = 60.0
    accepts_older_transactions: bool = False
    headers: HeaderForm = HeaderForm.SEPARATE
    clock: Callable[[], float] = field(default=monotonic, repr=False)

    @override
    def require_usable(self, attempt: Attempt) -> str:
        """Returns the cluster's id and the topic's."""
        return self._requirements.require(attempt)

    @override
    def identify(self) -> str | None:
        return self._requirements.identify()

    @override
    def require_room(self, attempt: Attempt, origin: OffsetRange, size_bytes: int) -> None:
        self._writer.require_room(attempt, origin, size_bytes)

    @override
    def commit(self, attempt: Attempt, blocks: Iterable[OutputBlock], count: int) -> None:
        self._writer.commit(attempt, blocks, count)

    @override
    def send(self, attempt: Attempt, blocks: Iterable[OutputBlock]) -> None:
        self._writer.send(attempt, blocks)

    @override
    def prepare_commit(self, attempt: Attempt) -> tuple[int, ...]:
        return self._writer.prepare_commit(attempt)

    @override
    def find_commit(self, attempt: Attempt) -> bool | None:
        return self._writer.find_commit(attempt)

    @override
    def search_commit(self, attempt: Attempt) -> None:
        self._writer.search_commit(attempt)

    @override
    def count(self, within: Sequence[OffsetRange] | None = None) -> OutputCounts:
        return count_output(self.options, self.name, within)

    @property
    def _requirements(self) -> OutputRequirements:
        return OutputRequirements(self.options, self.name, self.accepts_older_transactions, self.knows)

    @property
    def _writer(self) -> OutputWriter:
        return OutputWriter(
            self.options,
            self.name,
            self.pipeline,
            self.transaction_timeout_seconds,
            self.headers,
            self.knows,
            self.clock,
        )
