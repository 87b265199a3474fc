"""What the Airflow tasks do: one step of a batch each, or all of them, and errors in Airflow's terms.

The plan task leaves the id of its batch as an XCom, and every other task asks for that one alone. Fencing lives in the
ledger: Airflow may run a task twice at the same time, and every step here stays safe. Heavy imports happen inside the
functions, because DAG files are parsed through this module.
"""

import logging
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from airflow.sdk import get_current_context
from airflow.sdk.exceptions import AirflowFailException

from batchledger.interfaces.airflow.batch_of_run import find_gates, find_marked, find_present_place, require_batch
from batchledger.interfaces.airflow.pushed_metrics import push_metrics
from batchledger.interfaces.airflow.terms import in_airflow_terms, skip_run
from batchledger.interfaces.airflow.tracing import PLAN, tell_batch, trace_part, trace_step
from batchledger.interfaces.trigger_form import OF_PIPELINE, RunFacts, find_own_order, read_request
from batchledger.interfaces.wording import WORDS_BY_OUTCOME
from batchledger.lifecycle.orders import CatchUp, Request, Retake
from batchledger.model.batch import BatchState, Lane, Step
from batchledger.model.checks import describe_outcomes
from batchledger.model.counting import describe_count
from batchledger.model.errors import BatchledgerError, ConfigurationError, PipelinePausedError
from batchledger.model.runs import HOST_TAG

if TYPE_CHECKING:
    from airflow.sdk.types import DagRunProtocol

    from batchledger.config.pipeline_file import PipelineConfig
    from batchledger.lifecycle.platform import Platform, StageStep
    from batchledger.model.batch import Batch, Decision
    from batchledger.model.published import PublishedBatch
    from batchledger.planning.replay import Replay

logger = logging.getLogger(__name__)

# The type of a run says it, never its id: a scheduled run that a backfill takes again is still called scheduled__….
BACKFILL = "backfill"


def plan(pipeline: "PipelineConfig") -> int:
    """Return the id of the batch that the run is asked to work on; skip the run when there is nothing to do.

    While the pipeline is paused, or another run is at work on that batch, a run that only catches up is skipped too;
    any other order fails, so that nothing that was asked for looks done. A dry run ends here: what follows is skipped.
    A form that was filled in wrongly is refused before anything heavy is imported or opened.
    """
    with trace_step(PLAN, pipeline.name) as span:
        with in_airflow_terms():
            asked = _read_request(pipeline)
        from batchledger.database.sessions import keep_connections

        with in_airflow_terms(asked), keep_connections():
            batch = _plan(pipeline, asked)
        tell_batch(span, batch)
    return batch.batch_id


def stage(pipeline: "PipelineConfig") -> None:
    """Fill the staging of a new attempt, over Spark Connect or by spark-submit.

    If nothing but the audit stands before the publication, rows may stream into the target in one write: then this task
    has done the work of all. A batch that another run is at work on ends it as it ends ``plan``.
    """
    with in_airflow_terms():
        asked, batch_id = _read_request(pipeline), require_batch(pipeline)
    with trace_step(Step.STAGE, pipeline.name, batch_id) as span:
        from batchledger.database.sessions import keep_connections

        with in_airflow_terms(asked), keep_connections():
            platform = replace(_build_traced(pipeline), find_gate=lambda: ", ".join(find_gates()) or find_marked())
            batch = _stage_step(pipeline)(platform, batch_id, _run(pipeline))
        tell_batch(span, batch)


def audit(pipeline: "PipelineConfig") -> None:
    """Judge what was staged; a failing check blocks the batch and fails the task for good."""
    with in_airflow_terms():
        batch_id = require_batch(pipeline)
    with trace_step(Step.AUDIT, pipeline.name, batch_id) as span:
        from batchledger.database.sessions import keep_connections
        from batchledger.lifecycle import run_batch

        with in_airflow_terms(), keep_connections():
            batch = run_batch.audit(_build_traced(pipeline), batch_id, _run(pipeline), _stage_step(pipeline))
            if batch.state is BatchState.PUBLISHED:
                _tell_what_is_done(pipeline, batch)
        tell_batch(span, batch)


