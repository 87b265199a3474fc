"""What became of a commit that was announced: the sink is asked, and asked to search where it cannot tell (I9)."""

from dataclasses import replace

from batchledger.lifecycle.platform import Platform
from batchledger.model.batch import Attempt, BatchState
from batchledger.model.errors import ServiceUnavailableError, TargetChangedError
from batchledger.ports import CommittingSink, Publication


def let_sink_tell(platform: Platform, attempt: Attempt) -> None:
    """See that the sink can tell at once what became of a batch that is committing, however long that takes.

    Waits for a run that is committing it at the moment. A search has no transaction of the ledger around it, which
    would be idle for longer than the database allows. What the search finds does not count here: the sink is asked
    again.
    """
    with platform.ledger.publication(attempt, BatchState.COMMITTING) as publication:
        is_told = _ask(platform, publication) is not None
    if not is_told and isinstance(platform.sink, CommittingSink):
        batch = platform.ledger.load_batch(attempt.batch.batch_id)
        platform.sink.search_commit(replace(attempt, batch=batch))


def has_committed(platform: Platform, publication: Publication) -> bool:
    """Ask the sink for a batch that was announced, once it has searched for it if it has to."""
    answer = _ask(platform, publication)
    if answer is None:
        label = publication.attempt.batch.label
        raise ServiceUnavailableError(
            f"whether {label} was committed cannot be told: what the sink keeps of it was there a moment ago, and was "
            "deleted. Nothing was changed; the step can be run again."
        )
    return answer


def _ask(platform: Platform, publication: Publication) -> bool | None:
    """Ask the sink for a batch; "no" and "cannot tell" count only if they come from the target of the announcement."""
    attempt = publication.attempt
    # Another kind of sink has committed nothing; what was announced, was announced to another target.
    answer = platform.sink.find_commit(attempt) if isinstance(platform.sink, CommittingSink) else False
    if answer:
        return True
    try:
        publication.confirm_target(platform.sink.claim_target(attempt))
    except TargetChangedError as error:
        batch = attempt.batch
        raise TargetChangedError(
            f"whether {batch.label} was committed, only the target can tell that it was announced to: what the section "
            "sink names is another one, or is gone. Name the old one again, and let the outcome be found with: "
            f"batchledger run {batch.pipeline} --batch {batch.batch_id}. If it was restored or moved, adopt it "
            f"first: batchledger adopt-target {batch.pipeline} --reason WHY. If it is gone for good, read the "
            "source again under a new pipeline name.",
            batch_id=batch.batch_id,
        ) from error
    return answer
