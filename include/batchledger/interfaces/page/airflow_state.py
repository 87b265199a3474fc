"""What Airflow's own database says about the DAGs of pipelines. Runs in the API server; reads only."""

from collections.abc import Collection

from airflow.models.dag import DagModel
from airflow.models.dagrun import DagRun
from airflow.utils.session import create_session
from airflow.utils.state import DagRunState
from sqlalchemy import select

_ACTIVE = (DagRunState.QUEUED, DagRunState.RUNNING)


def find_active_runs(dag_ids: Collection[str]) -> set[tuple[str, str]]:
    """Return the DAG and the id of each run that waits or runs."""
    query = select(DagRun.dag_id, DagRun.run_id).where(DagRun.dag_id.in_(dag_ids), DagRun.state.in_(_ACTIVE))
    with create_session(scoped=False) as session:
        return {(dag_id, run_id) for dag_id, run_id in session.execute(query)}


def find_run_state(dag_id: str, run_id: str) -> str | None:
    """Return the state of a run in Airflow's word; None when it knows none of that id."""
    query = select(DagRun.state).where(DagRun.dag_id == dag_id, DagRun.run_id == run_id)
    with create_session(scoped=False) as session:
        state = session.scalar(query)
    return None if state is None else str(state)


def find_switched_off(dag_ids: Collection[str]) -> set[str]:
    """Return the DAGs that start no run by themselves, because they are switched off in Airflow."""
    query = select(DagModel.dag_id).where(DagModel.dag_id.in_(dag_ids), DagModel.is_paused)
    with create_session(scoped=False) as session:
        return set(session.scalars(query))
