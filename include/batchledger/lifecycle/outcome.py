"""What follows when a step could not know what it has done: the ledger is asked, and of a commit its sink (I9).

The ledger says whose the batch is by now. A sink that commits by itself says whether it has committed what was
announced, and searches for it if it cannot tell at once.
"""

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import replace
from enum import Enum

from batchledger.lifecycle.ownership import drop_staging, is_of
from batchledger.lifecycle.platform import Platform
from batchledger.lifecycle.requirement import confirm_target
from batchledger.model.batch import Attempt, Batch, BatchState
from batchledger.model.errors import BatchledgerError, FencedError, ServiceUnavailableError, TargetChangedError
from batchledger.ports import Publication, committing


class Next(Enum):
    """What a step does after an error."""

    TAKE_RESULT = "the step is done, by this attempt or by a twin of it"
    GO_ON = "the attempt still has the batch, and goes on from the state that was found"
    LEAVE = "the batch is another attempt's, or closed; staging of this one is of no use any more"
    RAISE = "only a person or a later run can go on"


def choose_next(error: BatchledgerError, found: Batch, attempt: Attempt, done: Collection[BatchState]) -> Next:
    """Say what follows from an error of the attempt, and from what the ledger has of the batch since.

    ``done``: the states in which nothing is left of the step. Committing: this call has announced it, or a twin, and
    the sink knows the outcome. Audited, and yet it was fenced: another run has found that the sink had not committed.
    """
    if is_of(found, attempt):
        if found.state in done:
            return Next.TAKE_RESULT
        is_settled = found.state is BatchState.AUDITED and isinstance(error, FencedError)
        if found.state is BatchState.COMMITTING or is_settled:
            return Next.GO_ON
    is_superseded = found.attempt != attempt.number or found.state is BatchState.DISCARDED
    return Next.LEAVE if is_superseded else Next.RAISE


def find_next(
    platform: Platform, attempt: Attempt, error: BatchledgerError, done: Collection[BatchState]
) -> tuple[Next, Batch]:
    """Ask the ledger, on a new connection, what follows; clean up after an attempt that is to leave.

    Raises ``error`` if the ledger cannot be asked and a later try may succeed, else ServiceUnavailableError.
    """
    try:
        found = platform.ledger.load_batch(attempt.batch.batch_id)
    except ServiceUnavailableError:
        if error.retryable:
            raise error from None
        raise
    chosen = choose_next(error, found, attempt, done)
    if chosen is Next.LEAVE:
        drop_staging(platform, attempt)
    return chosen, found


@contextmanager
def ask_sink(platform: Platform, attempt: Attempt) -> Iterator[tuple[Publication, bool]]:
    """Yield the publication of a batch that is committing, and whether its sink has committed it.

    Others wait for the end of the block, so no run commits it between the answer and its consequence.
    """
    let_sink_tell(platform, attempt)
    with platform.ledger.publication(attempt, BatchState.COMMITTING) as publication:
        yield publication, has_committed(platform, publication)


def let_sink_tell(platform: Platform, attempt: Attempt) -> None:
    """See that the sink can tell at once what became of a batch that is committing, however long that takes.

    Waits for a run that is committing it at the moment. A search has no transaction of the ledger around it, which
    would be idle for longer than the database allows. What the search finds does not count here: the sink is asked
    again.
    """
    with platform.ledger.publication(attempt, BatchState.COMMITTING) as publication:
        is_told = _ask(platform, publication) is not None
    if not is_told:
        batch = platform.ledger.load_batch(attempt.batch.batch_id)
        committing(platform.sink).search_commit(replace(attempt, batch=batch))


def has_committed(platform: Platform, publication: Publication) -> bool:
    """Ask the sink for a batch that was announced, once it has searched for it if it has to."""
    answer = _ask(platform, publication)
    if answer is None:
        label = publication.attempt.batch.label
        raise ServiceUnavailableError(
            f"It is unknown whether {label} was committed. Nothing was changed.",
            why="What the sink keeps of the commit was there a moment ago, and was deleted.",
            advice="Run the step again.",
        )
    return answer


def _ask(platform: Platform, publication: Publication) -> bool | None:
    """Ask the sink for a batch; "no" and "cannot tell" count only if they come from the target of the announcement."""
    attempt = publication.attempt
    # Another kind of sink has committed nothing; what was announced, was announced to another target.
    shares = platform.sink.capabilities.shares_transaction
    answer = False if shares else committing(platform.sink).find_commit(attempt)
    if answer:
        return True
    try:
        confirm_target(platform.sink, publication)
    except TargetChangedError as error:
        batch = attempt.batch
        raise TargetChangedError(
            f"It is unknown whether {batch.label} was committed. Nothing was changed.",
            why="Only the target of its announcement knows. The section sink names another one, or it is gone.",
            advice="Name the old target again, then find the outcome: "
            f"batchledger run {batch.pipeline} --batch {batch.batch_id}\n"
            f"If it was restored or moved, adopt it first: batchledger adopt-target {batch.pipeline} --reason WHY\n"
            "If it is gone for good, read the source again under a new pipeline name.",
            batch_id=batch.batch_id,
        ) from error
    return answer
