"""The batch of a run of Airflow, and the note beside the run: which batch, how many rows, what a person has forced.

A person may mark a task, clear it by itself, or run it alone. So no task believes the state of the one before it: each
asks the run for its batch, and the ledger how far that is. The report task leaves the note as an XCom. Airflow's
scheduler copies it to the run in the transaction that ends the run, because a task cannot write there.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from airflow.sdk import get_current_context
from sqlalchemy.orm import object_session

from batchledger.interfaces.airflow.tracing import PLAN
from batchledger.model.balance import Balance
from batchledger.model.batch import Batch, BatchState, Lane, Step
from batchledger.model.counting import describe_count
from batchledger.model.errors import DecisionRefusedError
from batchledger.model.runs import RunPlace, find_place

if TYPE_CHECKING:
    from airflow.models.dagrun import DagRun

    from batchledger.config.pipeline_file import PipelineConfig

NOTE = "batchledger_note"
"""No DAG but ours has an XCom of this key: the scheduler looks at the runs of all DAGs."""
MOST_NOTES = 100
"""A run may have several task groups of pipelines."""
MOST_CHARACTERS = 1_000
"""Airflow's column holds no more, and an error there would stop its scheduler."""
IDLE = "batchledger_idle"
"""Under this key the plan task leaves why it has skipped the run."""
_SUCCESS, _SKIPPED = "success", "skipped"
_MARKS = (_SUCCESS, _SKIPPED, "failed")
_FORCED = "Its publish task was marked as a success by hand, and that publishes nothing."


def require_batch(pipeline: "PipelineConfig") -> int:
    """Return the batch that the plan task of this run has named. Raises DecisionRefusedError if it has named none."""
    from batchledger.wiring import build_platform

    found = _find_batch()
    if found is None:
        run = get_current_context()["dag_run"].run_id
        raise no_batch(pipeline.name, run, build_platform(pipeline).ledger.find_open_batch(pipeline.name))
    return found


def find_idle_reason() -> str | None:
    """Return why there is nothing to publish in this group; None if there is.

    The task that plans or stages says why it has skipped the run. If it does not, what comes before the group was
    skipped.
    """
    found = _ask(PLAN, IDLE) or _ask(Step.STAGE, IDLE)
    if found is None and _find_batch() is None and _read_states([PLAN]).get(PLAN) == _SKIPPED:
        return "what comes before the plan task was skipped"
    return None if found is None else str(found)


def find_present_place() -> RunPlace:
    """Return where in Airflow this task works: a run, and its group there, or itself if it takes all steps."""
    context = get_current_context()
    ti = context["ti"]
    group = getattr(context.get("task"), "place", ti.task_id.rpartition(".")[0])
    index = ti.map_index
    return RunPlace(ti.dag_id, context["dag_run"].run_id, group, index if index is not None and index >= 0 else None)


def find_gates() -> list[str]:
    """Return the tasks that stand directly before ``audit`` or ``publish``, or on a way to ``publish`` past ``stage``.

    A person's own DAG may have an approval there, which has to come before rows are visible.
    """
    dag, place = get_current_context()["dag"], find_present_place()
    steps = [place.task_id(each) for each in (Step.STAGE, Step.AUDIT, Step.PUBLISH)]
    stage, audit, publish = (dag.get_task(each) for each in steps)
    past_stage = publish.get_flat_relative_ids(upstream=True) - stage.get_flat_relative_ids(upstream=True)
    return sorted((past_stage | audit.upstream_task_ids | publish.upstream_task_ids) - {*steps})


def find_marked() -> str:
    """Return which later step a person has marked before ``stage``, which is this task, has ended; empty if none."""
    states = _read_states([str(Step.AUDIT), str(Step.PUBLISH)])
    return ", ".join(f"{step} is marked as {state}" for step, state in states.items() if state in _MARKS)


def is_another_place(run: str) -> bool:
    """Whether the name of a run, as the ledger has it, is another place of this run of Airflow."""
    here = find_present_place()
    there = find_place(here.dag_id, run)
    return there is not None and there != here and (there.dag_id, there.run_id) == (here.dag_id, here.run_id)


def describe_present_run(pipeline: "PipelineConfig") -> str:
    """Return what has become of this run, with what a person has forced; empty if there was nothing to do."""
    from batchledger.wiring import build_platform

    place, found = find_present_place(), _find_batch()
    states = _read_states([PLAN, str(Step.PUBLISH)])
    if found is None:
        return describe_run_without_batch(pipeline.name, states)
    platform = build_platform(pipeline)
    run, batch = place.name_for(pipeline.name), platform.ledger.load_batch(found)
    return describe_run(run, batch, platform.decisions.load_balances(found), states)


def _find_batch() -> int | None:
    found = _ask(PLAN, "return_value")
    return None if found is None else int(found)


