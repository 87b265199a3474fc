"""The bodies of the Airflow tasks: one step of a batch each, and errors in Airflow's terms.

The plan task leaves the id of its batch as an XCom, and every other task asks for that one alone. Fencing lives in the
ledger: Airflow may run a task twice at the same time, and every step here stays safe. Heavy imports happen inside the
functions, because DAG files are parsed through this module.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from airflow.providers.standard.operators.trigger_dagrun import TriggerDagRunOperator
from airflow.sdk import BaseOperator, DagRunState, get_current_context
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException
from typing_extensions import override

from batchledger.interfaces.airflow import assets, lineage
from batchledger.interfaces.airflow.batch_of_run import NOTE, describe_present_run, require_batch
from batchledger.interfaces.airflow.pushed_metrics import push_metrics
from batchledger.interfaces.airflow.tracing import PLAN, tell_batch, tell_published, trace_part, trace_step
from batchledger.interfaces.trigger_form import RunFacts, read_request
from batchledger.interfaces.wording import WORDS_BY_OUTCOME
from batchledger.lifecycle.orders import CatchUp, Request, Retake
from batchledger.model.batch import BatchState, Lane, Step
from batchledger.model.counting import describe_count
from batchledger.model.errors import AtWorkError, BatchledgerError, ConfigurationError, PipelinePausedError

if TYPE_CHECKING:
    from airflow.providers.openlineage.extractors import OperatorLineage
    from airflow.sdk import Context
    from airflow.sdk.types import DagRunProtocol, RuntimeTaskInstanceProtocol
    from opentelemetry.trace import Span

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
        with _in_airflow_terms():
            asked = _read_request(pipeline)
        from batchledger.database.sessions import keep_connections

        with _in_airflow_terms(asked), keep_connections():
            batch = _plan(pipeline, asked)
        if batch is None:
            raise _skip(f"{pipeline.name}: nothing to do, no record is left in what the run was asked to publish again")
        tell_batch(span, batch)
    return batch.batch_id


def stage(pipeline: "PipelineConfig") -> None:
    """Fill the staging of a new attempt, over Spark Connect or by spark-submit.

    A batch that another run is at work on ends it as it ends ``plan``.
    """
    with _in_airflow_terms():
        asked, batch_id = _read_request(pipeline), require_batch(pipeline)
    with trace_step(Step.STAGE, pipeline.name, batch_id) as span:
        from batchledger.database.sessions import keep_connections

        with _in_airflow_terms(asked), keep_connections():
            batch = _stage_step(pipeline)(_build_traced(pipeline), batch_id, _run())
        tell_batch(span, batch)


def audit(pipeline: "PipelineConfig") -> None:
    """Judge what was staged; a failing check blocks the batch and fails the task for good."""
    with _in_airflow_terms():
        batch_id = require_batch(pipeline)
    with trace_step(Step.AUDIT, pipeline.name, batch_id) as span:
        from batchledger.database.sessions import keep_connections
        from batchledger.lifecycle import run_batch

        with _in_airflow_terms(), keep_connections():
            batch = run_batch.audit(_build_traced(pipeline), batch_id, _run(), _stage_step(pipeline))
        tell_batch(span, batch)


def audit_ledger(name: str, newest: int | None = None) -> None:
    """Prove a pipeline and look at what is going on; fail for good if something was found.

    Results are stored and alerts are sent before that. ``newest`` as for ``upkeep.audit_pipeline``. The file is read
    here, so that a refused one fails this task alone.
    """
    from batchledger.config.pipeline_file import load_pipeline
    from batchledger.interfaces.upkeep import audit_and_tell

    with _in_airflow_terms():
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

    with _in_airflow_terms():
        keep_house()


def report(pipeline: "PipelineConfig") -> None:
    """Tell people what has begun and what is over. The batch is as it was, whatever becomes of a channel."""
    from batchledger.database.sessions import keep_connections
    from batchledger.monitoring import alerting
    from batchledger.wiring import build_alerting, build_platform

    with _in_airflow_terms(), keep_connections():
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
    with _in_airflow_terms():
        for error in failures.values():
            if not isinstance(error, ConfigurationError):
                raise error


def fail(error: BatchledgerError) -> None:
    """Fail the task with a refused pipeline file's own message."""
    raise AirflowFailException(str(error)) from error


