"""All DAGs: one for each pipeline file and each watch file, and three for upkeep.

The DAG of a pipeline: plan, stage, audit, publish, report, and the next run if records were left behind. A DAG file
imports this module, so nothing heavy is imported here.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from airflow.sdk import DAG, dag, get_parsing_context, task
from airflow.sdk.exceptions import AirflowException

from batchledger.config.dags import check_tag
from batchledger.config.pipeline_file import (
    PipelineConfig,
    find_files,
    is_watch_file,
    name_in_airflow,
    read_pipeline_file,
)
from batchledger.interfaces.airflow import further_runs, lineage, operators, terms, triggers, upkeep_dags
from batchledger.interfaces.airflow.task_group import RETRIES, add_steps
from batchledger.model.errors import ConfigurationError
from batchledger.model.runs import FILE_TAG


def build_dags(default_args: Mapping[str, Any] | None = None, tags: Sequence[str] = ()) -> dict[str, DAG]:
    """Return every DAG under a name for the globals of a DAG file; no such name hides another one there.

    ``default_args`` and ``tags`` are Airflow's, for the DAGs of files; what a file says itself comes before. A
    task gets its own DAG only: with 500 files, building all of them took each task 2.7 s.
    """
    checked = [check_tag(each) for each in tags]
    wanted, builders = get_parsing_context().dag_id, _list_builders({**RETRIES, **(default_args or {})}, checked)
    built = {dag_id: build() for dag_id, build in builders.items() if wanted in (None, dag_id)}
    return {f"dag_{dag_id}": each for dag_id, each in built.items() if each is not None}


def _list_builders(default_args: Mapping[str, Any], tags: Sequence[str]) -> dict[str, Callable[[], DAG | None]]:
    """Return what builds each DAG, by its id. A file that has the id of another DAG is left out.

    Only a refused file can have such a name. The task of a pipeline in the ledger audit says why it is refused.
    """
    files = [
        (each, "look", _build_watch_file) if is_watch_file(each) else (each, "plan", _build_pipeline_file)
        for each in find_files()
    ]
    # A refused file does not take the place of a pipeline: the last one of an id is built.
    files.sort(key=lambda file: name_in_airflow(file[0]) == file[0].stem)
    built = {
        name_in_airflow(path): partial(_build_file, path, first_task, partial(build, path, default_args, tags))
        for path, first_task, build in files
    }
    return {**built, **upkeep_dags.BUILDERS}


def _build_pipeline_file(path: Path, default_args: Mapping[str, Any], tags: Sequence[str]) -> DAG | None:
    pipeline = read_pipeline_file(path)
    return None if pipeline.dag.tasks == "none" else _build_pipeline(pipeline, default_args, tags)


def _build_watch_file(path: Path, default_args: Mapping[str, Any], tags: Sequence[str]) -> DAG | None:
    # Imported here, because most folders have none.
    from batchledger.config.watch_file import read_watch_file
    from batchledger.interfaces.airflow.watches import build_watch_dag

    watch = read_watch_file(path)
    return None if watch.dag.tasks == "none" else build_watch_dag(watch, default_args, tags)


def _build_file(path: Path, first_task: str, build: Callable[[], DAG | None]) -> DAG | None:
    """Return the DAG of a file, if it has one, or the DAG of its refusal, whose task has the name of the first one."""
    try:
        return build()
    except ConfigurationError as error:
        return _build_refused(name_in_airflow(path), first_task, error)
    except (AirflowException, TypeError, ValueError) as error:
        # One file, whatever Airflow does not take of it, does not take the other DAGs down.
        refused = ConfigurationError(
            f"Airflow does not take the DAG of {path}.", why=f"It says: {error}.", subject=str(path)
        )
        return _build_refused(name_in_airflow(path), first_task, refused)


def _build_pipeline(pipeline: PipelineConfig, default_args: Mapping[str, Any], tags: Sequence[str]) -> DAG:
    """Return the life of a batch as an Airflow graph."""

    @dag(
        dag_id=pipeline.name,
        schedule=triggers.choose_schedule(pipeline),
        params=triggers.make_form(),
        catchup=False,
        max_active_runs=1,
        default_args={**default_args, **pipeline.dag.write_default_args()},
        tags=[FILE_TAG, *tags, *pipeline.dag.tags],
        description=f"{', '.join(pipeline.source.topics)} → {pipeline.sink.target}, {pipeline.delivery}",
    )
    def life_of_a_batch() -> None:
        last: operators.PublishOperator | operators.BatchledgerOperator
        if pipeline.dag.tasks == "one":
            last = operators.BatchledgerOperator(task_id="batch", pipeline=pipeline, until_caught_up=True, place="")
        else:
            last = add_steps(pipeline)
            last >> further_runs.CatchUpOperator(task_id="catch_up", pipeline=pipeline)
        last >> further_runs.ReportOperator(
            task_id="report", pipeline=pipeline, trigger_dag_id=upkeep_dags.DATA_DOCS, trigger_rule="all_done"
        )

    return lineage.silence(life_of_a_batch())


def _build_refused(dag_id: str, first_task: str, error: ConfigurationError) -> DAG:
    """Show a refused file where people look for its DAG, without taking the other DAGs down."""

    @dag(dag_id=dag_id, schedule=None, tags=[FILE_TAG, "refused"], doc_md=f"Refused:\n```\n{error}\n```")
    def refused() -> None:
        @task(task_id=first_task)
        def fail() -> None:
            terms.fail(error)

        fail()

    return refused()
