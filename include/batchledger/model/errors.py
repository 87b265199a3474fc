"""The error family: everything that Batchledger raises on purpose.

A message says what was attempted, what was expected and found, where, and what to do. ``retryable`` and ``exit_code``
are properties of the class, so that the mapping to Airflow and to the command line is one function each. What an error
is about are attributes with types: whoever has to go on from it reads these, never the message. Every error pickles,
because Airflow carries errors between processes.
"""

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field, fields
from typing import Any, ClassVar

from typing_extensions import override

from batchledger.model.batch import TopicIdentity
from batchledger.model.offsets import OffsetRange, TopicPartition
from batchledger.model.presence import Presence


@dataclass(eq=False, repr=False)
class BatchledgerError(Exception):
    """The base of every expected failure. ``retryable``: the same step may succeed later with nothing else changed.

    What it is about, as far as it is about such a thing: a batch, a pipeline, offsets. ``subject`` is what else there
    is: a table, a topic, a connection, a file, a field of a form.
    """

    retryable: ClassVar[bool] = False
    exit_code: ClassVar[int] = 1

    message: str
    _: KW_ONLY
    batch_id: int | None = None
    pipeline: str | None = None
    subject: str | None = None
    ranges: tuple[OffsetRange, ...] = ()

    @override
    def __str__(self) -> str:
        return self.message

    @override
    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), {each.name: getattr(self, each.name) for each in fields(self)})

    @property
    def where(self) -> Mapping[str, Any]:
        """What it is about, as JSON; without the message, and what it is not about."""
        known = {each.name: getattr(self, each.name) for each in fields(self) if each.name != "message"}
        return {name: _as_json(value) for name, value in known.items() if value not in (None, (), {})}


def _rebuild(kind: type[BatchledgerError], values: dict[str, Any]) -> BatchledgerError:
    return kind(values.pop("message"), **values)


def _as_json(value: Any) -> Any:
    if isinstance(value, int | str):
        return value
    if isinstance(value, Mapping):
        return {str(key): each for key, each in value.items()}
    return [str(each) for each in value] if isinstance(value, tuple) else str(value)


class ConfigurationError(BatchledgerError):
    """A pipeline file, a connection or an option is not acceptable; nothing has been opened."""

    exit_code = 2


class UnknownPipelineError(ConfigurationError):
    """No pipeline file has that name."""


class SetupError(BatchledgerError):
    """Something that the local services need is missing, taken or cannot be fetched."""


class ServiceUnavailableError(BatchledgerError):
    """Kafka, the warehouse or Spark did not answer within its bounded time; nothing was written."""

    retryable = True


class OutcomeUnknownError(ServiceUnavailableError):
    """The connection was lost during COMMIT: what was to be written may have been (I9); whoever goes on looks first."""


@dataclass(eq=False, repr=False)
class FencedError(BatchledgerError):
    """A newer attempt owns the batch; this one can change nothing visible (I4)."""

    attempt: int | None = field(default=None, kw_only=True)
    run: str | None = field(default=None, kw_only=True)
    """The attempt that has the batch, and whose it is."""


@dataclass(eq=False, repr=False)
class AtWorkError(BatchledgerError):
    """Another run is at work on the batch, so this one leaves it alone: nothing is wrong, and nothing was changed."""

    exit_code = 0

    batch_id: int = field(kw_only=True)
    state: str = field(kw_only=True)
    attempt: int = field(kw_only=True)
    step: str = field(kw_only=True)
    other: Presence = field(kw_only=True)


@dataclass(eq=False, repr=False)
class BatchBlockedError(BatchledgerError):
    """A check failed, or an earlier batch of the pipeline waits for a person's decision."""

    exit_code = 3

    batch_id: int = field(kw_only=True)
    failed: tuple[str, ...] = field(default=(), kw_only=True)
    """The names of the checks."""


@dataclass(eq=False, repr=False)
class PositionConflictError(BatchledgerError):
    """The stored position is not the one that the batch starts from: somebody else moved it."""

    found: Mapping[TopicPartition, int | None] = field(default_factory=dict, kw_only=True)
    """The stored next offsets, if one of them is not the start of its range."""


class PlanOvertakenError(PositionConflictError):
    """Another run moved the position between choosing ranges and storing them; choosing again is all it needs."""

    retryable = True