def publish(pipeline: "PipelineConfig", batch_id: int) -> "tuple[Batch, PublishedBatch | None]":
    """Make a batch visible, and return it with what there is to say of it; None if no rows of it are there.

    Whatever is wrong after the commit is tried again by Airflow, so that a person has time to mend it.
    """
    from batchledger.database.sessions import keep_connections
    from batchledger.lifecycle import run_batch

    with in_airflow_terms(), keep_connections():
        platform = _build_traced(pipeline)
        batch = run_batch.publish(platform, batch_id, _run(pipeline), _stage_step(pipeline))
        has_rows = platform.ledger.has_rows(batch_id)
    return batch, _describe(pipeline, batch) if has_rows else None


def take_next(pipeline: "PipelineConfig") -> "tuple[Batch, PublishedBatch | None]":
    """Take a batch through all its steps, and return it as ``publish`` does; skip the run as ``plan`` does."""
    with in_airflow_terms():
        asked = _read_request(pipeline)
    from batchledger.database.sessions import keep_connections
    from batchledger.lifecycle import run_batch

    with in_airflow_terms(asked), keep_connections():
        planned, platform = _plan(pipeline, asked), _build_traced(pipeline)
        batch = run_batch.take_through(platform, planned.batch_id, _run(pipeline), _stage_step(pipeline))
        has_rows = platform.ledger.has_rows(batch.batch_id)
    return batch, _describe(pipeline, batch) if has_rows else None


def list_taken(pipeline: "PipelineConfig") -> "list[PublishedBatch]":
    """Return what this run has published already: in an earlier try of its task, or before a person cleared it."""
    from batchledger.books.overview import list_batches_of_run
    from batchledger.database.sessions import keep_connections
    from batchledger.interfaces.published import describe_published
    from batchledger.looking import ledger_dsn

    with in_airflow_terms(), keep_connections():
        taken = list_batches_of_run(ledger_dsn(pipeline), pipeline.name, _run(pipeline))
        return [describe_published(pipeline, each) for each in taken]


def explain_what_is_left(pipeline: "PipelineConfig", batch: "Batch") -> str | None:
    """Return why no further batch follows this one; None if records were left behind, which the next one takes.

    A replay, or a run for one batch, leaves them to others.
    """
    if batch.lane is not Lane.LIVE:
        return "a replay moves no position, so there is nothing to go on with"
    if batch.state is not BatchState.PUBLISHED:
        return f"{batch.label} is {batch.state}, and not visible, so there is nothing to go on with"
    left = batch.lag_left_records
    if left == 0:
        return f"{batch.label} took everything that was readable"
    with in_airflow_terms():
        order = _read_request(pipeline).order
    if isinstance(order, CatchUp) and order.max_records is not None:
        waits = describe_count(left, "record waits", "records wait")
        return f"one batch was asked for; {waits} for the next run"
    return None


def may_take_more(pipeline: "PipelineConfig") -> bool:
    """Return whether this run takes whatever is there; one that was asked for a batch or a replay takes that alone."""
    with in_airflow_terms():
        order = _read_request(pipeline).order
    return isinstance(order, CatchUp) and order.max_records is None


def load_present_batch(pipeline: "PipelineConfig") -> "Batch":
    """Return the batch of this run as the ledger has it."""
    from batchledger.wiring import build_platform

    with in_airflow_terms():
        return build_platform(pipeline).ledger.load_batch(require_batch(pipeline))


def load(pipeline: "PipelineConfig | str") -> "PipelineConfig":
    """Return the pipeline of a name, which a DAG may give instead of the pipeline; of one in Python, its file."""
    from batchledger.config.pipeline_file import load_pipeline
    from batchledger.config.python_pipelines import Pipeline, load_file

    with in_airflow_terms():
        if isinstance(pipeline, Pipeline):
            return load_file(pipeline, get_current_context()["dag"].fileloc)
        return load_pipeline(pipeline) if isinstance(pipeline, str) else pipeline