class PublishOperator(BaseOperator):
    """Make rows and offsets visible together; the target's asset then has one event of the batch."""

    def __init__(self, *, pipeline: "PipelineConfig", **settings: Any) -> None:
        target = assets.name_target(pipeline)
        super().__init__(inlets=assets.name_sources(pipeline), outlets=[target], **settings)
        self.pipeline = pipeline
        self.target = target
        self.published: PublishedBatch | None = None

    @override
    def execute(self, context: "Context") -> None:
        """Publish the batch of the run."""
        with _in_airflow_terms():
            batch_id = require_batch(self.pipeline)
        with trace_step(Step.PUBLISH, self.pipeline.name, batch_id) as span:
            self._publish(context, batch_id, span)

    def _publish(self, context: "Context", batch_id: int, span: "Span") -> None:
        from batchledger.database.sessions import keep_connections
        from batchledger.interfaces.published import describe_published
        from batchledger.lifecycle import run_batch

        with _in_airflow_terms(), keep_connections():
            platform = _build_traced(self.pipeline)
            batch = run_batch.publish(platform, batch_id, _run(), _stage_step(self.pipeline))
            tell_batch(span, batch)
            if not platform.ledger.has_rows(batch.batch_id):
                # at_most_once has lost them, or another process is about to commit them.
                self.log.warning("%s has no rows, so it has no event", batch.label)
                return
        # The batch is published. Whatever is wrong here is tried again, so that a person has time to mend it.
        with keep_connections():
            self.published = describe_published(self.pipeline, batch.batch_id)
        tell_published(span, self.published)
        if not assets.announce(context, self.target, self.published):
            self.log.info("the event of %s is there already, from an earlier try of this task", batch.label)
        lineage.let_through(self)

    def get_openlineage_facets_on_complete(
        self, ti: "RuntimeTaskInstanceProtocol"
    ) -> "OperatorLineage[Any, Any] | None":
        """Return what OpenLineage hears of the batch. Airflow's provider calls it when the task has ended."""
        from batchledger.interfaces.airflow.lineage_facets import describe_lineage, send_start

        send_start(ti)
        return None if self.published is None else describe_lineage(self.published)


class ReportOperator(TriggerDagRunOperator):
    """Tell people what has begun and what is over, then start the run that brings Data Docs up to date.

    A run that waits already looks at the ledger after this report, so it does that for this one, too.
    """

    # The link to the run that was started would log an error if none was.
    operator_extra_links = []  # noqa: RUF012 (as Airflow declares it)

    def __init__(self, *, pipeline: "PipelineConfig", **settings: Any) -> None:
        # Otherwise the provider writes the parent in lineage into the configuration of the run.
        super().__init__(logical_date=None, openlineage_inject_parent_info=False, **settings)
        self.pipeline = pipeline

    @override
    def execute(self, context: "Context") -> None:
        """Report, and start the run. Airflow knows it before this task is over."""
        report(self.pipeline)
        with _in_airflow_terms():
            note = describe_present_run(self.pipeline)
        if note:
            self.log.info("%s", note)
            context["ti"].xcom_push(key=NOTE, value=note)
        if context["ti"].get_dr_count(dag_id=self.trigger_dag_id, states=[DagRunState.QUEUED.value]):
            self.log.info("a run of %s waits already", self.trigger_dag_id)
            return
        super().execute(context)


class CatchUpOperator(TriggerDagRunOperator):
    """Start the pipeline's next run when the batch left records behind; skip otherwise."""

    def __init__(self, *, pipeline: "PipelineConfig", **settings: Any) -> None:
        super().__init__(
            trigger_dag_id=pipeline.name, logical_date=None, openlineage_inject_parent_info=False, **settings
        )
        self.pipeline = pipeline

    @override
    def execute(self, context: "Context") -> None:
        """Look up what the plan of the batch left behind; a replay, or a run for one batch, leaves that to others."""
        from batchledger.wiring import build_platform

        with _in_airflow_terms():
            batch = build_platform(self.pipeline).ledger.load_batch(require_batch(self.pipeline))
            order = _read_request(self.pipeline).order
        if batch.lane is not Lane.LIVE:
            raise _skip("a replay moves no position, so there is nothing to go on with")
        if batch.state is not BatchState.PUBLISHED:
            raise _skip(f"{batch.label} is {batch.state}, and not visible, so there is nothing to go on with")
        left = batch.lag_left_records
        if left == 0:
            raise _skip(f"{batch.label} took everything that was readable")
        if isinstance(order, CatchUp) and order.max_records is not None:
            waits = describe_count(left, "record waits", "records wait")
            raise _skip(f"one batch was asked for; {waits} for the next run")
        self.log.info("%d records were left behind; the next run starts now", left)
        super().execute(context)


