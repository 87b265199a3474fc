"""A topic that rows go to: a foreign target, which commits by itself and is asked afterwards what became of a batch."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from batchledger.model.balance import TargetCount
from batchledger.model.batch import Attempt
from batchledger.model.offsets import OffsetRange, TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa

EVERY_BATCH = 2**63 - 1
"""A bound of batch ids that leaves none out."""


@dataclass(frozen=True, slots=True)
class OutputBlock:
    """Records that were made of one source partition, in the order of its offsets.

    The columns of ``records``: ``offset`` and ``timestamp_ms`` of the source record, null if it carries none; ``key``,
    null if the record has none; ``value``, null if it is a tombstone, which deletes its key.
    """

    source: TopicPartition
    records: "pa.RecordBatch"


@dataclass(frozen=True, slots=True)
class OutputCounts:
    """What readers of committed records find in the topic.

    ``foreign`` counts records that were not written by a pipeline. Records of batches up to ``incomplete_until`` may be
    missing because the topic's own retention or compaction has removed them: 0 when it has removed nothing,
    ``EVERY_BATCH`` when nothing is left that would tell. ``held_back`` offsets lie behind transactions that are open,
    of any producer, and were not looked at.
    """

    count_by_batch: Mapping[tuple[int, TopicPartition], TargetCount]
    foreign: int
    incomplete_until: int
    held_back: int


class OutputTopic(Protocol):
    """A topic that the rows of a pipeline's batches are written to.

    Publications of a pipeline come one after the other: the ledger sees to that. Nothing here is silent for more than
    30 s. Raises ServiceUnavailableError when no broker answers, and TargetRefusedError for what a person has to change.
    """

    name: str
    """The topic's name."""

    def require_usable(self, attempt: Attempt) -> str:
        """Make the topic exist, and return what tells it from another of the same name.

        Raises TargetRefusedError when the topic cannot take the batch, with the reason and what to do: also when a
        pipeline of another ledger has written to it.
        """

    def identify(self) -> str | None:
        """Return what ``require_usable`` does; None when there is no such topic."""

    def require_room(self, attempt: Attempt, origin: OffsetRange, size_bytes: int) -> None:
        """Raise TargetRefusedError, which names the source record, when the topic takes no record of this size.

        ``size_bytes`` are the bytes of key and value. Writes nothing.
        """

    def commit(self, attempt: Attempt, blocks: Iterable[OutputBlock], count: int) -> None:
        """Make all ``count`` records visible together with the end of the batch's ranges, in one transaction.

        Records of one key stay in order. Returns once that is decided; readers see it a moment later, when the topic
        holds nothing back any more. Raises FencedError when a newer attempt has
        taken over, TargetRefusedError and ServiceUnavailableError when nothing is visible nor ever will be, and
        OutcomeUnknownError when ``find_commit`` has to be asked. What ``blocks`` raises leaves nothing visible either.
        """

    def send(self, attempt: Attempt, blocks: Iterable[OutputBlock]) -> None:
        """Write the records, each once and in order, outside of a transaction; some are visible when it raises."""

    def prepare_commit(self, attempt: Attempt) -> tuple[int, ...]:
        """See that ``find_commit`` will have an answer, and return the end of each partition, for ``search_commit``.

        To be called before the commit is announced: what is committed then lies behind these ends.
        """

    def find_commit(self, attempt: Attempt) -> bool | None:
        """Return whether an attempt of the batch has been committed; what has not been never will be.

        None when the cluster has forgotten the offsets in which the answer was kept: ``search_commit`` has to be called
        before. Takes the time of some requests. Only the latest batch of its lane may be asked for. Raises
        TargetRefusedError when another client has written to the group that keeps the answer.
        """

    def search_commit(self, attempt: Attempt) -> None:
        """Find out from the topic's records what ``find_commit`` cannot tell, and note it for ``find_commit``.

        Reads what was written since the batch was announced, however much that is, so no transaction may wait for it.
        Raises FencedError when another process keeps beginning to write, and ServiceUnavailableError also while an open
        transaction of another producer hides whether records of the batch are committed.
        """

    def count(self, within: Sequence[OffsetRange] | None = None) -> OutputCounts:
        """Return what the topic holds, by batch id and source partition.

        ``within`` are ranges of source offsets that do not overlap: only their records are counted.
        """
