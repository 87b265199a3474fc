"""The tasks of the DAG of a pipeline file that start another run: the pipeline's next one, and the one of Data Docs.

Airflow's operator for that takes a quarter of a second to be imported, which a DAG of one's own does without.
"""

from typing import TYPE_CHECKING, Any

from airflow.providers.standard.operators.trigger_dagrun import TriggerDagRunOperator
from airflow.sdk import DagRunState
from typing_extensions import override

from batchledger.interfaces.airflow import tasks, terms
from batchledger.interfaces.airflow.operators import report_run

if TYPE_CHECKING:
    from airflow.sdk import Context

    from batchledger.config.pipeline_file import PipelineConfig


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
        report_run(self.pipeline, context)
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
        """Look up what the plan of the batch left behind."""
        batch = tasks.load_present_batch(self.pipeline)
        reason = tasks.explain_what_is_left(self.pipeline, batch)
        if reason is not None:
            raise terms.skip(reason)
        self.log.info("%d records were left behind; the next run starts now", batch.lag_left_records)
        super().execute(context)
