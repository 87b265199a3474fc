"""A pipeline as a task group of a person's own DAG: plan, stage, audit, publish, and a report beside them.

The DAGs of pipeline files have the same steps (``add_steps``). Nothing heavy is imported here, because DAG files are
parsed through this module.
"""

from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow.sdk import TaskGroup, TriggerRule, XComArg, get_current_context, task, task_group

from batchledger.interfaces.airflow import lineage, links
from batchledger.interfaces.airflow.operators import BatchledgerOperator, Named, PublishOperator, is_known, report_run

if TYPE_CHECKING:
    from batchledger.config.pipeline_file import PipelineConfig


RETRIES = {"retries": 3, "retry_delay": timedelta(seconds=10), "retry_exponential_backoff": True}


class BatchledgerTaskGroup(TaskGroup):
    """``plan >> stage >> audit >> publish`` of a pipeline, for a DAG of one's own.

    ``pipeline`` is the name of a pipeline file, or a pipeline. With ``until_caught_up`` a further task takes what the
    batch left behind, batch by batch, and what follows the group waits for all of it. Without anything to do the tasks
    are skipped, and what follows by Airflow's rules, unless its own trigger rule says otherwise. ``settings`` are for
    Airflow's task group; its ``default_args``, or the DAG's, reach the tasks, which are tried three times more without.
    """

    def __init__(
        self, group_id: str, *, pipeline: "PipelineConfig | str", until_caught_up: bool = False, **settings: Any
    ) -> None:
        super().__init__(group_id, **settings)
        self.default_args = {**RETRIES, **(self.dag.default_args if self.has_dag() else {}), **self.default_args}
        with self:
            self.last = add_group(pipeline, until_caught_up)

    @property
    def batch(self) -> XComArg:
        """What the group has published: ids of batches, rows, ranges, and whether there was nothing to do."""
        return XComArg(self.last)


def expand_groups(group_id: str, *, pipeline: Sequence[str] | XComArg, **settings: Any) -> Any:
    """Return a mapped task group: the steps of each of these pipelines, whose names may come from another task.

    Names that another task gives are not known when the DAG is read. Then no asset has an event of their batches.
    """
    among = () if isinstance(pipeline, XComArg) else tuple(pipeline)

    @task_group(group_id=group_id, **settings)
    def pipelines(pipeline: Any) -> None:
        add_group(pipeline, among=among)

    return pipelines.expand(pipeline=pipeline)


def add_group(
    pipeline: Named, until_caught_up: bool = False, among: Sequence[str] = ()
) -> PublishOperator | BatchledgerOperator:
    """Add the steps to the task group that is open, and a report that nothing waits for; return the last step.

    ``among`` are the names that a mapped group is made of, as far as they are known.
    """
    last: PublishOperator | BatchledgerOperator = add_steps(pipeline, among=among)
    _run_after_a_skip(last)
    if until_caught_up:
        # In the place of the group, so that it counts what the group has published before it.
        place = last.task_id.rpartition(".")[0]
        rest = BatchledgerOperator(task_id="catch_up", pipeline=pipeline, until_caught_up=True, place=place)
        _run_after_a_skip(rest)
        last >> rest
        last = rest

    @task
    def report(name: Any = None) -> None:
        report_run(_tasks().load(name or pipeline), get_current_context())

    reported = report(*_given(pipeline))
    last >> reported
    lineage.silence_task(reported.operator)
    reported.as_teardown()
    return last


def _run_after_a_skip(step: PublishOperator | BatchledgerOperator) -> None:
    """Let a step say what there was to do, also if there was nothing. Airflow allows no such rule with fail_fast."""
    dag = step.get_dag()
    if dag is None or not dag.fail_fast:
        step.trigger_rule = TriggerRule.NONE_FAILED


def add_steps(pipeline: Named, **of_publish: Any) -> PublishOperator:
    """Add plan, stage, audit and publish to the DAG or the group that is open, as a chain; return the last."""
    given = _given(pipeline)

    @task
    def plan(name: Any = None) -> int:
        batch_id: int = _tasks().plan(_tasks().load(name or pipeline))
        return batch_id

    @task
    def stage(name: Any = None) -> None:
        _tasks().stage(_tasks().load(name or pipeline))

    @task
    def audit(name: Any = None) -> None:
        _tasks().audit(_tasks().load(name or pipeline))

    audited = audit(*given)
    audited.operator.operator_extra_links = (links.DataDocsLink(_name_of(pipeline) if is_known(pipeline) else None),)
    publish = (MappedPublishOperator if given else PublishOperator)(task_id="publish", pipeline=pipeline, **of_publish)
    planned, staged = plan(*given), stage(*given)
    for each in (planned, staged, audited):
        lineage.silence_task(each.operator)
    planned >> staged >> audited >> publish
    return publish


def _tasks() -> Any:
    """What the tasks do is imported where they run: this takes longer than Airflow takes to read the DAG."""
    from batchledger.interfaces.airflow import tasks

    return tasks


def _name_of(pipeline: "PipelineConfig | str") -> str:
    return pipeline if isinstance(pipeline, str) else pipeline.name


def _given(pipeline: Named) -> tuple[Any, ...]:
    """Return what the tasks have to get from Airflow when they run: the name of a pipeline in a mapped group."""
    return () if is_known(pipeline) else (pipeline,)


class MappedPublishOperator(PublishOperator):
    """Publishes in a mapped group, where Airflow fills in the name of the pipeline."""

    template_fields = ("pipeline",)
