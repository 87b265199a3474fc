"""The error family: everything that Batchledger raises on purpose.

A message says what was attempted, what was expected and found, where, and what to do. ``retryable`` and ``exit_code``
are properties of the class, so that the mapping to Airflow and to the command line is one function each. Fields are
keyword-only and typed; every error pickles, because Airflow carries errors between processes.
"""

from typing import Any, ClassVar


class BatchledgerError(Exception):
    """The base of every expected failure. ``retryable``: the same step may succeed later with nothing else changed."""

    retryable: ClassVar[bool] = False
    exit_code: ClassVar[int] = 1

    def __init__(self, message: str, **fields: Any) -> None:
        super().__init__(message)
        self.fields = fields

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), str(self), self.fields)


def _rebuild(kind: type[BatchledgerError], message: str, fields: dict[str, Any]) -> BatchledgerError:
    return kind(message, **fields)


class ConfigurationError(BatchledgerError):
    """A pipeline file, a connection or an option is not acceptable; nothing has been opened."""

    exit_code = 2


class SetupError(BatchledgerError):
    """Something that the local services need is missing, taken or cannot be fetched."""


class ServiceUnavailableError(BatchledgerError):
    """Kafka, the warehouse or Spark did not answer within its bounded time; nothing was written."""

    retryable = True


class OutcomeUnknownError(ServiceUnavailableError):
    """The connection was lost during COMMIT: what was to be written may have been (I9); whoever goes on looks first."""


class FencedError(BatchledgerError):
    """A newer attempt owns the batch; this one can change nothing visible (I4)."""


class AtWorkError(BatchledgerError):
    """Another run is at work on the batch, so this one leaves it alone: nothing is wrong, and nothing was changed."""

    exit_code = 0


class BatchBlockedError(BatchledgerError):
    """A check failed, or an earlier batch of the pipeline waits for a person's decision."""

    exit_code = 3


class PositionConflictError(BatchledgerError):
    """The stored position is not the one that the batch starts from: somebody else moved it."""


class PlanOvertakenError(PositionConflictError):
    """Another run moved the position between choosing ranges and storing them; choosing again is all it needs."""

    retryable = True


class PredecessorPendingError(PositionConflictError):
    """The position has not reached the start of the batch: an earlier one is not published yet (S58)."""

    retryable = True


class OutcomePendingError(BatchledgerError):
    """A batch was about to be committed by its sink, and whether it was has to be found first."""

    retryable = True


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


class TopicChangedError(BatchledgerError):
    """The topic is missing, or is not the one that the position belongs to: other id, other cluster, shorter log."""

    exit_code = 3


class TargetRefusedError(BatchledgerError):
    """The target does not take the rows of a batch, and would not the next time: a person has to change something."""

    exit_code = 3


class TargetChangedError(TargetRefusedError):
    """The target table is not the one that earlier batches were published to, or does not fit the rows."""


class RowsRefusedError(TargetRefusedError):
    """The target, its staging or the ledger beside it does not take a row: the batch waits for a person."""


class KeyConflictError(TargetRefusedError):
    """Rows cannot be applied as updates: a key is null, or its records lie in partitions that have no order."""


class DatabaseRefusedError(BatchledgerError):
    """The database refuses what is not about rows, and would the next time; nothing was written."""


class StagingError(BatchledgerError):
    """The staging of this attempt failed; the next attempt writes to a staging of its own."""

    retryable = True


class CheckNotRunError(BatchledgerError):
    """A check could not be evaluated; this is neither a pass nor bad data, and what is staged can be judged again."""

    retryable = True


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
