"""The error family: everything that Batchledger raises on purpose.

An error has three parts. ``message`` says what happened and what stays as it was. ``why`` says what was expected and
found. ``advice`` says what to do. Each may have several lines. ``retryable`` and ``exit_code`` are properties of the
class, so one function maps them to Airflow, and one to the command line. Typed attributes say what an error is about:
code that handles it reads these, never the words. Every error pickles, because Airflow carries errors between
processes.
"""

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field, fields
from typing import TYPE_CHECKING, Any, ClassVar

from typing_extensions import override

from batchledger import DISTRIBUTION
from batchledger.model.offsets import OffsetRange, TopicPartition
from batchledger.model.presence import Presence

if TYPE_CHECKING:
    from batchledger.model.batch import TopicIdentity


@dataclass(eq=False, repr=False)
class BatchledgerError(Exception):
    """The base of every expected failure. ``retryable``: the same step may succeed later with nothing else changed.

    The fields say what it is about: a batch, a pipeline, offsets. ``subject`` names anything else: a table, a topic, a
    connection, a file, a field of a form. ``quoted`` is the whole text of a library, a database or a transform. It may
    quote a value of a record, so only people who may trigger the DAG read it.
    """

    retryable: ClassVar[bool] = False
    exit_code: ClassVar[int] = 1

    message: str
    _: KW_ONLY
    why: str = ""
    advice: str = ""
    batch_id: int | None = None
    pipeline: str | None = None
    subject: str | None = None
    ranges: tuple[OffsetRange, ...] = ()
    quoted: str = ""

    @override
    def __str__(self) -> str:
        return "\n".join(part for part in (self.message, self.why, self.advice) if part)

    @override
    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), {each.name: getattr(self, each.name) for each in fields(self)})

    @property
    def where(self) -> Mapping[str, Any]:
        """Return what the error is about, as JSON: without its words and empty fields."""
        known = {each.name: getattr(self, each.name) for each in fields(self) if each.name not in _WORDS}
        return {name: _as_json(value) for name, value in known.items() if value not in (None, (), {})}


_WORDS = ("message", "why", "advice", "quoted", "faults")


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


def advise_extra(name: str) -> str:
    """Return how to install an extra of this package, as advice."""
    return (
        f'Install it, also for Airflow and on Spark\'s workers: pip install "{DISTRIBUTION}[{name}]"\n'
        "The guide for an Airflow of your own (guides/own-airflow) says where its wheel comes from."
    )


@dataclass(frozen=True, slots=True)
class FileFault:
    """One mistake of a file in a sentence, and its place: line and column count from 1."""

    line: int
    column: int
    text: str


@dataclass(eq=False, repr=False)
class FileRefusedError(ConfigurationError):
    """A file has mistakes. The message has each of them on a line of its own, as compilers write them."""

    faults: tuple[FileFault, ...] = field(default=(), kw_only=True)


class UnknownPipelineError(ConfigurationError):
    """No pipeline file has that name."""


class SetupError(BatchledgerError):
    """The local services need something that is missing, taken or cannot be fetched."""


class ServiceUnavailableError(BatchledgerError):
    """Kafka, the warehouse, Spark or a registry did not answer within its bounded time; nothing was written."""

    retryable = True


class LookOvertakenError(ServiceUnavailableError):
    """Another look at the same table was stored meanwhile, so this one is not. Looking again is safe."""


class AccessRefusedError(ServiceUnavailableError):
    """A service does not let this client in, or this client does not trust it. A person has to change something."""

    retryable = False
    exit_code = 3


class CertificateUntrustedError(AccessRefusedError):
    """One side does not believe the other's certificate: another authority, or another name."""


class CertificateExpiredError(AccessRefusedError):
    """A certificate is not valid at this moment."""


class LoginRefusedError(AccessRefusedError):
    """Name, password or token are not accepted."""


class RightMissingError(AccessRefusedError):
    """The user has logged in, and lacks a right."""


class SchemaRefusedError(BatchledgerError):
    """A schema registry refuses a schema, or has one that cannot be used. A person has to change it there."""

    exit_code = 3


class GuidsUnknownError(SchemaRefusedError):
    """A schema registry has no way to any GUID: it knows schemas by their ids alone."""


class SchemaChangedError(BatchledgerError):
    """A schema registry has another schema under an id than records were decoded with before."""

    exit_code = 3


class OutcomeUnknownError(ServiceUnavailableError):
    """The connection was lost during COMMIT. The write may have happened, so the next step looks first (I9)."""


@dataclass(eq=False, repr=False)
class FencedError(BatchledgerError):
    """A newer attempt owns the batch. This one can change nothing visible (I4)."""

    attempt: int | None = field(default=None, kw_only=True)
    run: str | None = field(default=None, kw_only=True)
    """The attempt that has the batch, and its run."""


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
    """The stored position is not the start of the batch: another run or decision moved it."""

    found: Mapping[TopicPartition, int | None] = field(default_factory=dict, kw_only=True)
    """The stored next offsets, if one of them differs from the start of its range."""


