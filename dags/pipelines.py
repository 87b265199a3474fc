"""One DAG per pipeline file: plan, stage, audit, publish, report, and the next run when records were left behind."""

from datetime import timedelta
from pathlib import Path

from airflow.sdk import DAG, dag, get_parsing_context, task

from batchledger.config.pipeline_file import PipelineConfig, find_pipeline_files, name_in_airflow, read_pipeline_file
from batchledger.interfaces.airflow import links, tasks, triggers
from batchledger.model.errors import ConfigurationError

RETRIES = {"retries": 3, "retry_delay": timedelta(seconds=10), "retry_exponential_backoff": True}


def build_dag(pipeline: PipelineConfig) -> DAG:
    """The life of a batch as an Airflow graph."""

    @dag(
        dag_id=pipeline.name,
        schedule=triggers.choose_timetable(pipeline.schedule),
        params=triggers.make_form(),
        catchup=False,
        max_active_runs=1,
        default_args=RETRIES,
        tags=["batchledger"],
        description=f"{', '.join(pipeline.source.topics)} → {pipeline.sink.target}, {pipeline.delivery}",
    )
    def life_of_a_batch() -> None:
        @task
        def plan() -> int:
            return tasks.plan(pipeline)

        @task
        def stage(batch_id: int) -> int:
            return tasks.stage(pipeline, batch_id)

        @task
        def audit(batch_id: int) -> int:
            return tasks.audit(pipeline, batch_id)

        @task
        def publish(batch_id: int) -> int:
            return tasks.publish(pipeline, batch_id)

        @task(trigger_rule="all_done", outlets=[tasks.REPORTS])
        def report() -> None:
            tasks.report(pipeline)

        audited = audit(stage(plan()))
        audited.operator.operator_extra_links = (links.DataDocsLink(),)
        published = publish(audited)
        tasks.CatchUpOperator(task_id="catch_up", pipeline=pipeline, batch_id=published)
        published >> report()

    return life_of_a_batch()


def build_refused_dag(dag_id: str, error: ConfigurationError) -> DAG:
    """Show a refused file where people look for its pipeline, without taking the other pipelines down."""

    @dag(dag_id=dag_id, schedule=None, tags=["batchledger", "refused"], doc_md=f"Refused:\n```\n{error}\n```")
    def refused() -> None:
        @task
        def plan() -> None:
            tasks.fail(error)

        plan()

    return refused()


def build_dags() -> dict[str, DAG]:
    """A DAG for each file; a task needs its own only, and with 500 files building all of them took it 2.7 s."""
    wanted = get_parsing_context().dag_id
    # Only the name of a refused file can differ from its id, and shall not take the place of a pipeline.
    paths = sorted(find_pipeline_files(), key=lambda path: name_in_airflow(path) == path.stem)
    path_by_id = {name_in_airflow(path): path for path in paths}
    return {dag_id: build_any_dag(dag_id, path) for dag_id, path in path_by_id.items() if wanted in (None, dag_id)}


def build_any_dag(dag_id: str, path: Path) -> DAG:
    """The pipeline of the file, or its refusal."""
    try:
        return build_dag(read_pipeline_file(path))
    except ConfigurationError as error:
        return build_refused_dag(dag_id, error)


globals().update({f"dag_{dag_id}": each for dag_id, each in build_dags().items()})
