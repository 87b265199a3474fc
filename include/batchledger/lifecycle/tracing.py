"""The parts of a step, for a tracer that shows where the time of a batch goes. No tracer here."""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from enum import StrEnum
from typing import Protocol

from batchledger.model.balance import Balance
from batchledger.model.batch import Attempt


class StepPart(StrEnum):
    """What takes time within a step. A publication may judge rows again, so it may have the parts of an audit, too."""

    READ = "stage.read"
    JUDGE_ROWS = "audit.judge_rows"
    GATHER_FACTS = "audit.gather_facts"
    JUDGE_FACTS = "audit.judge_facts"
    STORE_RESULT = "audit.store_result"
    TRANSACTION = "publish.transaction"
    PUBLISH_ROWS = "publish.rows"
    COMMIT_SINK = "publish.sink_commit"
    CLEAN_UP = "publish.clean_up"


class Trace(Protocol):
    """Shows people where the time of a step goes. It changes nothing, and raises nothing."""

    def __call__(
        self, part: StepPart, attempt: Attempt, balances: Sequence[Balance] = ()
    ) -> AbstractContextManager[None]:
        """Trace a part of a step for the duration of the block. ``balances`` account for the attempt, once known."""


@contextmanager
def trace_nothing(
    part: StepPart,  # noqa: ARG001 -- the signature of Trace
    attempt: Attempt,  # noqa: ARG001
    balances: Sequence[Balance] = (),  # noqa: ARG001
) -> Iterator[None]:
    """Trace nothing."""
    yield
