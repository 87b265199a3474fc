"""One audit of the ledger and one housekeeping pass with concrete adapters, for Airflow and the command line."""

import logging
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial

from batchledger.books.history import load_published_history
from batchledger.config.pipeline_file import PipelineConfig, find_pipeline_files, read_pipeline_file
from batchledger.ledger.audits import find_window, load_work, store_audit
from batchledger.ledger.housekeeping import RIGHTS_TO_JOIN, PostgresHousekeeping
from batchledger.ledger.retiring import has_freed_target
from batchledger.looking import ledger_dsn
from batchledger.model.batch import Decision
from batchledger.model.checks import MOST_COMPARED
from batchledger.model.errors import BatchledgerError, UnsettledError
from batchledger.model.housekeeping import Housekeeping, Keeping, Leftover, Removal, choose_forgetting, find_orphaned
from batchledger.monitoring.alerting import tell
from batchledger.monitoring.audit_questions import (
    ask_findings,
    ask_open_batches,
    ask_proof,
    ask_staging,
    leave_unproved,
)
from batchledger.monitoring.conditions import find_conditions
from batchledger.monitoring.health import describe_duration, survey
from batchledger.monitoring.ledger_audit import AuditLimits, LedgerAudit, Question, find_own
from batchledger.ports import Sink
from batchledger.proof.joining import prove_span
from batchledger.proof.newest import Coverage, NewestHistory
from batchledger.proof.proving import prove
from batchledger.wiring import build_alerting, build_platform, build_sink, verify_pipeline

logger = logging.getLogger(__name__)

HOUSEKEEPER = "batchledger housekeeping"


def audit_and_tell(pipeline: PipelineConfig, newest: int | None = None) -> LedgerAudit:
    """Audit a pipeline now, store the results, then send which incidents have begun and which are over.

    Raises what ``audit_pipeline`` raises; a channel that fails raises nothing.
    """
    audit = audit_pipeline(pipeline, datetime.now(UTC), newest)
    tell(build_alerting(pipeline), audit.findings, audit.audited_at)
    return audit


def audit_pipeline(pipeline: PipelineConfig, now: datetime, newest: int | None = None) -> LedgerAudit:
    """Prove a pipeline and look at what is going on; store the results, and return what people should know.

    ``newest`` limits the proof to what that many newest batches have published; 0 is the whole history, and None leaves
    it to the pipeline file. Raises ServiceUnavailableError if the ledger does not answer; if Kafka does not answer,
    that is a result.
    """
    # Importing Great Expectations takes seconds, which the other commands need not spend.
    from batchledger.checks.ledger import judge

    dsn, limits = ledger_dsn(pipeline), AuditLimits()
    platform, alerting = build_platform(pipeline), build_alerting(pipeline)
    coverage, questions = _ask_history(pipeline, platform.sink, pipeline.audit.newest if newest is None else newest)
    work = load_work(dsn, pipeline.name)
    questions.append(ask_open_batches(work.batches, now, limits))
    questions.append(ask_staging(work.tables, now, limits))
    # The ledger is read before the source. Otherwise a batch that is published in between would look like a loss.
    stored, health = alerting.incidents.load_facts(pipeline.name), survey(platform, now)
    shared = find_conditions(stored, health, alerting.deadlines, now)
    questions += ask_findings(shared, health, alerting.deadlines, now)
    checks = judge(questions)
    store_audit(dsn, pipeline.name, now, checks)
    findings = shared + find_own(pipeline.name, questions, checks, coverage)
    return LedgerAudit(pipeline.name, now, coverage, tuple(checks), findings, health)


def keep_house(*, is_dry_run: bool = False) -> list[Housekeeping]:
    """Remove what is left behind in ledger and sink of every pipeline file; a dry run only says what it would remove.

    A file that is refused is left out, and its quarantine stays whole. If a ledger or a sink fails, the others are done
    first. Raises ServiceUnavailableError; a sink also raises TargetChangedError, or ConfigurationError if its
    connection is wrong.
    """
    pipelines_by_dsn: dict[str, list[PipelineConfig]] = defaultdict(list)
    failures: list[BatchledgerError] = []
    for path in find_pipeline_files():
        try:
            pipeline = read_pipeline_file(path)
            pipelines_by_dsn[ledger_dsn(pipeline)].append(pipeline)
        except BatchledgerError as error:
            logger.warning("%s is left out: %s", path.stem, error)
    done = []
    for dsn, pipelines in pipelines_by_dsn.items():
        keeps = {each.name: each.quarantine.keep for each in pipelines if each.quarantine and each.quarantine.keep}
        try:
            kept = tidy(PostgresHousekeeping(dsn, is_dry_run), [each.name for each in pipelines], keeps)
        except BatchledgerError as error:
            failures.append(error)
            continue
        for pipeline in pipelines:
            try:
                sink = build_sink(pipeline, dsn)
                if pipeline.history.keep is not None and not has_freed_target(dsn, pipeline.name):
                    keep = timedelta(seconds=pipeline.history.keep)
                    kept = kept.and_also(join_history(PostgresHousekeeping(dsn, is_dry_run), pipeline.name, sink, keep))
                kept = kept.and_also(tidy_sink(sink, is_dry_run=is_dry_run))
            except BatchledgerError as error:
                logger.warning("history or sink of %s were not tidied: %s", pipeline.name, error)
                failures.append(error)
        done.append(kept)
    if failures:
        raise failures[0]
    return done