def _ask(step: str, key: str) -> Any:
    """Return what a task of this group has left; in a mapped group, the one beside this task."""
    ti = get_current_context()["ti"]
    return ti.xcom_pull(task_ids=find_present_place().task_id(step), key=key, map_indexes=ti.map_index)


def _read_states(steps: Sequence[str]) -> Mapping[str, str]:
    """Return the states of tasks of this group, by their steps; without a task that Airflow has not begun with."""
    place = find_present_place()
    asked = {place.task_id(each): each for each in steps}
    ti = get_current_context()["ti"]
    told = ti.get_task_states(place.dag_id, place.map_index, [*asked], run_ids=[place.run_id]).get(place.run_id, {})
    # Airflow calls a mapped task load.plan_3 here.
    suffix = "" if place.map_index is None else f"_{place.map_index}"
    return {step: told[f"{task_id}{suffix}"] for task_id, step in asked.items() if f"{task_id}{suffix}" in told}


def no_batch(pipeline: str, run: str, open_batch: Batch | None) -> DecisionRefusedError:
    """Say that a run has no batch to work on, and which one waits."""
    waits = "" if open_batch is None else f" {open_batch.label} is open, and {open_batch.state}."
    goes_on = "" if open_batch is None else f", which goes on with {open_batch.subject}"
    return DecisionRefusedError(
        f"Run {run} of {pipeline} has no batch. This step changes nothing.",
        why=f"Its plan task has named none: a person has marked that task, or runs this one alone.{waits}",
        advice="Clear the plan task of this run in Airflow with everything downstream.\n"
        f"Or start another run{goes_on}: batchledger run {pipeline}",
        batch_id=None if open_batch is None else open_batch.batch_id,
        pipeline=pipeline,
    )


def describe_run(run: str, batch: Batch, balances: Sequence[Balance], states: Mapping[str, str]) -> str:
    """Return what has become of the batch of a run; ``states`` has the state of each task.

    It begins with a warning if Airflow shows the publish task as done, and nothing is visible.
    """
    if batch.state is BatchState.PUBLISHED:
        return _describe_published(run, batch, balances)
    if batch.state is BatchState.DISCARDED:
        return f"{batch.subject} is discarded, so nothing of it is visible."
    told = [f"{batch.subject} is {batch.state}, and not visible."]
    if states.get(Step.PUBLISH) == _SUCCESS:
        told.append(_FORCED)
    if batch.state is BatchState.BLOCKED:
        told.append(f"It waits for a person: batchledger batch {batch.batch_id}")
    elif batch.lane is Lane.LIVE:
        told.append(f"The next run goes on with it: batchledger run {batch.pipeline}")
    else:
        told.append(f"To go on with it: batchledger run {batch.pipeline} --batch {batch.batch_id}")
    return " ".join(told)


def describe_run_without_batch(pipeline: str, states: Mapping[str, str]) -> str:
    """Return what to say of a run that has no batch; empty if there was nothing to do."""
    forced = [each for each in (PLAN, str(Step.PUBLISH)) if states.get(each) == _SUCCESS]
    if not forced:
        return ""
    return (
        f"This run has no batch, so nothing became visible. Its {forced[-1]} task was marked as a success by hand. "
        f"The next run goes on: batchledger run {pipeline}"
    )


def _describe_published(run: str, batch: Batch, balances: Sequence[Balance]) -> str:
    """Count rows, and what has no row; a batch that another run has published counts as its."""
    by = "" if batch.attempt_run == run else f" by run {batch.attempt_run}"
    told = [f"{batch.subject}: {describe_count(sum(each.accepted for each in balances), 'row')} published{by}"]
    duplicates = sum(each.duplicates for each in balances)
    quarantined = sum(each.quarantined for each in balances)
    told += [describe_count(duplicates, "duplicate") + " dropped"] if duplicates else []
    told += [describe_count(quarantined, "record") + " quarantined"] if quarantined else []
    left = batch.lag_left_records if batch.lane is Lane.LIVE else 0
    told += [describe_count(left, "record") + " left for the next run"] if left else []
    return ", ".join(told)


def leave_note(dag_run: "DagRun") -> None:
    """Show what the report task has said of a run beside it, unless a person has written a note.

    Runs where Airflow ends a run, within its transaction. Runs of other DAGs have nothing that could be shown, and
    nothing but a text that fits is: whatever fails later in this transaction would fail Airflow's scheduler.
    """
    from airflow.models.xcom import XComModel

    session: Any = object_session(dag_run)
    # `airflow dags test` ends a run that no session holds.
    written = None if session is None else dag_run.dag_run_note
    if session is None or (written is not None and written.user_id is not None):
        return
    left = XComModel.get_many(run_id=dag_run.run_id, key=NOTE, dag_ids=dag_run.dag_id, limit=MOST_NOTES)
    said = [XComModel.deserialize_value(each) for each in session.scalars(left)]
    told = "\n".join(each for each in said if isinstance(each, str))
    if told:
        dag_run.note = told[:MOST_CHARACTERS]