class PlanOvertakenError(PositionConflictError):
    """Another run moved the position after the ranges were chosen. Choosing them again is enough."""

    retryable = True


class PredecessorPendingError(PositionConflictError):
    """The position has not reached the start of the batch: an earlier one is not published yet (S58)."""

    retryable = True


@dataclass(eq=False, repr=False)
class OutcomePendingError(BatchledgerError):
    """A sink was about to commit a batch. Its outcome has to be found first."""

    retryable = True

    batch_id: int = field(kw_only=True)


class RowsLostError(BatchledgerError):
    """A pipeline with at-most-once delivery moved its position, and the rows of the batch were not written."""

    exit_code = 3


class LossError(BatchledgerError):
    """Kafka has removed offsets that were never read. A person has to accept the loss."""

    exit_code = 3


class DecisionRefusedError(BatchledgerError):
    """A person's decision does not fit the present state. Nothing was changed."""

    exit_code = 2


class PipelinePausedError(BatchledgerError):
    """A person has paused the pipeline: nothing new is planned until it is resumed."""

    exit_code = 3


class ReplayRefusedError(BatchledgerError):
    """The request for a replay makes no sense: no offset, an offset twice, or offsets that do not exist."""

    exit_code = 2


class ExpiredError(ReplayRefusedError):
    """Kafka has removed offsets of a replay. The replay can go on without them."""

    exit_code = 3


@dataclass(eq=False, repr=False)
class TopicChangedError(BatchledgerError):
    """The topic is missing, or the position belongs to another one: other id, other cluster, shorter log."""

    exit_code = 3

    expected: "TopicIdentity | None" = field(default=None, kw_only=True)
    found: "TopicIdentity | None" = field(default=None, kw_only=True)
    """Set if the topic is another one."""


class TopicAwaitedError(TopicChangedError):
    """A topic that the pipeline has never read does not exist yet. Nothing can be lost."""


@dataclass(eq=False, repr=False)
class TargetRefusedError(BatchledgerError):
    """The target refuses the rows of a batch, and would refuse them again: a person has to change something."""

    exit_code = 3

    coordinates: tuple[str, ...] = field(default=(), kw_only=True)
    """Some of the rows, as far as they are known, with the reason: ``orders[3]@7 (carrier: value too long)``."""


@dataclass(eq=False, repr=False)
class TargetChangedError(TargetRefusedError):
    """The target table is not the table of earlier batches, or does not fit the rows."""

    expected: str | None = field(default=None, kw_only=True)
    found: str | None = field(default=None, kw_only=True)
    """The identities of the target. Both are None if the error is about something else."""
    owner: str | None = field(default=None, kw_only=True)
    """The pipeline that has published to the target."""


class RowsRefusedError(TargetRefusedError):
    """The target, its staging or the ledger refuses a row. The batch waits for a person."""


class KeyConflictError(TargetRefusedError):
    """Rows cannot be applied as updates: a key is null, or its records lie in partitions that have no order."""


class DatabaseRefusedError(BatchledgerError):
    """The database refuses something other than rows, and would refuse it again. Nothing was written."""


class StagingError(BatchledgerError):
    """The staging of this attempt failed; the next attempt writes to a staging of its own."""

    retryable = True


class DecoderFailedError(StagingError):
    """The decoder of records ended with something else than the refusal of a record."""


@dataclass(eq=False, repr=False)
class CheckNotRunError(BatchledgerError):
    """A check could not run. That is neither a pass nor bad data, and the staged rows can be judged again."""

    retryable = True

    unjudged: tuple[str, ...] = field(default=(), kw_only=True)
    """The names of the checks."""


class StagingLostError(BatchledgerError):
    """Staged rows are gone. The batch has to be staged again, by the next run or by hand."""


class AuditOutdatedError(StagingLostError):
    """Since the audit, another batch has changed which rows are duplicates. The staged rows can be audited again."""

    retryable = True


class RowRulesChangedError(StagingLostError):
    """The pipeline file makes other rows of records than when the batch was staged. It has to be staged again."""

    retryable = True


class UnsettledError(BatchledgerError):
    """Rows of the target were published again during each comparison with the ledger. Nothing was proved."""

    retryable = True


class StageRefusedError(BatchledgerError):
    """The stage job refused for good in a process of its own. A person has to read its message."""

    exit_code = 3


class ConnectionMissingError(ConfigurationError):
    """Airflow knows no connection of that id. Retryable: a secrets backend that is down looks the same."""

    retryable = True


class ChannelError(BatchledgerError):
    """An alert was probably not delivered, and is tried again. The text holds no secret."""

    retryable = True


class UnknownBatchError(BatchledgerError):
    """The ledger has no batch or pipeline of that name."""

    exit_code = 2