def tidy(
    house: PostgresHousekeeping,
    pipelines: Sequence[str],
    keep_seconds_by_pipeline: Mapping[str, float],
    keeping: Keeping | None = None,
) -> Housekeeping:
    """Remove what is left behind in one ledger by ``pipelines``, and by any other pipeline that has planned something.

    ``keep_seconds_by_pipeline`` says how long the quarantine of a pipeline keeps records.
    """
    kept, found = keeping or Keeping(), house.look()
    removals = house.drop_staging(find_orphaned(found.tables, found.now))
    # A pipeline can have audits and incidents before it first plans.
    for pipeline in sorted({*pipelines, *found.open_planned_at}):
        open_planned_at = found.open_planned_at.get(pipeline, ())
        removals.append(house.forget_keys(pipeline, choose_forgetting(found.now, open_planned_at)))
        if pipeline in keep_seconds_by_pipeline:
            keep = timedelta(seconds=keep_seconds_by_pipeline[pipeline])
            decision = Decision(HOUSEKEEPER, f"quarantine.keep: {describe_duration(keep)}")
            removals.append(house.drop_quarantined(pipeline, found.now - keep, decision))
        removals.append(house.strip_validations(pipeline, kept.validations))
        removals.append(house.forget_audits(pipeline, found.now - kept.audits, found.now - kept.passed_audits))
        removals.append(house.forget_incidents(pipeline, found.now - kept.incidents))
        removals.append(house.forget_texts(pipeline, found.now - kept.texts))
    return Housekeeping(
        tuple(pipelines),
        _log(removals, house.is_dry_run),
        tuple(each.name for each in found.tables if each.is_unknown),
    )


def join_history(
    house: PostgresHousekeeping, pipeline: str, sink: Sink, keep: timedelta, newest: int = MOST_COMPARED
) -> Housekeeping:
    """Join old batches of a pipeline that hold against their target; the ``newest`` stay, however old they are.

    What does not hold stays as it is, and is named. Raises UnsettledError if replays keep the proof from an end.
    """
    if (login := house.find_login_without_right()) is not None:
        why = (
            f"batches of {pipeline} were not joined: {login} may not delete them. The owner of the ledger can grant it"
        )
        return _log_result(Housekeeping(left_out=[f"{why}: grant {RIGHTS_TO_JOIN} to {login}"]), house.is_dry_run)
    left_out, joined, taken, is_complete = [], 0, 0, True
    for span in _walk_spans(house, pipeline, keep, newest):
        fault = None if house.is_dry_run else _find_fault(house.dsn, pipeline, sink, span)
        if fault is not None:
            # It stays, and is found again by each run. So it takes nothing of the bound from newer ones.
            left_out.append(fault)
            continue
        if house.is_dry_run or house.join(pipeline, keep, span):
            joined += len(span) - 1
        else:
            is_complete = False
        taken += len(span)
        if taken >= house.bounds[Leftover.BATCH].per_run:
            is_complete = False
            break
    removed = Removal(Leftover.BATCH, pipeline, joined, is_complete)
    return _log_result(Housekeeping(removals=[removed], left_out=left_out), house.is_dry_run)


def _walk_spans(house: PostgresHousekeeping, pipeline: str, keep: timedelta, newest: int) -> Iterator[tuple[int, ...]]:
    first = 0
    while spans := house.find_spans(pipeline, keep, newest, first):
        yield from spans
        first = spans[-1][-1] + 1


def _find_fault(dsn: str, pipeline: str, sink: Sink, span: tuple[int, ...]) -> str | None:
    """Say why a span is not made; None if its batches hold."""
    load = partial(load_published_history, dsn, pipeline, batches=span)
    found = prove_span(pipeline, load, partial(sink.count_target, pipeline))
    if found.holds:
        return None
    first = found.findings[0]
    return (
        f"batches {span[0]} to {span[-1]} of {pipeline} were not joined: {first.invariant}, {first.where}: "
        f"{first.detail}. See all: batchledger verify {pipeline}"
    )


def tidy_sink(sink: Sink, *, is_dry_run: bool) -> Housekeeping:
    """Remove what is left behind in a sink. Raises what the sink raises."""
    return _log_result(sink.tidy(is_dry_run=is_dry_run), is_dry_run)


def _log_result(done: Housekeeping, is_dry_run: bool) -> Housekeeping:
    for each in done.left_out:
        logger.warning("%s", each)
    return replace(done, removals=_log(done.removals, is_dry_run))


def _log(removals: Sequence[Removal], is_dry_run: bool) -> tuple[Removal, ...]:
    """Log what was removed; return only what a person should see."""
    for each in removals:
        if each.count:
            verb = "would remove" if is_dry_run else "removed"
            logger.info("%s %s of %s: %d", verb, each.kind, each.subject, each.count)
    return tuple(each for each in removals if each.count or not each.is_complete)


def _ask_history(pipeline: PipelineConfig, sink: Sink, newest: int | None) -> tuple[Coverage, list[Question]]:
    """Prove the whole history, or the part that the ``newest`` batches have published if there are more."""
    dsn, name = ledger_dsn(pipeline), pipeline.name
    # A target that was freed holds nothing that could be counted. The proof of the whole history leaves it out.
    since = find_window(dsn, name, newest) if newest and not has_freed_target(dsn, name) else None
    try:
        if since is None:
            return Coverage(), list(ask_proof(verify_pipeline(pipeline), Coverage()))
        window = NewestHistory(
            since, partial(load_published_history, dsn, name), partial(sink.count_target, name), pipeline.sink.sink_mode
        )
        verification = prove(name, window.load, window.count, pipeline.sink.sink_mode)
        return window.coverage, list(ask_proof(verification, window.coverage))
    except UnsettledError as error:
        return Coverage(since), list(leave_unproved(str(error)))
