"""The bodies of the Airflow tasks: one step of a batch each, and errors in Airflow's terms.

Tasks pass a batch id through XCom and nothing else. Fencing lives in the ledger: Airflow may run a task twice at the
same time, and every step here stays safe. Heavy imports happen inside the functions, because DAG files are parsed
through this module.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from airflow.providers.standard.operators.trigger_dagrun import TriggerDagRunOperator
from airflow.sdk import get_current_context
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from batchledger.errors import BatchledgerError, PipelinePausedError

if TYPE_CHECKING:
    from airflow.sdk import Context

    from batchledger.config import PipelineConfig


def plan(pipeline: "PipelineConfig") -> int:
    """Return the id of the batch to work on; skip the run when there is nothing to do, or the pipeline is paused."""
    from batchledger import run_batch
    from batchledger.wiring import build_platform

    with _in_airflow_terms():
        batch = run_batch.plan(build_platform(pipeline), _run())
    if batch is None:
        raise AirflowSkipException(f"{pipeline.name}: nothing to do, every readable record is published")
    return batch.batch_id


def stage(pipeline: "PipelineConfig", batch_id: int) -> int:
    """Fill the staging of a new attempt, over Spark Connect or by spark-submit."""
    from batchledger.wiring import build_platform, choose_stage_step

    with _in_airflow_terms():
        return choose_stage_step(pipeline)(build_platform(pipeline), batch_id, _run()).batch_id


def audit(pipeline: "PipelineConfig", batch_id: int) -> int:
    """Judge what was staged; a failing check blocks the batch and fails the task for good."""
    from batchledger import run_batch
    from batchledger.wiring import build_platform

    with _in_airflow_terms():
        return run_batch.audit(build_platform(pipeline), batch_id, _run()).batch_id


def publish(pipeline: "PipelineConfig", batch_id: int) -> int:
    """Make rows and offsets visible together."""
    from batchledger import run_batch
    from batchledger.wiring import build_platform

    with _in_airflow_terms():
        return run_batch.publish(build_platform(pipeline), batch_id, _run()).batch_id


def fail(error: BatchledgerError) -> None:
    """Fail the task with a refused pipeline file's own message."""
    raise AirflowFailException(str(error)) from error


class CatchUpOperator(TriggerDagRunOperator):
    """Start the pipeline's next run when the batch left records behind; skip otherwise."""

    template_fields = (*TriggerDagRunOperator.template_fields, "batch_id")

    def __init__(self, *, pipeline: "PipelineConfig", batch_id: Any, **settings: Any) -> None:
        super().__init__(trigger_dag_id=pipeline.name, logical_date=None, **settings)
        self.pipeline = pipeline
        self.batch_id = batch_id

    def execute(self, context: "Context") -> None:
        """Look up what the plan of the batch left behind."""
        from batchledger.wiring import build_platform

        with _in_airflow_terms():
            left = build_platform(self.pipeline).ledger.load_batch(int(self.batch_id)).lag_left_records
        if left == 0:
            raise AirflowSkipException("the batch took everything that was readable")
        self.log.info("%d records were left behind; the next run starts now", left)
        super().execute(context)


def _run() -> str:
    """The name under which the ledger knows this DAG run."""
    return str(get_current_context()["dag_run"].run_id)


@contextmanager
def _in_airflow_terms() -> Iterator[None]:
    """Let Airflow retry what may succeed later, and nothing else; the runs of a paused pipeline are skipped."""
    try:
        yield
    except PipelinePausedError as error:
        raise AirflowSkipException(str(error)) from error
    except BatchledgerError as error:
        if error.retryable:
            raise
        raise AirflowFailException(str(error)) from error