def audit_ledger(name: str, newest: int | None = None) -> None:
    """Prove a pipeline and look at what is going on; fail for good if something was found.

    Results are stored and alerts are sent before that. ``newest`` as for ``upkeep.audit_pipeline``. The file is read
    here, so that a refused one fails this task alone.
    """
    from batchledger.config.pipeline_file import load_pipeline
    from batchledger.interfaces.upkeep import audit_and_tell

    with in_airflow_terms():
        pipeline = load_pipeline(name)
        audit = audit_and_tell(pipeline, newest)
        push_metrics(pipeline, audit.health)
    for line in audit.coverage.describe_unproved():
        logger.info("not proved: %s", line)
    for check in audit.checks:
        logger.info("%s %s: %s", WORDS_BY_OUTCOME[check.outcome], check.name, check.detail)
    if audit.failed:
        found = "; ".join(f"{each.name}: {each.detail}" for each in audit.failed)
        raise AirflowFailException(
            f"{name}: {len(audit.failed)} of {describe_count(len(audit.checks), 'check')} not passed. {found}"
        )


def keep_house() -> None:
    """Remove what is left behind in the ledgers of all pipelines; the log says what."""
    from batchledger.interfaces.upkeep import keep_house

    with in_airflow_terms():
        keep_house()


def report(pipeline: "PipelineConfig") -> None:
    """Tell people what has begun and what is over. The batch is as it was, whatever becomes of a channel."""
    from batchledger.database.sessions import keep_connections
    from batchledger.monitoring import alerting
    from batchledger.wiring import build_alerting, build_platform

    with in_airflow_terms(), keep_connections():
        found = alerting.report(partial(build_platform, pipeline), build_alerting(pipeline))
        push_metrics(pipeline, found.health)
    settled = found.told.settlement
    logger.info("incidents that began: %d, that are over: %d", len(settled.opened), len(settled.ended))


def write_docs() -> None:
    """Bring Data Docs of all pipelines up to date, and fail if that was not possible for one of them.

    It takes all pipelines, not the one that has reported: reports that come while a run waits have no run of their own.
    Pages without a change cost next to nothing. A refused file is left out; its own DAG says why.
    """
    from batchledger.interfaces.data_docs.site import build_all_docs

    _, failures = build_all_docs()
    with in_airflow_terms():
        for error in failures.values():
            if not isinstance(error, ConfigurationError):
                raise error


def _describe(pipeline: "PipelineConfig", batch: "Batch") -> "PublishedBatch":
    from batchledger.database.sessions import keep_connections
    from batchledger.interfaces.published import describe_published

    with keep_connections():
        return describe_published(pipeline, batch.batch_id)


def _build_traced(pipeline: "PipelineConfig") -> "Platform":
    from batchledger.wiring import build_platform

    return replace(build_platform(pipeline), trace=trace_part)


def _tell_what_is_done(pipeline: "PipelineConfig", batch: "Batch") -> None:
    """Log what the steps of a published batch have found, and how long each took: this task finds its work done."""
    from batchledger.books.history import load_batch_history
    from batchledger.interfaces.batch_view import list_steps
    from batchledger.looking import ledger_dsn

    try:
        history = load_batch_history(ledger_dsn(pipeline), batch.batch_id)
    except BatchledgerError as error:
        logger.warning("%s is published already; what its steps have found could not be read: %s", batch.label, error)
        return
    took = ", ".join(f"{each.name} {each.seconds or 0:.1f} s" for each in list_steps(history.attempts[-1]))
    logger.info("%s is published already, %s: %s", batch.label, took, describe_outcomes(history.checks))
    for each in history.checks:
        logger.info("%s %s: %s", WORDS_BY_OUTCOME[each.outcome], each.name, each.detail)


def _stage_step(pipeline: "PipelineConfig") -> "StageStep":
    """Return what stages a batch; only then is the connection of Spark looked up."""
    from batchledger.wiring import choose_stage_step

    def stage_batch(platform: "Platform", batch_id: int, run: str) -> "Batch":
        return choose_stage_step(pipeline)(platform, batch_id, run)

    return stage_batch


