"""What a publication requires of its change: the audited rows, all of them, in the pipeline's own target.

A sink says which target it finds (``TargetClaim``), makes rows ready, and says how many (``PreparedRows``). Here alone
that is held against the audit and the ledger. What is refused leaves nothing behind: the transaction ends with it.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from batchledger.lifecycle.platform import Platform
from batchledger.model.batch import Attempt
from batchledger.model.errors import AuditOutdatedError, ConfigurationError, StagingLostError
from batchledger.model.refusals import stage_again
from batchledger.ports import CommittingSink, Publication, RowsToPublish, Sink


def require_own_target(platform: Platform, attempt: Attempt) -> None:
    """Raise TargetChangedError if the target is another pipeline's, or another one than before. Changes nothing.

    Asked before anything is staged. The publication asks again, under its locks.
    """
    # The ledger first: a target that another run's first publication creates meanwhile is no other one than before.
    targets = platform.ledger.list_targets()
    platform.sink.claim_target(attempt).require_granted(attempt.batch.pipeline, targets)


def confirm_target(sink: Sink, publication: Publication) -> None:
    """Store which target the pipeline publishes to. Raises TargetChangedError unless it is there, and its own."""
    publication.confirm_target(sink.claim_target(publication.attempt, publication.connection))


def withdraw_rows(sink: Sink, publication: Publication, rows: RowsToPublish) -> RowsToPublish:
    """Let the batch take over what other batches hold of its ranges, with their rows; return what is left."""
    withdrawn = sink.withdraw(rows)
    publication.take_over(rows.replaced, withdrawn.rows)
    return replace(rows, has_rows=False, handed=withdrawn.handed)


def publish_rows(sink: Sink, publication: Publication, rows: RowsToPublish) -> RowsToPublish:
    """Let the sink make the accepted rows visible within the publication; return what its commit needs to know.

    Raises TargetChangedError, and StagingLostError or AuditOutdatedError if the rows are not those that were audited.
    """
    # The owner comes first: an objection to the rows would be about the target of another pipeline.
    claim = sink.claim_target(publication.attempt, publication.connection)
    if claim.identity is None and sink.capabilities.shares_transaction:
        # The first publication creates the table.
        publication.check_target(claim)
    else:
        publication.confirm_target(claim)
    prepared = sink.publish(rows)
    if prepared.is_ledger_known:
        publication.mark_ledger()
    if sink.capabilities.shares_transaction:
        # What was written to, and it alone, stays what it is until the commit.
        confirm_target(sink, publication)
    _require_audited(rows, prepared.accepted, prepared.dropped)
    return replace(rows, handed=prepared.handed)


@contextmanager
def rehearsing(sink: Sink, publication: Publication) -> Iterator[tuple[Publication, RowsToPublish]]:
    """Yield a publication of which nothing stays, in which offsets that it takes over are free already."""
    with publication.rehearsal() as rehearsed:
        rows = rehearsed.load()
        yield rehearsed, withdraw_rows(sink, rehearsed, rows) if rows.takes_over else rows


def check_rows(sink: Sink, publication: Publication) -> None:
    """Raise what ``publish_rows`` and the commit would raise now, as far as that is known, and leave nothing of it."""
    with rehearsing(sink, publication) as (rehearsed, rows):
        sink.check(publish_rows(sink, rehearsed, rows))


def confirm_rows(sink: CommittingSink, rows: RowsToPublish) -> None:
    """Do for the ledger what ``publish_rows`` does, of rows that the sink shows already, whatever its target is by now.

    Raises StagingLostError if the rows are not those that were audited, and ConfigurationError if the rules are not.
    """
    with _confirming(rows.attempt):
        prepared = sink.confirm(rows)
        _require_audited(rows, prepared.accepted, prepared.dropped)


def remember_numbers(sink: Sink, rows: RowsToPublish) -> None:
    """Let later batches know the numbers of this one. Raises StagingLostError if they differ from the audit."""
    numbered = sink.remember_numbers(rows)
    if numbered is not None:
        # The rows may have become visible in an earlier commit, and staging may be lost since.
        _require_audited(rows, numbered, rows.duplicates)


def _require_audited(rows: RowsToPublish, accepted: int, dropped: int) -> None:
    batch, duplicates = rows.attempt.batch, rows.duplicates
    audited, found = rows.accepted + duplicates, accepted + dropped
    if found != audited:
        raise StagingLostError(
            f"The staging of {batch.label} has changed since its audit. Nothing was published.",
            why=f"The audit found {audited} rows, staging holds {found}. The database has lost unlogged tables in a "
            "crash, or staging was changed by hand.",
            advice=stage_again(batch),
            batch_id=batch.batch_id,
        )
    if dropped != duplicates:
        raise AuditOutdatedError(
            f"{batch.label} has other duplicates than its audit counted. This try has published nothing.",
            why=f"The audit counted {duplicates}, now there are {dropped}: another batch of {batch.pipeline} has "
            "changed which message keys are remembered.",
            batch_id=batch.batch_id,
        )


@contextmanager
def _confirming(attempt: Attempt) -> Iterator[None]:
    """Say what to restore if the sink shows rows that do not fit their audit any more.

    While a batch is committing, no other batch changes its duplicates. So the rules themselves were changed.
    """
    shown = f"The target shows the rows of {attempt.batch.label} already, and the ledger cannot confirm them."
    try:
        yield
    except AuditOutdatedError as error:
        raise ConfigurationError(
            shown,
            why="Its rules (dedupe, sequence, mode: upsert) have changed since its audit.",
            advice="Restore the former rules in the pipeline file until the batch is published.",
            batch_id=attempt.batch.batch_id,
        ) from error
    except StagingLostError as error:
        raise StagingLostError(
            shown,
            why=f"What attempt {attempt.number} has staged was changed by hand since its audit. Or its rules (dedupe, "
            "sequence) were, and by the former ones nothing is staged.",
            advice="Restore the staging, or the former rules in the pipeline file, and run the batch again.",
            batch_id=attempt.batch.batch_id,
        ) from error