class PredecessorPendingError(PositionConflictError):
    """The position has not reached the start of the batch: an earlier one is not published yet (S58)."""

    retryable = True


@dataclass(eq=False, repr=False)
class OutcomePendingError(BatchledgerError):
    """A batch was about to be committed by its sink, and whether it was has to be found first."""

    retryable = True

    batch_id: int = field(kw_only=True)


class RowsLostError(BatchledgerError):
    """A pipeline with at-most-once delivery moved its position, and the rows of the batch were not written."""

    exit_code = 3


class LossError(BatchledgerError):
    """Offsets that were never read no longer exist in Kafka; a person has to accept it."""

    exit_code = 3


class DecisionRefusedError(BatchledgerError):
    """A person's decision does not fit what is there; nothing was changed."""

    exit_code = 2


class PipelinePausedError(BatchledgerError):
    """A person has paused the pipeline: nothing new is planned until it is resumed."""

    exit_code = 3


class ReplayRefusedError(BatchledgerError):
    """A replay was asked for that makes no sense: no offset, an offset twice, or offsets that do not exist."""

    exit_code = 2


class ExpiredError(ReplayRefusedError):
    """Kafka has removed offsets that a replay asks for; it can be asked for without them."""

    exit_code = 3


@dataclass(eq=False, repr=False)
class TopicChangedError(BatchledgerError):
    """The topic is missing, or is not the one that the position belongs to: other id, other cluster, shorter log."""

    exit_code = 3

    expected: TopicIdentity | None = field(default=None, kw_only=True)
    found: TopicIdentity | None = field(default=None, kw_only=True)
    """Set if it is another topic."""


class TargetRefusedError(BatchledgerError):
    """The target does not take the rows of a batch, and would not the next time: a person has to change something."""

    exit_code = 3


@dataclass(eq=False, repr=False)
class TargetChangedError(TargetRefusedError):
    """The target table is not the one that earlier batches were published to, or does not fit the rows."""

    expected: str | None = field(default=None, kw_only=True)
    found: str | None = field(default=None, kw_only=True)
    """The identities of the target; what was expected is None if it is about something else."""
    owner: str | None = field(default=None, kw_only=True)
    """The pipeline that has published to the target."""


class RowsRefusedError(TargetRefusedError):
    """The target, its staging or the ledger beside it does not take a row: the batch waits for a person."""


@dataclass(eq=False, repr=False)
class KeyConflictError(TargetRefusedError):
    """Rows cannot be applied as updates: a key is null, or its records lie in partitions that have no order."""

    coordinates: tuple[str, ...] = field(default=(), kw_only=True)


class DatabaseRefusedError(BatchledgerError):
    """The database refuses what is not about rows, and would the next time; nothing was written."""


class StagingError(BatchledgerError):
    """The staging of this attempt failed; the next attempt writes to a staging of its own."""

    retryable = True


@dataclass(eq=False, repr=False)
class CheckNotRunError(BatchledgerError):
    """A check could not be evaluated; this is neither a pass nor bad data, and what is staged can be judged again."""

    retryable = True

    unjudged: tuple[str, ...] = field(default=(), kw_only=True)
    """The names of the checks."""


class StagingLostError(BatchledgerError):
    """Staging no longer holds what was staged; the batch has to be staged again, by the next run or by hand."""


class AuditOutdatedError(StagingLostError):
    """Another batch has changed what a duplicate is since the audit; what is staged can be audited again."""

    retryable = True


class UnsettledError(BatchledgerError):
    """Rows of the target were published again each time that they were compared with the ledger; nothing was proved."""

    retryable = True


class StageRefusedError(BatchledgerError):
    """The stage job, run in a process of its own, refused for good; a person has to read its message."""

    exit_code = 3


class ConnectionMissingError(ConfigurationError):
    """Airflow knows no connection of that id. Retryable: a secrets backend that is down looks the same."""

    retryable = True


class ChannelError(BatchledgerError):
    """An alert was not delivered, as far as anybody knows; it is tried again. The text holds no secret."""

    retryable = True


class UnknownBatchError(BatchledgerError):
    """No batch, or no pipeline, of that name exists in the ledger."""

    exit_code = 2
