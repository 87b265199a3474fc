"""What people and Airflow can ask of a pipeline, each order as one frozen value. Pure.

The command line, the trigger form, the configuration of a run and the page are read into these, so an order means the
same wherever it was given. ``execution.explain`` says what one would change, and ``execution.carry_out`` does it. What
needs Spark is begun by ``plans``, and shown before by ``dry_run``. Under ``kind`` the ledger keeps
who gave an order that is done at once.
"""

from dataclasses import KW_ONLY, dataclass
from typing import ClassVar

from batchledger.model.batch import Decision, DecisionKind
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
    """Go on without offsets that could be read; ``discard`` as for a loss."""

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
class DropQuarantined:
    """Remove for good what quarantine has of the ranges; all of it if they are None."""

    kind: ClassVar[DecisionKind] = DecisionKind.QUARANTINE_DROP
    ranges: tuple[OffsetRange, ...] | None = None


ByRun = CatchUp | Replay | Retake
"""What a run does, because Spark has to read."""

AtOnce = Accept | Discard | AcceptLoss | Skip | Rewind | AdoptTarget | Pause | Resume | DropQuarantined
"""What is done as it is asked for."""


@dataclass(frozen=True, slots=True)
class Request:
    """An order to a run, and who gave it; ``decision`` is None if nobody did: a scheduled run catches up.

    ``is_dry_run``: show what it would change, and publish nothing. ``key`` tells one request from another: a task that
    is tried again finds by it the replay that it has stored.
    """

    order: ByRun
    decision: Decision | None = None
    _: KW_ONLY
    is_dry_run: bool = False
    key: str = ""

    @property
    def by(self) -> Decision:
        """Who gave the order, and why. Raises DecisionRefusedError if nobody did."""
        if self.decision is None:
            raise DecisionRefusedError("only catching up is nobody's decision; say who asks for this, and why.")
        return self.decision

    @property
    def is_catching_up(self) -> bool:
        """Whether the run does no more than the next one would do as well."""
        return self.order == CatchUp()
