"""Whose a target is, and what a sink has made ready for it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from batchledger.model.batch import Target
from batchledger.model.errors import TargetChangedError
from batchledger.model.refusals import target_changed, target_owned


@dataclass(frozen=True, slots=True)
class TargetClaim:
    """The target that a pipeline's file names, as its sink finds it now. ``identity`` is None if it does not exist.

    A target whose identity begins with ``home`` is recognised by its identity alone. If a pipeline's target was
    elsewhere, it is recognised by its name: it was restored or moved together with the ledger, and waits for
    ``adopt-target``.
    """

    name: str
    identity: str | None
    home: str = ""

    def require_granted(self, pipeline: str, target_by_pipeline: Mapping[str, Target]) -> None:
        """Raise TargetChangedError unless the target is the pipeline's, or no pipeline has published to it yet.

        ``target_by_pipeline``: the target of every pipeline of the ledger that has published.
        """
        for owner, target in target_by_pipeline.items():
            is_moved = bool(self.home) and target.name == self.name and not target.identity.startswith(self.home)
            if owner != pipeline and self.identity is not None and (target.identity == self.identity or is_moved):
                raise target_owned(pipeline, self.name, owner)
        known = target_by_pipeline.get(pipeline)
        if known is not None and known.identity != self.identity:
            raise target_changed(pipeline, known, self.name, self.identity)

    def require_there(self, pipeline: str, target_by_pipeline: Mapping[str, Target]) -> Target:
        """Return the target to publish to. Raises TargetChangedError as above, and if it does not exist."""
        self.require_granted(pipeline, target_by_pipeline)
        if self.identity is None:
            raise TargetChangedError(
                f"{self.name} is gone. {pipeline} published nothing.",
                advice="Bring the target back, or correct the section sink. Then run the pipeline again: "
                f"batchledger run {pipeline}",
                pipeline=pipeline,
                subject=self.name,
            )
        return Target(self.name, self.identity)


@dataclass(frozen=True, slots=True)
class Withdrawn:
    """How many different offsets of each replaced range had a row; ``handed`` is for the sink's own ``publish``."""

    rows: Sequence[int]
    handed: Any = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class PreparedRows:
    """How many rows become visible with the commit, and how many duplicates were dropped.

    ``is_ledger_known``: the whole target was looked through, and agrees with the ledger. ``handed`` is the sink's own,
    for its ``commit``.
    """

    accepted: int
    dropped: int = 0
    is_ledger_known: bool = False
    handed: Any = field(default=None, compare=False, repr=False)
