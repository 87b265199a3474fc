"""What people and Airflow can ask of a pipeline, each order as one frozen value. Pure.

The command line, the trigger form, the configuration of a run and the page are read into these values, so an order
means the same in every place. ``execution.explain`` says what one would change, and ``execution.carry_out`` does it.
``plans`` begins an order that needs Spark, and ``dry_run`` shows it first. The ledger keeps who gave an order that is
done at once, under its ``kind``.
"""

from dataclasses import KW_ONLY, dataclass
from typing import ClassVar

from batchledger.model.batch import Decision, DecisionKind
from batchledger.model.erasure import ErasureKey
from batchledger.model.errors import DecisionRefusedError
from batchledger.model.offsets import OffsetRange
from batchledger.planning.replay import Replay
from batchledger.planning.rewind import Rewind


@dataclass(frozen=True, slots=True)
class CatchUp:
    """Take the next live batch; ``max_records`` replaces the pipeline's limit for this one batch."""

    max_records: int | None = None


@dataclass(frozen=True, slots=True)
class Retake:
    """Take an open batch again, a blocked one included."""

    batch_id: int


@dataclass(frozen=True, slots=True)
class Accept:
    """Publish a blocked batch as it is staged."""

    kind: ClassVar[DecisionKind] = DecisionKind.ACCEPT
    batch_id: int


@dataclass(frozen=True, slots=True)
class Discard:
    """Close a batch that is not published."""

    kind: ClassVar[DecisionKind] = DecisionKind.DISCARD
    batch_id: int


@dataclass(frozen=True, slots=True)
class AcceptLoss:
    """Go on without offsets that Kafka removed before they were read.

    ``discard`` is the open batch that may lose what it has staged of their partitions.
    """

    kind: ClassVar[DecisionKind] = DecisionKind.ACCEPT_LOSS
    ranges: tuple[OffsetRange, ...]
    discard: int | None = None


@dataclass(frozen=True, slots=True)
class Skip:
    """Go on without offsets that could be read. ``discard`` as for a loss."""

    kind: ClassVar[DecisionKind] = DecisionKind.SKIP
    ranges: tuple[OffsetRange, ...]
    discard: int | None = None


@dataclass(frozen=True, slots=True)
class AdoptTarget:
    """Go on with a target that was restored or moved, once it is proved."""

    kind: ClassVar[DecisionKind] = DecisionKind.ADOPT_TARGET


@dataclass(frozen=True, slots=True)
class Pause:
    """Plan nothing new."""

    kind: ClassVar[DecisionKind] = DecisionKind.PAUSE


@dataclass(frozen=True, slots=True)
class Resume:
    """End a pause."""

    kind: ClassVar[DecisionKind] = DecisionKind.RESUME


@dataclass(frozen=True, slots=True)
class Retire:
    """End a pipeline, whose file may be gone. Its history stays.

    ``discard`` are the open batches that may lose what they have staged. ``free_target``: another pipeline may take the
    target.
    """

    kind: ClassVar[DecisionKind] = DecisionKind.RETIRE
    discard: tuple[int, ...] = ()
    free_target: bool = False


@dataclass(frozen=True, slots=True)
class Rename:
    """Give a pipeline the name ``to``, with its whole history. Its file has to follow."""

    kind: ClassVar[DecisionKind] = DecisionKind.RENAME
    to: str


@dataclass(frozen=True, slots=True)
class DropQuarantined:
    """Remove the records of the ranges from quarantine for good; all records if the ranges are None."""

    kind: ClassVar[DecisionKind] = DecisionKind.QUARANTINE_DROP
    ranges: tuple[OffsetRange, ...] | None = None


@dataclass(frozen=True, slots=True)
class Erase:
    """Delete the rows of a key for good, and what quarantine and the ledger hold of it."""

    kind: ClassVar[DecisionKind] = DecisionKind.ERASE
    key: ErasureKey


ByRun = CatchUp | Replay | Retake
"""Orders for a run, because Spark has to read."""

AtOnce = Accept | Discard | AcceptLoss | Skip | Rewind | AdoptTarget | Pause | Resume | DropQuarantined | Erase
"""Orders that are done at once."""


@dataclass(frozen=True, slots=True)
class Request:
    """An order to a run, and who gave it. ``decision`` is None for a scheduled run, which catches up.

    ``is_dry_run``: show what it would change, and publish nothing. ``key`` tells one request from another: a task that
    is tried again finds the replay that it has stored by it.
    """

    order: ByRun
    decision: Decision | None = None
    _: KW_ONLY
    is_dry_run: bool = False
    key: str = ""

    @property
    def by(self) -> Decision:
        """Who gave the order, and why. Raises DecisionRefusedError for an order without a person."""
        if self.decision is None:
            raise DecisionRefusedError(
                "This order needs a name and a reason. Nothing was changed.",
                why="Only catching up needs neither.",
                advice="Give a reason: --reason WHY (reason in the form)",
            )
        return self.decision

    @property
    def is_catching_up(self) -> bool:
        """Whether the run only catches up, as the next scheduled run would."""
        return self.order == CatchUp()