def _skip(reason: str) -> AirflowSkipException:
    """Return what ends a task as skipped, and say why in its log: Airflow does not show its own reason there."""
    logger.info("%s", reason)
    return AirflowSkipException(reason)


def _build_traced(pipeline: "PipelineConfig") -> "Platform":
    from batchledger.wiring import build_platform

    return replace(build_platform(pipeline), trace=trace_part)


def _stage_step(pipeline: "PipelineConfig") -> "StageStep":
    """Return what stages a batch; only then is the connection of Spark looked up."""
    from batchledger.wiring import choose_stage_step

    def stage_batch(platform: "Platform", batch_id: int, run: str) -> "Batch":
        return choose_stage_step(pipeline)(platform, batch_id, run)

    return stage_batch


def _plan(pipeline: "PipelineConfig", asked: Request) -> "Batch | None":
    from batchledger.lifecycle import plans
    from batchledger.lifecycle.at_work import hand_on

    platform = _build_traced(pipeline)
    batch: Batch | None
    match asked.order:
        case CatchUp(max_records):
            batch = _plan_live(platform, max_records, asked.decision)
        case Retake(batch_id):
            batch = plans.retake(platform, batch_id, _run(), asked.by)
        case replay if asked.is_dry_run:
            _rehearse(pipeline, platform, replay, asked.by)
            return None
        case replay:
            batch = plans.plan_replay(platform, replay, _run(), asked.by, asked.key)
    if batch is not None:
        # The stage step may have to wait for a slot.
        hand_on(platform, batch.batch_id, _run())
    return batch


def _plan_live(platform: "Platform", max_records: int | None, decision: "Decision | None") -> "Batch":
    """Return the live batch to work on; skip the run when there is none, and say what waits."""
    from batchledger.lifecycle import plans
    from batchledger.planning.live import Plan, describe_idle

    try:
        found = plans.plan_or_idle(platform, _run(), max_records=max_records, decision=decision)
    except PipelinePausedError as error:
        if max_records is not None:
            raise
        raise _skip(str(error)) from error
    if isinstance(found, Plan):
        idle = describe_idle(found, platform.rules.limits)
        raise _skip(f"{platform.rules.name}: nothing to do, {idle}")
    return found


def _rehearse(pipeline: "PipelineConfig", platform: "Platform", replay: "Replay", decision: "Decision") -> None:
    """Write what a replay would change to the log, and end the task; return when there is nothing to publish again."""
    from batchledger.lifecycle.dry_run import describe_dry_run, dry_run_replay
    from batchledger.wiring import choose_stage_step

    found = dry_run_replay(platform, replay, _run(), decision, choose_stage_step(pipeline))
    if found is None:
        return
    for line in describe_dry_run(found, platform.decisions.load_balances(found.batch.batch_id)):
        logger.info("%s", line)
    if found.objections:
        raise AirflowFailException(f"{pipeline.name}: it would not be published: {'; '.join(found.words)}")
    raise _skip(f"{pipeline.name}: a dry run, nothing was published")


def _read_request(pipeline: "PipelineConfig") -> Request:
    """Read the run's configuration itself, not params: a setting of Airflow lets params ignore it, unnoticed."""
    dag_run = _dag_run()
    return read_request(dag_run.conf or {}, _read_facts(dag_run), pipeline.source.topics)


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


def _dag_run() -> "DagRunProtocol":
    return get_current_context()["dag_run"]


def _run() -> str:
    """The name under which the ledger knows this DAG run."""
    return _dag_run().run_id


@contextmanager
def _in_airflow_terms(asked: Request | None = None) -> Iterator[None]:
    """Let Airflow retry what may succeed later, and nothing else; skip what another run does as well.

    The log of a task shows the causes of an error, too. A cause may quote a row, so none is left.
    """
    try:
        yield
    except BatchledgerError as error:
        error.__cause__, error.__suppress_context__ = None, True
        if isinstance(error, AtWorkError) and asked is not None and asked.is_catching_up:
            raise _skip(str(error)) from error
        if error.retryable:
            raise
        raise AirflowFailException(str(error)) from error