def _plan(pipeline: "PipelineConfig", asked: Request) -> "Batch":
    """Return the batch to work on; skip the run when there is none."""
    from batchledger.lifecycle import plans
    from batchledger.lifecycle.at_work import hand_on

    platform, run = _build_traced(pipeline), _run(pipeline)
    batch: Batch | None
    match asked.order:
        case CatchUp(max_records):
            batch = _plan_live(platform, run, max_records, asked.decision)
        case Retake(batch_id):
            batch = plans.retake(platform, batch_id, run, asked.by)
        case replay if asked.is_dry_run:
            _rehearse(pipeline, platform, replay, asked.by)
            batch = None
        case replay:
            batch = plans.plan_replay(platform, replay, run, asked.by, asked.key)
    if batch is None:
        raise skip_run(f"{pipeline.name}: nothing to do, no record is left in what the run was asked to publish again")
    # The stage step may have to wait for a slot.
    hand_on(platform, batch.batch_id, run)
    return batch


def _plan_live(platform: "Platform", run: str, max_records: int | None, decision: "Decision | None") -> "Batch":
    """Return the live batch to work on; skip the run when there is none, and say what waits."""
    from batchledger.lifecycle import plans
    from batchledger.planning.live import Plan, describe_idle

    try:
        found = plans.plan_or_idle(platform, run, max_records=max_records, decision=decision)
    except PipelinePausedError as error:
        if max_records is not None:
            raise
        raise skip_run(str(error)) from error
    if isinstance(found, Plan):
        idle = describe_idle(found, platform.rules.limits)
        raise skip_run(f"{platform.rules.name}: nothing to do, {idle}")
    return found


def _rehearse(pipeline: "PipelineConfig", platform: "Platform", replay: "Replay", decision: "Decision") -> None:
    """Write what a replay would change to the log, and skip the run; return when there is nothing to publish again."""
    from batchledger.lifecycle.dry_run import describe_dry_run, dry_run_replay
    from batchledger.wiring import choose_stage_step

    found = dry_run_replay(platform, replay, _run(pipeline), decision, choose_stage_step(pipeline))
    if found is None:
        return
    for line in describe_dry_run(found, platform.decisions.load_balances(found.batch.batch_id)):
        logger.info("%s", line)
    if found.objections:
        raise AirflowFailException(f"{pipeline.name}: it would not be published: {'; '.join(found.words)}")
    raise skip_run(f"{pipeline.name}: a dry run, nothing was published")


def _read_request(pipeline: "PipelineConfig") -> Request:
    """Read the run's configuration itself, not params: a setting of Airflow lets params ignore it, unnoticed.

    In another DAG than the one of the pipeline file, the configuration is the person's, and ours is one key of it. The
    run is skipped here if it is asked for another pipeline.
    """
    dag_run, place = get_current_context()["dag_run"], find_present_place()
    given: Any = dag_run.conf or {}
    if place.name_for(pipeline.name) != dag_run.run_id:
        given = find_own_order(given)
    asked = str(given.get(OF_PIPELINE, pipeline.name))
    if asked != pipeline.name:
        _require_in_dag(asked)
        raise skip_run(f"{pipeline.name}: nothing to do, the run is asked for {asked} alone")
    return read_request(given, _read_facts(dag_run), pipeline.source.topics)


def _require_in_dag(name: str) -> None:
    """Refuse an order for a pipeline that is not there: all groups would be skipped, and the run be green."""
    load(name)
    dag = get_current_context()["dag"]
    if HOST_TAG + name not in dag.tags:
        raise ConfigurationError(
            f"{name} does not stand in the DAG {dag.dag_id}, so the run that is asked for it does nothing.",
            advice=f"Start a DAG that has the tag {HOST_TAG}{name}.",
            subject=OF_PIPELINE,
        )


def _read_facts(dag_run: "DagRunProtocol") -> RunFacts:
    start, end = dag_run.data_interval_start, dag_run.data_interval_end
    return RunFacts(
        run_id=dag_run.run_id,
        is_backfill=dag_run.run_type == BACKFILL,
        interval=None if start is None or end is None else (start, end),
        times_cleared=dag_run.clear_number or 0,
        created_by=dag_run.triggering_user_name,
        started_at=dag_run.start_date,
    )


def _run(pipeline: "PipelineConfig") -> str:
    """The name under which the ledger knows this DAG run, with the group of the task in another DAG."""
    return find_present_place().name_for(pipeline.name)
